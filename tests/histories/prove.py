"""Histories of the real store for as long as asked: ``python -m tests.histories.prove --seconds 600``.

Each round is a file of its own, about 20,000 calls of eight processes, and a seed. The first history without an order
ends the run: its story is printed, and its file and journals are kept where the last line says.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.histories.recording import judge, record, story

CALLS = 1_000
KILLS = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories.prove", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="begin no round after this time (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (1)")
    chosen = parser.parse_args()
    until = time.monotonic() + chosen.seconds
    seed, calls, doubtful, applied = chosen.seed, 0, 0, 0
    while True:
        folder = Path(tempfile.mkdtemp(prefix="sluice-history-"))
        history = record(folder, seed, calls=CALLS, kills=KILLS)
        verdicts = judge(history)
        rejected = [verdict for verdict in verdicts if not verdict.holds]
        if rejected:
            print(f"histories: seed {seed} has no order", *map(story, rejected), f"kept in {folder}", sep="\n")
            return 1
        shutil.rmtree(folder)
        calls += len(history.calls)
        doubtful += len(history.doubtful)
        applied += sum(not call.known for verdict in verdicts for call in verdict.order)
        seed += 1
        if time.monotonic() >= until:
            break
    print(
        f"histories: {seed - chosen.seed} rounds, {calls:,} calls of 8 processes on one SQLite file, {doubtful} "
        f"without an answer of which {applied} were seen to have happened: every history has an order"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
