"""SQLite for callers that block: each thread runs its own transaction, or shares the one that another is about to run.

Whoever finds the turn free leads: it begins a transaction and takes every job that waits by then into it. The others
wait; once it is over, those with an answer are told, and one of the rest, which leads.

An interruption (KeyboardInterrupt, what a signal handler raises) may come between any two steps. So the turn is a lock
that its thread lets go of in the very first step of a ``finally``; who waits to be told does so at a bare lock, because
`threading.Condition` can be interrupted half-way; and who was not told looks by itself every so often.

A job waits for its turn no longer than the client's timeout. What can't be bounded is the disk, under the leader.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sluice.core.requests import Failure, Unknown
from sluice.ports import Clock
from sluice.stores.sqlite.transaction import Transaction
from sluice.wires.sqlite.database import Database
from sluice.wires.sqlite.jobs import Job, Line, reading, writing
from sluice.wires.sqlite.opening import SqliteOpener
from sluice.wires.sqlite.place import Place, read_url

T = TypeVar("T")


LOOK_S: Final = 0.01
"""Who waits looks this often whether the turn is free, in case that nobody told."""


class BlockingWire:
    """Runs jobs in the threads that ask."""

    def __init__(self, place: Place, clock: Clock, timeout_ns: int) -> None:
        self._database = Database(place, clock)
        self._timeout_ns = timeout_ns
        self._line = Line()
        self._lock = threading.RLock()
        self._turn = threading.RLock()

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
            while not job.done:
                if not self._led(job):
                    self._wait(job)
        finally:
            with self._lock:
                self._line.withdraw(job)
        return job.outcome()

    def _led(self, job: Job) -> bool:
        """Run the next transaction, unless another thread does: whether this one did."""
        done: Sequence[Job] = ()
        leads = False
        try:
            leads = self._turn.acquire(blocking=False)
            if leads and self._waits(job):
                done = self._database.run(job, lambda: self._gather(job))
        finally:
            try:
                self._turn.release()  # nothing is called before, so no interruption can come in between
            except RuntimeError:
                leads = False  # it is another thread's
        if len(done) > 1 or self._line.jobs:
            self._tell(done)
        return leads

    def _tell(self, done: Sequence[Job]) -> None:
        """Tell those who have an answer, and who waits longest that the turn is free."""
        with self._lock:
            for job in (*done, *list(self._line.jobs)[:1]):
                job.tell()

    def _wait(self, job: Job) -> None:
        """Wait until there is something to see, or time is up."""
        left_s = job.seconds_left
        job.told.acquire(timeout=min(left_s, LOOK_S))
        if not left_s:
            with self._lock:
                if not job.done:
                    self._line.give_up(job)

    def _waits(self, job: Job) -> bool:
        """Whether a job is still in the line. Nobody is at the file now: who took it along and left was interrupted."""
        with self._lock:
            waits = job in self._line.jobs
            if not waits and not job.done:
                job.answer(Unknown("the thread that took it into its transaction was interrupted"))
            return waits

    def _gather(self, lead: Job) -> Sequence[Job]:
        with self._lock:
            return self._line.take(lead)


def opener(url: str) -> SqliteOpener:
    """Read a URL for the blocking facade."""
    return SqliteOpener(read_url(url), BlockingWire)
