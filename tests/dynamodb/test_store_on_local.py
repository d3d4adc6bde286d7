"""The DynamoDB store over the reference engine: what the model of it says must be true of the engine as well."""

from __future__ import annotations

import pytest

from sluice.stores.dynamodb import DynamoStore
from sluice.testing import ManualClock, conformance
from sluice.testing.dynamodb import LocalEngine
from tests.dynamodb.plain_wire import PlainWire


@pytest.fixture
def harness(engine: LocalEngine) -> conformance.Harness:
    wires: list[PlainWire] = []

    def opened(clock: ManualClock) -> DynamoStore:
        wires.append(PlainWire(engine.port, clock.now_ns))
        return DynamoStore(wires[-1], wires[-1].table, max_skew_ns=0)

    def reopened(_: object, clock: ManualClock) -> DynamoStore:
        return DynamoStore(wires[-1], wires[-1].table, max_skew_ns=0)

    return conformance.blocking(opened, reopened)


LONG = {"a_slow_limit_beside_a_fast_one_refills"}
"""Thousands of calls, which the model of the engine answers as well."""

CHECKS = [check for check in conformance.checks(joint=False) if check.name not in LONG]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_it_conforms(harness: conformance.Harness, check: conformance.Check) -> None:
    check(harness)


@pytest.mark.parametrize("seed", [1, 2])
def test_it_decides_as_the_core_does(harness: conformance.Harness, seed: int) -> None:
    conformance.differential(harness, seed, steps=800)
