import asyncio
import doctest
import math
import random
import threading
from collections.abc import Callable
from fractions import Fraction

import pytest

from sluice.testing import vendor as module
from sluice.testing.vendor import AT_ONCE, Accepted, Call, FakeVendor, Quota, Throttled, audit

SECOND = 1_000_000_000


class HandClock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.at_ns = 5 * SECOND

    def now_ns(self) -> int:
        return self.at_ns

    def steady_ns(self) -> int:
        return self.at_ns

    def pass_seconds(self, seconds: float) -> None:
        self.at_ns += round(seconds * SECOND)


def call(vendor: FakeVendor, **amounts: int) -> Accepted | Throttled:
    with vendor.call(**amounts) as answer:
        return answer


def test_a_burst_of_exactly_the_quota_is_let_in_and_the_next_call_is_not() -> None:
    vendor = FakeVendor(Quota("requests", 3, per=60), clock=HandClock())
    assert [bool(call(vendor)) for _ in range(4)] == [True, True, True, False]
    assert [(v.quota, v.amount, v.over) for v in vendor.violations] == [("requests", 1, 1)]


def test_retry_after_is_exact() -> None:
    clock = HandClock()
    vendor = FakeVendor(Quota("tokens", 600, per=60), clock=clock)
    assert call(vendor, tokens=600)
    refused = call(vendor, tokens=70)
    assert isinstance(refused, Throttled)
    assert refused.retry_after == 7.0
    clock.at_ns += 7 * SECOND - 1
    assert not call(vendor, tokens=70)
    clock.at_ns += 1
    assert call(vendor, tokens=70)


def test_a_burst_may_be_larger_than_what_a_period_gives() -> None:
    vendor = FakeVendor(Quota("tokens", 10, per=1, burst=25), clock=HandClock())
    assert call(vendor, tokens=25)
    assert not call(vendor, tokens=1)


def test_idling_earns_no_more_than_a_burst() -> None:
    clock = HandClock()
    vendor = FakeVendor(Quota("requests", 10, per=10), clock=clock)
    assert call(vendor)
    clock.pass_seconds(21)
    assert sum(bool(call(vendor)) for _ in range(30)) == 10


def test_a_call_that_is_refused_counts_in_no_quota() -> None:
    vendor = FakeVendor(Quota("requests", 2, per=60), Quota("tokens", 100, per=60), clock=HandClock())
    assert not call(vendor, tokens=101)
    assert call(vendor, tokens=100)
    assert not call(vendor, tokens=1)
    assert call(vendor, tokens=0)
    assert [v.quota for v in vendor.violations] == ["tokens", "tokens"]


def test_what_could_never_be_had_at_once_is_never_worth_a_retry() -> None:
    vendor = FakeVendor(Quota("tokens", 100, per=60), clock=HandClock())
    refused = call(vendor, tokens=101)
    assert isinstance(refused, Throttled)
    assert refused.retry_after == math.inf


def test_a_quota_costs_what_it_says_unless_the_call_names_it() -> None:
    vendor = FakeVendor(Quota("requests", 4, per=60, cost=2), Quota("tokens", 9, per=60, cost=0), clock=HandClock())
    assert [bool(call(vendor)) for _ in range(3)] == [True, True, False]


def test_calls_at_once_are_counted_by_entering_and_leaving() -> None:
    vendor = FakeVendor(at_once=2, clock=HandClock())
    with vendor.call() as first, vendor.call() as second:
        assert (bool(first), bool(second), vendor.running) == (True, True, 2)
        assert not call(vendor)
        assert vendor.running == 2
    assert call(vendor)
    assert vendor.running == 0
    assert vendor.most_at_once == 2
    assert [(v.quota, v.over) for v in vendor.violations] == [(AT_ONCE, 1)]


def test_a_call_ends_when_its_block_raises() -> None:
    vendor = FakeVendor(at_once=1, clock=HandClock())
    with pytest.raises(LookupError), vendor.call():
        raise LookupError
    assert call(vendor)


def test_injected_429s_are_no_violations_and_count_nothing() -> None:
    vendor = FakeVendor(Quota("requests", 1, per=60), clock=HandClock())
    vendor.throttle_next(2, retry_after=3.5)
    assert [call(vendor), call(vendor)] == [Throttled(3.5, "injected")] * 2
    assert call(vendor)
    assert vendor.throttled == 2
    assert not vendor.violations


def test_jitter_allows_what_the_rate_gives_in_that_time_and_no_more() -> None:
    vendor = FakeVendor(Quota("requests", 10, per=1), jitter=0.2, clock=HandClock())
    assert sum(bool(call(vendor)) for _ in range(20)) == 12


def test_the_log_says_when_calls_began_and_ended() -> None:
    clock = HandClock()
    vendor = FakeVendor(Quota("tokens", 100, per=60), clock=clock)
    started_ns = clock.at_ns
    with vendor.call(tokens=7):
        assert vendor.calls == (Call(started_ns, None, {"tokens": 7}),)
        clock.pass_seconds(2)
    assert vendor.calls == (Call(started_ns, started_ns + 2 * SECOND, {"tokens": 7}),)


def test_a_call_is_made_once() -> None:
    made = FakeVendor(at_once=9).call()
    with made, pytest.raises(RuntimeError, match="made already"):
        made.__enter__()


def test_amounts_that_the_vendor_does_not_count_are_an_error() -> None:
    vendor = FakeVendor(Quota("tokens", 10, per=1))
    with pytest.raises(ValueError, match="counts tokens; there is no 'token'"):
        vendor.call(token=5)
    with pytest.raises(ValueError, match="less than nothing"):
        vendor.call(tokens=-1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Quota("q", 0, per=1),
        lambda: Quota("q", 1, per=0),
        lambda: Quota("q", 1, per=1, burst=0),
        lambda: Quota("q", 1, per=1, cost=-1),
    ],
)
def test_a_quota_of_nothing_is_an_error(make: Callable[[], Quota]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        make()


def test_tasks_share_it_under_asyncio() -> None:
    vendor = FakeVendor(at_once=3)

    async def one() -> bool:
        async with vendor.call() as answer:
            await asyncio.sleep(0)
            return bool(answer)

    async def many() -> list[bool]:
        return await asyncio.gather(*(one() for _ in range(5)))

    assert sorted(asyncio.run(many())) == [False, False, True, True, True]
    assert vendor.most_at_once == 3


def test_threads_share_it() -> None:
    vendor = FakeVendor(Quota("requests", 500, per=3600), clock=HandClock())
    threads = [threading.Thread(target=lambda: [call(vendor) for _ in range(100)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(vendor.calls), len(vendor.violations), vendor.running) == (500, 300, 0)


# --- afterwards ---


def test_an_audit_says_what_a_vendor_would_have_refused_in_any_order() -> None:
    calls = [Call(SECOND * at, SECOND * at + 1, {"tokens": 4}) for at in (0, 1, 2, 3, 4, 5)]
    random.Random(1).shuffle(calls)
    over = audit(calls, Quota("tokens", 1, per=1, burst=8))
    assert [(v.started_ns // SECOND, v.over) for v in over] == [(2, 2), (3, 1), (5, 3)]


def test_an_end_makes_room_for_a_start_at_the_same_time() -> None:
    assert not audit([Call(5, 9), Call(0, 5)], at_once=1)
    assert len(audit([Call(4, 9), Call(0, 5)], at_once=1)) == 1


def test_a_call_without_an_end_runs_for_ever() -> None:
    assert len(audit([Call(0, None), Call(10**18, 10**18 + 1)], at_once=1)) == 1


def by_every_interval(calls: list[Call], quota: Quota, jitter: Fraction) -> list[int]:
    """The same judgement, made the long way: look at every interval that ends with a call."""
    let_in: list[Call] = []
    refused = []
    for made in calls:
        held = made.amounts[quota.name]
        over = held > quota.most + jitter * quota.amount / Fraction(quota.per_ns, SECOND)
        for before in reversed(let_in):
            held += before.amounts[quota.name]
            length = Fraction(made.started_ns - before.started_ns, SECOND) + jitter
            over = over or held > quota.most + length * quota.amount / Fraction(quota.per_ns, SECOND)
        if over and made.amounts[quota.name]:
            refused.append(made.started_ns)
        else:
            let_in.append(made)
    return refused


@pytest.mark.parametrize("seed", range(40))
def test_it_agrees_with_looking_at_every_interval(seed: int) -> None:
    rng = random.Random(seed)
    quota = Quota("n", rng.randint(1, 9), per=rng.choice([0.3, 1, 7]), burst=rng.randint(1, 12))
    jitter = Fraction(rng.choice([0, 0, 1, 250]), 1000)
    at_ns, calls = 0, []
    for _ in range(120):
        at_ns += rng.choice([0, 1, rng.randrange(SECOND), rng.randrange(quota.per_ns)])
        calls.append(Call(at_ns, at_ns, {"n": rng.choice([0, 1, 1, 2, quota.most])}))
    refused = [v.started_ns for v in audit(calls, quota, jitter=float(jitter))]
    assert refused == by_every_interval(calls, quota, jitter)
    assert refused or quota.most > 1


def test_the_examples_run() -> None:
    assert doctest.testmod(module, raise_on_error=True).attempted > 5
