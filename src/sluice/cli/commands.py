"""The commands: each reads its arguments, calls the facade once or twice and prints what came back."""

from __future__ import annotations

import argparse
import dataclasses
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING

from sluice.cli.output import print_json, print_table, seconds_text
from sluice.core.errors import ConfigError
from sluice.core.limits import Limit
from sluice.sync import Sluice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.core.levels import Level

DISTRIBUTION = "sluice-quota"


def open_client(asked: argparse.Namespace) -> Sluice:
    """The client for a command's options."""
    return Sluice(asked.url, namespace=asked.namespace)


def version(asked: argparse.Namespace) -> int:
    """Print the version."""
    try:
        number = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        number = "unknown: not installed as a package"
    if asked.json:
        print_json({"sluice": number, "python": platform.python_version()})
    else:
        print(f"sluice {number} (Python {platform.python_version()})")
    return 0


# --- limits ---


def set_limits(asked: argparse.Namespace) -> int:
    """Set the limits of a level."""
    resource, texts = (None, asked.words) if asked.any_resource else (asked.words[0], asked.words[1:])
    limits = _read_limits(texts, asked.cost)
    with open_client(asked) as sluice:
        sluice.set_limits(resource, limits, entity=asked.entity, expect=asked.expect)
    if asked.json:
        print_json({"resource": resource, "entity": asked.entity, "limits": _limits_json(limits)})
    else:
        print(f"{_level_text(resource, asked.entity)}: {', '.join(_limit_text(limit) for limit in limits)}")
    return 0


def get_limits(asked: argparse.Namespace) -> int:
    """Print the limits set at a level."""
    resource = _resource_or_any(asked)
    with open_client(asked) as sluice:
        stored = sluice.get_limits(resource, entity=asked.entity)
    if asked.json:
        print_json(None if stored is None else {"limits": _limits_json(stored.limits), "version": stored.version})
    elif stored is None:
        print(f"{_level_text(resource, asked.entity)}: no limits are set")
    else:
        _print_limits(stored.limits)
        print(f"version {stored.version}")
    return 0


def delete_limits(asked: argparse.Namespace) -> int:
    """Remove the limits of a level."""
    resource = _resource_or_any(asked)
    with open_client(asked) as sluice:
        sluice.delete_limits(resource, entity=asked.entity, expect=asked.expect)
    if asked.json:
        print_json({"resource": resource, "entity": asked.entity, "limits": None})
    else:
        print(f"{_level_text(resource, asked.entity)}: no limits are set any more")
    return 0


def list_limits(asked: argparse.Namespace) -> int:
    """Print the limits of all resources that have their own."""
    with open_client(asked) as sluice:
        found = {name: sluice.get_limits(name) for name in sluice.resources()}
    levels = {name: stored.limits for name, stored in found.items() if stored is not None}
    if asked.json:
        print_json({name: _limits_json(limits) for name, limits in levels.items()})
    else:
        rows = [(name, limit.name, str(limit.rule), limit.cost) for name, limits in levels.items() for limit in limits]
        print_table(("resource", "limit", "rule", "cost"), rows, "no resource has limits; set some with limits set")
    return 0


def resolve_limits(asked: argparse.Namespace) -> int:
    """Print the limits in force and where they are set."""
    with open_client(asked) as sluice:
        resolved = sluice.resolve_limits(asked.resource, entity=asked.entity)
    if asked.json:
        print_json({"level": _level_json(resolved.level), "limits": _limits_json(resolved.limits)})
    else:
        _print_limits(resolved.limits)
        if resolved.level is not None:
            print(f"set at: {resolved.level}")
    return 0


# --- looking ---


def peek(asked: argparse.Namespace) -> int:
    """Print how the limits of a resource stand."""
    with open_client(asked) as sluice:
        standing = sluice.peek(asked.resource, entity=asked.entity)
    if asked.json:
        print_json(dataclasses.asdict(standing))
        return 0
    rows = [
        (status.name, status.available, status.capacity, seconds_text(status.retry_in)) for status in standing.limits
    ]
    print_table(("limit", "available", "of", "next in"), rows, "no limits")
    if standing.paused_for:
        print(f"paused for {seconds_text(standing.paused_for)}")
    return 0


def leases(asked: argparse.Namespace) -> int:
    """Print who holds slots."""
    with open_client(asked) as sluice:
        held = sluice.leases(asked.resource, entity=asked.entity)
    if asked.json:
        print_json([dataclasses.asdict(lease) for lease in held])
        return 0
    rows = [
        (
            lease.resource,
            lease.entity,
            lease.limit,
            lease.slots,
            lease.holder or "-",
            _time_text(lease.since),
            seconds_text(lease.expires_in),
            lease.id,
        )
        for lease in held
    ]
    print_table(
        ("resource", "entity", "limit", "slots", "holder", "since", "expires in", "lease"), rows, "nobody holds slots"
    )
    return 0


def pause(asked: argparse.Namespace) -> int:
    """Grant nothing for a while."""
    with open_client(asked) as sluice:
        sluice.pause(asked.resource, asked.seconds, entity=asked.entity)
    if asked.json:
        print_json({"resource": asked.resource, "entity": asked.entity, "paused_for": asked.seconds})
    else:
        print(f"{asked.resource}: paused for {seconds_text(asked.seconds)}")
    return 0


# --- namespaces ---


def namespaces(asked: argparse.Namespace) -> int:
    """Print the namespaces of the store."""
    with open_client(asked) as sluice:
        names = sluice.namespaces()
    if asked.json:
        print_json(names)
    else:
        print("\n".join(names) or "there is no namespace yet; the first take or set_limits makes one")
    return 0


def purge(asked: argparse.Namespace) -> int:
    """Delete a namespace, if that is really meant."""
    if not asked.yes:
        raise ConfigError(
            f"purge deletes namespace {asked.name!r} and everything in it for good; add --yes if you mean it"
        )
    with open_client(asked) as sluice:
        sluice.purge_namespace(asked.name)
    if asked.json:
        print_json({"purged": asked.name})
    else:
        print(f"namespace {asked.name!r} is gone")
    return 0


# --- reading and writing values ---


def _resource_or_any(asked: argparse.Namespace) -> str | None:
    if asked.any_resource == (asked.resource is not None):
        raise ConfigError("name a RESOURCE, or say --any-resource for the level that stands for all of them; not both")
    resource: str | None = asked.resource
    return resource


def _read_limits(texts: Sequence[str], costs: Sequence[str]) -> list[Limit]:
    """Read ``NAME=RULE`` and ``NAME=N``. A rule contains no ``=``, so the last one ends the name."""
    cost_by_name = {}
    for text in costs:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal():
            raise ConfigError(f"--cost {text!r}: write NAME=N, as in --cost tpm=0")
        cost_by_name[name] = int(number)
    limits = []
    for text in texts:
        name, equals, rule = text.rpartition("=")
        if not equals:
            raise ConfigError(f"{text!r} is not NAME=RULE; write for example rpm=500/min or 'calls=32 slots ttl 60s'")
        limits.append(Limit(name, rule, cost=cost_by_name.pop(name, 1)))
    if cost_by_name:
        raise ConfigError(f"--cost names {next(iter(cost_by_name))!r}, which is not among the limits that are set")
    return limits


def _print_limits(limits: Sequence[Limit]) -> None:
    rows = [(limit.name, str(limit.rule), limit.cost) for limit in limits]
    print_table(("limit", "rule", "cost"), rows, "no limits are set at any level")


def _limits_json(limits: Sequence[Limit]) -> list[dict[str, object]]:
    return [{"name": limit.name, "rule": str(limit.rule), "cost": limit.cost} for limit in limits]


def _limit_text(limit: Limit) -> str:
    return f"{limit.name} {limit.rule}" + ("" if limit.cost == 1 else f" (cost {limit.cost})")


def _level_json(level: Level | None) -> dict[str, str | None] | None:
    return None if level is None else {"entity": level.entity, "resource": level.resource}


def _level_text(resource: str | None, entity: str | None) -> str:
    whose = "" if entity is None else f" for entity {entity!r}"
    return f"{'any resource' if resource is None else resource}{whose}"


def _time_text(since: float | None) -> str:
    return "-" if since is None else datetime.fromtimestamp(since, UTC).astimezone().isoformat(" ", "seconds")
