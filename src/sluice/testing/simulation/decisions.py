"""Every choice of a simulated run, drawn from its seed, by name.

Each choice has a name of its own and depends on nothing but the seed and that name, so leaving one out does not shift
the others. A choice that departs from the ordinary (a fault, an unusual action) is *notable*: it is recorded, and a
failing run can be replayed with some of its notable choices left out, until only those that matter remain.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Decisions:
    """The choices of one run: ``dropped`` are made the ordinary way, ``notable`` were not."""

    seed: str
    dropped: Collection[str] = ()
    notable: dict[str, str] = field(default_factory=dict)
    _streams: dict[str, random.Random] = field(default_factory=dict)
    _drawn: dict[str, int] = field(default_factory=dict)

    def stream(self, name: str) -> random.Random:
        """Ordinary randomness for one part of the system: latencies, tie-breaks, amounts."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(f"{self.seed}/{name}")
        return found

    def happens(self, what: str, where: str, per_mille: int) -> bool:
        """Whether something out of the ordinary happens here."""
        number = self._drawn.get(where, 0)
        self._drawn[where] = number + 1
        if not per_mille or self.stream(where).randrange(1000) >= per_mille:
            return False
        name = f"{where}/{number}"
        if name in self.dropped:
            return False
        self.notable[name] = what
        return True

    def which(self, where: str, options: Sequence[tuple[T, int]]) -> T | None:
        """At most one of several things out of the ordinary, each with its share of a thousand."""
        number = self._drawn.get(where, 0)
        self._drawn[where] = number + 1
        drawn = self.stream(where).randrange(1000)
        for what, per_mille in options:
            drawn -= per_mille
            if drawn < 0:
                name = f"{where}/{number}"
                if name in self.dropped:
                    return None
                self.notable[name] = str(what)
                return what
        return None

    def pick(self, where: str, options: Sequence[T]) -> T:
        return self.stream(where).choice(options)
