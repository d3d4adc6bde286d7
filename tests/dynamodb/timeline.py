"""Many clients on one modelled table, in virtual time: each call takes a while to get there and to come back.

A task is a coroutine; what it awaits is how long nothing happens. The next thing to happen is always the earliest, so a
run is the same each time for the same seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Coroutine, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from sluice.core.requests import Failure
from sluice.stores.dynamodb import DynamoStore, definition
from sluice.stores.dynamodb.wire import Call, ConditionFailed, Operation, Reply
from sluice.testing.dynamodb.model import Engine, decided

MS = 1_000_000
START_NS = 1_700_000_000 * 1_000 * MS
TABLE = "sluice"


@dataclass(frozen=True)
class _Pause:
    duration_ns: int

    def __await__(self) -> Generator[_Pause, None, None]:
        yield self


@dataclass(frozen=True)
class _Wait:
    gate: LineGate
    deadline_ns: int

    def __await__(self) -> Generator[_Wait, None, None]:
        yield self


Task = Coroutine[Any, Any, None]


class Timeline:
    """Virtual time, and a table in it."""

    def __init__(self, seed: int, latency_ns: tuple[int, int] = (4 * MS, 12 * MS), index_lag_ns: int = 0) -> None:
        self.rng = random.Random(seed)
        self.now_ns = START_NS
        self.latency_ns = latency_ns
        self.engine = Engine(definition(TABLE), lambda: self.now_ns, lambda: index_lag_ns)
        self.writes = self.refused = 0
        self._wakings: list[tuple[int, int, Task]] = []
        self._due: dict[Task, int] = {}
        self._numbers = itertools.count()

    def client(self, **options: Any) -> DynamoStore:
        """A store as another process would have it."""
        return DynamoStore(_Wire(self), TABLE, **options)

    def pause(self, duration_ns: int) -> _Pause:
        return _Pause(duration_ns)

    def start(self, task: Task, in_ns: int = 0) -> None:
        self._wake(task, self.now_ns + in_ns)

    def _wake(self, task: Task, at_ns: int) -> None:
        number = next(self._numbers)
        self._due[task] = number
        heapq.heappush(self._wakings, (at_ns, number, task))

    def run(self, for_ns: int) -> None:
        """Let so much time pass; whatever is under way then is left there."""
        until_ns = self.now_ns + for_ns
        while self._wakings and self._wakings[0][0] <= until_ns:
            at_ns, number, task = heapq.heappop(self._wakings)
            if self._due.get(task) != number:
                continue
            self.now_ns = at_ns
            try:
                stop = task.send(None)
            except StopIteration:
                del self._due[task]
                continue
            if isinstance(stop, _Pause):
                self._wake(task, self.now_ns + stop.duration_ns)
            elif isinstance(stop, _Wait):
                stop.gate.waiting.append(task)
                self._wake(task, max(self.now_ns, stop.deadline_ns))
        self.now_ns = until_ns
        for task in self._due:
            task.close()
        self._due.clear()
        self._wakings.clear()

    def wake_all(self, tasks: list[Task]) -> None:
        for task in tasks:
            if task in self._due:
                self._wake(task, self.now_ns)
        tasks.clear()


class LineGate:
    """A gate in virtual time."""

    def __init__(self, line: Timeline) -> None:
        self._line = line
        self._open = False
        self.waiting: list[Task] = []

    def set(self) -> None:
        self._open = True
        self._line.wake_all(self.waiting)

    async def wait(self, deadline_ns: int) -> bool:
        if not self._open and deadline_ns > self._line.now_ns:
            await _Wait(self, deadline_ns)
        return self._open


class LineScope:
    """A process of its own in virtual time, where nobody is ever cancelled."""

    def __init__(self, line: Timeline, name: str) -> None:
        self._line = line
        self._name = name

    def now_ns(self) -> int:
        return self._line.now_ns

    def steady_ns(self) -> int:
        return self._line.now_ns

    async def finish(self, work: Coroutine[Any, Any, Any], undo: object = None) -> Any:
        return await work

    def gate(self) -> LineGate:
        return LineGate(self._line)

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> LineGate:
        gate = self.gate()

        async def task() -> None:
            await work
            gate.set()

        self._line.start(task())
        return gate

    def process(self) -> str:
        return self._name


class _Wire:
    """One client's way to the table."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def now_ns(self) -> int:
        return self._timeline.now_ns

    async def send(self, calls: Sequence[Call], /) -> list[Reply]:
        line = self._timeline
        await line.pause(line.rng.randrange(*line.latency_ns) // 2)
        replies: list[Reply] = []
        for call in calls:
            line.writes += call.operation is Operation.UPDATE_ITEM
            reply = self.reply(call)
            line.refused += isinstance(reply, ConditionFailed)
            replies.append(reply)
        await line.pause(line.rng.randrange(*line.latency_ns) // 2)
        return replies

    def reply(self, call: Call) -> Reply | Failure:
        return decided(self._timeline.engine, call)

    async def close(self) -> None:
        """Nothing to close in here."""
