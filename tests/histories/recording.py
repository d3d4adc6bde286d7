"""Histories of the real store: processes on one file, some killed in the middle of a call, and what they wrote down."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.histories.journal import now_ns, read_journal
from tests.histories.linearize import NEVER_NS, Verdict, apart, linearize
from tests.histories.model import NOTHING_YET, Recorded, step
from tests.histories.stores import REAL

PROCESSES: Final = 8
ROOT: Final = Path(__file__).parents[2]
LONGEST_S: Final = 300

GAP_S: Final = (0.01, 0.03)
"""Between one kill and the next."""


@dataclass
class Worker:
    """One process, and its journal."""

    process: subprocess.Popen[str]
    journal: Path
    dead_ns: int = NEVER_NS

    def await_ready(self) -> None:
        assert self.process.stdout
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a worker did not start; it ended with {self.process.wait()}")

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.await_end()

    def await_end(self) -> None:
        """Wait until it is gone. Nothing that it sent is applied after this returns."""
        status = self.process.wait(LONGEST_S)
        self.dead_ns = min(self.dead_ns, now_ns())
        if status not in {0, -signal.SIGKILL}:
            raise RuntimeError(f"a worker failed with {status}; its own message is above")

    def calls(self) -> list[Recorded]:
        return read_journal(self.journal, self.dead_ns)


@dataclass(frozen=True)
class History:
    """Calls of all processes."""

    calls: list[Recorded]

    @property
    def doubtful(self) -> list[Recorded]:
        return [call for call in self.calls if not call.known]


def record(
    folder: Path, seed: int, *, calls: int, kills: int, processes: int = PROCESSES, store: str = REAL
) -> History:
    """Have processes make ``calls`` calls a thread, and kill so many of them, each of which another one replaces.

    As many again kill themselves beside them, where a kill from outside seldom hits: half of them right before a call
    is decided, half right after it was applied.
    """
    rng = random.Random(seed)
    with _workers() as workers:
        for number in range(processes + kills):
            workers.append(_start(folder, f"{seed}.{number}", calls, store))
        doomed = [
            _start(folder, f"{seed}.{doom}.{number}", calls, store, doom)
            for number in range(kills // 2)
            for doom in ("undecided", "applied")
        ]
        workers.extend(doomed)
        for worker in workers:
            worker.await_ready()
        for worker in (*workers[:processes], *doomed):
            worker.go()
        for killed in range(kills):
            time.sleep(rng.uniform(*GAP_S))
            alive = [worker for worker in workers[: processes + killed] if worker.process.poll() is None]
            if alive:
                rng.choice(alive).kill()
            workers[processes + killed].go()
        for worker in workers:
            worker.await_end()
        return History([call for worker in workers for call in worker.calls()])


def _start(folder: Path, name: str, calls: int, store: str, doom: str = "") -> Worker:
    journal = folder / f"journal-{name}"
    arguments = (str(folder / "quota.db"), str(journal), name, str(calls), store, doom)
    command = [sys.executable, "-m", "tests.histories.worker", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return Worker(process, journal)


@contextmanager
def _workers() -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
            for pipe in (worker.process.stdin, worker.process.stdout):
                assert pipe is not None
                pipe.close()


def judge(history: History) -> list[Verdict[Recorded]]:
    """A verdict for each group of buckets that no take joins with others."""
    return [linearize(calls, NOTHING_YET, step) for calls in apart(history.calls, lambda call: call.keys)]


def story(verdict: Verdict[Recorded]) -> str:
    """What went before, and the calls none of which could come next."""
    lines = [f"{len(verdict.order)} calls have an order; the last of them and those of which none could come next:"]
    lines += [f"  placed  {_line(call)}" for call in verdict.order[-3:]]
    lines += [f"  stuck   {_line(call)}" for call in verdict.stuck]
    return "\n".join(lines)


def _line(call: Recorded) -> str:
    over = "never" if call.over_ns == NEVER_NS else f"{call.over_ns - call.made_ns} ns later"
    return f"made at {call.made_ns}, over {over}: {call.request} -> {call.outcome or 'no answer'}"
