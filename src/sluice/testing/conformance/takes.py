"""Takes: what is granted, what is denied, and how exactly."""

from __future__ import annotations

from sluice.core.bounds import MAX_AMOUNT, MAX_WINDOW_NS, NS_PER_DAY, NS_PER_HOUR
from sluice.core.bucket import RateState
from sluice.core.names import BucketKey
from sluice.core.requests import Clash, Denied, Granted, Part, Peek, Take, seconds_up
from sluice.testing.clock import ManualClock
from sluice.testing.conformance.bench import KEY, NAMESPACE, Bench, S, a, check, one, plain, rate, same, slots, true

OTHER = BucketKey(NAMESPACE, "acme", "openai")
THIRD = BucketKey(NAMESPACE, "acme", "gpt-4")


@check()
async def a_new_bucket_is_full(bench: Bench) -> None:
    """A bucket that was never used is full: exactly its capacity fits, and is spent from then on."""
    answer = await bench.granted("first", rate(10))
    same(answer.turn_ns, answer.now_ns, "turn")
    same(answer.images[0].rates["rpm"], RateState(answer.now_ns + 600 * S, 60 * S), "state left behind")
    same((answer.repeated, answer.clamped), (False, ()), "repeated, clamped")
    await bench.denied("second", rate(1))


@check(sets_time=True)
async def a_rate_says_exactly_when(bench: Bench) -> None:
    """The wait of a rate's denial is exact: one tick earlier is refused, at it is granted."""
    odd = rate(3, interval_ns=7_000_001)
    for number in range(3):
        await bench.granted(f"lease {number}", odd)
        bench.advance(1_234_567)
    answer = await bench.denied("refused", odd)
    same(answer.retry_in_ns, 2 * 7_000_001 - 3 * 1_234_567, "wait")
    bench.advance(answer.retry_in_ns - 1)
    same((await bench.denied("early", odd)).retry_in_ns, 1, "wait one tick before")
    bench.advance(1)
    await bench.granted("in time", odd)


@check()
async def a_denial_takes_nothing(bench: Bench) -> None:
    """A denial takes nothing, neither of the limit that refuses nor of those that would not."""
    await bench.granted("first", rate(7), rate(1, "tpm", 100), slots(2))
    before = plain(await bench.image())
    await bench.denied("too many tokens", rate(4), rate(1, "tpm", 100), slots(1))
    await bench.denied("too many slots", rate(1), rate(1, "tpm", 100), slots(2))
    same(plain(await bench.image()), before, "bucket after two denials")
    await bench.granted("fits", rate(3), rate(99, "tpm", 100), slots(1))


@check()
async def a_denial_names_all_that_stands_in_the_way(bench: Bench) -> None:
    """A denial names each limit that refuses, in order, with its numbers; the wait is the longest of them."""
    taken = await bench.granted("first", rate(8), rate(90, "tpm", 100), slots(3), at=OTHER)
    answer = await bench.denied("second", rate(4), rate(10, "tpm", 100), slots(1), at=OTHER)
    told = [(s.resource, s.name, s.entity, s.capacity, s.available) for s in answer.limits]
    same(told, [("openai", "rpm", "acme", 10, 2), ("openai", "concurrent", "acme", 3, 0)], "limits in the way")
    passed_ns = answer.now_ns - taken.now_ns
    same(answer.retry_in_ns, 120 * S - passed_ns, "wait")
    waits = [seconds_up(120 * S - passed_ns), seconds_up(60 * S - passed_ns)]
    same([status.retry_in for status in answer.limits], waits, "waits, each")
    same(answer.contended, False, "contended")


@check(sets_time=True)
async def a_slow_limit_beside_a_fast_one_refills(bench: Bench) -> None:
    """Each limit of a bucket refills by itself: the traffic of a fast one never holds back a slow one."""
    fast, slow = rate(1, "fast", 100, 10_000_000), rate(1, "slow", 5, S)
    granted = 0
    for number in range(3_000):
        granted += isinstance(await bench.take(f"slow {number}", fast, slow), Granted)
        await bench.take(f"fast {number}", fast)
        bench.advance(10_000_000)
    same(granted, 5 + 29, "takes of the slow limit in 29.99 seconds")


@check()
async def headroom_is_left_to_others(bench: Bench) -> None:
    """A take that must leave some to others is refused where one that need not is granted."""
    await bench.granted("batch", rate(8, leave=2), slots(2, leave=1))
    await bench.denied("batch, once more", rate(1, leave=2))
    await bench.denied("batch, a slot", slots(1, leave=1))
    await bench.granted("interactive", rate(2), slots(1))


@check()
async def a_batch_is_decided_in_order(bench: Bench) -> None:
    """The requests of a batch are decided one after another, each as if it had come alone."""
    amounts = [6, 6, 4, 1, 2]
    keys = [KEY, KEY, KEY, OTHER, KEY]
    requests = [Take(f"lease {n}", (Part(keys[n], (rate(amounts[n]),)),)) for n in range(5)]
    answers = await bench.store.take(requests)
    kinds = [type(answer) for answer in answers]
    same(kinds, [Granted, Denied, Granted, Granted, Denied], "answers")
    left = [a(Granted, answer).images[0].rates["rpm"].full_at_ns for answer in (answers[0], answers[2])]
    same(left[1] - left[0], 4 * 60 * S, "what the second grant added")


@check()
async def a_batch_of_one_lease_id_is_one_take(bench: Bench) -> None:
    """The same lease id twice in one batch is one take, told twice."""
    first, second = await bench.store.take([Take("lease", (Part(KEY, (rate(1), slots(1))),))] * 2)
    same((a(Granted, first).repeated, a(Granted, second).repeated), (False, True), "repeated")
    same(len((await bench.image()).slots["concurrent"]), 1, "slots held")


class _Restless(ManualClock):
    """A clock that moves on each time somebody looks at it."""

    def now_ns(self) -> int:
        self.step(ns=1)
        return super().now_ns()


@check(sets_time=True)
async def a_batch_has_one_now(bench: Bench) -> None:
    """The time is read once for a whole batch."""
    bench.store = await bench.open(_Restless())
    requests = [Take(f"lease {n}", (Part((KEY, OTHER)[n % 2], (rate(3),)),)) for n in range(8)]
    answers = [answer for answer in await bench.store.take(requests) if isinstance(answer, Granted | Denied)]
    same(len({answer.now_ns for answer in answers}), 1, "times in one batch")
    peeked = await bench.store.peek([Peek(KEY), Peek(OTHER), Peek(THIRD)])
    same(len({one([answer]).now_ns for answer in peeked}), 1, "times in one batch of peeks")


@check()
async def an_empty_batch_is_answered(bench: Bench) -> None:
    """Nothing asked, nothing answered, and no error."""
    store = bench.store
    verbs = ("take", "settle", "release", "renew", "reap", "peek", "pause", "fold", "repair")
    for verb in verbs:
        same(list(await getattr(store, verb)([])), [], f"{verb} of nothing")
    same(await bench.get(), [], "documents read")
    await bench.write()
    await bench.store.forget([])


@check()
async def a_lease_id_is_granted_once(bench: Bench) -> None:
    """A lease id that holds what it asks for is granted again without taking anything: its reply was lost."""
    first = await bench.granted("lease", rate(4), slots(2))
    again = await bench.granted("lease", rate(4), slots(2))
    same((first.repeated, again.repeated), (False, True), "repeated")
    same(again.turn_ns, again.now_ns, "turn of the repeated grant")
    same(plain(again.images[0]), plain(first.images[0]), "bucket after the second")
    await bench.granted("another", rate(6), slots(1))


@check()
async def a_lease_id_names_one_take(bench: Bench) -> None:
    """A lease id that holds slots already, but other ones than it asks for now, clashes, and nothing changes."""
    await bench.granted("lease", rate(1), slots(2), slots(1, "gpu"))
    before = plain(await bench.image())
    for charges in [(slots(1), slots(1, "gpu")), (slots(2), slots(2, "gpu")), (slots(2), slots(1, "disk"))]:
        same(await bench.take("lease", *charges), Clash("lease"), f"answer to {charges}")
    same(plain(await bench.image()), before, "bucket after the clashes")


@check()
async def a_lease_id_without_slots_is_not_remembered(bench: Bench) -> None:
    """Rates alone keep no lease: the same id takes again, so what is in doubt errs towards the limit."""
    await bench.granted("lease", rate(6))
    await bench.denied("lease", rate(6))
    same((await bench.granted("lease", rate(4))).repeated, False, "repeated")


@check()
async def a_lease_id_may_come_again_after_its_end(bench: Bench) -> None:
    """Once released, a lease id is as good as new."""
    await bench.granted("lease", rate(1), slots(2))
    await bench.release("lease")
    same((await bench.granted("lease", rate(1), slots(1))).repeated, False, "repeated")
    same(list((await bench.image()).slots["concurrent"]), ["lease"], "entries")


@check()
async def takes_are_counted_as_usage(bench: Bench) -> None:
    """What is granted is counted by limit and hour in the same write; what is denied or repeated is not."""
    first = await bench.granted("lease", rate(4), slots(2))
    await bench.granted("lease", rate(4), slots(2))
    await bench.denied("denied", rate(7), slots(1))
    last = await bench.granted("another", rate(1))
    usage = (await bench.image()).usage
    by_limit = {name: sum(n for (limit, _), n in usage.items() if limit == name) for name in ("rpm", "concurrent")}
    same(by_limit, {"rpm": 5, "concurrent": 2}, "usage")
    hours = {hour for _, hour in usage}
    true(hours <= {first.now_ns // NS_PER_HOUR, last.now_ns // NS_PER_HOUR}, f"Usage is filed under {hours}.")


@check(sets_time=True)
async def the_largest_amounts_are_exact(bench: Bench) -> None:
    """The largest amounts, and the longest windows, are counted to the nanosecond."""
    huge = rate(MAX_AMOUNT - 1, "tokens", MAX_AMOUNT, 1)
    interval_ns = MAX_WINDOW_NS // 999_983
    long = rate(999_983, "yearly", 999_983, interval_ns)
    bench.advance(1)
    answer = await bench.granted("all", huge, long)
    image = answer.images[0]
    same(image.rates["tokens"].full_at_ns - answer.now_ns, MAX_AMOUNT - 1, "window of the huge one")
    same(image.rates["yearly"].full_at_ns - answer.now_ns, 999_983 * interval_ns, "window of the long one")
    await bench.granted("the rest", rate(1, "tokens", MAX_AMOUNT, 1))
    same((await bench.denied("no more", rate(1, "tokens", MAX_AMOUNT, 1))).retry_in_ns, 1, "wait for one of a huge one")
    wait_ns = (await bench.denied("no more", rate(999_983, "yearly", 999_983, interval_ns))).retry_in_ns
    same(wait_ns, 999_983 * interval_ns, "wait for all of a long one")
    same(sum((await bench.image()).usage.values()), MAX_AMOUNT + 999_983, "usage")


@check(sets_time=True)
async def any_year_will_do(bench: Bench) -> None:
    """Right after the epoch and far in the future, the arithmetic is the same."""
    for start in (1, 4_102_444_800, 7_258_118_400):
        clock = ManualClock(start=start)
        bench.store = await bench.open(clock)
        answer = await bench.granted("lease", rate(10, interval_ns=36 * NS_PER_DAY), slots(3))
        same(answer.now_ns, start * S, "now")
        same(answer.images[0].rates["rpm"].full_at_ns, start * S + 360 * NS_PER_DAY, "full at")
        same((await bench.denied("denied", rate(1, interval_ns=36 * NS_PER_DAY))).retry_in_ns, 36 * NS_PER_DAY, "wait")
        clock.advance(ns=36 * NS_PER_DAY)
        await bench.granted("next", rate(1, interval_ns=36 * NS_PER_DAY), slots(3))


# --- over several buckets ---------------------------------------------------------------------------------------------


@check(joint=True)
async def several_buckets_are_taken_together(bench: Bench) -> None:
    """A take over several buckets takes from all of them, and returns their images in the order of its parts."""
    true(bench.store.traits.joint, "A store that decides several buckets at once says so in its traits.")
    parts = (Part(OTHER, (rate(2), slots(1))), Part(KEY, (rate(3),)), Part(THIRD, (rate(4, "tpm"),)))
    answer = a(Granted, await bench.take_parts("lease", *parts))
    for part, image in zip(parts, answer.images, strict=True):
        same(plain(image), plain(await bench.image(part.key)), f"image of {part.key.text}")
        spent_ns = image.rates[part.rates[0].name].full_at_ns - answer.now_ns
        same(spent_ns, part.rates[0].amount * 60 * S, f"spent in {part.key.text}")


@check(joint=True)
async def several_buckets_are_all_or_nothing(bench: Bench) -> None:
    """If one bucket refuses, none is charged, whichever stands first; all that refuse are named."""
    full = await bench.granted("full", rate(10), at=OTHER)
    for parts in ((KEY, OTHER, THIRD), (OTHER, KEY, THIRD)):
        answer = a(Denied, await bench.take_parts("lease", *(Part(key, (rate(2), slots(1))) for key in parts)))
        same([(s.entity, s.name) for s in answer.limits], [("acme", "rpm")], "limits in the way")
        same(answer.retry_in_ns, 120 * S - (answer.now_ns - full.now_ns), "wait")
        for key in (KEY, THIRD):
            image = await bench.image(key)
            same((image.rates, plain(image).slots, image.usage), ({}, {}, {}), f"{key.text} after the denial")
    await bench.granted("also full", rate(9), at=KEY)
    answer = a(Denied, await bench.take_parts("lease", *(Part(key, (rate(2),)) for key in (KEY, OTHER))))
    same([status.entity for status in answer.limits], ["*", "acme"], "entities in the way")


@check(joint=True)
async def several_buckets_are_repeated_together(bench: Bench) -> None:
    """A lease id is repeated if it holds its slots in all buckets, and clashes if in some only."""
    parts = (Part(KEY, (rate(1), slots(1))), Part(OTHER, (slots(2), rate(1))))
    a(Granted, await bench.take_parts("lease", *parts))
    same(a(Granted, await bench.take_parts("lease", *parts)).repeated, True, "repeated")
    before = [plain(await bench.image(part.key)) for part in parts]
    await bench.release("lease", at=OTHER)
    a(Clash, await bench.take_parts("lease", *parts))
    same(plain(await bench.image(KEY)), before[0], "bucket after the clash")
    same(plain(await bench.image(OTHER)).slots, {}, "slots after the clash")


@check(joint=True)
async def a_batch_of_several_buckets_is_decided_in_order(bench: Bench) -> None:
    """Takes that share some of their buckets see what those before them in the batch have taken."""

    def request(lease: str, *keys: BucketKey) -> Take:
        return Take(lease, tuple(Part(key, (rate(6),)) for key in keys))

    batch = [request("1", KEY, OTHER), request("2", OTHER, THIRD), request("3", THIRD), request("4", THIRD, KEY)]
    answers = await bench.store.take(batch)
    same([type(answer) for answer in answers], [Granted, Denied, Granted, Denied], "answers")
    refused_by = [[(s.entity, s.resource) for s in a(Denied, answers[n]).limits] for n in (1, 3)]
    same(refused_by, [[("acme", "openai")], [("acme", "gpt-4"), ("*", "openai")]], "buckets in the way")


@check(durable=True)
async def what_was_taken_outlives_the_store(bench: Bench) -> None:
    """Whoever opens the same data later sees what was taken, held and paused."""
    await bench.granted("lease", rate(9), slots(2))
    before = plain(await bench.image())
    await bench.reopen()
    same(plain(await bench.image()), before, "bucket after opening again")
    await bench.denied("next", rate(2), slots(1))
    same((await bench.granted("lease", rate(9), slots(2))).repeated, True, "repeated after opening again")
