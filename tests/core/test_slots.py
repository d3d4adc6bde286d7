"""What slots promise: never more held than there are, a dead holder's back at its expiry, and none counted twice."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.core import bucket as core
from sluice.core.bucket import EMPTY, Bucket
from sluice.core.names import BucketKey, slot_entries
from sluice.core.requests import (
    Clash,
    Delta,
    Denied,
    Gone,
    Granted,
    Part,
    RateCharge,
    Reaped,
    Release,
    Released,
    Renew,
    Renewed,
    SlotEntry,
    SlotsCharge,
    Take,
)

KEY = BucketKey("ns", "*", "gpu")
NOW_NS = 1_000_000
TTL_NS = 100


def slots(amount: int = 1, capacity: int = 2, *, ttl_ns: int = TTL_NS, leave: int = 0) -> SlotsCharge:
    return SlotsCharge("conc", amount, capacity, ttl_ns, leave)


def hold(
    bucket: Bucket, lease_id: str, charge: SlotsCharge, now_ns: int = NOW_NS
) -> tuple[Bucket, Granted | Denied | Clash]:
    (after,), outcome = core.take([bucket], Take(lease_id, (Part(KEY, (charge,)),)), now_ns)
    return after, outcome


def held(bucket: Bucket, *leases: str, charge: SlotsCharge | None = None, now_ns: int = NOW_NS) -> Bucket:
    for lease_id in leases:
        bucket, outcome = hold(bucket, lease_id, charge or slots(), now_ns)
        assert isinstance(outcome, Granted)
        assert not outcome.repeated
    return bucket


def renew(bucket: Bucket, lease_id: str, charge: SlotsCharge, now_ns: int) -> tuple[Bucket, Renewed | Gone]:
    return core.renew(bucket, Renew(KEY, lease_id, (charge,)), now_ns)


def in_use(bucket: Bucket, now_ns: int, capacity: int = 2) -> int:
    return capacity - core.status(bucket, KEY, slots(1, capacity), now_ns).available


# --- holding ---


def test_all_slots_can_be_held_and_not_one_more() -> None:
    bucket = held(EMPTY, "a", "b")
    after, outcome = hold(bucket, "c", slots())
    assert isinstance(outcome, Denied)
    assert after is bucket
    assert in_use(bucket, NOW_NS) == 2


def test_a_lease_of_several_slots_counts_as_many() -> None:
    bucket = held(EMPTY, "a", charge=slots(3, 4))
    assert set(bucket.slots["conc"]) == {"a", "a#1", "a#2"}
    _, outcome = hold(bucket, "b", slots(2, 4))
    assert isinstance(outcome, Denied)
    held(bucket, "b", charge=slots(1, 4))


def test_headroom_leaves_slots_to_others() -> None:
    bucket = held(EMPTY, "a", charge=slots(1, 3, leave=2))
    _, outcome = hold(bucket, "b", slots(1, 3, leave=2))
    assert isinstance(outcome, Denied)
    held(bucket, "b", "c", charge=slots(1, 3))


def test_a_lapsed_slot_is_free_at_its_expiry_and_not_a_tick_sooner() -> None:
    bucket = held(EMPTY, "a", "b")
    _, outcome = hold(bucket, "c", slots(), NOW_NS + TTL_NS - 1)
    assert isinstance(outcome, Denied)
    assert outcome.retry_in_ns == 1
    after = held(bucket, "c", now_ns=NOW_NS + TTL_NS)
    assert after.slots == {"conc": {"c": NOW_NS + 2 * TTL_NS}}


@pytest.mark.parametrize(("amount", "retry_in_ns"), [(1, 30), (2, 60), (3, 90)])
def test_a_denial_hints_at_the_expiry_that_makes_room(amount: int, retry_in_ns: int) -> None:
    bucket = EMPTY
    for lease_id, ttl_ns in (("a", 60), ("b", 30), ("c", 90)):
        bucket = held(bucket, lease_id, charge=slots(1, 3, ttl_ns=ttl_ns))
    _, outcome = hold(bucket, "d", slots(amount, 3))
    assert isinstance(outcome, Denied)
    assert outcome.retry_in_ns == retry_in_ns
    (status,) = outcome.limits
    assert (status.name, status.capacity, status.available) == ("conc", 3, 0)


def test_slots_are_not_given_out_during_a_pause_and_leases_go_on_running_out() -> None:
    bucket = core.pause(held(EMPTY, "a"), 40, NOW_NS)
    _, outcome = hold(bucket, "b", slots())
    assert isinstance(outcome, Denied)
    assert outcome.retry_in_ns == 40
    assert in_use(bucket, NOW_NS + 39) == 2
    assert in_use(bucket, NOW_NS + 40) == 1
    assert in_use(bucket, NOW_NS + TTL_NS) == 0


def test_a_wait_that_was_allowed_is_for_turns_of_rates_and_never_for_slots() -> None:
    bucket = held(EMPTY, "a", "b")
    (after,), outcome = core.take([bucket], Take("c", (Part(KEY, (slots(),)),), 10 * TTL_NS), NOW_NS)
    assert isinstance(outcome, Denied)
    assert after is bucket


# --- one id, one take ---


def test_the_same_lease_id_again_is_the_same_take_and_takes_nothing_more() -> None:
    bucket = held(EMPTY, "a", charge=slots(2, 4))
    after, outcome = hold(bucket, "a", slots(2, 4), NOW_NS + 1)
    assert isinstance(outcome, Granted)
    assert outcome.repeated
    assert outcome.turn_ns == NOW_NS + 1
    assert after is bucket


def test_a_take_found_again_does_not_charge_its_rates_again() -> None:
    charges = (RateCharge("rpm", 1, 1, 1_000), slots())
    take = Take("a", (Part(KEY, charges),))
    first, _ = core.take([EMPTY], take, NOW_NS)
    second, outcome = core.take(first, take, NOW_NS)
    assert isinstance(outcome, Granted)
    assert outcome.repeated
    assert second == first


@pytest.mark.parametrize("amount", [1, 3])
def test_the_same_lease_id_with_another_amount_clashes(amount: int) -> None:
    bucket = held(EMPTY, "a", charge=slots(2, 4))
    after, outcome = hold(bucket, "a", slots(amount, 4))
    assert outcome == Clash("a")
    assert after is bucket


def test_the_same_lease_id_for_more_limits_or_buckets_clashes() -> None:
    bucket = held(EMPTY, "a")
    more = Part(KEY, (slots(), SlotsCharge("other", 1, 2, TTL_NS)))
    assert core.take([bucket], Take("a", (more,)), NOW_NS) == ((bucket,), Clash("a"))
    parts = (Part(KEY, (slots(),)), Part(BucketKey("ns", "acme", "gpu"), (slots(),)))
    assert core.take([bucket, EMPTY], Take("a", parts), NOW_NS) == ((bucket, EMPTY), Clash("a"))


def test_an_id_whose_slots_have_lapsed_holds_nothing_and_may_take_anew() -> None:
    bucket = held(EMPTY, "a", charge=slots(2, 2))
    after, outcome = hold(bucket, "a", slots(1, 2), NOW_NS + TTL_NS)
    assert isinstance(outcome, Granted)
    assert not outcome.repeated
    assert after.slots == {"conc": {"a": NOW_NS + 2 * TTL_NS}}


# --- ending ---


def test_released_slots_are_free_at_once_and_a_second_release_returns_nothing() -> None:
    bucket = held(EMPTY, "a", "b")
    after, outcome = core.release(bucket, Release(KEY, "a"), NOW_NS)
    assert outcome == Released(NOW_NS)
    assert in_use(after, NOW_NS) == 1
    again, outcome = core.release(after, Release(KEY, "a"), NOW_NS)
    assert outcome == Gone(NOW_NS)
    assert again is after


def test_a_second_release_does_not_correct_the_rates_again() -> None:
    release = Release(KEY, "a", (Delta("rpm", 5, 10),))
    bucket, _ = core.release(held(EMPTY, "a"), release, NOW_NS)
    assert bucket.rates["rpm"].full_at_ns == NOW_NS + 50
    again, outcome = core.release(bucket, release, NOW_NS)
    assert outcome == Gone(NOW_NS)
    assert again is bucket


def test_a_release_that_comes_after_its_slots_were_replaced_takes_nothing_from_the_new_holder() -> None:
    bucket = held(EMPTY, "a", charge=slots(1, 1))
    bucket = held(bucket, "b", charge=slots(1, 1), now_ns=NOW_NS + TTL_NS)
    after, outcome = core.release(bucket, Release(KEY, "a"), NOW_NS + TTL_NS)
    assert outcome == Gone(NOW_NS + TTL_NS)
    assert after is bucket


def test_a_release_ends_all_slots_of_its_lease_and_no_other() -> None:
    bucket = held(EMPTY, "a", "ab", charge=slots(2, 4))
    bucket, _ = core.release(bucket, Release(KEY, "a"), NOW_NS)
    assert set(bucket.slots["conc"]) == {"ab", "ab#1"}


# --- renewing ---


def test_a_renewal_raises_every_slot_of_a_live_lease() -> None:
    bucket = held(EMPTY, "a", charge=slots(2, 2))
    after, outcome = renew(bucket, "a", slots(2, 2), NOW_NS + TTL_NS - 1)
    assert outcome == Renewed(NOW_NS + TTL_NS - 1)
    assert set(after.slots["conc"].values()) == {NOW_NS + 2 * TTL_NS - 1}


def test_a_renewal_never_lowers_an_expiry() -> None:
    bucket = held(EMPTY, "a")
    after, outcome = renew(bucket, "a", slots(ttl_ns=1), NOW_NS)
    assert isinstance(outcome, Renewed)
    assert after.slots == bucket.slots


@pytest.mark.parametrize("reaped", [False, True])
def test_a_lapsed_lease_is_never_renewed_reaped_or_not(reaped: bool) -> None:
    bucket = held(EMPTY, "a")
    lapsed_ns = NOW_NS + TTL_NS
    if reaped:
        bucket, _ = core.reap(bucket, core.lapsed(bucket, lapsed_ns), lapsed_ns)
    after, outcome = renew(bucket, "a", slots(), lapsed_ns)
    assert outcome == Gone(lapsed_ns)
    assert after is bucket


def test_a_renewal_raises_all_limits_of_a_lease_or_none() -> None:
    other = SlotsCharge("other", 1, 2, TTL_NS)
    bucket = held(EMPTY, "a")
    after, outcome = core.renew(bucket, Renew(KEY, "a", (slots(), other)), NOW_NS + 1)
    assert outcome == Gone(NOW_NS + 1)
    assert after is bucket
    bucket = held(bucket, "a2", charge=other)
    (bucket,), _ = core.take([EMPTY], Take("a", (Part(KEY, (slots(), other)),)), NOW_NS)
    after, outcome = core.renew(bucket, Renew(KEY, "a", (slots(), other)), NOW_NS + 1)
    assert isinstance(outcome, Renewed)
    assert {at_ns for entries in after.slots.values() for at_ns in entries.values()} == {NOW_NS + 1 + TTL_NS}


def test_a_renewal_of_a_lease_that_never_was_is_refused() -> None:
    assert renew(EMPTY, "a", slots(), NOW_NS) == (EMPTY, Gone(NOW_NS))


# --- tidying ---


def test_only_what_has_lapsed_and_is_as_it_was_seen_is_reaped() -> None:
    bucket = held(EMPTY, "a", charge=slots(1, 4))
    bucket = held(bucket, "b", charge=slots(1, 4, ttl_ns=2 * TTL_NS))
    lapsed_ns = NOW_NS + TTL_NS
    seen_a = SlotEntry("conc", "a", lapsed_ns)
    seen = (SlotEntry("conc", "b", NOW_NS + 2 * TTL_NS), SlotEntry("conc", "a", 5), SlotEntry("gone", "x", 1), seen_a)
    assert core.lapsed(bucket, lapsed_ns - 1) == ()
    assert core.lapsed(bucket, lapsed_ns) == (seen_a,)
    assert core.reap(bucket, seen, lapsed_ns - 1) == (bucket, Reaped(lapsed_ns - 1, ()))
    after, outcome = core.reap(bucket, seen, lapsed_ns)
    assert outcome == Reaped(lapsed_ns, (seen_a,))
    assert set(after.slots["conc"]) == {"b"}
    again, outcome = core.reap(after, seen, lapsed_ns)
    assert outcome == Reaped(lapsed_ns, ())
    assert again is after


def test_a_slot_renewed_after_it_was_seen_is_not_reaped() -> None:
    bucket = held(EMPTY, "a")
    seen = core.lapsed(bucket, NOW_NS + TTL_NS)
    bucket, _ = renew(bucket, "a", slots(), NOW_NS + TTL_NS - 1)
    after, outcome = core.reap(bucket, seen, NOW_NS + 2 * TTL_NS)
    assert outcome.removed == ()
    assert after is bucket


# --- in any order ---


@dataclass
class Held:
    """What one lease holds, by a ledger that knows nothing of entries."""

    amount: int
    until_ns: int


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("take", "take", "release", "renew", "reap", "pass")),
        st.sampled_from("abcdef"),
        st.integers(1, 3),
        st.integers(0, 60),
    ),
    max_size=60,
)


@given(STEPS)
def test_however_leases_end_a_slot_never_counts_twice(steps: list[tuple[str, str, int, int]]) -> None:
    bucket, now_ns, capacity = EMPTY, NOW_NS, 4
    ledger: dict[str, Held] = {}
    seen: tuple[SlotEntry, ...] = ()
    for verb, lease_id, amount, later_ns in steps:
        now_ns += later_ns if verb == "pass" else 0
        ledger = {name: mine for name, mine in ledger.items() if mine.until_ns > now_ns}
        used, mine = sum(other.amount for other in ledger.values()), ledger.get(lease_id)
        if verb == "take":
            bucket, taken = hold(bucket, lease_id, slots(amount, capacity), now_ns)
            if mine is not None:
                repeated = isinstance(taken, Granted) and taken.repeated
                assert repeated if mine.amount == amount else taken == Clash(lease_id)
            else:
                assert isinstance(taken, Granted) == (used + amount <= capacity)
                if isinstance(taken, Granted):
                    ledger[lease_id] = Held(amount, now_ns + TTL_NS)
        elif verb == "release":
            bucket, ended = core.release(bucket, Release(KEY, lease_id), now_ns)
            assert mine is None or isinstance(ended, Released)
            ledger.pop(lease_id, None)
        elif verb == "renew":
            bucket, renewed = renew(bucket, lease_id, slots(mine.amount if mine else amount, capacity), now_ns)
            assert isinstance(renewed, Renewed) == (mine is not None)
            if mine is not None:
                mine.until_ns = now_ns + TTL_NS
        elif verb == "reap":
            bucket, _ = core.reap(bucket, seen, now_ns)  # of what was seen some steps ago
            seen = core.lapsed(bucket, now_ns + later_ns)
        used = sum(mine.amount for mine in ledger.values())
        assert in_use(bucket, now_ns, capacity) == used <= capacity


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.integers(-150, 150)), max_size=40))
def test_live_leases_never_exceed_capacity_whatever_the_clock_does(steps: list[tuple[str, int, int]]) -> None:
    bucket, now_ns = EMPTY, NOW_NS
    for lease_id, amount, step_ns in steps:
        now_ns += step_ns
        bucket, _ = hold(bucket, lease_id, slots(amount, 4), now_ns)
        live = [at_ns for at_ns in bucket.slots.get("conc", {}).values() if at_ns > now_ns]
        assert len(live) <= 4


# --- entries ---


def test_a_lease_is_entered_once_for_each_slot() -> None:
    assert slot_entries("a", 1) == ("a",)
    assert slot_entries("a", 3) == ("a", "a#1", "a#2")
