"""The DynamoDB store keeps its promises in the simulated world: whole requests by one clock, single calls by many."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sluice.testing.dynamodb.calls import CallFault
from sluice.testing.dynamodb.simulated import attempted, engine, simulate_calls
from sluice.testing.simulate import simulate
from sluice.testing.simulation.faults import Fault

WHOLE = 600
"""Schedules in which faults befall whole requests."""

CALLS = 1_600
"""Schedules in which faults befall single calls."""

PARTS = 4
"""The schedules are run in so many parts, for the workers of a test run to share."""

SELDOM = (CallFault.CLOCKS_APART, CallFault.INDEX_LATE, CallFault.CONFLICT)
"""The first two strike once a run; only transactions are in conflict."""


@pytest.mark.parametrize("part", range(PARTS))
def test_whole_requests_are_decided_as_the_promises_say_to_the_nanosecond(part: int) -> None:
    report = simulate(range(part * WHOLE // PARTS, (part + 1) * WHOLE // PARTS), engines=[engine()])
    assert report.failure is None, str(report)
    assert report.engines == {"dynamodb": WHOLE // PARTS}
    for fault in Fault:
        assert report.fired[fault] >= 10, f"{fault}\n{report}"


@pytest.mark.parametrize("part", range(PARTS))
def test_no_claim_breaks_when_faults_befall_single_calls_and_clocks_are_apart(part: int) -> None:
    report = simulate_calls(range(part * CALLS // PARTS, (part + 1) * CALLS // PARTS))
    assert not report.failure, str(report)
    for fault in CallFault:
        assert report.fired[fault] >= (50 if fault in SELDOM else 100), f"{fault}\n{report}"
    assert report.granted >= report.runs
    assert report.denied >= report.runs
    assert report.contended <= report.granted // 100, str(report)


def test_a_schedule_is_the_same_each_time() -> None:
    seed = str(random.Random(6).randrange(10_000))
    first, second = (attempted(seed)[0] for _ in range(2))
    assert first.network.story == second.network.story
    assert first.network.calls == second.network.calls > 0
    assert Counter(first.roads.fired) == Counter(second.roads.fired)
