"""NeverOver against honest clients, which it must never accuse, and against a store that grants too much."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from sluice import Denied, Lease, Limit, RateLimited, Sluice, WaitTimeout
from sluice.core.requests import Charge, Delta, Settle, SlotsCharge
from sluice.testing import ManualClock, NeverOver

LIMITS = [Limit("rpm", "6/min"), Limit("tpm", "20 per 30s burst 35", cost=0), Limit("calls", "3 slots ttl 20s", cost=0)]


class Wider:
    """A store that is asked by wider limits than those that were set."""

    def __init__(self, store: Any, rate: float, slots: int) -> None:
        self._store = store
        self._rate = rate
        self._slots = slots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def take(self, requests: Sequence[Any]) -> Any:
        return await self._store.take([self._widened(request) for request in requests])

    def _widened(self, request: Any) -> Any:
        parts = [replace(part, charges=tuple(map(self._wider, part.charges))) for part in request.parts]
        return replace(request, parts=tuple(parts))

    def _wider(self, charge: Charge) -> Charge:
        if isinstance(charge, SlotsCharge):
            return replace(charge, capacity=charge.capacity + self._slots)
        return replace(charge, interval_ns=int(charge.interval_ns / self._rate))


def client(clock: ManualClock, watch: NeverOver, *, rate: float = 1, slots: int = 0) -> Sluice:
    made = Sluice("memory://", clock=clock)
    opener = made._opener
    store: Any = lambda *how: Wider(opener(*how), rate, slots)  # noqa: E731
    made._opener = store
    watch(made)
    made.set_limits("openai", LIMITS)
    return made


def accused(watch: NeverOver) -> str:
    with pytest.raises(AssertionError) as raised:
        watch.check()
    return str(raised.value)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_honest_clients_do_it_is_never_over(seed: int) -> None:
    """Takes, waits, turns that are reserved and given up, settling, refunds, pauses, crashes, changed limits."""
    rng, clock, watch = random.Random(seed), ManualClock(), NeverOver()
    with client(clock, watch) as sluice:
        rivals = [watch_rival(sluice, clock, watch) for _ in range(3)]
        held: list[Lease] = []
        for _ in range(120):
            who = rng.choice([sluice, *rivals])
            act(rng, clock, who, held)
        watch.check()
        assert watch.granted("openai#rpm") > 10
        for lease in held:
            lease.release()


def watch_rival(sluice: Sluice, clock: ManualClock, watch: NeverOver) -> Sluice:
    rival = Sluice("memory://", clock=clock)
    rival._opener = sluice._opener  # watched already
    return rival


def act(rng: random.Random, clock: ManualClock, sluice: Sluice, held: list[Lease]) -> None:
    what = rng.choice(["take", "take", "wait", "reserve", "hold", "end", "pause", "time", "settle"])
    match what:
        case "take":
            sluice.try_acquire("openai", {"tpm": rng.randint(1, 30)})
        case "wait":
            with suppress(WaitTimeout):
                sluice.acquire("openai#rpm", wait=rng.choice([1, 15, 60]))
        case "reserve":
            with suppress(RateLimited):
                turn = sluice.reserve("openai#rpm", {"rpm": rng.randint(1, 4)}, within=rng.choice([5, 60, 600]))
                if rng.random() < 0.4:
                    turn.refund()
        case "hold":
            lease = sluice.try_acquire("openai#calls", {"calls": rng.randint(1, 2)}, keep_alive=rng.random() < 0.7)
            if not isinstance(lease, Denied):
                held.append(lease)
        case "end" if held:
            held.pop(rng.randrange(len(held))).release()
        case "pause" if rng.random() < 0.3:
            sluice.pause("openai", rng.choice([1, 20]))
        case "time":
            clock.advance(rng.choice([0.001, 1, 10, 10, 200]))
        case "settle":
            lease = sluice.try_acquire("openai", {"tpm": 20})
            if not isinstance(lease, Denied):
                lease.settle(tpm=rng.choice([0, 5, 20]))
                clock.advance(rng.choice([0, 3]))
                rng.choice([lease.release, lease.refund])()


def test_a_rate_that_is_only_a_little_too_fast_is_seen() -> None:
    clock, watch = ManualClock(), NeverOver()
    with client(clock, watch, rate=1.02) as sluice:
        for _ in range(200):
            sluice.try_acquire("openai#rpm", wait=60)
    assert "openai#rpm: " in accused(watch)


def test_a_slot_too_many_is_seen() -> None:
    clock, watch = ManualClock(), NeverOver()
    with client(clock, watch, slots=1) as sluice:
        held = [sluice.acquire("openai#calls") for _ in range(4)]
        for lease in held:
            lease.release()
    assert "openai#calls: 4 slots held at 1700000000.000000000, 3 allowed" in accused(watch)


def test_slots_count_until_they_are_released_or_lapse() -> None:
    clock, watch = ManualClock(), NeverOver()
    with client(clock, watch) as sluice:
        first = sluice.acquire("openai#calls", {"calls": 3}, keep_alive=False)
        clock.advance(20)
        second = sluice.acquire("openai#calls", {"calls": 3})
        clock.advance(100)
        second.release()
        third = sluice.acquire("openai#calls", {"calls": 3})
        watch.check()
        for lease in (first, third):
            lease.release()
        assert watch.granted("openai#calls") == 9


def test_renewed_slots_go_on_counting() -> None:
    clock, watch = ManualClock(), NeverOver()
    with client(clock, watch, slots=1) as sluice:
        held = [sluice.acquire("openai#calls", {"calls": 3})]
        clock.advance(100)
        watch.check()
        held.append(sluice.acquire("openai#calls"))
        for lease in held:
            lease.release()
    assert "openai#calls: 4 slots held at 1700000100.000000000, 3 allowed" in accused(watch)


@pytest.mark.parametrize(("rule", "after", "granted"), [("600/min", 0, 594), ("1/min", 360, 1)])
def test_a_limit_that_is_changed_is_counted_anew(rule: str, after: float, granted: int) -> None:
    clock, watch = ManualClock(), NeverOver()
    with client(clock, watch) as sluice:
        assert sum(bool(sluice.try_acquire("openai#rpm")) for _ in range(9)) == 6
        sluice.set_limits("openai", [Limit("rpm", rule)])
        sluice.refresh()
        clock.advance(after)
        assert sum(bool(sluice.try_acquire("openai#rpm")) for _ in range(granted + 9)) == granted
    watch.check()


def test_what_is_given_back_while_others_wait_is_theirs() -> None:
    """Those who wait keep the turns that they were given before; whoever comes now goes by what there is now."""
    clock, watch = ManualClock(), NeverOver()
    with client(clock, watch) as sluice:
        first = sluice.acquire("openai#rpm", {"rpm": 6})
        turns = [sluice.reserve("openai#rpm", {"rpm": 3}) for _ in range(2)]
        assert [turn.starts_in for turn in turns] == [30.0, 60.0]
        first.refund()
        clock.advance(60)
        assert sum(bool(sluice.try_acquire("openai#rpm")) for _ in range(9)) == 6
    watch.check()
    assert watch.granted("openai#rpm") == 18


class PauseForgetting(Wider):
    """A store that is paused and goes on to refill all the same."""

    async def pause(self, requests: Sequence[Any]) -> Any:
        answers = await self._store.pause(requests)
        await self._store.settle([Settle(request.key, (Delta("rpm", -6, 10 * 10**9),)) for request in requests])
        return answers


def test_turns_that_a_pause_has_shifted_count_where_they_have_come_to_be() -> None:
    clock, watch = ManualClock(), NeverOver()
    sluice = Sluice("memory://", clock=clock)
    opener = sluice._opener
    store: Any = lambda *how: PauseForgetting(opener(*how), 1, 0)  # noqa: E731
    sluice._opener = store
    with watch(sluice):
        sluice.set_limits("openai", LIMITS)
        sluice.acquire("openai#rpm", {"rpm": 6})
        assert sluice.reserve("openai#rpm", {"rpm": 6}).starts_in == 60.0
        sluice.pause("openai", 60)
        clock.advance(120)
        assert sluice.try_acquire("openai#rpm", {"rpm": 6})
    assert "12 granted from 1700000120.000000000 to 1700000120.000000000, 6 more than allowed" in accused(watch)


def test_entities_are_counted_apart() -> None:
    clock, watch = ManualClock(), NeverOver()
    with client(clock, watch) as sluice:
        for entity in ("acme", "globex", "*"):
            assert sum(bool(sluice.try_acquire("openai#rpm", entity=entity)) for _ in range(9)) == 6
    watch.check()
    assert [watch.granted("openai#rpm", entity=entity) for entity in ("acme", "*", "nobody")] == [6, 6, 0]


def test_a_client_is_watched_from_its_first_use_or_not_at_all() -> None:
    sluice = Sluice("memory://")
    assert sluice.resources() == []
    with pytest.raises(RuntimeError, match="used before it was watched"):
        NeverOver()(sluice)
