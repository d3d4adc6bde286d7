"""`sluice peek`, `leases` and `pause`: how limits stand, who holds slots, and closing what the vendor has closed."""

from __future__ import annotations

import argparse
import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.cli.client import add_for_whom, open_client
from sluice.cli.output import print_json, print_table, seconds_text

if TYPE_CHECKING:
    from sluice.flow.survey import HeldLease

LEASE_HEADS = ("resource", "entity", "limit", "slots", "holder", "since", "expires in", "lease")


def add(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    peeking = subjects.add_parser(
        "peek",
        parents=[everywhere],
        help="how the limits of a resource stand",
        description="Print what is free of each limit of a resource, and when more comes. Takes nothing.",
    )
    peeking.add_argument("resource", metavar="RESOURCE")
    add_for_whom(peeking)
    peeking.set_defaults(run=peek)
    listing = subjects.add_parser(
        "leases",
        parents=[everywhere],
        help="who holds slots, and since when",
        description="Print the leases that hold slots: whose, since when, and when they lapse unless renewed.",
    )
    listing.add_argument("resource", nargs="?", metavar="RESOURCE")
    listing.add_argument("--entity", metavar="NAME", help="only those of this entity")
    listing.set_defaults(run=leases)
    pausing = subjects.add_parser(
        "pause",
        parents=[everywhere],
        help="grant nothing for a while",
        description="Grant nothing of a resource for some seconds, because the vendor asked for it.",
    )
    pausing.add_argument("resource", metavar="RESOURCE")
    pausing.add_argument("seconds", type=float, metavar="SECONDS")
    add_for_whom(pausing)
    pausing.set_defaults(run=pause)


def peek(asked: argparse.Namespace) -> int:
    """Print how the limits of a resource stand."""
    with open_client(asked) as sluice:
        standing = sluice.peek(asked.resource, entity=asked.entity)
    if asked.json:
        print_json(dataclasses.asdict(standing))
        return 0
    rows = [
        (status.entity, status.name, status.available, status.capacity, seconds_text(status.retry_in))
        for status in standing.limits
    ]
    print_table(("entity", "limit", "available", "of", "next in"), rows, "no limits")
    if standing.paused_for:
        print(f"paused for {seconds_text(standing.paused_for)}")
    return 0


def leases(asked: argparse.Namespace) -> int:
    """Print who holds slots."""
    with open_client(asked) as sluice:
        held = sluice.leases(asked.resource, entity=asked.entity)
    if asked.json:
        print_json([dataclasses.asdict(lease) for lease in held])
    else:
        print_table(LEASE_HEADS, [_lease_row(lease) for lease in held], "nobody holds slots")
    return 0


def _lease_row(lease: HeldLease) -> tuple[str | int, ...]:
    return (
        lease.resource,
        lease.entity,
        lease.limit,
        lease.slots,
        lease.holder or "-",
        _time_text(lease.since),
        seconds_text(lease.expires_in),
        lease.id,
    )


def _time_text(since: float | None) -> str:
    return "-" if since is None else datetime.fromtimestamp(since, UTC).astimezone().isoformat(" ", "seconds")


def pause(asked: argparse.Namespace) -> int:
    """Grant nothing for a while."""
    with open_client(asked) as sluice:
        sluice.pause(asked.resource, asked.seconds, entity=asked.entity)
    if asked.json:
        print_json({"resource": asked.resource, "entity": asked.entity, "paused_for": asked.seconds})
    else:
        print(f"{asked.resource}: paused for {seconds_text(asked.seconds)}")
    return 0
