"""What a demo asks for: everything that is known before it starts.

There are two slots fewer than workers, so somebody always waits. All slots together can make a few more calls than the
requests allow, so the requests decide; with one slot missing they can't, so the slots do, and a slot that comes free is
taken at once.
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
LEAST_WORKERS: Final = 2
MOST_WORKERS: Final = 12

PERIOD_S: Final = 2
REQUESTS_A_SLOT: Final = 5
"""Requests in each period, for each slot."""

TOKENS_A_SLOT: Final = 3_500
TOKENS: Final = (200, 1_000)
"""A call uses between so many tokens and so many."""

CALL_MS: Final = (200, 300)
HANG_MS: Final = 400
"""How long into its last call the victim is killed."""


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
        return Slots(max(1, self.workers - 2), ttl_ms * NS_PER_MS)

    @property
    def requests(self) -> Rate:
        refill = REQUESTS_A_SLOT * self.slots.capacity
        return Rate(refill, PERIOD_S * NS_PER_SECOND, refill)

    @property
    def tokens(self) -> Rate:
        refill = TOKENS_A_SLOT * self.slots.capacity
        return Rate(refill, PERIOD_S * NS_PER_SECOND, refill)

    @property
    def limits(self) -> list[Limit]:
        return [Limit("requests", self.requests), Limit("tokens", self.tokens), Limit("slots", self.slots)]

    @property
    def quotas(self) -> tuple[Quota, Quota]:
        """What the vendor allows: what the limits say, put in the vendor's own words."""
        requests, tokens = self.requests, self.tokens
        return (
            Quota("requests", requests.refill, PERIOD_S, requests.capacity),
            Quota("tokens", tokens.refill, PERIOD_S, tokens.capacity),
        )

    def allowed(self, rate: Rate) -> int:
        """The most that may be granted from the first moment to the last."""
        return rate.capacity + int(self.seconds * NS_PER_SECOND) // rate.interval_ns

    @property
    def victim(self) -> int:
        """Who is killed. Workers count from 1."""
        return 1 + random.Random(self.seed).randrange(self.workers)

    @property
    def hang_after_ns(self) -> int:
        """From when on the victim's next call is its last."""
        return int(self.seconds * NS_PER_SECOND * 0.3)

    def order(self, number: int, url: str) -> dict[str, Any]:
        """What a worker is told when it is started."""
        return {"url": url, "number": number, "seed": self.seed, "tokens": TOKENS, "call_ms": CALL_MS}

    def start(self, number: int, from_ns: int) -> dict[str, Any]:
        """What a worker is told when it may begin, in the steady clock's time, which all processes share."""
        until_ns = from_ns + int(self.seconds * NS_PER_SECOND)
        hang_ns = from_ns + self.hang_after_ns if number == self.victim else until_ns
        return {"from_ns": from_ns, "until_ns": until_ns, "hang_ns": hang_ns}
