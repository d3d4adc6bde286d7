"""`sluice usage`: what was used of a resource's limits, by the hour, day or month."""

from __future__ import annotations

import argparse
import dataclasses
from datetime import UTC, datetime
from typing import Any

from sluice.cli.client import add_for_whom, open_client
from sluice.cli.output import print_json, print_table
from sluice.core.errors import ConfigError

SHOWN = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m"}


def add(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = subjects.add_parser(
        "usage",
        parents=[everywhere],
        help="what was used of a resource",
        description="Print what was used of each limit of a resource, by the hour, day or month (UTC).",
    )
    parser.add_argument("resource", metavar="RESOURCE")
    add_for_whom(parser)
    parser.add_argument("--since", metavar="TIME", help="as in 2025-01-31T18:00, UTC (default: a day ago)")
    parser.add_argument("--until", metavar="TIME", help="the same (default: now)")
    parser.add_argument("--window", choices=sorted(SHOWN), default="hour", help="(default: hour)")
    parser.set_defaults(run=usage)


def usage(asked: argparse.Namespace) -> int:
    """Print what was used."""
    since, until = _posix("--since", asked.since), _posix("--until", asked.until)
    with open_client(asked) as sluice:
        used = sluice.usage(asked.resource, entity=asked.entity, since=since, until=until, window=asked.window)
    if asked.json:
        print_json([dataclasses.asdict(window) for window in used])
        return 0
    form = SHOWN[asked.window]
    rows = [(datetime.fromtimestamp(window.start, UTC).strftime(form), window.limit, window.amount) for window in used]
    print_table((asked.window, "limit", "used"), rows, "nothing was used")
    return 0


def _posix(option: str, text: str | None) -> float | None:
    """A time as seconds since the epoch; one that names no offset is UTC."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} is a time such as 2025-01-31 or 2025-01-31T18:00, not {text!r}") from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
