"""SQLite for callers that block: each thread runs its own transaction, or shares the one that another is about to run.

Whoever comes while no thread is at the file leads: it begins a transaction and takes every job that waits by then into
it. The others wait; once it is over, those with an answer go and one of the rest leads. An interruption of the leader
(KeyboardInterrupt) undoes the transaction and hands the lead on.

A job waits for its turn no longer than the client's timeout. What can't be bounded is the disk, under the leader.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sluice.core.requests import Failure
from sluice.ports import Clock
from sluice.stores.sqlite.transaction import Transaction
from sluice.wires.sqlite_database import Database
from sluice.wires.sqlite_jobs import Job, Line, reading, writing
from sluice.wires.sqlite_opening import SqliteOpener
from sluice.wires.sqlite_place import Place, read_url

T = TypeVar("T")


class BlockingWire:
    """Runs jobs in the threads that ask."""

    def __init__(self, place: Place, clock: Clock, timeout_ns: int) -> None:
        self._database = Database(place, clock)
        self._timeout_ns = timeout_ns
        self._line = Line()
        self._leader: Job | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    async def write(self, job: Callable[[Transaction], T], /) -> T | Failure:
        return self._run(writing(job, self._timeout_ns))  # type: ignore[no-any-return]

    async def read(self, job: Callable[[Transaction], T], /) -> T | Failure:
        return self._run(reading(job, self._timeout_ns))  # type: ignore[no-any-return]

    async def close(self) -> None:
        self._database.close()

    def _run(self, job: Job) -> Any:
        try:
            with self._lock:
                self._line.jobs.append(job)
                if self._leader is None:
                    self._leader = job
            while not job.done:
                if self._leader is job:
                    self._database.run(job, lambda: self._gather(job))
                else:
                    self._wait(job)
        finally:
            self._leave(job)
        return job.outcome()

    def _wait(self, job: Job) -> None:
        """Wait until the job is done, somebody is to lead, which is this one then, or time is up."""
        with self._lock:
            if not self._changed.wait_for(lambda: job.done or self._leader is None, job.seconds_left):
                self._line.give_up(job)
            elif self._leader is None and not job.done:
                self._leader = job

    def _gather(self, lead: Job) -> Sequence[Job]:
        with self._lock:
            return self._line.take(lead)

    def _leave(self, job: Job) -> None:
        with self._lock:
            if self._line.jobs:
                self._line.withdraw(job)
            if self._leader is job:
                self._leader = None
                self._changed.notify_all()


def opener(url: str) -> SqliteOpener:
    """Read a URL for the blocking facade."""
    return SqliteOpener(read_url(url), BlockingWire)
