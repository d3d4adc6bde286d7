"""Clerks: they write two documents at once, each time one higher, all of them the same two.

What must hold of documents is seen in the books they keep: both always show the same number, which is how often one of
them was told that it had written, plus at most those who were never told anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluice.core.documents import Document, DocumentKey, Expect, Kind, Mismatch, Put, Stored, Version
from sluice.core.requests import Unknown, Unreached
from sluice.ports import Store
from sluice.testing.simulation.model import BOOKS, Broken
from sluice.testing.simulation.setting import SECOND
from sluice.testing.simulation.world import Process

ROUNDS: Final = 6
"""How often a clerk writes."""

LONGEST_PAUSE_NS: Final = SECOND

KEYS: Final = tuple(DocumentKey("clerks", Kind.ENTITY, name) for name in ("left", "right"))


@dataclass
class Books:
    """What all clerks of a run have come to."""

    written: int = 0
    doubtful: int = 0

    def check(self, found: list[Document | None]) -> int:
        """The number that both documents show."""
        shown = {0 if document is None else int(document.body) for document in found}
        if len(shown) != 1:
            raise Broken(6, f"two documents that are written together show {sorted(shown)}")
        return shown.pop()

    def conclude(self, found: list[Document | None]) -> None:
        """In the end they show what was acknowledged, and nothing that was refused."""
        shown = self.check(found)
        if not self.written <= shown <= self.written + self.doubtful:
            raise Broken(BOOKS, f"{shown} writes are shown; {self.written} were told, {self.doubtful} are in doubt")


async def write_both(process: Process, store: Store, books: Books) -> None:
    """What a clerk does."""
    world = process.world
    draw = world.decisions.stream(f"{process.name}/clerk")
    for number in range(ROUNDS):
        await world.sleep_until(world.now_ns + draw.randrange(LONGEST_PAUSE_NS))
        found = await store.get(KEYS)
        if isinstance(found, Unknown | Unreached):
            continue
        documents = list(found)
        above = str(books.check(documents) + 1)
        version = f"{process.name} {number}"
        writes = [
            Put(Document(key, above, version), Expect.ABSENT if before is None else Version(before.version))
            for key, before in zip(KEYS, documents, strict=True)
        ]
        books.doubtful += 1
        outcome = await store.write(writes)
        if isinstance(outcome, Stored | Mismatch | Unreached):
            books.doubtful -= 1
            books.written += isinstance(outcome, Stored)
