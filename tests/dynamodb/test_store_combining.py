"""Takes of one bucket that come together: granted as if one by one, in as few writes as there can be."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sluice.core.bucket import EMPTY, Bucket
from sluice.core.decide import decide
from sluice.core.names import BucketKey
from sluice.core.requests import Charge, Denied, Granted, Part, Peek, RateCharge, Release, SlotsCharge, Take
from sluice.stores.dynamodb import DynamoStore, definition
from sluice.stores.dynamodb.wire import Operation
from sluice.testing import ManualClock
from sluice.testing.conformance.bench import plain
from sluice.testing.dynamodb.model import Engine, ModelWire
from sluice.wires.blocking.scope import BlockingScope

S = 1_000_000_000
KEY = BucketKey("namespace-a", "*", "openai")


class Pair:
    """A store over a model of the engine, and the core beside it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = Engine(definition("sluice"))
        self.store = self.another()
        self._buckets: dict[BucketKey, Bucket] = {}

    def another(self) -> DynamoStore:
        return DynamoStore(ModelWire(self.engine, self.clock.now_ns), "sluice", max_skew_ns=0)

    def ask(self, verb: str, requests: list[Any]) -> list[Any]:
        """Ask both, and compare."""
        self.engine.calls.clear()
        answers = list(BlockingScope(self.clock).run(getattr(self.store, verb)(requests)))
        for request, answer in zip(requests, answers, strict=True):
            changed, _, want = decide(request, self.look, self.clock.now_ns())
            self._buckets |= changed
            assert _comparable(answer) == _comparable(want), request
        return answers

    def look(self, key: BucketKey) -> Bucket:
        return self._buckets.get(key, EMPTY)

    @property
    def writes(self) -> int:
        return self.engine.calls[Operation.UPDATE_ITEM]


def _comparable(answer: Any) -> Any:
    if isinstance(answer, Granted | Denied):
        kind = (type(answer), answer.now_ns, answer.clamped)
        images = tuple(plain(image) for image in answer.images)
        if isinstance(answer, Granted):
            return (kind, images, answer.turn_ns, answer.repeated)
        return (kind, images, answer.retry_in_ns, answer.limits)
    return answer


def _of(kind: str, amount: int) -> Charge:
    return RateCharge("rpm", amount, 10, 6 * S) if kind == "rate" else SlotsCharge("slots", amount, 10, S)


def _takes(kind: str, *amounts: int) -> list[Take]:
    return [Take(f"lease {n}", (Part(KEY, (_of(kind, amount),)),)) for n, amount in enumerate(amounts)]


KINDS = pytest.mark.parametrize("kind", ["rate", "slots"])


@KINDS
def test_takes_that_all_fit_go_in_one_write(kind: str) -> None:
    pair = Pair()
    answers = pair.ask("take", _takes(kind, 1, 2, 3, 4))
    assert [type(answer) for answer in answers] == [Granted] * 4
    assert pair.writes == 1


@KINDS
def test_those_that_fit_go_in_one_write_once_the_bucket_was_seen(kind: str) -> None:
    pair = Pair()
    pair.ask("take", [Take("first", _takes(kind, 1)[0].parts)])
    answers = pair.ask("take", _takes(kind, 4, 8, 2, 4, 3, 1))
    assert [isinstance(answer, Granted) for answer in answers] == [True, False, True, False, True, False]
    assert pair.writes == 2


@KINDS
def test_takes_that_are_all_denied_cost_one_write(kind: str) -> None:
    pair = Pair()
    pair.ask("take", [Take("first", _takes(kind, 10)[0].parts)])
    answers = pair.ask("take", _takes(kind, 4, 1, 2))
    assert [type(answer) for answer in answers] == [Denied] * 3
    assert pair.writes == 1


def test_hundreds_of_takes_go_in_a_few_writes() -> None:
    pair = Pair()
    charge = RateCharge("rpm", 1, 200, S)
    answers = pair.ask("take", [Take(f"lease {n}", (Part(KEY, (charge,)),)) for n in range(300)])
    assert sum(isinstance(answer, Granted) for answer in answers) == 200
    assert pair.writes <= 7


@pytest.mark.parametrize("seed", range(40))
def test_batches_are_answered_as_the_core_answers_them_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair()
    number = 0

    def charges(sort: int) -> tuple[Charge, ...]:
        rpm = RateCharge("rpm", rng.randrange(1, 4), rng.choice((10, 10, 12)), rng.choice((S, S, S, 2 * S)))
        tpm = RateCharge("tpm", rng.randrange(1, 300), 1_000, S // 100, leave=rng.choice((0, 0, 100)))
        slot = SlotsCharge("slots", rng.choice((1, 1, 2)), 8, rng.choice((2, 5)) * S, leave=rng.choice((0, 0, 1)))
        return ((rpm,), (rpm, tpm), (slot,), (rpm, slot), (tpm, slot, rpm))[sort]

    for _ in range(120):
        sort = rng.randrange(5)
        batch = []
        for _ in range(rng.randrange(1, 9)):
            number += 1
            lease = f"lease {number if rng.random() < 0.9 else rng.randrange(number)}"
            sort = sort if rng.random() < 0.95 else rng.randrange(5)
            wait_ns = 20 * S if sort == 0 and rng.random() < 0.1 else 0
            batch.append(Take(lease, (Part(KEY, charges(sort)),), wait_ns))
        if rng.random() < 0.2:
            pair.store = pair.another()
        pair.ask("take", batch)
        pair.ask("release", [Release(KEY, request.lease_id) for request in batch if rng.random() < 0.3])
        (peeked,) = BlockingScope(pair.clock).run(pair.store.peek([Peek(KEY)]))
        assert plain(peeked.image) == plain(pair.look(KEY))  # type: ignore[union-attr]
        pair.clock.advance(ns=rng.choice((0, S // 2, S, 3 * S)))
