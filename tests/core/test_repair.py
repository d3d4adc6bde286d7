"""Repair: what a clock far ahead has left in a bucket is taken back, and nothing else."""

from dataclasses import replace

from sluice.core import bucket as core
from sluice.core.bounds import NS_PER_HOUR, NS_PER_SECOND
from sluice.core.bucket import EMPTY, Bucket, RateState
from sluice.core.decide import decide
from sluice.core.names import BucketKey
from sluice.core.requests import Charge, RateCharge, Repair, Repaired, SlotsCharge

KEY = BucketKey("n" * 11, "*", "openai")
NOW = 1_700_000_000 * NS_PER_SECOND
STEP = 6 * NS_PER_SECOND
RPM = RateCharge("rpm", 1, 10, STEP)
SLOTS = SlotsCharge("concurrent", 1, 4, 60 * NS_PER_SECOND)


def repair(bucket: Bucket, *charges: Charge) -> tuple[Bucket, Repaired]:
    return core.repair(bucket, Repair(KEY, charges), NOW)


def rate(full_at_ns: int, interval_ns: int = STEP) -> Bucket:
    return Bucket(rates={"rpm": RateState(full_at_ns, interval_ns)})


def test_a_rate_past_its_window_is_left_spent_whole() -> None:
    for ahead_ns in (10 * STEP + 1, NS_PER_HOUR):
        after, answer = repair(rate(NOW + ahead_ns), RPM)
        assert after == rate(NOW + 10 * STEP)
        assert answer == Repaired(NOW, after, ("rpm",), pause_ended=False)


def test_a_rate_within_its_window_is_left_alone() -> None:
    for ahead_ns in (-NS_PER_HOUR, 0, 1, 10 * STEP):
        before = rate(NOW + ahead_ns)
        after, answer = repair(before, RPM)
        assert after is before
        assert answer == Repaired(NOW, before, (), pause_ended=False)


def test_a_rate_counted_in_another_interval_is_judged_by_the_one_in_force() -> None:
    after, answer = repair(rate(NOW + 11 * STEP, STEP), replace(RPM, interval_ns=2 * STEP))
    assert after == rate(NOW + 20 * STEP, 2 * STEP)
    assert answer.limits == ("rpm",)
    after, answer = repair(rate(NOW + 10 * STEP, STEP), replace(RPM, interval_ns=2 * STEP))
    assert after == rate(NOW + 10 * STEP, STEP)
    assert answer.limits == ()


def test_a_limit_that_the_bucket_does_not_know_is_nothing_to_repair() -> None:
    after, answer = repair(EMPTY, RPM, SLOTS)
    assert after is EMPTY
    assert answer.limits == ()


def test_a_pause_is_ended_and_the_line_moves_back_as_one() -> None:
    paused = core.pause(rate(NOW + 2 * STEP), NS_PER_HOUR, NOW - STEP)
    after, answer = repair(paused)
    assert after.paused_until_ns == NOW
    assert after.paused_total_ns == STEP
    assert after.rates["rpm"].full_at_ns == NOW + 3 * STEP
    assert answer.pause_ended
    assert repair(after)[0] is after


def test_slots_past_a_whole_ttl_expire_a_ttl_from_now() -> None:
    ttl_ns = SLOTS.ttl_ns
    entries = {"ahead": NOW + ttl_ns + 1, "far": NOW + NS_PER_HOUR, "honest": NOW + ttl_ns, "lapsed": NOW - 1}
    after, answer = repair(Bucket(slots={"concurrent": entries}), SLOTS)
    assert after.slots["concurrent"] == entries | {"ahead": NOW + ttl_ns, "far": NOW + ttl_ns}
    assert answer.limits == ("concurrent",)
    again, answer = repair(after, SLOTS)
    assert again is after
    assert answer.limits == ()


def test_usage_and_what_was_not_named_stay_as_they_are() -> None:
    before = replace(rate(NOW + NS_PER_HOUR), usage={("rpm", 1): 7}, slots={"gpu": {"lease": NOW + NS_PER_HOUR}})
    after, _ = repair(before, RPM)
    assert (after.usage, after.slots) == (before.usage, before.slots)
    after, answer = repair(before, SLOTS)
    assert after is before
    assert not answer.limits


def test_a_store_decides_it_like_any_other_request() -> None:
    stored = {KEY: rate(NOW + NS_PER_HOUR)}
    changed, filed, answer = decide(Repair(KEY, (RPM,)), stored.__getitem__, NOW)
    assert changed == {KEY: rate(NOW + 10 * STEP)}
    assert filed == {}
    assert isinstance(answer, Repaired)
