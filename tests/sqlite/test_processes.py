"""Several processes on one file: opening it at once, fair shares, and turns in the order of arrival."""

import itertools
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sluice import Limit, Sluice
from sluice.core.bounds import NS_PER_MS
from tests.sqlite.kit import ended, intact, raw, start, url_of


def crowd(count: int, **order: Any) -> list[dict[str, Any]]:
    """So many processes that begin together; what each has to say."""
    processes = [start("tests.sqlite.crowd", **order) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", ended(process)
        return _told_to_begin(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _told_to_begin(processes: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("begin\n")
        process.stdin.flush()
    return [json.loads(ended(process)) for process in processes]


def test_processes_that_open_a_new_file_at_once_agree_on_it(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.db"
        assert crowd(4, role="migrate", path=str(path)) == [{"answer": "Granted"}] * 4
        assert intact(path)
        with raw(path) as connection:
            assert connection.execute("SELECT count(*) FROM bucket").fetchone() == (1,)


def test_eight_processes_that_saturate_a_file_have_fair_shares(
    tmp_path: Path, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told = crowd(8, role="saturate", path=str(tmp_path / "quota.db"), seconds=10)
    takes = [one["takes"] for one in told]
    slowest = max(one["slowest"] for one in told)
    mean = sum(takes) / len(takes)
    record_property("takes", takes)
    record_property("slowest", slowest)
    with capsys.disabled():
        print(f"\n8 processes, 10 s: {takes}, slowest call {slowest * 1000:.0f} ms")
    assert slowest < 1
    assert min(takes) >= mean / 3
    assert intact(tmp_path / "quota.db")


def test_waiters_of_four_processes_have_their_turns_in_the_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "1 per 40ms")])
    told = crowd(4, role="wait", path=str(path), threads=16)
    granted = {lease: grant for one in told for lease, grant in one["granted"].items()}
    came = {lease: at for one in told for lease, at in one["came"].items()}
    arrivals = sorted(granted.values())
    assert len(arrivals) == 64
    for (_, before), (now, turn) in itertools.pairwise(arrivals):
        assert turn == max(now, before + 40 * NS_PER_MS), "who arrives next has the next turn, and none is left out"
    assert granted.keys() == came.keys()
    assert all(came[lease] >= turn for lease, (_, turn) in granted.items()), "nobody comes before the turn"
    assert sum(turn > now for now, turn in arrivals) >= 32, "too few had to wait for this to say anything"
    for one in told:
        waited = sum(turn > now for now, turn in one["granted"].values())
        assert one["asked"] == ["peek"] * waited + ["take"] * 16, "one write each, and one read at the turn"
        assert sum(verb in {"UPDATE", "INSERT"} for verb in one["statements"]) <= 16
        assert one["statements"].count("BEGIN") <= waited
        assert one["statements"].count("SELECT") <= 16 + waited
        assert "DELETE" not in one["statements"]
