"""The DynamoDB store in the simulated world: a store and a wire for each process, over one modelled table.

    python -m sluice.testing.dynamodb.simulated --runs 10000      many schedules; stops where a claim breaks
    python -m sluice.testing.dynamodb.simulated --replay 4711     one again, as a story

What `sluice.testing.simulation` does to whole requests of any store is done here to each call that the store makes of
them: it is lost, or its reply is, it comes twice or late, it is overtaken, throttled or in conflict. So the calls of
several clients come in between each other, and a client may be cut off between two calls of one request. Clients go by
clocks that are apart, and indexes lag. Beside them, a clerk in each process writes documents (see `clerks`). What is
claimed of all that is written in `claims`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.core.documents import BucketPage, Document, DocumentKey, Kind, Mismatch, Page, Stored, Write
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Failure,
    Fold,
    GiveUp,
    Pause,
    Peek,
    Reap,
    Release,
    Renew,
    Repair,
    Settle,
    Take,
    Unknown,
    Unreached,
)
from sluice.ports import Clock, Store, Traits
from sluice.stores.dynamodb.store import MAX_SKEW_NS, DynamoStore
from sluice.stores.dynamodb.table import definition
from sluice.testing.dynamodb.calls import CallFault, CallWire, Roads
from sluice.testing.dynamodb.claims import Claims
from sluice.testing.dynamodb.clerks import KEYS, Books, write_both
from sluice.testing.dynamodb.model import Engine as Table
from sluice.testing.dynamodb.model import ModelWire
from sluice.testing.dynamodb.recorder import Recorder, Sent
from sluice.testing.simulation.engines import Engine
from sluice.testing.simulation.faults import Fault, Faults
from sluice.testing.simulation.history import InDoubt, NotReached
from sluice.testing.simulation.model import Broken
from sluice.testing.simulation.setting import SECOND, Setting
from sluice.testing.simulation.story import shrunk, told
from sluice.testing.simulation.system import System
from sluice.testing.simulation.world import Process, at_once

TABLE: Final = "simulated"
STORY_LINES: Final = 120

LONGEST_LAG_NS: Final = 5 * SECOND
"""How late an index may be."""

UNUSUAL_CLOCKS: Final = (Fault.CLOCK_OFFSET, Fault.CLOCK_STEPPED, Fault.CLOCK_FAST)
"""Clocks further apart than the store allows for are tried where the store goes by one clock (see `engine`)."""


class Observed(DynamoStore):
    """The table as an observer without latency sees it, by the clock it is given."""

    def __init__(self, clock: Clock) -> None:
        self.table = Table(definition(TABLE), clock.now_ns)
        tokens = iter(range(1_000_000))
        wire = ModelWire(self.table, clock.now_ns)
        super().__init__(wire, TABLE, max_skew_ns=0, token=lambda: f"seen-{next(tokens)}")


def engine() -> Engine:
    """The store for the simulator of whole requests: each decided at one moment, by one clock, to the nanosecond."""
    return Engine("dynamodb", Observed)


@dataclass
class CallSystem(System):
    """A run in which faults befall single calls."""

    def __post_init__(self) -> None:
        self.faults = self.faults.without(*UNUSUAL_CLOCKS)
        super().__post_init__()
        if not isinstance(self.store, Observed):
            raise TypeError(f"a simulation of the DynamoDB store, not of {self.setting.engine.name}")
        calm = self.setting.calm
        fired = Counter[CallFault]()
        self._spread_ns = 0
        if not calm and self.decisions.happens(CallFault.CLOCKS_APART, "clocks", 500):
            fired[CallFault.CLOCKS_APART] += 1
            self._spread_ns = self.decisions.stream("spread").randrange(1, MAX_SKEW_NS + 1)
        if not calm and self.decisions.happens(CallFault.INDEX_LATE, "indexes", 500):
            fired[CallFault.INDEX_LATE] += 1
            lag = self.decisions.stream("lag")
            self.store.table.index_lag_ns = lambda: lag.randrange(LONGEST_LAG_NS)
        fail_open = self.setting.fail_open
        self.claims = Claims(max_skew_ns=MAX_SKEW_NS, spread_ns=self._spread_ns, calm=calm, fail_open=fail_open)
        self.promises = self.claims  # type: ignore[assignment] # reads the same history, and holds it to less
        self.recorder = Recorder(self.network, self.store.table, self.claims)
        self.roads = Roads(self.network, self.recorder, calm, fired)
        self.books = Books()

    def reached(self, process: Process) -> Store:
        """A store of the process's own, over a wire of its own, by a clock that may be apart from the others."""
        process.clock.offset_ns = self.decisions.stream(f"{process.name}/clock").randrange(self._spread_ns + 1)
        store = CallStore(self.roads, process)
        process.start(write_both(process, store, self.books), f"{process.name}/clerk")
        return store

    def _run(self) -> None:
        super()._run()
        found = at_once(self.store.get(KEYS))
        if isinstance(found, Unknown | Unreached):
            raise TypeError(f"an engine is never at fault by itself, and this one answered {found!r}")
        self.books.conclude(list(found))

    def _kill(self, process: Process) -> None:
        super()._kill(process)
        self.claims.killed(process.name)


class CallStore:
    """The store as one process reaches it: the real one, over a wire whose calls go through the network."""

    def __init__(self, roads: Roads, process: Process) -> None:
        self._roads = roads
        self._process = process
        self._wire = CallWire(roads, process)
        tokens = iter(range(1_000_000))
        self._store = DynamoStore(self._wire, TABLE, token=lambda: f"{process.name}-{next(tokens)}")

    @property
    def traits(self) -> Traits:
        return self._store.traits

    async def take(self, requests: Sequence[Take], /) -> Any:
        return await self._heard("take", requests, self._store.take)

    async def settle(self, requests: Sequence[Settle | GiveUp], /) -> Any:
        return await self._heard("settle", requests, self._store.settle)

    async def release(self, requests: Sequence[Release], /) -> Any:
        return await self._heard("release", requests, self._store.release)

    async def renew(self, requests: Sequence[Renew], /) -> Any:
        return await self._heard("renew", requests, self._store.renew)

    async def reap(self, requests: Sequence[Reap], /) -> Any:
        return await self._heard("reap", requests, self._store.reap)

    async def peek(self, requests: Sequence[Peek], /) -> Any:
        return await self._store.peek(requests)

    async def pause(self, requests: Sequence[Pause], /) -> Any:
        return await self._heard("pause", requests, self._store.pause)

    async def fold(self, requests: Sequence[Fold], /) -> Any:
        return await self._store.fold(requests)

    async def repair(self, requests: Sequence[Repair], /) -> Any:
        return await self._store.repair(requests)

    async def get(self, keys: Sequence[DocumentKey], /) -> Sequence[Document | None] | Failure:
        return await self._store.get(keys)

    async def write(self, writes: Sequence[Write], /) -> Stored | Mismatch | Failure:
        return await self._store.write(writes)

    async def list(
        self,
        namespace: str,
        kind: Kind,
        /,
        *,
        under: tuple[str, str] | None = None,
        prefix: str = "",
        after: str | None = None,
    ) -> Page | Failure:
        return await self._store.list(namespace, kind, under=under, prefix=prefix, after=after)

    async def buckets(
        self, namespace: str, /, *, under: tuple[str, str] | None = None, after: str | None = None
    ) -> BucketPage | Failure:
        return await self._store.buckets(namespace, under=under, after=after)

    async def forget(self, keys: Sequence[BucketKey], /) -> Stored | Failure:
        return await self._store.forget(keys)

    async def close(self) -> None:
        """Nothing to close in here."""

    async def _heard(
        self, verb: str, requests: Sequence[Any], method: Callable[[Any], Coroutine[Any, Any, Any]]
    ) -> Any:
        """Have requests done, and hold what comes back against what the table did."""
        self._process.check_alive()
        network = self._roads.network
        task = network.world.running().name
        sent = self._wire.sent[task] = Sent(task, verb, requests)
        try:
            answers = await method(requests)
        finally:
            del self._wire.sent[task]
        for request, answer in zip(requests, answers, strict=True):
            self._roads.recorder.told(sent, request, answer)
        if any(isinstance(answer, Unknown) for answer in answers):
            network.note(InDoubt(task, verb))
        if any(isinstance(answer, Unreached) for answer in answers):
            network.note(NotReached(task, verb))
        return answers


@dataclass
class Report:
    """What many schedules came to: how many, how often each fault struck, and the first that failed."""

    runs: int = 0
    calls: int = 0
    granted: int = 0
    denied: int = 0
    contended: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    failure: str = ""

    def __str__(self) -> str:
        lines = [f"{self.runs} schedules, {self.calls} calls"]
        lines += [f"{self.granted} granted, {self.denied} denied, of those {self.contended} contended"]
        lines += [f"  {count:8}  {fault}" for fault, count in sorted(self.fired.items())]
        return "\n".join([*lines, self.failure])


def simulate_calls(seeds: Iterable[int | str]) -> Report:
    """Run the schedule of each seed, up to the first that fails."""
    report = Report()
    for seed in seeds:
        made, error = attempted(str(seed))
        report.runs += 1
        report.calls += made.network.calls
        report.granted += made.recorder.granted
        report.denied += made.recorder.denied
        report.contended += made.recorder.contended
        report.fired.update(
            {str(fault): count for fault, count in (*made.roads.fired.items(), *made.faults.fired.items())}
        )
        if error is not None:
            report.failure = story(made, error)
            break
    return report


def attempted(seed: str, dropped: frozenset[str] = frozenset()) -> tuple[CallSystem, Exception | None]:
    """Run one schedule; what went wrong, if anything did."""
    setting = Setting.drawn(random.Random(f"{seed}/setting"), [engine()])
    made = CallSystem(seed, setting, Faults.usual(), dropped)
    try:
        made.run()
    except Exception as error:  # noqa: BLE001 - whatever comes out of a schedule is its finding
        return made, error
    return made, None


def story(made: CallSystem, error: Exception) -> str:
    """A failing schedule, told at its smallest."""

    def fails_alike(dropped: frozenset[str]) -> bool:
        _, other = attempted(made.seed, dropped)
        alike = type(other) is type(error)
        return alike and not (isinstance(error, Broken) and getattr(other, "number", None) != error.number)

    smallest, found = attempted(made.seed, shrunk(made.decisions.notable, fails_alike))
    needed = [f"    {what} ({name})" for name, what in smallest.decisions.notable.items() if what != "ask"]
    why = f"seed {made.seed}: {type(found or error).__name__}: {found or error}"
    return "\n".join([why, "what is needed for it:", *needed, "", told(smallest.network.story, STORY_LINES)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules and report; exit status 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m sluice.testing.dynamodb.simulated", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="how many schedules (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--replay", metavar="SEED", help="run one schedule and tell it, whether it fails or not")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        made, error = attempted(options.replay)
        print(told(made.network.story) if error is None else story(made, error))
        return 0 if error is None else 1
    report = simulate_calls(range(options.first, options.first + options.runs))
    print(report)
    return 1 if report.failure else 0


if __name__ == "__main__":
    sys.exit(main())
