"""Ctrl-C at any moment: real signals, thousands of them, and never a lock, a turn or a file left behind."""

import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sluice.core.requests import Granted, Unreached
from sluice.stores.sqlite import Transaction
from tests.sqlite.kit import blocking_store, intact, raw, run, take

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # a signal in a weak reference's end
]

INTERRUPTIONS = 1_500


class Interruption(BaseException):
    """As KeyboardInterrupt, but nobody else raises it."""


@contextmanager
def interruptible() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted(rng: Random, ask: Any) -> bool:
    """Ask until a signal comes, soon; whether it came while something was asked."""
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(20e-6, 400e-6))
        for _ in range(50):
            ask()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interruption:
        return True
    return False


def test_whenever_a_signal_comes_the_file_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    store = blocking_store(path)
    run(store.take([take("first")]))
    rng, count = Random(1), 0
    with interruptible(), raw(path) as other:
        other.execute("PRAGMA busy_timeout = 0")
        for _ in range(INTERRUPTIONS):
            count += interrupted(rng, lambda: run(store.take([take("lease")])))
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                pytest.fail(f"after {count} interruptions the write lock was left behind: {error}")
            other.execute("ROLLBACK")
    assert count >= INTERRUPTIONS / 2
    run(store.take([take("after")]))
    run(store.close())
    assert intact(path)


def test_whenever_a_signal_comes_other_threads_go_on(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    store = blocking_store(path)
    run(store.take([take("first")]))
    stop, unreached, slowest = threading.Event(), [0], [0.0]

    def ask() -> None:
        while not stop.is_set():
            begun = time.monotonic()
            (answer,) = run(store.take([take("lease")]))
            slowest[0] = max(slowest[0], time.monotonic() - begun)
            unreached[0] += isinstance(answer, Unreached) and "for all of the timeout" in answer.why

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    rng, count = Random(2), 0
    try:
        with interruptible():
            for thread in threads:
                thread.start()
            for _ in range(INTERRUPTIONS // 3):
                count += interrupted(rng, lambda: run(store.take([take("mine")])))
    finally:
        stop.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert count >= INTERRUPTIONS / 6
    assert unreached == [0], "nobody waited in vain for a turn that an interrupted thread never gave back"
    run(store.close())
    assert intact(path)


def test_what_a_signal_handler_asks_within_a_transaction_of_its_thread_is_certainly_not_applied(tmp_path: Path) -> None:
    store = blocking_store(tmp_path / "quota.db")
    within: list[Any] = []

    def job(transaction: Transaction) -> Any:
        within.extend(run(store.take([take("nested")])))
        return transaction.decide([take("outer")])

    (answer,) = run(store._wire.write(job))  # type: ignore[misc]
    assert isinstance(answer, Granted)
    assert isinstance(within[0], Unreached)
    assert "in the middle of this thread's own transaction" in within[0].why
    run(store.close())
