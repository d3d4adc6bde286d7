"""What one rate, one slots limit and one asker must come to: a model that shares nothing with `sluice.core`.

Where the core keeps a timestamp, a rate is modelled here the old way: a backlog of tokens, an exact fraction, and when
it was last looked at.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from fractions import Fraction

from sluice.testing.simulation.history import Charged

MAX_GRANTS = 500
"""Grants of a limit that are looked back on; older ones are forgotten, a half at a time."""

BOOKS = 0
"""The number of what is no promise, but must be right: usage, and what the store holds in the end."""


class Broken(AssertionError):
    """A promise did not hold; ``number`` is its number in the list of promises."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"promise {number} is broken: {what}" if number else f"the books are wrong: {what}")
        self.number = number


@dataclass(order=True)
class Grant:
    """A granted take of one rate, at its turn, and when it leaves the rate to be full again."""

    turn_ns: int
    amount: int
    decided_ns: int
    lease: str
    reserved: bool
    leaves_ns: int


@dataclass
class Rate:
    """What one rate of one bucket must be, from all that was decided about it."""

    name: str
    interval_ns: int
    backlog: Fraction = Fraction(0)
    at_ns: int = 0
    capacity: int = 0
    fastest_ns: int = 0
    grants: list[Grant] = field(default_factory=list)
    gave_back: list[tuple[int, int]] = field(default_factory=list)
    net: int = 0
    steady: bool = True

    def flow(self, clock_ns: int) -> None:
        """Let the backlog drain, or, if the clock has stepped back, come back."""
        self.backlog -= Fraction(clock_ns - self.at_ns, self.interval_ns)
        self.at_ns = clock_ns

    def recount(self, interval_ns: int) -> None:
        """The limit has another interval now: the same backlog of tokens, to the next whole nanosecond."""
        if interval_ns == self.interval_ns:
            return
        if self.backlog > 0:
            self.backlog = Fraction(math.ceil(self.backlog * interval_ns), interval_ns)
        else:
            self.backlog = self.backlog * self.interval_ns / interval_ns
        self.interval_ns = interval_ns
        # Whoever counts in a shorter interval has it drain faster, also one who is refused.
        self.fastest_ns = min(self.fastest_ns or interval_ns, interval_ns)
        # Those who hold a turn by the old limit start by it; the new one counts without them.
        self.grants = [grant for grant in self.grants if grant.turn_ns <= self.at_ns]

    def wait_ns(self, charge: Charged) -> int:
        missing = max(self.backlog, Fraction(0)) + charge.amount - (charge.capacity - charge.leave)
        wait = missing * self.interval_ns
        if wait.denominator != 1:
            raise Broken(5, f"{self.name}: a backlog of {self.backlog} tokens is not a whole number of nanoseconds")
        return max(0, wait.numerator)

    @property
    def full_at_ns(self) -> int:
        """When it is full again if nobody takes; in the past if it has been for a while."""
        return self.at_ns + int(self.backlog * self.interval_ns)

    def take(self, charge: Charged) -> None:
        self.backlog = max(self.backlog, Fraction(0)) + charge.amount
        self.capacity = max(self.capacity, charge.capacity)
        self.fastest_ns = min(self.fastest_ns or charge.interval_ns, charge.interval_ns)
        self.net += charge.amount

    def grant(self, grant: Grant) -> None:
        if len(self.grants) >= MAX_GRANTS:
            del self.grants[: MAX_GRANTS // 2]
        insort(self.grants, grant)
        self.check_intervals(grant)

    def correct(self, tokens: int, now_ns: int) -> None:
        self.net += tokens
        if tokens > 0:
            self.backlog = max(self.backlog, Fraction(0)) + tokens
        else:
            self.backlog += tokens
            self.gave_back.append((now_ns, -tokens))

    def pause(self, from_ns: int, until_ns: int) -> None:
        """Stand still from one time to another; turns that had not come by then move with it."""
        self.backlog = max(self.backlog, Fraction(0))
        self.at_ns = until_ns
        for grant in self.grants:
            if grant.reserved and grant.turn_ns >= from_ns:
                grant.turn_ns += until_ns - from_ns
        self.grants.sort()

    def early_ns(self, lease: str, now_ns: int) -> int:
        """How long the turn of this lease is still to come, if it has one."""
        turns = (grant.turn_ns for grant in self.grants if grant.lease == lease and grant.reserved)
        return max(0, max(turns, default=0) - now_ns)

    def check_intervals(self, new: Grant) -> None:
        """Promise 1 for every interval that begins or ends at this grant's turn."""
        at = self.grants.index(new)
        self._count_towards(self.grants[at::-1], new.turn_ns)
        self._count_towards(self.grants[at:], new.turn_ns)

    def _count_towards(self, grants: list[Grant], edge_ns: int) -> None:
        taken = 0
        first_decided_ns = edge_ns
        for grant in grants:
            taken += grant.amount
            first_decided_ns = min(first_decided_ns, grant.decided_ns)
            low_ns, high_ns = sorted((edge_ns, grant.turn_ns))
            given = 0
            if not self.steady:
                given = sum(amount for _, amount in self.gave_back)
            elif self.gave_back:
                since_ns = min(first_decided_ns, low_ns)
                given = sum(amount for time_ns, amount in self.gave_back if since_ns <= time_ns <= high_ns)
            if (taken - given - self.capacity) * self.fastest_ns > high_ns - low_ns:
                raise Broken(
                    1,
                    f"{self.name}: {taken} granted in {high_ns - low_ns} ns, {given} given back; "
                    f"capacity {self.capacity}, one token in {self.fastest_ns} ns",
                )


@dataclass
class SlotHolders:
    """Who holds the slots of one limit of one bucket."""

    name: str
    holders: dict[str, tuple[int, int]] = field(default_factory=dict)  # lease -> (slots, expires)
    freed_ns: int = 0

    def live(self, now_ns: int) -> int:
        return sum(amount for amount, expires_ns in self.holders.values() if expires_ns > now_ns)

    def held_by(self, lease: str, now_ns: int) -> int:
        amount, expires_ns = self.holders.get(lease, (0, 0))
        return amount if expires_ns > now_ns else 0

    def wait_ns(self, charge: Charged, now_ns: int) -> int:
        """0 if there is room, else the time until enough of those who hold will have lapsed."""
        live = sorted(at for amount, at in self.holders.values() if at > now_ns for _ in range(amount))
        missing = len(live) + charge.amount + charge.leave - charge.capacity
        return live[min(missing, len(live)) - 1] - now_ns if missing > 0 else 0

    def free_since_ns(self, now_ns: int) -> int:
        """When a slot came free last: given back, or lapsed."""
        return max([self.freed_ns, *(at_ns for _, at_ns in self.holders.values() if at_ns <= now_ns)])

    def let_go(self, lease: str, now_ns: int) -> bool:
        """Take a lease's slots away; whether it had any that live."""
        _, expires_ns = self.holders.pop(lease, (0, 0))
        self.freed_ns = max(self.freed_ns, min(expires_ns, now_ns))
        return expires_ns > now_ns

    def hold(self, charge: Charged, lease: str, now_ns: int) -> None:
        for name in [name for name, (_, expires_ns) in self.holders.items() if expires_ns <= now_ns]:
            self.let_go(name, now_ns)
        self.holders[lease] = (charge.amount, now_ns + charge.ttl_ns)


@dataclass
class Balance:
    """What a task has taken since it began to ask, and whether it can know.

    ``doubtful``: some call of its had no answer; ``disturbed``: or was turned away, so its end may still be on its way.
    """

    taken: dict[tuple[str, str], int] = field(default_factory=dict)
    owns: set[tuple[str, str, str]] = field(default_factory=set)
    needs: frozenset[tuple[str, str, int]] = frozenset()
    asked_ns: tuple[int, int] = (0, 0)  # true time, and the store's
    asked: bool = False
    doubtful: bool = False
    disturbed: bool = False

    def add(self, bucket: str, limit: str, amount: int) -> None:
        self.taken[bucket, limit] = self.taken.get((bucket, limit), 0) + amount
