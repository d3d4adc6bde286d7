"""The manual clock under asyncio: the same rules, with tasks and futures.

Foreground is every task that waits on the clock, background what a client has spawned. Time moves once nothing else
can happen: all background work waits, and every other task has had some turns of the loop. Tasks that wait for
something real (a socket, ``asyncio.sleep``) are not seen; give them the clock to wait on, or await them first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sluice.wires.aio.scope import AioScope

if TYPE_CHECKING:
    from sluice.ports import Gate
    from sluice.testing.clock import ManualClock

QUIET_PASSES: Final = 20
"""Turns of the loop that every task is given before time moves."""

PATIENCE_S: Final = 120.0
"""How long background work may be busy, in real time, before that is taken for going round in circles."""

MAX_MOVES: Final = 100_000
"""How often time may move while a client closes."""


@dataclass(eq=False)
class _Job:
    """Background work: its task, and what it waits for on the clock, if it does."""

    task: asyncio.Task[None] | None = None
    wakes: asyncio.Future[None] | None = None

    @property
    def quiet(self) -> bool:
        ended = self.task is not None and self.task.done()
        return ended or (self.wakes is not None and not self.wakes.done())


_job: ContextVar[_Job | None] = ContextVar("sluice_manual_clock_job", default=None)


class AioSide:
    """Everything of asyncio that waits on one clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.jobs: set[_Job] = set()
        self._foreground: list[asyncio.Future[None]] = []
        self._mover: asyncio.Task[None] | None = None

    def scope(self) -> ManualAioScope:
        """How one client runs on the clock."""
        return ManualAioScope(self)

    @property
    def busy(self) -> bool:
        """Whether any task waits on the clock or is on its way there."""
        self._forget_closed_loops()
        return bool(self.jobs or self._foreground)

    def _forget_closed_loops(self) -> None:
        self.jobs = {job for job in self.jobs if job.task is None or not job.task.get_loop().is_closed()}
        self._foreground = [future for future in self._foreground if not future.get_loop().is_closed()]

    async def quiet(self) -> None:
        """Return once all background work waits on the clock and everybody else has had their turns."""
        until = time.monotonic() + PATIENCE_S
        while True:
            self.clock.run_ready()
            for _ in range(QUIET_PASSES):
                await asyncio.sleep(0)
            if all(job.quiet for job in self.jobs):
                return
            if time.monotonic() > until:
                raise RuntimeError(f"background work has been busy for {PATIENCE_S} s while the clock stood still")
            await asyncio.sleep(0.0005)

    async def wait(self, wakes: asyncio.Future[None], deadline_ns: int) -> None:
        """Wait for a future or a time, in the foreground or as a job, whichever this is."""
        timer = self.clock.timer(deadline_ns, lambda: wake(wakes))
        job = _job.get()
        if job is not None:
            job.wakes = wakes
        else:
            self._foreground.append(wakes)
            if self._mover is None or self._mover.done():
                self._mover = asyncio.create_task(self._move(), name="manual clock")
        try:
            await wakes
        finally:
            timer.cancelled = True
            if job is not None:
                job.wakes = None
            elif wakes in self._foreground:
                self._foreground.remove(wakes)

    async def _move(self) -> None:
        """Move time on, from one thing that falls due to the next, as long as anybody waits in the foreground."""
        while True:
            await self.quiet()
            waiting = [future for future in self._foreground if not future.done()]
            if not waiting:
                return
            try:
                self.move_on()
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
                if not waiting[0].done():
                    waiting[0].set_exception(error)

    def move_on(self) -> bool:
        """Move time to what falls due next; False if there is nothing."""
        due_ns = self.clock.next_due_ns()
        if due_ns is not None:
            self.clock.move_to(due_ns)
        return due_ns is not None


def wake(wakes: asyncio.Future[None]) -> None:
    """Let whoever waits for this go on."""
    if not wakes.done() and not wakes.get_loop().is_closed():
        wakes.set_result(None)


class ManualAioGate:
    """A gate on a manual clock that suspends its task."""

    def __init__(self, side: AioSide) -> None:
        self._side = side
        self._open = False
        self._waiting: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        """Let everybody through, now and from now on."""
        self._open = True
        for wakes in self._waiting:
            wake(wakes)

    async def wait(self, deadline_ns: int) -> bool:
        """Wait until it is open or the steady clock reaches the deadline; whether it is open."""
        if self._open:
            return True
        if self._side.clock.steady_ns() >= deadline_ns:
            await asyncio.sleep(0)
            return self._open
        wakes = asyncio.get_running_loop().create_future()
        self._waiting.add(wakes)
        try:
            await self._side.wait(wakes, deadline_ns)
        finally:
            self._waiting.discard(wakes)
        return self._open


class ManualAioScope(AioScope):
    """A `Scope` of asyncio tasks on a manual clock."""

    def __init__(self, side: AioSide) -> None:
        super().__init__(side.clock)
        self._side = side

    def gate(self) -> Gate:  # type: ignore[override]
        """Something to wait for on the manual clock."""
        return ManualAioGate(self._side)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> Gate:  # type: ignore[override]
        """Run work as a task of its own, in the background; the gate is set once it has ended."""
        over, job, context = self.gate(), _Job(), copy_context()
        context.run(_job.set, job)
        task = asyncio.create_task(work, name=name, context=context)
        job.task = task
        self._side.jobs.add(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._side.jobs.discard(job))
        task.add_done_callback(lambda _: over.set())
        return over

    async def drain(self) -> None:
        """Wait for everything that was started to end, moving time as it needs."""
        for _ in range(MAX_MOVES):
            others = self._tasks - {asyncio.current_task()}
            if not others:
                return
            await self._side.quiet()
            if not all(task.done() for task in others) and not self._side.move_on():
                await asyncio.wait(others)
        raise RuntimeError(f"work that was started has not ended after time moved {MAX_MOVES} times")
