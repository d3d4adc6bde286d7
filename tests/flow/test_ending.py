"""The end of a lease reaches the store exactly once, whoever sends it and whatever interrupts it."""

import asyncio
from typing import Any

import pytest

from sluice import ConfigError, Limit, StoreUnavailable
from sluice.core.events import EndFailed, LeaseEnded
from tests.facade.kit import LOST, UNREACHED, Api, Fault, opened, raises

LIMITS = [Limit("tpd", "1000/day"), Limit("concurrent", "4 slots ttl 60s")]


def spend(api: Api) -> None:
    """Use half of the limit up, so that what is given back too often would show."""
    api.sluice.set_limits("openai", LIMITS)
    api.sluice.acquire("openai#tpd", {"tpd": 500})


@pytest.fixture
def spent(api: Api) -> Api:
    spend(api)
    return api


# --- by one sender at a time ---


def test_closing_while_a_caller_ends_a_lease_sends_the_end_once() -> None:
    with opened("asyncio") as api:
        spend(api)

        async def scene() -> None:
            sluice = api.sluice._it
            lease = await sluice.acquire("openai", {"tpd": 100})
            lease.settle(tpd=40)
            api.store.suspends = True
            api.store.calls.clear()
            ending = asyncio.create_task(lease.release())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await sluice.aclose()
            await ending

        api.run(scene())
        assert api.store.names() == ["release", "close"]
        assert api.free("openai", "tpd") == 460


def test_an_end_that_two_ask_for_again_is_sent_by_one_after_the_other() -> None:
    with opened("asyncio") as api:
        spend(api)

        async def scene() -> None:
            lease = await api.sluice._it.acquire("openai", {"tpd": 100})
            lease.settle(tpd=40)
            api.store.fail(UNREACHED, "release")
            with pytest.raises(StoreUnavailable):
                await lease.release()
            api.store.heal()
            api.store.suspends = True
            api.store.calls.clear()
            await asyncio.gather(lease.release(), lease.release(), lease.release())

        api.run(scene())
        assert api.store.names() == ["release"]
        assert api.free("openai", "tpd") == 460


def test_ending_by_hand_while_the_keeper_is_at_it_sends_nothing_twice() -> None:
    with opened("asyncio") as api:
        spend(api)

        async def scene() -> None:
            lease = await api.sluice._it.acquire("openai", {"tpd": 100})
            lease.settle(tpd=40)
            api.store.fail(UNREACHED, "release")
            async with lease:
                pass
            api.store.heal()
            api.store.suspends = True
            api.store.calls.clear()
            while not api.store.calls:
                api.clock.move_to(api.clock.steady_ns() + 10_000_000)
                for _ in range(3):
                    await asyncio.sleep(0)
                    if api.store.calls:
                        break
            await lease.release()

        api.run(scene())
        assert api.store.names() == ["release"]
        assert api.free("openai", "tpd") == 460


# --- however it is interrupted ---


class Interrupted(BaseException):
    """What a signal handler may raise at any time."""


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("again", [None, False, True])
@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("how", ["leave", "settle", "refund"])
def test_an_interruption_at_any_call_leaves_no_slot_and_gives_nothing_back_twice(
    how: str, number: int, again: bool | None, applied: bool
) -> None:
    with opened("blocking", joint=False) as api:
        spend(api)
        api.sluice.create_entity("acme", "*", cascade=True)
        api.sluice.resolve_limits("openai", entity="acme")
        api.store.calls.clear()
        api.store.at[number] = raises(Interrupted(), applied=applied)
        if again is not None:
            api.store.at[number + 1] = raises(Interrupted(), applied=again)
        got = use(api, how)
        assert len(api.store.calls) >= min(number, 2)
        api.store.heal()
        api.advance(70)
        taken = {"leave": 100, "settle": 40, "refund": 0}[how] if got else 0
        assert api.live("openai") == api.live("openai", "acme") == 0
        assert 500 - 100 <= api.free("openai", "tpd") <= 500 - taken
        assert 1000 - 100 <= api.free("openai", "tpd", "acme") <= 1000 - taken
        if again is None and not applied:
            assert api.free("openai", "tpd") == 500 - taken
            assert api.free("openai", "tpd", "acme") == 1000 - taken


def use(api: Api, how: str) -> bool:
    """Take, hold and end a lease; whether it was had."""
    got = False
    try:
        with api.sluice.acquire("openai", {"tpd": 100}, entity="acme") as lease:
            got = True
            if how == "settle":
                lease.settle(tpd=40)
            if how == "refund":
                lease.refund()
    except Interrupted:
        pass
    return got


@pytest.mark.parametrize("applied", [False, True])
def test_a_give_back_of_rates_that_was_interrupted_is_never_sent_twice(applied: bool) -> None:
    with opened("blocking") as api:
        spend(api)
        lease = api.sluice.acquire("openai#tpd", {"tpd": 100})
        lease.settle(tpd=40)
        api.store.next["settle"].append(raises(Interrupted(), applied=applied))
        with pytest.raises(Interrupted):
            lease.release()
        api.advance(61)
        assert api.store.names().count("settle") == 1
        assert api.free("openai", "tpd") == (460 if applied else 400)


@pytest.mark.parametrize("applied", [False, True])
def test_an_adjustment_that_was_interrupted_never_comes_back_twice(applied: bool) -> None:
    with opened("blocking") as api:
        spend(api)
        lease = api.sluice.acquire("openai#tpd", {"tpd": 100})
        api.store.next["settle"].append(raises(Interrupted(), applied=applied))
        with pytest.raises(Interrupted):
            lease.adjust(tpd=-60)
        lease.settle(tpd=0)
        lease.release()
        assert api.free("openai", "tpd") == (500 if applied else 440)


# --- until the lease expires ---


@pytest.mark.parametrize("fault", [UNREACHED, raises(ConfigError("permission denied"))])
def test_an_end_that_cannot_be_sent_is_tried_until_the_lease_expires_and_then_reported(
    spent: Api, fault: Fault
) -> None:
    with spent.sluice.acquire("openai", {"tpd": 100}) as lease:
        lease.settle(tpd=40)
        spent.store.fail(fault, "release", "renew")
    spent.advance(55)
    tried = spent.store.names().count("release")
    assert tried > 20
    assert spent.told(EndFailed) == []
    spent.advance(10)
    (failed,) = spent.told(EndFailed)
    assert failed.lease_id == lease.id
    assert failed.unsettled == {"openai#tpd": -60}
    assert failed.why in {"no route", "permission denied"}
    assert spent.told(LeaseEnded) == []
    tried = spent.store.names().count("release")
    spent.advance(60)
    assert spent.store.names().count("release") == tried
    assert spent.live("openai") == 0


def test_an_end_that_comes_through_later_settles_and_is_told_once(spent: Api) -> None:
    spent.store.fail(UNREACHED, "release")
    with spent.sluice.acquire("openai", {"tpd": 100}) as lease:
        lease.settle(tpd=40)
    spent.advance(20)
    assert spent.told(LeaseEnded) == []
    assert spent.live("openai") == 1
    spent.store.heal()
    spent.advance(1)
    assert spent.live("openai") == 0
    assert spent.free("openai", "tpd") == 460
    assert spent.told(LeaseEnded) == [LeaseEnded(lease.id)]


def test_the_end_of_rates_alone_is_tried_for_a_minute(spent: Api) -> None:
    spent.store.fail(UNREACHED, "settle")
    with spent.sluice.acquire("openai#tpd", {"tpd": 100}) as lease:
        lease.settle(tpd=40)
    spent.advance(50)
    assert spent.told(EndFailed) == []
    spent.advance(20)
    assert [event.unsettled for event in spent.told(EndFailed)] == [{"openai#tpd": -60}]


def test_an_end_in_several_steps_goes_on_where_it_stopped(apart: Api) -> None:
    apart.sluice.set_limits("openai", LIMITS)
    apart.sluice.create_entity("acme", "*", cascade=True)
    for entity in ("*", "acme"):
        apart.rival.acquire("openai#tpd", {"tpd": 400}, limits=LIMITS, entity="other")
        apart.rival.acquire("openai#tpd", {"tpd": 400}, entity=entity) if entity == "*" else None
    with apart.sluice.acquire("openai", {"tpd": 100}, entity="acme") as lease:
        lease.settle(tpd=30)
        apart.store.next["release"].extend([LOST, UNREACHED, LOST])
    apart.advance(5)
    assert (apart.live("openai"), apart.live("openai", "acme")) == (0, 0)
    assert apart.free("openai", "tpd") == 600 - 30
    assert apart.free("openai", "tpd", "acme") == 970


# --- closing ---


def test_closing_sends_what_is_pending(spent: Api) -> None:
    spent.store.fail(UNREACHED, "release")
    with spent.sluice.acquire("openai", {"tpd": 100}) as lease:
        lease.settle(tpd=40)
    spent.store.heal()
    before_ns = spent.clock.steady_ns()
    spent.sluice.close()
    assert spent.clock.steady_ns() == before_ns
    assert spent.live("openai") == 0
    assert spent.free("openai", "tpd") == 460
    assert spent.store.names()[-1] == "close"


def test_closing_reports_what_it_could_not_send_within_two_seconds(spent: Api) -> None:
    spent.store.fail(UNREACHED, "release")
    leases: list[Any] = []
    for _ in range(4):
        with spent.sluice.acquire("openai", {"tpd": 10}) as lease:
            lease.settle(tpd=40)
            leases.append(lease)
    before_ns = spent.clock.steady_ns()
    spent.sluice.close()
    assert (spent.clock.steady_ns() - before_ns) / 1e9 <= 2.5
    assert {event.lease_id for event in spent.told(EndFailed)} == {lease.id for lease in leases}


def test_closing_is_bounded_however_many_ends_are_pending_at_a_store_that_hangs() -> None:
    with opened("blocking") as api:
        api.sluice.set_limits("openai", [Limit("concurrent", "40 slots ttl 600s")])
        held = [api.sluice.acquire("openai") for _ in range(30)]
        api.store.fail(UNREACHED, "release")
        for lease in held:
            with lease:
                pass

        def hang() -> None:
            api.clock.move_to(api.clock.steady_ns() + 2_000_000_000)
            api.store.before["release"] = hang

        api.store.before["release"] = hang
        before_ns = api.clock.steady_ns()
        api.sluice.close()
        assert (api.clock.steady_ns() - before_ns) / 1e9 <= 2 + 2 * 2
        assert len({event.lease_id for event in api.told(EndFailed)}) == 30


def test_a_client_can_be_used_again_after_it_was_closed(spent: Api) -> None:
    spent.sluice.close()
    spent.sluice.close()
    with spent.sluice.acquire("openai"):
        assert spent.live("openai") == 1
    assert spent.live("openai") == 0


def test_a_lease_that_is_held_while_its_client_is_closed_can_still_end(spent: Api) -> None:
    with spent.sluice.acquire("openai", {"tpd": 100}) as lease:
        lease.settle(tpd=40)
        spent.sluice.close()
    assert spent.live("openai") == 0
    assert spent.free("openai", "tpd") == 460
