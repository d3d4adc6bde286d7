"""The kit of these tests: stores on real files, statements counted as SQLite runs them, and other processes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.documents import BucketPage
from sluice.core.names import BucketKey
from sluice.core.requests import Part, Peek, Peeked, RateCharge, SlotsCharge, Take
from sluice.ports import Clock
from sluice.stores.sqlite import SqliteStore
from sluice.testing import ManualClock
from sluice.wires.blocking.scope import BlockingScope
from sluice.wires.blocking.sqlite import BlockingWire
from sluice.wires.sqlite import database
from sluice.wires.sqlite.place import Place

REPOSITORY = Path(__file__).parents[2]
NAMESPACE = "Zm9vYmFyYmF"
KEY = BucketKey(NAMESPACE, "*", "openai")
TIMEOUT_NS = 2 * NS_PER_SECOND
STEP_DOWN = """
import os
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""
"""Become a user without any right to our files, once everything is imported: in root's way stands nothing."""

run = BlockingScope(ManualClock()).run


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def blocking_store(path: Path, clock: Clock | None = None, *, timeout_ns: int = TIMEOUT_NS) -> SqliteStore:
    return SqliteStore(BlockingWire(Place(path), clock or ManualClock(), timeout_ns))


def rate(amount: int = 1, capacity: int = 10) -> RateCharge:
    return RateCharge("rpm", amount, capacity, NS_PER_SECOND)


def slots(amount: int = 1, capacity: int = 3) -> SlotsCharge:
    return SlotsCharge("concurrent", amount, capacity, 60 * NS_PER_SECOND)


def look(store: SqliteStore) -> Peeked:
    (peeked,) = run(store.peek([Peek(KEY)]))
    assert isinstance(peeked, Peeked)
    return peeked


def taken(peeked: Peeked) -> int:
    """How many tokens of `rate` are missing."""
    return (peeked.image.rates["rpm"].full_at_ns - peeked.now_ns) // NS_PER_SECOND


def buckets(store: SqliteStore) -> tuple[str, ...]:
    page = run(store.buckets(NAMESPACE))
    assert isinstance(page, BucketPage)
    return page.keys


def take(lease: str, *charges: RateCharge | SlotsCharge, at: BucketKey = KEY) -> Take:
    return Take(lease, (Part(at, charges or (rate(),)),))


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What SQLite runs on connections opened in here, statement by statement, the opening left out."""
    heard: list[str] = []

    def listen(connection: sqlite3.Connection, place: Place) -> None:
        bring_up_to_date(connection, place)
        connection.set_trace_callback(heard.append)

    bring_up_to_date = database._bring_up_to_date
    with monkeypatch.context() as patch:
        patch.setattr(database, "_bring_up_to_date", listen)
        yield heard


def verbs(heard: Sequence[str]) -> list[str]:
    """The first words of statements: what was begun, read and written."""
    return [
        " ".join(statement.split()[:2]) if statement.startswith("BEGIN") else statement.split()[0]
        for statement in heard
    ]


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as SQLite's own shell would open it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def intact(path: Path) -> bool:
    with raw(path) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody else holds the write lock."""
    with raw(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for other threads to come to where a test needs them."""
    latest = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < latest, "the others never came"
        time.sleep(0.001)


# --- other processes --------------------------------------------------------------------------------------------------


def start(module: str, **order: Any) -> subprocess.Popen[str]:
    """A fresh interpreter that runs a module of these tests, told in one JSON argument what to do."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", module, json.dumps(order)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def python(code: str, *arguments: str, env: dict[str, str] | None = None, seconds: float = 60) -> str:
    """What a fresh interpreter prints; it must end well, and say nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def ended(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """What a process printed; it must end well."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return out
