"""Transactions: what they cost in statements, what they share, and what an error or an interruption leaves."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.core.documents import Document, DocumentKey, Kind, Put, Stored
from sluice.core.errors import ConfigError
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Delta,
    Denied,
    Granted,
    Peek,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    Settled,
    Unknown,
    Unreached,
)
from sluice.stores.sqlite import SqliteStore, Transaction
from sluice.testing import ManualClock
from sluice.wires.blocking.sqlite import BlockingWire
from sluice.wires.sqlite import forks
from sluice.wires.sqlite.place import Place
from tests.sqlite.kit import (
    KEY,
    NAMESPACE,
    TIMEOUT_NS,
    blocking_store,
    buckets,
    locked,
    look,
    rate,
    raw,
    run,
    slots,
    statements,
    take,
    taken,
    until,
    verbs,
)

WRITE = ["BEGIN IMMEDIATE", "SELECT", "UPDATE", "COMMIT"]
NOTHING_WRITTEN = ["BEGIN IMMEDIATE", "SELECT", "COMMIT"]
READ = ["BEGIN", "SELECT", "COMMIT"]


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    store = blocking_store(tmp_path / "quota.db")
    with statements(monkeypatch) as heard:
        run(store.take([take("first", rate(), slots())]))
        store.heard = heard  # type: ignore[attr-defined]
        yield store
    run(store.close())


def cost(store: Any, ask: Callable[[], Any], answer: type) -> list[str]:
    store.heard.clear()
    (got,) = run(ask())
    assert isinstance(got, answer), got
    return verbs(store.heard)


def test_a_take_is_one_transaction_of_four_statements_however_many_limits(store: SqliteStore) -> None:
    assert cost(store, lambda: store.take([take("a", rate())]), Granted) == WRITE
    assert cost(store, lambda: store.take([take("b", rate(), slots())]), Granted) == WRITE


def test_the_first_take_ever_on_a_bucket_costs_the_same(store: SqliteStore) -> None:
    other = BucketKey(NAMESPACE, "acme", "openai")
    assert cost(store, lambda: store.take([take("a", at=other)]), Granted) == [
        "BEGIN IMMEDIATE",
        "SELECT",
        "INSERT",
        "COMMIT",
    ]


def test_a_denied_take_writes_nothing(store: SqliteStore, tmp_path: Path) -> None:
    assert cost(store, lambda: store.take([take("a", rate(10))]), Denied) == NOTHING_WRITTEN
    assert cost(store, lambda: store.take([take("a", slots(3))]), Denied) == NOTHING_WRITTEN
    log = tmp_path / "quota.db-wal"
    before = log.read_bytes()
    run(store.take([take("a", rate(10))] * 20))
    assert log.read_bytes() == before


def test_what_follows_a_take_costs_a_write_each_and_looking_costs_a_read(store: SqliteStore) -> None:
    same = cost(store, lambda: store.renew([Renew(KEY, "first", (slots(),))]), Renewed)
    assert same == NOTHING_WRITTEN, "at the same instant a renewal changes nothing"
    store._wire._database._clock.advance(1)  # type: ignore[attr-defined]
    assert cost(store, lambda: store.renew([Renew(KEY, "first", (slots(),))]), Renewed) == WRITE
    assert cost(store, lambda: store.settle([Settle(KEY, (Delta("rpm", 3, NS_PER_SECOND),))]), Settled) == WRITE
    assert cost(store, lambda: store.release([Release(KEY, "first")]), Released) == WRITE
    assert cost(store, lambda: store.peek([Peek(KEY)]), object) == READ


def test_a_list_of_takes_is_one_transaction_and_one_write_a_bucket(store: SqliteStore) -> None:
    store.heard.clear()  # type: ignore[attr-defined]
    answers = run(store.take([take(f"lease {number}") for number in range(12)]))
    assert [isinstance(answer, Granted) for answer in answers] == [True] * 9 + [False] * 3
    assert verbs(store.heard) == WRITE  # type: ignore[attr-defined]


def test_now_is_read_once_after_the_lock_is_held(tmp_path: Path) -> None:
    """Whoever waits for the lock is decided by the time at which it has it."""
    clock = ManualClock()
    store = blocking_store(tmp_path / "quota.db", clock)
    run(store.take([take("first")]))
    with locked(tmp_path / "quota.db"):
        answers: list[Any] = []
        waiting = threading.Thread(target=lambda: answers.extend(run(store.take([take("a"), take("b")]))))
        waiting.start()
        time.sleep(0.05)
        clock.advance(7)
    waiting.join()
    assert [answer.now_ns for answer in answers] == [clock.now_ns()] * 2


# --- what is shared ---------------------------------------------------------------------------------------------------


def test_threads_that_wait_at_the_same_time_share_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = blocking_store(tmp_path / "quota.db")
    with statements(monkeypatch) as heard:
        run(store.take([take("first")]))
        heard.clear()
        answers: list[Any] = []
        with locked(tmp_path / "quota.db"):
            threads = [
                threading.Thread(target=lambda n=number: answers.extend(run(store.take([take(f"lease {n}")]))))
                for number in range(20)
            ]
            for thread in threads:
                thread.start()
            until(lambda: len(store._wire._line.jobs) == len(threads))  # type: ignore[attr-defined]
            heard.clear()
        for thread in threads:
            thread.join()
    assert sum(isinstance(answer, Granted) for answer in answers) == 9
    assert sum(isinstance(answer, Denied) for answer in answers) == 11
    done = [verb for verb in verbs(heard) if verb != "BEGIN IMMEDIATE"]
    assert done == WRITE[1:], "twenty threads, one write"


def test_readers_dont_wait_for_somebody_elses_write_lock(tmp_path: Path) -> None:
    store = blocking_store(tmp_path / "quota.db", timeout_ns=50 * NS_PER_MS)
    run(store.take([take("first")]))
    with locked(tmp_path / "quota.db"):
        assert taken(look(store)) == 1


def test_a_job_that_is_refused_costs_the_others_nothing(tmp_path: Path) -> None:
    store = blocking_store(tmp_path / "quota.db")
    run(store.take([take("first"), take("first", at=BucketKey(NAMESPACE, "acme", "openai"))]))
    with raw(tmp_path / "quota.db") as connection:
        connection.execute("UPDATE bucket SET state = 'scribble' WHERE entity = 'acme'")
    answers: dict[str, Any] = {}

    def ask(entity: str) -> None:
        try:
            (answers[entity],) = run(store.take([take("a", at=BucketKey(NAMESPACE, entity, "openai"))]))
        except ConfigError as error:
            answers[entity] = error

    with locked(tmp_path / "quota.db"):
        threads = [threading.Thread(target=ask, args=(entity,)) for entity in ("*", "acme", "other")]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert isinstance(answers["acme"], ConfigError)
    assert isinstance(answers["*"], Granted)
    assert isinstance(answers["other"], Granted)


# --- time is up -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_a_lock_that_never_comes_is_unreached_when_time_is_up(tmp_path: Path, threads: int) -> None:
    store = blocking_store(tmp_path / "quota.db", timeout_ns=80 * NS_PER_MS)
    run(store.take([take("first")]))
    answers: list[Any] = []
    with locked(tmp_path / "quota.db"):
        asking = [
            threading.Thread(target=lambda n=number: answers.extend(run(store.take([take(f"{n}")]))))
            for number in range(threads)
        ]
        begun = time.monotonic()
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        took = time.monotonic() - begun
    assert [type(answer) for answer in answers] == [Unreached] * threads
    assert "for all of the timeout" in answers[0].why
    assert 0.08 <= took < 2
    assert isinstance(run(store.take([take("second")]))[0], Granted)
    assert taken(look(store)) == 2


def test_a_file_that_is_locked_before_it_is_first_opened_is_unreached_too(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with raw(path) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        store = blocking_store(path, timeout_ns=50 * NS_PER_MS)
        (answer,) = run(store.take([take("a")]))
        assert isinstance(answer, Unreached)
        connection.execute("ROLLBACK")
        assert isinstance(run(store.take([take("a")]))[0], Granted)


# --- errors and interruptions -----------------------------------------------------------------------------------------


class _Failing:
    """A connection on which a statement fails once, before or after SQLite has run it."""

    def __init__(self, inner: sqlite3.Connection, statement: str, error: BaseException, *, done: bool) -> None:
        self._inner = inner
        self._statement = statement
        self._error: BaseException | None = error
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, statement: str, *parameters: Any) -> Any:
        if self._error is None or not statement.startswith(self._statement):
            return self._inner.execute(statement, *parameters)
        error, self._error = self._error, None
        if self._done:
            self._inner.execute(statement, *parameters)
        raise error


def make_fail(store: SqliteStore, statement: str, error: BaseException, *, done: bool = False) -> None:
    opened = store._wire._database._opened  # type: ignore[attr-defined]
    whole = opened.pop()
    connection = _Failing(whole.connection, statement, error, done=done)
    opened.append(forks.keep(connection, whole.path))  # type: ignore[arg-type]
    forks._opened.discard(whole)


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as the test wants it")
    error.sqlite_errorcode = code
    return error


@pytest.fixture
def plain_store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = blocking_store(tmp_path / "quota.db")
    run(store.take([take("first")]))
    yield store
    run(store.close())


@pytest.mark.parametrize(
    ("statement", "code", "answer"),
    [
        ("UPDATE", sqlite3.SQLITE_FULL, Unreached),
        ("UPDATE", sqlite3.SQLITE_IOERR_WRITE, Unreached),
        ("SELECT", sqlite3.SQLITE_NOMEM, Unreached),
        ("COMMIT", sqlite3.SQLITE_FULL, Unreached),
        ("COMMIT", sqlite3.SQLITE_IOERR_FSYNC, Unknown),
    ],
)
def test_an_error_before_the_commit_is_unreached_and_in_it_unknown(
    plain_store: SqliteStore, statement: str, code: int, answer: type
) -> None:
    make_fail(plain_store, statement, sqlite_error(code))
    assert isinstance(run(plain_store.take([take("a")]))[0], answer)
    assert taken(look(plain_store)) == 1
    assert isinstance(run(plain_store.take([take("b")]))[0], Granted)
    assert taken(look(plain_store)) == 2


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT_INDEX, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOTADB])
def test_what_no_retry_cures_is_raised(plain_store: SqliteStore, code: int) -> None:
    make_fail(plain_store, "UPDATE", sqlite_error(code))
    with pytest.raises(ConfigError, match="as the test wants it"):
        run(plain_store.take([take("a")]))
    assert taken(look(plain_store)) == 1


@pytest.mark.parametrize(("statement", "kept"), [("UPDATE", 1), ("COMMIT", 2)])
def test_an_interruption_reaches_its_own_caller_and_leaves_no_lock(
    plain_store: SqliteStore, tmp_path: Path, statement: str, kept: int
) -> None:
    make_fail(plain_store, statement, KeyboardInterrupt(), done=True)
    with pytest.raises(KeyboardInterrupt):
        run(plain_store.take([take("a")]))
    with locked(tmp_path / "quota.db"):
        pass
    assert taken(look(plain_store)) == kept
    assert isinstance(run(plain_store.take([take("b")]))[0], Granted)


@pytest.mark.parametrize(("statement", "answer"), [("UPDATE", Unreached), ("COMMIT", Unknown)])
def test_those_who_shared_the_interrupted_transaction_get_their_certainty(
    plain_store: SqliteStore, tmp_path: Path, statement: str, answer: type
) -> None:
    make_fail(plain_store, statement, KeyboardInterrupt())
    interrupted: list[BaseException] = []
    answers: list[Any] = []

    def ask(number: int) -> None:
        try:
            answers.extend(run(plain_store.take([take(f"lease {number}")])))
        except KeyboardInterrupt as error:
            interrupted.append(error)

    with locked(tmp_path / "quota.db"):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(plain_store._wire._line.jobs) == len(threads))  # type: ignore[attr-defined]
    for thread in threads:
        thread.join()
    assert len(interrupted) == 1
    assert [type(one) for one in answers] == [answer] * 3


def test_a_job_that_breaks_undoes_the_transaction_and_its_caller_is_told(tmp_path: Path) -> None:
    wire = BlockingWire(Place(tmp_path / "quota.db"), ManualClock(), TIMEOUT_NS)
    store = SqliteStore(wire)

    def breaks(transaction: Transaction) -> None:
        transaction.decide([take("a")])
        transaction.save()
        raise ZeroDivisionError("a bug of ours")

    with pytest.raises(ZeroDivisionError):
        run(wire.write(breaks))
    assert not buckets(store)
    assert isinstance(run(store.take([take("a")]))[0], Granted)


def test_an_interruption_while_waiting_for_the_lock_passes_the_lead_on(tmp_path: Path) -> None:
    store = blocking_store(tmp_path / "quota.db")
    run(store.take([take("first")]))
    make_fail(store, "BEGIN IMMEDIATE", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(store.take([take("a")]))
    assert isinstance(run(store.take([take("b")]))[0], Granted)
    assert taken(look(store)) == 2


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_full_syncs_each_commit_and_normal_does_not(tmp_path: Path) -> None:
    for synchronous, level in (("normal", 1), ("full", 2)):
        wire = BlockingWire(Place(tmp_path / "quota.db", synchronous), ManualClock(), TIMEOUT_NS)
        levels = run(wire.read(lambda transaction: transaction.rows.execute("PRAGMA synchronous").fetchone()))
        assert levels == (level,)
        run(wire.close())


def test_idle_buckets_are_forgotten_and_what_cant_be_read_is_left_to_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.stores.sqlite.transaction.FIRST_SWEEP", 100)
    clock = ManualClock()
    store = blocking_store(tmp_path / "quota.db", clock)
    run(store.take([take("a", at=BucketKey(NAMESPACE, f"old {number}", "openai")) for number in range(200)]))
    with raw(tmp_path / "quota.db") as connection:
        connection.execute("UPDATE bucket SET state = 'scribble' WHERE entity = 'old 7'")
    clock.advance(4 * 3_600)
    for number in range(200):
        run(store.take([take("a", at=BucketKey(NAMESPACE, f"new {number}", "openai"))]))
    with raw(tmp_path / "quota.db") as connection:
        (old,) = connection.execute("SELECT count(*) FROM bucket WHERE entity LIKE 'old %'").fetchone()
        (new,) = connection.execute("SELECT count(*) FROM bucket WHERE entity LIKE 'new %'").fetchone()
    assert 1 <= old <= 50
    assert new == 200
    with pytest.raises(ConfigError, match="scribble"):
        run(store.peek([Peek(BucketKey(NAMESPACE, "old 7", "openai"))]))


def test_documents_written_together_are_one_transaction(store: SqliteStore) -> None:
    store.heard.clear()  # type: ignore[attr-defined]
    writes = [Put(Document(DocumentKey(NAMESPACE, Kind.LIMITS, f"d{n}"), "{}", "1")) for n in range(5)]
    assert run(store.write(writes)) == Stored()
    assert [verb for verb in verbs(store.heard) if verb in {"BEGIN IMMEDIATE", "COMMIT"}] == [  # type: ignore[attr-defined]
        "BEGIN IMMEDIATE",
        "COMMIT",
    ]


@pytest.mark.parametrize(("statement", "answer"), [("UPDATE", Unreached), ("COMMIT", Unknown)])
def test_what_a_signal_handler_raises_reaches_its_own_caller(
    plain_store: SqliteStore, tmp_path: Path, statement: str, answer: type
) -> None:
    make_fail(plain_store, statement, TimeoutError("an alarm"), done=True)
    raised: list[Exception] = []
    answers: list[Any] = []

    def ask(number: int) -> None:
        try:
            answers.extend(run(plain_store.take([take(f"lease {number}")])))
        except TimeoutError as error:
            raised.append(error)

    with locked(tmp_path / "quota.db"):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: len(plain_store._wire._line.jobs) == len(threads))  # type: ignore[attr-defined]
    for thread in threads:
        thread.join()
    assert len(raised) == 1
    assert [type(one) for one in answers] == [answer] * 2
    assert isinstance(run(plain_store.take([take("after")]))[0], Granted)
