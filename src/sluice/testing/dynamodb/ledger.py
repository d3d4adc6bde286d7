"""The arithmetic that claims are checked with: grants over intervals, and what an image says of a take.

It uses nothing of `sluice.core` but the shapes of its values.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.core.bucket import Bucket, RateState
from sluice.core.names import entry_owner
from sluice.core.requests import GiveUp, RateCharge, Release, Settle, SlotsCharge, Take
from sluice.testing.simulation.model import Broken

MAX_GRANTS = 500


@dataclass(order=True)
class Grant:
    """Tokens that are taken at a turn; all times are true times."""

    turn_ns: int
    amount: int
    decided_ns: int
    lease: str
    reserved: bool


@dataclass
class Ledger:
    """The grants of one rate, and what was given back."""

    name: str
    spread_ns: int
    capacity: int = 0
    fastest_ns: int = 0
    interval_ns: int = 0
    grants: list[Grant] = field(default_factory=list)
    gave_back: list[tuple[int, int]] = field(default_factory=list)

    def grant(self, charge: RateCharge, grant: Grant) -> None:
        if charge.interval_ns != self.interval_ns:
            # Those who hold a turn by the old limit start by it; the new one counts without them.
            self.grants = [kept for kept in self.grants if kept.turn_ns <= grant.decided_ns]
        self.interval_ns = charge.interval_ns
        self.capacity = max(self.capacity, charge.capacity)
        self.fastest_ns = min(self.fastest_ns or charge.interval_ns, charge.interval_ns)
        if len(self.grants) >= MAX_GRANTS:
            del self.grants[: MAX_GRANTS // 2]
        insort(self.grants, grant)
        at = self.grants.index(grant)
        self._count(self.grants[at::-1])
        self._count(self.grants[at:])

    def counted_in(self, interval_ns: int) -> None:
        """Tokens come back at this pace from now on: a denial may count a limit anew, too."""
        self.fastest_ns = min(self.fastest_ns, interval_ns)

    def give_up(self, lease: str, true_ns: int) -> None:
        """A turn went back: it will not be used. Where others came behind it all the same, it counts as given back."""
        for grant in self.grants:
            if grant.lease == lease and grant.reserved:
                self.grants.remove(grant)
                if any(other.decided_ns > grant.decided_ns for other in self.grants):
                    self.gave_back.append((true_ns, grant.amount))
                return

    def pause(self, from_ns: int, shift_ns: int) -> None:
        """Turns that had not come by any clock move with the line."""
        for grant in self.grants:
            if grant.reserved and grant.turn_ns >= from_ns + self.spread_ns:
                grant.turn_ns += shift_ns
        self.grants.sort()

    def _count(self, grants: list[Grant]) -> None:
        """Promise 1 for the intervals from the first of these grants to each other."""
        taken = 0
        edge_ns = first_ns = last_ns = grants[0].turn_ns
        for grant in grants:
            taken += grant.amount
            low_ns, high_ns = sorted((edge_ns, grant.turn_ns))
            first_ns = min(first_ns, grant.decided_ns, low_ns)
            last_ns = max(last_ns, grant.decided_ns, high_ns)
            since_ns, until_ns = first_ns - self.spread_ns, last_ns + self.spread_ns
            given = sum(amount for time_ns, amount in self.gave_back if since_ns <= time_ns <= until_ns)
            if (taken - given - self.capacity) * self.fastest_ns > high_ns - low_ns + self.spread_ns:
                raise Broken(
                    1,
                    f"{self.name}: {taken} granted in {high_ns - low_ns} ns, {given} given back; capacity "
                    f"{self.capacity}, one token in {self.fastest_ns} ns, clocks {self.spread_ns} ns apart",
                )


def waits_ns(image: Bucket, request: Take, now_ns: int, max_skew_ns: int) -> Mapping[str, int]:
    """How long each limit of a take makes it wait, from the image of its bucket."""
    clock_ns = max(now_ns, image.paused_until_ns)
    waits = {}
    for charge in request.parts[0].charges:
        if isinstance(charge, SlotsCharge):
            entries = image.slots.get(charge.name, {})
            wait_ns = max(_slots_wait_ns(entries, charge, request.lease_id, now_ns, max_skew_ns), clock_ns - now_ns)
        else:
            wait_ns = _rate_wait_ns(image.rates.get(charge.name), charge, clock_ns) + clock_ns - now_ns
        waits[charge.name] = wait_ns
    return waits


def _rate_wait_ns(state: RateState | None, charge: RateCharge, clock_ns: int) -> int:
    backlog_ns = 0 if state is None else max(0, state.full_at_ns - clock_ns)
    if state is not None and state.interval_ns != charge.interval_ns:
        backlog_ns = (backlog_ns * charge.interval_ns + state.interval_ns - 1) // state.interval_ns
    return max(0, backlog_ns + (charge.amount + charge.leave - charge.capacity) * charge.interval_ns)


def _slots_wait_ns(entries: Mapping[str, int], charge: SlotsCharge, lease: str, now_ns: int, max_skew_ns: int) -> int:
    ends = sorted(at + (0 if entry_owner(entry) == lease else max_skew_ns) for entry, at in entries.items())
    live = [end for end in ends if end > now_ns]
    missing = len(live) + charge.amount + charge.leave - charge.capacity
    return live[min(missing, len(live)) - 1] - now_ns if missing > 0 else 0


def tokens_of(request: Take | Settle | Release | GiveUp) -> Mapping[str, int]:
    """What a request charges each rate of its bucket: above 0 taken or owed, below given back."""
    if isinstance(request, Take):
        return {charge.name: charge.amount for charge in request.parts[0].rates}
    if isinstance(request, GiveUp):
        return {request.name: -request.amount}
    tokens: dict[str, int] = {}
    for delta in request.deltas:
        tokens[delta.name] = tokens.get(delta.name, 0) + delta.tokens
    return tokens
