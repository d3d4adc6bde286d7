"""Many clients on one modelled table, in virtual time: each call takes a while to get there and to come back.

A task is a coroutine; what it awaits is how long nothing happens. The next thing to happen is always the earliest, so a
run is the same each time for the same seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Coroutine, Generator, Sequence
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

    def __await__(self) -> Generator[int, None, None]:
        yield self.duration_ns


class Timeline:
    """Virtual time, and a table in it."""

    def __init__(self, seed: int, latency_ns: tuple[int, int] = (4 * MS, 12 * MS), index_lag_ns: int = 0) -> None:
        self.rng = random.Random(seed)
        self.now_ns = START_NS
        self.latency_ns = latency_ns
        self.engine = Engine(definition(TABLE), lambda: self.now_ns, lambda: index_lag_ns)
        self.writes = self.refused = 0
        self._tasks: list[tuple[int, int, Coroutine[Any, Any, None]]] = []
        self._numbers = itertools.count()

    def client(self, **options: Any) -> DynamoStore:
        """A store as another process would have it."""
        return DynamoStore(_Wire(self), TABLE, **options)

    def pause(self, duration_ns: int) -> _Pause:
        return _Pause(duration_ns)

    def start(self, task: Coroutine[Any, Any, None], in_ns: int = 0) -> None:
        heapq.heappush(self._tasks, (self.now_ns + in_ns, next(self._numbers), task))

    def run(self, for_ns: int) -> None:
        """Let so much time pass."""
        until_ns = self.now_ns + for_ns
        while self._tasks and self._tasks[0][0] <= until_ns:
            self.now_ns, _, task = heapq.heappop(self._tasks)
            try:
                pause_ns = task.send(None)
            except StopIteration:
                continue
            self.start(task, pause_ns)
        self.now_ns = until_ns
        for _, _, task in self._tasks:
            task.close()
        self._tasks.clear()


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
