"""Turns and pauses: tokens taken in advance, turns given up, and a bucket whose clock stands still."""

from __future__ import annotations

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import RateState
from sluice.core.requests import Delta, GaveUp, GiveUp, Pause, Paused, Released
from sluice.testing.conformance.bench import KEY, Bench, S, a, check, one, rate, same, slots
from sluice.testing.conformance.takes import OTHER


async def _pause(bench: Bench, for_ns: int) -> Paused:
    return one(await bench.store.pause([Pause(KEY, for_ns)]))


@check(sets_time=True)
async def turns_come_one_after_another(bench: Bench) -> None:
    """Reserved turns follow each other at the limit's pace, first come, first served, to the nanosecond."""
    one_a_second = rate(1, capacity=2, interval_ns=S)
    turns = []
    for number in range(5):
        answer = await bench.granted(f"lease {number}", one_a_second, wait_ns=NS_PER_HOUR)
        turns.append(answer.turn_ns - answer.now_ns)
        bench.advance(1)
    same(turns, [0, 0, S - 2, 2 * S - 3, 3 * S - 4], "turns, from when they were asked for")


@check(sets_time=True)
async def a_turn_too_far_ahead_is_denied(bench: Bench) -> None:
    """A turn later than the wait that is allowed is denied, with the wait it would take; one exactly then is not."""
    await bench.granted("lease", rate(10))
    same((await bench.denied("short", rate(2), wait_ns=120 * S - 1)).retry_in_ns, 120 * S, "wait")
    answer = await bench.granted("long enough", rate(2), wait_ns=120 * S)
    same(answer.turn_ns - answer.now_ns, 120 * S, "turn")


@check()
async def the_last_turn_can_be_given_up(bench: Bench) -> None:
    """The last in the line gives its turn back, once; who comes next gets that turn."""
    await bench.granted("first", rate(10))
    turn = await bench.granted("last", rate(3), wait_ns=NS_PER_HOUR)
    same((await bench.give_up(turn, rate(3))).returned, True, "returned")
    same((await bench.give_up(turn, rate(3))).returned, False, "returned a second time")
    again = await bench.granted("next", rate(3), wait_ns=NS_PER_HOUR)
    same(again.turn_ns, turn.turn_ns, "turn of the next")
    same(sum((await bench.image()).usage.values()), 13, "usage")


@check()
async def a_turn_in_the_middle_stays_spent(bench: Bench) -> None:
    """A turn with somebody behind it stays spent, else two would start at the same turn."""
    await bench.granted("first", rate(10))
    middle = await bench.granted("middle", rate(1), wait_ns=NS_PER_HOUR)
    last = await bench.granted("last", rate(1), wait_ns=NS_PER_HOUR)
    before = await bench.image()
    same((await bench.give_up(middle, rate(1))).returned, False, "returned")
    same(await bench.image(), before, "bucket")
    same((await bench.give_up(last, rate(1))).returned, True, "last one returned")


@check()
async def a_turn_is_given_up_only_as_it_was_taken(bench: Bench) -> None:
    """A turn that was settled, counted anew or never taken is not given back."""
    taken = await bench.granted("lease", rate(3))
    left_ns = taken.images[0].rates["rpm"].full_at_ns
    for request in (
        GiveUp(KEY, "rpm", 3, 59 * S, left_ns),
        GiveUp(KEY, "rpm", 3, 60 * S, left_ns - 1),
        GiveUp(KEY, "tpm", 3, 60 * S, left_ns),
        GiveUp(OTHER, "rpm", 3, 60 * S, left_ns),
    ):
        same(a(GaveUp, one(await bench.store.settle([request]))).returned, False, f"returned by {request}")
    await bench.settle(Delta("rpm", 1, 60 * S))
    same((await bench.give_up(taken, rate(3))).returned, False, "returned after it was settled")


@check(sets_time=True)
async def nobody_is_granted_during_a_pause(bench: Bench) -> None:
    """Until a pause has passed nothing is granted, neither tokens nor slots; at its end they are as before."""
    paused = await _pause(bench, 30 * S)
    same(paused, Paused(bench.clock.now_ns(), bench.clock.now_ns() + 30 * S), "answer")
    for charge in (rate(1), slots(1)):
        answer = await bench.denied("paused", charge)
        same((answer.retry_in_ns, answer.limits[0].available), (30 * S, 0), "wait, available")
    bench.advance(30 * S - 1)
    await bench.denied("early", rate(1), slots(1))
    bench.advance(1)
    await bench.granted("in time", rate(10), slots(3))
    await bench.granted("elsewhere", rate(10), at=OTHER)


@check(sets_time=True)
async def a_pause_shifts_the_line(bench: Bench) -> None:
    """Those who wait are shifted by the pause, not bunched: the time it takes refills nothing."""
    taken = await bench.granted("lease", rate(10))
    bench.advance(20 * S)
    await _pause(bench, 30 * S)
    image = await bench.image()
    same(image.rates["rpm"], RateState(taken.now_ns + 630 * S, 60 * S), "state")
    same((image.paused_total_ns, image.paused_until_ns), (30 * S, taken.now_ns + 50 * S), "paused in total, until")
    same((await bench.denied("next", rate(1))).retry_in_ns, 70 * S, "wait")
    turn = await bench.granted("in turn", rate(1), wait_ns=NS_PER_HOUR)
    same(turn.turn_ns - turn.now_ns, 70 * S, "turn")


@check(sets_time=True)
async def a_full_bucket_stays_full_through_a_pause(bench: Bench) -> None:
    """A rate that was full when the pause began is full at its end, not in debt and not beyond capacity."""
    await bench.granted("lease", rate(1))
    bench.advance(NS_PER_HOUR)
    await _pause(bench, 30 * S)
    bench.advance(30 * S)
    await bench.granted("all", rate(10))
    await bench.denied("more", rate(1))


@check(sets_time=True)
async def pauses_do_not_add_up(bench: Bench) -> None:
    """A second pause lengthens the first only by what it goes beyond it; a shorter one changes nothing."""
    taken = await bench.granted("lease", rate(1))
    answers = await bench.store.pause([Pause(KEY, 30 * S), Pause(KEY, 10 * S), Pause(KEY, 40 * S)])
    same([one([answer]).until_ns - taken.now_ns for answer in answers], [30 * S, 30 * S, 40 * S], "until")
    image = await bench.image()
    same((image.paused_total_ns, image.rates["rpm"].full_at_ns), (40 * S, taken.now_ns + 100 * S), "paused, full at")
    bench.advance(50 * S)
    await _pause(bench, 5 * S)
    same((await bench.image()).paused_total_ns, 45 * S, "paused in total after another")


@check(sets_time=True)
async def leases_live_on_in_a_pause(bench: Bench) -> None:
    """A pause stops nobody from ending or settling: slots lapse by the clock, debts count from the pause's end."""
    await bench.granted("released", slots(1, ttl_ns=60 * S))
    await bench.granted("lapses", slots(2, ttl_ns=S), rate(1))
    await _pause(bench, 30 * S)
    a(Released, await bench.release("released"))
    await bench.settle(Delta("tpm", 10, 60 * S))
    same((await bench.image()).rates["tpm"].full_at_ns, bench.clock.now_ns() + 630 * S, "debt")
    bench.advance(30 * S)
    await bench.granted("all", slots(3))


@check(sets_time=True)
async def a_turn_waits_for_the_pause_to_end(bench: Bench) -> None:
    """A turn reserved in a pause comes at its end at the earliest; a wait that is too short for it is denied."""
    await _pause(bench, 30 * S)
    await bench.denied("short", rate(1), wait_ns=30 * S - 1)
    answer = await bench.granted("long enough", rate(10), wait_ns=30 * S)
    same(answer.turn_ns - answer.now_ns, 30 * S, "turn")
    behind = await bench.granted("behind it", rate(1), wait_ns=NS_PER_HOUR)
    same(behind.turn_ns - behind.now_ns, 90 * S, "turn of the next")
