"""Bugs are planted, and the simulator must see them. All of them: `python -m proof.mutants`."""

from collections import Counter

import pytest

from proof.mutants.mutant import Misplanted, Mutant
from proof.mutants.planted import ALWAYS, MUTANTS, mutants_named
from proof.mutants.table import table
from proof.mutants.trial import Verdict, copied_tree, tried

SEEDS = 2_000


@pytest.mark.parametrize("name", ALWAYS)
def test_the_simulator_sees_a_planted_bug(name: str) -> None:
    (mutant,) = mutants_named(name)
    verdict = tried(mutant, seeds=SEEDS, layers=False)
    assert verdict.by_simulator, f"{name}: {mutant.breaks}; {SEEDS} schedules saw nothing of it"
    assert "Broken" in verdict.said


def test_every_planted_bug_can_still_be_planted() -> None:
    with copied_tree() as root:
        for mutant in MUTANTS:
            path = root / "src" / "sluice" / mutant.file
            before = path.read_text("utf-8")
            mutant.plant(root)
            assert path.read_text("utf-8") != before
            compile(path.read_text("utf-8"), mutant.name, "exec")
            path.write_text(before, "utf-8")


def test_a_bug_whose_place_is_gone_says_so() -> None:
    gone = Mutant("gone", "nothing", "core/bucket.py", "this text is nowhere", "")
    with copied_tree() as root, pytest.raises(Misplanted, match=r"stands 0 times in core/bucket\.py, not once"):
        gone.plant(root)


def test_there_are_at_least_thirty_in_core_flows_and_stores_each_with_a_name_of_its_own() -> None:
    assert len(MUTANTS) >= 30
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    parts = Counter(mutant.part for mutant in MUTANTS)
    assert set(parts) == {"core", "flow", "stores"}
    assert parts["core"] + parts["flow"] >= 25


def test_the_table_says_what_caught_each_bug_and_what_nothing_caught() -> None:
    first, second, third = MUTANTS[:3]
    lines = table([Verdict(first, "simulator", 12), Verdict(second, "tests/core"), Verdict(third, None)]).splitlines()
    assert lines[2] == f"| core | {first.name} | {first.breaks} | simulator | 12 |"
    assert lines[3].endswith("| tests/core |  |")
    assert lines[4].endswith("| **nothing** |  |")
    assert lines[6] == "2 of 3 caught; of the 3 in core and flows, 1 by the simulator."
