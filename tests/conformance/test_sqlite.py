"""The SQLite store is a store: blocking and under asyncio, on real files and by a manual clock."""

import tempfile
import weakref
from pathlib import Path

import pytest

from sluice.core.bounds import NS_PER_SECOND
from sluice.stores.sqlite import SqliteStore
from sluice.testing import ManualClock, conformance
from sluice.wires.aio.sqlite import AioWire
from sluice.wires.blocking.sqlite import BlockingWire
from sluice.wires.sqlite.opening import MakeWire
from sluice.wires.sqlite.place import Place

PATIENCE_NS = 60 * NS_PER_SECOND


class _Files:
    """Stores on files of their own, of which the next can go on with the last one's file."""

    def __init__(self, make_wire: MakeWire) -> None:
        self._make_wire = make_wire
        self._place = Place(Path())

    def open(self, clock: ManualClock) -> SqliteStore:
        folder = tempfile.TemporaryDirectory(prefix="sluice-conformance-")
        self._place = Place(Path(folder.name, "quota.db"))
        store = self.reopen(None, clock)
        weakref.finalize(store, folder.cleanup)
        return store

    def reopen(self, _: object, clock: ManualClock) -> SqliteStore:
        return SqliteStore(self._make_wire(self._place, clock, PATIENCE_NS))


BLOCKING, AIO = _Files(BlockingWire), _Files(AioWire)
HARNESSES = {
    "blocking": conformance.blocking(BLOCKING.open, BLOCKING.reopen),
    "asyncio": conformance.asynchronous(AIO.open, AIO.reopen),
}


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
@pytest.mark.parametrize("harness", HARNESSES)
def test_it_conforms(harness: str, check: conformance.Check) -> None:
    check(HARNESSES[harness])


@pytest.mark.parametrize("seed", range(3))
def test_it_decides_as_the_core_does(seed: int) -> None:
    conformance.differential(HARNESSES["blocking"], seed, steps=2_000)


def test_it_decides_as_the_core_does_under_asyncio() -> None:
    conformance.differential(HARNESSES["asyncio"], seed=100, steps=1_500)
