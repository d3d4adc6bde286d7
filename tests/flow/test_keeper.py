"""The keeper: it renews what is held, brings ends home, and is gone when there is nothing to keep."""

import gc
from typing import Any

import pytest

from sluice import Limit
from sluice.core.events import LeaseLapsed
from tests.facade.kit import LOST, UNKNOWN, UNREACHED, Api, flow, opened, raises

SECOND = 1_000_000_000


@pytest.fixture
def gpu(api: Api) -> Api:
    api.sluice.set_limits("gpu", [Limit("concurrent", "40 slots ttl 60s")])
    api.sluice.peek("gpu")
    api.store.calls.clear()
    return api


def test_a_lease_is_renewed_at_a_third_of_its_ttl(gpu: Api) -> None:
    with gpu.sluice.acquire("gpu") as lease:
        gpu.advance(19.9)
        assert gpu.store.names() == ["take"]
        gpu.advance(0.2)
        assert gpu.store.names() == ["take", "renew"]
        gpu.advance(600)
        assert 30 <= gpu.store.names().count("renew") <= 32
        assert not lease.lost
        assert gpu.live("gpu") == 1


def test_all_leases_of_a_client_are_renewed_in_one_batch(gpu: Api) -> None:
    gpu.sluice.set_limits("cpu", [Limit("concurrent", "4 slots ttl 90s")])
    held = [gpu.sluice.acquire("gpu") for _ in range(20)]
    gpu.advance(5)
    held += [gpu.sluice.acquire("cpu"), gpu.sluice.acquire("gpu", ttl=300)]
    gpu.store.calls.clear()
    gpu.advance(15.5)
    assert gpu.store.names() == ["renew"]
    assert len(gpu.store.requests("renew")) == len(held)
    for lease in held:
        lease.release()


def test_more_than_a_batch_is_renewed_in_several(api: Api) -> None:
    api.sluice.set_limits("gpu", [Limit("concurrent", "250 slots ttl 60s")])
    held = [api.sluice.acquire("gpu") for _ in range(250)]
    api.store.calls.clear()
    api.advance(20)
    assert [len(requests) for name, requests in api.store.calls if name == "renew"] == [100, 100, 50]
    for lease in held:
        lease.release()


def test_what_was_taken_more_is_renewed_with_its_lease(gpu: Api) -> None:
    with gpu.sluice.acquire("gpu") as lease:
        lease.more(concurrent=3)
        gpu.advance(300)
        assert gpu.live("gpu") == 4
    assert gpu.live("gpu") == 0


def test_nothing_is_renewed_without_keep_alive(gpu: Api) -> None:
    lost: list[str] = []
    lease = gpu.sluice.acquire("gpu", keep_alive=False, on_lost=lambda: lost.append("lost"))
    gpu.advance(59.9)
    assert not lease.lost
    gpu.advance(0.1)
    assert lease.lost
    assert gpu.live("gpu") == 0
    assert gpu.store.names() == ["take"]
    lease.release()


def test_a_lease_of_rates_alone_needs_no_keeper(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "60/min")])
    lease = api.sluice.acquire("openai")
    assert flow(lease).client.keeper._over is None
    api.advance(300)
    assert not lease.lost
    assert api.store.names().count("renew") == 0


def runs(keeper: Any) -> bool:
    return keeper._over is not None


def test_the_keeper_is_gone_soon_after_nothing_is_left_to_keep(gpu: Api) -> None:
    with gpu.sluice.acquire("gpu") as lease:
        keeper: Any = flow(lease).client.keeper
        assert runs(keeper)
    gpu.advance(2.5)
    assert not runs(keeper)
    with gpu.sluice.acquire("gpu"):
        assert runs(keeper)
        gpu.advance(300)
        assert gpu.live("gpu") == 1


def test_a_renewal_without_an_answer_is_no_loss(gpu: Api) -> None:
    with gpu.sluice.acquire("gpu", on_lost=lambda: pytest.fail("it was renewed in time")) as lease:
        for fault in (UNREACHED, UNKNOWN, LOST, raises(gpu_error())):
            gpu.store.fail(fault, "renew")
            gpu.advance(38)
            assert not lease.lost
            gpu.store.heal()
            gpu.advance(21)
            assert not lease.lost
        assert gpu.told(LeaseLapsed) == []


def gpu_error() -> Exception:
    from sluice import ConfigError

    return ConfigError("permission denied for a while")


def test_a_store_that_comes_back_a_second_before_a_lease_would_lapse_keeps_it() -> None:
    for _ in range(30):
        with opened("blocking") as api:
            api.sluice.set_limits("gpu", [Limit("concurrent", "4 slots ttl 60s")])
            with api.sluice.acquire("gpu") as lease:
                api.store.fail(UNREACHED, "renew")
                api.advance(59)
                api.store.heal()
                api.advance(30)
                assert not lease.lost


@pytest.mark.parametrize("fault", [UNREACHED, UNKNOWN])
def test_a_lease_that_could_not_be_renewed_is_lost_at_its_ttl_and_told_once(gpu: Api, fault: Any) -> None:
    lost_at: list[float] = []
    start_ns = gpu.clock.steady_ns()
    lease = gpu.sluice.acquire("gpu", on_lost=lambda: lost_at.append((gpu.clock.steady_ns() - start_ns) / SECOND))
    gpu.store.fail(fault, "renew")
    gpu.advance(59.999)
    assert not lease.lost
    gpu.advance(0.001)
    assert lease.lost
    gpu.advance(10)
    assert lost_at
    assert 60 <= lost_at[0] <= 66
    gpu.store.heal()
    gpu.advance(100)
    assert len(lost_at) == 1
    assert [event.lease_id for event in gpu.told(LeaseLapsed)] == [lease.id]
    assert gpu.live("gpu") == 0
    lease.release()


def test_a_lease_that_the_store_no_longer_knows_is_lost_at_the_next_renewal(gpu: Api) -> None:
    lost: list[str] = []
    lease = gpu.sluice.acquire("gpu", on_lost=lambda: lost.append("lost"))
    gpu.state.buckets.clear()
    gpu.advance(20)
    assert lease.lost
    assert lost == ["lost"]
    lease.release()


def test_a_wall_clock_that_jumps_ahead_says_first_that_a_lease_is_lost(gpu: Api) -> None:
    lease = gpu.sluice.acquire("gpu", keep_alive=False)
    gpu.clock.step(59)
    assert not lease.lost
    gpu.clock.step(1)
    assert lease.lost
    lease.release()


def test_a_wall_clock_that_jumps_back_keeps_no_lease_for_longer(gpu: Api) -> None:
    lease = gpu.sluice.acquire("gpu", keep_alive=False)
    gpu.clock.step(-3600)
    gpu.advance(59)
    assert not lease.lost
    gpu.advance(1)
    assert lease.lost
    lease.release()


def test_a_callback_or_observer_that_raises_stops_nothing(gpu: Api, caplog: pytest.LogCaptureFixture) -> None:
    def boom() -> None:
        raise RuntimeError("a user's mistake")

    lease = gpu.sluice.acquire("gpu", on_lost=boom)
    with gpu.sluice.acquire("gpu", ttl=600) as other:
        gpu.state.buckets.update({key: type(b)() for key, b in gpu.state.buckets.items()})
        gpu.advance(20)
        assert lease.lost
        assert other.lost
    assert caplog.text.count("a user's mistake") >= 1
    lease.release()
    with gpu.sluice.acquire("gpu"):
        gpu.advance(300)
        assert gpu.live("gpu") == 1


def test_a_keeper_that_cannot_be_started_costs_no_lease(gpu: Api, caplog: pytest.LogCaptureFixture) -> None:
    first = gpu.sluice.acquire("gpu", keep_alive=False)
    client: Any = flow(first).client
    spawn = client.scope.spawn

    def no_thread(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    client.scope.spawn = no_thread
    second = gpu.sluice.acquire("gpu")
    assert "could not be started" in caplog.text
    assert not runs(client.keeper)
    client.scope.spawn = spawn
    with gpu.sluice.acquire("gpu"):
        gpu.advance(300)
        assert not second.lost
    for lease in (first, second):
        lease.release()


def test_a_lease_that_is_dropped_warns_and_lapses(gpu: Api) -> None:
    held = [gpu.sluice.acquire("gpu")]
    gpu.advance(30)
    with pytest.warns(ResourceWarning, match="dropped without being released"):
        drop(held)
    gpu.advance(49)  # it was renewed after 20 s, the last time
    assert gpu.live("gpu") == 1
    gpu.advance(1)
    assert gpu.live("gpu") == 0


def drop(held: list[Any]) -> None:
    held.clear()
    gc.collect()


def test_a_lease_of_rates_may_be_dropped(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "60/min")])
    api.sluice.acquire("openai")
    gc.collect()


def test_a_lease_that_was_refused_or_ended_may_be_dropped(gpu: Api) -> None:
    gpu.sluice.acquire("gpu", {"concurrent": 40}).release()
    with gpu.sluice.acquire("gpu", {"concurrent": 40}):
        assert not gpu.sluice.try_acquire("gpu")
    gc.collect()


def test_ends_that_hang_do_not_keep_the_keeper_from_renewing() -> None:
    with opened("blocking") as api:
        api.sluice.set_limits("gpu", [Limit("concurrent", "40 slots ttl 30s")])
        api.sluice.set_limits("slow", [Limit("concurrent", "40 slots ttl 600s")])
        pending = [api.sluice.acquire("slow") for _ in range(20)]

        def hang() -> None:
            api.clock.move_to(api.clock.steady_ns() + 2 * SECOND)
            api.store.before["release"] = hang

        with api.sluice.acquire("gpu") as lease:
            api.store.fail(UNREACHED, "release")
            for one in pending:
                with one:
                    pass
            api.store.before["release"] = hang
            api.advance(100)
            assert not lease.lost
            api.store.heal()
            del api.store.before["release"]
