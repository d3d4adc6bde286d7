"""What the last images of buckets say about a take over several of them, where a store decides one at a time.

    room to spare in all of them      side by side: one round trip
    else                              one after another: who refuses should be asked before anything is taken

One after another, slots come first: giving them back is exact. Their order never changes with what was seen, so that of
many who want the same two buckets, whoever has the first finds the second free. Then come rates, those first that would
refuse by what was seen, then those with the fewest takes of this size to give.

It is a guess and is bounded: a wrong one costs an undoing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sluice.core import bucket as core
from sluice.core.requests import Denied, Part, Take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.core.bucket import Bucket
    from sluice.core.names import BucketKey

GENERATION: Final = 1_024
"""Buckets that are remembered; the last two generations of so many are."""

SPARE: Final = 4
"""There is room to spare if the take leaves at least a capacity divided by this of each limit."""


class Room:
    """The last image of each bucket of late, and what follows from them."""

    def __init__(self) -> None:
        self._young: dict[BucketKey, Bucket] = {}
        self._old: dict[BucketKey, Bucket] = {}

    def saw(self, parts: Sequence[Part], images: Sequence[Bucket]) -> None:
        for part, image in zip(parts, images, strict=False):
            self._young[part.key] = image
        if len(self._young) >= GENERATION:
            self._old, self._young = self._young, {}

    def to_spare(self, parts: Sequence[Part], now_ns: int) -> bool:
        """Whether every bucket was seen with more room than the take needs."""
        return all(self._spares(part, now_ns) for part in parts)

    def in_order(self, parts: Sequence[Part], now_ns: int) -> list[int]:
        """The numbers of the parts, in the order in which to ask for them."""
        return sorted(range(len(parts)), key=lambda number: self._reluctance(parts[number], now_ns))

    def _seen(self, part: Part) -> Bucket | None:
        return self._young.get(part.key) or self._old.get(part.key)

    def _spares(self, part: Part, now_ns: int) -> bool:
        image = self._seen(part)
        return image is not None and all(
            core.status(image, part.key, charge, now_ns).available
            >= charge.amount + charge.leave + charge.capacity // SPARE
            for charge in part.charges
        )

    def _reluctance(self, part: Part, now_ns: int) -> tuple[bool, bool, int, str]:
        refuses = not part.slots and self._refuses(part, now_ns)
        takes_left = min(charge.capacity // charge.amount for charge in part.charges)
        return (not part.slots, not refuses, takes_left, part.key.text)

    def _refuses(self, part: Part, now_ns: int) -> bool:
        image = self._seen(part)
        return image is not None and isinstance(core.take((image,), Take("", (part,)), now_ns)[1], Denied)
