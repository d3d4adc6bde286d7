"""What was last seen of each bucket: a guess, from which the shape of the next write is chosen.

Nothing that must be right relies on it. A wrong guess costs one more write, because the engine refuses it and shows
what is there. It is bounded: two generations, of which the older is dropped when the younger is full, so no write here
is ever more than setting an item of a dictionary, and threads may share it without a lock.
"""

from typing import Final

from sluice.core.bucket import Bucket
from sluice.core.names import BucketKey

GENERATION: Final = 4_096
"""Buckets that a generation remembers."""


class Beliefs:
    """The last image seen of each bucket, for the most recent few thousand of them."""

    def __init__(self, generation: int = GENERATION) -> None:
        self._generation = generation
        self._young: dict[BucketKey, Bucket] = {}
        self._old: dict[BucketKey, Bucket] = {}

    def get(self, key: BucketKey) -> Bucket | None:
        image = self._young.get(key)
        if image is None:
            image = self._old.get(key)
        return image

    def saw(self, key: BucketKey, image: Bucket) -> None:
        self._young[key] = image
        if len(self._young) >= self._generation:
            self._old, self._young = self._young, {}

    def forget(self, key: BucketKey) -> None:
        self._young.pop(key, None)
        self._old.pop(key, None)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
