import io
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from sluice.cli.demo.live import LiveScreen, picture
from sluice.cli.demo.scenario import Scenario
from sluice.cli.demo.scene import Actor, Event, Held, Mood, Scene
from sluice.cli.demo.screen import PlainScreen, choose_screen
from sluice.cli.demo.verdict import judge
from sluice.core.requests import LimitStatus
from tests.cli.histories import SCENARIO, good

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def held(lease: str, worker: int, *, dead: bool = False) -> Held:
    return Held(lease, worker, 2.34, dead)


def scene(workers: int = 6) -> Scene:
    made = Scene(15, {number: Actor(number) for number in range(1, workers + 1)}, [None] * (workers - 2))
    made.limits = tuple(
        LimitStatus("vendor", name, "*", capacity, available, 0.0)
        for name, capacity, available in (("requests", 20, 7), ("tokens", 14_000, 999), ("slots", workers - 2, 0))
    )
    return made


def lines(drawn: Scene, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=80, height=height, force_terminal=True, highlight=False)
    with console.capture() as captured:
        console.print(picture(drawn, height))
    return [line.rstrip() for line in ESCAPE.sub("", captured.get()).splitlines()]


# --- the scene ---


def test_a_lease_keeps_its_cell_until_it_is_gone_and_the_next_takes_the_first_that_is_free() -> None:
    drawn = scene()
    drawn.hold([held("a", 1), held("b", 2), held("c", 3)])
    drawn.hold([held("c", 3), held("a", 1)])
    assert [cell and cell.lease for cell in drawn.cells] == ["a", None, "c", None]
    drawn.hold([held("d", 4), held("c", 3), held("e", 5)])
    assert [cell and cell.lease for cell in drawn.cells] == ["d", "e", "c", None]


def test_a_dead_workers_cell_counts_down_where_it_was() -> None:
    drawn = scene()
    drawn.hold([held("a", 1), held("b", 2)])
    drawn.hold([replace(held("b", 2, dead=True), expires_in=1.2)])
    assert drawn.cells[1] is not None
    assert (drawn.cells[1].dead, drawn.cells[1].expires_in) == (True, 1.2)


def test_workers_are_seen_to_wait_call_hang_and_be_killed() -> None:
    drawn = scene()
    facts: dict[str, Any]
    for facts in (
        {"note": "ready", "pid": 4711},
        {"note": "asks", "tokens": 300},
        {"note": "waited", "waited_ns": 12_000_000},
        {"note": "calls", "lease": "a", "tokens": 300},
    ):
        drawn.read(2, facts)
    actor = drawn.actors[2]
    assert (actor.pid, actor.doing, actor.calls, actor.all_tokens, actor.last_wait_ms) == (4711, "calls", 1, 300, 12)
    drawn.hangs(2)
    assert actor.doing == "hangs"
    drawn.gone(2, killed=True)
    drawn.gone(3, killed=False)
    assert (actor.doing, drawn.actors[3].doing) == ("killed", "done")


# --- live ---


@pytest.mark.parametrize("workers", [4, 6, 12])
def test_every_line_fits_into_80_columns(workers: int) -> None:
    drawn = scene(workers)
    drawn.hold([held(str(number), number, dead=number == 2) for number in range(1, workers - 1)])
    for actor in drawn.actors.values():
        actor.pid, actor.calls, actor.all_tokens, actor.last_wait_ms = 4_194_304, 9_999, 9_999_999, 99_999
        actor.tokens, actor.doing = 1_000, "killed"
    drawn.events.append(Event(12.3, "x" * 200))
    assert max(map(len, lines(drawn))) <= 80


@pytest.mark.parametrize("workers", [4, 6, 12])
@pytest.mark.parametrize("height", [24, 40])
def test_the_latest_events_are_always_on_the_screen(workers: int, height: int) -> None:
    drawn = scene(workers)
    drawn.events.extend(Event(1.0, f"event {number}") for number in range(40))
    introduced, cursor = 2, 1
    shown = lines(drawn, height)
    assert introduced + len(shown) + cursor <= height
    assert shown[-5:] == [f"  1.0 s  event {number}" for number in range(35, 40)]
    rows = [line for line in shown if line.startswith(" ■")]
    assert len(rows) == (7 if (workers, height) == (12, 24) else workers)


def test_nothing_jumps_when_numbers_grow() -> None:
    drawn = scene()
    before = lines(drawn)
    for actor in drawn.actors.values():
        actor.pid, actor.calls, actor.all_tokens, actor.doing, actor.tokens = 99_999, 100, 99_999, "calls", 1_000
    drawn.now_s = 14.9
    after = lines(drawn)
    assert len(before) == len(after)
    head = next(line for line in before if "last wait" in line)
    assert head in after


def test_the_dead_workers_slot_is_seen_with_what_is_left_of_it() -> None:
    drawn = scene()
    drawn.hold([held("a", 1), held("b", 2, dead=True)])
    (row,) = [line for line in lines(drawn) if line.startswith("slots")]
    assert row.split() == ["slots", "worker", "1", "✝2", "2.3", "s", "·", "·", "2", "of", "4", "free"]


def test_a_demo_is_shown_from_introduction_to_verdict() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, highlight=False)
    screen = LiveScreen(console)
    screen.introduce(SCENARIO)
    with screen.showing():
        screen.draw(scene())
    screen.conclude(judge(SCENARIO, good()))
    assert isinstance(console.file, io.StringIO)
    told = [line.rstrip() for line in ESCAPE.sub("", console.file.getvalue()).splitlines()]
    assert told[0] == "6 processes share one SQLite file for 15 s (seed 1)"
    assert told[1] == "limits: 20 per 2s requests, 14k per 2s tokens, 4 slots ttl 3s"
    assert told[-1] == "Everything that must hold did."
    end = next(n for n, line in enumerate(told) if "utilisation" in line)
    assert len(told) - end < 22, "the whole verdict is on one screen"
    assert max(map(len, told)) <= 80


# --- plain ---


def test_plain_lines_tell_events_at_once_and_how_things_stand_each_second(capsys: pytest.CaptureFixture[str]) -> None:
    screen, drawn = PlainScreen(), scene()
    drawn.hold([held("a", 1), held("b", 2, dead=True)])
    with screen.showing():
        for tenth in range(21):
            drawn.now_s = tenth / 10
            screen.draw(drawn)
        screen.tell(Event(2.0, "it is killed", Mood.BAD))
    told = capsys.readouterr().out.splitlines()
    standing = "calls; requests 7/20 free, tokens 999/14000 free, slots 0/4 free; slots held by 1 2 (dead)"
    assert told == [*(f"{second:5.1f} s  0 {standing}" for second in (0.0, 1.0, 2.0)), "  2.0 s  ! it is killed"]


def test_a_broken_promise_is_plain_to_see(capsys: pytest.CaptureFixture[str]) -> None:
    history = good()
    history.failures["worker 3"] = "gave up"
    PlainScreen().conclude(judge(SCENARIO, history))
    told = capsys.readouterr().out.splitlines()
    assert next(line for line in told if line.startswith("BROKEN")).endswith("worker 3: gave up")
    assert told[-1].startswith("This must hold and did not: the other processes work to the end (worker 3: gave up)")


# --- the choice ---


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(choose_screen(plain=False), PlainScreen)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_the_live_screen_unless_plain_lines_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert isinstance(choose_screen(plain=False), LiveScreen)
    assert isinstance(choose_screen(plain=True), PlainScreen)


def test_without_rich_there_are_plain_lines_and_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delitem(sys.modules, "sluice.cli.demo.live", raising=False)
    for name in [name for name in sys.modules if name == "rich" or name.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert isinstance(choose_screen(plain=False), PlainScreen)
    assert "pip install 'sluice-quota[cli]'" in capsys.readouterr().err


def test_a_scenario_is_the_same_for_the_same_seed() -> None:
    assert Scenario.read(15, 6, 7) == Scenario.read(15, 6, 7)
    assert {Scenario.read(15, 6, None).seed for _ in range(9)} != {7}
