"""The demo with real processes on a real file. What a verdict holds against a history is in test_verdict."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sluice.cli import main
from sluice.cli.demo.command import show
from sluice.cli.demo.scenario import Scenario
from sluice.cli.demo.screen import PlainScreen

MARK = "SLUICE_TEST_MARK"
GONE_WITHIN_S = 20


class Running:
    """A demo in a process of its own. It and all that it starts carry a mark in their environment."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._mark = f"{MARK}={folder}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sluice", "demo", "--plain", *words],
            env={**os.environ, MARK: str(folder), "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def read_until(self, words: str) -> None:
        assert self.process.stdout is not None
        assert any(words in line for line in self.process.stdout), f"the demo never said {words!r}"

    def marked(self) -> list[int]:
        """The processes that are still there, this demo's own and its children."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                environment = (place / "environ").read_bytes().decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if self._mark in environment.split("\0"):
                found.append(int(place.name))
        return found

    def end(self) -> tuple[str, str]:
        return self.process.communicate(timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert list(tmp_path.iterdir()) == [], "the demo left files behind"


def test_a_short_demo_keeps_everything_and_shows_the_kill_and_the_slots_return(folder: Path) -> None:
    running = Running(folder, "--seconds", "4", "--seed", "7")
    told, errors = running.end()
    assert (running.process.returncode, errors) == (0, ""), told
    lines = told.splitlines()
    assert lines[0] == "6 processes share one SQLite file for 4 s (seed 7)"
    assert lines[1] == "limits: 7 per 700ms requests, 4.9k per 700ms tokens, 4 slots ttl 1500ms"
    story = ["6 workers begin", "the vendor does not answer it", "killed with SIGKILL", "its slot stays taken for"]
    found = [next(n for n, line in enumerate(lines) if words in line) for words in story]
    assert found == sorted(found)
    assert any("(dead)" in line for line in lines), "the dead worker's slot was never seen held"
    assert not any("took it -" in line for line in lines), "it was seen to be taken before it lapsed"
    for name in ("requests", "tokens", "slots"):
        row = next(line.split() for line in lines if line.startswith(f"{name} "))
        assert row[-1] == "0", f"violations of {name}"
    assert next(line for line in lines if line.startswith("waits ")).count(" ms") == 2
    assert [line.split()[0] for line in lines[-8:-2]] == ["held"] * 6
    assert lines[-1] == "Everything that must hold did."
    assert running.marked() == []


def test_workers_that_count_by_other_limits_are_caught(capsys: pytest.CaptureFixture[str]) -> None:
    greedy = [sys.executable, str(Path(__file__).with_name("greedy_worker.py"))]
    assert show(Scenario(4, 6, seed=7), PlainScreen(), greedy) == 1
    lines = capsys.readouterr().out.splitlines()
    broken = [line for line in lines if line.startswith("BROKEN")]
    assert len(broken) >= 2, lines[-10:]
    assert "grants never exceed capacity + rate x time" in broken[0]
    assert "leases never hold more than 4 slots" in broken[1]
    assert any("answered worker" in line and "429" in line for line in lines), "the vendor never refused a call"
    assert lines[-1].startswith("This must hold and did not: grants never exceed capacity + rate x time (")


def test_a_worker_that_does_not_start_ends_the_demo_with_its_last_words() -> None:
    hopeless = [sys.executable, "-c", "raise SystemExit('no luck today')"]
    with pytest.raises(Exception, match=r"did not start: .*worker \d: no luck today") as raised:
        show(Scenario(4, 6, seed=7), PlainScreen(), hopeless)
    assert type(raised.value).__name__ == "SluiceError"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_an_interrupted_demo_leaves_no_process_and_no_file_behind(folder: Path, number: int, status: int) -> None:
    running = Running(folder)
    running.read_until("6 workers begin")
    assert len(running.marked()) == 8
    running.process.send_signal(number)
    _, errors = running.end()
    assert (running.process.returncode, errors) == (status, "")
    assert running.marked() == []


def test_an_impatient_ctrl_c_does_not_disturb_the_cleaning_up(folder: Path) -> None:
    running = Running(folder)
    running.read_until("6 workers begin")
    for _ in range(5):
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.002)
    _, errors = running.end()
    assert (running.process.returncode, errors) == (130, "")
    assert running.marked() == []


def test_ctrl_c_on_the_live_screen_gives_the_terminal_back(tmp_path: Path) -> None:
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "sluice", "demo"]
    process = subprocess.Popen(
        command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    shown = b""
    while b"6 workers begin" not in shown:
        shown += os.read(screen, 65_536)
    process.send_signal(signal.SIGINT)
    with suppress(OSError):  # what reading says once nobody has the terminal any more
        while more := os.read(screen, 65_536):
            shown += more
    os.close(screen)
    assert process.wait(60) == 130
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") > 0, "the cursor is hidden while drawing, not after"
    assert b"Traceback" not in shown


def test_a_demo_that_is_killed_itself_leaves_no_process_behind(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.read_until("6 workers begin")
    running.process.kill()
    running.end()
    until = time.monotonic() + GONE_WITHIN_S
    while running.marked() and time.monotonic() < until:
        time.sleep(0.05)
    assert running.marked() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seconds", "3.9"], "--seconds is from 4 to 600, not 3.9"),
        (["--seconds", "601"], "--seconds is from 4 to 600, not 601"),
        (["--seconds", "nan"], "--seconds is from 4 to 600, not nan"),
        (["--workers", "3"], "--workers is from 4 to 12, not 3"),
        (["--workers", "13"], "--workers is from 4 to 12, not 13"),
    ],
)
def test_a_demo_out_of_bounds_is_bad_input(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *words]) == 2
    assert capsys.readouterr().err == f"sluice: {said}\n"


def test_words_where_numbers_belong_are_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--seed", "x"])
    assert ended.value.code == 2
    assert "argument --seed: invalid int value: 'x'" in capsys.readouterr().err
