"""Ctrl-C at any moment: real signals, thousands of them, and never a lock, a turn or a file left behind."""

import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sluice.core.requests import Granted, Unknown, Unreached
from sluice.stores.sqlite import Transaction
from tests.sqlite.kit import blocking_store, intact, raw, run, take, until

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

INTERRUPTIONS = 1_500


class Interruption(BaseException):
    """As KeyboardInterrupt, but nobody else raises it."""


@contextmanager
def interruptible() -> Iterator[list[float]]:
    """Signals raise; in how many seconds after one the next comes is taken from the list that this gives.

    One that comes in the end of a weak reference can be raised nowhere. It is kept by a hook that no signal can come
    into, since it is not written in Python.
    """
    gaps: list[float] = []
    lost: list[Any] = []

    def interrupt(*_: object) -> None:
        if gaps:
            signal.setitimer(signal.ITIMER_REAL, gaps.pop())
        raise Interruption

    before, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
    sys.unraisablehook = lost.append
    try:
        yield gaps
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
    assert {unraisable.exc_type for unraisable in lost} <= {Interruption}


def interrupted(gaps: list[float], rng: Random, ask: Any) -> bool:
    """Ask until a signal comes, soon, and a second right behind it; whether they came while something was asked."""
    gaps[:] = [rng.uniform(5e-6, 60e-6)]
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(20e-6, 400e-6))
            for _ in range(50):
                ask()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interruption:
        return True
    return False


def test_whenever_a_signal_comes_the_file_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    store = blocking_store(path)
    run(store.take([take("first")]))
    rng, count = Random(1), 0
    with interruptible() as gaps, raw(path) as other:
        other.execute("PRAGMA busy_timeout = 0")
        for _ in range(INTERRUPTIONS):
            count += interrupted(gaps, rng, lambda: run(store.take([take("lease")])))
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
        with interruptible() as gaps:
            for thread in threads:
                thread.start()
            for _ in range(INTERRUPTIONS // 3):
                count += interrupted(gaps, rng, lambda: run(store.take([take("mine")])))
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


def test_who_was_taken_along_by_a_thread_that_was_interrupted_is_told_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the line and the answer: whether it was committed is known to nobody then."""
    store = blocking_store(tmp_path / "quota.db")
    run(store.take([take("first")]))
    database = store._wire._database  # type: ignore[attr-defined]
    answers: list[Any] = []
    other = threading.Thread(target=lambda: answers.extend(run(store.take([take("other")]))))

    def interrupted_run(lead: Any, gather: Any) -> Any:
        monkeypatch.undo()
        other.start()
        until(lambda: len(store._wire._line.jobs) == 2)  # type: ignore[attr-defined]
        gather()
        raise Interruption

    monkeypatch.setattr(database, "run", interrupted_run)
    with pytest.raises(Interruption):
        run(store.take([take("mine")]))
    other.join(10)
    assert [type(answer) for answer in answers] == [Unknown]
    assert isinstance(run(store.take([take("after")]))[0], Granted)
    run(store.close())
