"""The simulator: whole systems, the coroutines as they are, in virtual time, with everything going wrong.

    python -m sluice.testing.simulate                    ten thousand schedules; stops where a promise breaks
    python -m sluice.testing.simulate --seconds 3600     for an hour, on as many processes as there are CPUs
    python -m sluice.testing.simulate --replay 4711      one again, as a story

A *schedule* is all that a seed decides: limits, clients, what they ask, who goes first, which message is lost, whose
process is killed between which steps, whose clock is wrong. The same seed is the same schedule. After every step the
promises are checked from the history alone, by a model that shares nothing with the core. A schedule that breaks one
is replayed without this fault and that ask, while it still fails; what is left is printed as a story: who, when, what,
and what the store held then.

Any store can be simulated: `sluice.testing.simulation.engines` says how.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from typing import Any, Final

from sluice.testing.simulation.engines import ENGINES, Engine
from sluice.testing.simulation.faults import Fault, Faults
from sluice.testing.simulation.model import Broken
from sluice.testing.simulation.setting import Setting
from sluice.testing.simulation.story import shrunk, told
from sluice.testing.simulation.system import System

STORY_LINES: Final = 120
CHUNK: Final = 250
"""Seeds that a process works through before it reports."""

EVERY_ENGINE: Final = tuple(ENGINES.values())


@dataclass
class Failure:
    """A schedule that broke a promise, at its smallest, and its story."""

    seed: str
    why: str
    faults: tuple[str, ...]
    story: str

    def __str__(self) -> str:
        faults = "".join(f"\n    {what}" for what in self.faults) or " none"
        return f"seed {self.seed}: {self.why}\nwhat is needed for it:{faults}\n\n{self.story}"


@dataclass
class Report:
    """What many schedules came to: how many, how often each fault struck, and the first failure."""

    runs: int = 0
    calls: int = 0
    fired: Counter[Fault] = field(default_factory=Counter)
    engines: Counter[str] = field(default_factory=Counter)
    failure: Failure | None = None

    def add(self, other: Report) -> None:
        self.runs += other.runs
        self.calls += other.calls
        self.fired.update(other.fired)
        self.engines.update(other.engines)
        self.failure = self.failure or other.failure

    def __str__(self) -> str:
        lines = [f"{self.runs} schedules, {self.calls} calls"]
        lines += [f"  {self.engines[name]:8}  on {name}" for name in sorted(self.engines)]
        lines += [f"  {self.fired[fault]:8}  {fault}" for fault in Fault]
        if self.failure is not None:
            lines += ["", str(self.failure)]
        return "\n".join(lines)

    def values(self) -> dict[str, Any]:
        """The same as plain values."""
        fired = {str(fault): self.fired[fault] for fault in Fault}
        failure = None if self.failure is None else vars(self.failure)
        return {"runs": self.runs, "calls": self.calls, "engines": self.engines, "fired": fired, "failure": failure}


def simulate(
    seeds: Iterable[int | str],
    *,
    engines: Sequence[Engine] = EVERY_ENGINE,
    shrink: bool = True,
) -> Report:
    """Run the schedule of each seed, up to the first that fails.

    >>> report = simulate(range(3))
    >>> report.runs, report.failure
    (3, None)
    """
    report = Report()
    for seed in seeds:
        setting = Setting.drawn(random.Random(f"{seed}/setting"), engines)
        made, error = attempted(str(seed), setting)
        report.runs += 1
        report.calls += made.network.calls
        report.fired.update(made.faults.fired)
        report.engines[setting.engine.name] += 1
        if error is not None:
            report.failure = failure(made, error, shrink=shrink)
            break
    return report


def attempted(
    seed: str, setting: Setting, dropped: frozenset[str] = frozenset(), *, shows_state: bool = False
) -> tuple[System, Exception | None]:
    """Run one schedule; what went wrong, if anything did."""
    made = System(seed, setting, Faults.usual(), dropped, shows_state)
    try:
        made.run()
    except Exception as error:  # noqa: BLE001 - whatever comes out of a schedule is its finding
        return made, error
    return made, None


def failure(made: System, error: Exception, *, shrink: bool = True) -> Failure:
    """A failing schedule, told at its smallest."""

    def fails_alike(dropped: frozenset[str]) -> bool:
        _, other = attempted(made.seed, made.setting, dropped)
        return _alike(error, other)

    dropped = shrunk(made.decisions.notable, fails_alike) if shrink else frozenset()
    smallest, found = attempted(made.seed, made.setting, dropped, shows_state=True)
    faults = tuple(f"{what} ({name})" for name, what in smallest.decisions.notable.items() if what != "ask")
    why = f"{type(found or error).__name__}: {found or error} (on {made.setting.engine.name})"
    return Failure(made.seed, why, faults, told(smallest.network.story, STORY_LINES))


def _alike(one: Exception, other: Exception | None) -> bool:
    if isinstance(one, Broken):
        return isinstance(other, Broken) and one.number == other.number
    return type(one) is type(other)


def simulate_widely(
    first: int, *, runs: int | None, seconds: float | None, workers: int, engines: Sequence[str], shrink: bool = True
) -> Report:
    """Many schedules on several processes, until there were so many, or so much time has passed, or one failed."""
    report = Report()
    ends = None if seconds is None else time.monotonic() + seconds
    chunks = _chunks(first, runs)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(_chunk, chunk, engines, shrink) for chunk in islice(chunks, workers)]
        while running:
            report.add(running.pop(0).result())
            if report.failure is None and (ends is None or time.monotonic() < ends):
                running += [pool.submit(_chunk, chunk, engines, shrink) for chunk in islice(chunks, 1)]
    return report


def _chunks(first: int, runs: int | None) -> Iterator[range]:
    start = first
    while runs is None or start < first + runs:
        end = start + CHUNK if runs is None else min(start + CHUNK, first + runs)
        yield range(start, end)
        start = end


def _chunk(seeds: range, engines: Sequence[str], shrink: bool) -> Report:
    return simulate(seeds, engines=[ENGINES[name] for name in engines], shrink=shrink)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sluice.testing.simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, help="how many schedules (10000, or with --seconds any number)")
    parser.add_argument("--seconds", type=float, help="go on for so long")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one for each CPU)")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only on this store; may be repeated")
    parser.add_argument("--replay", metavar="SEED", help="run one schedule and tell it, whether it fails or not")
    parser.add_argument("--whole", action="store_true", help="tell a failing schedule whole, not at its smallest")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args(arguments)


def _replay(seed: str, engines: Sequence[str], *, shrink: bool) -> int:
    setting = Setting.drawn(random.Random(f"{seed}/setting"), [ENGINES[name] for name in engines])
    made, error = attempted(seed, setting, shows_state=True)
    print(told(made.network.story) if error is None else failure(made, error, shrink=shrink))
    return 0 if error is None else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules and report; exit status 1 if one failed."""
    options = _options(arguments)
    engines = options.engine or list(ENGINES)
    if options.replay is not None:
        return _replay(options.replay, engines, shrink=not options.whole)
    runs = 10_000 if options.runs is None and options.seconds is None else options.runs
    started = time.monotonic()
    report = simulate_widely(
        options.first,
        runs=runs,
        seconds=options.seconds,
        workers=options.workers,
        engines=engines,
        shrink=not options.whole,
    )
    seconds = time.monotonic() - started
    print(
        json.dumps(report.values() | {"seconds": round(seconds, 1)}) if options.json else f"{report}\n{seconds:.0f} s"
    )
    return 0 if report.failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
