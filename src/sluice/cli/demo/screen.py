"""How a demo looks: plain lines for pipes and logs, or what `sluice.cli.demo.live` draws with rich."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Protocol, Self

from sluice.cli.demo.scene import Mood
from sluice.cli.output import table_lines

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sluice.cli.demo.scenario import Scenario
    from sluice.cli.demo.scene import Event, Scene
    from sluice.cli.demo.verdict import Verdict

STATUS_EVERY_S: Final = 1.0

RESULT_HEADS: Final = ("limit", "rule", "granted", "allowed", "utilisation", "vendor violations")

INSTALL_RICH: Final = "for a live screen: pip install 'sluice-quota[cli]'"


class Screen(Protocol):
    """Where a demo is shown."""

    def introduce(self, scenario: Scenario) -> None: ...

    def showing(self) -> AbstractContextManager[object]:
        """Around the time in which scenes are drawn."""
        ...

    def draw(self, scene: Scene) -> None:
        """Called about ten times a second."""
        ...

    def tell(self, event: Event) -> None:
        """Something happened; it is in the scene's events too."""
        ...

    def conclude(self, verdict: Verdict) -> None: ...


def choose_screen(*, plain: bool) -> Screen:
    """The live screen if stdout is a terminal and rich is installed, unless plain lines are asked for."""
    if plain or not sys.stdout.isatty():
        return PlainScreen()
    try:
        from sluice.cli.demo.live import LiveScreen
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        print(INSTALL_RICH, file=sys.stderr)
        return PlainScreen()
    return LiveScreen()


def introduction(scenario: Scenario) -> tuple[str, str]:
    return (
        f"{scenario.workers} processes share one SQLite file for {scenario.seconds:g} s (seed {scenario.seed})",
        f"limits: {scenario.requests} requests, {scenario.tokens} tokens, {scenario.slots}",
    )


class PlainScreen:
    """Lines: each event, and how things stand once a second."""

    def __init__(self) -> None:
        self._status_due_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was changed that would have to be put back."""

    def introduce(self, scenario: Scenario) -> None:
        print("\n".join(introduction(scenario)), flush=True)

    def showing(self) -> Self:
        return self

    def draw(self, scene: Scene) -> None:
        if not scene.limits or scene.now_s < self._status_due_s:
            return
        self._status_due_s = scene.now_s + STATUS_EVERY_S
        limits = ", ".join(f"{status.name} {status.available}/{status.capacity} free" for status in scene.limits)
        held = [cell for cell in scene.cells if cell is not None]
        holders = " ".join(f"{held.worker}{' (dead)' if held.dead else ''}" for held in held)
        print(f"{scene.now_s:5.1f} s  {scene.calls} calls; {limits}; slots held by {holders or 'nobody'}", flush=True)

    def tell(self, event: Event) -> None:
        mark = "" if event.mood is Mood.PLAIN else "! "
        print(f"{event.at_s:5.1f} s  {mark}{event.text}", flush=True)

    def conclude(self, verdict: Verdict) -> None:
        rows = [
            (row.limit, row.rule, row.granted, row.allowed, f"{row.share:.1%}", row.violations) for row in verdict.rows
        ]
        promises = [
            ("held" if promise.kept else "BROKEN", promise.text, promise.detail) for promise in verdict.promises
        ]
        for lines in (
            table_lines(RESULT_HEADS, rows),
            table_lines(("", ""), verdict.facts)[1:],
            table_lines(("", "", ""), promises)[1:],
            [verdict.sentence],
        ):
            print("\n" + "\n".join(lines), flush=True)
