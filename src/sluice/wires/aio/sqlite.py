"""SQLite under asyncio: one thread of its own takes whole batches, so the loop never waits for the file.

    none        nobody has asked yet, or it was closed: the next job starts the thread
    at work     it takes all jobs that wait into one transaction, and posts the answers to the loops they came from
    stopping    it does what still waits, closes the file and ends

`close` waits for the thread without blocking the loop. A wire that is dropped, and the end of the interpreter, stop it
too, so none is left behind. The thread belongs to no loop: one that was closed meanwhile gets no answers, because
nobody there waits for any, and the next one is served as the last one was.

A job whose time is up is answered by its loop, whatever the disk does.
"""

import asyncio
import atexit
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sluice.core.requests import Failure
from sluice.ports import Clock
from sluice.stores.sqlite.transaction import Transaction
from sluice.wires.sqlite.database import Database
from sluice.wires.sqlite.jobs import Job, Line, reading, writing
from sluice.wires.sqlite.opening import SqliteOpener
from sluice.wires.sqlite.place import Place, read_url

GRACE_S: Final = 0.05
"""How long after a job's time is up its loop answers in place of the thread, which is about to do so itself."""

END_S: Final = 5.0
"""How long the end of the interpreter waits for a thread."""

T = TypeVar("T")
Future = asyncio.Future[None]


class AioWire:
    """Runs jobs in a thread, for any loop of this process."""

    def __init__(self, place: Place, clock: Clock, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self._worker = _Worker(Database(place, clock))
        weakref.finalize(self, self._worker.stop).atexit = False

    async def write(self, job: Callable[[Transaction], T], /) -> T | Failure:
        return await self._run(writing(job, self._timeout_ns))  # type: ignore[no-any-return]

    async def read(self, job: Callable[[Transaction], T], /) -> T | Failure:
        return await self._run(reading(job, self._timeout_ns))  # type: ignore[no-any-return]

    async def _run(self, job: Job) -> Any:
        loop = asyncio.get_running_loop()
        answered = loop.create_future()
        self._worker.ask(job, answered)
        timer = loop.call_later(job.seconds_left + GRACE_S, self._worker.give_up, job)
        try:
            await answered
        finally:
            timer.cancel()
            if not job.done:
                self._worker.withdraw(job)
        return job.outcome()

    async def close(self) -> None:
        ended = asyncio.get_running_loop().create_future()
        thread = self._worker.stop(ended)
        if thread is not None:
            await ended
            thread.join()  # posting that was the last thing it did


class _Worker:
    """The thread, the jobs that wait for it, and who is told when they are done."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._line = Line()
        self._answered: dict[Job, Future] = {}
        self._ended: list[Future] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._pid = os.getpid()

    # --- from the loops ---

    def ask(self, job: Job, answered: Future) -> None:
        with self._changed:
            self._line.jobs.append(job)
            self._answered[job] = answered
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sluice sqlite", daemon=True)
                self._thread.start()
                _workers.add(self)
            self._changed.notify_all()

    def withdraw(self, job: Job) -> None:
        with self._changed:
            self._line.withdraw(job)
            self._answered.pop(job, None)

    def give_up(self, job: Job) -> None:
        """Answer a job whose time is up, on its loop."""
        with self._changed:
            answered = self._answered.pop(job, None)
            if answered is not None and not job.done:
                self._line.give_up(job)
                _wake([answered])

    def stop(self, ended: Future | None = None) -> threading.Thread | None:
        """Let the thread do what waits and end; the thread that will, and tell ``ended`` then."""
        if self._pid != os.getpid():
            return None  # the thread, and whoever held the lock, stayed behind in the parent
        with self._changed:
            thread, self._thread = self._thread, None
            if thread is not None and ended is not None:
                self._ended.append(ended)
            self._changed.notify_all()
            return thread

    # --- in the thread ---

    def _work(self) -> None:
        while (lead := self._next()) is not None:
            self._post(self._database.run(lead, lambda lead=lead: self._take(lead)))  # type: ignore[misc]
        self._database.close()
        with self._changed:
            ended, self._ended = self._ended, []
        _post(_wake, ended)

    def _next(self) -> Job | None:
        """The job that leads the next transaction; None if this thread is to end."""
        me = threading.current_thread()
        with self._changed:
            self._changed.wait_for(lambda: self._line.jobs or self._thread is not me)
            replaced = self._thread is not None and self._thread is not me
            return self._line.jobs[0] if self._line.jobs and not replaced else None

    def _take(self, lead: Job) -> Sequence[Job]:
        with self._changed:
            return self._line.take(lead)

    def _post(self, done: Sequence[Job]) -> None:
        with self._changed:
            for job in done:
                self._line.withdraw(job)
            answered = [self._answered.pop(job) for job in done if job in self._answered]
        _post(_wake, answered)


def _wake(answered: Sequence[Future]) -> None:
    for future in answered:
        if not future.done():
            future.set_result(None)


def _post(call: Callable[[Sequence[Future]], None], futures: Sequence[Future]) -> None:
    """Have something called with its futures on each loop; a loop that was closed has nobody left who waits."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Future]] = defaultdict(list)
    for future in futures:
        by_loop[future.get_loop()].append(future)
    for loop, mine in by_loop.items():
        try:
            loop.call_soon_threadsafe(call, mine)
        except RuntimeError:
            if not loop.is_closed():
                raise


_workers: weakref.WeakSet[_Worker] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """When the interpreter ends, let every thread finish; bounded in time."""
    for thread in [worker.stop() for worker in list(_workers)]:
        if thread is not None:
            thread.join(END_S)


def opener(url: str) -> SqliteOpener:
    """Read a URL for the asyncio facade."""
    return SqliteOpener(read_url(url), AioWire)
