"""A clock that moves when it is told to, and what waits on it: for tests that take no time and always go the same way.

    advance(3)      time moves by three seconds; background work that falls due on the way runs when it is due
    step(-3600)     the wall clock alone jumps; nothing falls due
    after(3, call)  have something happen then: a rival takes, a holder releases, Ctrl-C is pressed

Waiting is switched off: whoever waits in the foreground, such as ``acquire(..., wait=30)``, has time moved on to where
its wait ends, at once. On the way everything else that falls due runs, earliest first. What a client runs beside its
callers, such as the renewing of leases, never moves time: it waits until somebody else does. It needs no thread here:
it runs whenever a call into the client ends or waits, and when time is advanced.

The clock is for one thread: the first that moves it. A call that need not wait may come from any thread; one that would
move the clock from another thread raises a `RuntimeError`. Under asyncio use ``await clock.aadvance(3)``, so that the
tasks that fall due have their turn.
"""

from __future__ import annotations

import heapq
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sluice.core.bounds import NS_PER_SECOND
from sluice.wires.blocking.scope import BlockingScope

if TYPE_CHECKING:
    from sluice.ports import Gate
    from sluice.sync import RunningScope
    from sluice.testing.clock_aio import AioSide, ManualAioScope

T = TypeVar("T")

START: Final = 1_700_000_000
"""Where a manual clock starts, in seconds since the epoch: 14 November 2023, 22:13:20 UTC."""

STEADY_START_NS: Final = 1_000 * NS_PER_SECOND

MAX_TURNS: Final = 100_000
"""Turns that background work may have while time stands still. More means that it goes round in circles."""


@dataclass(order=True)
class Timer:
    """Something that happens at a time, unless it is cancelled before."""

    due_ns: int
    number: int
    wake: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)


class ManualClock:
    """A clock for tests. Give it to a client, and time moves only as you say, or when somebody waits.

    >>> from sluice import Limit, Sluice
    >>> clock = ManualClock()
    >>> sluice = Sluice("memory://", clock=clock)
    >>> sluice.set_limits("openai", [Limit("rpm", "1/min")])
    >>> bool(sluice.try_acquire("openai")), bool(sluice.try_acquire("openai"))
    (True, False)
    >>> clock.advance(60)
    >>> bool(sluice.try_acquire("openai"))
    True
    >>> before = clock.now_ns()
    >>> lease = sluice.acquire("openai", wait=90)
    >>> (clock.now_ns() - before) / 1e9
    60.0
    """

    def __init__(self, start: float = START) -> None:
        self._steady_ns = STEADY_START_NS
        self._wall_ahead_ns = round(start * NS_PER_SECOND) - STEADY_START_NS
        self._timers: list[Timer] = []
        self._made = 0
        self._ready: deque[_Background] = deque()
        self._thread: threading.Thread | None = None
        self._aio: AioSide | None = None
        self.lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<ManualClock at {self.now_ns() / NS_PER_SECOND}>"

    def now_ns(self) -> int:
        """Wall-clock nanoseconds since the epoch."""
        return self._steady_ns + self._wall_ahead_ns

    def steady_ns(self) -> int:
        """Nanoseconds that only ever grow."""
        return self._steady_ns

    def advance(self, seconds: float = 0, *, ns: int = 0) -> None:
        """Let time pass: ``seconds`` and ``ns`` together. Background work runs as it falls due."""
        if self._aio is not None and self._aio.busy:
            raise RuntimeError("asyncio tasks wait on this clock and need their turn: use 'await clock.aadvance(...)'")
        with self.lock:
            target_ns = self._steady_ns + _forward_ns(seconds, ns)
            self.run_ready()
            while (due_ns := self.next_due_ns()) is not None and due_ns <= target_ns:
                self.move_to(due_ns)
                self.run_ready()
            self.move_to(target_ns)

    async def aadvance(self, seconds: float = 0, *, ns: int = 0) -> None:
        """`advance`, for asyncio: the tasks that fall due on the way have their turn."""
        target_ns = self._steady_ns + _forward_ns(seconds, ns)
        side = self._aio_side()
        await side.quiet()
        while (due_ns := self.next_due_ns()) is not None and due_ns <= target_ns:
            self.move_to(due_ns)
            await side.quiet()
        self.move_to(target_ns)

    def step(self, seconds: float = 0, *, ns: int = 0) -> None:
        """Make the wall clock jump, ahead or back, as one that is set does. No time passes."""
        self._wall_ahead_ns += round(seconds * NS_PER_SECOND) + ns

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Have ``call`` happen once so much time has passed. What it raises, it raises in whoever moved time."""
        self.timer(self._steady_ns + _forward_ns(seconds, 0), call)

    def blocking_scope(self) -> RunningScope:
        """How `Sluice` runs on this clock."""
        return ManualScope(self)

    def async_scope(self) -> ManualAioScope:
        """How `AsyncSluice` runs on this clock."""
        return self._aio_side().scope()

    def _aio_side(self) -> AioSide:
        from sluice.testing.clock_aio import AioSide

        if self._aio is None:
            self._aio = AioSide(self)
        return self._aio

    # --- for the scopes ---

    def timer(self, due_ns: int, wake: Callable[[], object]) -> Timer:
        """Have something happen when time comes to ``due_ns``."""
        with self.lock:
            self._made += 1
            timer = Timer(due_ns, self._made, wake)
            heapq.heappush(self._timers, timer)
            return timer

    def next_due_ns(self) -> int | None:
        """When the next thing will happen."""
        with self.lock:
            while self._timers and self._timers[0].cancelled:
                heapq.heappop(self._timers)
            return self._timers[0].due_ns if self._timers else None

    def move_to(self, time_ns: int) -> None:
        """Move time on and let happen what is due by then. Time never moves back."""
        self._check_thread()
        self._steady_ns = max(self._steady_ns, time_ns)
        while (due_ns := self.next_due_ns()) is not None and due_ns <= self._steady_ns:
            heapq.heappop(self._timers).wake()

    def _check_thread(self) -> None:
        here = threading.current_thread()
        if self._thread is None or not self._thread.is_alive():
            self._thread = here
        if self._thread is not here:
            raise RuntimeError(
                f"a ManualClock is for one thread: {self._thread.name!r} has moved this one, and {here.name!r} waits "
                "on it; give each thread a client and a clock of its own, or use the system's clock in this test"
            )

    def wait(self, gate: ManualGate, deadline_ns: int) -> None:
        """A foreground wait: move time until the gate is open or the deadline has come."""
        self.run_ready()
        while not gate.open and self._steady_ns < deadline_ns:
            due_ns = self.next_due_ns()
            self.move_to(deadline_ns if due_ns is None else min(due_ns, deadline_ns))
            self.run_ready()

    def start(self, work: Coroutine[Any, Any, None], over: ManualGate) -> None:
        """Run work beside the callers from now on."""
        with self.lock:
            self._ready.append(_Background(work, over))

    def wake(self, waiting: _Background) -> None:
        """Have background work go on at the next occasion."""
        with self.lock:
            if waiting.timer is not None:
                waiting.timer.cancelled = True
                waiting.timer = None
                self._ready.append(waiting)

    def run_ready(self) -> None:
        """Let the background work that can go on do so, until all of it waits."""
        with self.lock:
            for _ in range(MAX_TURNS):
                if not self._ready:
                    return
                self._turn(self._ready.popleft())
        raise RuntimeError(f"background work had {MAX_TURNS} turns while time stood still; it goes round in circles")

    def _turn(self, background: _Background) -> None:
        try:
            wait = background.work.send(None)
        except StopIteration:
            background.over.set()
        except Exception:  # noqa: BLE001 - as a thread does: it ends, and whoever looks after threads is told
            background.over.set()
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))
        except BaseException:
            background.over.set()
            raise
        else:
            background.timer = self.timer(wait.deadline_ns, lambda: self.wake(background))
            wait.gate.waiting.append(background)
            if wait.gate.open or wait.deadline_ns <= self._steady_ns:
                self.wake(background)


@dataclass(eq=False)
class _Background:
    """Work that runs beside the callers, and what wakes it while it waits."""

    work: Coroutine[Any, Any, None]
    over: ManualGate
    timer: Timer | None = None


@dataclass(frozen=True)
class _Wait:
    """What a flow yields to whoever runs it: where it waits, and how long."""

    gate: ManualGate
    deadline_ns: int

    def __await__(self) -> Generator[_Wait, None, bool]:
        yield self
        return self.gate.open


class ManualGate:
    """A gate on a manual clock. Whoever runs the flow decides what waiting means."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.open = False
        self.waiting: list[_Background] = []

    def set(self) -> None:
        """Let everybody through, now and from now on."""
        self.open = True
        while self.waiting:
            self._clock.wake(self.waiting.pop())

    async def wait(self, deadline_ns: int) -> bool:
        """Wait until it is open or the steady clock reaches the deadline; whether it is open."""
        return self.open or await _Wait(self, deadline_ns)


class ManualScope(BlockingScope):
    """A `Scope` in the caller's thread alone: foreground waits move the clock, background work takes turns."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._manual = clock

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a flow to its end, moving time where it waits, then whatever can go on beside it."""
        with self._manual.lock:
            try:
                return self._drive(work)
            finally:
                self._manual.run_ready()

    def _drive(self, work: Coroutine[Any, Any, T]) -> T:
        interruption: BaseException | None = None
        while True:
            try:
                wait = work.send(None) if interruption is None else work.throw(interruption)
            except StopIteration as ended:
                value: T = ended.value
                return value
            if not isinstance(wait, _Wait):
                work.close()
                raise RuntimeError("a flow suspended on something else than the manual clock that it was given")
            interruption = None
            try:
                self._manual.wait(wait.gate, wait.deadline_ns)
            except BaseException as error:  # noqa: BLE001 - it belongs to the flow, which is thrown it where it waits
                interruption = error

    def gate(self) -> Gate:  # type: ignore[override]
        """Something to wait for on the manual clock."""
        return ManualGate(self._manual)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> Gate:  # type: ignore[override]
        """Have work take turns beside the caller; the gate is set once it has ended."""
        over = ManualGate(self._manual)
        self._manual.start(work, over)
        return over


def _forward_ns(seconds: float, ns: int) -> int:
    duration_ns = round(seconds * NS_PER_SECOND) + ns
    if duration_ns < 0:
        raise ValueError(f"time only moves on, not by {duration_ns} ns; step() makes the wall clock jump back")
    return duration_ns
