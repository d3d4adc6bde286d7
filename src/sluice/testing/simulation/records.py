"""What passed the network, in the plain terms of `history`: the one place that knows both vocabularies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sluice.core.names import BucketKey, entry_owner
from sluice.core.requests import (
    Denied,
    GaveUp,
    GiveUp,
    Gone,
    Granted,
    Part,
    Pause,
    Paused,
    Peeked,
    RateCharge,
    Reap,
    Reaped,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    Settled,
    SlotsCharge,
    Take,
)
from sluice.testing.simulation.history import (
    BucketPaused,
    Charged,
    Corrected,
    Record,
    Refused,
    SlotsReaped,
    SlotsRenewed,
    SlotsReturned,
    Stored,
    Took,
    TurnGivenUp,
)

Turns = dict[tuple[str, str, int, int], str]
"""Who holds a turn: the lease, by bucket, limit, and what its take left as ``full_at`` and in which interval.

Without the interval, a take by other limits that happens to leave the same ``full_at`` would pass for it.
"""


def record_of(task: str, request: Any, answer: Any, turns: Turns) -> Record | None:
    """What an answered request did, if the promises care."""
    write = _WRITERS.get(type(request))
    return None if write is None else write(task, request, answer, turns)


def _take(task: str, request: Take, answer: Any, turns: Turns) -> Record | None:
    charges = _charged(request.parts)
    if isinstance(answer, Granted):
        for part, image in zip(request.parts, answer.images, strict=True):
            for charge in part.rates if answer.turn_ns > answer.now_ns else ():
                left = image.rates[charge.name]
                turns[bucket_name(part.key), charge.name, left.full_at_ns, left.interval_ns] = request.lease_id
        return Took(answer.now_ns, task, request.lease_id, charges, request.wait_ns, answer.turn_ns, answer.repeated)
    if isinstance(answer, Denied):
        named = {(part.key.entity, part.key.resource): bucket_name(part.key) for part in request.parts}
        blocking = frozenset((named[status.entity, status.resource], status.name) for status in answer.limits)
        return Refused(answer.now_ns, task, request.lease_id, charges, request.wait_ns, answer.retry_in_ns, blocking)
    return None


def _settle(task: str, request: Settle, answer: Settled, _: Turns) -> Record:
    return Corrected(answer.now_ns, task, _tokens(request))


def _give_up(task: str, request: GiveUp, answer: GaveUp, turns: Turns) -> Record:
    bucket = bucket_name(request.key)
    lease = turns.get((bucket, request.name, request.left_full_at_ns, request.interval_ns), "")
    return TurnGivenUp(answer.now_ns, task, bucket, request.name, lease, request.amount, answer.returned)


def _release(task: str, request: Release, answer: Released | Gone, _: Turns) -> Record:
    found = isinstance(answer, Released)
    tokens = _tokens(request) if found else ()
    return SlotsReturned(answer.now_ns, task, bucket_name(request.key), request.lease_id, found, tokens)


def _renew(_task: str, request: Renew, answer: Renewed | Gone, _: Turns) -> Record:
    limits = tuple((slots.name, slots.amount, slots.ttl_ns) for slots in request.slots)
    renewed = isinstance(answer, Renewed)
    return SlotsRenewed(answer.now_ns, bucket_name(request.key), request.lease_id, limits, renewed)


def _reap(_task: str, request: Reap, answer: Reaped, _: Turns) -> Record | None:
    removed = tuple((slot.limit, entry_owner(slot.entry)) for slot in answer.removed)
    return SlotsReaped(answer.now_ns, bucket_name(request.key), removed) if removed else None


def _pause(_task: str, request: Pause, answer: Paused, _: Turns) -> Record:
    return BucketPaused(answer.now_ns, bucket_name(request.key), answer.until_ns)


_WRITERS: dict[type, Callable[[str, Any, Any, Turns], Record | None]] = {
    Take: _take,
    Settle: _settle,
    GiveUp: _give_up,
    Release: _release,
    Renew: _renew,
    Reap: _reap,
    Pause: _pause,
}


def stored(key: BucketKey, peeked: Peeked) -> Stored:
    """What the store holds of a bucket."""
    image = peeked.image
    slots = []
    for limit, entries in sorted(image.slots.items()):
        by_lease: dict[str, list[int]] = {}
        for entry, expires_ns in entries.items():
            by_lease.setdefault(entry_owner(entry), []).append(expires_ns)
        slots += [(limit, lease, len(expiries), min(expiries)) for lease, expiries in sorted(by_lease.items())]
    used: dict[str, int] = {}
    for (limit, _), amount in image.usage.items():
        used[limit] = used.get(limit, 0) + amount
    return Stored(
        peeked.now_ns,
        bucket_name(key),
        tuple((limit, state.full_at_ns, state.interval_ns) for limit, state in sorted(image.rates.items())),
        tuple(slots),
        tuple(sorted(used.items())),
        image.paused_until_ns,
    )


def bucket_name(key: BucketKey) -> str:
    return f"{key.namespace[:4]}/{key.text}"


def _tokens(request: Settle | Release) -> tuple[tuple[str, str, int, int], ...]:
    return tuple((bucket_name(request.key), delta.name, delta.tokens, delta.interval_ns) for delta in request.deltas)


def _charged(parts: tuple[Part, ...]) -> tuple[Charged, ...]:
    return tuple(_one_charge(bucket_name(part.key), charge) for part in parts for charge in part.charges)


def _one_charge(bucket: str, charge: RateCharge | SlotsCharge) -> Charged:
    interval_ns, ttl_ns = (charge.interval_ns, 0) if isinstance(charge, RateCharge) else (0, charge.ttl_ns)
    return Charged(bucket, charge.name, charge.amount, charge.capacity, charge.leave, interval_ns, ttl_ns)
