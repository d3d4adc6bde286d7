"""Many clients at one table, in virtual time: what is granted, what it costs, and what a lost reply does."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.core.names import BucketKey, entry_owner
from sluice.core.requests import (
    Denied,
    Granted,
    Part,
    RateCharge,
    Release,
    Released,
    Renew,
    Renewed,
    SlotsCharge,
    Take,
    Unknown,
    Unreached,
)
from sluice.stores.dynamodb import DynamoStore
from sluice.stores.dynamodb.images import decode_bucket
from sluice.stores.dynamodb.table import bucket_key
from tests.dynamodb.timeline import MS, START_NS, Timeline

S = 1_000 * MS
KEY = BucketKey("namespace-a", "*", "openai")


async def _ask(store: DynamoStore, lease: str, *charges: Any) -> Any:
    (answer,) = await store.take([Take(lease, (Part(KEY, charges),))])
    return answer


@pytest.mark.parametrize("load_percent", [20, 50, 80])
def test_a_half_busy_bucket_costs_sixteen_clients_at_most_two_writes_a_grant(load_percent: int) -> None:
    line = Timeline(load_percent)
    charge = RateCharge("rps", 1, 200, S // 200)
    gap_ns = 16 * S * 100 // (200 * load_percent)
    answers: list[Any] = []

    async def worker(number: int) -> None:
        store = line.client()
        while True:
            await line.pause(int(line.rng.expovariate(1 / gap_ns)))
            answers.append(await _ask(store, f"{number}-{len(answers)}", charge))

    for number in range(16):
        line.start(worker(number))
    line.run(20 * S)
    granted = sum(isinstance(answer, Granted) for answer in answers)
    contended = sum(isinstance(answer, Denied) and answer.contended for answer in answers)
    assert granted > 200 * 20 * load_percent // 100 * 8 // 10
    assert line.writes <= 2 * granted
    assert contended * 100 <= len(answers)


def test_1600_debits_from_1000_are_exactly_1000() -> None:
    line = Timeline(3)
    charge = RateCharge("rpd", 1, 1_000, 86 * S)
    answers: list[Any] = []

    async def worker(number: int) -> None:
        store = line.client()
        for k in range(50):
            answers.append(await _ask(store, f"{number}-{k}", charge))
            while isinstance(answers[-1], Denied) and answers[-1].contended:
                answers[-1] = await _ask(store, f"{number}-{k}", charge)

    for number in range(32):
        line.start(worker(number))
    line.run(60 * S)
    assert len(answers) == 1_600
    assert sum(isinstance(answer, Granted) for answer in answers) == 1_000


def test_a_saturated_bucket_grants_all_that_is_allowed_and_no_more() -> None:
    line = Timeline(4)
    charge = RateCharge("rps", 1, 50, S // 50)
    turns: list[int] = []

    async def worker(number: int) -> None:
        store = line.client()
        while True:
            answer = await _ask(store, f"{number}-{len(turns)}", charge)
            if isinstance(answer, Granted):
                turns.append(answer.now_ns)
            else:
                await line.pause(answer.retry_in_ns + line.rng.randrange(30 * MS))

    for number in range(24):
        line.start(worker(number))
    line.run(20 * S)
    allowed = 50 + 50 * 20
    assert 0.99 * allowed <= len(turns) <= allowed
    turns.sort()
    for first in range(0, len(turns), 7):
        for last in range(first, len(turns), 41):
            assert last - first + 1 <= 50 + (turns[last] - turns[first]) * 50 // S + 1


def test_a_reply_that_is_lost_takes_no_slot_twice_and_loses_no_lease() -> None:
    line = Timeline(5)
    lost = 0
    charge = SlotsCharge("concurrent", 2, 9, 60 * S)
    held: dict[str, DynamoStore] = {}
    released = repeated = 0

    def faulty() -> DynamoStore:
        store = line.client(max_skew_ns=0)
        wire: Any = store._wire
        through = wire.reply

        def reply(call: Any) -> Any:
            nonlocal lost
            answer = through(call)
            if line.rng.random() < 0.3:
                lost += 1
                return Unknown("the reply was lost")
            return answer

        wire.reply = reply
        return store

    async def surely(call: Any, request: Any) -> Any:
        while True:
            (answer,) = await call([request])
            if not isinstance(answer, Unknown | Unreached):
                return answer

    async def worker(number: int) -> None:
        nonlocal released, repeated
        store = faulty()
        for k in range(40):
            lease = f"{number}-{k}"
            answer = await surely(store.take, Take(lease, (Part(KEY, (charge,)),)))
            if isinstance(answer, Granted):
                repeated += answer.repeated
                held[lease] = store
                assert 2 * len(held) <= 9
                await line.pause(20 * MS)
                assert isinstance(await surely(store.renew, Renew(KEY, lease, (charge,))), Renewed)
                del held[lease]
                released += isinstance(await surely(store.release, Release(KEY, lease)), Released)
            else:
                assert isinstance(answer, Denied)
                await line.pause(line.rng.randrange(30 * MS))

    for number in range(8):
        line.start(worker(number))
    line.run(30 * S)
    assert lost > 200
    assert repeated > 20
    bucket = decode_bucket(line.engine.items[bucket_key(KEY)])
    assert bucket.slots == {"concurrent": {}}


@pytest.mark.parametrize("seed", range(3))
def test_live_slots_never_exceed_capacity_while_holders_die(seed: int) -> None:
    line = Timeline(seed)
    charges = {amount: SlotsCharge("concurrent", amount, 5, 2 * S) for amount in (1, 2, 3)}
    until: dict[str, tuple[int, int]] = {}
    reused = 0

    def in_use() -> int:
        return sum(amount for amount, expires_ns in until.values() if expires_ns > line.now_ns)

    async def worker(number: int) -> None:
        nonlocal reused
        store = line.client(max_skew_ns=100 * MS)
        for k in range(200):
            lease, amount = f"{number}-{k}", line.rng.choice((1, 1, 2, 3))
            answer = await _ask(store, lease, charges[amount])
            if isinstance(answer, Granted):
                until[lease] = (amount, answer.now_ns + 2 * S)
                assert in_use() <= 5
                await line.pause(line.rng.randrange(200 * MS))
                if line.rng.random() < 0.5:
                    del until[lease]
                    await store.release([Release(KEY, lease)])
                else:
                    reused += 1
            else:
                await line.pause(50 * MS)

    for number in range(12):
        line.start(worker(number))
    line.run(60 * S)
    assert reused > 20


def test_a_lapsed_slot_is_anothers_only_once_every_clock_agrees() -> None:
    line = Timeline(0)
    told: list[Any] = []

    async def body() -> None:
        store = line.client(max_skew_ns=2 * S)
        slot = SlotsCharge("concurrent", 1, 1, 10 * S)
        await _ask(store, "dead", slot)
        await line.pause(START_NS + 11 * S - line.now_ns)
        told.append(await _ask(store, "early", slot))
        told.append(await _ask(store, "dead", slot))
        await line.pause(60 * S)
        told.append(await _ask(store, "late", slot))

    line.start(body())
    line.run(100 * S)
    early, again, late = told
    assert isinstance(early, Denied)
    assert 900 * MS < early.retry_in_ns < 1_100 * MS
    assert isinstance(again, Granted)
    assert not again.repeated
    assert isinstance(late, Granted)
    assert [entry_owner(entry) for entry in late.images[0].slots["concurrent"]] == ["late"]


@pytest.mark.parametrize("lapsed", [15, 20, 21, 150])
def test_lapsed_slots_make_room_however_many_there_are(lapsed: int) -> None:
    line = Timeline(0)
    told: list[Any] = []

    async def body() -> None:
        store = line.client()
        for number in range(lapsed):
            await _ask(store, f"dead {number}", SlotsCharge("concurrent", 1, lapsed, S))
        await line.pause(60 * S)
        line.writes = 0
        told.append(await _ask(line.client(), "all", SlotsCharge("concurrent", lapsed, lapsed, S)))

    line.start(body())
    line.run(600 * S)
    assert isinstance(told[0], Granted)
    assert set(map(entry_owner, told[0].images[0].slots["concurrent"])) == {"all"}
    assert line.writes <= 4
