"""Histories of the real store: processes on one file, some killed in the middle of a call, and what they wrote down."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sluice.core.bounds import NS_PER_MS
from sluice.core.bucket import EMPTY
from sluice.core.decide import decide
from sluice.core.requests import BucketOutcome, Denied, Granted, Peek
from tests.histories.journal import now_ns, read_journal
from tests.histories.linearize import NEVER_NS, Verdict, apart, linearize
from tests.histories.model import NOTHING_YET, Recorded, State, step
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
    """What went before, and the calls none of which could come next, with what the core would have answered to each."""
    state = NOTHING_YET
    for call in verdict.order:
        state = next(iter(step(state, call)))
    start_ns = min((call.made_ns for call in (*verdict.order[-3:], *verdict.stuck)), default=0)
    lines = [f"{len(verdict.order)} calls have an order. The last of them, and those of which none could come next:"]
    lines += [f"  placed  {_line(call, start_ns)}" for call in verdict.order[-3:]]
    for call in verdict.stuck:
        lines.append(f"  stuck   {_line(call, start_ns)}")
        for at_ns in call.decided_ns if call.known else ():
            late = at_ns < state.now_ns and not isinstance(call.request, Peek)
            why = "decided at a time before that of the last one placed" if late else _core_says(state, call, at_ns)
            lines.append(f"          {why}")
    return "\n".join(lines)


def _core_says(state: State, call: Recorded, now_ns: int) -> str:
    _, _, outcome = decide(call.request, lambda key: state.buckets.get(key, EMPTY), now_ns)
    if _brief(outcome) == _brief(call.outcome):
        return f"here it would have shown {_images(outcome)} and not {_images(call.outcome)}"
    return f"here the core says {_brief(outcome)}"


def _line(call: Recorded, start_ns: int) -> str:
    over = "never" if call.over_ns == NEVER_NS else f"{(call.over_ns - start_ns) / NS_PER_MS:.3f}"
    times = f"{(call.made_ns - start_ns) / NS_PER_MS:.3f} to {over} ms"
    return f"{times}: {call.request} -> {_brief(call.outcome) if call.known else 'no answer'}"


def _brief(outcome: BucketOutcome | None) -> str:
    """An answer without its images."""
    return str(replace(outcome, images=()) if isinstance(outcome, Granted | Denied) else type(outcome).__name__)


def _images(outcome: BucketOutcome | None) -> str:
    return str(outcome.images if isinstance(outcome, Granted | Denied) else outcome)
