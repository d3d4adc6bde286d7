"""What commands write into docs/reliability.md goes between its marks, and the page has a place for each."""

from collections import Counter

import pytest

from proof.mutants.table import BLOCK as PLANTED
from proof.page import PAGE, NoPlace, with_block
from proof.schedules import BLOCK as FIGURES
from proof.schedules import figures
from sluice.testing.simulate import Report
from sluice.testing.simulation.faults import Fault

BEFORE = "# Page\n\n<!-- figures: written by a command -->\nold\n<!-- end of figures -->\n\nafter\n"


def test_a_block_is_replaced_as_a_whole_and_nothing_else() -> None:
    page = with_block(BEFORE, "figures", "new")
    assert page == "# Page\n\n<!-- figures: written by a command -->\n\nnew\n\n<!-- end of figures -->\n\nafter\n"
    assert with_block(page, "figures", "new") == page


def test_a_page_without_the_place_says_so() -> None:
    with pytest.raises(NoPlace, match="has no place for the block 'planted bugs'"):
        with_block(BEFORE, PLANTED, "new")


def test_the_page_has_a_place_for_every_block() -> None:
    page = PAGE.read_text("utf-8")
    for block in (FIGURES, PLANTED):
        assert with_block(page, block, "new") != page


def test_the_figures_count_schedules_stores_and_faults() -> None:
    reports = {
        "usual": Report(runs=2_000, calls=9, fired=Counter({Fault.KILLED: 3}), engines=Counter(memory=2_000)),
        "other": Report(runs=1, calls=1, fired=Counter({Fault.KILLED: 1}), engines=Counter(sqlite=1)),
    }
    text = figures(reports)
    assert "| usual | 2,000 | 9 |" in text
    assert "Stores: 2,000 on memory, 1 on sqlite." in text
    assert f"| {Fault.KILLED} | 4 |" in text
