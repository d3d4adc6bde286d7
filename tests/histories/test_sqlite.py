"""What eight processes saw of one SQLite file could have happened one call at a time, by the core's own decisions.

Real processes and threads, and `kill -9` in the middle of calls: what they were doing may have happened or not. And a
store with a bug in it is found out by the same checker.
"""

from pathlib import Path

import pytest

from sluice.core.requests import Denied, GaveUp, Gone, Granted, Paused, Peeked, Reaped, Released, Renewed, Settled
from tests.histories.recording import PROCESSES, judge, record, story
from tests.histories.stores import BROKEN
from tests.histories.worker import THREADS

CALLS = 150
KILLS = 6


def test_what_processes_see_of_a_file_has_an_order_though_some_are_killed_in_the_middle_of_a_call(
    tmp_path: Path,
) -> None:
    history = record(tmp_path, seed=1, calls=CALLS, kills=KILLS)
    verdicts = judge(history)
    assert not [story(verdict) for verdict in verdicts if not verdict.holds]
    assert len(history.calls) >= PROCESSES * THREADS * CALLS
    assert len(history.doubtful) >= KILLS, "each doomed process leaves a call in doubt"
    assert sum(not call.known for verdict in verdicts for call in verdict.order), "what was applied has been seen"
    seen = {type(call.outcome) for call in history.calls}
    assert seen >= {Granted, Denied, Settled, GaveUp, Released, Gone, Renewed, Reaped, Peeked, Paused, type(None)}


@pytest.mark.parametrize("bug", BROKEN)
def test_a_store_is_found_out_that_has(bug: str, tmp_path: Path) -> None:
    history = record(tmp_path, seed=1, calls=CALLS, kills=0, processes=4, store=bug)
    rejected = [verdict for verdict in judge(history) if not verdict.holds]
    assert rejected
    assert "none could come next" in story(rejected[0])
