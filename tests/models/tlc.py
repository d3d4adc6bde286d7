"""Runs TLC on the models beside `proof/models/pom.xml`, whole or patched into one of their broken variants.

A model is ``NAME.tla`` with ``NAME.cfg``, the sizes of a test run, and ``NAME.long.cfg``, those of a long one. What TLC
finds is read from what it prints: the number of distinct states, and the first invariant that does not hold.
"""

import re
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import PIPE, STDOUT

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "proof" / "models"

LARGE = ("-XX:+UseParallelGC",)
SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A search that soon finds something spends most of its time starting."""

MINUTES_AT_MOST = 10
"""A test run of one model ends long before that; a long one is given its own time."""


@dataclass(frozen=True)
class Broken:
    """A variant of a model that must be rejected: ``violates`` names the invariant."""

    model: str
    name: str
    violates: str
    patches: tuple[tuple[str, str], ...]

    def patched(self, text: str) -> str:
        for old, new in self.patches:
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: the model has {old!r} {text.count(old)} times, not once")
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class Found:
    """What TLC found: ``violated`` is None if everything held that it came to; ``whole``: it came to everything."""

    states: int
    whole: bool
    violated: str | None
    printed: str


def broken_variants() -> list[Broken]:
    variants = tomllib.loads((MODELS / "broken.toml").read_text("utf-8"))
    return [
        Broken(model, each["name"], each["violates"], tuple((old, new) for old, new in each["patches"]))
        for model, listed in variants.items()
        for each in listed
    ]


@cache
def _jar() -> str:
    installed = subprocess.run([ROOT / "tools" / "install-tlc"], capture_output=True, text=True, check=False)
    if installed.returncode:
        raise RuntimeError(f"tools/install-tlc failed:\n{installed.stdout}{installed.stderr}")
    return installed.stdout.splitlines()[-1]


def check(
    model: str, folder: Path, *, broken: Broken | None = None, sizes: str = "", seconds: float = MINUTES_AT_MOST * 60
) -> Found:
    """Search a model's state space for so long, in an empty folder. ``sizes`` is "" or ".long"."""
    text = (MODELS / f"{model}.tla").read_text("utf-8")
    (folder / f"{model}.tla").write_text(broken.patched(text) if broken else text, "utf-8")
    sizes_text = (MODELS / f"{model}{sizes}.cfg").read_text("utf-8")
    (folder / f"{model}.cfg").write_text(_asking_only(broken.violates, sizes_text) if broken else sizes_text, "utf-8")
    command = [
        *("java", "-Xmx2g", *(SMALL if broken else LARGE), f"-Djava.io.tmpdir={folder}", "-cp", _jar(), "tlc2.TLC"),
        *("-workers", "1" if broken else "auto", "-metadir", str(folder / "states"), f"{model}.tla"),
    ]
    with subprocess.Popen(command, cwd=folder, stdout=PIPE, stderr=STDOUT, text=True) as search:
        in_time = True
        try:
            printed, _ = search.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            in_time = False
            search.kill()
            printed, _ = search.communicate()
    return _read(printed, in_time=in_time)


def _asking_only(invariant: str, sizes: str) -> str:
    """The same sizes, with one invariant: which of several is found first would depend on the order of the search."""
    listed = re.search(r"^INVARIANTS\n((?: +\w+\n)+)", sizes, re.MULTILINE)
    if not listed or invariant not in listed[1].split():
        raise ValueError(f"{invariant} is not among the invariants that the model is held to")
    return sizes.replace(listed[0], f"INVARIANTS\n    {invariant}\n")


def _read(printed: str, *, in_time: bool) -> Found:
    violated = re.search(r"^Error: Invariant (\w+) is violated", printed, re.MULTILINE)
    counted = re.findall(r"([\d,]+) distinct states found", printed)
    whole = "Model checking completed. No error has been found." in printed and ", 0 states left on queue." in printed
    if in_time and not violated and not whole:
        raise RuntimeError(f"TLC came to no verdict:\n{printed}")
    states = int(counted[-1].replace(",", "")) if counted else 0
    return Found(states, whole, violated[1] if violated else None, printed)


def story(printed: str) -> str:
    """The part of TLC's output that tells how an invariant came to be violated."""
    _, _, behaviour = printed.partition("The behavior up to this point is:")
    return "\n".join(_changes(behaviour.strip().splitlines()))


def _changes(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not re.match(r"(Progress|Finished|\d+ states|The depth)", line)]
