"""A nursery of workers that share one file and are killed at random moments; told in one JSON argument what to do.

It forks its workers, kills one now and then and forks another in its place. Each worker has a record of its own, line
by line with nothing held back, so what it noted survives it. What is about to happen is noted before, what the
store answered after: a kill in between leaves the first without the second.

    asks        a take of a slot is about to be sent              at: the host's clock
    granted     the store granted                                 at: the store's clock, from here on but "releases"
    denied      the store denied a slot
    renews      a renewal is about to be sent
    renewed     the store renewed
    releases    a release is about to be sent                     at: the host's clock
    released    the store released
    failed      an error that nobody expects
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from sluice import Limit, Sluice
from sluice.core.requests import Denied, Granted, Release, Released, Renew, Renewed, Take
from sluice.ports import Clock, Scope, Store
from sluice.wires.opening import Opener, blocking
from tests.sqlite.kit import url_of

RATE: Final = "300/s burst 30"
SLOTS: Final = "4 slots ttl 1s"

BUSY_S: Final = 0.01
REST_S: Final = 0.02
HOLD_S: Final = 0.8


class Record:
    """One worker's notes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, **facts: object) -> None:
        os.write(self._file, json.dumps({"note": what, **facts}).encode() + b"\n")


class NotingStore:
    """A store that notes what it is about to do and what it did."""

    def __init__(self, store: Store, record: Record) -> None:
        self._store = store
        self._note = record.note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def take(self, requests: Sequence[Take]) -> Sequence[object]:
        for request in requests:
            if request.parts[0].slots:
                self._note("asks", lease=request.lease_id, at=time.time_ns())
        answers = await self._store.take(requests)
        for request, answer in zip(requests, answers, strict=True):
            slots = bool(request.parts[0].slots)
            if isinstance(answer, Granted):
                self._note("granted", lease=request.lease_id, at=answer.now_ns, slots=slots)
            elif isinstance(answer, Denied) and slots:
                self._note("denied", lease=request.lease_id, at=answer.now_ns)
        return answers

    async def renew(self, requests: Sequence[Renew]) -> Sequence[object]:
        for request in requests:
            self._note("renews", lease=request.lease_id)
        answers = await self._store.renew(requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Renewed):
                self._note("renewed", lease=request.lease_id, at=answer.now_ns)
        return answers

    async def release(self, requests: Sequence[Release]) -> Sequence[object]:
        for request in requests:
            self._note("releases", lease=request.lease_id, at=time.time_ns())
        answers = await self._store.release(requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Released):
                self._note("released", lease=request.lease_id, at=answer.now_ns)
        return answers


def noting_sluice(url: str, record: Record) -> Sluice:
    def noting(url: str) -> Opener:
        opener = blocking(url)

        def open_store(clock: Clock, scope: Scope, timeout_ns: int) -> Store:
            return cast("Store", NotingStore(opener(clock, scope, timeout_ns), record))

        return open_store

    class NotingSluice(Sluice):
        _read_url = staticmethod(noting)

    return NotingSluice(url, timeout=10)


def work(url: str, record: Record, rng: random.Random) -> None:
    """Take of a rate in bursts, and hold slots beside, until killed."""
    sluice = noting_sluice(url, record)

    def hold() -> None:
        while True:
            lease = sluice.try_acquire("gpu", wait=rng.choice([0, 0.3]))
            if isinstance(lease, Denied):
                time.sleep(0.02)
                continue
            with lease:
                time.sleep(rng.uniform(0, HOLD_S))

    def noted(body: Any) -> None:
        try:
            body()
        except BaseException as error:
            record.note("failed", why=repr(error))
            raise

    threading.Thread(target=noted, args=(hold,), daemon=True).start()

    def take() -> None:
        while True:
            until = time.monotonic() + BUSY_S
            while time.monotonic() < until:
                sluice.try_acquire("api")
            time.sleep(REST_S)

    noted(take)


def fork(folder: Path, url: str, serial: int, seed: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work(url, Record(folder / f"{serial}.jsonl"), random.Random(seed * 100_003 + serial))
        finally:
            os._exit(1)
    return pid


def nurse(folder: Path, seconds: float, workers: int, seed: int) -> dict[str, Any]:
    """Fork, kill and fork again; when each was killed, by number."""
    rng = random.Random(seed)
    url = url_of(folder / "quota.db")
    with Sluice(url) as sluice:
        sluice.set_limits("api", [Limit("rps", RATE)])
        sluice.set_limits("gpu", [Limit("concurrent", SLOTS)])
    begun_ns = time.time_ns()
    until = time.monotonic() + seconds
    alive = {serial: fork(folder, url, serial, seed) for serial in range(workers)}
    killed: dict[int, int] = {}

    def kill(serial: int) -> None:
        pid = alive.pop(serial)
        os.kill(pid, signal.SIGKILL)
        assert os.waitpid(pid, 0) == (pid, signal.SIGKILL), "a worker ended before it was killed"
        killed[serial] = time.time_ns()

    try:
        while time.monotonic() < until:
            time.sleep(rng.uniform(0.02, 0.3))
            kill(rng.choice(list(alive)))
            serial = len(killed) + len(alive)
            alive[serial] = fork(folder, url, serial, seed)
    finally:
        for serial in list(alive):
            kill(serial)
    return {"killed": killed, "begun_ns": begun_ns, "ended_ns": time.time_ns()}


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    print(json.dumps(nurse(Path(order.pop("folder")), **order)))
