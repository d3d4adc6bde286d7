"""The simulator: whole systems, the coroutines as they are, in virtual time, with everything going wrong.

    python -m sluice.testing.simulate --runs 10000      many schedules; stops at the first that breaks a promise
    python -m sluice.testing.simulate --replay 4711     one again, as a story

A *schedule* is all that a seed decides: limits, clients, what they ask, who goes first, which message is lost, whose
process is killed between which steps, whose clock is wrong. The same seed is the same schedule. After every step the
promises are checked from the history alone, by a model that shares nothing with the core. A schedule that breaks one
is replayed without this fault and that ask, while it still fails; what is left is printed as a story.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sluice.testing.simulation.faults import Fault, Faults
from sluice.testing.simulation.promises import Broken
from sluice.testing.simulation.story import shrunk, told
from sluice.testing.simulation.system import Setting, System

STORY_LINES: Final = 120


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
    failure: Failure | None = None


def simulate(seeds: Iterable[int | str], *, shrink: bool = True) -> Report:
    """Run the schedule of each seed, up to the first that fails.

    >>> report = simulate(range(3))
    >>> report.runs, report.failure
    (3, None)
    """
    report = Report()
    for seed in seeds:
        faults = Faults.usual()
        made, error = attempted(str(seed), faults)
        report.runs += 1
        report.calls += made.network.calls
        report.fired.update(faults.fired)
        if error is not None:
            report.failure = failure(str(seed), made, error, shrink=shrink)
            break
    return report


def attempted(seed: str, faults: Faults, dropped: frozenset[str] = frozenset()) -> tuple[System, Exception | None]:
    """Run one schedule; what went wrong, if anything did."""
    made = System(seed, Setting.drawn(random.Random(f"{seed}/setting")), faults, dropped)
    try:
        made.run()
    except Exception as error:  # noqa: BLE001 - whatever comes out of a schedule is its finding
        return made, error
    return made, None


def failure(seed: str, made: System, error: Exception, *, shrink: bool = True) -> Failure:
    """A failing schedule, told at its smallest."""

    def fails_alike(dropped: frozenset[str]) -> bool:
        _, other = attempted(seed, Faults.usual(), dropped)
        return _alike(error, other)

    dropped: frozenset[str] = frozenset()
    if shrink:
        dropped = shrunk(made.decisions.notable, fails_alike)
        smaller, error_then = attempted(seed, Faults.usual(), dropped)
        made, error = smaller, error_then or error
    faults = tuple(f"{what} ({name})" for name, what in made.decisions.notable.items() if what != "ask")
    return Failure(seed, f"{type(error).__name__}: {error}", faults, told(made.network.story, STORY_LINES))


def _alike(one: Exception, other: Exception | None) -> bool:
    if isinstance(one, Broken):
        return isinstance(other, Broken) and one.number == other.number
    return type(one) is type(other)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules and report; exit status 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m sluice.testing.simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000, help="how many schedules (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--replay", metavar="SEED", help="run one schedule and tell it, whether it fails or not")
    parser.add_argument("--whole", action="store_true", help="tell a failing schedule whole, not at its smallest")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        made, error = attempted(options.replay, Faults.usual())
        print(told(made.network.story) if error is None else failure(options.replay, made, error, shrink=not options.whole))
        return 0 if error is None else 1
    started = time.monotonic()
    report = simulate(range(options.first, options.first + options.runs), shrink=not options.whole)
    print(f"{report.runs} schedules, {report.calls} calls, {time.monotonic() - started:.0f} s")
    for fault in Fault:
        print(f"  {report.fired[fault]:8}  {fault}")
    if report.failure is not None:
        print(f"\n{report.failure}")
    return 0 if report.failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
