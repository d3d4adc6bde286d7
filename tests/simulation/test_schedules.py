"""Ten thousand schedules keep every promise, and what fails can be run again and read."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from sluice.core.requests import Clash, Denied, Granted, Take
from sluice.ports import Clock, Store
from sluice.stores.memory import MemoryStore
from sluice.testing.simulate import Report, Schedule, attempted, main, simulate
from sluice.testing.simulation.engines import ENGINES, Engine
from sluice.testing.simulation.faults import Fault
from sluice.testing.simulation.scenes import SCENES
from sluice.testing.simulation.story import told

SCHEDULES = 10_000
EACH_FAULT = 1_000
OF_A_SCENE = 150


def _command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the simulator as a user does; a process of its own is not slowed by the measuring of coverage."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    command = [sys.executable, "-m", "sluice.testing.simulate", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_ten_thousand_schedules_keep_every_promise_and_meet_each_fault_a_thousand_times() -> None:
    ended = _command("--runs", str(SCHEDULES), "--workers", "2", "--json")
    assert ended.stdout.startswith("{"), ended.stderr
    report = json.loads(ended.stdout)
    assert report["failure"] is None, "\n".join(map(str, report["failure"].values()))
    assert ended.returncode == 0
    assert report["runs"] == SCHEDULES
    assert set(report["engines"]) == set(ENGINES)
    rare = {fault: times for fault, times in report["fired"].items() if times < EACH_FAULT}
    assert not rare
    assert set(report["fired"]) == {str(fault) for fault in Fault}


@pytest.mark.parametrize("scene", [name for name in SCENES if name != "usual"])
def test_schedules_of_a_scene_keep_every_promise(scene: str) -> None:
    ended = _command("--runs", str(OF_A_SCENE), "--workers", "1", "--json", "--scene", scene)
    assert ended.stdout.startswith("{"), ended.stderr
    report = json.loads(ended.stdout)
    assert report["failure"] is None, "\n".join(map(str, report["failure"].values()))
    assert report["runs"] == OF_A_SCENE


# --- the same seed is the same history ---


def _digest(seeds: Sequence[int]) -> str:
    stories = []
    for seed in seeds:
        made, error = attempted(Schedule.drawn(str(seed)))
        assert error is None
        stories.append(told(made.network.story))
    return hashlib.sha256("\n".join(stories).encode()).hexdigest()


def test_the_same_seed_is_the_same_history_in_any_process() -> None:
    seeds = list(range(40, 60))
    script = f"from tests.simulation.test_schedules import _digest; print(_digest({seeds}))"
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        found = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
        assert found.strip() == _digest(seeds)


def test_different_seeds_are_different_histories() -> None:
    assert _digest([1]) != _digest([2])


# --- a failing run ---


class _Generous(MemoryStore):
    """A store with a bug: every fifth take that is granted is forgotten again."""

    grants = 0

    async def take(self, requests: Sequence[Take], /) -> list[Granted | Denied | Clash]:
        before = dict(self._buckets)
        answers = await super().take(requests)
        for answer in answers:
            self.grants += isinstance(answer, Granted)
        if self.grants % 5 == 4:
            self._buckets.clear()
            self._buckets.update(before)
        return answers


def _generous(clock: Clock) -> Store:
    return _Generous(clock, nullcontext())


GENEROUS = Engine("generous", _generous)


@pytest.fixture(scope="module")
def failed() -> Report:
    return simulate(range(50), engines=[GENEROUS])


def test_a_failing_run_prints_its_seed_and_what_broke_and_who_did_what_when(failed: Report) -> None:
    assert failed.failure is not None
    text = str(failed)
    assert f"seed {failed.failure.seed}: Broken: " in text
    assert "(on generous)" in text
    assert " takes 1 of " in text or " takes " in text
    assert "s  p0/" in text or "s  p1/" in text


def test_the_story_says_what_the_store_held(failed: Report) -> None:
    assert failed.failure is not None
    assert "  -> " in failed.failure.story
    assert "full in" in failed.failure.story or "held by" in failed.failure.story


def test_a_failing_run_replays_identically(failed: Report) -> None:
    assert failed.failure is not None
    again = simulate([failed.failure.seed], engines=[GENEROUS])
    assert again.failure == failed.failure


def test_a_failing_run_is_told_at_its_smallest(failed: Report) -> None:
    assert failed.failure is not None
    whole = simulate([failed.failure.seed], engines=[GENEROUS], shrink=False)
    assert whole.failure is not None
    assert len(failed.failure.faults) <= len(whole.failure.faults)
    assert failed.failure.story.count("asks for") < whole.failure.story.count("asks for")


# --- the command ---


def test_the_command_tells_a_schedule_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--replay", "5"]) == 0
    assert "asks for" in capsys.readouterr().out


def test_the_command_keeps_to_one_engine_and_counts() -> None:
    ended = _command("--runs", "12", "--workers", "1", "--engine", "sqlite")
    assert ended.returncode == 0
    assert ended.stdout.startswith("12 schedules, ")
    assert "12  on sqlite" in ended.stdout


def test_the_command_ends_when_its_time_is_over() -> None:
    ended = _command("--seconds", "0.1", "--workers", "1", "--json")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["runs"] == 250
