"""Several processes at one table of DynamoDB Local, over the real wires.

Clients decide by their own clocks, and here all have the same one, so promise 1 is held to by the times that the store
said. Nothing is claimed of speed: what is counted are grants, writes and shares of what is allowed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice import Limit, Need, Sluice
from sluice.core.requests import Denied
from sluice.stores.dynamodb import definition
from sluice.testing.dynamodb import LocalEngine
from tests.dynamodb.plain import Plain
from tests.dynamodb.proxy import Proxy

S = 1_000_000_000
ROOT = Path(__file__).parents[2]
PATIENCE = "10s"
"""Time-outs of a call: a machine that is busy with something else is no lost reply."""

TAKES_CALL = {"UpdateItem", "GetItem", "BatchGetItem"}
"""What takes, their ends and the reading of limits may call: nothing that scans or lists."""

pytestmark = pytest.mark.usefixtures("somebody")


class Place:
    """A table of its own, behind a proxy."""

    def __init__(self, proxy: Proxy, plain: Plain) -> None:
        self.proxy = proxy
        self.plain = plain
        self.table = f"processes-{uuid.uuid4()}"
        status, body = plain.call("CreateTable", definition(self.table))
        assert status == 200, body

    @property
    def url(self) -> str:
        return self.proxy.url(self.table, connect_timeout=PATIENCE, read_timeout=PATIENCE)

    @contextmanager
    def admin(self, **options: Any) -> Iterator[Sluice]:
        with Sluice(self.url, **options) as sluice:
            yield sluice

    def items(self) -> list[dict[str, Any]]:
        status, body = self.plain.call("Scan", {"TableName": self.table, "ConsistentRead": True})
        assert status == 200, body
        assert "LastEvaluatedKey" not in body
        return list(body["Items"])

    def slots(self, resource: str, limit: str) -> dict[str, Any]:
        (item,) = (item for item in self.items() if f"#{resource}#" in item["pk"]["S"])
        return dict(item[f"s:{limit}"]["M"])


@pytest.fixture
def place(engine: LocalEngine) -> Generator[Place]:
    plain = Plain(engine.port)
    with Proxy(engine.port) as proxy:
        yield Place(proxy, plain)
    plain.close()


@contextmanager
def crowd(place: Place, role: str, processes: int = 1, **order: Any) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of one role, ready to go. What is still there at the end is killed."""
    started = [_start(place, role, number, order) for number in range(processes)]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate(timeout=10)
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _start(place: Place, role: str, number: int, order: dict[str, Any]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.dynamodb.crowd"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None
    whole = {"url": place.url, "role": role, "seed": number, "resources": ["api"], "seconds": 0, **order}
    process.stdin.write(json.dumps(whole) + "\n")
    process.stdin.flush()
    return process


def go(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Have them begin."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def reports(place: Place, role: str, processes: int = 1, **order: Any) -> list[Any]:
    """Have processes do something from beginning to end, counted by the proxy; what all of them report."""
    with crowd(place, role, processes, **order) as started:
        place.proxy.forget()
        go(started)
        told = [json.loads(process.communicate(timeout=100)[0]) for process in started]
    assert set(place.proxy.calls) <= TAKES_CALL, "a take lists or scans nothing"
    return [each for report in told for each in report]


def never_over(grants: Iterable[tuple[int, int]], capacity: int, interval_ns: int) -> None:
    """Promise 1: each grant lies between two times; those that surely lie within an interval fit into it."""
    grants = sorted(grants)
    for first, (since_ns, _) in enumerate(grants):
        untils = sorted(until_ns for _, until_ns in grants[first:])
        for taken, until_ns in enumerate(untils, start=1):
            assert (taken - capacity) * interval_ns <= until_ns - since_ns


def most_at_once(held: Iterable[tuple[int, int, int]]) -> int:
    """How many were held at one moment, of (since, until, amount)."""
    changes = sorted(change for since, until, amount in held for change in ((since, 1, amount), (until, 0, -amount)))
    most = now = 0
    for _, _, amount in changes:
        now += amount
        most = max(most, now)
    return most


def test_64_tasks_in_4_processes_never_take_too_much_and_hardly_too_little(place: Place) -> None:
    with place.admin() as sluice:
        sluice.set_limits("api", [Limit("rps", "20/s burst 20")])
    grants = reports(place, "wait_in_turn", 4, tasks=16, seconds=8)
    never_over(grants, 20, S // 20)
    saturated_ns = min(since_ns for since_ns, _ in grants) + 3 * S // 2
    turns = [turn_ns for turn_ns, _ in grants if saturated_ns < turn_ns <= saturated_ns + 6 * S]
    assert len(turns) >= 0.99 * 20 * 6


def test_callers_who_wait_in_one_process_cost_hardly_more_than_a_write_a_grant(place: Place) -> None:
    with place.admin() as sluice:
        sluice.set_limits("api", [Limit("rps", "20/s burst 5"), Limit("rpm", "6000/min burst 1000")])
    grants = reports(place, "wait_in_line", tasks=16, seconds=6)
    assert len(grants) >= 0.8 * 20 * 6
    assert place.proxy.writes <= 1.1 * len(grants)


def test_a_half_busy_bucket_costs_at_most_two_writes_a_grant_and_is_hardly_ever_contended(place: Place) -> None:
    with place.admin() as sluice:
        sluice.set_limits("api", [Limit("rps", "40/s burst 40")])
    answers = reports(place, "ask_now_and_then", 2, tasks=8, clients=8, seconds=8, gap=16 / 20)
    granted = answers.count("granted")
    assert granted >= 100
    assert place.proxy.writes <= 2 * granted
    assert answers.count("contended") <= len(answers) / 100


def test_1600_debits_from_1000_are_exactly_1000(place: Place) -> None:
    with place.admin() as sluice:
        sluice.set_limits("api", [Limit("rpd", "1000/day")])
        answers = reports(place, "debit", 4, tasks=16, each=25)
        assert len(answers) == 1_600
        assert sum(answers) == 1_000
        assert sluice.peek("api").limits[0].available == 0
    (bucket,) = (item for item in place.items() if "BUCKET" in item["pk"]["S"])
    assert _used(bucket, "rpd") == 1_000


def test_no_slot_is_taken_twice_and_no_lease_lost_where_replies_get_lost(place: Place) -> None:
    with place.admin() as sluice:
        sluice.set_limits("api", [Limit("held", "5 slots ttl 30s")])
    writes = iter(range(1_000_000))
    place.proxy.drops = lambda operation, _: operation == "UpdateItem" and next(writes) % 6 == 5
    told = reports(place, "hold_slots", 2, tasks=8, seconds=6)
    assert place.proxy.dropped >= 30
    held = [(since, until, amount) for since, until, amount, lost in told if lost is False]
    assert len(held) >= 50
    assert not [each for each in told if each[3] is True], "a lease was lost that had been granted"
    assert most_at_once(held) <= 5
    place.proxy.drops = lambda *_: False
    assert place.slots("api", "held") == {}, "an end was told to nobody, or a slot was taken that nobody knows of"


def test_a_parent_beside_a_child_that_others_keep_saturated_is_still_used(place: Place) -> None:
    with place.admin() as sluice:
        sluice.set_limits("api", [Limit("rps", "20/s burst 10")])
        sluice.create_entity("org")
        for child, limit in (("hot", "2/s burst 2"), ("cool", "100/s burst 50")):
            sluice.create_entity(child, parent="org", cascade=True)
            sluice.set_limits("api", [Limit("rps", limit)], entity=child)
    seconds = 6
    grants = reports(place, "take_as_a_child", 2, tasks=16, clients=4, seconds=seconds, entities=["hot", "cool"])
    never_over(grants, 10, S // 20)
    assert len(grants) >= 0.7 * (10 + 20 * seconds)


def test_two_slot_buckets_that_are_taken_together_are_held_most_of_the_time(place: Place) -> None:
    with place.admin() as sluice:
        for resource in ("one", "two"):
            sluice.set_limits(resource, [Limit("held", "8 slots ttl 30s")])
    seconds = 6
    told = reports(place, "hold_both", 2, tasks=16, clients=16, seconds=seconds, hold=0.4, resources=["one", "two"])
    began_ns = min(since_ns for since_ns, _ in told)
    ends_ns = began_ns + seconds * S
    held_ns = sum(min(until_ns, ends_ns) - since_ns for since_ns, until_ns in told if since_ns < ends_ns)
    assert most_at_once((since_ns, until_ns, 1) for since_ns, until_ns in told) <= 8
    assert held_ns >= 0.65 * 8 * seconds * S


def test_killed_between_two_buckets_slots_lapse_and_rates_refill(place: Place) -> None:
    with place.admin() as sluice:
        sluice.set_limits("one", [Limit("held", "1 slots ttl 1s"), Limit("rps", "2/s")])
        sluice.set_limits("two", [Limit("held", "1 slots ttl 1s"), Limit("rps", "2/s")])
        seen: list[bytes] = []

        def second(operation: str, body: bytes) -> bool:
            seen.append(body)
            return operation == "UpdateItem" and _buckets(seen) == 2

        with crowd(place, "take_both", tasks=1, resources=["one", "two"]) as (process,):
            place.proxy.holds = second
            go([process])
            assert place.proxy.held.wait(30)
            process.kill()
            process.wait()
        place.proxy.holds = lambda *_: False
        taken = [
            name for name in ("one", "two") if any(item["pk"]["S"].endswith(f"#{name}#0") for item in place.items())
        ]
        assert len(taken) == 1
        assert isinstance(sluice.try_acquire(taken[0]), Denied)
        with sluice.acquire([Need("one", {"rps": 2}), Need("two", {"rps": 2})], wait=10) as lease:
            assert not lease.lost
        used = [_used(item, "rps") for item in place.items() if "BUCKET" in item["pk"]["S"]]
        assert sorted(used) == [2, 3], "what was taken is counted, and nothing else"


def _buckets(bodies: Iterable[bytes]) -> int:
    """How many buckets were written to."""
    return len({json.loads(body)["Key"]["pk"]["S"] for body in bodies if b"UpdateExpression" in body})


def _used(item: dict[str, Any], limit: str) -> int:
    return sum(int(value["N"]) for name, value in item.items() if name.startswith("u:") and name.endswith(f":{limit}"))


def test_a_purged_namespace_leaves_no_item(place: Place) -> None:
    with place.admin(config_ttl=1) as sluice:
        sluice.set_limits("api", [Limit("rps", "100/s")])
        assert sluice.try_acquire("api")
        others = {item["pk"]["S"] for item in place.items()}
        with sluice.namespace("tenant") as tenant:
            tenant.set_limits("api", [Limit("rps", "100/s"), Limit("held", "100 slots ttl 60s")])
            tenant.create_entity("org")
            for number in range(30):
                tenant.create_entity(f"child {number}", parent="org", cascade=True)
                lease = tenant.acquire("api", entity=f"child {number}", keep_alive=False)
                lease.settle(rps=3)
                lease.release()
        assert len(place.items()) > len(others) + 60
        sluice.purge_namespace("tenant")
    assert {item["pk"]["S"] for item in place.items()} == others
