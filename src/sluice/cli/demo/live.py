"""The live screen, drawn with rich: limits as bars, slots with their holders, a row for each worker, the latest events.

With six workers it fits into 24 lines of 80 characters; with more lines it shows more events, with fewer not all of the
workers. Every column has a width of its own, so that nothing jumps when a number grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sluice.cli.demo.scene import Mood
from sluice.cli.demo.screen import RESULT_HEADS, introduction
from sluice.cli.output import seconds_text

if TYPE_CHECKING:
    from sluice.cli.demo.scenario import Scenario
    from sluice.cli.demo.scene import Actor, Event, Held, Scene
    from sluice.cli.demo.verdict import Promise, Verdict
    from sluice.core.requests import LimitStatus

COLOURS: Final = ("cyan", "magenta", "yellow", "green", "blue", "bright_magenta")
DEAD: Final = "bold white on red"
BAR_CELLS: Final = 40
LEAST_EVENTS: Final = 5
OTHER_LINES: Final = 12
"""Lines of the screen that are neither a worker's nor an event's."""

COLUMNS: Final[tuple[tuple[str, JustifyMethod, int], ...]] = (
    ("worker", "left", 6),
    ("pid", "right", 7),
    ("does", "left", 6),
    ("for", "right", 7),
    ("tokens", "right", 6),
    ("calls", "right", 5),
    ("all tokens", "right", 10),
    ("last wait", "right", 9),
)
DOING_STYLES: Final = {"calls": "bold", "hangs": "bold yellow", "killed": DEAD, "waits": "dim", "done": "dim"}
MOOD_STYLES: Final = {Mood.PLAIN: "", Mood.BAD: "bold red", Mood.GOOD: "bold green"}


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
        first, *others = introduction(scenario)
        self._console.print(Text(first, style="bold"))
        for line in others:
            self._console.print(Text(line))

    def showing(self) -> Self:
        return self

    def draw(self, scene: Scene) -> None:
        self._live.update(picture(scene, self._console.height), refresh=True)

    def tell(self, event: Event) -> None:
        """The next scene shows it."""

    def conclude(self, verdict: Verdict) -> None:
        self._console.print(Group("", _results(verdict), ""))
        self._console.print(_pairs(verdict.facts), "")
        self._console.print(_promises(verdict.promises), "")
        self._console.print(Text(verdict.sentence, style="bold green" if verdict.kept else "bold red"))


def picture(scene: Scene, height: int) -> RenderableType:
    """The whole screen at a moment, for so many lines."""
    workers = max(1, min(len(scene.actors), height - OTHER_LINES - LEAST_EVENTS))
    events = max(LEAST_EVENTS, height - OTHER_LINES - workers)
    return Group(_standing(scene), Text(), _workers(scene, workers), Text(), *_events(scene, events))


def _standing(scene: Scene) -> RenderableType:
    now_s = max(0.0, min(scene.now_s, scene.seconds))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=8)
    grid.add_column(width=BAR_CELLS)
    grid.add_column(no_wrap=True)
    grid.add_row("time", _bar(now_s / scene.seconds, "white"), f"{now_s:.1f} of {scene.seconds:g} s")
    for status in scene.limits:
        if status.name == "slots":
            grid.add_row("slots", _slots(scene.cells), f"{scene.cells.count(None)} of {len(scene.cells)} free")
        else:
            grid.add_row(*_rate(status))
    return grid


def _bar(share: float, style: str) -> Text:
    full = round(max(0.0, min(1.0, share)) * BAR_CELLS)
    return Text.assemble(("█" * full, style), ("░" * (BAR_CELLS - full), "bright_black"))


def _rate(status: LimitStatus) -> tuple[str, Text, str]:
    share = status.available / status.capacity
    bar = _bar(share, "green" if share > 0.2 else "yellow")
    return status.name, bar, f"{status.available:,} of {status.capacity:,} free"


def _slots(cells: list[Held | None]) -> Text:
    width = BAR_CELLS // len(cells) - 1
    text = Text()
    for held in cells:
        text.append(*_slot(held, width))
        text.append(" ")
    return text


def _slot(held: Held | None, width: int) -> tuple[str, str]:
    if held is None:
        return "·".center(width), "bright_black"
    if held.dead:
        return _fitting((f"✝{held.worker} {held.expires_in:.1f} s", f"✝{held.worker}"), width), DEAD
    return _fitting((f"worker {held.worker}", str(held.worker)), width), f"black on {_colour(held.worker)}"


def _fitting(texts: tuple[str, str], width: int) -> str:
    """The longer text if there is room for it."""
    return next((text for text in texts if len(text) <= width), texts[-1]).center(width)


def _workers(scene: Scene, rows: int) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for head, justify, width in COLUMNS:
        table.add_column(head, justify=justify, width=width, no_wrap=True)
    for actor in list(scene.actors.values())[:rows]:
        table.add_row(*_worker(actor, scene.now_s))
    table.add_row("all", "", "", "", "", f"{scene.calls:,}", f"{scene.all_tokens:,}", "", style="bold")
    return table


def _worker(actor: Actor, now_s: float) -> tuple[Text, ...]:
    busy = actor.doing in {"waits", "calls", "hangs"}
    return (
        Text(f"■ {actor.number}", _colour(actor.number)),
        Text(str(actor.pid or "")),
        Text(actor.doing, DOING_STYLES.get(actor.doing, "")),
        Text(seconds_text(now_s - actor.since_s) if busy else ""),
        Text(f"{actor.tokens:,}" if busy else ""),
        Text(f"{actor.calls:,}"),
        Text(f"{actor.all_tokens:,}"),
        Text(f"{actor.last_wait_ms:,} ms"),
    )


def _events(scene: Scene, lines: int) -> list[Text]:
    return [
        Text(f"{event.at_s:5.1f} s  {event.text}", MOOD_STYLES[event.mood], no_wrap=True, overflow="ellipsis")
        for event in list(scene.events)[-lines:]
    ]


# --- the end ---


def _results(verdict: Verdict) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False, pad_edge=False)
    for head in RESULT_HEADS[:2]:
        table.add_column(head)
    for head in RESULT_HEADS[2:]:
        table.add_column(head, justify="right")
    for row in verdict.rows:
        violations = Text(str(row.violations), "bold red" if row.violations else "green")
        table.add_row(row.limit, row.rule, row.granted, row.allowed, f"{row.share:.1%}", violations)
    return table


def _pairs(facts: tuple[tuple[str, str], ...]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(name, "dim"), value)
    return grid


def _promises(promises: tuple[Promise, ...]) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    for promise in promises:
        mark = Text(" held ", "black on green") if promise.kept else Text("BROKEN", DEAD)
        grid.add_row(mark, promise.text, Text(promise.detail, "dim" if promise.kept else "bold red"))
    return grid


def _colour(worker: int) -> str:
    return COLOURS[(worker - 1) % len(COLOURS)]
