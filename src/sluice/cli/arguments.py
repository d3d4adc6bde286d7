"""What can be typed after `sluice`: modules add their commands, and each command names the function that runs it.

A command module has ``add(subjects, everywhere)``: ``subjects`` takes commands, ``everywhere`` is a parent parser with
the options of every command that opens a store. The order is that of `sluice --help`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from sluice.cli import dynamodb, entities, limits, looking, namespaces, repair, sandbox, usage, version
from sluice.cli.client import everywhere_options
from sluice.cli.demo import command as demo

if TYPE_CHECKING:
    from types import ModuleType

COMMANDS: Final[tuple[ModuleType, ...]] = (
    demo,
    limits,
    looking,
    usage,
    repair,
    entities,
    namespaces,
    dynamodb,
    sandbox,
    version,
)


class Parser(argparse.ArgumentParser):
    """Takes options only as they are written, so that a new one never changes what an old script means."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(
        prog="sluice",
        usage="sluice [-h] COMMAND ...",
        description="Share rate limits and concurrency slots between processes, through a database you already run.",
        epilog="Try `sluice demo`: six processes share limits in one SQLite file, and one of them is killed.",
    )
    everywhere = everywhere_options()
    subjects = parser.add_subparsers(prog="sluice", title="commands", metavar="COMMAND [...]", required=True)
    for module in COMMANDS:
        module.add(subjects, everywhere)
    return parser
