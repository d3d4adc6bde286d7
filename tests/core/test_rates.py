"""What a rate promises: never more than it allows, never less than it could, and a wait that is exact."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluice.core import bucket as core
from sluice.core.bounds import MAX_DEBT_CAPACITIES, MAX_TURN_NS, NS_PER_DAY, NS_PER_HOUR, NS_PER_SECOND
from sluice.core.bucket import EMPTY, Bucket, RateState
from sluice.core.limits import Limit, Rate
from sluice.core.names import BucketKey
from sluice.core.requests import Clash, Delta, Denied, GiveUp, Granted, Part, RateCharge, Take

KEY = BucketKey("ns", "*", "openai")
NOW_NS = 1_700_000_000 * NS_PER_SECOND


def charge_of(text: str, amount: int = 1, *, name: str = "rpm", leave: int = 0) -> RateCharge:
    rule = Limit(name, text).rule
    assert isinstance(rule, Rate)
    return RateCharge(name, amount, rule.capacity, rule.interval_ns, leave)


def ask(
    bucket: Bucket, charges: RateCharge | Sequence[RateCharge], now_ns: int, wait_ns: int = 0
) -> tuple[Bucket, Granted | Denied]:
    charges = (charges,) if isinstance(charges, RateCharge) else tuple(charges)
    (after,), outcome = core.take([bucket], Take("lease", (Part(KEY, charges),), wait_ns), now_ns)
    assert not isinstance(outcome, Clash)
    return after, outcome


def granted(bucket: Bucket, charge: RateCharge, now_ns: int, wait_ns: int = 0) -> Bucket:
    after, outcome = ask(bucket, charge, now_ns, wait_ns)
    assert isinstance(outcome, Granted)
    return after


def denied(bucket: Bucket, charge: RateCharge, now_ns: int) -> Denied:
    after, outcome = ask(bucket, charge, now_ns)
    assert isinstance(outcome, Denied)
    assert after is bucket
    return outcome


def available(bucket: Bucket, charge: RateCharge, now_ns: int) -> int:
    return core.status(bucket, KEY, charge, now_ns).available


def all_at_once(bucket: Bucket, charge: RateCharge, now_ns: int) -> tuple[Bucket, int]:
    """Take one by one until refused; how many were granted."""
    charge, count = replace(charge, amount=1), 0
    while True:
        bucket, outcome = ask(bucket, charge, now_ns)
        if isinstance(outcome, Denied):
            return bucket, count
        count += 1


SHAPES = st.tuples(st.integers(1, 12), st.sampled_from((1, 2, 3, 7, 1_000)))
"""Capacity and interval."""

ASKS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 12), st.sampled_from((0, 0, 5, 30)), st.booleans()), max_size=40
)
"""For each: how much later, how many, the wait allowed, and whether a turn is given up."""


# --- promise 1: never more ---


@given(SHAPES, ASKS)
def test_no_interval_sees_more_than_capacity_and_what_came_back_in_it(
    shape: tuple[int, int], asks: list[tuple[int, int, int, bool]]
) -> None:
    capacity, interval_ns = shape
    bucket, now_ns, turns = EMPTY, NOW_NS, []
    for later_ns, amount, wait_ns, gives_up in asks:
        now_ns += later_ns
        charge = RateCharge("rpm", min(amount, capacity), capacity, interval_ns)
        bucket, outcome = ask(bucket, charge, now_ns, wait_ns)
        if isinstance(outcome, Granted):
            turn = (outcome.turn_ns, charge.amount)
            turns.append(turn)
            if gives_up and outcome.turn_ns > now_ns:
                left_ns = bucket.rates["rpm"].full_at_ns
                request = GiveUp(KEY, "rpm", charge.amount, interval_ns, left_ns)
                bucket, gave_up = core.give_up(bucket, request, now_ns)
                assert gave_up.returned
                turns.remove(turn)
    for first_ns, _ in turns:
        for last_ns, _ in turns:
            taken = sum(amount for turn_ns, amount in turns if first_ns <= turn_ns <= last_ns)
            assert taken * interval_ns <= capacity * interval_ns + max(0, last_ns - first_ns)


@given(SHAPES, st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 12)), min_size=1, max_size=40))
def test_a_clock_that_steps_back_and_forth_mints_nothing(shape: tuple[int, int], asks: list[tuple[int, int]]) -> None:
    capacity, interval_ns = shape
    bucket, now_ns, first_ns, latest_ns, taken = EMPTY, NOW_NS, 0, 0, 0
    for step_ns, amount in asks:
        now_ns += step_ns
        charge = RateCharge("rpm", min(amount, capacity), capacity, interval_ns)
        bucket, outcome = ask(bucket, charge, now_ns)
        if isinstance(outcome, Granted):
            first_ns, latest_ns = first_ns or now_ns, max(latest_ns, now_ns)
            taken += charge.amount
            assert taken * interval_ns <= capacity * interval_ns + latest_ns - first_ns


def test_a_clock_that_steps_back_only_delays() -> None:
    charge = charge_of("10 per 10s")
    bucket, _ = all_at_once(EMPTY, charge, NOW_NS)
    back_ns = NOW_NS - 60 * NS_PER_SECOND
    assert denied(bucket, charge, back_ns).retry_in_ns == 61 * NS_PER_SECOND
    assert available(bucket, charge, back_ns) == 0
    granted(bucket, charge, NOW_NS + NS_PER_SECOND)


def test_after_idling_a_bucket_holds_its_capacity_and_not_one_more() -> None:
    charge = charge_of("10 per 10s")
    bucket = granted(EMPTY, charge, NOW_NS)
    _, count = all_at_once(bucket, charge, NOW_NS + 21 * NS_PER_SECOND)
    assert count == 10


@pytest.mark.parametrize("text", ["10 per 10s", "1/hour", "500/min", "200k/min burst 400k"])
def test_a_burst_of_exactly_the_capacity_fits_and_one_more_does_not(text: str) -> None:
    capacity = charge_of(text).capacity
    bucket = granted(EMPTY, charge_of(text, capacity), NOW_NS)
    assert available(bucket, charge_of(text), NOW_NS) == 0
    assert denied(bucket, charge_of(text), NOW_NS).retry_in_ns == charge_of(text).interval_ns
    charge = charge_of(text, capacity)
    assert denied(bucket, charge, NOW_NS + capacity * charge.interval_ns - 1).retry_in_ns == 1
    granted(bucket, charge, NOW_NS + capacity * charge.interval_ns)


# --- promise 2: not less either ---


@pytest.mark.parametrize("poll_ns", [None, 70_000_000, 333_000_000])
def test_a_saturated_limit_grants_99_to_100_percent_of_an_hour(poll_ns: int | None) -> None:
    """Whoever comes back when told to gets all of it, and so does whoever asks now and then for what there is."""
    charge = charge_of("50/s burst 100", 5)
    bucket, now_ns, taken = EMPTY, NOW_NS, 0
    while now_ns < NOW_NS + NS_PER_HOUR:
        bucket, outcome = ask(bucket, charge, now_ns)
        if isinstance(outcome, Granted):
            taken += charge.amount
        else:
            now_ns += outcome.retry_in_ns if poll_ns is None else poll_ns
    allowed = charge.capacity + 3_600 * 50
    assert 0.99 * allowed <= taken <= allowed


# --- promise 3: each limit has its own refill ---


def test_a_slow_limit_beside_a_saturated_fast_one_gets_all_of_its_own_refill() -> None:
    fast, slow = charge_of("100/s", 10, name="fast"), charge_of("5000/day", name="slow")
    bucket = granted(EMPTY, replace(slow, amount=5000), NOW_NS)
    next_ns, taken = {fast: NOW_NS, slow: NOW_NS}, {fast: 0, slow: 0}
    end_ns = NOW_NS + NS_PER_HOUR // 2
    while (now_ns := min(next_ns.values())) < end_ns:
        charge = min(next_ns, key=lambda limit: next_ns[limit])
        bucket, outcome = ask(bucket, charge, now_ns)
        if isinstance(outcome, Granted):
            taken[charge] += charge.amount
        else:
            next_ns[charge] = now_ns + outcome.retry_in_ns
    assert taken[slow] == (NS_PER_HOUR // 2 - 1) // slow.interval_ns == 104
    assert taken[fast] == 100 + 100 * 1_800 - 10


def test_taking_both_limits_together_is_held_up_by_the_slow_one_alone() -> None:
    fast, slow = charge_of("100/s", name="fast"), charge_of("10/hour", name="slow")
    bucket = EMPTY
    for _ in range(10):
        bucket, outcome = ask(bucket, (fast, slow), NOW_NS)
        assert isinstance(outcome, Granted)
    after, refused = ask(bucket, (fast, slow), NOW_NS)
    assert isinstance(refused, Denied)
    assert after is bucket
    assert [status.name for status in refused.limits] == ["slow"]
    assert refused.retry_in_ns == 360 * NS_PER_SECOND
    assert available(bucket, fast, NOW_NS) == 90


# --- promise 5: a denial takes nothing, its wait is exact ---


@given(
    SHAPES,
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=30),
    st.integers(1, 12),
    st.integers(0, 11),
    st.sampled_from((0, 1, 9, 200)),
)
def test_a_denied_take_is_refused_one_tick_before_its_retry_in_and_granted_at_it(
    shape: tuple[int, int], asks: list[tuple[int, int]], amount: int, leave: int, pause_ns: int
) -> None:
    capacity, interval_ns = shape
    bucket, now_ns = EMPTY, NOW_NS
    for later_ns, taken in asks:
        now_ns += later_ns
        bucket, _ = ask(bucket, RateCharge("rpm", min(taken, capacity), capacity, interval_ns), now_ns)
    bucket = core.pause(bucket, pause_ns, now_ns)
    leave = min(leave, capacity - 1)
    charge = RateCharge("rpm", min(amount, capacity - leave), capacity, interval_ns, leave)
    after, outcome = ask(bucket, charge, now_ns)
    assume(isinstance(outcome, Denied))
    assert isinstance(outcome, Denied)
    assert after is bucket
    assert denied(bucket, charge, now_ns + outcome.retry_in_ns - 1).retry_in_ns == 1
    granted(bucket, charge, now_ns + outcome.retry_in_ns)


def test_a_thousand_denials_cost_nothing() -> None:
    charge = charge_of("10 per 10s")
    bucket, _ = all_at_once(EMPTY, charge, NOW_NS)
    for _ in range(1_000):
        denied(bucket, charge, NOW_NS)
    granted(bucket, charge, NOW_NS + NS_PER_SECOND)


def test_a_denial_says_how_the_limit_stands() -> None:
    charge = charge_of("10 per 10s", 4)
    bucket = granted(EMPTY, charge_of("10 per 10s", 8), NOW_NS)
    (status,) = denied(bucket, charge, NOW_NS).limits
    assert (status.resource, status.name, status.entity) == ("openai", "rpm", "*")
    assert (status.capacity, status.available, status.retry_in) == (10, 2, 2.0)


def test_what_is_available_counts_whole_tokens_only() -> None:
    charge = charge_of("10 per 10s")
    bucket = granted(EMPTY, charge_of("10 per 10s", 10), NOW_NS)
    assert available(bucket, charge, NOW_NS + 3 * NS_PER_SECOND - 1) == 2
    assert available(bucket, charge, NOW_NS + 3 * NS_PER_SECOND) == 3
    assert available(bucket, charge, NOW_NS + NS_PER_DAY) == 10


# --- headroom ---


def test_headroom_is_left_to_those_who_ask_without_it() -> None:
    batch, interactive = charge_of("10 per 10s", leave=2), charge_of("10 per 10s")
    bucket, count = all_at_once(EMPTY, batch, NOW_NS)
    assert count == 8
    assert denied(bucket, batch, NOW_NS).retry_in_ns == NS_PER_SECOND
    _, count = all_at_once(bucket, interactive, NOW_NS)
    assert count == 2


# --- turns ---


def test_turns_come_first_come_first_served_one_interval_apart() -> None:
    charge = charge_of("10 per 10s")
    bucket, _ = all_at_once(EMPTY, charge, NOW_NS)
    turns = []
    for _ in range(3):
        bucket, outcome = ask(bucket, charge, NOW_NS, 3 * NS_PER_SECOND)
        assert isinstance(outcome, Granted)
        turns.append((outcome.turn_ns - NOW_NS) / NS_PER_SECOND)
    assert turns == [1, 2, 3]


def test_a_turn_exactly_at_the_wait_allowed_is_granted_and_one_tick_further_is_not() -> None:
    charge = charge_of("10 per 10s")
    bucket, _ = all_at_once(EMPTY, charge, NOW_NS)
    granted(bucket, charge, NOW_NS, NS_PER_SECOND)
    after, outcome = ask(bucket, charge, NOW_NS, NS_PER_SECOND - 1)
    assert isinstance(outcome, Denied)
    assert after is bucket


def give_up(bucket: Bucket, charge: RateCharge, left: Bucket) -> tuple[Bucket, bool]:
    state = left.rates[charge.name]
    request = GiveUp(KEY, charge.name, charge.amount, state.interval_ns, state.full_at_ns)
    after, outcome = core.give_up(bucket, request, NOW_NS)
    return after, outcome.returned


def test_the_last_turn_in_the_line_goes_back_when_it_is_given_up() -> None:
    charge = charge_of("10 per 10s")
    full, _ = all_at_once(EMPTY, charge, NOW_NS)
    reserved = granted(full, charge, NOW_NS, NS_PER_SECOND)
    after, returned = give_up(reserved, charge, reserved)
    assert returned
    assert after.rates == full.rates
    assert after.usage == full.usage


def test_a_turn_from_the_middle_of_the_line_stays_spent() -> None:
    charge = charge_of("10 per 10s")
    full, _ = all_at_once(EMPTY, charge, NOW_NS)
    mine = granted(full, charge, NOW_NS, NS_PER_SECOND)
    behind_me = granted(mine, charge, NOW_NS, 2 * NS_PER_SECOND)
    assert give_up(behind_me, charge, mine) == (behind_me, False)


def test_a_turn_counted_in_another_interval_stays_spent() -> None:
    charge = charge_of("10 per 10s")
    reserved = granted(EMPTY, charge, NOW_NS)
    request = GiveUp(KEY, "rpm", 1, charge.interval_ns + 1, reserved.rates["rpm"].full_at_ns)
    after, outcome = core.give_up(reserved, request, NOW_NS)
    assert after is reserved
    assert not outcome.returned


# --- pausing ---


def test_nobody_is_granted_before_a_pause_has_passed() -> None:
    charge = charge_of("10 per 10s")
    bucket = core.pause(EMPTY, 5 * NS_PER_SECOND, NOW_NS)
    assert denied(bucket, charge, NOW_NS).retry_in_ns == 5 * NS_PER_SECOND
    assert available(bucket, charge, NOW_NS) == 0
    assert denied(bucket, charge, NOW_NS + 5 * NS_PER_SECOND - 1).retry_in_ns == 1
    assert available(bucket, charge, NOW_NS + 5 * NS_PER_SECOND) == 10


def test_a_pause_shifts_the_line_and_does_not_bunch_it() -> None:
    charge, minute_ns = charge_of("10 per 10s"), 60 * NS_PER_SECOND
    bucket, _ = all_at_once(EMPTY, charge, NOW_NS)
    bucket = granted(bucket, charge, NOW_NS, minute_ns)  # its turn would have come after one second
    bucket = core.pause(bucket, 30 * NS_PER_SECOND, NOW_NS)
    assert bucket.paused_total_ns == 30 * NS_PER_SECOND
    _, outcome = ask(bucket, charge, NOW_NS, minute_ns)
    assert isinstance(outcome, Granted)
    assert outcome.turn_ns == NOW_NS + 32 * NS_PER_SECOND


def test_nothing_comes_back_during_a_pause() -> None:
    charge = charge_of("10 per 10s")
    bucket, _ = all_at_once(EMPTY, charge, NOW_NS)
    bucket = core.pause(bucket, 30 * NS_PER_SECOND, NOW_NS)
    assert available(bucket, charge, NOW_NS + 30 * NS_PER_SECOND) == 0
    assert available(bucket, charge, NOW_NS + 31 * NS_PER_SECOND) == 1


def test_pauses_that_overlap_are_one_pause_and_a_shorter_one_changes_nothing() -> None:
    bucket = core.pause(granted(EMPTY, charge_of("10 per 10s"), NOW_NS), 10 * NS_PER_SECOND, NOW_NS)
    assert core.pause(bucket, 10 * NS_PER_SECOND, NOW_NS) is bucket
    assert core.pause(bucket, 4 * NS_PER_SECOND, NOW_NS) is bucket
    longer = core.pause(bucket, 9 * NS_PER_SECOND, NOW_NS + 4 * NS_PER_SECOND)
    assert longer.paused_until_ns == NOW_NS + 13 * NS_PER_SECOND
    assert longer.paused_total_ns == 13 * NS_PER_SECOND
    assert longer.rates == {"rpm": RateState(NOW_NS + 14 * NS_PER_SECOND, NS_PER_SECOND)}


def test_a_pause_of_a_full_bucket_leaves_it_just_full() -> None:
    charge = charge_of("10 per 10s")
    bucket = core.pause(granted(EMPTY, charge, NOW_NS), NS_PER_SECOND, NOW_NS + NS_PER_HOUR)
    _, count = all_at_once(bucket, charge, NOW_NS + NS_PER_HOUR + NS_PER_SECOND)
    assert count == 10


# --- correcting ---


def test_what_is_owed_must_be_worked_off_before_the_next_take() -> None:
    charge = charge_of("10 per 10s")
    bucket, _ = all_at_once(EMPTY, charge, NOW_NS)
    bucket = core.settle(bucket, (Delta("rpm", 25, charge.interval_ns),), NOW_NS)
    assert denied(bucket, charge, NOW_NS).retry_in_ns == 26 * NS_PER_SECOND
    assert available(bucket, charge, NOW_NS + 25 * NS_PER_SECOND) == 0
    granted(bucket, charge, NOW_NS + 26 * NS_PER_SECOND)


def test_owing_on_a_bucket_that_was_forgotten_starts_from_a_full_one() -> None:
    charge = charge_of("10 per 10s")
    bucket = core.settle(EMPTY, (Delta("rpm", 3, charge.interval_ns),), NOW_NS)
    assert available(bucket, charge, NOW_NS) == 7


def test_owing_on_a_bucket_that_has_long_been_full_is_not_forgiven() -> None:
    charge = charge_of("10 per 10s")
    bucket = granted(EMPTY, charge, NOW_NS)
    later_ns = NOW_NS + NS_PER_DAY
    bucket = core.settle(bucket, (Delta("rpm", 3, charge.interval_ns),), later_ns)
    assert available(bucket, charge, later_ns) == 7


@given(
    SHAPES,
    st.lists(st.tuples(st.integers(0, 60), st.integers(-12, 12)), max_size=30),
    st.integers(1, 30),
    st.integers(0, 60),
)
def test_a_give_back_adds_at_most_what_it_gives_and_never_mints(
    shape: tuple[int, int], history: list[tuple[int, int]], given_back: int, later_ns: int
) -> None:
    capacity, interval_ns = shape
    charge = RateCharge("rpm", 1, capacity, interval_ns)
    bucket, now_ns = EMPTY, NOW_NS
    for step_ns, amount in history:
        now_ns += step_ns
        if amount > 0:
            bucket, _ = ask(bucket, replace(charge, amount=min(amount, capacity)), now_ns)
        else:
            bucket = core.settle(bucket, (Delta("rpm", amount, interval_ns),), now_ns)
    before = available(bucket, charge, now_ns)
    bucket = core.settle(bucket, (Delta("rpm", -given_back, interval_ns),), now_ns)
    _, count = all_at_once(bucket, charge, now_ns)
    assert before <= count <= min(capacity, before + given_back)
    _, count = all_at_once(bucket, charge, now_ns + later_ns)
    assert count <= min(capacity, before + given_back + 1 + later_ns // interval_ns)


def test_nothing_can_be_given_back_to_a_bucket_that_was_forgotten() -> None:
    bucket = core.settle(EMPTY, (Delta("rpm", -5, 1),), NOW_NS)
    assert bucket.rates == {}
    assert bucket.usage == {("rpm", NOW_NS // NS_PER_HOUR): -5}


# --- limits that change ---


@pytest.mark.parametrize(("before", "after"), [("10/hour", "10/s"), ("100/hour", "10/s burst 100"), ("5/day", "10/s")])
def test_an_exhausted_hourly_limit_that_is_raised_grants_within_one_interval_of_the_new_one(
    before: str, after: str
) -> None:
    bucket, _ = all_at_once(EMPTY, charge_of(before), NOW_NS)
    raised = charge_of(after)
    bucket, outcome = ask(bucket, raised, NOW_NS)
    wait_ns = outcome.retry_in_ns if isinstance(outcome, Denied) else 0
    assert wait_ns <= raised.interval_ns
    granted(bucket, raised, NOW_NS + wait_ns)


def test_a_lowered_limit_reaches_a_busy_bucket_at_once() -> None:
    high, low = charge_of("600/min"), charge_of("60/min burst 600")
    bucket = granted(EMPTY, replace(high, amount=300), NOW_NS)
    bucket, count = all_at_once(bucket, low, NOW_NS)
    assert count == 300
    bucket, count = all_at_once(bucket, low, NOW_NS + 10 * NS_PER_SECOND)
    assert count == 10


def test_a_changed_limit_keeps_the_backlog_in_tokens_and_rounds_it_up() -> None:
    bucket = Bucket(rates={"rpm": RateState(NOW_NS + 10, 3)})
    after, outcome = ask(bucket, RateCharge("rpm", 1, 2, 7), NOW_NS)
    assert isinstance(outcome, Denied)
    assert after.rates == {"rpm": RateState(NOW_NS + 24, 7)}  # 10 / 3 tokens are 23.3 ns
    assert outcome.images == (after,)


def test_a_refusal_that_counts_anew_does_so_once() -> None:
    bucket = Bucket(rates={"rpm": RateState(NOW_NS + 10, 3)})
    charge = RateCharge("rpm", 1, 2, 7)
    after, first = ask(bucket, charge, NOW_NS)
    again, second = ask(after, charge, NOW_NS)
    assert isinstance(first, Denied)
    assert isinstance(second, Denied)
    assert again is after
    assert first.retry_in_ns == second.retry_in_ns


# --- a clock that was far ahead ---


def test_a_bucket_that_no_history_can_explain_is_clamped_and_reported() -> None:
    charge = charge_of("10 per 10s")
    year_ahead_ns = NOW_NS + 365 * NS_PER_DAY
    bucket = granted(EMPTY, charge, year_ahead_ns)
    after, outcome = ask(bucket, charge, NOW_NS)
    assert isinstance(outcome, Denied)
    assert outcome.clamped == ("rpm",)
    reach_ns = (MAX_DEBT_CAPACITIES + 1) * 10 * NS_PER_SECOND + MAX_TURN_NS
    assert after.rates["rpm"].full_at_ns == NOW_NS + reach_ns
    assert outcome.retry_in_ns == reach_ns + NS_PER_SECOND - 10 * NS_PER_SECOND
    _, later = ask(after, charge, NOW_NS + outcome.retry_in_ns)
    assert isinstance(later, Granted)
    assert later.clamped == ()


def test_a_bucket_at_the_end_of_its_reach_is_left_as_it_is() -> None:
    charge = charge_of("10 per 10s")
    reach_ns = 11 * 10 * NS_PER_SECOND + MAX_TURN_NS
    for full_at_ns, clamped in ((NOW_NS + reach_ns, ()), (NOW_NS + reach_ns + 1, ("rpm",))):
        bucket = Bucket(rates={"rpm": RateState(full_at_ns, charge.interval_ns)})
        _, outcome = ask(bucket, charge, NOW_NS)
        assert isinstance(outcome, Denied)
        assert outcome.clamped == clamped


def test_a_clamped_bucket_that_has_a_turn_to_give_says_so_too() -> None:
    charge = charge_of("10 per 10s")
    bucket = granted(EMPTY, charge, NOW_NS + 365 * NS_PER_DAY)
    _, outcome = ask(bucket, charge, NOW_NS, 2 * NS_PER_DAY)
    assert isinstance(outcome, Granted)
    assert outcome.clamped == ("rpm",)
