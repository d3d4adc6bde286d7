"""Plant each bug in turn and say what catches it; see `proof.mutants`."""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from proof.mutants.planted import MUTANTS, mutants_named
from proof.mutants.table import write_table
from proof.mutants.trial import Verdict, check_without_bugs, tried

MANY_SEEDS = 2_000


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _told(verdict: Verdict, *, story: bool) -> str:
    where = f"{verdict.caught_by} after {verdict.seeds} seeds" if verdict.by_simulator else verdict.caught_by
    line = f"{verdict.mutant.part:<7} {verdict.mutant.name:<45} {where or 'NOT CAUGHT'}"
    if story:
        line += f"\n        {verdict.mutant.breaks}\n        {verdict.said}\n\n{verdict.story}\n"
    return line


def main() -> int:
    """Run the trials; exit status 1 if a bug is not caught."""
    parser = argparse.ArgumentParser(prog="python -m proof.mutants", description="Plant bugs; say what catches them.")
    parser.add_argument("--only", metavar="TEXT", help="those whose name has this in it, with their stories")
    parser.add_argument("--seeds", type=int, default=MANY_SEEDS, help=f"for the simulator ({MANY_SEEDS})")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="trials at a time (one for each CPU)")
    parser.add_argument("--simulator", action="store_true", help="ask the simulator alone")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    options = parser.parse_args()
    stories = options.only is not None
    chosen = mutants_named(options.only) if stories else list(MUTANTS)
    started = time.monotonic()
    check_without_bugs(options.seeds)
    trial = partial(tried, seeds=options.seeds, shrink=stories, layers=not options.simulator)
    verdicts = []
    with ThreadPoolExecutor(options.workers) as pool:
        for verdict in pool.map(trial, chosen):
            _say(_told(verdict, story=stories))
            verdicts.append(verdict)
    caught = sum(verdict.caught_by is not None for verdict in verdicts)
    _say(f"{caught} of {len(verdicts)} caught, {sum(v.by_simulator for v in verdicts)} by the simulator")
    _say(f"{time.monotonic() - started:.0f} s")
    if options.write and not stories:
        write_table(verdicts)
    return 0 if caught == len(verdicts) else 1


sys.exit(main())
