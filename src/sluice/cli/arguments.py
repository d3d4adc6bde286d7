"""What can be typed after `sluice`. Each command names the function that runs it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sluice.cli import commands
from sluice.cli.demo import command as demo

if TYPE_CHECKING:
    from collections.abc import Callable


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="sluice",
        description="Share rate limits and concurrency slots between processes, through a database you already run.",
        epilog="Try `sluice demo`: six processes share limits in one SQLite file, and one of them is killed.",
        allow_abbrev=False,
    )
    everywhere = _common()
    subjects = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(subjects)
    _add_limits(subjects, everywhere)
    _add_survey(subjects, everywhere)
    _add_namespaces(subjects, everywhere)
    version = subjects.add_parser("version", help="print the version")
    version.add_argument("--json", action="store_true", help="print JSON")
    version.set_defaults(run=commands.version)
    return parser


def _common() -> argparse.ArgumentParser:
    """The options of every command that opens a store."""
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("store")
    group.add_argument("--url", help="the store, as in sqlite:///quota.db; by default $SLUICE_URL, else your own file")
    group.add_argument("--namespace", default="default", metavar="NAME", help="the namespace (default: default)")
    group.add_argument("--json", action="store_true", help="print JSON")
    return common


def _add_demo(subjects: Any) -> None:
    parser = subjects.add_parser(
        "demo",
        help="watch processes share limits, and one of them die",
        description="Processes share one SQLite file in front of a fake vendor. One is killed while it holds a slot; "
        "watch the slot come back. The exit status is 1 if any promise was broken.",
    )
    parser.add_argument("--seconds", type=float, default=15, help="how long to run (default: 15)")
    parser.add_argument("--workers", type=int, default=6, help="how many processes (default: 6)")
    parser.add_argument("--seed", type=int, help="make the same calls again")
    parser.add_argument("--plain", action="store_true", help="plain lines, no live screen")
    parser.set_defaults(run=demo.run)


def _add_limits(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    limits = subjects.add_parser("limits", help="set and read limits")
    verbs = limits.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(verb: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(verb, parents=[everywhere], help=text, description=text)
        parser.set_defaults(run=run)
        return parser

    setting = add("set", commands.set_limits, "set the limits of a level, all of them at once")
    setting.add_argument(
        "words", nargs="+", metavar=("RESOURCE", "NAME=RULE"), help="as in: openai rpm=500/min 'calls=32 slots ttl 60s'"
    )
    setting.add_argument(
        "--cost", action="append", default=[], metavar="NAME=N", help="what a take that does not name it takes of it"
    )
    getting = add("get", commands.get_limits, "the limits set at a level, with their version")
    deleting = add("delete", commands.delete_limits, "remove the limits of a level")
    for parser in (getting, deleting):
        parser.add_argument("resource", nargs="?", metavar="RESOURCE")
    for parser in (setting, getting, deleting):
        parser.add_argument("--any-resource", action="store_true", help="in place of RESOURCE: the level of none")
        parser.add_argument("--entity", metavar="NAME", help="the level of this entity")
    for parser in (setting, deleting):
        parser.add_argument(
            "--expect", metavar="VERSION", help="only if this version is set there; '' if nothing may be"
        )
    add("list", commands.list_limits, "the resources that have limits of their own")
    resolving = add("resolve", commands.resolve_limits, "the limits in force, and the level that they come from")
    resolving.add_argument("resource", metavar="RESOURCE")
    resolving.add_argument("--entity", default="*", metavar="NAME", help="for whom (default: *, whom all share)")


def _add_survey(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    peeking = subjects.add_parser("peek", parents=[everywhere], help="how the limits of a resource stand")
    peeking.add_argument("resource", metavar="RESOURCE")
    peeking.add_argument("--entity", default="*", metavar="NAME", help="for whom (default: *, whom all share)")
    peeking.set_defaults(run=commands.peek)
    leases = subjects.add_parser("leases", parents=[everywhere], help="who holds slots, and since when")
    leases.add_argument("resource", nargs="?", metavar="RESOURCE")
    leases.add_argument("--entity", metavar="NAME", help="only those of this entity")
    leases.set_defaults(run=commands.leases)
    pausing = subjects.add_parser("pause", parents=[everywhere], help="grant nothing for a while")
    pausing.add_argument("resource", metavar="RESOURCE")
    pausing.add_argument("seconds", type=float, metavar="SECONDS")
    pausing.add_argument("--entity", default="*", metavar="NAME", help="for whom (default: *, whom all share)")
    pausing.set_defaults(run=commands.pause)


def _add_namespaces(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    listing = subjects.add_parser("namespaces", parents=[everywhere], help="the namespaces of the store")
    listing.set_defaults(run=commands.namespaces)
    purging = subjects.add_parser("purge", parents=[everywhere], help="delete a namespace and everything in it")
    purging.add_argument("name", metavar="NAME")
    purging.add_argument("--yes", action="store_true", help="really")
    purging.set_defaults(run=commands.purge)
