"""Repairs: what a clock far ahead has left in a bucket, and how an operator takes it back."""

from __future__ import annotations

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import EMPTY, RateState
from sluice.core.requests import Charge, Pause, Renewed, Repair, Repaired
from sluice.testing.conformance.bench import KEY, Bench, S, a, check, one, plain, rate, same, slots


async def _repair(bench: Bench, *charges: Charge) -> Repaired:
    return one(await bench.store.repair([Repair(KEY, charges)]))


@check(sets_time=True)
async def a_bucket_frozen_by_a_clock_ahead_is_repaired(bench: Bench) -> None:
    """What a clock an hour ahead took, paused and holds stands in nobody's way for longer than an honest take would."""
    bench.step(NS_PER_HOUR)
    await bench.granted("ahead", rate(10), rate(1, "tpm"), slots(3))
    bench.step(-NS_PER_HOUR)
    same((await bench.denied("frozen", rate(1))).retry_in_ns, NS_PER_HOUR + 60 * S, "wait while it is frozen")
    answer = await _repair(bench, rate(), slots())
    same((answer.limits, answer.pause_ended), (("rpm", "concurrent"), False), "limits repaired, pause ended")
    image = await bench.image()
    same(plain(answer.image), plain(image), "image told")
    same(image.rates["rpm"], RateState(answer.now_ns + 600 * S, 60 * S), "the rate that was named")
    same(image.rates["tpm"].full_at_ns - answer.now_ns, NS_PER_HOUR + 60 * S, "the rate that was not named")
    same((await bench.denied("spent", rate(1))).retry_in_ns, 60 * S, "wait for a token")
    same((await bench.denied("held", slots(1))).retry_in_ns, 60 * S, "wait for a slot")
    bench.advance(60 * S)
    await bench.granted("in time", rate(1), slots(3))


@check(sets_time=True)
async def a_repair_ends_a_pause(bench: Bench) -> None:
    """A pause is ended as if it had been set to end now: the line moves back by what was left of it."""
    taken = await bench.granted("lease", rate(4))
    one(await bench.store.pause([Pause(KEY, NS_PER_HOUR)]))
    bench.advance(10 * S)
    answer = await _repair(bench)
    same((answer.limits, answer.pause_ended), ((), True), "limits repaired, pause ended")
    image = await bench.image()
    same((image.paused_until_ns, image.paused_total_ns), (taken.now_ns + 10 * S, 10 * S), "paused until, in total")
    same(image.rates["rpm"].full_at_ns, taken.now_ns + 250 * S, "full at")
    await bench.granted("next", rate(5))


@check(sets_time=True)
async def a_repair_leaves_what_is_right_alone(bench: Bench) -> None:
    """A bucket that no clock has hurt is left as it is, and so is one that was never used."""
    same((await _repair(bench, rate(), slots())).image, EMPTY, "image of a bucket that was never used")
    same(await bench.bucket_texts(), [], "buckets")
    await bench.granted("lease", rate(10), slots(2))
    before = plain(await bench.image())
    same((await _repair(bench, rate(), slots())).limits, (), "limits repaired")
    same(plain(await bench.image()), before, "bucket")


@check(sets_time=True)
async def a_repaired_lease_is_renewed(bench: Bench) -> None:
    """Whoever lives keeps its slots through a repair: it has the limit's TTL to renew them in."""
    await bench.granted("lease", slots(1, ttl_ns=NS_PER_HOUR))
    same((await _repair(bench, slots(1, ttl_ns=60 * S))).limits, ("concurrent",), "limits repaired")
    bench.advance(60 * S - 1)
    a(Renewed, await bench.renew("lease", slots(1, ttl_ns=NS_PER_HOUR)))
    bench.advance(NS_PER_HOUR - 1)
    await bench.denied("next", slots(3))
