"""Slots: who holds them, for how long, and how they come back."""

from __future__ import annotations

from sluice.core.requests import Delta, Gone, Reap, Reaped, Release, Released, Renew, Renewed, SlotEntry
from sluice.testing.conformance.bench import KEY, Bench, S, a, check, one, plain, rate, same, slots
from sluice.testing.conformance.takes import OTHER


async def _held(bench: Bench, name: str = "concurrent") -> dict[str, int]:
    return dict((await bench.image()).slots.get(name, {}))


@check()
async def slots_are_held_up_to_capacity(bench: Bench) -> None:
    """As many slots as there are can be held; the denial's hint is the expiry that would make room."""
    first = await bench.granted("first", slots(1, ttl_ns=30 * S))
    await bench.granted("second", slots(2, ttl_ns=90 * S))
    answer = await bench.denied("third", slots(1))
    same(answer.retry_in_ns, 30 * S - (answer.now_ns - first.now_ns), "hint for one slot")
    same(answer.limits[0].available, 0, "available")
    held = await _held(bench)
    same(sorted(held), ["first", "second", "second#1"], "entries")
    same(held["first"], first.now_ns + 30 * S, "expiry")


@check(sets_time=True)
async def a_slot_is_free_at_the_tick_of_its_expiry(bench: Bench) -> None:
    """A dead holder's slot is taken until the very tick of its expiry, and free at it, with nobody to tidy up."""
    await bench.granted("dead", slots(3, ttl_ns=S + 1))
    bench.advance(S)
    same((await bench.denied("early", slots(3))).retry_in_ns, 1, "wait one tick before")
    bench.advance(1)
    await bench.granted("in time", slots(3))
    same(sorted(await _held(bench)), ["in time", "in time#1", "in time#2"], "entries")


@check(sets_time=True)
async def the_hint_for_several_slots_is_when_enough_have_lapsed(bench: Bench) -> None:
    """Who wants two slots is pointed to the second expiry, not to the first."""
    for number, ttl_ns in enumerate((30 * S, 10 * S, 20 * S)):
        await bench.granted(f"lease {number}", slots(1, ttl_ns=ttl_ns))
    same((await bench.denied("two", slots(2))).retry_in_ns, 20 * S, "hint")
    bench.advance(20 * S)
    await bench.granted("two", slots(2))


@check()
async def a_release_gives_all_slots_back(bench: Bench) -> None:
    """A release gives back every slot of the lease in the bucket, of every limit, and touches no other lease."""
    await bench.granted("lease", slots(2), slots(1, "gpu"), rate(1))
    await bench.granted("lease1", slots(1), slots(1, "gpu"))
    a(Released, await bench.release("lease"))
    image = plain(await bench.image())
    same(
        {name: list(held) for name, held in image.slots.items()}, {"concurrent": ["lease1"], "gpu": ["lease1"]}, "held"
    )
    await bench.granted("next", slots(2), slots(2, "gpu"))


@check()
async def a_release_happens_once(bench: Bench) -> None:
    """A second release, or one of a lease never seen, is told that nothing is left, and corrects nothing."""
    await bench.granted("lease", slots(1), rate(5))
    correction = Delta("rpm", 2, 60 * S)
    a(Released, await bench.release("lease", correction))
    before = await bench.image()
    a(Gone, await bench.release("lease", correction))
    a(Gone, await bench.release("never seen", correction))
    a(Gone, await bench.release("lease", correction, at=OTHER))
    same(plain(await bench.image()), plain(before), "bucket after releases of nothing")
    same((await bench.image(OTHER)).rates, {}, "rates of a bucket that was never used")


@check()
async def a_release_carries_the_settlement(bench: Bench) -> None:
    """Slots and corrections go in one write: what was not used comes back with the slots."""
    await bench.granted("lease", slots(3), rate(10), rate(1, "tpm"))
    a(Released, await bench.release("lease", Delta("rpm", -4, 60 * S), Delta("tpm", 9, 60 * S)))
    await bench.granted("next", slots(3), rate(4))
    await bench.denied("owing", rate(1, "tpm"))


@check(sets_time=True)
async def a_lapsed_lease_is_released_until_it_is_replaced(bench: Bench) -> None:
    """A lease that lapsed can still be released with its settlement; once replaced, there is nothing of it left."""
    await bench.granted("late", slots(3, ttl_ns=S), rate(10))
    bench.advance(2 * S)
    a(Released, await bench.release("late", Delta("rpm", -10, 60 * S)))
    await bench.granted("too late", slots(3, ttl_ns=S), rate(10))
    bench.advance(2 * S)
    await bench.granted("replaces it", slots(1))
    before = await bench.image()
    a(Gone, await bench.release("too late", Delta("rpm", -10, 60 * S)))
    same(plain(await bench.image()), plain(before), "bucket after the release that came too late")


@check(sets_time=True)
async def a_renewal_raises_the_expiry(bench: Bench) -> None:
    """A live lease lives for its whole time again from the renewal on, all of its slots."""
    await bench.granted("lease", slots(2, ttl_ns=10 * S))
    bench.advance(10 * S - 1)
    renewed = a(Renewed, await bench.renew("lease", slots(2, ttl_ns=10 * S)))
    same(set((await _held(bench)).values()), {renewed.now_ns + 10 * S}, "expiries")
    bench.advance(10 * S - 1)
    await bench.denied("other", slots(2))
    bench.advance(1)
    await bench.granted("other", slots(3))


@check(sets_time=True)
async def a_renewal_never_lowers_an_expiry(bench: Bench) -> None:
    """A renewal with less time to live than is left changes nothing, so a late one can do no harm."""
    await bench.granted("lease", slots(1, ttl_ns=60 * S))
    before = await _held(bench)
    bench.advance(S)
    a(Renewed, await bench.renew("lease", slots(1, ttl_ns=5 * S)))
    same(await _held(bench), before, "expiries")


@check(sets_time=True)
async def a_lapsed_lease_is_never_renewed(bench: Bench) -> None:
    """At the tick of its expiry a lease is gone: a renewal does not bring it back, tidied away or not."""
    await bench.granted("lease", slots(1, ttl_ns=S))
    bench.advance(S)
    before = await bench.image()
    a(Gone, await bench.renew("lease", slots(1, ttl_ns=S)))
    a(Gone, await bench.renew("never seen", slots(1, ttl_ns=S)))
    same(plain(await bench.image()), plain(before), "bucket after renewals of nothing")


@check(sets_time=True)
async def a_renewal_is_all_or_nothing(bench: Bench) -> None:
    """If one of a lease's slots has lapsed, the renewal is refused and the others keep the expiry they had."""
    await bench.granted("lease", slots(1, ttl_ns=60 * S), slots(1, "gpu", ttl_ns=S))
    bench.advance(S)
    before = await bench.image()
    a(Gone, await bench.renew("lease", slots(1, ttl_ns=60 * S), slots(1, "gpu", ttl_ns=S)))
    a(Gone, await bench.renew("lease", slots(2, ttl_ns=60 * S)))
    same(plain(await bench.image()), plain(before), "bucket after refused renewals")


@check(sets_time=True)
async def a_batch_of_renewals_is_answered_one_by_one(bench: Bench) -> None:
    """In a batch each renewal has its own answer: a lapsed lease does not take the live ones with it."""
    await bench.granted("live", slots(1, ttl_ns=60 * S))
    await bench.granted("dead", slots(1, ttl_ns=S))
    await bench.granted("elsewhere", slots(1, ttl_ns=60 * S), at=OTHER)
    bench.advance(S)
    batch = [Renew(KEY, "live", (slots(1),)), Renew(KEY, "dead", (slots(1),)), Renew(OTHER, "elsewhere", (slots(1),))]
    answers = await bench.store.renew(batch)
    same([type(answer) for answer in answers], [Renewed, Gone, Renewed], "answers")
    releases = await bench.store.release([Release(KEY, "live"), Release(KEY, "live"), Release(OTHER, "elsewhere")])
    same([type(answer) for answer in releases], [Released, Gone, Released], "answers to releases")


@check(sets_time=True)
async def lapsed_slots_are_tidied_away_only_as_they_were_seen(bench: Bench) -> None:
    """Reaping removes what has lapsed and still is as it was seen, and says what that was."""
    await bench.granted("dead", slots(2, ttl_ns=S))
    await bench.granted("live", slots(1, ttl_ns=60 * S), slots(1, "gpu", ttl_ns=S))
    bench.advance(S)
    held = await _held(bench)
    dead = [SlotEntry("concurrent", entry, held[entry]) for entry in ("dead#1", "dead")]
    seen = (
        SlotEntry("concurrent", "live", held["live"]),
        dead[0],
        SlotEntry("concurrent", "dead", held["dead"] - 1),
        SlotEntry("gpu", "dead", held["dead"]),
        SlotEntry("concurrent", "never seen", held["dead"]),
        dead[1],
    )
    answer = one(await bench.store.reap([Reap(KEY, seen)]))
    same(answer.removed, tuple(dead), "removed")
    image = plain(await bench.image())
    same(
        {name: list(entries) for name, entries in image.slots.items()},
        {"concurrent": ["live"], "gpu": ["live"]},
        "left",
    )
    same(one(await bench.store.reap([Reap(KEY, tuple(dead))])), Reaped(answer.now_ns, ()), "reaping again")
    same(one(await bench.store.reap([Reap(OTHER, tuple(dead))])), Reaped(answer.now_ns, ()), "reaping elsewhere")


@check(sets_time=True)
async def a_renewed_lease_is_not_tidied_away(bench: Bench) -> None:
    """A lease that was renewed since it was seen stays, though the expiry that was seen has passed."""
    await bench.granted("lease", slots(1, ttl_ns=S))
    seen = SlotEntry("concurrent", "lease", (await _held(bench))["lease"])
    a(Renewed, await bench.renew("lease", slots(1, ttl_ns=2 * S)))
    bench.advance(2 * S - 1)
    same(one(await bench.store.reap([Reap(KEY, (seen,))])).removed, (), "removed")
    same(list(await _held(bench)), ["lease"], "entries")


@check(sets_time=True)
async def a_lapsed_lease_id_may_be_taken_again(bench: Bench) -> None:
    """Once lapsed, a lease id holds nothing: it takes anew, and with another number of slots does not clash."""
    await bench.granted("lease", slots(2, ttl_ns=S))
    bench.advance(S)
    answer = await bench.granted("lease", slots(1, ttl_ns=S))
    same(answer.repeated, False, "repeated")
    same(await _held(bench), {"lease": answer.now_ns + S}, "entries")


@check(sets_time=True)
async def slots_are_never_counted_twice(bench: Bench) -> None:
    """Released, renewed and tidied away in any order, capacity is what it was."""
    for number in range(4):
        name = f"lease {number}"
        await bench.granted(name, slots(2, ttl_ns=S))
        seen = tuple(SlotEntry("concurrent", entry, expires) for entry, expires in (await _held(bench)).items())
        bench.advance(number % 2 * S)
        await bench.renew(name, slots(2, ttl_ns=S))
        await bench.store.reap([Reap(KEY, seen)] * 2)
        await bench.store.release([Release(KEY, name)] * 2)
    await bench.granted("all", slots(3))
    await bench.denied("one more", slots(1))
