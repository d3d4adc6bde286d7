"""Takes over several buckets, which DynamoDB decides one at a time: how much of what is allowed is used."""

from __future__ import annotations

import random

import pytest

from sluice.core.bucket import Bucket
from sluice.core.limits import Limit
from sluice.core.requests import Denied, Need
from sluice.flow.acquire import try_acquire
from sluice.flow.ask import read_ask
from sluice.flow.client import Client, Settings
from sluice.flow.lease import Lease
from sluice.stores.dynamodb.images import decode_bucket
from tests.dynamodb.timeline import MS, LineScope, Timeline

S = 1_000 * MS


def _client(line: Timeline, number: int) -> Client:
    scope = LineScope(line, f"host:{number}")
    return Client(line.client(), scope, scope, random.Random(number), Settings())


def _bucket(line: Timeline, resource: str) -> Bucket:
    (item,) = [item for key, item in line.engine.items.items() if key.endswith(f"/BUCKET#*#{resource}#0")]
    return decode_bucket(item)


def test_a_parent_beside_a_saturated_child_is_used() -> None:
    line = Timeline(1)
    starts: dict[str, list[int]] = {"busy": [], "free": []}
    admin = _client(line, 0)

    async def set_up() -> None:
        configuration = admin.configuration
        await configuration.set_limits("api", (Limit("rps", "50/s"),), entity=None, expect=None)
        await configuration.set_limits("api", (Limit("rps", "10/s"),), entity="busy", expect=None)
        for child in starts:
            await configuration.create_entity(child, parent="*", cascade=True, metadata=None)

    async def worker(number: int, entity: str) -> None:
        client = _client(line, number)
        while True:
            ask = read_ask("api", None, entity=entity, wait=30)
            if isinstance(await try_acquire(client, ask), Lease):
                starts[entity].append(line.now_ns)

    line.start(set_up())
    for number in range(1, 33):
        line.start(worker(number, ("busy", "free")[number % 2]), in_ns=2 * S)
    line.run(22 * S)
    used = len(starts["busy"]) + len(starts["free"])
    assert len(starts["busy"]) <= 10 + 10 * 20
    assert 0.7 * 50 * 20 <= used <= 50 + 50 * 20


@pytest.mark.parametrize("hold_ms", [100, 1_000])
def test_two_slot_buckets_taken_together_are_held_most_of_the_time(hold_ms: int) -> None:
    line = Timeline(2)
    admin = _client(line, 0)
    over_ns = line.now_ns + 32 * S
    held_ns = now_held = 0
    resources = ("gpu", "licence")

    async def set_up() -> None:
        for resource in resources:
            await admin.configuration.set_limits(
                resource, (Limit("slots", "4 slots ttl 60s"),), entity=None, expect=None
            )

    async def worker(number: int) -> None:
        nonlocal held_ns, now_held
        client = _client(line, number)
        while line.now_ns < over_ns:
            needs = [Need(resource) for resource in resources]
            if number % 2:
                needs.reverse()
            lease = await try_acquire(client, read_ask(needs, None, entity="*", wait=60))
            if isinstance(lease, Lease):
                now_held += 1
                assert now_held <= 4
                began_ns = line.now_ns
                await line.pause(line.rng.randrange(hold_ms, 2 * hold_ms) * MS)
                now_held -= 1
                await lease.end(refund=False)
                held_ns += max(0, min(line.now_ns, over_ns) - began_ns)
            else:
                assert isinstance(lease, Denied)

    line.start(set_up())
    for number in range(1, 33):
        line.start(worker(number), in_ns=2 * S)
    line.run(100 * S)
    assert held_ns >= 0.65 * 4 * 30 * S
    for resource in resources:
        assert not any(_bucket(line, resource).slots.values())
