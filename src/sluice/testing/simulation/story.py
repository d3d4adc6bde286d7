"""A run, told: who did what when, and what the store held. And a failing run made as small as it will go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from sluice.testing.simulation.history import (
    Answered,
    Asked,
    Believed,
    BucketPaused,
    Charged,
    Corrected,
    InDoubt,
    Lapsed,
    Leaving,
    Left,
    LimitsChanged,
    NotReached,
    NotTold,
    Refused,
    SlotsReaped,
    SlotsRenewed,
    SlotsReturned,
    Stored,
    Took,
    TurnGivenUp,
)

MAX_REPLAYS: Final = 400
"""How often a failing run is replayed in search of a smaller one."""

NOBODY: Final = ""


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
    if isinstance(what, str):
        return f"{who:<12} {what}"
    words = _WORDS[type(what)]
    return f"{getattr(what, 'task', NOBODY):<12} {words(what)}"


def _took(record: Took) -> str:
    turn = f", turn in {_ms(record.turn_ns - record.now_ns)}" if record.turn_ns > record.now_ns else ""
    again = " again" if record.repeated else ""
    return f"takes{again} {_charges(record.charges)} as {record.lease}{turn}"


def _refused(record: Refused) -> str:
    blocking = ", ".join(f"{bucket} {limit}" for bucket, limit in sorted(record.blocking))
    return f"is refused {_charges(record.charges)} by {blocking}, retry in {_ms(record.retry_in_ns)}"


def _given_up(record: TurnGivenUp) -> str:
    fate = "it goes back" if record.returned else "it stays spent"
    return f"gives a turn of {record.amount} of {record.bucket} {record.limit} up: {fate}"


def _returned(record: SlotsReturned) -> str:
    fate = f"corrects {_tokens(record.tokens)}" if record.found else "nothing is there"
    return f"releases {record.lease} in {record.bucket}: {fate}"


def _renewed(record: SlotsRenewed) -> str:
    return f"{record.lease} in {record.bucket} is {'renewed' if record.renewed else 'gone, not renewed'}"


def _asked(record: Asked) -> str:
    return "asks for " + ", ".join(f"{amount} of {bucket} {limit}" for bucket, limit, amount in record.needs)


def _believed(record: Believed) -> str:
    return "acts on holding " + ", ".join(f"{limit} of {bucket} as {lease}" for bucket, limit, lease in record.slots)


def _leaving(record: Leaving) -> str:
    settled = f", settled at {dict(record.settled)}" if record.settled else ""
    return f"leaves {record.lease}{', refunding' if record.refund else ''}{settled}"


def _stored(record: Stored) -> str:
    """A bucket as it stands, in times from now, the store's clock."""
    now_ns = record.now_ns
    parts = []
    if record.paused_until_ns > now_ns:
        parts.append(f"paused for {_ms(record.paused_until_ns - now_ns)}")
    for limit, full_at_ns, interval_ns in record.rates:
        full = f"full in {_ms(full_at_ns - now_ns)}" if full_at_ns > now_ns else "full"
        parts.append(f"{limit} {full} (a token in {_ms(interval_ns)})")
    for limit, lease, amount, expires_ns in record.slots:
        left = f"for {_ms(expires_ns - now_ns)}" if expires_ns > now_ns else "lapsed"
        parts.append(f"{limit} held by {lease}{f' x{amount}' if amount > 1 else ''} {left}")
    return f"  -> {record.bucket}: " + ("; ".join(parts) or "nothing")


_WORDS: dict[type, Callable[[Any], str]] = {
    Took: _took,
    Refused: _refused,
    Corrected: lambda record: f"corrects {_tokens(record.tokens)}",
    TurnGivenUp: _given_up,
    SlotsReturned: _returned,
    SlotsRenewed: _renewed,
    SlotsReaped: lambda record: f"tidied away in {record.bucket}: {record.slots}",
    BucketPaused: lambda record: f"{record.bucket} is paused for {_ms(record.until_ns - record.now_ns)}",
    InDoubt: lambda record: f"has no answer to its {record.call}",
    NotReached: lambda record: f"is turned away with its {record.call}",
    Asked: _asked,
    Answered: lambda record: f"is told: {record.answer} {record.lease}",
    LimitsChanged: lambda record: f"the limits of {record.resource} are changed to {record.limits}",
    Believed: _believed,
    Leaving: _leaving,
    Left: lambda record: f"has left {record.lease}",
    NotTold: lambda record: f"the end of {record.lease} never reached the store",
    Lapsed: lambda record: f"has lost {record.lease}",
    Stored: _stored,
}


def _charges(charges: Iterable[Charged]) -> str:
    return ", ".join(f"{charge.amount} of {charge.bucket} {charge.limit} (of {charge.capacity})" for charge in charges)


def _tokens(tokens: Iterable[tuple[str, str, int, int]]) -> str:
    return ", ".join(f"{bucket} {limit} by {amount:+}" for bucket, limit, amount, _ in tokens) or "nothing"


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.3f} ms"
