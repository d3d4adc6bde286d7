"""One worker: a process that takes from the shared limits, calls the vendor and says on stdout what it did.

It is told on stdin what to do, one JSON line when it is made and one when it may begin, and leaves at once when stdin
ends, because then nobody is there any more. Each note is one JSON line, written whole:

    ready       it has opened the store
    asks        it wants a slot and tokens
    granted     the store granted a lease, at this time by the store's clock
    renewed     the store renewed a lease, at this time by the store's clock
    released    the store took a lease's slot back, at this time by the store's clock
    waited      how long the ask took
    started     a call to the vendor began, at this time by the steady clock
    ended       that call is over
    lost        a lease lapsed while it was held: the process stood still for too long
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, cast

from sluice.cli.demo.scenario import RESOURCE
from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.core.events import Event, TakeGranted
from sluice.core.requests import Denied, Failure, Gone, Granted, Release, Released, Renew, Renewed, Take
from sluice.sync import Sluice
from sluice.wires.clock import SystemClock
from sluice.wires.opening import Opener, blocking

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sluice.ports import Clock, Scope, Store
    from sluice.sync import Lease

_saying = threading.Lock()


def say(note: str, **facts: object) -> None:
    with _saying:
        print(json.dumps({"note": note, **facts}), flush=True)


class NotingStore:
    """A store that notes what was granted, renewed and released, each with the time at which the store decided it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def take(self, requests: Sequence[Take]) -> Sequence[object]:
        answers = await self._store.take(requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Granted) and not answer.repeated:
                amounts = {charge.name: charge.amount for part in request.parts for charge in part.charges}
                say("granted", lease=request.lease_id, at_ns=answer.turn_ns, amounts=amounts)
        return answers

    async def renew(self, requests: Sequence[Renew]) -> Sequence[Renewed | Gone | Failure]:
        answers = await self._store.renew(requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Renewed):
                say("renewed", lease=request.lease_id, at_ns=answer.now_ns)
        return answers

    async def release(self, requests: Sequence[Release]) -> Sequence[Released | Gone | Failure]:
        answers = await self._store.release(requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Released):
                say("released", lease=request.lease_id, at_ns=answer.now_ns)
        return answers


def _noting(url: str) -> Opener:
    opener = blocking(url)

    def open_store(clock: Clock, scope: Scope) -> Store:
        return cast("Store", NotingStore(opener(clock, scope)))

    return open_store


class NotingSluice(Sluice):
    """A client whose store takes notes."""

    _read_url = staticmethod(_noting)


def observe(event: Event) -> None:
    if isinstance(event, TakeGranted):
        say("waited", lease=event.lease_id, waited_ns=event.waited_ns)


class Worker:
    """Takes and calls until its time is up."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._rng = random.Random(order["seed"] * 1_000 + order["number"])
        self._tokens: tuple[int, int] = tuple(order["tokens"])
        self._call_ms: tuple[int, int] = tuple(order["call_ms"])
        self._clock = SystemClock()
        self._calls = 0
        self.sluice = NotingSluice(order["url"], observer=observe)

    def sleep_until(self, at_ns: int) -> None:
        time.sleep(max(0, at_ns - self._clock.steady_ns()) / NS_PER_SECOND)

    def work(self, *, from_ns: int, until_ns: int, hang_ns: int) -> None:
        """Ask and call from one time to another; the first call after ``hang_ns`` lasts to the end."""
        self.sleep_until(from_ns)
        while (left_ns := until_ns - self._clock.steady_ns()) > 0:
            tokens = self._rng.randint(*self._tokens)
            say("asks", tokens=tokens)
            lease = self.sluice.try_acquire(RESOURCE, {"tokens": tokens}, wait=left_ns / NS_PER_SECOND)
            if isinstance(lease, Denied):
                self.sleep_until(min(until_ns, self._clock.steady_ns() + lease.retry_in_ns))
                continue
            with lease:
                hangs = self._clock.steady_ns() >= hang_ns
                self._call(lease, tokens, until_ns if hangs else 0)

    def _call(self, lease: Lease, tokens: int, hang_until_ns: int) -> None:
        call_ns = self._rng.randint(*self._call_ms) * NS_PER_MS
        started_ns = self._clock.steady_ns()
        self._calls += 1
        say("started", call=self._calls, lease=lease.id, at_ns=started_ns, tokens=tokens, hangs=bool(hang_until_ns))
        self.sleep_until(max(started_ns + call_ns, hang_until_ns))
        say("ended", call=self._calls, at_ns=self._clock.steady_ns())
        if lease.lost:
            say("lost", lease=lease.id)


def _told() -> dict[str, Any]:
    """The next line of what this worker is told. Without one there is nobody to work for."""
    line = sys.stdin.readline()
    if not line:
        sys.exit("nobody is there to work for")
    told: dict[str, Any] = json.loads(line)
    return told


def _leave_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):  # not through sys.stdin, whose lock would hold up the interpreter's end
        pass
    os._exit(1)


def main() -> None:
    worker = Worker(_told())
    with worker.sluice as sluice:
        sluice.resolve_limits(RESOURCE)
        say("ready", pid=os.getpid())
        start = _told()
        threading.Thread(target=_leave_with_parent, daemon=True).start()
        worker.work(**start)


if __name__ == "__main__":
    main()
