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
    """What TLC found: ``violated`` is None if the whole state space was searched and everything held."""

    states: int
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
    model: str, folder: Path, *, broken: Broken | None = None, sizes: str = "", timeout_s: float = MINUTES_AT_MOST * 60
) -> Found:
    """Search a model's state space, in an empty folder. ``sizes`` is "" or ".long"."""
    text = (MODELS / f"{model}.tla").read_text("utf-8")
    (folder / f"{model}.tla").write_text(broken.patched(text) if broken else text, "utf-8")
    sizes_text = (MODELS / f"{model}{sizes}.cfg").read_text("utf-8")
    (folder / f"{model}.cfg").write_text(_asking_only(broken.violates, sizes_text) if broken else sizes_text, "utf-8")
    command = [
        *("java", "-Xmx2g", *(SMALL if broken else LARGE), f"-Djava.io.tmpdir={folder}", "-cp", _jar(), "tlc2.TLC"),
        *("-workers", "1" if broken else "auto", "-metadir", str(folder / "states"), f"{model}.tla"),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_s)
    return _read(done.stdout + done.stderr)


def _asking_only(invariant: str, sizes: str) -> str:
    """The same sizes, with one invariant: which of several is found first would depend on the order of the search."""
    listed = re.search(r"^INVARIANTS\n((?: +\w+\n)+)", sizes, re.MULTILINE)
    if not listed or invariant not in listed[1].split():
        raise ValueError(f"{invariant} is not among the invariants that the model is held to")
    return sizes.replace(listed[0], f"INVARIANTS\n    {invariant}\n")


def _read(printed: str) -> Found:
    violated = re.search(r"^Error: Invariant (\w+) is violated", printed, re.MULTILINE)
    counted = re.findall(
        r"^[\d,]+ states generated, ([\d,]+) distinct states found, 0 states left", printed, re.MULTILINE
    )
    finished = "Model checking completed. No error has been found." in printed and counted
    if not violated and not finished:
        raise RuntimeError(f"TLC came to no verdict:\n{printed}")
    return Found(int(counted[-1].replace(",", "")) if counted else 0, violated[1] if violated else None, printed)


def story(printed: str) -> str:
    """The part of TLC's output that tells how an invariant came to be violated."""
    _, _, behaviour = printed.partition("The behavior up to this point is:")
    return "\n".join(_changes(behaviour.strip().splitlines()))


def _changes(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not re.match(r"(Progress|Finished|\d+ states|The depth)", line)]
