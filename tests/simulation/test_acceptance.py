"""What a limit must let through, in simulated hours: all that is allowed, no more, and each limit all of its own."""

import subprocess
import sys

import pytest

from sluice.core.limits import Limit
from sluice.core.requests import Denied
from sluice.flow.client import Client
from tests.simulation.stage import ANY_LATENCY, HOUR, MS, SECOND, Latency, Stage, ask

LATENCIES = [(MS // 10, MS // 10), (MS, 5 * MS), (20 * MS, 20 * MS), ANY_LATENCY]


def test_a_saturated_hour_of_50_a_second_grants_99_to_100_per_cent() -> None:
    # In a process of its own, which is not slowed by the measuring of coverage.
    script = "from tests.simulation.stage import granted_in_a_saturated_hour as hour; print(hour())"
    granted = int(subprocess.check_output([sys.executable, "-c", script], text=True))
    allowed = 50 + 50 * 3600
    assert 0.99 * allowed <= granted <= allowed


@pytest.mark.parametrize("latency", LATENCIES)
def test_callers_that_do_not_wait_get_all_that_is_allowed_at_any_latency(latency: Latency) -> None:
    with Stage([Limit("rps", "50/s")], latency=latency) as stage:
        # 10 callers, each asking every 100 ms at most: twice the limit
        stage.saturate(0, 120 * SECOND, processes=5, callers=4, gap_ns=100 * MS)
        stage.run_until(120 * SECOND)
        allowed = 50 + 50 * 120
        assert 0.99 * allowed <= len(stage.granted_ns) <= allowed


@pytest.mark.parametrize("latency", LATENCIES)
def test_callers_that_wait_in_line_for_two_limits_get_all_that_is_allowed(latency: Latency) -> None:
    with Stage([Limit("rps", "50/s"), Limit("tpm", "3000/min", cost=1)], latency=latency) as stage:
        stage.saturate(30, 60 * SECOND, processes=2, callers=8)
        stage.run_until(60 * SECOND)
        allowed = 50 + 50 * 60
        assert 0.99 * allowed <= len(stage.granted_ns) <= allowed


@pytest.mark.parametrize("rate", ["10/s burst 1", "50/s burst 5"])
def test_no_process_starves_another_that_waits_in_line_for_the_same_limits(rate: str) -> None:
    with Stage([Limit("rps", rate), Limit("tpm", "100k/min")], latency=(MS, 3 * MS)) as stage:
        waited_ns: dict[str, list[int]] = {}

        async def keep_waiting(client: Client) -> None:
            while True:
                asked_ns = stage.world.now_ns
                await stage.take(client, ask(wait=3600))
                waited_ns.setdefault(client.process, []).append(stage.world.now_ns - asked_ns)

        for number in range(7):
            client = stage.client(number)
            for _ in range(3):
                stage.start(client, keep_waiting(client))
        stage.run_until(240 * SECOND)
        grants = len(stage.granted_ns)
        shares = [len(waits) for waits in waited_ns.values()]
        assert len(shares) == 7
        assert min(shares) >= grants // 7 // 2
        in_a_queue_ns = 21 * 240 * SECOND // grants
        assert sorted(wait for waits in waited_ns.values() for wait in waits)[grants * 99 // 100] <= 8 * in_a_queue_ns


def test_a_slow_limit_beside_a_fast_one_on_one_bucket_gets_all_of_its_own_refill() -> None:
    with Stage([Limit("rps", "100/s"), Limit("rpd", "5000/day")]) as stage:
        until_ns = 3 * HOUR
        stage.saturate(3600, until_ns, processes=3, callers=4)
        stage.run_until(until_ns)
        first_ns = 45 * SECOND  # until the day's are spent, the fast limit is the one that binds
        assert 0.99 * (100 + 100 * 45) <= stage.granted_between(0, first_ns) <= 100 + 100 * 45
        allowed = 5000 + 3 * 3600 * 5000 // 86400
        assert 0.99 * allowed <= len(stage.granted_ns) <= allowed
        refilled = stage.granted_between(HOUR, until_ns)
        assert refilled in range(2 * 3600 * 5000 // 86400 - 2, 2 * 3600 * 5000 // 86400 + 2)


def test_after_an_idle_spell_a_bucket_of_ten_grants_exactly_ten_at_once() -> None:
    with Stage([Limit("r", "10 per 10s")]) as stage:
        client = stage.client(0)
        stage.start(client, stage.keep_asking(client, ask(), 1))
        stage.run_until(21 * SECOND)
        assert len(stage.granted_ns) == 1
        for _ in range(40):
            stage.start(client, stage.keep_asking(client, ask(), stage.world.now_ns + 1))
        stage.run_until(21 * SECOND + 200 * MS)
        assert len(stage.granted_ns) == 1 + 10


def test_an_exhausted_hourly_limit_that_is_raised_grants_within_one_interval_of_the_new_one() -> None:
    with Stage([Limit("r", "1000/hour")], latency=(MS, MS), config_ttl_ns=10 * SECOND) as stage:
        client = stage.client(0)
        outcomes: list[object] = []

        async def exhaust() -> None:
            outcomes.append(await stage.take(client, ask(r=1000)))
            outcomes.append(await stage.take(client, ask()))

        stage.start(client, exhaust())
        stage.run_until(5 * SECOND)
        assert not isinstance(outcomes[0], Denied)
        assert isinstance(outcomes[1], Denied)
        stage.granted_ns.clear()
        stage.set_limits([Limit("r", "10/s burst 1000")])
        stage.start(client, stage.keep_asking(client, ask(), 60 * SECOND, gap_ns=2 * MS))
        stage.run_until(30 * SECOND)
        in_force_ns = (5 + 10) * SECOND
        assert stage.granted_ns[0] <= in_force_ns + SECOND // 10 + 10 * MS
        assert stage.granted_between(in_force_ns, in_force_ns + 10 * SECOND) in range(99, 102)


def test_a_limit_lowered_while_busy_binds_from_the_next_cache_lifetime() -> None:
    with Stage([Limit("r", "100/s burst 10")], config_ttl_ns=2 * SECOND) as stage:
        stage.saturate(0, 60 * SECOND, processes=4, callers=4, gap_ns=20 * MS)
        stage.run_until(10 * SECOND)
        before = stage.granted_between(5 * SECOND, 10 * SECOND)
        assert 0.99 * 500 <= before <= 510
        stage.set_limits([Limit("r", "5/s burst 10")])
        stage.run_until(32 * SECOND)
        after = stage.granted_between(12 * SECOND, 32 * SECOND)
        assert after <= 10 + 5 * 20
        assert after >= 0.99 * 5 * 20 - 1
