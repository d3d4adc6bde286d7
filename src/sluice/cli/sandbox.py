"""`sluice sandbox`: DynamoDB on this machine, to try things out; no AWS, no Docker.

The engine runs in the background, on loopback, until it is stopped, and keeps everything in memory. Starting it again
changes nothing but what is missing: the table and the example limits. What is printed by ``start`` and ``env`` is for
the shell: ``eval "$(sluice sandbox env)"``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sluice.cli.client import add_json
from sluice.cli.output import print_json
from sluice.core.errors import StoreUnavailable
from sluice.core.limits import Limit
from sluice.sync import Sluice
from sluice.wires.opening import dynamodb_url

if TYPE_CHECKING:
    from sluice.testing.dynamodb.service import Running

TABLE: Final = "sluice"
REGION: Final = "eu-west-1"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "sandbox", "AWS_SECRET_ACCESS_KEY": "sandbox"}
"""The engine takes any, but it must be given some."""

READ_TIMEOUT: Final = "5s"
"""A Java program that has just started is slow at first."""

EXAMPLE: Final = "openai"
EXAMPLE_LIMITS: Final = (Limit("rpm", "500/min"), Limit("tpm", "200k/min", cost=0), Limit("calls", "32 slots ttl 60s"))


def add(subjects: Any, _: argparse.ArgumentParser) -> None:
    parser = subjects.add_parser(
        "sandbox",
        help="DynamoDB on this machine, to try things out",
        description="Run DynamoDB Local in the background, on loopback, with a table and example limits.",
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    starting = verbs.add_parser(
        "start",
        help="start it, and print what to put in the environment",
        description="Start it, unless it runs; make the table and the example limits, unless they are there; print "
        "what to put in the environment. The first time it is fetched, which takes a minute and needs Java and Maven.",
    )
    starting.add_argument("--port", type=int, default=0, help="where (default: any that is free)")
    starting.set_defaults(run=start)
    for name, run, text in (
        ("stop", stop, "stop it; what was in it is gone"),
        ("status", status, "say whether it runs, and where"),
        ("env", env, "print what to put in the environment"),
    ):
        verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        verb.set_defaults(run=run)
        if run is not env:
            add_json(verb)


def start(asked: argparse.Namespace) -> int:
    """Start the engine and make it ready."""
    from sluice.testing.dynamodb import Service

    running = Service().start(asked.port)
    with _credentials():
        _make_ready(running)
    print(f"DynamoDB Local runs at {running.url} (process {running.pid})", file=sys.stderr)
    _print_exports(running)
    return 0


def stop(asked: argparse.Namespace) -> int:
    """Stop the engine."""
    from sluice.testing.dynamodb import Service

    stopped = Service().stop()
    if asked.json:
        print_json({"stopped": stopped is not None})
    else:
        print("the sandbox did not run" if stopped is None else f"the sandbox at {stopped.url} is stopped")
    return 0


def status(asked: argparse.Namespace) -> int:
    """Say whether the engine runs."""
    from sluice.testing.dynamodb import Service

    running = Service().status()
    if asked.json:
        print_json(None if running is None else {"url": _url(running), "pid": running.pid, "log": running.log})
    elif running is None:
        print("the sandbox does not run; start it with sluice sandbox start")
    else:
        print(f"the sandbox runs at {running.url} (process {running.pid}, log {running.log})")
    return 0


def env(_: argparse.Namespace) -> int:
    """Print the exports of an engine that runs."""
    from sluice.testing.dynamodb import Service

    running = Service().status()
    if running is None:
        raise StoreUnavailable("the sandbox does not run; start it with sluice sandbox start")
    _print_exports(running)
    return 0


def _make_ready(running: Running) -> None:
    """Make the table and the example limits. Both may be there."""
    from sluice.wires.dynamodb.account import Account
    from sluice.wires.dynamodb.options import read_options
    from sluice.wires.dynamodb.table import make_table

    url = _url(running)
    options = read_options(url)
    make_table(Account(options), options.table)
    with Sluice(url, timeout=30) as sluice:
        if sluice.get_limits(EXAMPLE) is None:
            sluice.set_limits(EXAMPLE, EXAMPLE_LIMITS)


def _url(running: Running) -> str:
    return f"{dynamodb_url(TABLE, region=REGION, endpoint=running.url)}&read_timeout={READ_TIMEOUT}"


def _print_exports(running: Running) -> None:
    for name, value in {"SLUICE_URL": _url(running), **CREDENTIALS}.items():
        print(f"export {name}={shlex.quote(value)}")


@contextmanager
def _credentials() -> Generator[None]:
    """Let this process be whoever the sandbox is told that everybody is."""
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
