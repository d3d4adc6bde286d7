"""`sluice limits`: setting and reading the limits of a level."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sluice.cli.client import add_for_whom, open_client
from sluice.cli.output import print_json, print_table
from sluice.core.errors import ConfigError
from sluice.core.limits import Limit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sluice.core.levels import Level

SETTING = """Set the limits of a level, all of them at once. The first level that has any limits decides, whole: entity
and resource; entity (--entity NAME --any-resource); resource; system (--any-resource). A RULE is a rate, as in 500/min
or '200k/min burst 400k', or slots, as in '32 slots ttl 60s'. A resource's limits hold for each entity by itself."""


def add(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    text = "set and read limits"
    limits = subjects.add_parser("limits", help=text, description=f"{text.capitalize()}.")
    verbs = limits.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add_verb(
        verb: str, run: Callable[[argparse.Namespace], int], text: str, description: str
    ) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(
            verb, parents=[everywhere], help=text, description=description
        )
        parser.set_defaults(run=run)
        return parser

    setting = add_verb("set", set_limits, "set the limits of a level, all of them at once", SETTING)
    setting.usage = "sluice limits set [options] RESOURCE NAME=RULE [NAME=RULE ...]"
    setting.add_argument(
        "words", nargs="+", metavar="RESOURCE NAME=RULE", help="as in: openai rpm=500/min 'calls=32 slots ttl 60s'"
    )
    setting.add_argument(
        "--cost", action="append", default=[], metavar="NAME=N", help="what a take that does not name it takes of it"
    )
    text = "the limits set at a level, with their version"
    getting = add_verb("get", get_limits, text, f"Print {text}.")
    text = "remove the limits of a level"
    deleting = add_verb("delete", delete_limits, text, f"{text.capitalize()}; the next one that has any takes over.")
    for parser in (getting, deleting):
        parser.add_argument("resource", nargs="?", metavar="RESOURCE")
    for parser in (setting, getting, deleting):
        parser.add_argument("--any-resource", action="store_true", help="in place of RESOURCE: the level of none")
        parser.add_argument("--entity", metavar="NAME", help="the level of this entity")
    for parser in (setting, deleting):
        parser.add_argument(
            "--expect", metavar="VERSION", help="only if this version is set there; '' if nothing may be"
        )
    text = "the resources that have limits of their own"
    add_verb("list", list_limits, text, f"Print {text}.")
    text = "the limits in force, and the level that they come from"
    resolving = add_verb("resolve", resolve_limits, text, f"Print {text}.")
    resolving.add_argument("resource", metavar="RESOURCE")
    add_for_whom(resolving)


def set_limits(asked: argparse.Namespace) -> int:
    """Set the limits of a level."""
    resource, texts = (None, asked.words) if asked.any_resource else (asked.words[0], asked.words[1:])
    if not texts:
        raise ConfigError(f"{resource!r} is given no limits; write RESOURCE NAME=RULE, as in: openai rpm=500/min")
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
