"""What the processes of `test_processes` do: told in one JSON argument, started together by a line on stdin.

saturate    take as fast as it goes, for so many seconds; how many, and the slowest
wait        several threads wait for their turns of one rate; what was granted when, and the statements that cost
migrate     open a file that nobody has opened before
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from sluice import Sluice
from sluice.core.requests import Granted, Take
from sluice.ports import Clock, Scope, Store
from sluice.wires.clock import SystemClock
from sluice.wires.opening import Opener, blocking
from tests.sqlite.kit import blocking_store, run, statements, take, url_of, verbs

RESOURCE = "openai"
PATIENCE_S = 60


def begin_together() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def saturate(path: str, seconds: float) -> dict[str, Any]:
    store = blocking_store(Path(path), SystemClock())
    run(store.take([take("first")]))
    begin_together()
    count, slowest = 0, 0.0
    now = time.monotonic()
    until = now + seconds
    while now < until:
        begun = now
        answers = run(store.take([take(f"lease {count}")]))
        now = time.monotonic()
        slowest = max(slowest, now - begun)
        count += 1
        if not hasattr(answers[0], "now_ns"):
            raise AssertionError(answers)
    return {"takes": count, "slowest": slowest}


class NotingStore:
    """A store that notes what was granted, and what each operation was."""

    def __init__(self, store: Store, notes: dict[str, Any]) -> None:
        self._store = store
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not callable(attribute):
            return attribute

        async def noted(*arguments: Any, **options: Any) -> Any:
            self._notes["asked"].append(name)
            return await attribute(*arguments, **options)

        return noted

    async def take(self, requests: Sequence[Take]) -> Sequence[object]:
        self._notes["asked"].append("take")
        answers = await self._store.take(requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Granted):
                self._notes["granted"][request.lease_id] = [answer.now_ns, answer.turn_ns]
        return answers


def wait(path: str, threads: int) -> dict[str, Any]:
    import pytest

    notes: dict[str, Any] = {"asked": [], "granted": {}, "came": {}}

    def noting(url: str) -> Opener:
        opener = blocking(url)

        def open_store(clock: Clock, scope: Scope, timeout_ns: int) -> Store:
            return cast("Store", NotingStore(opener(clock, scope, timeout_ns), notes))

        return open_store

    class NotingSluice(Sluice):
        _read_url = staticmethod(noting)

    def ask() -> None:
        lease = sluice.acquire(RESOURCE, wait=PATIENCE_S)
        notes["came"][lease.id] = time.time_ns()

    with statements(pytest.MonkeyPatch()) as heard, NotingSluice(url_of(Path(path))) as sluice:
        sluice.peek(RESOURCE)
        waiting = [threading.Thread(target=ask) for _ in range(threads)]
        begin_together()
        notes["asked"].clear()
        heard.clear()
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        return {**notes, "asked": sorted(notes["asked"]), "statements": verbs(heard)}


def migrate(path: str) -> dict[str, Any]:
    store = blocking_store(Path(path), SystemClock())
    begin_together()
    (answer,) = run(store.take([take("a")]))
    run(store.close())
    return {"answer": type(answer).__name__}


if __name__ == "__main__":
    ROLES: dict[str, Callable[..., dict[str, Any]]] = {"saturate": saturate, "wait": wait, "migrate": migrate}
    order = json.loads(sys.argv[1])
    print(json.dumps(ROLES[order.pop("role")](**order)))
