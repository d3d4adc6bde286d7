"""Failing: an absent store, refused permissions, lost answers."""

from collections.abc import Callable
from typing import Any

import pytest

from sluice import ConfigError, Conflict, Limit, Need, NeverAdmissible, StoreUnavailable
from sluice.core.events import TakeDegraded
from tests.facade.kit import LOST, UNKNOWN, UNREACHED, Api, raises

RATE = [Limit("rpm", "60/min")]
SLOTS = [Limit("rpm", "60/min"), Limit("concurrent", "4 slots ttl 60s")]
DOWN = (UNREACHED, UNKNOWN)


@pytest.mark.parametrize("fault", DOWN)
@pytest.mark.parametrize("call", ["take", "get"])
def test_closed_raises_when_the_store_is_unavailable(api: Api, fault: Any, call: str) -> None:
    api.sluice.set_limits("openai", SLOTS)
    other = api.client(on_unavailable="closed")
    api.store.fail(fault, call)
    for ask in (other.acquire, other.try_acquire):
        with pytest.raises(StoreUnavailable, match=r"store did not answer in time.*try again"):
            ask("openai")


@pytest.mark.parametrize("fault", DOWN)
@pytest.mark.parametrize("call", ["take", "get"])
def test_open_grants_a_degraded_lease_when_the_store_is_unavailable(api: Api, fault: Any, call: str) -> None:
    api.sluice.set_limits("openai", SLOTS)
    other = api.client(on_unavailable="open")
    api.store.fail(fault, call)
    with other.acquire("openai", on_lost=lambda: pytest.fail("a degraded lease has nothing to lose")) as lease:
        assert lease.degraded
        assert not lease.lost
        api.store.calls.clear()
        lease.settle(rpm=5)
        lease.adjust(rpm=5)
        lease.more(rpm=5)
        lease.renew()
        api.advance(300)
    lease.release()
    assert api.store.names() == []
    assert [event.resource for event in api.told(TakeDegraded)] == ["openai"]
    assert other.try_acquire("openai").degraded
    assert other.reserve("openai#rpm").degraded
    assert other.acquire("openai", wait=20).degraded


def test_a_lease_of_a_store_that_is_there_is_not_degraded(api: Api) -> None:
    other = api.client(on_unavailable="open")
    other.set_limits("openai", RATE)
    assert not other.acquire("openai").degraded


def test_open_lets_through_no_denial_no_bad_input_and_no_refused_permission(api: Api) -> None:
    other = api.client(on_unavailable="open")
    other.set_limits("openai", [Limit("rpm", "1/min"), Limit("concurrent", "4 slots ttl 60s")])
    with other.acquire("openai", lease_id="job"):
        assert not other.try_acquire("openai")
        with pytest.raises(ConfigError):
            other.acquire("openai", {"rmp": 1})
        with pytest.raises(NeverAdmissible):
            other.acquire("openai", {"rpm": 2})
        with pytest.raises(Conflict):
            other.acquire("openai", {"concurrent": 2, "rpm": 1}, lease_id="job")
    for call in ("take", "get"):
        other.refresh()
        api.store.fail(raises(ConfigError("permission denied")), call)
        with pytest.raises(ConfigError, match="permission denied"):
            other.acquire("openai")
        api.store.heal()
    assert api.told(TakeDegraded) == []


def test_a_refused_permission_is_never_unavailable(api: Api) -> None:
    api.sluice.set_limits("openai", SLOTS)
    for call in ("take", "peek", "pause", "write", "list"):
        api.store.fail(raises(ConfigError("permission denied")), call)
    uses: list[Callable[[], object]] = [
        lambda: api.sluice.acquire("openai"),
        lambda: api.sluice.peek("openai"),
        lambda: api.sluice.pause("openai", 1),
        lambda: api.sluice.set_limits("openai", RATE),
        api.sluice.resources,
    ]
    for use in uses:
        with pytest.raises(ConfigError, match="permission denied"):
            use()


def test_every_call_says_when_the_store_is_unavailable(api: Api) -> None:
    api.sluice.set_limits("openai", SLOTS)
    api.store.fail(UNREACHED, "get", "write", "list", "buckets", "peek", "pause")
    sluice = api.client()
    calls: list[Any] = [
        lambda: sluice.peek("openai"),
        lambda: sluice.pause("openai", 1),
        sluice.leases,
        lambda: sluice.set_limits("openai", RATE),
        lambda: sluice.get_limits("openai"),
        lambda: sluice.delete_limits("openai"),
        lambda: sluice.resolve_limits("openai"),
        sluice.resources,
        lambda: sluice.create_entity("acme"),
        lambda: sluice.get_entity("acme"),
        sluice.entities,
        sluice.namespaces,
        lambda: sluice.purge_namespace("default"),
        lambda: api.sluice.peek("openai"),
        lambda: api.sluice.pause("openai", 1),
        api.sluice.leases,
        api.sluice.resources,
        lambda: api.sluice.set_limits("openai", RATE),
        lambda: api.sluice.get_entity("acme"),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call()


def test_what_was_surely_not_applied_is_tried_again_within_the_timeout(api: Api) -> None:
    api.sluice.set_limits("openai", RATE)
    api.store.next["take"].extend([UNREACHED, UNREACHED])
    assert api.sluice.try_acquire("openai")
    assert api.store.names().count("take") == 3
    assert api.free("openai", "rpm") == 59
    api.store.fail(UNREACHED, "take")
    before_ns = api.clock.steady_ns()
    with pytest.raises(StoreUnavailable, match="was not applied"):
        api.client(timeout=5).acquire("openai")
    assert 4 <= (api.clock.steady_ns() - before_ns) / 1e9 <= 5


@pytest.mark.parametrize("fault", [LOST, UNKNOWN])
def test_a_take_of_rates_without_an_answer_is_neither_repeated_nor_undone(api: Api, fault: Any) -> None:
    api.sluice.set_limits("openai", RATE)
    api.store.next["take"].append(fault)
    with pytest.raises(StoreUnavailable, match="may have been applied"):
        api.sluice.acquire("openai")
    assert [name for name in api.store.names() if name not in {"get", "write"}] == ["take"]
    assert api.free("openai", "rpm") == (59 if fault is LOST else 60)


@pytest.mark.parametrize("fault", [LOST, UNKNOWN])
def test_slots_whose_answer_was_lost_are_found_again_by_the_lease_id(api: Api, fault: Any) -> None:
    api.sluice.set_limits("openai", SLOTS)
    api.store.next["take"].append(fault)
    with api.sluice.acquire("openai"):
        assert len({request.lease_id for request in api.store.requests("take")}) == 1
        assert api.live("openai") == 1
        assert api.free("openai", "rpm") == 59
    assert api.live("openai") == 0


@pytest.mark.parametrize("fault", [LOST, UNKNOWN])
def test_slots_of_a_take_that_stays_without_an_answer_are_given_back(api: Api, fault: Any) -> None:
    api.sluice.set_limits("openai", SLOTS)
    api.store.fail(fault, "take")
    with pytest.raises(StoreUnavailable):
        api.sluice.acquire("openai")
    assert api.live("openai") == 0
    assert api.free("openai", "rpm") == 60


@pytest.mark.parametrize("fault", [LOST, UNKNOWN])
def test_giving_back_without_an_answer_is_never_repeated(api: Api, fault: Any) -> None:
    api.sluice.set_limits("openai", RATE)
    api.sluice.acquire("openai", {"rpm": 50})
    lease = api.sluice.acquire("openai", {"rpm": 10})
    lease.settle(rpm=5)
    api.store.next["settle"].append(fault)
    lease.release()
    api.advance(ns=1)
    assert api.store.names().count("settle") == 1
    assert api.free("openai", "rpm") == (5 if fault is LOST else 0)


def test_a_debit_without_an_answer_is_repeated_and_errs_towards_the_limit(api: Api) -> None:
    api.sluice.set_limits("openai", RATE)
    lease = api.sluice.acquire("openai", {"rpm": 10})
    lease.settle(rpm=15)
    api.store.next["settle"].append(LOST)
    lease.release()
    assert api.store.names().count("settle") == 2
    assert api.free("openai", "rpm") == 60 - 10 - 5 - 5


def test_a_release_whose_answer_was_lost_settles_once(api: Api) -> None:
    api.sluice.set_limits("openai", SLOTS)
    api.sluice.acquire("openai#rpm", {"rpm": 40})
    with api.sluice.acquire("openai", {"rpm": 20}) as lease:
        lease.settle(rpm=5)
        api.store.next["release"].append(LOST)
    assert api.store.names().count("release") == 2
    assert api.free("openai", "rpm") == 15
    assert api.live("openai") == 0


def test_a_lapsed_lease_still_settles(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpd", "600/day"), Limit("concurrent", "1 slots ttl 60s")])
    lease = api.sluice.acquire("openai", {"rpd": 100}, keep_alive=False)
    api.advance(60)
    with api.rival.acquire("openai", keep_alive=False):  # the slot is somebody else's by now
        lease.settle(rpd=5)
        lease.release()
        assert api.live("openai") == 1
    assert api.free("openai", "rpd") == 600 - 5 - 1


BOTH = [Need("gpt"), Need("vision")]
"""Two buckets, of which the first is asked first where they are asked one after another."""


def test_a_take_that_is_refused_in_one_bucket_is_undone_in_the_others(apart: Api) -> None:
    for resource in ("gpt", "vision"):
        apart.sluice.set_limits(resource, [Limit("rpm", "10/min"), Limit("concurrent", "2 slots ttl 60s")])
    with apart.rival.acquire("vision", {"concurrent": 2}, keep_alive=False):
        before = apart.free("gpt", "rpm"), apart.free("vision", "rpm")
        assert not apart.sluice.try_acquire(BOTH)
        assert apart.store.names().count("release") == 1
        assert (apart.free("gpt", "rpm"), apart.free("vision", "rpm")) == before
        assert (apart.live("gpt"), apart.live("vision")) == (0, 2)


def test_a_refused_take_whose_undoing_fails_is_not_a_plain_denial(apart: Api) -> None:
    for resource in ("gpt", "vision"):
        apart.sluice.set_limits(resource, [Limit("rpm", "10/min"), Limit("concurrent", "2 slots ttl 60s")])
    with apart.rival.acquire("vision", {"concurrent": 2}, keep_alive=False):
        apart.store.fail(UNREACHED, "release")
        with pytest.raises(StoreUnavailable, match="still being given back"):
            apart.sluice.try_acquire(BOTH)
        apart.store.heal()
        apart.advance(1)
        assert apart.live("gpt") == 0
        assert apart.free("gpt", "rpm") == 10


def test_a_permission_refused_for_one_bucket_leaves_nothing_in_the_others(apart: Api) -> None:
    apart.sluice.set_limits("gpt", [Limit("rpm", "10/min"), Limit("concurrent", "2 slots ttl 60s")])
    apart.sluice.create_entity("acme", "*", cascade=True)
    apart.store.next["take"].extend([UNREACHED, raises(ConfigError("permission denied"))])
    with pytest.raises(ConfigError, match="permission denied"):
        apart.sluice.acquire("gpt", entity="acme")
    assert (apart.live("gpt"), apart.live("gpt", "acme")) == (0, 0)


def test_a_client_says_how_its_settings_must_be(api: Api) -> None:
    for options in ({"timeout": 0}, {"timeout": -1}, {"timeout": 61}, {"on_unavailable": "maybe"}):
        with pytest.raises(ConfigError):
            api.client(**options)
    for options in ({"config_ttl": -1}, {"config_ttl": 3601}, {"namespace": ""}):
        with pytest.raises(ConfigError):
            api.client(**options)
    for url in ("nonsense", "mysql://x", "memory://x", 5):
        with pytest.raises(ConfigError):
            type(api.rival)(url)  # type: ignore[arg-type]
