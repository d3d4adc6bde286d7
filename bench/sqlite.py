"""What a take on a SQLite file costs, beside the least that a client could do: one ``UPDATE .. RETURNING``.

    python bench/sqlite.py

Machines drift, so only ratios taken side by side count: slices of 0.2 s in turn, the ratio inside each round, the
median of the rounds.
"""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sluice import Limit, Sluice
from sluice.core.bounds import NS_PER_SECOND
from sluice.core.names import BucketKey
from sluice.core.requests import Part, RateCharge, Take
from sluice.stores.sqlite import SqliteStore
from sluice.wires.aio.sqlite import AioWire
from sluice.wires.blocking.scope import BlockingScope
from sluice.wires.blocking.sqlite import BlockingWire
from sluice.wires.clock import SystemClock
from sluice.wires.sqlite.place import Place

ROUNDS: Final = 15
SLICE_S: Final = 0.2
TASKS: Final = 64
KEY: Final = BucketKey("Zm9vYmFyYmF", "*", "openai")
TAKE: Final = Take("lease", (Part(KEY, (RateCharge("rpm", 1, 10**9, 1),)),))


def floor(path: Path) -> Callable[[], object]:
    """A statement, committed by itself."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = normal")
    connection.execute("CREATE TABLE bucket (key TEXT PRIMARY KEY, full_at INTEGER)")
    connection.execute("INSERT INTO bucket VALUES ('a', 0)")
    update = "UPDATE bucket SET full_at = max(full_at, ?) + 1 WHERE key = 'a' RETURNING full_at"
    return lambda: connection.execute(update, (time.time_ns(),)).fetchall()


def transaction(path: Path) -> Callable[[], object]:
    """The same with the arithmetic in Python: begin, read, write, commit."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = normal")
    connection.execute("CREATE TABLE bucket (key TEXT PRIMARY KEY, full_at INTEGER)")
    connection.execute("INSERT INTO bucket VALUES ('a', 0)")

    def take() -> None:
        connection.execute("BEGIN IMMEDIATE")
        (full_at,) = connection.execute("SELECT full_at FROM bucket WHERE key = 'a'").fetchone()
        due = max(full_at, time.time_ns()) + 1
        connection.execute("UPDATE bucket SET full_at = ? WHERE key = 'a'", (due,))
        connection.execute("COMMIT")

    return take


def blocking(path: Path) -> Callable[[], object]:
    """A take of the store."""
    store = SqliteStore(BlockingWire(Place(path), SystemClock(), 2 * NS_PER_SECOND))
    run = BlockingScope(SystemClock()).run
    return lambda: run(store.take([TAKE]))


def facade(path: Path) -> Callable[[], object]:
    """A take as a user asks for it."""
    sluice = Sluice(f"sqlite:///{path}")
    sluice.set_limits("openai", [Limit("rpm", "100M/s")])
    return lambda: sluice.try_acquire("openai")


def aio(path: Path, tasks: int) -> Callable[[], object]:
    """So many takes side by side on one loop."""
    store = SqliteStore(AioWire(Place(path), SystemClock(), 2 * NS_PER_SECOND))
    loop = asyncio.new_event_loop()

    async def side_by_side() -> None:
        await asyncio.gather(*(store.take([TAKE]) for _ in range(tasks)))

    return lambda: loop.run_until_complete(side_by_side())


def per_call_ns(call: Callable[[], object]) -> float:
    count, begun = 0, time.perf_counter_ns()
    until = begun + SLICE_S * NS_PER_SECOND
    while time.perf_counter_ns() < until:
        call()
        count += 1
    return (time.perf_counter_ns() - begun) / count


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        calls: dict[str, tuple[Callable[[], object], int]] = {
            "UPDATE .. RETURNING": (floor(path / "floor.db"), 1),
            "BEGIN, SELECT, UPDATE, COMMIT": (transaction(path / "transaction.db"), 1),
            "store, blocking": (blocking(path / "blocking.db"), 1),
            "facade, blocking": (facade(path / "facade.db"), 1),
            "store, asyncio, one at a time": (aio(path / "aio.db", 1), 1),
            f"store, asyncio, {TASKS} at once": (aio(path / "aio64.db", TASKS), TASKS),
        }
        found: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, (call, takes) in calls.items():
                found[name].append(per_call_ns(call) / takes)
        base = found["UPDATE .. RETURNING"]
        for name, costs in found.items():
            ratio = statistics.median(cost / least for cost, least in zip(costs, base, strict=True))
            print(f"{name:32} {statistics.median(costs) / 1000:7.1f} us a take   {ratio:5.2f} x")


if __name__ == "__main__":
    main()
