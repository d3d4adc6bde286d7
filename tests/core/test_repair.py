"""Repair: what a clock far ahead has left in a bucket is taken back, and what is right is left alone."""

import pytest

from sluice.core.bounds import NS_PER_HOUR, NS_PER_SECOND
from sluice.core.bucket import EMPTY, Bucket, RateState, pause, repair, take
from sluice.core.names import BucketKey
from sluice.core.requests import Charge, Granted, Part, RateCharge, Repair, SlotsCharge, Take

S = NS_PER_SECOND
NOW = 1_700_000_000 * S
KEY = BucketKey("ns", "*", "openai")
RPM = RateCharge("rpm", 1, 10, 6 * S)
SLOTS = SlotsCharge("slots", 1, 2, 60 * S)


def _repaired(bucket: Bucket, *charges: Charge, now_ns: int = NOW) -> tuple[Bucket, tuple[str, ...], bool]:
    after, answer = repair(bucket, Repair(KEY, charges), now_ns)
    assert answer.image == after
    assert answer.now_ns == now_ns
    return after, answer.limits, answer.pause_ended


def _taken(bucket: Bucket, now_ns: int, lease: str, *charges: Charge) -> Bucket:
    (after,), answer = take((bucket,), Take(lease, (Part(KEY, charges),)), now_ns)
    assert isinstance(answer, Granted)
    return after


def test_what_is_further_ahead_than_a_spent_bucket_is_brought_back_to_one() -> None:
    frozen = _taken(EMPTY, NOW + NS_PER_HOUR, "ahead", RPM, SLOTS)
    after, limits, _ = _repaired(frozen, RPM, SLOTS)
    assert after.rates == {"rpm": RateState(NOW + 60 * S, 6 * S)}
    assert after.slots == {"slots": {"ahead": NOW + 60 * S}}
    assert limits == ("rpm", "slots")


@pytest.mark.parametrize("beyond_ns", [-1, 0, 1])
def test_it_begins_one_tick_beyond(beyond_ns: int) -> None:
    edge = Bucket({"rpm": RateState(NOW + 60 * S + beyond_ns, 6 * S)}, {"slots": {"lease": NOW + 60 * S + beyond_ns}})
    after, limits, _ = _repaired(edge, RPM, SLOTS)
    assert limits == (("rpm", "slots") if beyond_ns > 0 else ())
    assert (after is edge) == (beyond_ns <= 0)


def test_a_rate_is_judged_in_the_interval_that_is_in_force() -> None:
    slow = Bucket({"rpm": RateState(NOW + NS_PER_HOUR, 360 * S)})
    assert _repaired(slow, RPM)[1] == ()
    fast = Bucket({"rpm": RateState(NOW + 60 * S, 3 * S)})
    assert _repaired(fast, RPM)[0].rates == {"rpm": RateState(NOW + 60 * S, 6 * S)}


def test_limits_that_are_not_named_or_not_there_stay_as_they_are() -> None:
    frozen = _taken(EMPTY, NOW + NS_PER_HOUR, "ahead", RPM, SLOTS)
    assert _repaired(frozen) == (frozen, (), False)
    assert _repaired(EMPTY, RPM, SLOTS) == (EMPTY, (), False)


def test_a_pause_ends_now_and_the_line_moves_back_by_its_rest() -> None:
    before = _taken(EMPTY, NOW, "lease", RPM)
    paused = pause(before, NS_PER_HOUR, NOW)
    after, limits, ended = _repaired(paused, RPM, now_ns=NOW + 10 * S)
    assert after.rates == {"rpm": RateState(NOW + 16 * S, 6 * S)}
    assert (after.paused_until_ns, after.paused_total_ns) == (NOW + 10 * S, 10 * S)
    assert (limits, ended) == ((), True)


def test_a_pause_that_is_over_is_left_alone() -> None:
    paused = pause(_taken(EMPTY, NOW, "lease", RPM), S, NOW)
    assert _repaired(paused, RPM, now_ns=NOW + S) == (paused, (), False)


def test_only_expiries_beyond_a_ttl_are_shortened() -> None:
    bucket = Bucket(slots={"slots": {"near": NOW + 5, "far": NOW + NS_PER_HOUR, "lapsed": NOW - 5}})
    after, _, _ = _repaired(bucket, SLOTS)
    assert after.slots == {"slots": {"near": NOW + 5, "far": NOW + 60 * S, "lapsed": NOW - 5}}
