"""What a demo asks for: everything that is known before it starts.

There are two slots fewer than workers, so somebody always waits. At first the slots decide: all of them together can
make more calls than the requests allow, and the bucket of requests is full. It lasts until the dead worker's slot is
back, so that this slot is wanted at once, and is empty soon after: from then on the requests decide.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.limits import Limit, Rate, Slots
from sluice.testing.vendor import Quota

RESOURCE: Final = "vendor"

LEAST_SECONDS: Final = 4
MOST_SECONDS: Final = 600
LEAST_WORKERS: Final = 4
MOST_WORKERS: Final = 12

PERIODS: Final = 6
MOST_PERIOD_MS: Final = 2_000
"""The limits' period is so small a part of the whole, and never longer than this."""

REQUESTS_A_SLOT: Final = 2.5
"""Requests in a second, for each slot."""

TOKENS_A_SLOT: Final = 1_750
TOKENS: Final = (200, 1_000)
"""A call uses between so many tokens and so many."""

CALL_MS: Final = (220, 320)
"""A call lasts between so long and so long."""

THINK_MS: Final = (60, 120)
"""What a worker does between calls takes between so long and so long."""

HANG_AFTER: Final = 0.3
HANG_AFTER_S: Final = 4.5
"""The first call that reaches the vendor after this share of the time, or so long, is never answered."""

KILL_AFTER_MS: Final = 400
"""How long into that call its worker is killed."""

VENDOR_FORGIVES_S: Final = 0.25
"""How unevenly calls may arrive before the vendor answers 429. The verdict uses what was measured instead."""

STORE_TIMEOUT_S: Final = 20.0
"""How long a worker waits for the file. Long, since a slow machine breaks no promise."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One demo. The same seed makes the same calls."""

    seconds: float
    workers: int
    seed: int

    @classmethod
    def read(cls, seconds: float, workers: int, seed: int | None) -> Scenario:
        if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
            raise ConfigError(f"--seconds is from {LEAST_SECONDS} to {MOST_SECONDS}, not {seconds:g}")
        if not LEAST_WORKERS <= workers <= MOST_WORKERS:
            raise ConfigError(f"--workers is from {LEAST_WORKERS} to {MOST_WORKERS}, not {workers}")
        return cls(seconds, workers, random.randrange(1_000_000) if seed is None else seed)

    @property
    def slots(self) -> Slots:
        ttl_ms = round(1000 * min(3.0, max(1.5, self.seconds / 5)))
        return Slots(self.workers - 2, ttl_ms * NS_PER_MS)

    @property
    def requests(self) -> Rate:
        return self._rate(REQUESTS_A_SLOT)

    @property
    def tokens(self) -> Rate:
        return self._rate(TOKENS_A_SLOT)

    def _rate(self, a_slot: float) -> Rate:
        period_ms = min(MOST_PERIOD_MS, 100 * round(10 * self.seconds / PERIODS))
        refill = round(a_slot * self.slots.capacity * period_ms / 1000)
        return Rate(refill, period_ms * NS_PER_MS, refill)

    @property
    def limits(self) -> list[Limit]:
        return [Limit("requests", self.requests), Limit("tokens", self.tokens), Limit("slots", self.slots)]

    @property
    def quotas(self) -> tuple[Quota, Quota]:
        """What the vendor allows: what the limits say, put in the vendor's own words."""
        return _quota("requests", self.requests), _quota("tokens", self.tokens)

    def allowed(self, rate: Rate) -> int:
        """The most that may be granted from the first moment to the last."""
        return rate.capacity + self.length_ns // rate.interval_ns

    @property
    def length_ns(self) -> int:
        return int(self.seconds * NS_PER_SECOND)

    def order(self, number: int, url: str) -> dict[str, Any]:
        """What a worker is told when it is started."""
        return {
            "url": url,
            "timeout": STORE_TIMEOUT_S,
            "number": number,
            "seed": self.seed,
            "tokens": TOKENS,
            "call_ms": CALL_MS,
            "think_ms": THINK_MS,
        }

    def vendor_order(self) -> dict[str, Any]:
        """What the vendor is told when it is started."""
        quotas = [(quota.name, quota.amount, quota.per, quota.most) for quota in self.quotas]
        return {"quotas": quotas, "at_once": self.slots.capacity, "forgives": VENDOR_FORGIVES_S}

    def start(self, from_ns: int, vendor_port: int) -> dict[str, Any]:
        """What a worker is told when it may begin, in the steady clock's time, which all processes share."""
        return {"from_ns": from_ns, "until_ns": from_ns + self.length_ns, "vendor_port": vendor_port}

    def vendor_start(self, from_ns: int) -> dict[str, Any]:
        """What the vendor is told when the workers begin."""
        return {"hang_ns": from_ns + int(min(HANG_AFTER * self.seconds, HANG_AFTER_S) * NS_PER_SECOND)}


def _quota(name: str, rate: Rate) -> Quota:
    return Quota(name, rate.refill, rate.period_ns / NS_PER_SECOND, rate.capacity)
