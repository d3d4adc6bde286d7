"""`sluice demo`: its arguments, its exit status, and an end by signal that leaves nothing behind."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from sluice.cli.demo.scenario import Scenario
    from sluice.cli.demo.screen import Screen

BROKEN: Final = 1

ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a demo."""


def add(subjects: Any, _: argparse.ArgumentParser) -> None:
    parser = subjects.add_parser(
        "demo",
        help="watch processes share limits, and one of them die",
        description="Processes share one SQLite file in front of a fake vendor. One is killed while it holds a slot; "
        "watch the slot come back. The exit status is 1 if anything that must hold did not.",
    )
    parser.add_argument("--seconds", type=float, default=15, help="how long to run (default: 15)")
    parser.add_argument("--workers", type=int, default=6, help="how many processes (default: 6)")
    parser.add_argument("--seed", type=int, help="make the same calls again")
    parser.add_argument("--plain", action="store_true", help="plain lines, no live screen")
    parser.set_defaults(run=run)


def run(asked: argparse.Namespace) -> int:
    """Play a demo. The exit status is 1 if anything that must hold did not."""
    from sluice.cli.demo.play import WORKER
    from sluice.cli.demo.scenario import Scenario
    from sluice.cli.demo.screen import choose_screen

    return show(Scenario.read(asked.seconds, asked.workers, asked.seed), choose_screen(plain=asked.plain), WORKER)


def show(scenario: Scenario, screen: Screen, worker: Sequence[str]) -> int:
    """Play a scenario on a screen, with workers that run this command, and judge it."""
    from sluice.cli.demo.play import play

    screen.introduce(scenario)
    with _ended_once():
        verdict = play(scenario, screen, worker)
    screen.conclude(verdict)
    return 0 if verdict.kept else BROKEN


@contextlib.contextmanager
def _ended_once() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does, and whatever comes after the first change nothing any more.

    Cleaning up kills, so it is quick; then the process ends, with the status that the first one gave it. Only the main
    thread can set this.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    ending = False

    def end(number: int, _: object) -> NoReturn:
        nonlocal ending
        ending = True
        for other in ENDING:
            signal.signal(other, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    for number in ENDING:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in () if ending else before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
