"""Released, renewed, reaped, taken again, late or twice, in any order: a slot never counts twice, nor lives again."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import permutations
from typing import Any

import pytest

from sluice.core import bucket as core
from sluice.core.names import BucketKey
from sluice.core.requests import Part as TakePart
from sluice.core.requests import Peek, Reap, Release, Renew, SlotEntry, SlotsCharge, Take
from sluice.stores.memory import MemoryStore
from sluice.testing.simulation.promises import Promises
from sluice.testing.simulation.records import Turns, record_of, stored
from sluice.testing.simulation.world import at_once

KEY = BucketKey("namespace", "*", "api")
TTL_NS = 1_000
CAPACITY = 2


class _Clock:
    time_ns = 10_000

    def now_ns(self) -> int:
        return self.time_ns

    def steady_ns(self) -> int:
        return self.time_ns


class _Bench:
    """A store whose every answer the promises are checked against."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self.store = MemoryStore(self.clock, nullcontext())
        self.promises = Promises()
        self.turns: Turns = {}

    def ask(self, method: Callable[[Sequence[Any]], Any], request: Any) -> Any:
        (answer,) = at_once(method([request]))
        record = record_of("somebody", request, answer, self.turns)
        if record is not None:
            self.promises.read(record)
        return answer

    def take(self, lease: str, amount: int = 1) -> Any:
        charge = SlotsCharge("held", amount, CAPACITY, TTL_NS)
        return self.ask(self.store.take, Take(lease, (TakePart(KEY, (charge,)),)))

    def release(self, lease: str) -> Any:
        return self.ask(self.store.release, Release(KEY, lease))

    def renew(self, lease: str, amount: int = 1) -> Any:
        return self.ask(self.store.renew, Renew(KEY, lease, (SlotsCharge("held", amount, CAPACITY, TTL_NS),)))

    def reap(self, seen: tuple[SlotEntry, ...]) -> Any:
        return self.ask(self.store.reap, Reap(KEY, seen))

    def lapsed(self) -> tuple[SlotEntry, ...]:
        (peeked,) = at_once(self.store.peek([Peek(KEY)]))
        return core.lapsed(peeked.image, self.clock.time_ns)

    def held(self) -> None:
        """What the store holds is what the model says."""
        (peeked,) = at_once(self.store.peek([Peek(KEY)]))
        self.promises.read(stored(KEY, peeked))


def _steps(bench: _Bench, seen: tuple[SlotEntry, ...], amount: int) -> dict[str, Callable[[], object]]:
    return {
        "release": lambda: bench.release("ann"),
        "release again": lambda: bench.release("ann"),
        "renew": lambda: bench.renew("ann", amount),
        "reap": lambda: bench.reap(seen),
        "another takes": lambda: bench.take("bob", 2),
        "one more takes": lambda: bench.take("cid"),
    }


@pytest.mark.parametrize("amount", [1, 2])
@pytest.mark.parametrize("age_ns", [0, TTL_NS - 1, TTL_NS, TTL_NS + 1])
def test_in_any_order_a_slot_is_counted_once(amount: int, age_ns: int) -> None:
    for order in permutations(_steps(_Bench(), (), amount)):
        bench = _Bench()
        assert bench.take("ann", amount)
        bench.clock.time_ns += TTL_NS
        seen = bench.lapsed()
        bench.clock.time_ns += age_ns - TTL_NS
        steps = _steps(bench, seen, amount)
        for name in order:
            steps[name]()  # the promises raise at the first that is counted wrong
        bench.held()


def test_a_lapsed_lease_is_never_renewed_reaped_or_not() -> None:
    for reaped in (False, True):
        bench = _Bench()
        bench.take("ann")
        bench.clock.time_ns += TTL_NS
        if reaped:
            bench.reap(bench.lapsed())
        assert type(bench.renew("ann")).__name__ == "Gone"


def test_what_was_seen_lapsed_and_taken_again_is_not_tidied_away() -> None:
    bench = _Bench()
    bench.take("ann")
    bench.clock.time_ns += TTL_NS
    seen = bench.lapsed()
    assert bench.take("ann")  # the same id asks again, and holds again
    assert bench.reap(seen).removed == ()
    bench.held()
