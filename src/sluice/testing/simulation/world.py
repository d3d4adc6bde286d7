"""A world of processes in virtual time: a scheduler, clocks, gates and scopes, all seeded.

Coroutines run as they are; they suspend only at gates and at the simulated network. Between any two steps a task may
be cancelled, its process killed or frozen. Who goes first among those that are ready is drawn from the seed.

    cancelled    an exception is thrown in at the await, or as soon as `SimScope.finish` has let go of it
    killed       its coroutines are never resumed, and whatever they still try on the way out reaches nobody
    frozen       nothing of the process runs for a while; its clocks, and the store's, go on
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from sluice.testing.simulation.decisions import Decisions

T = TypeVar("T")

START_NS = 1_700_002_798_000_000_000
"""Two seconds before the hour, so that what is used is counted in more than one."""

MAX_STEPS = 2_000_000


class Cancelled(BaseException):
    """What a cancelled task has thrown into it, as asyncio.CancelledError would be."""


class Killed(BaseException):
    """What the coroutines of a killed process meet when they try anything on the way out."""


class Stuck(AssertionError):
    """The run didn't come to an end."""


@dataclass
class SimClock:
    """A clock of the world: ``offset`` from true time, running ``per_mille`` fast, stepped now and then."""

    world: World
    offset_ns: int = 0
    fast_per_mille: int = 0

    def now_ns(self) -> int:
        return START_NS + self.steady_ns() + self.offset_ns

    def steady_ns(self) -> int:
        return self.world.now_ns + self.world.now_ns * self.fast_per_mille // 1000

    def true_ns(self, steady_ns: int) -> int:
        """The world's time at which this clock's steady time will have come."""
        return -(-steady_ns * 1000 // (1000 + self.fast_per_mille))


class _Suspend:
    """Suspends a task until the world resumes it with a value."""

    def __await__(self) -> Generator[_Suspend, Any, Any]:
        return (yield self)


async def suspended() -> Any:
    """Suspend the running task until something resumes it, and return what that hands over."""
    return await _Suspend()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what never suspends."""
    try:
        work.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    raise RuntimeError("this was to be done at once, and waits for something")


@dataclass(eq=False)
class Task:
    """A coroutine of a process, and where it stands."""

    process: Process
    name: str
    work: Coroutine[Any, Any, Any]
    over: SimGate
    ticket: int = 0
    shield: int = 0
    cancel_pending: bool = False
    done: bool = False
    error: BaseException | None = None


class World:
    """Virtual time and what happens in it."""

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions
        self.now_ns = 0
        self.current: Task | None = None
        self.steps = 0
        self._ties = decisions.stream("order")
        self._queue: list[tuple[int, float, int, Callable[[], None]]] = []
        self._queued = 0
        self.after_step: Callable[[], None] = lambda: None

    def at(self, time_ns: int, event: Callable[[], None]) -> None:
        """Have something happen at a time; among simultaneous events the seed decides."""
        self._queued += 1
        heapq.heappush(self._queue, (max(time_ns, self.now_ns), self._ties.random(), self._queued, event))

    def run(self, finished: Callable[[], bool]) -> None:
        """Let time pass until all that must finish has."""
        while not finished():
            if not self._queue:
                raise Stuck("everybody waits and nothing will happen any more")
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise Stuck(f"{MAX_STEPS} steps and no end")
            self.now_ns, _, _, event = heapq.heappop(self._queue)
            event()
            self.after_step()

    def running(self) -> Task:
        """The task that runs now; whatever is awaited, one does."""
        if self.current is None:
            raise Stuck("something is awaited, and no task runs")
        return self.current

    async def sleep_until(self, time_ns: int) -> None:
        self.resume_at(self.running(), time_ns, None)
        await suspended()

    def resume_at(self, task: Task, time_ns: int, value: object, ticket: int | None = None) -> None:
        """Wake a task where it waits now, unless something else has woken it before."""
        waiting = task.ticket if ticket is None else ticket
        self.at(time_ns, lambda: self._wake(task, waiting, value))

    def _wake(self, task: Task, ticket: int, value: object) -> None:
        if task.done or task.ticket != ticket or task.process.dead:
            return
        if task.process.frozen_until_ns > self.now_ns:
            self.at(task.process.frozen_until_ns, lambda: self._wake(task, ticket, value))
            return
        self.step(task, lambda: task.work.send(value))

    def step(self, task: Task, move: Callable[[], object]) -> None:
        """Run a task until it suspends again or ends."""
        task.ticket += 1
        self.current, before = task, self.current
        try:
            move()
        except StopIteration:
            self._end(task, None)
        except (Exception, Cancelled, Killed) as error:  # noqa: BLE001 - how a task ends is for others to judge
            self._end(task, error)
        finally:
            self.current = before

    def _end(self, task: Task, error: BaseException | None) -> None:
        task.done = True
        task.error = error
        task.over.set()
        task.process.ended(task)

    def cancel(self, task: Task) -> None:
        """Cancel a task where it waits, or once what it has sent is finished."""
        if task.done or task.process.dead:
            return
        if task.shield:
            task.cancel_pending = True
        else:
            self.step(task, lambda: task.work.throw(Cancelled()))


class SimGate:
    """A gate in virtual time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_set = False
        self._waiting: list[tuple[Task, int]] = []

    def set(self) -> None:
        self._is_set = True
        world = self._process.world
        for task, ticket in self._waiting:
            world.resume_at(task, world.now_ns, True, ticket)
        self._waiting = []

    async def wait(self, deadline_ns: int) -> bool:
        process, world = self._process, self._process.world
        process.check_alive()
        if self._is_set:
            return True
        task = world.running()
        if process.clock.steady_ns() >= deadline_ns:
            await world.sleep_until(world.now_ns)
            return self._is_set
        world.resume_at(task, process.clock.true_ns(deadline_ns), False)
        self._waiting.append((task, task.ticket))
        await suspended()
        return self._is_set


class Process:
    """One process of the world: its clock, its tasks, and what may befall it."""

    def __init__(self, world: World, name: str, clock: SimClock) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.dead = False
        self.frozen_until_ns = 0
        self.tasks: list[Task] = []
        self.on_error: Callable[[Task], None] = lambda task: None

    def check_alive(self) -> None:
        if self.dead:
            raise Killed

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> Task:
        task = Task(self, name, work, SimGate(self))
        self.tasks.append(task)
        self.world.resume_at(task, self.world.now_ns, None)
        return task

    def ended(self, task: Task) -> None:
        self.tasks.remove(task)
        if task.error is not None:
            self.on_error(task)

    def kill(self) -> None:
        """SIGKILL: nothing of it happens any more."""
        self.dead = True
        for task in self.tasks:
            task.done = True
            try:
                task.work.close()
            except (Killed, RuntimeError):
                continue  # it tried to go on; nobody heard
        self.tasks = []

    def freeze(self, for_ns: int) -> None:
        self.frozen_until_ns = self.world.now_ns + for_ns


class SimScope:
    """A `Scope` in the simulated world."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def finish(
        self, work: Coroutine[Any, Any, T], undo: Callable[[], Coroutine[Any, Any, object]] | None = None
    ) -> T:
        if self._process.dead:
            work.close()
            raise Killed
        task = self._process.world.running()
        task.shield += 1
        try:
            result = await work
        finally:
            task.shield -= 1
            cancelled = task.cancel_pending and not task.shield and not self._process.dead
            if cancelled:
                task.cancel_pending = False
                if undo is not None:
                    task.shield += 1
                    try:
                        await undo()
                    finally:
                        task.shield -= 1
                task.cancel_pending = False
                raise Cancelled
        return result

    def gate(self) -> SimGate:
        return SimGate(self._process)

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> SimGate:
        if self._process.dead:
            work.close()
            raise Killed
        return self._process.start(work, name).over

    def process(self) -> str:
        return "nobody" if self._process.dead else self._process.name
