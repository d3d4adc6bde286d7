"""What an observer is told: each thing once, by name, when it happens."""

from dataclasses import replace

import pytest

from sluice import Limit, RateLimited
from sluice.core.bucket import RateState
from sluice.core.events import (
    EndFailed,
    LeaseEnded,
    LeaseLapsed,
    RateClamped,
    SettleCapped,
    TakeDegraded,
    TakeDenied,
    TakeGranted,
)
from tests.facade.kit import UNREACHED, Api

SECOND = 1_000_000_000
LIMITS = [Limit("rpm", "60/min"), Limit("concurrent", "2 slots ttl 60s")]


def test_a_lease_is_told_from_its_take_to_its_end(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    with api.sluice.acquire("openai", {"rpm": 5}) as lease:
        amounts = {"rpm": 5, "concurrent": 1}
        assert api.events == [TakeGranted("openai", "*", lease.id, amounts, waited_ns=0, tries=1)]
    assert api.events[1:] == [LeaseEnded(lease.id)]


def test_a_lease_of_rates_with_nothing_to_settle_ends_without_a_write_and_is_told_all_the_same(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    with api.sluice.acquire("openai#rpm") as lease:
        api.store.calls.clear()
    lease.release()
    assert api.store.calls == []
    assert api.told(LeaseEnded) == [LeaseEnded(lease.id)]


def test_a_denial_is_told_once_with_what_stood_in_the_way(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    held = [api.sluice.acquire("openai") for _ in range(2)]
    api.events.clear()
    assert not api.sluice.try_acquire("openai", wait=3)
    (denied,) = api.events
    assert isinstance(denied, TakeDenied)
    assert (denied.resource, denied.entity, denied.limits) == ("openai", "*", ("concurrent",))
    assert 0 < denied.retry_in_ns <= 60 * SECOND
    for lease in held:
        lease.release()


def test_a_wait_is_told_with_the_grant(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min burst 1")])
    api.sluice.acquire("openai")
    api.events.clear()
    api.sluice.acquire("openai", wait=30)
    (granted,) = api.events
    assert isinstance(granted, TakeGranted)
    assert (granted.waited_ns, granted.tries) == (10 * SECOND, 1)


def test_a_denied_reservation_is_told(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min burst 1")])
    api.sluice.acquire("openai")
    api.events.clear()
    with pytest.raises(RateLimited):
        api.sluice.reserve("openai#rpm", within=1)
    assert [type(event) for event in api.events] == [TakeDenied]


def test_a_take_let_through_is_told_and_nothing_of_its_end(api: Api) -> None:
    sluice = api.client(on_unavailable="open")
    api.store.fail(UNREACHED, "get")
    with sluice.acquire("openai", entity="acme"):
        pass
    (degraded,) = api.events
    assert isinstance(degraded, TakeDegraded)
    assert (degraded.resource, degraded.entity) == ("openai", "acme")
    assert "no route" in degraded.why


def test_a_lapse_is_told_once_and_its_end_too(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    lease = api.sluice.acquire("openai")
    api.store.fail(UNREACHED, "renew")
    api.advance(90)
    api.store.heal()
    lease.release()
    assert [type(event) for event in api.events] == [TakeGranted, LeaseLapsed, LeaseEnded]


def test_an_end_that_failed_is_told_with_what_is_lost_by_it(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    with api.sluice.acquire("openai", {"rpm": 5}) as lease:
        lease.settle(rpm=9)
        api.store.fail(UNREACHED, "release", "settle")
    api.advance(120)
    assert api.events[1:] == [EndFailed(lease.id, {"openai#rpm": 4}, "no route")]


def test_a_settlement_that_was_capped_is_told_when_it_is_noted(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    with api.sluice.acquire("openai#rpm") as lease:
        lease.settle(rpm=10_000)
        assert api.events[1:] == [SettleCapped(lease.id, "openai#rpm", 10_000, 601)]


def test_a_rate_that_a_clock_far_ahead_has_left_is_told_when_it_is_pulled_back(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    api.sluice.acquire("openai#rpm")
    ((key, bucket),) = api.state.buckets.items()
    far_ns = api.clock.now_ns() + 10 * 366 * 86_400 * SECOND
    api.state.buckets[key] = replace(bucket, rates={"rpm": RateState(far_ns, SECOND)})
    api.events.clear()
    assert not api.sluice.try_acquire("openai#rpm")
    assert api.events[0] == RateClamped("openai", "*", "rpm")
    assert [type(event) for event in api.events] == [RateClamped, TakeDenied]
    api.sluice.try_acquire("openai#rpm")
    assert api.told(RateClamped) == [RateClamped("openai", "*", "rpm")]
