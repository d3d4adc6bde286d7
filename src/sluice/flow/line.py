"""Lines: those who wait in this process for the same thing, in the order in which they came.

Only the first asks the store; the others hold nothing and send nothing. Whoever leaves, granted, refused or cancelled,
hands the place on to the next, and tells it from when asking makes sense. So a process alone at a saturated limit pays
one write a grant, and a thousand waiters cost no more than one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.core.names import BucketKey
from sluice.core.requests import Denied, Part

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from sluice.ports import Gate, Scope


@dataclass
class Line:
    """The waiters for one thing, and what the last to ask learnt."""

    what: Hashable
    places: deque[Place] = field(default_factory=deque)
    ask_at_steady_ns: int = 0
    last_denied: Denied | None = None
    nudges: int = 0


@dataclass(eq=False)
class Place:
    """One waiter's place. Its gate opens when it comes first, or when asking again may be worth it."""

    line: Line
    parts: tuple[Part, ...]
    gate: Gate


class Lines:
    """All lines of a client. A line exists while somebody stands in it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = scope.lock()
        self._lines: dict[Hashable, Line] = {}

    def join(self, what: Hashable, parts: tuple[Part, ...]) -> Place:
        """Stand at the end of the line for ``what``."""
        with self._lock:
            line = self._lines.setdefault(what, Line(what))
            place = Place(line, parts, self._scope.gate())
            line.places.append(place)
            return place

    def first(self, place: Place) -> bool:
        with self._lock:
            return place.line.places[0] is place

    def behind(self, place: Place) -> tuple[Part, ...]:
        """What the one behind the first wants; nothing if nobody is there."""
        with self._lock:
            return place.line.places[1].parts if len(place.line.places) > 1 else ()

    def rearm(self, place: Place) -> Gate:
        """A fresh gate to wait at. Whoever is told something from now on is told through this one."""
        with self._lock:
            place.gate = self._scope.gate()
            return place.gate

    def leave(self, place: Place) -> None:
        """Leave, and hand the place on if it was the first."""
        line = place.line
        with self._lock:
            was_first = line.places[0] is place
            line.places.remove(place)
            if not line.places:
                del self._lines[line.what]
            elif was_first:
                line.places[0].gate.set()

    def nudge(self, keys: Iterable[BucketKey]) -> None:
        """Something came free in these buckets, in this process: whoever is first in a line for them asks at once."""
        if not self._lines:
            return
        freed = set(keys)
        with self._lock:
            for line in self._lines.values():
                if any(part.key in freed for part in line.places[0].parts):
                    line.nudges += 1
                    line.ask_at_steady_ns = 0
                    line.places[0].gate.set()
