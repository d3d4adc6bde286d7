"""What the processes of the process tests do. Each is told by one line of JSON what, and answers with another.

    python -m tests.dynamodb.crowd        {"role": ..., "url": ..., "tasks": ..., ...}  ->  ready  <- go  ->  [...]

All times are wall-clock nanoseconds of this host, which is the clock by which DynamoDB's clients decide.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from sluice import AsyncSluice, Need
from sluice.core.errors import RateLimited, StoreUnavailable
from sluice.core.requests import Denied

PATIENCE = 20.0
"""Seconds within which an operation must be done on a machine that is busy with something else."""

WARMING = 3
"""Rounds of reading by all tasks before it counts: connections are open then, and limits known."""

Order = dict[str, Any]
Report = list[Any]
Work = Callable[["Member"], Awaitable[None]]


class Member:
    """One task of a process: its client, its order, and where it reports to."""

    def __init__(self, order: Order, number: int, sluice: AsyncSluice, report: Report) -> None:
        self.order = order
        self.number = number
        self.sluice = sluice
        self.report = report
        self.rng = random.Random(f"{order['seed']}/{number}")
        self.until_ns = 0

    def goes_on(self) -> bool:
        return time.time_ns() < self.until_ns


async def wait_in_turn(member: Member) -> None:
    """Wait for turns of one rate, one after another; report between which times each came, by the store."""
    while member.goes_on():
        asked_ns = time.time_ns()
        try:
            async with member.sluice.acquire("api#rps", wait=20) as lease:
                turn = lease._state.turn
                member.report.append([asked_ns, time.time_ns()] if turn is None else [turn.at_ns, turn.at_ns])
        except RateLimited:
            continue


async def wait_in_line(member: Member) -> None:
    """Wait for all limits of a resource, one after another; report how often that was granted."""
    while member.goes_on():
        try:
            async with member.sluice.acquire("api", wait=20):
                member.report.append(1)
        except RateLimited:
            continue


async def ask_now_and_then(member: Member) -> None:
    """Ask at random times, on average every ``gap`` seconds; report each answer."""
    while member.goes_on():
        await asyncio.sleep(member.rng.expovariate(1 / member.order["gap"]))
        answer = await member.sluice.try_acquire("api")
        contended = isinstance(answer, Denied) and answer.contended
        member.report.append("granted" if answer else "contended" if contended else "denied")


async def debit(member: Member) -> None:
    """Take ``each`` tokens one by one, asking again only where others were faster; report each answer."""
    for _ in range(member.order["each"]):
        while True:
            answer = await member.sluice.try_acquire("api")
            if not (isinstance(answer, Denied) and answer.contended):
                break
        member.report.append(bool(answer))


async def hold_slots(member: Member) -> None:
    """Hold one or two slots for a moment, renewing once; report from when to when they were held for sure."""
    while member.goes_on():
        try:
            amount = member.rng.choice((1, 1, 2))
            async with member.sluice.acquire("api", {"held": amount}, wait=5) as lease:
                since_ns = time.time_ns()
                await asyncio.sleep(member.rng.random() * 0.05)
                with suppress(StoreUnavailable):  # several tries may lose their replies; the lease is held all the same
                    await lease.renew()
                await asyncio.sleep(member.rng.random() * 0.05)
                member.report.append([since_ns, time.time_ns(), amount, lease.lost])
        except (RateLimited, StoreUnavailable) as error:
            member.report.append([0, 0, 0, type(error).__name__])


async def hold_both(member: Member) -> None:
    """Hold a slot of each of two resources for a while; report from when to when."""
    needs = [Need("one"), Need("two")]
    while member.goes_on():
        try:
            async with member.sluice.acquire(needs, wait=20):
                since_ns = time.time_ns()
                await asyncio.sleep(member.order["hold"])
                member.report.append([since_ns, time.time_ns()])
        except RateLimited:
            continue


async def take_as_a_child(member: Member) -> None:
    """Take for an entity that has a parent, as often as it can be had; report when each was had."""
    entity = member.order["entities"][member.number % len(member.order["entities"])]
    while member.goes_on():
        asked_ns = time.time_ns()
        answer = await member.sluice.try_acquire("api", entity=entity)
        if isinstance(answer, Denied):
            await asyncio.sleep(min(answer.retry_in, 0.1) * (1 + member.rng.random()))
        else:
            member.report.append([asked_ns, time.time_ns()])


async def take_both(member: Member) -> None:
    """Take from two buckets, one after another; the test kills this process in between."""
    await member.sluice.acquire([Need("one"), Need("two")], wait=60)
    member.report.append("granted")


ROLES: dict[str, Work] = {
    role.__name__: role
    for role in (
        wait_in_turn,
        wait_in_line,
        ask_now_and_then,
        debit,
        hold_slots,
        hold_both,
        take_as_a_child,
        take_both,
    )
}


async def warm_up(member: Member) -> None:
    for resource in member.order["resources"]:
        for entity in member.order.get("entities", ["*"]):
            await member.sluice.peek(resource, entity=entity)
            await member.sluice.resolve_limits(resource, entity=entity)


async def run(order: Order) -> Report:
    report: Report = []
    clients = [AsyncSluice(order["url"], timeout=PATIENCE) for _ in range(order.get("clients", 1))]
    members = [Member(order, number, clients[number % len(clients)], report) for number in range(order["tasks"])]
    for _ in range(WARMING):
        await asyncio.gather(*(warm_up(member) for member in members))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    until_ns = time.time_ns() + int(order["seconds"] * 1e9)
    for member in members:
        member.until_ns = until_ns
    await asyncio.gather(*(ROLES[order["role"]](member) for member in members))
    for client in clients:
        await client.aclose()
    return report


def main() -> None:
    order = json.loads(sys.stdin.readline())
    print(json.dumps(asyncio.run(run(order))), flush=True)


if __name__ == "__main__":
    main()
