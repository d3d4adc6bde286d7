"""Holding: settling, adjusting, taking more, renewing, and how a lease ends."""

from typing import Any

import pytest

from sluice import ConfigError, LeaseLost, Limit, Need, NeverAdmissible, RateLimited, StoreUnavailable
from sluice.core.events import LeaseEnded, SettleCapped
from tests.facade.kit import UNKNOWN, UNREACHED, Api, raises

LIMITS = [Limit("rpm", "60/day"), Limit("tpm", "1000/day", cost=0), Limit("concurrent", "4 slots ttl 60s")]


class Refused(Exception):
    """What a vendor's client may raise."""


@pytest.fixture
def openai(api: Api) -> Api:
    api.sluice.set_limits("openai", LIMITS)
    return api


def family(api: Api) -> None:
    """An entity whose takes count against two ancestors too; the resource's limits hold for each of them."""
    api.sluice.set_limits("openai", LIMITS)
    api.sluice.create_entity("org", "*", cascade=True)
    api.sluice.create_entity("team", "org", cascade=True)


# --- settling ---


def test_the_last_settlement_counts(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 500}) as lease:
        lease.settle(tpm=100)
        lease.settle(tpm=900)
        lease.settle({"tpm": 300}, rpm=2)
        assert openai.free("openai", "tpm") == 500
    assert openai.free("openai", "tpm") == 700
    assert openai.free("openai", "rpm") == 58


def test_settling_does_no_io(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 500}) as lease:
        openai.store.calls.clear()
        lease.settle(tpm=100)
        assert openai.store.calls == []


def test_a_settlement_counts_also_when_the_block_is_left_by_an_exception(openai: Api) -> None:
    for error in (Refused(), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)):
            settle_and_raise(openai, error)
    assert openai.free("openai", "tpm") == 1000 - 3 * 110
    assert openai.live("openai") == 0


def settle_and_raise(api: Api, error: BaseException, **options: Any) -> None:
    with api.sluice.acquire("openai", {"tpm": 100}, **options) as lease:
        lease.settle(tpm=110)
        raise error


def test_settling_a_limit_that_was_not_taken_owes_it(openai: Api) -> None:
    with openai.sluice.acquire("openai") as lease:
        lease.settle(tpm=250)
    assert openai.free("openai", "tpm") == 750


def test_owing_more_than_is_there_makes_the_next_wait(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 1000}) as lease:
        lease.settle(tpm=3000)
    assert openai.sluice.try_acquire("openai#tpm").retry_in == round(2001 * 86.4, 6)


def test_a_settlement_applies_to_all_ancestors(api: Api) -> None:
    family(api)
    with api.sluice.acquire("openai", {"tpm": 500}, entity="team") as lease:
        lease.settle(tpm=100)
    assert [api.free("openai", "tpm", entity) for entity in ("team", "org", "*")] == [900, 900, 900]
    assert [api.live("openai", entity) for entity in ("team", "org", "*")] == [0, 0, 0]


def test_a_settlement_of_needs_that_meet_in_an_ancestor_counts_there_once_for_each(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    for name in ("a", "b"):
        api.sluice.create_entity(name, "*", cascade=True)
    with api.sluice.acquire([Need("openai", {"tpm": 100}, "a"), Need("openai", {"tpm": 100}, "b")]) as lease:
        assert api.free("openai", "tpm") == 800
        lease.settle(tpm=150)
    assert [api.free("openai", "tpm", entity) for entity in ("a", "b", "*")] == [850, 850, 700]


def test_a_settlement_can_name_the_resource(api: Api) -> None:
    for resource in ("gpt", "search"):
        api.sluice.set_limits(resource, [Limit("tpm", "1000/min")])
    with api.sluice.acquire([Need("gpt", {"tpm": 100}), Need("search", {"tpm": 100})]) as lease:
        lease.settle({"gpt#tpm": 10, "search#tpm": 20})
    assert api.free("gpt", "tpm") == 990
    assert api.free("search", "tpm") == 980


def test_a_settlement_past_ten_capacities_is_capped_and_reported(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 100}) as lease:
        lease.settle(tpm=10**15)
        assert openai.told(SettleCapped) == [SettleCapped(lease.id, "openai#tpm", 10**15, 100 + 10_000)]
    # 10,100 were charged of 1,000 a day: one more can be had once 9,101 have come back.
    assert openai.sluice.try_acquire("openai#tpm").retry_in == pytest.approx(9_101 * 86.4)


@pytest.mark.parametrize("totals", [{"tpm": -1}, {"tpm": 1.5}, {"tpm": True}, {"tmp": 5}, {"concurrent": 1}])
def test_a_settlement_that_makes_no_sense_is_refused_whole(openai: Api, totals: dict[str, Any]) -> None:
    with openai.sluice.acquire("openai", {"tpm": 100}) as lease, pytest.raises(ConfigError):
        lease.settle({"rpm": 5, **totals})
    assert openai.free("openai", "rpm") == 59
    assert openai.free("openai", "tpm") == 900


def test_a_lease_that_has_ended_takes_no_settlement(openai: Api) -> None:
    lease = openai.sluice.acquire("openai")
    lease.release()
    for late in (lambda: lease.settle(tpm=5), lambda: lease.adjust(tpm=5), lambda: lease.more(tpm=5), lease.renew):
        with pytest.raises(ConfigError, match="has ended"):
            late()


# --- adjusting ---


def test_adjusting_owes_and_gives_back_at_once(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 500}) as lease:
        lease.adjust(tpm=100)
        assert openai.free("openai", "tpm") == 400
        lease.adjust({"openai#tpm": -300})
        assert openai.free("openai", "tpm") == 700
    assert openai.free("openai", "tpm") == 700


def test_a_total_never_goes_below_0(openai: Api) -> None:
    with openai.sluice.acquire("openai#tpm", {"tpm": 600}), openai.sluice.acquire("openai", {"tpm": 300}) as lease:
        lease.adjust(tpm=-800)
        assert openai.free("openai", "tpm") == 400
        lease.adjust(tpm=-1)
    assert openai.free("openai", "tpm") == 400


def test_a_settlement_is_the_true_total_whatever_was_adjusted_or_taken_more(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 100}) as lease:
        lease.adjust(tpm=50)
        lease.more(tpm=60)
        lease.settle(tpm=120)
    assert openai.free("openai", "tpm") == 880


def test_adjusting_past_ten_capacities_is_an_error(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 100}) as lease:
        with pytest.raises(ConfigError, match="ten capacities"):
            lease.adjust(tpm=10_001)
        with pytest.raises(ConfigError, match="whole number"):
            lease.adjust(tpm=0.5)
        with pytest.raises(ConfigError, match="not settled"):
            lease.adjust(concurrent=1)
        assert openai.free("openai", "tpm") == 900
        lease.adjust(tpm=10_000)


def test_an_adjustment_applies_to_all_ancestors_and_once_for_each_need(api: Api) -> None:
    api.sluice.set_limits("openai", LIMITS)
    for name in ("a", "b"):
        api.sluice.create_entity(name, "*", cascade=True)
    with api.sluice.acquire([Need("openai", {"tpm": 100}, "a"), Need("openai", {"tpm": 100}, "b")]) as lease:
        lease.adjust(tpm=50)
        assert [api.free("openai", "tpm", entity) for entity in ("a", "b", "*")] == [850, 850, 700]
        lease.adjust(tpm=-150)
        assert [api.free("openai", "tpm", entity) for entity in ("a", "b", "*")] == [1000, 1000, 1000]


def test_an_adjustment_without_an_answer_is_never_given_back_twice(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 500}) as lease:
        openai.store.fail(UNKNOWN, "settle")
        for tokens in (-100, 200):
            with pytest.raises(StoreUnavailable, match="may have been applied"):
                lease.adjust(tpm=tokens)
        openai.store.heal()
        lease.settle(tpm=0)
    # At most the 500 taken come back, less the 100 that may have come back before.
    assert openai.free("openai", "tpm") == 900


def test_an_adjustment_that_was_surely_not_applied_changes_nothing(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 500}) as lease:
        openai.store.fail(UNREACHED, "settle")
        with pytest.raises(StoreUnavailable, match="was not applied"):
            lease.adjust(tpm=-100)
        openai.store.heal()
        lease.refund()
    assert openai.free("openai", "tpm") == 1000


# --- more ---


def test_taking_more_is_a_real_take_that_ends_with_the_lease(openai: Api) -> None:
    with openai.sluice.acquire("openai") as lease:
        lease.more(concurrent=2, tpm=400)
        assert openai.live("openai") == 3
        assert len({request.lease_id for request in openai.store.requests("take")}) == 2
        with pytest.raises(RateLimited) as refused:
            lease.more(concurrent=2)
        assert "openai#concurrent" in str(refused.value)
        assert openai.live("openai") == 3
        with pytest.raises(NeverAdmissible):
            lease.more(tpm=1001)
        for nonsense in ({}, {"tmp": 1}, {"tpm": 0}):
            with pytest.raises(ConfigError):
                lease.more(**nonsense)
    assert openai.live("openai") == 0
    assert openai.free("openai", "tpm") == 600


def test_taking_more_counts_against_all_ancestors_or_none(api: Api) -> None:
    family(api)
    with api.sluice.acquire("openai", entity="team") as lease:
        lease.more(tpm=300)
        assert [api.free("openai", "tpm", entity) for entity in ("team", "org", "*")] == [700, 700, 700]
        assert api.rival.try_acquire("openai#tpm", {"tpm": 700})
        with pytest.raises(RateLimited):
            lease.more(tpm=1)
        assert [api.free("openai", "tpm", entity) for entity in ("team", "org", "*")] == [700, 700, 0]


def test_a_lease_of_rates_that_takes_slots_later_is_kept_alive(openai: Api) -> None:
    with openai.sluice.acquire("openai#rpm") as lease:
        lease.more({"rpm": 1})
        with pytest.raises(ConfigError, match="unknown limit"):
            lease.more(concurrent=1)  # a take of one limit alone stays with it
    limits = [Limit("rpm", "9/min"), Limit("gpu", "2 slots ttl 30s", cost=0)]
    with openai.sluice.acquire("openai", limits=limits) as lease:
        lease.more(gpu=1)
        openai.advance(300)
        assert not lease.lost
        assert openai.live("openai") == 1
    assert openai.live("openai") == 0


def test_a_refund_gives_more_back_too(openai: Api) -> None:
    lease = openai.sluice.acquire("openai", {"tpm": 100})
    lease.more(tpm=100, concurrent=1)
    lease.refund()
    assert (openai.free("openai", "tpm"), openai.free("openai", "rpm"), openai.live("openai")) == (1000, 60, 0)


# --- renewing ---


def test_renewing_by_hand_lets_the_slots_live_for_another_ttl(openai: Api) -> None:
    lease = openai.sluice.acquire("openai", keep_alive=False)
    openai.advance(59)
    lease.renew()
    openai.advance(59)
    assert not lease.lost
    assert openai.live("openai") == 1
    lease.release()


def test_renewing_what_has_lapsed_raises_and_never_brings_it_back(openai: Api) -> None:
    lease = openai.sluice.acquire("openai", keep_alive=False)
    openai.advance(60)
    assert lease.lost
    with pytest.raises(LeaseLost, match="take another"):
        lease.renew()
    assert openai.live("openai") == 0
    lease.release()


def test_renewing_raises_when_the_store_does_not_answer(openai: Api) -> None:
    with openai.sluice.acquire("openai", keep_alive=False) as lease:
        openai.store.fail(UNREACHED, "renew")
        with pytest.raises(StoreUnavailable, match="renewing"):
            lease.renew()
        assert not lease.lost


def test_ttl_is_how_long_slots_live_unless_renewed(openai: Api) -> None:
    lease = openai.sluice.acquire("openai", ttl=5, keep_alive=False)
    openai.advance(4.999)
    assert openai.live("openai") == 1
    openai.advance(0.001)
    assert openai.live("openai") == 0
    lease.release()


# --- ending ---


def test_an_exception_keeps_what_was_taken(openai: Api) -> None:
    with pytest.raises(Refused), openai.sluice.acquire("openai", {"tpm": 100}):
        raise Refused
    assert openai.free("openai", "tpm") == 900
    assert openai.live("openai") == 0


def test_an_exception_of_a_kind_in_refund_on_gives_everything_back(openai: Api) -> None:
    for kinds in (Refused, (OSError, Refused), Exception):
        with pytest.raises(Refused):
            settle_and_raise(openai, Refused(), refund_on=kinds)
        assert openai.free("openai", "tpm") == 1000
        assert openai.free("openai", "rpm") == 60
    with pytest.raises(KeyError), openai.sluice.acquire("openai", {"tpm": 100}, refund_on=(OSError, Refused)):
        raise KeyError
    assert openai.free("openai", "tpm") == 900


def test_ending_twice_is_no_error_and_costs_nothing(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 100}) as lease:
        lease.refund()
        openai.store.calls.clear()
        lease.release()
        lease.refund()
    assert openai.store.calls == []
    assert openai.free("openai", "tpm") == 1000


def test_an_end_is_told_once(openai: Api) -> None:
    with openai.sluice.acquire("openai") as lease:
        pass
    lease.release()
    assert openai.told(LeaseEnded) == [LeaseEnded(lease.id)]


@pytest.mark.parametrize("fault", [UNREACHED, UNKNOWN, raises(ConfigError("permission denied"))])
def test_leaving_a_block_never_raises_for_the_store(openai: Api, fault: Any) -> None:
    with openai.sluice.acquire("openai", {"tpm": 100}) as lease:
        lease.settle(tpm=10)
        openai.store.fail(fault, "release", "settle")
    with pytest.raises(Refused), openai.sluice.acquire("openai"):  # the body's own exception is what comes out
        raise Refused
    openai.store.heal()
    openai.advance(1)
    assert openai.live("openai") == 0
    assert openai.free("openai", "tpm") == 990


@pytest.mark.parametrize("how", ["release", "refund"])
@pytest.mark.parametrize("fault", [UNREACHED, UNKNOWN])
def test_ending_by_hand_raises_when_the_store_does_not_answer(openai: Api, how: str, fault: Any) -> None:
    lease = openai.sluice.acquire("openai", {"tpm": 100})
    openai.store.fail(fault, "release")
    with pytest.raises(StoreUnavailable, match="in the background"):
        getattr(lease, how)()
    openai.store.heal()
    openai.advance(1)
    assert openai.live("openai") == 0
    getattr(lease, how)()


def test_ending_by_hand_raises_what_no_retry_cures_as_it_is(openai: Api) -> None:
    lease = openai.sluice.acquire("openai", {"tpm": 100})
    openai.store.fail(raises(ConfigError("permission denied")), "release")
    with pytest.raises(ConfigError, match="permission denied"):
        lease.release()
    openai.store.heal()
    openai.advance(1)
    assert openai.live("openai") == 0


def test_an_end_is_tried_for_two_seconds_before_the_block_is_left(openai: Api) -> None:
    sluice = openai.client(timeout=30)
    with sluice.acquire("openai"):
        openai.store.fail(UNREACHED, "release")
        before_ns = openai.clock.steady_ns()
    assert 1.5 <= (openai.clock.steady_ns() - before_ns) / 1e9 <= 2


def test_a_lease_shows_how_it_stands(openai: Api) -> None:
    lease = openai.sluice.acquire("openai", keep_alive=False)
    state = lease if openai.kind == "blocking" else lease._it
    assert bool(state)
    assert repr(state).endswith(f"Lease {lease.id} held>")
    openai.advance(60)
    assert repr(state).endswith("lost>")
    lease.release()
    assert repr(state).endswith("ended>")
    assert (lease.degraded, lease.starts_in) == (False, 0)
