"""Waiting: in turn for one rate of one bucket, in line for anything else; reserving a turn; pausing."""

import asyncio
from typing import Any

import pytest

from sluice import ConfigError, Limit, Need, RateLimited, StoreUnavailable, WaitTimeout
from sluice.core.events import TakeGranted
from tests.facade.kit import UNREACHED, Api, limits_of, opened

SECOND = 1_000_000_000


def elapsed(api: Api, call: Any) -> tuple[Any, float]:
    before_ns = api.clock.steady_ns()
    outcome = call()
    return outcome, (api.clock.steady_ns() - before_ns) / SECOND


def test_a_turn_costs_one_write_and_one_read(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min")])
    assert api.sluice.try_acquire("openai", {"rpm": 6})
    api.store.calls.clear()
    lease, waited = elapsed(api, lambda: api.sluice.acquire("openai", {"rpm": 2}, wait=30))
    assert waited == 20
    assert api.store.names() == ["take", "peek"]
    assert lease.starts_in == 0
    assert api.told(TakeGranted)[-1].waited_ns == 20 * SECOND


def test_a_wait_that_need_not_wait_reads_nothing(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min")])
    api.sluice.peek("openai")
    api.store.calls.clear()
    _, waited = elapsed(api, lambda: api.sluice.acquire("openai", wait=30))
    assert waited == 0
    assert api.store.names() == ["take"]


def test_turns_are_first_come_first_served_across_processes() -> None:
    with opened("asyncio") as api:
        api.sluice.set_limits("openai", [Limit("rpm", "60/min burst 1")])
        clients = [api.client()._it for _ in range(3)]
        served: list[tuple[int, int]] = []
        start_ns = api.clock.steady_ns()

        async def ask(number: int) -> None:
            await clients[number % 3].acquire("openai", wait=30)
            served.append((number, (api.clock.steady_ns() - start_ns) // SECOND))

        async def everybody() -> None:
            await asyncio.gather(*(ask(number) for number in range(10)))

        api.run(everybody())
        assert served == [(number, number) for number in range(10)]
        assert api.store.names().count("take") == 10


def test_a_wait_that_is_too_short_fails_at_once_and_takes_nothing(api: Api) -> None:
    api.sluice.set_limits("rate", [Limit("rpm", "6/min")])
    api.sluice.set_limits("both", [Limit("rpm", "6/min"), Limit("rph", "600/hour")])
    for resource in ("rate", "both"):
        assert api.sluice.try_acquire(resource, {"rpm": 6})
        before = api.bucket(resource)
        with pytest.raises(WaitTimeout) as timeout:
            elapsed(api, lambda: api.sluice.acquire(resource, {"rpm": 2}, wait=19.9))  # noqa: B023
        assert isinstance(timeout.value, TimeoutError)
        assert isinstance(timeout.value, RateLimited)
        assert timeout.value.retry_in == 20
        assert "19.9 s" in str(timeout.value)
        assert "too short" in str(timeout.value)
        assert api.bucket(resource) == before
        assert api.clock.steady_ns() == 1_000 * SECOND
        denied, waited = elapsed(api, lambda: api.sluice.try_acquire(resource, {"rpm": 2}, wait=19.9))  # noqa: B023
        assert not denied
        assert waited == 0


def test_several_limits_wait_in_line_and_hold_nothing_meanwhile(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min"), Limit("tpm", "1000/min", cost=0)])
    assert api.sluice.try_acquire("openai", {"rpm": 6})
    seen: list[int] = []
    api.clock.after(5, lambda: seen.append(api.free("openai", "tpm")))
    api.store.calls.clear()
    _, waited = elapsed(api, lambda: api.sluice.acquire("openai", {"tpm": 500}, wait=30))
    assert waited == 10
    assert seen == [1000]
    assert api.store.names() == ["take", "take"]


def test_a_slot_that_is_given_back_in_this_process_goes_to_who_waits_first() -> None:
    with opened("asyncio") as api:
        api.sluice.set_limits("gpu", [Limit("concurrent", "1 slots ttl 60s")])
        sluice = api.sluice._it
        order: list[int] = []

        async def work(number: int) -> None:
            async with sluice.acquire("gpu", wait=30):
                order.append(number)
                await api.sluice._it._scope.gate().wait(api.clock.steady_ns() + SECOND // 100)

        async def everybody() -> None:
            await asyncio.gather(*(work(number) for number in range(20)))

        start_ns = api.clock.steady_ns()
        api.run(everybody())
        assert order == list(range(20))
        assert api.clock.steady_ns() - start_ns < SECOND
        assert api.store.names().count("take") <= 2 * 20


def test_a_slot_that_another_process_gives_back_is_found_within_half_a_second(api: Api) -> None:
    api.sluice.set_limits("gpu", [Limit("concurrent", "1 slots ttl 60s")])
    theirs = api.rival.acquire("gpu", keep_alive=False)
    api.clock.after(5, theirs.release)
    api.store.calls.clear()
    lease, waited = elapsed(api, lambda: api.sluice.acquire("gpu", wait=30))
    assert 5 <= waited <= 5.5
    assert api.store.names().count("take") < 5 / 0.25 + 8
    lease.release()


def test_a_slot_that_comes_free_just_before_the_wait_is_over_is_still_found(api: Api) -> None:
    api.sluice.set_limits("gpu", [Limit("concurrent", "1 slots ttl 60s")])
    theirs = api.rival.acquire("gpu", keep_alive=False)
    api.clock.after(9.999, theirs.release)
    lease, waited = elapsed(api, lambda: api.sluice.acquire("gpu", wait=10))
    assert waited <= 10
    lease.release()


def test_a_wait_for_slots_lasts_as_long_as_was_allowed_and_not_longer(api: Api) -> None:
    api.sluice.set_limits("gpu", [Limit("concurrent", "1 slots ttl 60s")])
    with api.rival.acquire("gpu", keep_alive=False):
        denied, waited = elapsed(api, lambda: api.sluice.try_acquire("gpu", wait=10))
        assert not denied
        assert waited == 10
        assert limits_of(denied) == ["concurrent"]


def test_who_never_came_first_learns_what_the_first_was_told_without_asking() -> None:
    with opened("asyncio") as api:
        api.sluice.set_limits("gpu", [Limit("concurrent", "1 slots ttl 60s")])
        sluice = api.sluice._it
        theirs = api.rival.acquire("gpu", keep_alive=False)
        waits = [20, *[10] * 50]

        async def everybody() -> Any:
            return await asyncio.gather(*(sluice.try_acquire("gpu", wait=wait) for wait in waits))

        api.store.calls.clear()
        alone = 20 / 0.25 + 8
        outcomes = api.run(everybody())
        assert [limits_of(denied) for denied in outcomes] == [["concurrent"]] * len(waits)
        assert api.store.names().count("take") <= alone
        theirs.release()


def test_a_waiter_that_is_cancelled_hands_its_place_on() -> None:
    with opened("asyncio") as api:
        api.sluice.set_limits("gpu", [Limit("concurrent", "1 slots ttl 60s")])
        sluice = api.sluice._it
        theirs = api.rival.acquire("gpu", keep_alive=False)

        async def scene() -> float:
            waiters = [asyncio.create_task(sluice.acquire("gpu", wait=60)) for _ in range(3)]

            def leave() -> None:
                waiters[0].cancel()
                waiters[1].cancel()
                theirs.release()

            api.clock.after(1, leave)
            start_ns = api.clock.steady_ns()
            await (await waiters[2]).release()
            return float(api.clock.steady_ns() - start_ns) / SECOND

        assert 1 <= api.run(scene()) <= 1.5


def test_a_turn_that_is_given_up_goes_back_only_from_the_end_of_the_line() -> None:
    with opened("asyncio") as api:
        api.sluice.set_limits("openai", [Limit("rpm", "60/min burst 1")])
        sluice = api.sluice._it

        async def scene(cancelled: int) -> int:
            tasks = [asyncio.create_task(sluice.acquire("openai", wait=30)) for _ in range(4)]
            for _ in range(10):
                await asyncio.sleep(0)
            before_ns = api.bucket("openai").rates["rpm"].full_at_ns
            tasks[cancelled].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return before_ns - api.bucket("openai").rates["rpm"].full_at_ns

        assert api.run(scene(3)) == SECOND
        api.advance(60)
        assert api.run(scene(2)) == 0


def test_a_turn_that_cannot_be_confirmed_is_given_up(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min")])
    assert api.sluice.try_acquire("openai", {"rpm": 6})
    before = api.bucket("openai").rates
    api.store.fail(UNREACHED, "peek")
    with pytest.raises(StoreUnavailable, match="turn of openai"):
        api.sluice.acquire("openai", wait=30)
    assert api.bucket("openai").rates == before


def test_headroom_is_never_reserved(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "60/min burst 10")])
    assert api.sluice.try_acquire("openai", {"rpm": 8})
    seen: list[int] = []
    api.clock.after(0.5, lambda: seen.append(api.free("openai", "rpm")))
    _, waited = elapsed(api, lambda: api.sluice.acquire("openai", wait=30, headroom=0.5))
    assert waited == 4
    assert seen == [2]
    assert api.free("openai", "rpm") == 5


# --- reserving ---


def test_a_reserved_turn_starts_later_and_does_not_sleep(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min")])
    turns = [elapsed(api, lambda: api.sluice.reserve("openai")) for _ in range(9)]
    assert [waited for _, waited in turns] == [0] * 9
    assert [lease.starts_in for lease, _ in turns] == [0] * 6 + [10, 20, 30]
    api.advance(25)
    assert [lease.starts_in for lease, _ in turns] == [0] * 8 + [5]


def test_a_turn_further_away_than_within_is_refused_and_takes_nothing(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min")])
    assert api.sluice.try_acquire("openai", {"rpm": 6})
    before = api.bucket("openai")
    with pytest.raises(RateLimited, match="within=") as refused:
        api.sluice.reserve("openai", {"rpm": 3}, within=29)
    assert refused.value.retry_in == 30
    assert api.bucket("openai") == before
    assert api.sluice.reserve("openai", {"rpm": 3}, within=30).starts_in == 30


def test_only_one_rate_of_one_bucket_can_be_reserved(api: Api) -> None:
    api.sluice.set_limits("two", [Limit("rpm", "6/min"), Limit("rph", "60/hour")])
    api.sluice.set_limits("gpu", [Limit("concurrent", "1 slots ttl 60s")])
    for resource in ("two", "gpu"):
        with pytest.raises(ConfigError, match="one rate on one bucket"):
            api.sluice.reserve(resource)
    with pytest.raises(ConfigError):
        api.sluice.reserve([Need("two#rpm"), Need("gpu")])
    assert api.sluice.reserve("two#rpm").starts_in == 0
    with pytest.raises(ConfigError, match="within"):
        api.sluice.reserve("two#rpm", within=86_401)


def test_a_reserved_turn_that_is_refunded_before_it_comes_goes_back(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min")])
    assert api.sluice.try_acquire("openai", {"rpm": 6})
    first, second = api.sluice.reserve("openai"), api.sluice.reserve("openai")
    first.refund()
    assert api.sluice.reserve("openai").starts_in == 30  # somebody had come behind the first: it stays spent
    api.advance(60)
    assert api.sluice.try_acquire("openai", {"rpm": 3})
    second.release()
    turn = api.sluice.reserve("openai", {"rpm": 6})
    turn.refund()
    assert api.sluice.reserve("openai", {"rpm": 6}).starts_in == turn.starts_in


# --- pausing ---


def test_nobody_is_granted_before_a_pause_is_over(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min"), Limit("concurrent", "4 slots ttl 60s")])
    api.sluice.pause("openai", 45)
    denied = api.sluice.try_acquire("openai")
    assert denied.retry_in == 45
    assert api.sluice.peek("openai").paused_for == 45
    assert [status.available for status in api.sluice.peek("openai").limits] == [0, 0]
    api.advance(ns=45 * SECOND - 1)
    assert not api.sluice.try_acquire("openai")
    api.advance(ns=1)
    with api.sluice.acquire("openai"):
        assert api.sluice.peek("openai").paused_for == 0


def test_a_pause_is_for_one_bucket(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min")])
    api.sluice.pause("openai", 45, entity="acme")
    assert not api.sluice.try_acquire("openai", entity="acme")
    assert api.sluice.try_acquire("openai")


def test_those_who_wait_are_shifted_by_a_pause_and_not_bunched() -> None:
    with opened("asyncio") as api:
        api.sluice.set_limits("openai", [Limit("rpm", "60/min burst 1")])
        sluice = api.sluice._it
        start_ns = api.clock.steady_ns()
        at: list[float] = []

        async def ask() -> None:
            await sluice.acquire("openai", wait=60)
            at.append((api.clock.steady_ns() - start_ns) / SECOND)

        async def everybody() -> None:
            api.clock.after(2.5, lambda: api.rival.pause("openai", 10))
            await asyncio.gather(*(ask() for _ in range(6)))

        api.run(everybody())
        assert at == [0, 1, 2, 13, 14, 15]


def test_a_pause_that_moves_the_turn_past_the_wait_ends_it_and_gives_the_turn_back(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "6/min")])
    assert api.sluice.try_acquire("openai", {"rpm": 6})
    api.clock.after(5, lambda: api.rival.pause("openai", 100))
    with pytest.raises(WaitTimeout):
        api.sluice.acquire("openai", wait=30)
    api.advance(200)
    assert api.free("openai", "rpm") == 6


def test_a_pause_needs_a_time_that_can_be(api: Api) -> None:
    for seconds in (0, -1, 86_401, float("inf")):
        with pytest.raises(ConfigError, match="seconds"):
            api.sluice.pause("openai", seconds)
