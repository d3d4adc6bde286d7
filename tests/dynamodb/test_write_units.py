"""What DynamoDB charges for each operation, as DynamoDB Local tells it: units of the table, of the indexes, refusals.

A refused write costs a unit as well, though the engine doesn't tell it with the refusal.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from sluice import Limit, Sluice
from sluice.core.bounds import NS_PER_HOUR, NS_PER_SECOND
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Charge,
    Delta,
    Denied,
    Fold,
    Folded,
    GiveUp,
    Granted,
    Part,
    RateCharge,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    Settled,
    SlotsCharge,
    Take,
)
from sluice.stores.dynamodb import DynamoStore
from sluice.stores.dynamodb.wire import Operation
from sluice.testing import ManualClock
from sluice.testing.dynamodb import LocalEngine
from sluice.wires.blocking.scope import BlockingScope
from tests.dynamodb.plain_wire import PlainWire

KEY = BucketKey("namespace-a", "acme", "openai")
PARENT = BucketKey("namespace-a", "*", "openai")
S = NS_PER_SECOND

RPM = RateCharge("rpm", 1, 10, 6 * S)
TPM = RateCharge("tpm", 100, 10_000, S // 100)
SLOT = SlotsCharge("concurrent", 1, 3, 60 * S)
GPUS = SlotsCharge("gpu", 2, 9, 60 * S)
ALL = (RPM, TPM, SLOT, GPUS)


@dataclass
class Bench:
    """A store on a fresh table, what it costs, and another process's store on the same table."""

    wire: PlainWire
    clock: ManualClock
    store: DynamoStore
    other: DynamoStore

    def ask(self, verb: str, *requests: Any, store: DynamoStore | None = None) -> Any:
        answers = BlockingScope(self.clock).run(getattr(store or self.store, verb)(requests))
        return answers[0] if len(requests) == 1 else list(answers)

    def take(
        self, lease: str, *charges: Charge, at: BucketKey = KEY, store: DynamoStore | None = None
    ) -> Granted | Denied:
        answer: Granted | Denied = self.ask("take", Take(lease, (Part(at, charges),)), store=store)
        return answer


@pytest.fixture
def bench(engine: LocalEngine) -> Generator[Bench]:
    clock = ManualClock()
    wire = PlainWire(engine.port, clock.now_ns)
    stores = [DynamoStore(wire, wire.table) for _ in range(2)]
    made = Bench(wire, clock, *stores)
    yield made
    BlockingScope(clock).run(wire.close())


@pytest.fixture
def used(bench: Bench) -> Bench:
    """The same, with a bucket that was taken from before."""
    assert isinstance(bench.take("first", *ALL), Granted)
    bench.wire.spent()
    return bench


def test_the_first_take_ever_costs_one_and_its_index_entries(bench: Bench) -> None:
    assert isinstance(bench.take("first", *ALL), Granted)
    assert bench.wire.spent() == (1, 3, 0, 0)


def test_a_take_of_any_number_of_limits_costs_one_and_no_read(used: Bench) -> None:
    for number, charges in enumerate([(RPM,), (RPM, TPM), ALL, (SLOT,), (TPM, GPUS)]):
        assert isinstance(used.take(f"lease {number}", *charges), Granted)
        assert used.wire.spent() == (1, 0, 0, 0)


def test_a_take_with_a_parent_costs_two(used: Bench) -> None:
    assert isinstance(used.take("first", *ALL, at=PARENT), Granted)
    used.wire.spent()
    both = [Take("lease", (Part(key, ALL),)) for key in (KEY, PARENT)]
    assert all(isinstance(answer, Granted) for answer in used.ask("take", *both))
    assert used.wire.spent() == (2, 0, 0, 0)


def test_a_denial_costs_one(used: Bench) -> None:
    for charges in [(RateCharge("rpm", 10, 10, 6 * S),), (SlotsCharge("concurrent", 3, 3, 60 * S), RPM)]:
        assert isinstance(used.take("denied", *charges), Denied)
        assert used.wire.spent() == (0, 0, 1, 0)


def test_a_denial_by_somebody_who_never_saw_the_bucket_costs_one(used: Bench) -> None:
    assert isinstance(used.take("denied", RateCharge("rpm", 10, 10, 6 * S), store=used.other), Denied)
    assert used.wire.spent() == (0, 0, 1, 0)


def test_a_settlement_costs_one(used: Bench) -> None:
    for tokens in (5, -3):
        assert isinstance(
            used.ask("settle", Settle(KEY, (Delta("rpm", tokens, 6 * S), Delta("tpm", 7, S // 100)))), Settled
        )
        assert used.wire.spent() == (1, 0, 0, 0)


def test_slots_are_released_and_rates_settled_in_one(used: Bench) -> None:
    assert isinstance(used.ask("release", Release(KEY, "first", (Delta("tpm", -50, S // 100),))), Released)
    assert used.wire.spent() == (1, 0, 0, 0)


def test_a_heartbeat_of_many_leases_on_one_bucket_costs_one(bench: Bench) -> None:
    many = SlotsCharge("concurrent", 1, 10, 60 * S)
    for number in range(8):
        assert isinstance(bench.take(f"lease {number}", many), Granted)
    bench.wire.spent()
    bench.clock.advance(ns=20 * S)
    answers = bench.ask("renew", *(Renew(KEY, f"lease {number}", (many,)) for number in range(8)))
    assert [type(answer) for answer in answers] == [Renewed] * 8
    assert bench.wire.spent() == (1, 0, 0, 0)


def test_a_lapsed_slot_is_replaced_in_one_after_one_refusal(used: Bench) -> None:
    for number in range(2):
        assert isinstance(used.take(f"dead {number}", SLOT, store=used.other), Granted)
    used.wire.spent()
    used.clock.advance(ns=62 * S)
    assert isinstance(used.take("next", SlotsCharge("concurrent", 3, 3, 60 * S)), Granted)
    assert used.wire.spent() == (1, 0, 1, 0)


def test_a_lapsed_slot_that_was_seen_is_replaced_in_one(used: Bench) -> None:
    used.clock.advance(ns=62 * S)
    assert isinstance(used.take("next", SlotsCharge("concurrent", 3, 3, 60 * S)), Granted)
    assert used.wire.spent() == (1, 0, 0, 0)


def test_a_turn_given_up_costs_one(used: Bench) -> None:
    taken = used.take("lease", RPM)
    assert isinstance(taken, Granted)
    used.wire.spent()
    given_up = GiveUp(KEY, "rpm", 1, 6 * S, taken.images[0].rates["rpm"].full_at_ns)
    assert [used.ask("settle", given_up).returned for _ in range(2)] == [True, False]
    assert used.wire.spent() == (1, 0, 1, 0)


def test_past_hours_are_filed_in_one_transaction(used: Bench) -> None:
    used.clock.advance(ns=NS_PER_HOUR)
    assert used.ask("fold", Fold(KEY)) == Folded(used.clock.now_ns(), 4)
    assert used.wire.calls == {Operation.GET_ITEM: 1, Operation.BATCH_GET_ITEM: 1, Operation.TRANSACT_WRITE_ITEMS: 1}


# --- as a user sees it ------------------------------------------------------------------------------------------------


@pytest.fixture
def sluice(bench: Bench) -> Generator[Sluice]:
    """A client that knows its limits already."""
    made = Sluice("memory://", clock=bench.clock)
    made._opener = lambda *_: bench.store
    made.set_limits("openai", [Limit("rpm", "100/min"), Limit("tpm", "10k/min")])
    made.set_limits("gpt-4", [Limit("rpm", "100/min"), Limit("tpm", "10k/min"), Limit("concurrent", "9 slots ttl 60s")])
    made.create_entity("acme", "*", cascade=True)
    for resource in ("openai", "gpt-4"):
        for entity in ("*", "acme"):
            made.acquire(resource, entity=entity).release()
    bench.wire.spent()
    yield made
    made.close()


def test_a_lease_of_rates_costs_one_and_its_end_nothing(bench: Bench, sluice: Sluice) -> None:
    with sluice.acquire("openai", {"tpm": 50}):
        assert bench.wire.spent() == (1, 0, 0, 0)
    assert bench.wire.spent() == (0, 0, 0, 0)


def test_a_lease_that_is_settled_or_holds_slots_costs_one_more_at_its_end(bench: Bench, sluice: Sluice) -> None:
    for resource in ("openai", "gpt-4"):
        with sluice.acquire(resource, {"tpm": 50}) as lease:
            assert bench.wire.spent() == (1, 0, 0, 0)
            lease.settle(tpm=70)
        assert bench.wire.spent() == (1, 0, 0, 0)


def test_a_lease_with_a_parent_costs_two_and_two_at_its_end(bench: Bench, sluice: Sluice) -> None:
    with sluice.acquire("gpt-4", entity="acme"):
        assert bench.wire.spent() == (2, 0, 0, 0)
    assert bench.wire.spent() == (2, 0, 0, 0)


def test_a_denial_costs_one_also_with_a_parent(bench: Bench, sluice: Sluice) -> None:
    with sluice.acquire("gpt-4", {"concurrent": 9}):
        bench.wire.spent()
        assert not sluice.try_acquire("gpt-4")
        assert bench.wire.spent() == (0, 0, 1, 0)
        assert not sluice.try_acquire("gpt-4", entity="acme")
        assert bench.wire.spent() == (0, 0, 1, 0)
