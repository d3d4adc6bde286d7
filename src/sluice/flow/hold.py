"""One take of a lease, and how far it has come.

    NOT_YET --sent--> DOUBTFUL --granted--> GRANTED
       ^                  |
       '--surely not applied, or undone--'

What is doubtful is treated as taken by whoever undoes it, and as not taken by whoever spends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from sluice.core.bounds import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluice.core.bucket import Bucket
    from sluice.core.names import BucketKey
    from sluice.core.requests import Part, RateCharge
    from sluice.flow.client import Client


class Sent(Enum):
    """How far a part of a take has come."""

    NOT_YET = "not sent, or surely not applied"
    DOUBTFUL = "sent, and no answer"
    GRANTED = "granted"


@dataclass
class Hold:
    """One take of a lease, and how far each of its parts has come.

    ``found`` are the buckets in which somebody else had taken it, under the same id: nothing was charged for it again.
    """

    id: str
    parts: tuple[Part, ...]
    sent: list[Sent]
    undone: bool = False
    found: set[BucketKey] = field(default_factory=set)

    @classmethod
    def of(cls, hold_id: str, parts: tuple[Part, ...]) -> Hold:
        return cls(hold_id, parts, [Sent.NOT_YET] * len(parts))

    def granted(self) -> Iterator[Part]:
        return (part for part, sent in zip(self.parts, self.sent, strict=True) if sent is Sent.GRANTED)


@dataclass(frozen=True, slots=True)
class Turn:
    """When a reserved take's turn comes, by the store's clock, and what is needed to shift it or give it up."""

    key: BucketKey
    charge: RateCharge
    at_ns: int
    left_full_at_ns: int
    paused_total_ns: int

    def shifted_ns(self, image: Bucket) -> int:
        """Where pauses have moved the turn; one that had come before the bucket's pause began stays in the past."""
        at_ns = self.at_ns + image.paused_total_ns - self.paused_total_ns
        return at_ns if at_ns >= image.paused_until_ns else 0


def new_lease_id(client: Client) -> str:
    """An id that sorts by time and says whose it is: start in milliseconds, something random, host and process."""
    return f"{client.clock.now_ns() // NS_PER_MS:012x}{client.rng.getrandbits(40):010x}@{client.process}"


def shortest_ttl_ns(parts: tuple[Part, ...]) -> int:
    """The shortest time to live of the slots in these parts; 0 without slots."""
    return min((charge.ttl_ns for part in parts for charge in part.slots), default=0)
