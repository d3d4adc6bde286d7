"""The DynamoDB store is a store: over a model of the engine, blocking and under asyncio."""

import asyncio
from collections.abc import Sequence

import pytest

from sluice.stores.dynamodb import DynamoStore, definition
from sluice.stores.dynamodb.wire import Call, Reply
from sluice.testing import ManualClock, conformance
from sluice.testing.dynamodb.model import Engine, ModelWire

TABLE = "sluice"


class SuspendingWire(ModelWire):
    """A wire that lets others run before it answers."""

    async def send(self, calls: Sequence[Call], /) -> list[Reply]:
        await asyncio.sleep(0)
        return await super().send(calls)


class _Kept:
    """Stores of which the next can go on with the last one's table."""

    def __init__(self, wire: type[ModelWire]) -> None:
        self._wire = wire
        self._engine = Engine(definition(TABLE))

    def open(self, clock: ManualClock) -> DynamoStore:
        self._engine = Engine(definition(TABLE))
        return self.reopen(None, clock)

    def reopen(self, _: object, clock: ManualClock) -> DynamoStore:
        return DynamoStore(self._wire(self._engine, clock.now_ns), TABLE, max_skew_ns=0)


BLOCKING = _Kept(ModelWire)
SUSPENDING = _Kept(SuspendingWire)
HARNESSES = {
    "blocking": conformance.blocking(BLOCKING.open, BLOCKING.reopen),
    "asyncio": conformance.asynchronous(SUSPENDING.open, SUSPENDING.reopen),
}


@pytest.mark.parametrize("check", conformance.checks(joint=False), ids=str)
@pytest.mark.parametrize("harness", HARNESSES)
def test_it_conforms(harness: str, check: conformance.Check) -> None:
    check(HARNESSES[harness])


@pytest.mark.parametrize("seed", range(4))
def test_it_decides_as_the_core_does(seed: int) -> None:
    conformance.differential(HARNESSES["blocking"], seed, steps=2_000)


def test_it_decides_as_the_core_does_under_asyncio() -> None:
    conformance.differential(HARNESSES["asyncio"], seed=100, steps=1_000)
