"""What users are promised, through the client and over a model of the table: blocking, with a clock that is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sluice import Conflict, Limit, Need, Sluice, StoreUnavailable
from sluice.core.events import Event, RateClamped
from sluice.core.names import BucketKey
from sluice.core.requests import Denied, RateCharge, Repair, SlotsCharge, Unknown, Unreached
from sluice.stores.dynamodb import DynamoStore, definition
from sluice.stores.dynamodb.images import decode_bucket
from sluice.stores.dynamodb.table import BUCKET
from sluice.stores.dynamodb.wire import Call, Operation
from sluice.testing import ManualClock
from sluice.testing.dynamodb.model import Engine, ModelWire
from sluice.wires.blocking.scope import BlockingScope

S = 1_000_000_000
LAG_NS = 5 * S


class World:
    """Clients of one modelled table, whose indexes may be late, and whose calls may fail."""

    def __init__(self, index_lag_ns: int = 0) -> None:
        self.clock = ManualClock()
        self.engine = Engine(definition("sluice"), self.clock.now_ns, lambda: index_lag_ns)
        self.fault: Callable[[Call], Any] = lambda call: None
        self.events: list[Event] = []
        self._made: list[Sluice] = []

    def client(self, ahead_ns: int = 0, **options: Any) -> Sluice:
        sluice = Sluice("memory://", clock=self.clock, observer=self.events.append, **options)
        store = self.store(ahead_ns)
        sluice._opener = lambda *_: store
        self._made.append(sluice)
        return sluice

    def store(self, ahead_ns: int = 0) -> DynamoStore:
        wire = ModelWire(self.engine, lambda: self.clock.now_ns() + ahead_ns, self._befalls)
        return DynamoStore(wire, "sluice")

    def _befalls(self, call: Call) -> Any:
        return self.fault(call)

    def buckets(self) -> dict[str, Any]:
        return {
            key.partition(f"/{BUCKET}#")[2]: decode_bucket(item)
            for key, item in self.engine.items.items()
            if f"/{BUCKET}#" in key
        }

    def close(self) -> None:
        for made in self._made:
            made.close()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Any:
    made = World(getattr(request, "param", 0))
    yield made
    made.fault = lambda call: None
    made.close()


LATE = pytest.mark.parametrize("world", [LAG_NS], indirect=True)


@LATE
def test_nothing_that_must_be_right_waits_for_an_index(world: World) -> None:
    sluice, other = world.client(), world.client()
    sluice.set_limits("openai", [Limit("rpm", "10/min"), Limit("concurrent", "2 slots ttl 60s")])
    sluice.create_entity("acme", parent="*", cascade=True)
    with pytest.raises(Conflict):
        other.create_entity("acme")
    first = sluice.acquire("openai", {"concurrent": 2}, entity="acme", keep_alive=False)
    assert not other.try_acquire("openai", entity="acme")
    assert not other.try_acquire("openai")
    assert (other.resources(), other.entities(), other.leases()) == ([], [], [])
    first.release()
    second = other.acquire("openai", {"concurrent": 2}, entity="acme", keep_alive=False)
    world.clock.advance(5)
    assert other.resources() == ["openai"]
    assert [entity.id for entity in other.entities(parent="*")] == ["acme"]
    assert {(held.id, held.slots) for held in other.leases()} == {(second.id, 2)}
    second.release()


@LATE
def test_a_list_never_shows_what_is_gone(world: World) -> None:
    sluice = world.client()
    for number in range(130):
        sluice.create_entity(f"entity {number:03d}")
    world.clock.advance(5)
    for number in range(120):
        sluice.delete_entity(f"entity {number:03d}")
    assert [entity.id for entity in sluice.entities()] == [f"entity {number:03d}" for number in range(120, 130)]


@pytest.mark.parametrize("world", [0, LAG_NS], indirect=True)
def test_a_purged_namespace_leaves_no_item(world: World) -> None:
    sluice = world.client()
    tenant = sluice.namespace("tenant")
    for number in range(130):
        tenant.set_limits(f"resource {number}", [Limit("rpm", "10/min"), Limit("concurrent", "2 slots ttl 60s")])
        tenant.acquire(f"resource {number}").release()
    tenant.create_entity("acme")
    world.clock.advance(3_600)
    tenant.acquire("resource 0").release()
    sluice.purge_namespace("tenant")
    assert world.engine.items == {}


def test_a_take_reads_nothing_once_its_limits_are_known(world: World) -> None:
    sluice = world.client()
    sluice.set_limits("openai", [Limit("rpm", "10/min"), Limit("concurrent", "2 slots ttl 60s")])
    sluice.acquire("openai").release()
    world.engine.calls.clear()
    sluice.acquire("openai").release()
    assert world.engine.calls == {Operation.UPDATE_ITEM: 2}


def test_a_lowered_limit_binds_within_one_cache_lifetime(world: World) -> None:
    sluice, admin = world.client(), world.client()
    admin.set_limits("api", [Limit("rps", "10/s")])
    granted = []
    for tick in range(1_000):
        if tick == 100:
            admin.set_limits("api", [Limit("rps", "1/s")])
        if sluice.try_acquire("api"):
            granted.append(tick)
        world.clock.advance(0.1)
    known_from = 600  # the cache was filled at the first tick, and its lifetime is 60 s
    assert sum(tick < known_from for tick in granted) == known_from
    assert 39 <= sum(tick >= known_from for tick in granted) <= 41


def test_more_slots_are_an_id_of_their_own_and_all_come_back(world: World) -> None:
    sluice, other = world.client(), world.client()
    sluice.set_limits("gpu", [Limit("slots", "5 slots ttl 60s"), Limit("rpd", "1000/day")])
    with sluice.acquire("gpu", {"slots": 2, "rpd": 100}, keep_alive=False) as lease:
        lease.more(slots=2)
        assert not other.try_acquire("gpu", {"slots": 2})
        third = other.acquire("gpu", keep_alive=False)
        lease.settle(rpd=10)
    (bucket,) = world.buckets().values()
    assert len(bucket.slots["slots"]) == 1
    assert bucket.usage[("rpd", world.clock.now_ns() // (3_600 * S))] == 10 + 1
    third.release()


def test_the_same_id_with_other_amounts_is_a_conflict(world: World) -> None:
    sluice, other = world.client(), world.client()
    sluice.set_limits("gpu", [Limit("slots", "5 slots ttl 60s")])
    with sluice.acquire("gpu", {"slots": 2}, lease_id="job-7"):
        with other.acquire("gpu", {"slots": 2}, lease_id="job-7"):
            assert sum(len(bucket.slots["slots"]) for bucket in world.buckets().values()) == 2
        with sluice.acquire("gpu", {"slots": 2}, lease_id="job-7"), pytest.raises(Conflict):
            other.acquire("gpu", {"slots": 1}, lease_id="job-7")


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_client_killed_between_two_buckets_leaves_what_refills_and_lapses(world: World) -> None:
    sluice, other = world.client(), world.client()
    for resource in ("a", "b"):
        sluice.set_limits(resource, [Limit("rpm", "60/min"), Limit("slots", "1 slots ttl 60s")])
    sluice.acquire([Need("a"), Need("b")]).release()
    world.clock.advance(60)
    seen = 0

    def dies(call: Call) -> Any:
        nonlocal seen
        seen += call.operation is Operation.UPDATE_ITEM
        return Unreached("it is dead") if seen > 1 else None

    world.fault = dies
    with pytest.raises(StoreUnavailable):
        sluice.acquire([Need("a"), Need("b")], keep_alive=False)
    sluice.close()
    world.fault = lambda call: None
    assert not other.try_acquire([Need("a"), Need("b")])
    world.clock.advance(62)
    with other.acquire([Need("a"), Need("b")]):
        hour = world.clock.now_ns() // (3_600 * S)
        used = [bucket.usage[("rpm", hour)] for bucket in world.buckets().values()]
    assert sorted(used) == [2, 3]


def test_a_take_whose_reply_was_lost_is_found_by_its_id(world: World) -> None:
    sluice = world.client()
    sluice.set_limits("gpu", [Limit("slots", "2 slots ttl 60s"), Limit("rpm", "10/min")])
    sluice.acquire("gpu").release()
    losing = [True]

    def lost(call: Call) -> Any:
        if call.operation is Operation.UPDATE_ITEM and losing:
            losing.clear()
            world.engine.decide(call)
            return Unknown("the reply was lost")
        return None

    world.fault = lost
    with sluice.acquire("gpu"):
        (bucket,) = world.buckets().values()
        assert len(bucket.slots["slots"]) == 1
        assert sum(amount for (name, _), amount in bucket.usage.items() if name == "rpm") == 2
    (bucket,) = world.buckets().values()
    assert bucket.slots == {"slots": {}}


def test_throttling_is_waited_out(world: World) -> None:
    sluice = world.client()
    sluice.set_limits("api", [Limit("rpm", "10/min")])
    left = [3]

    def throttled(call: Call) -> Any:
        left[0] -= 1
        return Unreached("throttled") if left[0] >= 0 else None

    world.fault = throttled
    assert sluice.try_acquire("api")


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_client_an_hour_ahead_holds_a_bucket_up_until_it_is_repaired(world: World) -> None:
    sluice, ahead = world.client(), world.client(ahead_ns=3_600 * S)
    sluice.set_limits("api", [Limit("rpm", "60/min"), Limit("slots", "2 slots ttl 60s")])
    first = ahead.acquire("api", {"rpm": 30, "slots": 2}, keep_alive=False)
    denied = sluice.try_acquire("api")
    assert isinstance(denied, Denied)
    assert 3_570 <= denied.retry_in <= 3_662
    (text,) = world.buckets()
    (name,) = [key.partition("/")[0] for key in world.engine.items if key.endswith(text)]
    charges = (RateCharge("rpm", 1, 60, S), SlotsCharge("slots", 1, 2, 60 * S))
    repaired: Any
    (repaired,) = BlockingScope(world.clock).run(world.store().repair([Repair(BucketKey.parse(name, text), charges)]))
    assert repaired.limits == ("rpm", "slots")
    denied = sluice.try_acquire("api")
    assert isinstance(denied, Denied)
    assert denied.retry_in <= 62
    world.clock.advance(62)
    sluice.acquire("api", {"rpm": 60, "slots": 2}).release()
    first.release()


def test_what_a_clock_years_ahead_left_is_clamped_and_reported(world: World) -> None:
    sluice, ahead = world.client(), world.client(ahead_ns=3 * 365 * 86_400 * S)
    sluice.set_limits("api", [Limit("rpm", "60/min")])
    assert ahead.try_acquire("api")
    denied = sluice.try_acquire("api")
    assert isinstance(denied, Denied)
    assert denied.retry_in < 86_400 + 11 * 60
    assert [event for event in world.events if isinstance(event, RateClamped)]
