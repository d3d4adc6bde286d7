"""Usage is counted with the take, folded into hours, and neither lost nor counted twice on the way."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from sluice.core import bucket as core
from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import EMPTY, Bucket, Hour, RateState
from sluice.core.documents import Document, DocumentKey, Kind
from sluice.core.names import BucketKey
from sluice.core.requests import Delta, Part, RateCharge, Release, SlotsCharge, Take
from sluice.core.usage import file_hours, hour_key, past_hours

KEY = BucketKey("ns", "acme", "gpt-4")
HOUR = 490_000
START_NS = HOUR * NS_PER_HOUR


def taken(bucket: Bucket, amount: int, now_ns: int) -> Bucket:
    (after,), _ = core.take([bucket], Take("a", (Part(KEY, (RateCharge("tpm", amount, 100, 1),)),)), now_ns)
    return after


def test_usage_is_counted_by_limit_and_by_the_hour_of_the_take() -> None:
    part = Part(KEY, (RateCharge("tpm", 5, 100, 1), SlotsCharge("conc", 2, 9, 60)))
    (bucket,), _ = core.take([EMPTY], Take("a", (part,)), START_NS - 1)
    bucket = taken(bucket, 7, START_NS)
    assert bucket.usage == {("tpm", HOUR - 1): 5, ("conc", HOUR - 1): 2, ("tpm", HOUR): 7}


def test_a_denied_take_uses_nothing() -> None:
    bucket = taken(EMPTY, 100, START_NS)
    assert taken(bucket, 100, START_NS) is bucket


def test_a_correction_counts_in_the_hour_in_which_it_happens_and_an_hour_may_be_negative() -> None:
    bucket = taken(EMPTY, 50, START_NS - 1)
    bucket = core.settle(bucket, (Delta("tpm", -20, 1), Delta("tpm", 3, 1)), START_NS)
    assert bucket.usage == {("tpm", HOUR - 1): 50, ("tpm", HOUR): -17}


def test_a_release_counts_its_corrections() -> None:
    (bucket,), _ = core.take([EMPTY], Take("a", (Part(KEY, (SlotsCharge("conc", 1, 9, 60),)),)), START_NS)
    bucket, _ = core.release(bucket, Release(KEY, "a", (Delta("tpm", 4, 1),)), START_NS)
    assert bucket.usage == {("conc", HOUR): 1, ("tpm", HOUR): 4}


def test_folding_takes_past_hours_out_and_leaves_this_one() -> None:
    bucket = taken(taken(EMPTY, 5, START_NS - 1), 7, START_NS)
    assert core.fold(bucket, START_NS - 1) == (bucket, {})
    after, past = core.fold(bucket, START_NS)
    assert past == {("tpm", HOUR - 1): 5}
    assert after.usage == {("tpm", HOUR): 7}
    again, past = core.fold(after, START_NS)
    assert past == {}
    assert again is after


def test_an_hour_document_says_whose_hour_it_is_and_sorts_by_time() -> None:
    ids = [hour_key(KEY, ("tpm", hour)).id for hour in (9, 10, HOUR)]
    assert ids == ["acme#gpt-4#tpm#000000009", "acme#gpt-4#tpm#000000010", "acme#gpt-4#tpm#000490000"]
    assert ids == sorted(ids)
    assert hour_key(KEY, ("tpm", 9)).kind is Kind.USAGE


def test_filing_adds_to_what_an_hour_already_holds() -> None:
    stored = Document(hour_key(KEY, ("tpm", HOUR)), "40", version="1")
    filed = file_hours(KEY, {("tpm", HOUR): -2, ("rpm", HOUR): 3}, {stored.key: stored}.get, START_NS)
    assert [document.body for document in filed] == ["38", "3"]
    assert {document.version for document in filed} == {str(START_NS)}
    assert filed[0].key == stored.key
    assert filed[0].under == {"entity": "acme", "resource": "gpt-4"}


def test_past_hours_are_counted_once_however_many_limits_used_them() -> None:
    usage: Mapping[Hour, int] = {("tpm", 7): 1, ("rpm", 7): 1, ("tpm", 8): 1, ("tpm", 9): 1}
    assert past_hours(usage, 9) == 2
    assert past_hours({}, 9) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(("take", "give", "fold")), st.integers(1, 9), st.integers(0, 2 * NS_PER_HOUR)),
        max_size=40,
    )
)
def test_however_often_it_is_folded_all_usage_is_filed_once(steps: list[tuple[str, int, int]]) -> None:
    bucket, now_ns, total = EMPTY, START_NS, 0
    documents: dict[DocumentKey, Document] = {}
    for verb, amount, later_ns in steps:
        now_ns += later_ns
        if verb == "take":
            bucket, total = taken(bucket, amount, now_ns), total + amount
        elif verb == "give":
            bucket, total = core.settle(bucket, (Delta("tpm", -amount, 1),), now_ns), total - amount
        else:
            bucket, past = core.fold(bucket, now_ns)
            documents |= {filed.key: filed for filed in file_hours(KEY, past, documents.get, now_ns)}
            assert all(hour == now_ns // NS_PER_HOUR for _, hour in bucket.usage)
        assert sum(int(filed.body) for filed in documents.values()) + sum(bucket.usage.values()) == total


# --- what can be forgotten ---


def test_a_bucket_is_idle_only_when_forgetting_it_loses_nothing() -> None:
    now_ns = START_NS
    assert core.idle(EMPTY, now_ns)
    assert core.idle(Bucket(rates={"tpm": RateState(now_ns, 1)}, slots={"conc": {}}, paused_until_ns=now_ns), now_ns)
    assert not core.idle(Bucket(rates={"tpm": RateState(now_ns + 1, 1)}), now_ns)
    assert not core.idle(Bucket(slots={"conc": {"a": now_ns - 1}}), now_ns)
    assert not core.idle(Bucket(paused_until_ns=now_ns + 1), now_ns)
    assert not core.idle(Bucket(usage={("tpm", 1): 0}), now_ns)
