"""The text of a limit, read and written.

    <amount> / <unit>           [burst <amount>]         100/min       200k/min burst 400k
    <amount> per <n><unit>      [burst <amount>]         10 per 30s
    <n> slots                   [ttl <n><unit>]          32 slots ttl 60s

Units are ``ms s min hour day``; amounts and counts may end in ``k`` or ``M`` and have decimals as long as the result is
whole. What is printed parses back to the same limit.
"""

import re
from typing import NoReturn

from sluice.core.bounds import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import ConfigError

UNITS_NS = {
    "day": NS_PER_DAY,
    "hour": NS_PER_HOUR,
    "min": 60 * NS_PER_SECOND,
    "s": NS_PER_SECOND,
    "ms": NS_PER_MS,
}
_TIMES = {"": 1, "k": 1_000, "M": 1_000_000}
DEFAULT_TTL_NS = 60 * NS_PER_SECOND
_MAX_TEXT = 200

_AMOUNT = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?([kM]?)(?![\w.])")
_DURATION = re.compile(r"(?:(\d{1,18})(?:\.(\d{1,9}))? *)?(ms|s|min|hour|day)(?!\w)")
_WORD = re.compile(r"[A-Za-z]+(?!\w)|/")


def parse_rule(text: str) -> tuple[int, int, int | None]:
    """Read a limit: (refill, period, capacity) of a rate, or (slots, ttl, None)."""
    return _Reader(text).rule()


def parse_duration_ns(text: str) -> int:
    """Read a duration such as ``30s`` or ``1.5min``."""
    return _Reader(text).whole_duration()


class _Reader:
    """A text and how far it has been read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        if len(text) > _MAX_TEXT:
            self.text = text[:40] + "…"
            self.fail(f"it has {len(text)} characters, {_MAX_TEXT} are allowed")

    def rule(self) -> tuple[int, int, int | None]:
        amount = self.amount()
        word = self.word()
        if word in {"slot", "slots"}:
            ttl_ns = DEFAULT_TTL_NS
            if not self.ended():
                self.expect("ttl")
                ttl_ns = self.duration()
            self.expect_end()
            return amount, ttl_ns, None
        if word not in {"/", "per"}:
            self.fail("expected '/', 'per' or 'slots'")
        period_ns = self.duration()
        burst = amount
        if not self.ended():
            self.expect("burst")
            burst = self.amount()
        self.expect_end()
        return amount, period_ns, burst

    def whole_duration(self) -> int:
        duration_ns = self.duration()
        self.expect_end()
        return duration_ns

    def amount(self) -> int:
        self.skip_space()
        found = _AMOUNT.match(self.text, self.at)
        if not found:
            self.fail("expected an amount such as 100, 200k or 1.5M")
        whole, decimals, suffix = found[1], found[2] or "", found[3]
        scale: int = 10 ** len(decimals)
        amount, rest = divmod(int(whole + decimals) * _TIMES[suffix], scale)
        if rest:
            self.fail("amounts are whole numbers: use a smaller unit, such as '3 per 2s' for 1.5 a second")
        if amount == 0:
            self.fail("an amount must be above 0")
        self.at = found.end()
        return amount

    def duration(self) -> int:
        self.skip_space()
        found = _DURATION.match(self.text, self.at)
        if not found:
            self.fail(f"expected a time, in units of {', '.join(reversed(UNITS_NS))}")
        whole, decimals, unit = found[1], found[2] or "", found[3]
        count = 1 if whole is None else int(whole + decimals)
        scale: int = 10 ** len(decimals)
        duration_ns, rest = divmod(count * UNITS_NS[unit], scale)
        if rest or duration_ns % NS_PER_MS:
            self.fail("times are whole milliseconds")
        if duration_ns == 0:
            self.fail("a time must be above 0")
        self.at = found.end()
        return duration_ns

    def word(self) -> str:
        self.skip_space()
        found = _WORD.match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        return found[0]

    def expect(self, word: str) -> None:
        start = self.at
        if self.word() != word:
            self.at = start
            self.skip_space()
            self.fail(f"expected '{word}' or the end")

    def expect_end(self) -> None:
        if not self.ended():
            self.fail("expected the end")

    def ended(self) -> bool:
        self.skip_space()
        return self.at == len(self.text)

    def skip_space(self) -> None:
        while self.text.startswith(" ", self.at):
            self.at += 1

    def fail(self, why: str) -> NoReturn:
        raise ConfigError(
            f"limit text {self.text!r} breaks at character {self.at + 1} ({self.text[self.at :]!r}): {why}. "
            "Texts that work: '100/min', '200k/min burst 400k', '10 per 30s', '32 slots ttl 60s'"
        )


def amount_text(amount: int) -> str:
    """An amount as short as it can be written without losing anything: 1500, 200k, 1.5M."""
    for suffix in ("M", "k"):
        unit = _TIMES[suffix]
        if amount >= unit and amount % (unit // 10) == 0:
            whole, rest = divmod(amount, unit)
            decimal = f".{rest * 10 // unit}" if rest else ""
            return f"{whole}{decimal}{suffix}"
    return str(amount)


def duration_text(duration_ns: int) -> tuple[str, str]:
    """A duration as a count and the largest unit that divides it."""
    for unit, unit_ns in UNITS_NS.items():
        if duration_ns % unit_ns == 0:
            return str(duration_ns // unit_ns), unit
    return str(duration_ns), "ns"
