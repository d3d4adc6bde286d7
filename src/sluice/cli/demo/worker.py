"""One worker: a process that takes from the shared limits, calls the vendor and says on stdout what it did.

It is told on stdin what to do, once when it is made and once when it may begin, and leaves when stdin ends. Its notes:

    ready       it has opened the store
    asks        it wants a slot and tokens
    granted     the store granted a lease, at this time by the store's clock
    full        the store denied a lease because no slot was free, at this time by the store's clock
    renewed     the store renewed a lease, at this time by the store's clock
    released    the store took a lease's slot back, at this time by the store's clock
    waited      how long the ask took
    calls       it calls the vendor
    lost        a lease lapsed while it was held: the process stood still for too long
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any, cast

from sluice.cli.demo.notes import leave_with_parent, say, told
from sluice.cli.demo.scenario import RESOURCE
from sluice.cli.demo.vendor import Line
from sluice.core.bounds import NS_PER_SECOND
from sluice.core.events import Event, TakeGranted
from sluice.core.requests import Denied, Failure, Gone, Granted, Release, Released, Renew, Renewed, SlotsCharge, Take
from sluice.sync import Sluice
from sluice.wires.clock import SystemClock
from sluice.wires.opening import Opener, blocking

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sluice.ports import Clock, Scope, Store


class NotingStore:
    """A store that notes what was granted, renewed and released, each with the time at which the store decided it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def take(self, requests: Sequence[Take]) -> Sequence[object]:
        answers = await self._store.take(requests)
        for request, answer in zip(requests, answers, strict=True):
            charges = [charge for part in request.parts for charge in part.charges]
            if isinstance(answer, Granted) and not answer.repeated:
                amounts = {charge.name: charge.amount for charge in charges}
                say("granted", lease=request.lease_id, at_ns=answer.turn_ns, amounts=amounts)
            elif isinstance(answer, Denied):
                slots = {charge.name for charge in charges if isinstance(charge, SlotsCharge)}
                if any(status.name in slots for status in answer.limits):
                    say("full", at_ns=answer.now_ns)
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

    def open_store(clock: Clock, scope: Scope, timeout_ns: int) -> Store:
        return cast("Store", NotingStore(opener(clock, scope, timeout_ns)))

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
        self.number: int = order["number"]
        self._rng = random.Random(order["seed"] * 1_000 + self.number)
        self._tokens: tuple[int, int] = tuple(order["tokens"])
        self._call_ms: tuple[int, int] = tuple(order["call_ms"])
        self._think_ms: tuple[int, int] = tuple(order["think_ms"])
        self._clock = SystemClock()
        self.sluice = NotingSluice(order["url"], timeout=order["timeout"], observer=observe)

    def sleep_until(self, at_ns: int) -> None:
        time.sleep(max(0, at_ns - self._clock.steady_ns()) / NS_PER_SECOND)

    def work(self, *, from_ns: int, until_ns: int, vendor_port: int) -> None:
        """Ask and call from one time to another."""
        line = Line(vendor_port)
        calls = 0
        self.sleep_until(from_ns)
        while (left_ns := until_ns - self._clock.steady_ns()) > 0:
            tokens, call_ms = self._rng.randint(*self._tokens), self._rng.randint(*self._call_ms)
            say("asks", tokens=tokens)
            lease = self.sluice.try_acquire(RESOURCE, {"tokens": tokens}, wait=left_ns / NS_PER_SECOND)
            if isinstance(lease, Denied):  # nothing more comes free before the end
                return
            with lease:
                calls += 1
                say("calls", lease=lease.id, tokens=tokens)
                line.call(worker=self.number, call=calls, lease=lease.id, tokens=tokens, ms=call_ms)
                if lease.lost:
                    say("lost", lease=lease.id)
            time.sleep(self._rng.randint(*self._think_ms) / 1000)


def main() -> None:
    worker = Worker(told())
    with worker.sluice as sluice:
        sluice.resolve_limits(RESOURCE)
        say("ready", pid=os.getpid())
        start = told()
        threading.Thread(target=leave_with_parent, daemon=True).start()
        worker.work(**start)


if __name__ == "__main__":
    main()
