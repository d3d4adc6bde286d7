"""Asking: what a take takes, and what stands in its way."""

import pytest

from sluice import (
    ConfigError,
    Conflict,
    Denied,
    InvalidName,
    Limit,
    Need,
    NeverAdmissible,
    RateLimited,
    WaitTimeout,
)
from sluice.core.events import TakeDenied, TakeGranted
from tests.facade.kit import Api, limits_of

OPENAI = [Limit("rpm", "60/min"), Limit("tpm", "1000/min", cost=0), Limit("concurrent", "4 slots ttl 60s")]


def test_a_limit_that_is_not_named_takes_its_cost(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "60/min"), Limit("units", "100/min", cost=7)])
    with api.sluice.acquire("openai"):
        assert api.free("openai", "rpm") == 59
        assert api.free("openai", "units") == 93


def test_a_limit_of_cost_0_is_taken_only_when_it_is_named(api: Api) -> None:
    api.sluice.set_limits("openai", OPENAI)
    with api.sluice.acquire("openai"):
        assert api.free("openai", "tpm") == 1000
    with api.sluice.acquire("openai", {"tpm": 300}):
        assert api.free("openai", "tpm") == 700
        assert api.free("openai", "rpm") == 58


def test_a_named_limit_after_a_hash_is_taken_alone(api: Api) -> None:
    api.sluice.set_limits("openai", OPENAI)
    with api.sluice.acquire("openai#rpm"):
        assert api.free("openai", "rpm") == 59
        assert api.live("openai") == 0
    with api.sluice.acquire("openai#tpm"):
        assert api.free("openai", "tpm") == 999
    with api.sluice.acquire("openai#tpm", {"tpm": 99}):
        assert api.free("openai", "tpm") == 900
    with pytest.raises(ConfigError, match="alone"):
        api.sluice.acquire("openai#rpm", {"tpm": 1})


def test_several_needs_are_taken_together_or_not_at_all(api: Api) -> None:
    api.sluice.set_limits("gpt", [Limit("rpm", "10/min")])
    api.sluice.set_limits("search", [Limit("rpm", "2/min")])
    both = [Need("gpt", {"rpm": 3}, entity="acme"), Need("search")]
    for left in (7, 4):
        with api.sluice.acquire(both):
            assert api.free("gpt", "rpm", "acme") == left
    denied = api.sluice.try_acquire(both)
    assert isinstance(denied, Denied)
    assert [(s.resource, s.name, s.entity) for s in denied.limits] == [("search", "rpm", "*")]
    assert api.free("gpt", "rpm", "acme") == 4


def test_needs_that_meet_in_one_bucket_add_up(api: Api) -> None:
    api.sluice.set_limits("gpt", [Limit("rpm", "10/min")])
    with api.sluice.acquire([Need("gpt", {"rpm": 3}), Need("gpt", {"rpm": 4})]):
        assert api.free("gpt", "rpm") == 3


def test_a_list_of_needs_takes_no_other_amounts_entity_or_limits(api: Api) -> None:
    both = [Need("gpt"), Need("search")]
    for options in ({"entity": "acme"}, {"limits": [Limit("rpm", "1/min")]}):
        with pytest.raises(ConfigError, match="Need"):
            api.sluice.acquire(both, **options)
    with pytest.raises(ConfigError, match="Need"):
        api.sluice.acquire(both, {"rpm": 1})
    for nonsense in ([], ["gpt"], None):
        with pytest.raises((ConfigError, InvalidName)):
            api.sluice.acquire(nonsense)


def test_limits_given_with_a_take_count_for_it_and_stick_to_nothing(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "10/min")])
    stored = api.sluice.get_limits("openai")
    with api.sluice.acquire("openai", {"rpm": 50}, limits=[Limit("rpm", "100/min")]):
        pass
    assert api.sluice.get_limits("openai") == stored
    assert api.sluice.resolve_limits("openai").limits == (Limit("rpm", "10/min"),)
    assert api.sluice.peek("openai").limits[0].capacity == 10
    with pytest.raises(NeverAdmissible):
        api.sluice.acquire("openai", {"rpm": 50})


def test_limits_given_with_a_take_need_none_stored(api: Api) -> None:
    assert api.sluice.try_acquire("fresh", limits=[Limit("rpm", "1/min")])
    assert not api.sluice.try_acquire("fresh", limits=[Limit("rpm", "1/min")])
    assert api.sluice.resources() == []


def test_each_entity_has_its_own_bucket(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "1/min")])
    for entity in ("acme", "globex", "*", "tenant:ü/7", "a#b"):
        assert api.sluice.try_acquire("openai", entity=entity)
        assert not api.sluice.try_acquire("openai", entity=entity)


def test_the_first_of_four_levels_that_exists_wins_whole(api: Api) -> None:
    per = {"system": 1, "resource": 2, "entity": 3, "both": 4}
    where = {"system": (None, None), "resource": ("openai", None), "entity": (None, "acme"), "both": ("openai", "acme")}
    for level, (resource, entity) in where.items():
        api.sluice.set_limits(resource, [Limit(level, f"{per[level]}/min")], entity=entity)
    for level in ("both", "entity", "resource", "system"):
        resolved = api.sluice.resolve_limits("openai", entity="acme")
        assert resolved.limits == (Limit(level, f"{per[level]}/min"),)
        resource, entity = where[level]
        assert (resolved.level.resource, resolved.level.entity) == (resource, entity)
        with api.sluice.acquire("openai", entity="acme") as lease:
            assert lease
        api.sluice.delete_limits(resource, entity=entity)
    assert api.sluice.resolve_limits("openai", entity="acme").limits == ()
    with pytest.raises(ConfigError, match="no limits are set"):
        api.sluice.acquire("openai", entity="acme")


def test_a_resource_without_limits_is_an_error_that_lists_the_known_ones(api: Api) -> None:
    api.sluice.set_limits("gpt-4", [Limit("rpm", "1/min")])
    api.sluice.set_limits("gpt-5", [Limit("rpm", "1/min")])
    with pytest.raises(ConfigError, match=r"'gpt-6'.*set_limits.*gpt-4, gpt-5"):
        api.sluice.acquire("gpt-6")
    with pytest.raises(ConfigError, match="gpt-4, gpt-5"):
        api.sluice.try_acquire("gpt-6")


def test_an_unknown_limit_is_an_error_that_names_the_nearest(api: Api) -> None:
    api.sluice.set_limits("openai", OPENAI)
    with pytest.raises(ConfigError, match=r"'openai#tmp'.*did you mean 'tpm'.*concurrent, rpm, tpm"):
        api.sluice.acquire("openai", {"tmp": 5})
    with pytest.raises(ConfigError, match="did you mean 'rpm'"):
        api.sluice.acquire("openai#rmp")


def test_more_than_the_capacity_can_never_be_granted(api: Api) -> None:
    api.sluice.set_limits("openai", OPENAI)
    for need in ({"tpm": 1001}, {"concurrent": 5}, {"rpm": 61}):
        for ask in (api.sluice.acquire, api.sluice.try_acquire):
            with pytest.raises(NeverAdmissible, match=r"can never be granted.*capacity is \d+.*ask for less"):
                ask("openai", need, wait=30)
    assert api.sluice.try_acquire("openai#tpm", {"tpm": 1000})


def test_headroom_leaves_a_share_of_each_limit_to_others(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "10/min"), Limit("concurrent", "8 slots ttl 60s")])
    held = []
    while lease := api.sluice.try_acquire("openai", headroom=0.25):
        held.append(lease)
    assert len(held) == 6  # of 8 slots, 2 are left; of 10 a minute 2.5, rounded up to 3, which would allow 7
    assert limits_of(lease) == ["concurrent"]
    held[0].release()
    assert api.sluice.try_acquire("openai#rpm", headroom=0.25)
    assert limits_of(api.sluice.try_acquire("openai#rpm", headroom=0.25)) == ["rpm"]
    assert api.sluice.try_acquire("openai#rpm", {"rpm": 3})
    for one in held[1:]:
        one.release()
    with pytest.raises(NeverAdmissible, match="3 are left to others"):
        api.sluice.acquire("openai#rpm", {"rpm": 8}, headroom=0.25)


def test_headroom_that_is_no_share_is_refused(api: Api) -> None:
    for headroom in (-0.1, 1, 2.5):
        with pytest.raises(ConfigError, match="headroom"):
            api.sluice.acquire("openai", headroom=headroom)


def test_a_denial_is_false_and_says_when_and_what(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "2/min"), Limit("tpm", "100/min", cost=0)])
    with api.sluice.acquire("openai", {"tpm": 90, "rpm": 2}):
        pass
    denied = api.sluice.try_acquire("openai", {"tpm": 40})
    assert isinstance(denied, Denied)
    assert not denied
    assert denied.retry_in == 30
    assert denied.retry_in_ns == 30_000_000_000
    by_name = {status.name: status for status in denied.limits}
    assert by_name["rpm"].retry_in == 30
    assert (by_name["rpm"].capacity, by_name["rpm"].available) == (2, 0)
    assert (by_name["tpm"].retry_in, by_name["tpm"].available) == (18, 10)
    assert by_name["tpm"].entity == "*"


def test_one_tick_before_retry_in_is_refused_and_at_it_is_granted(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "7/min")])
    assert api.sluice.try_acquire("openai", {"rpm": 7})
    retry_in_ns = api.sluice.try_acquire("openai", {"rpm": 3}).retry_in_ns
    api.advance(ns=retry_in_ns - 1)
    assert api.sluice.try_acquire("openai", {"rpm": 3}).retry_in_ns == 1
    api.advance(ns=1)
    assert api.sluice.try_acquire("openai", {"rpm": 3})


def test_a_denial_takes_nothing_and_a_peek_takes_nothing(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "1/min"), Limit("concurrent", "4 slots ttl 60s")])
    with api.sluice.acquire("openai"):
        before = api.bucket("openai")
        assert not api.sluice.try_acquire("openai")
        standing = api.sluice.peek("openai")
        assert api.bucket("openai") == before
    assert [(s.name, s.capacity, s.available, s.retry_in) for s in standing.limits] == [
        ("rpm", 1, 0, 60.0),
        ("concurrent", 4, 3, 0.0),
    ]
    assert standing.paused_for == 0


def test_a_peek_shows_limits_that_cost_nothing_by_default(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("tpm", "100/min", cost=0)])
    with api.sluice.acquire("openai", {"tpm": 60}):
        pass
    assert api.sluice.peek("openai").limits[0].available == 40


def test_a_peek_shows_all_that_a_take_counts_against(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "5/min")])
    api.sluice.set_limits("openai", [Limit("rpm", "3/min"), Limit("calls", "2 slots ttl 60s")], entity="*")
    api.sluice.create_entity("acme", parent="*", cascade=True)
    with api.sluice.acquire("openai", entity="acme"):
        standing = api.sluice.peek("openai", entity="acme")
    assert [(s.entity, s.name, s.available) for s in standing.limits] == [
        ("acme", "rpm", 4),
        ("*", "rpm", 2),
        ("*", "calls", 1),
    ]
    api.sluice.pause("openai", 30)
    assert api.sluice.peek("openai", entity="acme").paused_for == 30


def test_a_repair_is_of_one_bucket_and_says_whose_if_there_is_none(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "3/min")], entity="org")
    api.sluice.create_entity("org")
    api.sluice.create_entity("acme", parent="org", cascade=True)
    with pytest.raises(ConfigError, match="against entity 'org': repair that one"):
        api.sluice.repair("openai", entity="acme")
    assert api.sluice.repair("openai", entity="org").limits == ()


def test_a_refusal_says_what_was_asked_what_stands_in_the_way_and_what_to_do(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "2/min")])
    assert api.sluice.try_acquire("openai", {"rpm": 2}, entity="acme")
    with pytest.raises(RateLimited) as refused:
        api.sluice.acquire("openai", {"rpm": 2}, entity="acme")
    assert not isinstance(refused.value, WaitTimeout)
    assert refused.value.retry_in == 60
    assert limits_of(refused.value) == ["rpm"]
    for part in ("openai {'rpm': 2} for entity 'acme'", "openai#rpm (0 of 2 free", "in 60 s", "wait="):
        assert part in str(refused.value)


def test_the_same_lease_id_is_the_same_take(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "60/min"), Limit("concurrent", "4 slots ttl 60s")])
    first = api.sluice.acquire("openai", lease_id="job-7")
    again = api.sluice.acquire("openai", lease_id="job-7")
    assert first.id == again.id == "job-7"
    assert api.live("openai") == 1
    assert api.free("openai", "rpm") == 59
    first.release()
    again.release()
    assert api.live("openai") == 0


def test_two_holders_of_one_lease_id_give_back_once_and_owe_what_either_says(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("tpm", "1000/day"), Limit("concurrent", "4 slots ttl 60s")])
    for first_total, then_total, free in ((0, 0, 1000), (0, 130, 970), (130, 0, 840)):
        holders = [api.sluice.acquire("openai", {"tpm": 100}, lease_id="job-7") for _ in range(2)]
        for holder, total in zip(holders, (first_total, then_total), strict=True):
            holder.settle(tpm=total)
            holder.release()
        assert api.free("openai", "tpm") == free
        assert api.live("openai") == 0


def test_who_finds_a_take_over_two_resources_gives_back_nothing_of_the_one_without_slots(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("concurrent", "4 slots ttl 60s")])
    api.sluice.set_limits("search", [Limit("rpd", "1000/day")])
    api.sluice.acquire("search", {"rpd": 500})
    needs = [Need("openai"), Need("search", {"rpd": 100})]
    first = api.sluice.acquire(needs, lease_id="job-7")
    again = api.sluice.acquire(needs, lease_id="job-7")
    assert api.free("search", "rpd") == 400
    again.refund()
    assert api.free("search", "rpd") == 400
    first.refund()
    assert api.free("search", "rpd") == 500


def test_the_same_lease_id_for_another_take_is_a_conflict_and_harms_nobody(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("concurrent", "4 slots ttl 60s")])
    with api.sluice.acquire("openai", lease_id="job-7") as first:
        with pytest.raises(Conflict, match=r"'job-7'.*use a new one"):
            api.sluice.acquire("openai", {"concurrent": 2}, lease_id="job-7")
        assert api.live("openai") == 1
        first.renew()


def test_a_lease_id_says_when_and_who(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("concurrent", "4 slots ttl 60s")])
    at = api.clock.now_ns() / 1e9
    with api.sluice.acquire("openai", {"concurrent": 2}, entity="acme") as first:
        api.advance(0.5)
        with api.sluice.acquire("openai") as second:
            assert first.id < second.id
            held = {lease.id: lease for lease in api.sluice.leases("openai")}
            assert set(held) == {first.id, second.id}
            mine = held[first.id]
            assert (mine.entity, mine.limit, mine.slots, mine.expires_in) == ("acme", "concurrent", 2, 59.5)
            assert mine.since == pytest.approx(at, abs=0.001)
            assert mine.holder == first.id.partition("@")[2]
            assert [lease.id for lease in api.sluice.leases(entity="acme")] == [first.id]
    assert api.sluice.leases() == []


def test_an_observer_is_told_of_grants_and_denials(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "1/min")])
    lease = api.sluice.acquire("openai")
    assert not api.sluice.try_acquire("openai")
    assert api.told(TakeGranted) == [TakeGranted("openai", "*", lease.id, {"rpm": 1}, 0, 1)]
    assert api.told(TakeDenied) == [TakeDenied("openai", "*", ("rpm",), 60_000_000_000)]


@pytest.mark.parametrize("amounts", [{"rpm": 0}, {"rpm": -1}, {"rpm": 1.5}, {"rpm": True}, {"rpm": "2"}, ["rpm"]])
def test_amounts_that_are_no_whole_numbers_above_0_are_refused(api: Api, amounts: object) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "10/min")])
    with pytest.raises(ConfigError):
        api.sluice.acquire("openai", amounts)
    assert api.free("openai", "rpm") == 10


@pytest.mark.parametrize(
    "options",
    [
        {"wait": -1},
        {"wait": 3601},
        {"wait": float("nan")},
        {"wait": True},
        {"ttl": 0},
        {"ttl": 8 * 86400},
        {"lease_id": "a#b"},
        {"lease_id": ""},
        {"entity": ""},
        {"entity": "a\nb"},
        {"entity": "x" * 129},
    ],
)
def test_options_past_their_bounds_are_refused_before_anything_is_sent(api: Api, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        api.sluice.acquire("openai", **options)
    assert api.store.calls == []
