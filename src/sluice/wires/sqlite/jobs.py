"""Jobs for a SQLite file: those that wait share the next transaction, in the order in which they came.

    waiting    in the line; withdrawn when its time is up: certainly not applied
    taken      in a transaction; when its time is up first, its fate is unknown
    done       it has its answer, or an error of its own

While one transaction is in flight, what arrives waits and leaves together in the next; an idle file adds no delay.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.requests import Unknown, Unreached
from sluice.stores.sqlite.transaction import Transaction

MAX_BATCH: Final = 256
"""Jobs in one transaction. More wait for the next, so that other processes have their turn."""


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False, slots=True)
class Job:
    """Something to do in a transaction, until when there is time for it, and what came of it.

    A thread that waits for it does so at ``told``, a lock that is let go of when there is something to see.
    """

    work: Callable[[Transaction], Any]
    writes: bool
    until_ns: int
    done: bool = False
    told: threading.Lock = field(default_factory=_closed)
    _answer: Any = None
    _error: Exception | None = None

    def answer(self, answer: Any) -> None:
        self._answer, self.done = answer, True

    def fail(self, error: Exception) -> None:
        self._error, self.done = error, True

    def tell(self) -> None:
        """Have its thread look."""
        if self.told.locked():
            self.told.release()

    def outcome(self) -> Any:
        """Its answer; or the error that belongs to whoever asked is raised."""
        if self._error is not None:
            raise self._error
        return self._answer

    @property
    def seconds_left(self) -> float:
        return max(0, self.until_ns - time.monotonic_ns()) / NS_PER_SECOND


def reading(work: Callable[[Transaction], Any], timeout_ns: int) -> Job:
    """A job that only reads."""
    return Job(work, writes=False, until_ns=time.monotonic_ns() + timeout_ns)


def writing(work: Callable[[Transaction], Any], timeout_ns: int) -> Job:
    """A job that needs the file's write lock."""
    return Job(work, writes=True, until_ns=time.monotonic_ns() + timeout_ns)


@dataclass(slots=True)
class Line:
    """The jobs that wait. It is used under its owner's lock."""

    jobs: deque[Job] = field(default_factory=deque)

    def withdraw(self, job: Job) -> bool:
        """Take a job back; False if it has been taken already."""
        if job not in self.jobs:
            return False
        self.jobs.remove(job)
        return True

    def give_up(self, job: Job) -> None:
        """Answer a job whose time is up."""
        if self.withdraw(job):
            job.answer(Unreached("others of this process were at the SQLite file for all of the timeout"))
        else:
            job.answer(Unknown("the SQLite file did not answer in time"))

    def take(self, lead: Job) -> list[Job]:
        """The next batch: all that wait if the one that leads writes, else all that read."""
        batch = [job for job in self.jobs if lead.writes or not job.writes][:MAX_BATCH]
        if len(batch) == len(self.jobs):
            self.jobs.clear()
        else:
            taken = set(batch)
            self.jobs = deque(job for job in self.jobs if job not in taken)
        return batch
