"""The checker of histories: it accepts what has an order, rejects what has none, and agrees with trying every order."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import pytest

from sluice.core.bucket import EMPTY, Bucket
from sluice.core.decide import decide
from sluice.core.names import BucketKey
from sluice.core.requests import (
    BucketOutcome,
    BucketRequest,
    Delta,
    Gone,
    Granted,
    Part,
    Peek,
    RateCharge,
    Release,
    Renew,
    Settle,
    SlotsCharge,
    Take,
)
from tests.histories.linearize import NEVER_NS, apart, linearize
from tests.histories.model import NOTHING_YET, Recorded, State, step

HERE = BucketKey("n", "*", "r")
THERE = BucketKey("n", "*", "s")
SLOT = SlotsCharge("lanes", 1, 1, 100)
HISTORIES = 1_000


@dataclass(frozen=True)
class Access:
    """A write of a value to a register, or a read of it."""

    made_ns: int
    over_ns: int
    wrote: int | None = None
    read: int | None = None
    known: bool = True
    changes_nothing: bool = False


def access(state: int, call: Access) -> Iterator[int]:
    if call.wrote is not None:
        yield call.wrote
    elif call.read == state:
        yield state


def test_reads_that_overlap_a_write_may_see_either_value() -> None:
    history = [Access(0, 10, wrote=1), Access(1, 2, read=0), Access(3, 4, read=1)]
    assert linearize(history, 0, access).holds


def test_what_one_read_has_seen_a_later_one_cannot_miss() -> None:
    history = [Access(0, 10, wrote=1), Access(1, 2, read=1), Access(3, 4, read=0)]
    verdict = linearize(history, 0, access)
    assert not verdict.holds
    assert history[2] in verdict.stuck


def test_a_write_that_returned_cannot_be_missed() -> None:
    assert not linearize([Access(0, 1, wrote=1), Access(2, 3, read=0)], 0, access).holds


def test_two_writes_are_seen_in_one_order_by_everybody() -> None:
    writes = [Access(0, 10, wrote=1), Access(0, 10, wrote=2)]
    assert linearize([*writes, Access(11, 12, read=1), Access(13, 14, read=1)], 0, access).holds
    assert not linearize([*writes, Access(11, 12, read=1), Access(13, 14, read=2)], 0, access).holds


def test_a_write_without_an_answer_may_have_happened_at_any_time_or_never() -> None:
    lost = Access(0, NEVER_NS, wrote=1, known=False)
    for first, second in ((0, 0), (0, 1), (1, 1)):
        assert linearize([lost, Access(5, 6, read=first), Access(7, 8, read=second)], 0, access).holds


def test_a_write_without_an_answer_does_not_come_and_go() -> None:
    lost = Access(0, NEVER_NS, wrote=1, known=False)
    assert not linearize([lost, Access(5, 6, read=1), Access(7, 8, read=0)], 0, access).holds


def test_a_dead_process_writes_nothing_any_more() -> None:
    lost = Access(0, 4, wrote=1, known=False)
    assert linearize([lost, Access(1, 2, read=0), Access(5, 6, read=1)], 0, access).holds
    assert not linearize([lost, Access(5, 6, read=0), Access(7, 8, read=1)], 0, access).holds


def test_a_write_without_an_answer_did_not_happen_before_it_was_sent() -> None:
    lost = Access(5, NEVER_NS, wrote=1, known=False)
    assert not linearize([Access(0, 1, read=1), lost], 0, access).holds


def test_nothing_and_what_is_all_in_doubt_hold() -> None:
    assert linearize([], 0, access).holds
    assert linearize([Access(0, 1, wrote=1, known=False)], 0, access).holds


# --- against the core ---


def take(lease_id: str) -> Take:
    return Take(lease_id, (Part(HERE, (SLOT,)),))


def in_turn(*decided: tuple[BucketRequest, int], start: Bucket = EMPTY) -> list[Recorded]:
    """Calls that were decided one after another at these times, each within five before and after."""
    buckets = {HERE: start}
    calls = []
    for request, now_ns in decided:
        changes, _, outcome = decide(request, buckets.__getitem__, now_ns)
        buckets |= changes
        calls.append(Recorded(request, now_ns - 5, now_ns + 5, outcome, (now_ns,)))
    return calls


def test_one_slot_is_not_granted_to_two() -> None:
    (first,), (second,) = in_turn((take("a"), 5)), in_turn((take("b"), 6))
    assert linearize([first], NOTHING_YET, step).holds
    assert linearize([second], NOTHING_YET, step).holds
    assert not linearize([first, second], NOTHING_YET, step).holds


def test_a_slot_goes_to_the_next_once_it_was_released() -> None:
    first, released, second = in_turn((take("a"), 5), (Release(HERE, "a"), 20), (take("b"), 40))
    assert isinstance(second.outcome, Granted)
    assert linearize([first, released, second], NOTHING_YET, step).holds
    assert not linearize([first, second], NOTHING_YET, step).holds
    assert not linearize([first, replace(released, outcome=Gone(20)), second], NOTHING_YET, step).holds
    assert not linearize([first, replace(released, made_ns=46, over_ns=50), second], NOTHING_YET, step).holds


def test_a_release_without_an_answer_explains_a_slot_that_is_free() -> None:
    first, released, second = in_turn((take("a"), 5), (Release(HERE, "a"), 20), (take("b"), 40))
    in_doubt = replace(released, outcome=None, over_ns=NEVER_NS)
    assert linearize([first, in_doubt, second], NOTHING_YET, step).holds
    assert linearize([first, in_doubt], NOTHING_YET, step).holds
    assert not linearize([first, replace(in_doubt, made_ns=46), second], NOTHING_YET, step).holds
    assert not linearize([first, replace(in_doubt, read_ns=()), second], NOTHING_YET, step).holds


def test_a_slot_that_lapsed_is_free_and_not_a_moment_before() -> None:
    first, second = in_turn((take("a"), 5), (take("b"), 105))
    assert isinstance(second.outcome, Granted)
    assert linearize([first, second], NOTHING_YET, step).holds
    (early,) = in_turn((take("b"), 104), start=Bucket(usage={("lanes", 0): 1}))
    assert isinstance(early.outcome, Granted)
    assert not linearize([first, early], NOTHING_YET, step).holds


def test_a_denial_that_is_not_true_is_rejected() -> None:
    first, released, refused = in_turn((take("a"), 5), (Release(HERE, "a"), 60), (take("b"), 40))
    _, denied = in_turn((take("a"), 5), (take("b"), 40))
    assert linearize([first, denied], NOTHING_YET, step).holds
    assert isinstance(refused.outcome, Granted)
    assert not linearize([first, replace(released, made_ns=10, over_ns=20), denied], NOTHING_YET, step).holds


def test_the_time_of_what_writes_never_goes_back() -> None:
    settled = in_turn((Settle(HERE, ()), 7))
    assert linearize(settled, State(now_ns=7), step).holds
    assert not linearize(settled, State(now_ns=8), step).holds
    first, second = in_turn((Settle(HERE, ()), 7), (Settle(HERE, ()), 6))
    assert not linearize([first, replace(second, made_ns=13, over_ns=20)], NOTHING_YET, step).holds


def test_only_what_shares_a_bucket_is_checked_together() -> None:
    both = Take("c", (Part(HERE, (SLOT,)), Part(THERE, (SLOT,))))
    calls = [Recorded(Peek(key), 0) for key in (HERE, THERE, BucketKey("n", "*", "t"))]
    assert [len(group) for group in apart(calls, lambda call: call.keys)] == [1, 1, 1]
    assert sorted(len(g) for g in apart([*calls, Recorded(both, 0)], lambda call: call.keys)) == [1, 3]


# --- against trying every order ---


def by_trying_every_order(calls: Sequence[Recorded]) -> bool:
    """The definition itself: some of the calls in doubt, in some order that keeps real time, with the answers seen."""
    known = [call for call in calls if call.known]
    doubtful = [call for call in calls if not call.known]
    for chosen in range(1 << len(doubtful)):
        placed = known + [call for bit, call in enumerate(doubtful) if chosen >> bit & 1]
        for order in permutations(placed):
            if any(after.over_ns < before.made_ns for n, before in enumerate(order) for after in order[n + 1 :]):
                continue
            states = [NOTHING_YET]
            for call in order:
                states = [after for state in states for after in step(state, call)]
            if states:
                return True
    return False


def random_history(rng: random.Random) -> list[Recorded]:
    """A few overlapping calls that did happen one by one, some of them then changed, or left without an answer."""
    buckets = {HERE: EMPTY, THERE: EMPTY}
    calls = []
    now_ns = 100
    for number in range(rng.randrange(3, 7)):
        now_ns += rng.randrange(0, 60)
        request = random_request(rng, number)
        changes, _, outcome = decide(request, buckets.__getitem__, now_ns)
        made_ns, over_ns = now_ns - rng.randrange(60), now_ns + rng.randrange(60)
        if rng.random() < 0.2:
            over_ns = rng.choice((over_ns, NEVER_NS))
            calls.append(Recorded(request, made_ns, over_ns, None, (now_ns, now_ns + rng.randrange(9))))
            buckets |= rng.choice((changes, {}))
        else:
            buckets |= changes
            calls.append(Recorded(request, made_ns, over_ns, outcome, (now_ns,)))
    return [disturbed(rng, call) if rng.random() < 0.4 else call for call in calls]


def random_request(rng: random.Random, number: int) -> BucketRequest:
    lease_id = rng.choice(("a", "b", str(number)))
    slot = SlotsCharge("lanes", 1, 2, 70)
    rate = RateCharge("rpm", 1, 2, 40)
    kind = rng.randrange(6)
    if kind < 2:
        return Take(lease_id, (Part(HERE, rng.choice(((slot,), (rate,), (rate, slot)))),))
    if kind == 2:
        return Take(lease_id, (Part(HERE, (slot,)), Part(THERE, (slot, rate))))
    if kind == 3:
        return Release(HERE, lease_id, rng.choice(((), (Delta("rpm", -1, 40),))))
    return Renew(HERE, lease_id, (slot,)) if kind == 4 else Peek(rng.choice((HERE, THERE)))


def disturbed(rng: random.Random, call: Recorded) -> Recorded:
    """The same call at another time, or with the answer of another state."""
    if rng.random() < 0.5 or call.outcome is None:
        by_ns = rng.choice((-40, 40))
        return replace(call, made_ns=call.made_ns + by_ns, over_ns=call.over_ns + by_ns)
    answer: BucketOutcome = decide(call.request, lambda _: EMPTY, call.decided_ns[0])[2]
    return replace(call, outcome=answer)


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_trying_every_order_of_random_histories(seed: int) -> None:
    rng = random.Random(seed)
    held_of = {True: 0, False: 0}
    for _ in range(HISTORIES):
        history = random_history(rng)
        verdict = linearize(history, NOTHING_YET, step)
        assert verdict.holds == by_trying_every_order(history), history
        held_of[verdict.holds] += 1
        if verdict.holds:
            assert_is_a_linearization(verdict.order, history)
    assert min(held_of.values()) >= HISTORIES // 5, held_of


def assert_is_a_linearization(order: Sequence[Recorded], history: Sequence[Recorded]) -> None:
    assert {id(call) for call in history if call.known} <= {id(call) for call in order}
    assert by_trying_every_order(order)
    assert not any(after.over_ns < before.made_ns for n, before in enumerate(order) for after in order[n + 1 :])
