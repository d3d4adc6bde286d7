"""An index of keys, which follows its table, and may lag behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.testing.dynamodb.items import Item
from sluice.testing.dynamodb.tree import Invalid


@dataclass
class Index:
    """An index of keys, and what has not reached it yet."""

    attribute: str
    entries: dict[str, str] = field(default_factory=dict)
    coming: deque[tuple[int, str, str | None]] = field(default_factory=deque)

    def follow(self, key: str, value: str | None, at_ns: int) -> None:
        """Have a change arrive at a time; changes never overtake each other."""
        self.coming.append((max(at_ns, self.coming[-1][0] if self.coming else 0), key, value))

    def as_of(self, now_ns: int) -> Mapping[str, str]:
        """What the index shows: the value of its attribute by item."""
        while self.coming and self.coming[0][0] <= now_ns:
            _, key, value = self.coming.popleft()
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value
        return self.entries

    def listed(self, item: Item) -> str | None:
        """What an item is listed under, None if it isn't."""
        value = item.get(self.attribute)
        if value is None:
            return None
        if "S" not in value or not value["S"]:
            raise Invalid(f"what an index is sorted by is a text: {self.attribute}")
        return str(value["S"])
