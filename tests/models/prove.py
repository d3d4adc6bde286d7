"""The models at their larger sizes, and every broken variant: ``python -m tests.models.prove --seconds 3600``.

A model that is not searched whole in its time is reported as such and is no failure, unless something was violated.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.models.tlc import broken_variants, check, story

MODELS = ("slots", "two_items")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.prove", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for each model at its larger size (600)")
    chosen = parser.parse_args()
    failed = 0
    for broken in broken_variants():
        with tempfile.TemporaryDirectory(prefix="sluice-model-") as folder:
            found = check(broken.model, Path(folder), broken=broken)
        failed += found.violated != broken.violates
        print(f"models: {broken.model}, {broken.name}: {_rejected(found.violated)}")
    for model in MODELS:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sluice-model-") as folder:
            found = check(model, Path(folder), sizes=".long", seconds=chosen.seconds)
        failed += found.violated is not None
        took_s = time.monotonic() - begun
        how_far = "the whole of" if found.whole else "out of time after"
        violated = found.violated or "nothing"
        print(f"models: {model}: {how_far} {found.states:,} states in {took_s:.0f} s, {violated} violated")
        if found.violated:
            print(story(found.printed))
    return 1 if failed else 0


def _rejected(violated: str | None) -> str:
    return f"rejected, {violated}" if violated else "NOT REJECTED"


if __name__ == "__main__":
    sys.exit(main())
