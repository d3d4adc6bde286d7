"""A run, told: who did what when, and what the store held. And a failing run made as small as it will go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Final

from sluice.testing.simulation.history import (
    Answered,
    Asked,
    Believed,
    BucketPaused,
    Charged,
    Corrected,
    InDoubt,
    Leaving,
    Left,
    NotTold,
    Refused,
    SlotsReaped,
    SlotsRenewed,
    SlotsReturned,
    Took,
    TurnGivenUp,
)

MAX_REPLAYS: Final = 400
"""How often a failing run is replayed in search of a smaller one."""


def shrunk(notable: Iterable[str], fails: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """The notable choices that a failing run can do without: dropped in ever smaller groups, at last one by one."""
    dropped: frozenset[str] = frozenset()
    left = list(notable)
    size = max(1, len(left) // 2)
    replays = 0
    while True:
        smaller = False
        for start in range(0, len(left), size):
            group = frozenset(left[start : start + size]) - dropped
            if group and replays < MAX_REPLAYS:
                replays += 1
                if fails(dropped | group):
                    dropped |= group
                    smaller = True
        left = [name for name in left if name not in dropped]
        if size == 1 and (not smaller or replays >= MAX_REPLAYS):
            return dropped
        size = max(1, size // 2)


def told(story: Sequence[tuple[int, str, object]], last: int | None = None) -> str:
    """The story as lines of text, the ``last`` of them if it is long."""
    lines = [f"{time_ns / 1e9:12.6f} s  {_line(who, what)}" for time_ns, who, what in story]
    if last is not None and len(lines) > last:
        lines = [f"({len(lines) - last} lines before)", *lines[-last:]]
    return "\n".join(lines)


def _line(who: str, what: object) -> str:
    match what:
        case str():
            return f"{who:<12} {what}"
        case Took():
            turn = f", turn in {_ms(what.turn_ns - what.now_ns)}" if what.turn_ns > what.now_ns else ""
            again = " again" if what.repeated else ""
            return f"{what.task:<12} takes{again} {_charges(what.charges)} as {what.lease}{turn}"
        case Refused():
            blocking = ", ".join(f"{bucket} {limit}" for bucket, limit in sorted(what.blocking))
            return f"{what.task:<12} is refused {_charges(what.charges)} by {blocking}, retry in {_ms(what.retry_in_ns)}"
        case Corrected():
            return f"{what.task:<12} corrects {_tokens(what.tokens)}"
        case TurnGivenUp():
            fate = "it goes back" if what.returned else "it stays spent"
            return f"{what.task:<12} gives a turn of {what.amount} of {what.bucket} {what.limit} up: {fate}"
        case SlotsReturned():
            fate = f"corrects {_tokens(what.tokens)}" if what.found else "nothing is there"
            return f"{what.task:<12} releases {what.lease} in {what.bucket}: {fate}"
        case SlotsRenewed():
            return f"{'':<12} {what.lease} in {what.bucket} is {'renewed' if what.renewed else 'gone, not renewed'}"
        case SlotsReaped():
            return f"{'':<12} tidied away in {what.bucket}: {what.slots}"
        case BucketPaused():
            return f"{'':<12} {what.bucket} is paused for {_ms(what.until_ns - what.now_ns)}"
        case InDoubt():
            return f"{what.task:<12} has no answer to its {what.call}"
        case Asked():
            return f"{what.task:<12} asks"
        case Answered():
            return f"{what.task:<12} is told: {what.answer} {what.lease}"
        case Believed():
            held = ", ".join(f"{limit} of {bucket} as {lease}" for bucket, limit, lease in what.slots)
            return f"{what.task:<12} acts on holding {held}"
        case Leaving():
            settled = f", settled at {dict(what.settled)}" if what.settled else ""
            return f"{what.task:<12} leaves {what.lease}{', refunding' if what.refund else ''}{settled}"
        case Left():
            return f"{what.task:<12} has left {what.lease}"
        case NotTold():
            return f"{'':<12} the end of {what.lease} never reached the store"
    raise TypeError(f"no words for {what!r} with {[item.name for item in fields(what)]}")  # type: ignore[arg-type]


def _charges(charges: Iterable[Charged]) -> str:
    return ", ".join(f"{charge.amount} of {charge.bucket} {charge.limit} (of {charge.capacity})" for charge in charges)


def _tokens(tokens: Iterable[tuple[str, str, int, int]]) -> str:
    return ", ".join(f"{bucket} {limit} by {amount:+}" for bucket, limit, amount, _ in tokens) or "nothing"


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.3f} ms"
