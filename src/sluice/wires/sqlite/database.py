"""This process's connection to a SQLite file, and the transactions on it: one at a time, whoever asks.

    opened      when first needed: whose file it is, WAL, migrations; anew when another file has come in its place
    begun       short, jittered tries until the lock is there or time is up
    decided     ``now`` is read; each job in turn; what has changed is saved once
    committed   and only then does anybody learn an answer

SQLite's own busy handler waits longer and longer, so whoever waits long loses to whoever has just come; here every
waiter tries as often as any other, whatever its age. An error undoes the whole transaction. Whoever dies in it
leaves nothing: the locks vanish with the process, and what was not committed is not read by anybody.
"""

import atexit
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.requests import Failure, Unknown, Unreached
from sluice.ports import Clock
from sluice.stores.sqlite.statements import MIGRATIONS
from sluice.stores.sqlite.transaction import Transaction
from sluice.wires.sqlite.failures import Fate, failure_of, is_busy
from sluice.wires.sqlite.forks import Opened, forking, keep, refuse_inherited
from sluice.wires.sqlite.jobs import Job
from sluice.wires.sqlite.place import Place
from sluice.wires.sqlite.schema import migrate, version_of

GAP_NS: Final = 300_000
"""Between tries for a lock passes half of this to all of it, by chance."""

FORK_PATIENCE_S: Final = 5.0
"""How long a fork waits for the transaction that another thread is in."""

END_PATIENCE_S: Final = 1.0
"""How long the end of the interpreter waits for another thread's transaction."""

BEGIN_WRITE: Final = "BEGIN IMMEDIATE"
BEGIN_READ: Final = "BEGIN"

T = TypeVar("T")


class _Broken(Exception):
    """A job raised what no job should: its transaction was undone."""

    def __init__(self, job: Job, error: Exception) -> None:
        super().__init__(str(error))
        self.job = job
        self.error = error


class Database:
    """A file, as one process uses it. Threads take turns."""

    def __init__(self, place: Place, clock: Clock) -> None:
        self.place = place
        self._clock = clock
        self._turn = threading.RLock()
        self._opened: list[Opened] = []
        self._identity: tuple[int, int] | None = None
        self._in_transaction = False
        self._turn_is_mine = False
        weakref.finalize(self, _close, self._opened).atexit = False
        forking.watch(self)
        _databases.add(self)

    def run(self, lead: Job, gather: Callable[[], Sequence[Job]]) -> Sequence[Job]:
        """Run jobs in one transaction, for as long as ``lead`` has time; those that are done now.

        ``gather`` gives the jobs once the lock is held. What can't be begun fails ``lead`` alone. An interruption is
        raised again, after the jobs of others got their certainty.
        """
        batch: Sequence[Job] = ()
        fate: Fate = Unreached
        try:
            with self._turn:
                if self._in_transaction:
                    lead.answer(Unreached("it was asked in the middle of this thread's own transaction"))
                    return (lead,)
                self._in_transaction = True
                try:
                    connection = self._begun(lead)
                    batch = gather()
                    answers = self._decide(connection, batch)
                    fate = Unknown
                    connection.execute("COMMIT")
                finally:
                    # Nothing is called before the rollback, so no interruption can come in between.
                    self._in_transaction = False
                    if self._opened and self._opened[0].connection.in_transaction:
                        self._opened[0].connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            return _failed(batch or (lead,), error, self.place, fate)
        except ConfigError as error:
            return _refused(batch or (lead,), error)
        except _Broken as broken:
            return _broke(batch, broken.job, broken.error, fate)
        except Exception as error:  # noqa: BLE001 - a bug, or what a signal handler raised: it goes to a caller
            return _broke(batch or (lead,), lead, error, fate)
        except BaseException:
            _answer_others(batch, lead, fate("the transaction that it shared with others was interrupted"))
            raise
        for job, answer in zip(batch, answers, strict=True):
            if isinstance(answer, ConfigError):
                job.fail(answer)
            else:
                job.answer(answer)
        return batch

    def _decide(self, connection: sqlite3.Connection, batch: Sequence[Job]) -> list[Any]:
        transaction = Transaction(connection, self._clock.now_ns())
        answers: list[Any] = []
        for job in batch:
            try:
                answers.append(job.work(transaction))
            except ConfigError as error:
                answers.append(error)
            except sqlite3.Error:
                raise
            except Exception as error:
                raise _Broken(job, error) from error
        transaction.save()
        return answers

    def close(self) -> None:
        """Let go of the file. It is opened again when it is needed again."""
        with self._turn:
            _close(self._opened)

    def close_at_end(self) -> None:
        """Close, unless another thread is at it: a connection that is closed under its user crashes the process."""
        if self._turn.acquire(timeout=END_PATIENCE_S):
            try:
                _close(self._opened)
            finally:
                self._turn.release()

    # --- the connection ---

    def _begun(self, lead: Job) -> sqlite3.Connection:
        if self._opened and self._opened[0].connection.in_transaction:
            _close(self._opened)  # its last rollback failed
        if self._opened and self._identity != self.place.identity():
            _close(self._opened)  # others that start now can't see the file that was removed: limits would be split
        if not self._opened:
            self._open(lead.until_ns)
        connection = self._opened[0].connection
        begin = BEGIN_WRITE if lead.writes else BEGIN_READ
        _patiently(lambda: connection.execute(begin), lead.until_ns)
        return connection

    def _open(self, until_ns: int) -> None:
        refuse_inherited(self.place.path)
        self.place.make_ready()
        connection = sqlite3.connect(self.place.path, timeout=0, isolation_level=None, check_same_thread=False)
        self._opened.append(keep(connection, self.place.path))
        try:
            _patiently(lambda: _recognise(connection, self.place), until_ns)
            _patiently(lambda: _share(connection, self.place), until_ns)
            _patiently(lambda: _bring_up_to_date(connection, self.place), until_ns)
            self._identity = self.place.identity()
        except BaseException:
            _close(self._opened)
            raise

    # --- around a fork ---

    def before_fork(self) -> None:
        """Wait for the turn and close. What hangs, or what this thread is in itself, stays open: a child is refused."""
        self._turn_is_mine = self._turn.acquire(timeout=FORK_PATIENCE_S)
        if self._turn_is_mine and not self._in_transaction:
            _close(self._opened)

    def after_fork_in_parent(self) -> None:
        if self._turn_is_mine:
            self._turn.release()

    def after_fork_in_child(self) -> None:
        self._turn = threading.RLock()
        self._opened.clear()


_databases: weakref.WeakSet[Database] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """When the interpreter ends, let go of every file that nobody is using."""
    for database in list(_databases):
        database.close_at_end()


def _close(opened: list[Opened]) -> None:
    while opened:
        opened.pop().close()


def _failed(batch: Sequence[Job], error: sqlite3.Error, place: Place, fate: Fate) -> Sequence[Job]:
    try:
        failure = failure_of(error, place, fate)
    except ConfigError as refused:
        return _refused(batch, refused)
    for job in batch:
        job.answer(failure)
    return batch


def _refused(batch: Sequence[Job], error: ConfigError) -> Sequence[Job]:
    for job in batch:
        job.fail(error)
    return batch


def _broke(batch: Sequence[Job], owner: Job, error: Exception, fate: Fate) -> Sequence[Job]:
    _answer_others(batch, owner, fate(f"it shared a transaction with what failed: {error!r}"))
    owner.fail(error)
    return batch


def _answer_others(batch: Sequence[Job], owner: Job, answer: Failure) -> None:
    for job in batch:
        if job is not owner:
            job.answer(answer)


def _patiently(step: Callable[[], T], until_ns: int) -> T:
    """Do something that others may be in the way of, trying until time is up."""
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic_ns() >= until_ns:
                raise
        time.sleep(random.uniform(GAP_NS / 2, GAP_NS) / NS_PER_SECOND)


@contextmanager
def _within(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """A transaction of the opening."""
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _recognise(connection: sqlite3.Connection, place: Place) -> None:
    """Refuse what is not ours before anything of it is changed."""
    with _within(connection, BEGIN_READ):
        version_of(connection, place)


def _share(connection: sqlite3.Connection, place: Place) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ConfigError(
            f"SQLite file {str(place.path)!r} can't be shared by processes where it is: its journal stays {mode!r}; "
            "use a folder on a local disk"
        )
    connection.execute(f"PRAGMA synchronous = {place.synchronous}")


def _bring_up_to_date(connection: sqlite3.Connection, place: Place) -> None:
    with _within(connection, BEGIN_READ):
        current = version_of(connection, place) == len(MIGRATIONS)
    if not current:
        with _within(connection, BEGIN_WRITE):
            migrate(connection, place)
