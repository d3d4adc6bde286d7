"""What stands behind the simulated network: any store, over the store's own clock.

An engine opens a fresh, empty `Store` for one run. In front of it stands the network (see `network`), which loses,
delays and repeats whole calls and lets each process see the same state; so the engine itself is never at fault, and it
decides each call at one moment: its coroutines must not suspend, however many steps they take inside. The clock is
the store's, and may step.

To have another store simulated, add an `Engine` to `ENGINES` that opens it over a model of its database:

    Engine("dynamodb", lambda clock: DynamoStore(ModelWire(table, clock.now_ns), "table", max_skew_ns=0), share=10)

What it must answer is what the core answers, to the nanosecond: a store that lets lapsed slots count for longer (its
``max_skew``), or says that it was contended, is opened here so that it does neither.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, TypeVar

from sluice.ports import Clock, Store
from sluice.stores.dynamodb import DynamoStore, definition
from sluice.stores.memory import MemoryStore
from sluice.stores.sqlite import SqliteStore, Transaction
from sluice.stores.sqlite.statements import MIGRATIONS
from sluice.testing.dynamodb.model import Engine as Table
from sluice.testing.dynamodb.model import ModelWire

T = TypeVar("T")


@dataclass(frozen=True)
class Engine:
    """A kind of store to simulate; ``share`` is how often it is drawn, in proportion to the others."""

    name: str
    open: Callable[[Clock], Store]
    share: int = 1


class OneFile:
    """A wire to a SQLite file that nobody else has open: it begins, runs the job and commits, without waiting."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows = sqlite3.connect(":memory:", isolation_level=None)
        for migration in MIGRATIONS:
            for statement in migration:
                self._rows.execute(statement)

    async def write(self, job: Callable[[Transaction], T], /) -> T:
        self._rows.execute("BEGIN IMMEDIATE")
        transaction = Transaction(self._rows, self._clock.now_ns())
        result = job(transaction)
        transaction.save()
        self._rows.execute("COMMIT")
        return result

    async def read(self, job: Callable[[Transaction], T], /) -> T:
        return job(Transaction(self._rows, self._clock.now_ns()))

    async def close(self) -> None:
        self._rows.close()


def _memory(clock: Clock) -> Store:
    return MemoryStore(clock, nullcontext(), joint=True)


def _bucket_by_bucket(clock: Clock) -> Store:
    return MemoryStore(clock, nullcontext(), joint=False)


def _sqlite(clock: Clock) -> Store:
    return SqliteStore(OneFile(clock))


def _dynamodb(clock: Clock) -> Store:
    return DynamoStore(ModelWire(Table(definition("sluice")), clock.now_ns), "sluice", max_skew_ns=0)


_ALL: Final = (
    Engine("memory", _memory, share=40),
    Engine("bucket-by-bucket", _bucket_by_bucket, share=45),
    Engine("sqlite", _sqlite, share=15),
    Engine("dynamodb", _dynamodb, share=10),
)

ENGINES: Final[Mapping[str, Engine]] = {engine.name: engine for engine in _ALL}
"""By name. ``bucket-by-bucket`` decides a take over several buckets one bucket at a time, as DynamoDB does."""
