"""A take over several buckets and limits is decided whole: all of it, or nothing at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.core import bucket as core
from sluice.core.bucket import EMPTY, Bucket
from sluice.core.decide import decide
from sluice.core.names import BucketKey
from sluice.core.requests import (
    BucketRequest,
    Delta,
    Denied,
    Fold,
    Folded,
    GaveUp,
    GiveUp,
    Gone,
    Granted,
    Part,
    Pause,
    Paused,
    Peek,
    Peeked,
    RateCharge,
    Reap,
    Reaped,
    Release,
    Renew,
    Repair,
    Repaired,
    Settle,
    Settled,
    SlotsCharge,
    Take,
    keys_of,
)

ACME = BucketKey("ns", "acme", "gpt-4")
EVERYONE = BucketKey("ns", "*", "gpt-4")
NOW_NS = 1_000_000


def rate(amount: int, capacity: int = 10, name: str = "tpm") -> RateCharge:
    return RateCharge(name, amount, capacity, 5)


def slot(capacity: int = 1, name: str = "conc") -> SlotsCharge:
    return SlotsCharge(name, 1, capacity, 100)


def drained(amount: int) -> Bucket:
    (bucket,), _ = core.take([EMPTY], Take("first", (Part(ACME, (rate(amount),)),)), NOW_NS)
    return bucket


@pytest.mark.parametrize("refusing", [0, 1])
def test_one_bucket_that_refuses_leaves_all_as_they_were(refusing: int) -> None:
    before = [EMPTY, EMPTY]
    before[refusing] = drained(8)
    take = Take("a", (Part(ACME, (rate(3), slot())), Part(EVERYONE, (rate(3), slot()))))
    after, outcome = core.take(before, take, NOW_NS)
    assert isinstance(outcome, Denied)
    assert all(new is old for new, old in zip(after, before, strict=True))
    assert [status.entity for status in outcome.limits] == [(ACME, EVERYONE)[refusing].entity]
    assert outcome.retry_in_ns == 5


def test_one_limit_that_refuses_takes_nothing_of_the_others_on_its_bucket() -> None:
    (bucket,), _ = core.take([EMPTY], Take("a", (Part(ACME, (slot(),)),)), NOW_NS)
    after, outcome = core.take([bucket], Take("b", (Part(ACME, (rate(3), slot())),)), NOW_NS)
    assert isinstance(outcome, Denied)
    assert after[0] is bucket
    assert [status.name for status in outcome.limits] == ["conc"]


def test_a_denial_names_every_limit_that_refused_and_waits_for_the_slowest() -> None:
    take = Take("a", (Part(ACME, (rate(4),)), Part(EVERYONE, (rate(2), rate(1, name="rpm")))))
    _, outcome = core.take([drained(8), drained(10)], take, NOW_NS)
    assert isinstance(outcome, Denied)
    assert [(status.entity, status.name) for status in outcome.limits] == [("acme", "tpm"), ("*", "tpm")]
    assert outcome.retry_in_ns == 10
    assert not outcome
    assert outcome.retry_in == 1e-6


def test_a_take_is_granted_when_its_denial_said_so_over_all_buckets() -> None:
    before = [drained(8), drained(10)]
    take = Take("a", (Part(ACME, (rate(4),)), Part(EVERYONE, (rate(2),))))
    assert isinstance(core.take(before, take, NOW_NS + 9)[1], Denied)
    _, outcome = core.take(before, take, NOW_NS + 10)
    assert isinstance(outcome, Granted)
    assert outcome.turn_ns == NOW_NS + 10


def test_a_pause_of_one_bucket_holds_the_whole_take_up() -> None:
    before = [EMPTY, core.pause(EMPTY, 70, NOW_NS)]
    after, outcome = core.take(before, Take("a", (Part(ACME, (rate(1),)), Part(EVERYONE, (rate(1),)))), NOW_NS)
    assert isinstance(outcome, Denied)
    assert outcome.retry_in_ns == 70
    assert after[0] is EMPTY


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(1, 10)), max_size=30))
def test_buckets_taken_together_are_charged_alike_or_not_at_all(asks: list[tuple[int, int, int]]) -> None:
    buckets: tuple[Bucket, ...] = (EMPTY, EMPTY)
    now_ns, totals = NOW_NS, [0, 0]
    for later_ns, mine, shared in asks:
        now_ns += later_ns
        take = Take("a", (Part(ACME, (rate(mine),)), Part(EVERYONE, (rate(shared),))))
        after, outcome = core.take(buckets, take, now_ns)
        if isinstance(outcome, Granted):
            totals = [totals[0] + mine, totals[1] + shared]
        else:
            assert all(new is old for new, old in zip(after, buckets, strict=True))
        buckets = after
    assert [sum(bucket.usage.values()) for bucket in buckets] == totals


# --- deciding a request where it stands ---


def undecided(request: BucketRequest, bucket: Bucket) -> tuple[dict[BucketKey, Bucket], object]:
    changed, filed, outcome = decide(request, lambda _: bucket, NOW_NS)
    assert not filed
    return changed, outcome


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        (GiveUp(ACME, "tpm", 1, 5, 0), GaveUp(NOW_NS, returned=False)),
        (Release(ACME, "nobody"), Gone(NOW_NS)),
        (Renew(ACME, "nobody", (slot(),)), Gone(NOW_NS)),
        (Reap(ACME, ()), Reaped(NOW_NS, ())),
        (Peek(ACME), Peeked(NOW_NS, EMPTY)),
        (Pause(ACME, 0), Paused(NOW_NS, 0)),
        (Fold(ACME), Folded(NOW_NS, 0)),
        (Repair(ACME, (rate(1),)), Repaired(NOW_NS, EMPTY, (), pause_ended=False)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_changes_nothing_leaves_nothing_to_save(request_: BucketRequest, outcome: object) -> None:
    assert undecided(request_, EMPTY) == ({}, outcome)


def test_a_denied_take_leaves_nothing_to_save() -> None:
    changed, outcome = undecided(Take("a", (Part(ACME, (rate(3),)),)), drained(8))
    assert changed == {}
    assert isinstance(outcome, Denied)


def test_only_buckets_that_changed_are_saved() -> None:
    stale = Bucket(rates={"tpm": core.RateState(NOW_NS + 7, 3)})
    states = {ACME: stale, EVERYONE: drained(10)}
    take = Take("a", (Part(ACME, (rate(1),)), Part(EVERYONE, (rate(1),))))
    changed, _, outcome = decide(take, states.__getitem__, NOW_NS)
    assert isinstance(outcome, Denied)
    assert set(changed) == {ACME}  # counted in the new interval; the one that refused is as it was


def test_a_settlement_is_saved() -> None:
    changed, outcome = undecided(Settle(ACME, (Delta("tpm", 2, 5),)), EMPTY)
    assert outcome == Settled(NOW_NS)
    assert changed[ACME].rates["tpm"].full_at_ns == NOW_NS + 10


def test_a_repair_is_saved() -> None:
    frozen = Bucket(paused_until_ns=NOW_NS + 7, paused_total_ns=7)
    changed, outcome = undecided(Repair(ACME, (rate(1),)), frozen)
    assert isinstance(outcome, Repaired)
    assert outcome.pause_ended
    assert changed == {ACME: outcome.image}


def test_a_request_names_the_buckets_that_it_touches() -> None:
    assert keys_of(Take("a", (Part(ACME, (rate(1),)), Part(EVERYONE, (rate(1),))))) == (ACME, EVERYONE)
    assert keys_of(Peek(ACME)) == (ACME,)
