"""The memory store is a store: blocking and under asyncio, jointly and bucket by bucket."""

import threading

import pytest

from sluice.stores.memory import MemoryState, MemoryStore
from sluice.testing import ManualClock, conformance


class _Kept:
    """Stores of which the next can go on with the last one's state."""

    def __init__(self, *, joint: bool) -> None:
        self._joint = joint
        self._state = MemoryState()

    def open(self, clock: ManualClock) -> MemoryStore:
        self._state = MemoryState()
        return self.reopen(None, clock)

    def reopen(self, _: object, clock: ManualClock) -> MemoryStore:
        return MemoryStore(clock, threading.Lock(), self._state, joint=self._joint)


KEPT = {joint: _Kept(joint=joint) for joint in (True, False)}
HARNESSES = {
    "blocking": conformance.blocking(KEPT[True].open, KEPT[True].reopen),
    "asyncio": conformance.asynchronous(KEPT[True].open, KEPT[True].reopen),
}
BUCKET_BY_BUCKET = conformance.blocking(KEPT[False].open, KEPT[False].reopen)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
@pytest.mark.parametrize("harness", HARNESSES)
def test_it_conforms(harness: str, check: conformance.Check) -> None:
    check(HARNESSES[harness])


@pytest.mark.parametrize("check", conformance.checks(joint=False), ids=str)
def test_it_conforms_bucket_by_bucket(check: conformance.Check) -> None:
    check(BUCKET_BY_BUCKET)


@pytest.mark.parametrize("seed", range(4))
def test_it_decides_as_the_core_does(seed: int) -> None:
    conformance.differential(HARNESSES["blocking"], seed, steps=3_000)


def test_it_decides_as_the_core_does_under_asyncio() -> None:
    conformance.differential(HARNESSES["asyncio"], seed=100, steps=2_000)


def test_it_decides_as_the_core_does_bucket_by_bucket() -> None:
    conformance.differential(BUCKET_BY_BUCKET, seed=200, steps=2_000)
