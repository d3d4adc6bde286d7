"""A planted bug on trial: a copy of the tree, the bug in it, and the tests run on that until one fails.

The simulator comes first; then the tests of the part of the house that the bug is in. What is judged is the exit
status of commands that any engineer would run. A bug that keeps a test from ever ending is caught by that, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proof.mutants.mutant import Mutant

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = ("src", "tests", "pyproject.toml")

PATIENCE_S: Final = 300
"""A test that has not ended by then never will."""

NO_BUG: Final = Mutant("no bug", "nothing", "", "", "")

LAYERS: Final = {
    "core": ("tests/core",),
    "flow": ("tests/simulation/test_acceptance.py", "tests/flow", "tests/facade"),
    "stores/memory.py": ("tests/conformance/test_memory.py",),
    "stores/sqlite": ("tests/conformance/test_sqlite.py", "tests/sqlite/test_transactions.py"),
    "stores/dynamodb": ("tests/dynamodb",),
}
"""The tests beside the simulator, by the part that they are about."""


@dataclass(frozen=True)
class Verdict:
    """What caught a bug: the layer, after how many seeds if it was the simulator, and what that said."""

    mutant: Mutant
    caught_by: str | None
    seeds: int = 0
    said: str = ""
    story: str = ""

    @property
    def by_simulator(self) -> bool:
        return self.seeds > 0


class Unjudged(Exception):
    """A trial could not be held: the tests did not run, or fail without any bug."""


@contextmanager
def copied_tree() -> Iterator[Path]:
    """The tree without what is not tracked or not needed, to plant bugs in."""
    with tempfile.TemporaryDirectory(prefix="sluice-mutant-") as folder:
        copy = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, copy / name)
        yield copy


def tried(mutant: Mutant, *, seeds: int, shrink: bool = False, layers: bool = True) -> Verdict:
    """Plant a bug and see what catches it."""
    with copied_tree() as root:
        mutant.plant(root)
        verdict = _by_simulator(mutant, root, seeds, shrink=shrink)
        if verdict is None and layers:
            verdict = _by_tests(mutant, root)
    return verdict or Verdict(mutant, None)


def check_without_bugs(seeds: int) -> None:
    """The control: what catches a bug must be quiet without one."""
    with copied_tree() as root:
        verdict = _by_simulator(NO_BUG, root, seeds, shrink=False)
    if verdict is not None:
        raise Unjudged(f"the simulator fails without any planted bug, at seed {verdict.seeds - 1}: {verdict.said}")


def _by_simulator(mutant: Mutant, root: Path, seeds: int, *, shrink: bool) -> Verdict | None:
    command = ["-m", "sluice.testing.simulate", "--runs", str(seeds), "--workers", "1", "--json"]
    ended = _run([*command, *([] if shrink else ["--whole"])], root)
    if ended is None:
        return Verdict(mutant, "simulator", seeds, "a schedule never ends")
    if ended.returncode not in {0, 1} or not ended.stdout.startswith("{"):
        raise Unjudged(f"{mutant.name}: the simulator did not run\n{ended.stdout}{ended.stderr}")
    failure = json.loads(ended.stdout)["failure"]
    if failure is None:
        return None
    story = "\n".join(["what is needed for it:", *failure["faults"], "", failure["story"]])
    return Verdict(mutant, "simulator", int(failure["seed"]) + 1, failure["why"], story)


def _by_tests(mutant: Mutant, root: Path) -> Verdict | None:
    for start, paths in LAYERS.items():
        if not mutant.file.startswith(start):
            continue
        for path in (path for path in paths if (root / path).exists()):
            ended = _run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path], root)
            if ended is None:
                return Verdict(mutant, path, said="a test never ends")
            if ended.returncode == 1:
                return Verdict(mutant, path, said=_first_failure(ended.stdout), story=ended.stdout)
            if ended.returncode:
                raise Unjudged(f"{mutant.name}: {path} did not run\n{ended.stdout}{ended.stderr}")
    return None


def _run(arguments: list[str], root: Path) -> subprocess.CompletedProcess[str] | None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(  # noqa: S603 - our own tests, in our own copy
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None


def _first_failure(output: str) -> str:
    failed = (line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return next(failed, "a test fails").partition(" - ")[0].removeprefix("FAILED ")
