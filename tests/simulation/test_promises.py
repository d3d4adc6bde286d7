"""The checker itself: an honest history passes, and each way to break a promise is seen."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sluice.testing.simulation.history import (
    Answered,
    Asked,
    Believed,
    BucketPaused,
    Charged,
    Corrected,
    InDoubt,
    Lapsed,
    Leaving,
    Left,
    LimitsChanged,
    NotTold,
    Record,
    Refused,
    SlotsReaped,
    SlotsRenewed,
    SlotsReturned,
    Stored,
    Took,
    TurnGivenUp,
)
from sluice.testing.simulation.model import BOOKS, Broken
from sluice.testing.simulation.promises import Promises

BUCKET = "ns/*#api#0"
RATE = Charged(BUCKET, "rpm", 1, capacity=2, leave=0, interval_ns=100)
SLOT = Charged(BUCKET, "held", 1, capacity=1, leave=0, ttl_ns=1_000)
NEEDS = (("*#api#0", "rpm", 1),)


def took(
    now_ns: int, lease: str, charge: Charged = RATE, *, wait_ns: int = 0, turn_ns: int = 0, task: str = "p/1"
) -> Took:
    return Took(now_ns, task, lease, (charge,), wait_ns, turn_ns or now_ns, repeated=False)


def refused(now_ns: int, retry_in_ns: int, charge: Charged = RATE) -> Refused:
    return Refused(now_ns, "p/9", "late", (charge,), 0, retry_in_ns, frozenset({(BUCKET, charge.limit)}))


def read(*history: Record, calm: bool = False, fail_open: bool = False) -> Promises:
    return read_more(Promises(calm=calm, fail_open=fail_open), *history)


def read_more(promises: Promises, *history: Record) -> Promises:
    for record in history:
        promises.read(record)
    return promises


def breaks(number: int, *history: Record, calm: bool = False) -> None:
    """The last record of the history breaks this promise, and nothing before it does."""
    promises = read(*history[:-1], calm=calm)
    with pytest.raises(Broken) as broken:
        promises.read(history[-1])
    assert broken.value.number == number


FULL = (took(1_000, "a"), took(1_000, "b"))


def test_an_honest_history_passes() -> None:
    promises = read(
        *FULL,
        refused(1_001, 99),
        took(1_040, "c", wait_ns=500, turn_ns=1_100),
        BucketPaused(1_050, BUCKET, 1_250),
        TurnGivenUp(1_060, "p/1", BUCKET, "rpm", "c", 1, returned=False),
        Corrected(1_300, "p/1", ((BUCKET, "rpm", -1, 100),)),
    )
    promises.conclude(2_000, frozenset())


def test_a_take_before_it_is_due_is_seen() -> None:
    breaks(1, *FULL, took(1_099, "c"))
    read(*FULL, took(1_100, "c"))


def test_a_turn_at_the_wrong_time_is_seen() -> None:
    breaks(1, *FULL, took(1_040, "c", wait_ns=500, turn_ns=1_099))


def test_a_refusal_for_no_reason_and_a_wrong_wait_are_seen() -> None:
    breaks(5, took(1_000, "a"), refused(1_001, 1))
    breaks(5, *FULL, refused(1_001, 98))


def test_headroom_that_is_not_left_is_seen() -> None:
    breaks(1, took(1_000, "a"), took(1_000, "b", replace(RATE, leave=1)))


def test_a_grant_in_a_pause_is_seen() -> None:
    breaks(1, took(1_000, "a"), BucketPaused(1_001, BUCKET, 2_000), took(1_999, "b"))


def test_a_give_back_that_comes_twice_is_seen_in_the_end() -> None:
    back = Corrected(1_001, "p/1", ((BUCKET, "rpm", -1, 100),))
    promises = read(
        took(1_000, "a@p"),
        InDoubt("p/1", "settle"),  # so the client can't know what it has paid
        Leaving("p/1", "a@p", (("rpm", 1),), refund=False),
        back,
        Left("p/1", "a@p"),
    )
    with pytest.raises(Broken, match=r"1 of .* were used, and only -1 are accounted for"):
        read_more(promises, back).conclude(2_000, frozenset({"p"}))


def test_a_turn_that_goes_back_though_somebody_came_behind_is_seen_and_one_that_stays_for_nothing_too() -> None:
    line = (*FULL, took(1_000, "c", wait_ns=500, turn_ns=1_100))
    behind = took(1_000, "d", wait_ns=500, turn_ns=1_200)
    breaks(1, *line, behind, TurnGivenUp(1_001, "p/1", BUCKET, "rpm", "c", 1, returned=True))
    breaks(1, *line, TurnGivenUp(1_001, "p/1", BUCKET, "rpm", "c", 1, returned=False))


def test_who_starts_before_its_turn_is_seen() -> None:
    others = (took(1_000, "a", task="p/2"), took(1_000, "b", task="p/2"))
    reserved = took(1_000, "c", wait_ns=500, turn_ns=1_100)
    answered = Answered("p/1", "granted", "c", 1_099)
    breaks(1, *others, Asked("p/1", 0, 0, NEEDS), reserved, answered)
    read(*others, Asked("p/1", 0, 0, NEEDS), reserved, replace(answered, store_now_ns=1_100))


@pytest.mark.parametrize(
    "then",
    [
        took(1_999, "b", SLOT),
        SlotsRenewed(2_000, BUCKET, "a", (("held", 1, 1_000),), renewed=True),
        SlotsRenewed(1_999, BUCKET, "a", (("held", 1, 1_000),), renewed=False),
        SlotsReaped(1_999, BUCKET, (("held", "a"),)),
        SlotsReturned(1_999, "p/1", BUCKET, "a", found=False, tokens=()),
        Believed("p/1", 2_000, ((BUCKET, "held", "a"),)),
        took(1_500, "a", SLOT),
    ],
)
def test_a_slot_that_is_counted_wrong_is_seen(then: Record) -> None:
    breaks(4, took(1_000, "a", SLOT), then)


def test_slots_are_free_at_their_expiry_and_not_later() -> None:
    read(took(1_000, "a", SLOT), took(2_000, "b", SLOT))
    breaks(4, took(1_000, "a", SLOT), refused(2_000, 1, SLOT))


def test_what_a_refused_or_cancelled_task_keeps_is_seen() -> None:
    asked = Asked("p/1", 0, 0, NEEDS)
    for answer in ("denied", "cancelled", "ConfigError"):
        breaks(6, asked, took(1_000, "a"), Answered("p/1", answer, "", 1_000))
        breaks(6, asked, took(1_000, "a", SLOT), Answered("p/1", answer, "", 1_000))


def test_a_grant_of_something_else_than_was_asked_for_is_seen() -> None:
    asked = Asked("p/1", 0, 0, (*NEEDS, ("parent#api#0", "rpm", 1)))
    breaks(6, asked, took(1_000, "a"), Answered("p/1", "granted", "a", 1_000))


def test_letting_through_uncounted_is_seen_unless_it_was_asked_for() -> None:
    breaks(1, Asked("p/1", 0, 0, NEEDS), Answered("p/1", "degraded", "a", 1_000))
    read(Asked("p/1", 0, 0, NEEDS), Answered("p/1", "degraded", "a", 1_000), fail_open=True)


def test_giving_back_more_than_was_taken_is_seen() -> None:
    breaks(1, Asked("p/1", 0, 0, NEEDS), took(1_000, "a"), Corrected(1_001, "p/1", ((BUCKET, "rpm", -2, 100),)))


def test_paying_another_price_than_was_settled_is_seen() -> None:
    settled = Leaving("p/1", "a", (("rpm", 3),), refund=False)
    owed = Corrected(1_001, "p/1", ((BUCKET, "rpm", 2, 100),))
    breaks(1, Asked("p/1", 0, 0, NEEDS), took(1_000, "a"), settled, Left("p/1", "a"))
    read(Asked("p/1", 0, 0, NEEDS), took(1_000, "a"), settled, owed, Left("p/1", "a"))


def test_old_limits_after_a_cache_lifetime_are_seen() -> None:
    changed = LimitsChanged("api", (("rpm", 1, 100),), in_force_ns=500)
    breaks(1, changed, Asked("p/1", 500, 0, NEEDS), took(1_000, "a"))
    read(changed, Asked("p/1", 499, 0, NEEDS), took(1_000, "a"))


def test_a_slot_that_nobody_owns_any_more_is_seen_in_the_end() -> None:
    left_behind = read(took(1_000, "a@p", SLOT))
    with pytest.raises(Broken, match="nobody holds the lease any more"):
        left_behind.conclude(1_500, frozenset({"p"}))
    left_behind.conclude(1_500, frozenset())  # its process is dead: the slot lapses
    left_behind.conclude(2_000, frozenset({"p"}))
    read(took(1_000, "a@p", SLOT), NotTold("a@p")).conclude(1_500, frozenset({"p"}))


def test_a_lease_that_is_lost_while_nothing_goes_wrong_is_seen() -> None:
    breaks(4, took(1_000, "a", SLOT), Lapsed("p/1", "a", kept=True), calm=True)
    read(took(1_000, "a", SLOT), Lapsed("p/1", "a", kept=True))


def test_who_waits_although_nobody_holds_what_it_waits_for_is_seen() -> None:
    second = 1_000_000_000
    asked = Asked("p/1", 0, 1_000, (("*#api#0", "held", 1),))
    breaks(9, asked, took(2_000 + second, "a", SLOT), calm=True)
    read(asked, took(1_000 + second, "a", SLOT), calm=True)
    returned = SlotsReturned(1_500, "p/2", BUCKET, "b", found=True, tokens=())
    read(asked, took(1_000, "b", SLOT, task="p/2"), returned, took(1_500 + second, "a", SLOT), calm=True)


RIGHT = Stored(1_000, BUCKET, (("rpm", 1_100, 100),), (("held", "b", 1, 2_000),), (("held", 1), ("rpm", 1)), 0)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(RIGHT, rates=(("rpm", 1_101, 100),)),
        replace(RIGHT, rates=(("rpm", 1_100, 101),)),
        replace(RIGHT, rates=()),
        replace(RIGHT, slots=()),
        replace(RIGHT, slots=(("held", "b", 1, 2_001),)),
        replace(RIGHT, used=(("rpm", 1),)),
        replace(RIGHT, paused_until_ns=1_001),
    ],
)
def test_what_the_store_holds_in_the_end_is_what_the_history_comes_to(wrong: Stored) -> None:
    history: Sequence[Record] = (took(1_000, "a"), took(1_000, "b", SLOT))
    read(*history, RIGHT)
    breaks(BOOKS, *history, wrong)
