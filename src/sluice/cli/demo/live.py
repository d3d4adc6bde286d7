"""The live screen, drawn with rich: limits as bars, slots with their holders, a row for each worker, the latest events.

It fits into 24 lines of 80 characters with six workers; with more lines it shows more events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sluice.cli.demo.screen import RESULT_HEADS, introduction
from sluice.cli.output import seconds_text

if TYPE_CHECKING:
    from sluice.cli.demo.scenario import Scenario
    from sluice.cli.demo.scene import Actor, Event, Held, Scene
    from sluice.cli.demo.verdict import Promise, Verdict
    from sluice.core.requests import LimitStatus

COLOURS: Final = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")
DEAD: Final = "bold white on red"
BAR_CELLS: Final = 40
LEAST_EVENTS: Final = 5
OTHER_LINES: Final = 11
"""Lines of the screen that are neither a worker's nor an event's."""

STYLE_OF: Final = {"calls": "bold", "hangs": "bold yellow", "killed": DEAD, "waits": "dim", "done": "dim"}


class LiveScreen:
    """A screen that is drawn in place."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def introduce(self, scenario: Scenario) -> None:
        self._console.print(Text(introduction(scenario), style="bold"))

    def showing(self) -> LiveScreen:
        return self

    def draw(self, scene: Scene) -> None:
        lines = self._console.height - OTHER_LINES - len(scene.actors)
        self._live.update(picture(scene, max(LEAST_EVENTS, lines)), refresh=True)

    def tell(self, event: Event) -> None:
        """The next scene shows it."""

    def conclude(self, verdict: Verdict) -> None:
        self._console.print(_results(verdict))
        for promise in verdict.promises:
            self._console.print(_promise(promise))
        self._console.print(Text(f"\n{verdict.sentence}", style="bold green" if verdict.kept else "bold red"))


def picture(scene: Scene, event_lines: int) -> RenderableType:
    """The whole screen at a moment."""
    return Group(_time(scene), _limits(scene), _workers(scene), _events(scene, event_lines))


def _bar(share: float, style: str) -> Text:
    full = round(max(0.0, min(1.0, share)) * BAR_CELLS)
    return Text.assemble(("█" * full, style), ("░" * (BAR_CELLS - full), "bright_black"))


def _time(scene: Scene) -> RenderableType:
    now_s = max(0.0, min(scene.now_s, scene.seconds))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=9)
    grid.add_row(Text("time"), _bar(now_s / scene.seconds, "white"), Text(f"{now_s:.1f} of {scene.seconds:g} s"))
    return grid


def _limits(scene: Scene) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=9)
    for status in scene.limits:
        if status.name != "slots":
            grid.add_row(*_limit(status))
    grid.add_row(Text("slots"), _slots(scene.held, scene.slots), Text(f"{scene.slots - len(scene.held)} free"))
    return grid


def _limit(status: LimitStatus) -> tuple[Text, Text, Text]:
    share = status.available / status.capacity
    style = "green" if share > 0.2 else "yellow"
    return Text(status.name), _bar(share, style), Text(f"{status.available:,} of {status.capacity:,} free")


def _slots(held: tuple[Held, ...], slots: int) -> Text:
    text = Text()
    for slot in sorted(held, key=lambda slot: slot.worker):
        if slot.dead:
            text.append(f" ✝ {slot.worker}: {slot.expires_in:.1f} s ", DEAD)
        else:
            text.append(f" worker {slot.worker} ", f"black on {_colour(slot.worker)}")
        text.append(" ")
    text.append("· " * (slots - len(held)), "bright_black")
    return text


def _workers(scene: Scene) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for head in ("worker", "pid", "does", "for", "tokens"):
        table.add_column(head, justify="right" if head in {"pid", "for", "tokens"} else "left")
    for head in ("calls", "all tokens", "last wait"):
        table.add_column(head, justify="right")
    for actor in scene.actors.values():
        table.add_row(*_worker(actor, scene.now_s))
    table.add_section()
    table.add_row("", "", "", "", "", f"{scene.calls:,}", f"{scene.all_tokens:,}", "", style="bold")
    return Padding(table, (1, 0, 0, 0))


def _worker(actor: Actor, now_s: float) -> tuple[Text, ...]:
    busy = actor.doing in {"waits", "calls", "hangs"}
    return (
        Text(f"■ {actor.number}", _colour(actor.number)),
        Text(str(actor.pid or "")),
        Text(actor.doing, STYLE_OF.get(actor.doing, "")),
        Text(seconds_text(now_s - actor.since_s) if busy else ""),
        Text(f"{actor.tokens:,}" if busy else ""),
        Text(f"{actor.calls:,}"),
        Text(f"{actor.all_tokens:,}"),
        Text(f"{actor.last_wait_ms:,} ms"),
    )


def _events(scene: Scene, lines: int) -> RenderableType:
    latest = list(scene.events)[-lines:]
    texts = [Text(f"{event.at_s:5.1f} s  {event.text}", "bold red" if event.loud else "") for event in latest]
    return Group(Text(), *texts)


def _results(verdict: Verdict) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for head in RESULT_HEADS[:2]:
        table.add_column(head)
    for head in RESULT_HEADS[2:]:
        table.add_column(head, justify="right")
    for row in verdict.rows:
        violations = Text(str(row.violations), "bold red" if row.violations else "green")
        table.add_row(row.limit, row.rule, row.granted, row.allowed, f"{row.share:.1%}", violations)
    facts = Table.grid(padding=(0, 2))
    for name, value in verdict.facts:
        facts.add_row(Text(name, "dim"), value)
    return Padding(Group(table, Text(), facts), (1, 0))


def _promise(promise: Promise) -> Text:
    mark = ("  held  ", "black on green") if promise.kept else (" BROKEN ", DEAD)
    return Text.assemble(mark, f" {promise.text}\n         ", (promise.detail, "dim" if promise.kept else "red"))


def _colour(worker: int) -> str:
    return COLOURS[(worker - 1) % len(COLOURS)]
