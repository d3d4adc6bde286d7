"""The faults of the simulated world, by name, and how often each strikes."""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Fault(StrEnum):
    """What can go wrong."""

    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost after it was applied"
    DUPLICATED = "request duplicated"
    DELAYED = "request delayed past its time-out"
    OVERTAKEN = "request overtaken by later ones"
    REPLY_SLOW = "reply slow"
    CANCELLED = "client cancelled"
    KILLED = "client killed, and restarted"
    FROZEN = "client paused past its TTL"
    UNAVAILABLE = "store unavailable for a while"
    CLOCK_OFFSET = "wall clock offset"
    CLOCK_STEPPED = "wall clock stepped"
    CLOCK_FAST = "clock 1 % fast"
    LIMITS_CHANGED = "limits changed in flight"


NETWORK_ONCE = (Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.DELAYED, Fault.OVERTAKEN, Fault.REPLY_SLOW)
NETWORK = (*NETWORK_ONCE, Fault.DUPLICATED)


@dataclass(frozen=True)
class Faults:
    """How often each fault strikes, in a thousandth of its occasions, and how often each has."""

    per_mille: dict[Fault, int]
    fired: Counter[Fault] = field(default_factory=Counter)

    @classmethod
    def usual(cls) -> "Faults":
        """All of them together: often enough to meet, rare enough that something gets done in between."""
        return cls(
            {
                Fault.REQUEST_LOST: 12,
                Fault.REPLY_LOST: 15,
                Fault.DUPLICATED: 12,
                Fault.DELAYED: 10,
                Fault.OVERTAKEN: 20,
                Fault.REPLY_SLOW: 20,
                Fault.CANCELLED: 60,
                Fault.KILLED: 120,
                Fault.FROZEN: 150,
                Fault.UNAVAILABLE: 180,
                Fault.CLOCK_OFFSET: 300,
                Fault.CLOCK_STEPPED: 120,
                Fault.CLOCK_FAST: 200,
                Fault.LIMITS_CHANGED: 300,
            }
        )

    @classmethod
    def none(cls) -> "Faults":
        """A world in which nothing goes wrong."""
        return cls({})

    def calmed(self) -> "Faults":
        """None of them, counted with these."""
        return replace(self, per_mille={})

    def without(self, *kinds: Fault) -> "Faults":
        """The same, but these never strike."""
        return replace(self, per_mille={kind: often for kind, often in self.per_mille.items() if kind not in kinds})

    def often(self, fault: Fault) -> int:
        return self.per_mille.get(fault, 0)
