"""The long run of the simulator: every scene, many schedules each, and their figures.

    python -m proof.schedules                          ten thousand schedules of each scene
    python -m proof.schedules --runs 100000            so many of each
    python -m proof.schedules --seconds 3600           for an hour, shared among the scenes; other seeds each time
    python -m proof.schedules --write                  and write the figures into docs/reliability.md

It stops at the first schedule that breaks a promise, and tells it.
"""

import argparse
import os
import sys
import time

from proof.page import write_block
from sluice.testing.simulate import Report, Wanted, simulate_widely
from sluice.testing.simulation.faults import Fault
from sluice.testing.simulation.scenes import SCENES

RUNS = 10_000
BLOCK = "figures"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.schedules", description="Simulate every scene, at length.")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"schedules of each scene ({RUNS})")
    parser.add_argument("--seconds", type=float, help="instead: go on for so long, with seeds of the moment")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one for each CPU)")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/reliability.md")
    return parser.parse_args()


def figures(reports: dict[str, Report]) -> str:
    """Two tables: how many schedules of each scene, and how often each fault struck."""
    lines = ["| scene | schedules | calls |", "|---|---:|---:|"]
    lines += [f"| {scene} | {report.runs:,} | {report.calls:,} |" for scene, report in reports.items()]
    whole = Report()
    for report in reports.values():
        whole.add(report)
    stores = ", ".join(f"{whole.engines[name]:,} on {name}" for name in sorted(whole.engines))
    lines += ["", f"Stores: {stores}.", "", "| fault | struck |", "|---|---:|"]
    lines += [f"| {fault} | {whole.fired[fault]:,} |" for fault in Fault]
    return "\n".join(lines)


def main() -> int:
    """Run; exit status 1 if a schedule broke a promise."""
    options = _options()
    share = None if options.seconds is None else options.seconds / len(SCENES)
    first = options.first if share is None else time.time_ns() // 1_000_000 * 1_000_000
    reports = {}
    for scene in SCENES:
        started = time.monotonic()
        runs = options.runs if share is None else None
        wanted = Wanted(scene=scene)
        reports[scene] = simulate_widely(wanted, first, runs=runs, seconds=share, workers=options.workers)
        report = reports[scene]
        sys.stdout.write(f"{scene}: {report.runs} schedules, {time.monotonic() - started:.0f} s\n")
        sys.stdout.flush()
        if report.failure is not None:
            sys.stdout.write(f"\n{report.failure}\n\nagain: python -m sluice.testing.simulate --scene '{scene}' ")
            sys.stdout.write(f"--replay {report.failure.seed}\n")
            return 1
    sys.stdout.write(f"\n{figures(reports)}\n")
    if options.write:
        write_block(BLOCK, figures(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
