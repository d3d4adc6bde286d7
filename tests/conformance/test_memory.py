"""The memory store is a store: blocking and under asyncio, jointly and bucket by bucket."""

import threading

import pytest

from sluice import Limit, Sluice
from sluice.core.names import BucketKey
from sluice.stores.memory import FIRST_SWEEP, IDLE_FOR_NS, MemoryState, MemoryStore
from sluice.testing import ManualClock, conformance
from sluice.wires.blocking.scope import BlockingScope
from sluice.wires.opening import blocking


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


def test_idle_buckets_are_forgotten_and_their_usage_is_not() -> None:
    clock = ManualClock()
    sluice = Sluice("memory://", clock=clock)
    sluice.set_limits("api", [Limit("rps", "5/s")])
    started = clock.now_ns() / 1e9
    for number in range(FIRST_SWEEP - 1):
        sluice.try_acquire("api", entity=f"early {number}")
    store = sluice._here().store
    assert isinstance(store, MemoryStore)
    clock.advance(ns=2 * IDLE_FOR_NS)
    sluice.try_acquire("api", entity="late")
    assert [key.entity for key in store._buckets] == ["late"]
    assert [used.amount for used in sluice.usage("api", entity="early 7", since=started)] == [1]


def test_a_bucket_that_may_be_needed_by_a_clock_that_steps_back_is_kept() -> None:
    clock = ManualClock()
    sluice = Sluice("memory://", clock=clock)
    sluice.set_limits("api", [Limit("rps", "5/s")])
    for number in range(FIRST_SWEEP):
        sluice.try_acquire("api", entity=str(number))
    clock.advance(ns=IDLE_FOR_NS * 5 // 6)  # into the next hour
    for number in range(FIRST_SWEEP):
        sluice.try_acquire("api", entity=f"later {number}")
    store = sluice._here().store
    assert isinstance(store, MemoryStore)
    assert len(store._buckets) == 2 * FIRST_SWEEP


class _Locked:
    """A lock that counts who came."""

    entered = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None:
        pass


class _Scope(BlockingScope):
    def __init__(self, process: str) -> None:
        super().__init__(ManualClock())
        self.name = process
        self.made = _Locked()

    def process(self) -> str:
        return self.name

    def lock(self) -> _Locked:
        return self.made


def test_stores_on_the_same_memory_share_a_lock_until_a_fork() -> None:
    opener, clock = blocking("memory://"), ManualClock()
    first, second, child = _Scope("host:1"), _Scope("host:1"), _Scope("host:2")
    stores = [opener(clock, scope, 0) for scope in (first, second, child)]
    for store in stores:
        first.run(store.forget([BucketKey("ns", "*", "api")]))
    assert (first.made.entered, second.made.entered, child.made.entered) == (2, 0, 1)
