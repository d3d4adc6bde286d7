"""The vendor of the demo: a process of its own, on a loopback port, that answers calls as `FakeVendor` decides.

It is told on stdin what to do, as a worker is, and leaves when stdin ends. A caller sends a JSON line for each call and
gets one back when the call is over, or at once if it is refused. One call is never answered: the first that arrives
after a certain time. A caller that is killed is noticed at once, as its connection ends. Its notes:

    ready       it listens at this port
    called      a call arrived, at this time by the vendor's clock; hangs: it will never be answered
    refused     a call arrived and was answered 429, for going past this quota
    ended       a call is over, at this time: answered, or given up by its caller
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
from typing import IO, Any, Final

from sluice.cli.demo.notes import leave_with_parent, say, told
from sluice.cli.demo.scenario import MOST_WORKERS
from sluice.testing.vendor import FakeVendor, Quota, Throttled
from sluice.wires.clock import SystemClock

HOST: Final = "127.0.0.1"


class Counter:
    """Where calls arrive. One thread serves each caller."""

    def __init__(self, order: dict[str, Any]) -> None:
        quotas = [Quota(name, amount, per, burst) for name, amount, per, burst in order["quotas"]]
        self._clock = SystemClock()
        self._vendor = FakeVendor(*quotas, at_once=order["at_once"], jitter=order["forgives"], clock=self._clock)
        self._lock = threading.Lock()
        self._hang_ns: int | None = None

    def hang_from(self, hang_ns: int) -> None:
        """Never answer the first call that arrives from then on."""
        self._hang_ns = hang_ns

    def _hangs(self, now_ns: int) -> bool:
        with self._lock:
            hangs = self._hang_ns is not None and now_ns >= self._hang_ns
            if hangs:
                self._hang_ns = None
            return hangs

    def serve(self, caller: socket.socket) -> None:
        """Answer one caller until it leaves."""
        with caller, caller.makefile("rw", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                answer = self._answer(caller, json.loads(line))
                if answer is None:
                    return
                _send(lines, answer)

    def _answer(self, caller: socket.socket, call: dict[str, Any]) -> dict[str, Any] | None:
        """What to answer, once the call is over; None if the caller has gone."""
        arrived_ns = self._clock.steady_ns()
        facts = {name: call[name] for name in ("worker", "call", "lease", "tokens")}
        with self._vendor.call(tokens=call["tokens"]) as answer:
            if isinstance(answer, Throttled):
                say("refused", **facts, at_ns=arrived_ns, quota=answer.quota)
                return {"status": 429, "quota": answer.quota}
            hangs = self._hangs(answer.started_ns)
            say("called", **facts, at_ns=answer.started_ns, hangs=hangs)
            gone = _caller_leaves(caller, None if hangs else call["ms"] / 1000)
        say("ended", worker=call["worker"], call=call["call"], at_ns=self._clock.steady_ns())
        return None if gone else {"status": 200}


def _caller_leaves(caller: socket.socket, within_s: float | None) -> bool:
    """Wait so long, or until the caller's connection ends; callers send nothing while they wait for an answer."""
    readable, _, _ = select.select([caller], [], [], within_s)
    return bool(readable)


def _send(lines: IO[str], answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=lines, flush=True)


class Line:
    """A worker's connection to the vendor."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def call(self, **facts: object) -> int:
        """Make a call and wait for its end: the status it was answered with."""
        _send(self._lines, facts)
        status: int = json.loads(self._lines.readline())["status"]
        return status


def main() -> None:
    counter = Counter(told())
    with socket.create_server((HOST, 0), backlog=MOST_WORKERS) as door:
        say("ready", pid=os.getpid(), port=door.getsockname()[1])
        counter.hang_from(told()["hang_ns"])
        threading.Thread(target=leave_with_parent, daemon=True).start()
        while True:
            caller, _ = door.accept()
            threading.Thread(target=_serve, args=(counter, caller), daemon=True).start()


def _serve(counter: Counter, caller: socket.socket) -> None:
    try:
        counter.serve(caller)
    except ConnectionError as error:  # a caller that was killed
        print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
