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
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import get_context
from typing import Any, Final

from sluice.testing.simulation.engines import ENGINES, Engine
from sluice.testing.simulation.faults import Fault
from sluice.testing.simulation.model import Broken
from sluice.testing.simulation.scenes import SCENES, USUAL, Scene
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
    scene: Scene = USUAL,
    shrink: bool = True,
) -> Report:
    """Run the schedule of each seed, up to the first that fails.

    >>> report = simulate(range(3))
    >>> report.runs, report.failure
    (3, None)
    """
    report = Report()
    for seed in seeds:
        schedule = Schedule.drawn(str(seed), engines, scene)
        made, error = attempted(schedule)
        report.runs += 1
        report.calls += made.network.calls
        report.fired.update(made.faults.fired)
        report.engines[made.setting.engine.name] += 1
        if error is not None:
            report.failure = failure(schedule, made, error, shrink=shrink)
            break
    return report


@dataclass(frozen=True)
class Schedule:
    """What one run is made of; ``dropped`` are the choices that are made the ordinary way."""

    seed: str
    setting: Setting
    scene: Scene = USUAL
    dropped: frozenset[str] = frozenset()
    shows_state: bool = False

    @classmethod
    def drawn(cls, seed: str, engines: Sequence[Engine] = EVERY_ENGINE, scene: Scene = USUAL) -> Schedule:
        """The schedule of a seed."""
        return cls(seed, scene.drawn(random.Random(f"{seed}/setting"), engines), scene)

    def system(self) -> System:
        return System(self.seed, self.setting, self.scene.faults(), self.dropped, self.shows_state)


def attempted(schedule: Schedule) -> tuple[System, Exception | None]:
    """Run one schedule; what went wrong, if anything did."""
    made = schedule.system()
    try:
        made.run()
    except Exception as error:  # noqa: BLE001 - whatever comes out of a schedule is its finding
        return made, error
    return made, None


def failure(schedule: Schedule, made: System, error: Exception, *, shrink: bool = True) -> Failure:
    """A failing schedule, told at its smallest."""

    def fails_alike(dropped: frozenset[str]) -> bool:
        _, other = attempted(replace(schedule, dropped=dropped))
        return _alike(error, other)

    dropped = shrunk(made.decisions.notable, fails_alike) if shrink else frozenset()
    smallest, found = attempted(replace(schedule, dropped=dropped, shows_state=True))
    faults = tuple(f"{what} ({name})" for name, what in smallest.decisions.notable.items() if what != "ask")
    why = f"{type(found or error).__name__}: {found or error} (on {schedule.setting.engine.name})"
    return Failure(schedule.seed, why, faults, told(smallest.network.story, STORY_LINES))


def _alike(one: Exception, other: Exception | None) -> bool:
    if isinstance(one, Broken):
        return isinstance(other, Broken) and one.number == other.number
    return type(one) is type(other)


@dataclass(frozen=True)
class Wanted:
    """What to simulate, in words that reach another process."""

    engines: Sequence[str] = tuple(ENGINES)
    scene: str = USUAL.name
    shrink: bool = True

    def simulate(self, seeds: Iterable[int | str]) -> Report:
        engines = [ENGINES[name] for name in self.engines]
        return simulate(seeds, engines=engines, scene=SCENES[self.scene], shrink=self.shrink)


def simulate_widely(wanted: Wanted, first: int, *, runs: int | None, seconds: float | None, workers: int) -> Report:
    """Many schedules on several processes, until there were so many, or so much time has passed, or one failed."""
    report = Report()
    ends = None if seconds is None else time.monotonic() + seconds
    chunks = _chunks(first, runs)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(wanted.simulate, chunk) for chunk in islice(chunks, workers)]
        while running:
            report.add(running.pop(0).result())
            if report.failure is None and (ends is None or time.monotonic() < ends):
                running += [pool.submit(wanted.simulate, chunk) for chunk in islice(chunks, 1)]
    return report


def _chunks(first: int, runs: int | None) -> Iterator[range]:
    start = first
    while runs is None or start < first + runs:
        end = start + CHUNK if runs is None else min(start + CHUNK, first + runs)
        yield range(start, end)
        start = end


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sluice.testing.simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, help="how many schedules (10000, or with --seconds any number)")
    parser.add_argument("--seconds", type=float, help="go on for so long")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one for each CPU)")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only on this store; may be repeated")
    parser.add_argument("--scene", choices=list(SCENES), default=USUAL.name, help="what the schedules are like (usual)")
    parser.add_argument("--replay", metavar="SEED", help="run one schedule and tell it, whether it fails or not")
    parser.add_argument("--whole", action="store_true", help="tell a failing schedule whole, not at its smallest")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args(arguments)


def _replay(seed: str, wanted: Wanted) -> int:
    engines = [ENGINES[name] for name in wanted.engines]
    schedule = replace(Schedule.drawn(seed, engines, SCENES[wanted.scene]), shows_state=True)
    made, error = attempted(schedule)
    print(told(made.network.story) if error is None else failure(schedule, made, error, shrink=wanted.shrink))
    return 0 if error is None else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules and report; exit status 1 if one failed."""
    options = _options(arguments)
    wanted = Wanted(options.engine or tuple(ENGINES), options.scene, not options.whole)
    if options.replay is not None:
        return _replay(options.replay, wanted)
    runs = 10_000 if options.runs is None and options.seconds is None else options.runs
    started = time.monotonic()
    report = simulate_widely(wanted, options.first, runs=runs, seconds=options.seconds, workers=options.workers)
    seconds = time.monotonic() - started
    if options.json:
        print(json.dumps(report.values() | {"seconds": round(seconds, 1)}))
    else:
        print(f"{report}\n{seconds:.0f} s")
    return 0 if report.failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
