"""Looking without taking, pausing what a vendor has closed, and repairing what a wrong clock has left behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sluice.core import bucket as core
from sluice.core.bounds import MAX_PAUSE_NS, NS_PER_MS
from sluice.core.bucket import Bucket
from sluice.core.errors import ConfigError
from sluice.core.names import BucketKey, check_name, check_resource, entry_owner
from sluice.core.needs import Wanted
from sluice.core.requests import LimitStatus, Part, Pause, Peek, Repair, seconds_up
from sluice.flow.ask import Ask, seconds_ns
from sluice.flow.documents import bucket_page
from sluice.flow.persist import sure, sure_batch

if TYPE_CHECKING:
    from sluice.flow.client import Client


@dataclass(frozen=True, slots=True)
class Standing:
    """How the limits stand that a take counts against; ``paused_for`` is in seconds, 0 if none of them is paused."""

    limits: tuple[LimitStatus, ...]
    paused_for: float


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A live lease as the store knows it. If its id tells, ``holder`` is ``host:pid`` and ``since`` a POSIX time."""

    id: str
    resource: str
    entity: str
    limit: str
    slots: int
    expires_in: float
    holder: str | None
    since: float | None


async def peek(client: Client, resource: str, entity: str) -> Standing:
    """How each limit stands that an entity's takes count against, its own first, for its default cost."""
    parts = await _counted_against(client, resource, entity)
    requests = [Peek(part.key) for part in parts]
    answers = await sure_batch(client, client.store.peek, requests, f"peeking at {resource}")
    statuses = tuple(
        core.status(peeked.image, part.key, replace(charge, amount=max(1, charge.amount)), peeked.now_ns)
        for part, peeked in zip(parts, answers, strict=True)
        for charge in part.charges
    )
    paused_ns = max(peeked.image.paused_until_ns - peeked.now_ns for peeked in answers)
    return Standing(statuses, seconds_up(max(0, paused_ns)))


async def _counted_against(client: Client, resource: str, entity: str) -> list[Part]:
    """The buckets that an entity's takes count against and the limits in force there, its own bucket first."""
    check_resource(resource)
    check_name(entity, "entity")
    charges = await client.configuration.charges(Ask((Wanted(resource, entity, {}),)))
    return [part for part in charges if part.charges]


async def pause(client: Client, resource: str, seconds: float, entity: str) -> None:
    """Grant nothing from one bucket for so long; those who wait for their turn are shifted by it."""
    check_resource(resource)
    check_name(entity, "entity")
    for_ns = seconds_ns(seconds, "seconds", most_ns=MAX_PAUSE_NS)
    if not for_ns:
        raise ConfigError("pause needs a number of seconds above 0")
    key = BucketKey(await client.configuration.namespace_id(), entity, resource)
    await sure(client, client.store.pause, Pause(key, for_ns), f"pausing {resource}")


@dataclass(frozen=True, slots=True)
class Repairs:
    """What a repair found to put right: the limits that lay too far ahead, and whether a pause was ended."""

    limits: tuple[str, ...]
    pause_ended: bool


async def repair(client: Client, resource: str, entity: str) -> Repairs:
    """Take back what a clock far ahead has left in one bucket."""
    part, *_ = await _counted_against(client, resource, entity)
    if part.key.entity != entity:
        raise ConfigError(
            f"entity {entity!r} has no limits of its own for {resource!r}, so nothing is in its bucket; its takes "
            f"count against entity {part.key.entity!r}: repair that one"
        )
    repaired = await sure(client, client.store.repair, Repair(part.key, part.charges), f"repairing {resource}")
    return Repairs(repaired.limits, repaired.pause_ended)


async def leases(client: Client, resource: str | None, entity: str | None) -> list[HeldLease]:
    """Who holds slots. Listing may lag behind; what is listed is exact."""
    under = _under(resource, entity)
    namespace = await client.configuration.namespace_id()
    held: list[HeldLease] = []
    after: str | None = None
    while True:
        page = await bucket_page(client, namespace, "listing leases", under=under, after=after)
        keys = [BucketKey.parse(namespace, text) for text in page.keys]
        keys = [key for key in keys if resource in {None, key.resource} and entity in {None, key.entity}]
        requests = [Peek(key) for key in keys]
        answers = await sure_batch(client, client.store.peek, requests, "listing leases") if requests else []
        for key, peeked in zip(keys, answers, strict=True):
            held += _held(key, peeked.image, peeked.now_ns)
        after = page.after
        if after is None:
            return held


def _under(resource: str | None, entity: str | None) -> tuple[str, str] | None:
    if resource is not None:
        check_resource(resource)
    if entity is not None:
        return ("entity", check_name(entity, "entity"))
    return None if resource is None else ("resource", resource)


def _held(key: BucketKey, image: Bucket, now_ns: int) -> list[HeldLease]:
    held = []
    for limit, entries in image.slots.items():
        by_lease: dict[str, list[int]] = {}
        for entry, expires_ns in entries.items():
            if expires_ns > now_ns:
                by_lease.setdefault(entry_owner(entry), []).append(expires_ns)
        for lease_id, expiries in by_lease.items():
            since, holder = _read_lease_id(lease_id)
            expires_in = seconds_up(min(expiries) - now_ns)
            held.append(HeldLease(lease_id, key.resource, key.entity, limit, len(expiries), expires_in, holder, since))
    return held


def _read_lease_id(lease_id: str) -> tuple[float | None, str | None]:
    """When and by whom, if the id is one that Sluice made."""
    made, at_sign, holder = lease_id.partition("@")
    if not at_sign or len(made) != 22:
        return None, None
    try:
        return int(made[:12], 16) * NS_PER_MS / 1e9, holder
    except ValueError:
        return None, None
