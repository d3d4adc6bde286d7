"""Corrections: owing, giving back, limits that change, and clocks that were wrong."""

from __future__ import annotations

from sluice.core.bounds import MAX_DEBT_CAPACITIES, MAX_TURN_NS, NS_PER_DAY
from sluice.core.bucket import RateState
from sluice.core.requests import Delta, GiveUp, Settle, Settled
from sluice.testing.conformance.bench import KEY, Bench, S, check, rate, same
from sluice.testing.conformance.takes import OTHER


@check(sets_time=True)
async def owing_goes_past_the_window(bench: Bench) -> None:
    """What was used beyond what was taken is owed, past the window too, and is paid back before anyone is granted."""
    taken = await bench.granted("lease", rate(10))
    await bench.settle(Delta("rpm", 25, 60 * S))
    same((await bench.image()).rates["rpm"].full_at_ns, taken.now_ns + 35 * 60 * S, "full at")
    same((await bench.denied("next", rate(1))).retry_in_ns, 26 * 60 * S, "wait")
    bench.advance(26 * 60 * S - 1)
    await bench.denied("early", rate(1))
    bench.advance(1)
    await bench.granted("in time", rate(1))


@check(sets_time=True)
async def owing_starts_now_not_in_the_past(bench: Bench) -> None:
    """A debt is counted from now: the time for which a bucket stood full pays nothing off."""
    await bench.granted("lease", rate(1))
    bench.advance(3_600 * S)
    await bench.settle(Delta("rpm", 10, 60 * S))
    same((await bench.denied("next", rate(1))).retry_in_ns, 60 * S, "wait")


@check()
async def giving_back_makes_room(bench: Bench) -> None:
    """What was not used can be taken by others at once, to the token."""
    await bench.granted("lease", rate(10))
    await bench.settle(Delta("rpm", -3, 60 * S))
    await bench.denied("too many", rate(4))
    await bench.granted("just right", rate(3))


@check()
async def giving_back_never_mints(bench: Bench) -> None:
    """However much is given back, a bucket never holds more than its capacity."""
    await bench.granted("lease", rate(2))
    await bench.settle(Delta("rpm", -500, 60 * S))
    await bench.granted("all", rate(10))
    await bench.denied("more", rate(1))


@check()
async def a_bucket_never_used_can_be_corrected(bench: Bench) -> None:
    """In a bucket that is not there a debt is counted in its own interval, and a give-back leaves it full."""
    await bench.settle(Delta("rpm", 10, 60 * S), Delta("tpm", -10, 60 * S))
    await bench.denied("next", rate(1))
    await bench.granted("all", rate(10, "tpm"))
    await bench.denied("more", rate(1, "tpm"))


@check()
async def corrections_are_counted_in_the_interval_that_stands(bench: Bench) -> None:
    """A correction is a number of tokens: at another interval than the bucket's, the bucket's counts."""
    taken = await bench.granted("lease", rate(4))
    await bench.settle(Delta("rpm", 2, 999))
    same((await bench.image()).rates["rpm"], RateState(taken.now_ns + 6 * 60 * S, 60 * S), "state after owing")
    await bench.settle(Delta("rpm", -3, 7 * S))
    same((await bench.image()).rates["rpm"], RateState(taken.now_ns + 3 * 60 * S, 60 * S), "state after giving back")


@check()
async def corrections_are_decided_in_order(bench: Bench) -> None:
    """A batch of corrections over several buckets and rates is applied one after another, answered one by one."""
    taken = await bench.granted("lease", rate(3), rate(5, "tpm"))
    give_up = GiveUp(KEY, "rpm", 3, 60 * S, taken.images[0].rates["rpm"].full_at_ns)
    batch: list[Settle | GiveUp] = [
        Settle(KEY, (Delta("rpm", 2, 60 * S), Delta("tpm", -1, 60 * S))),
        Settle(OTHER, (Delta("rpm", 1, 60 * S),)),
        give_up,
        Settle(KEY, (Delta("rpm", -2, 60 * S),)),
        give_up,
        give_up,
    ]
    answers = await bench.store.settle(batch)
    told = [getattr(answer, "returned", None) for answer in answers]
    same(told, [None, None, False, None, True, False], "turns returned")
    same([isinstance(answer, Settled) for answer in answers], [True, True, False, True, False, False], "settled")
    rates = (await bench.image()).rates
    left = [rates[name].full_at_ns - taken.now_ns for name in ("rpm", "tpm")]
    same(left, [0, 4 * 60 * S], "what is left to refill")


@check()
async def corrections_are_counted_as_usage(bench: Bench) -> None:
    """Usage follows what was truly used: owed is added, given back is subtracted, below 0 if it must be."""
    await bench.granted("lease", rate(4))
    await bench.settle(Delta("rpm", 3, 60 * S), Delta("tpm", -5, 60 * S))
    await bench.settle(Delta("rpm", -1, 60 * S))
    usage = (await bench.image()).usage
    by_limit = {name: sum(n for (limit, _), n in usage.items() if limit == name) for name in ("rpm", "tpm")}
    same(by_limit, {"rpm": 6, "tpm": -5}, "usage")


# --- limits that change -----------------------------------------------------------------------------------------------


@check(sets_time=True)
async def a_changed_interval_keeps_the_backlog_in_tokens(bench: Bench) -> None:
    """When a limit's interval changes, what was taken stays taken as so many tokens, rounded up to the nanosecond."""
    await bench.granted("lease", rate(6, interval_ns=10 * S))
    bench.advance(5 * S)
    quick = rate(4, interval_ns=333_333_337)
    answer = await bench.granted("next", quick)
    backlog_ns = -(-55 * S * 333_333_337 // (10 * S))
    left = RateState(answer.now_ns + backlog_ns + 4 * 333_333_337, 333_333_337)
    same(answer.images[0].rates["rpm"], left, "state after a quicker limit")


@check(sets_time=True)
async def a_denial_may_leave_the_bucket_counted_anew(bench: Bench) -> None:
    """A denial by a changed limit takes nothing, and is exact by the new limit."""
    await bench.granted("lease", rate(10, capacity=10, interval_ns=S))
    slower = rate(1, capacity=10, interval_ns=60 * S)
    answer = await bench.denied("denied", slower)
    same(answer.retry_in_ns, 60 * S, "wait by the new limit")
    image = await bench.image()
    same(image.rates["rpm"], RateState(answer.now_ns + 600 * S, 60 * S), "state")
    same(answer.images, (image,), "image told")
    bench.advance(60 * S - 1)
    await bench.denied("early", slower)
    bench.advance(1)
    await bench.granted("in time", slower)


@check(sets_time=True)
async def a_raised_limit_is_in_force_at_once(bench: Bench) -> None:
    """Who had spent an hourly limit waits no more than the new limit's interval once it is raised."""
    await bench.granted("lease", rate(10, capacity=10, interval_ns=360 * S))
    raised = rate(1, capacity=10, interval_ns=100_000_000)
    wait_ns = (await bench.denied("next", raised)).retry_in_ns
    same(wait_ns, 100_000_000, "wait by the raised limit")
    bench.advance(wait_ns)
    await bench.granted("next", raised)


@check(sets_time=True)
async def a_lowered_capacity_is_in_force_at_once(bench: Bench) -> None:
    """A smaller burst holds for buckets that are in use, though the state was left by the larger one."""
    await bench.granted("lease", rate(5, capacity=100, interval_ns=S))
    same((await bench.denied("next", rate(1, capacity=5, interval_ns=S))).retry_in_ns, S, "wait")
    bench.advance(S)
    await bench.granted("next", rate(1, capacity=5, interval_ns=S))


# --- clocks that were wrong -------------------------------------------------------------------------------------------


@check(sets_time=True)
async def a_clock_that_steps_back_never_mints(bench: Bench) -> None:
    """Time that goes back delays: the same hour does not refill a bucket twice."""
    await bench.granted("lease", rate(10))
    bench.step(-3_600 * S)
    await bench.denied("next", rate(1))
    bench.step(3_600 * S)
    await bench.denied("still", rate(1))
    bench.advance(60 * S)
    await bench.granted("one", rate(1))
    await bench.denied("no more", rate(1))


@check(sets_time=True)
async def a_state_out_of_all_reach_is_pulled_back_and_reported(bench: Bench) -> None:
    """What a clock far ahead has left behind is clamped to what honest history can reach, and the limit is named."""
    bench.step(365 * NS_PER_DAY)
    await bench.granted("from the future", rate(1), rate(1, "tpm"))
    bench.step(-365 * NS_PER_DAY)
    answer = await bench.denied("now", rate(1))
    same(answer.clamped, ("rpm",), "limits clamped")
    reach_ns = (MAX_DEBT_CAPACITIES + 1) * 10 * 60 * S + MAX_TURN_NS
    same(answer.retry_in_ns, reach_ns + 60 * S - 600 * S, "wait")
    same((await bench.image()).rates["rpm"].full_at_ns, answer.now_ns + reach_ns, "state")
    same((await bench.denied("again", rate(1))).clamped, (), "clamped the second time")
    same((await bench.denied("other", rate(1), rate(1, "tpm"))).clamped, ("tpm",), "limits clamped beside it")


@check(sets_time=True)
async def the_deepest_honest_debt_is_not_clamped(bench: Bench) -> None:
    """Ten capacities of debt are within reach: they stand as they are."""
    await bench.granted("lease", rate(10))
    await bench.settle(Delta("rpm", 100, 60 * S))
    answer = await bench.denied("next", rate(1))
    same((answer.clamped, answer.retry_in_ns), ((), (110 - 10 + 1) * 60 * S), "clamped, wait")
