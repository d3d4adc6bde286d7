"""The bucket told in other words: an oracle for the core, exact and slow.

A rate is no timestamp here but a backlog: tokens that were taken and have not come back, a Fraction, which drains by
one each interval of the bucket's clock. Below zero it says for how long the bucket has been full. Slots are records,
one for each slot held. Nothing is shared with `core.bucket` but the words of a request, and every number is its own.

Answers are plain tuples, for a test to compare with what the core says.
"""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sluice.core.names import BucketKey
from sluice.core.requests import (
    Charge,
    Delta,
    GiveUp,
    Part,
    RateCharge,
    Release,
    Renew,
    SlotEntry,
    SlotsCharge,
    Take,
)

HOUR_NS = 3_600_000_000_000
LONGEST_TURN_NS = 24 * HOUR_NS
REACH_IN_CAPACITIES = 11

Answer = tuple[object, ...]


@dataclass(frozen=True)
class Backlog:
    """``tokens`` were missing when the bucket's clock stood at ``at_ns``."""

    tokens: Fraction
    at_ns: int
    interval_ns: int

    def when(self, clock_ns: int) -> Fraction:
        """The tokens missing at another time of the bucket's clock."""
        return self.tokens - Fraction(clock_ns - self.at_ns, self.interval_ns)

    @property
    def empty_at_ns(self) -> int:
        """When nothing is missing any more; every history ends on a whole nanosecond."""
        moment = self.at_ns + self.tokens * self.interval_ns
        assert moment.denominator == 1
        return int(moment)


@dataclass(frozen=True)
class Slot:
    limit: str
    lease_id: str
    number: int
    expires_ns: int

    @property
    def entry(self) -> str:
        return f"{self.lease_id}#{self.number}" if self.number else self.lease_id


@dataclass
class OracleBucket:
    backlogs: dict[str, Backlog] = field(default_factory=dict)
    held: list[Slot] = field(default_factory=list)
    paused_until_ns: int = 0
    paused_total_ns: int = 0
    used: dict[tuple[str, int], int] = field(default_factory=dict)

    # --- facts ---

    def clock_ns(self, now_ns: int) -> int:
        return max(now_ns, self.paused_until_ns)

    def pause_left_ns(self, now_ns: int) -> int:
        return self.clock_ns(now_ns) - now_ns

    def live(self, limit: str, now_ns: int) -> list[Slot]:
        return [slot for slot in self.held if slot.limit == limit and now_ns < slot.expires_ns]

    def held_by(self, lease_id: str, limit: str, now_ns: int) -> list[Slot]:
        """A lease's live slots. It stands by its first: without that one, the rest is what a reaper left."""
        mine = [slot for slot in self.held if slot.limit == limit and slot.lease_id == lease_id]
        if all(slot.number for slot in mine):
            return []
        return [slot for slot in mine if now_ns < slot.expires_ns]

    def counted(self, charge: RateCharge, now_ns: int) -> tuple[Fraction, bool]:
        """Tokens missing now, counted as the charge counts, and whether there were more than can honestly be."""
        backlog = self.backlogs.get(charge.name)
        if backlog is None:
            return Fraction(0), False
        missing = backlog.when(self.clock_ns(now_ns))
        if backlog.interval_ns != charge.interval_ns:
            if missing > 0:
                missing = Fraction(math.ceil(missing * charge.interval_ns), charge.interval_ns)
            else:  # full for as long as before, whatever a token takes now
                missing = missing * backlog.interval_ns / charge.interval_ns
        most = REACH_IN_CAPACITIES * charge.capacity + Fraction(LONGEST_TURN_NS, charge.interval_ns)
        return min(missing, most), missing > most

    def wait_ns(self, charge: Charge, now_ns: int) -> int:
        if isinstance(charge, RateCharge):
            missing, _ = self.counted(charge, now_ns)
            too_many = max(Fraction(0), missing) + charge.amount - (charge.capacity - charge.leave)
            wait = max(Fraction(0), too_many) * charge.interval_ns + self.pause_left_ns(now_ns)
            assert wait.denominator == 1
            return int(wait)
        expiries = [slot.expires_ns for slot in self.live(charge.name, now_ns)]
        room = charge.capacity - charge.leave - charge.amount
        moments = [now_ns, *sorted(expiries)]
        fits = next(moment for moment in moments if sum(expires_ns > moment for expires_ns in expiries) <= room)
        return max(fits - now_ns, self.pause_left_ns(now_ns))

    def available(self, charge: Charge, now_ns: int) -> int:
        if self.pause_left_ns(now_ns):
            return 0
        if isinstance(charge, SlotsCharge):
            return max(0, charge.capacity - len(self.live(charge.name, now_ns)))
        missing, _ = self.counted(charge, now_ns)
        return max(0, math.floor(charge.capacity - max(Fraction(0), missing)))

    def status(self, key: BucketKey, charge: Charge, now_ns: int) -> Answer:
        retry_in = math.ceil(Fraction(self.wait_ns(charge, now_ns), 1_000)) / 1_000_000
        available = self.available(charge, now_ns)
        return (key.resource, charge.name, key.entity, charge.capacity, available, retry_in)

    def idle(self, now_ns: int) -> bool:
        drained = all(backlog.when(now_ns) <= 0 for backlog in self.backlogs.values())
        return drained and not self.held and not self.used and not self.pause_left_ns(now_ns)

    def image(self) -> Answer:
        """All that a bucket's image must say."""
        rates = {name: (backlog.empty_at_ns, backlog.interval_ns) for name, backlog in self.backlogs.items()}
        slots = {(slot.limit, slot.entry, slot.expires_ns) for slot in self.held}
        assert len(slots) == len(self.held)
        return (rates, slots, self.paused_until_ns, self.paused_total_ns, self.used)

    # --- changes ---

    def recount(self, charge: RateCharge, now_ns: int) -> None:
        if charge.name in self.backlogs:
            missing, _ = self.counted(charge, now_ns)
            self.backlogs[charge.name] = Backlog(missing, self.clock_ns(now_ns), charge.interval_ns)

    def charge(self, lease_id: str, charge: Charge, now_ns: int) -> None:
        if isinstance(charge, RateCharge):
            missing, _ = self.counted(charge, now_ns)
            tokens = max(Fraction(0), missing) + charge.amount
            self.backlogs[charge.name] = Backlog(tokens, self.clock_ns(now_ns), charge.interval_ns)
        else:
            expires_ns = now_ns + charge.ttl_ns
            new = [Slot(charge.name, lease_id, number, expires_ns) for number in range(charge.amount)]
            names = {slot.entry for slot in new}
            others = [slot for slot in self.held if slot.limit != charge.name]
            live = [slot for slot in self.live(charge.name, now_ns) if slot.entry not in names]
            self.held = others + live + new
        self.use(charge.name, charge.amount, now_ns)

    def use(self, name: str, amount: int, now_ns: int) -> None:
        hour = (name, now_ns // HOUR_NS)
        self.used[hour] = self.used.get(hour, 0) + amount

    def settle(self, deltas: tuple[Delta, ...], now_ns: int) -> Answer:
        clock_ns = self.clock_ns(now_ns)
        for delta in deltas:
            backlog = self.backlogs.get(delta.name)
            if delta.tokens > 0:
                interval_ns = backlog.interval_ns if backlog else delta.interval_ns
                missing = backlog.when(clock_ns) if backlog else Fraction(0)
                self.backlogs[delta.name] = Backlog(max(Fraction(0), missing) + delta.tokens, clock_ns, interval_ns)
            elif backlog:
                self.backlogs[delta.name] = replace(backlog, tokens=backlog.tokens + delta.tokens)
            self.use(delta.name, delta.tokens, now_ns)
        return ("settled",)

    def give_up(self, request: GiveUp, now_ns: int) -> Answer:
        backlog = self.backlogs.get(request.name)
        last = backlog is not None and backlog.empty_at_ns == request.left_full_at_ns
        if backlog is None or not last or backlog.interval_ns != request.interval_ns:
            return ("gave up", False)
        self.settle((Delta(request.name, -request.amount, request.interval_ns),), now_ns)
        return ("gave up", True)

    def release(self, request: Release, now_ns: int) -> Answer:
        kept = [slot for slot in self.held if slot.lease_id != request.lease_id]
        if len(kept) == len(self.held):
            return ("gone",)
        self.held = kept
        self.settle(request.deltas, now_ns)
        return ("released",)

    def renew(self, request: Renew, now_ns: int) -> Answer:
        for charge in request.slots:
            if len(self.held_by(request.lease_id, charge.name, now_ns)) != charge.amount:
                return ("gone",)
        for charge in request.slots:
            for slot in self.held_by(request.lease_id, charge.name, now_ns):
                self.held.remove(slot)
                self.held.append(replace(slot, expires_ns=max(slot.expires_ns, now_ns + charge.ttl_ns)))
        return ("renewed",)

    def pause(self, for_ns: int, now_ns: int) -> Answer:
        """Until the pause has passed nothing drains, but what was already full counts as just full."""
        clock_ns, end_ns = self.clock_ns(now_ns), now_ns + for_ns
        if end_ns > clock_ns:
            for name, backlog in self.backlogs.items():
                missing = max(Fraction(0), backlog.when(clock_ns))
                self.backlogs[name] = Backlog(missing, end_ns, backlog.interval_ns)
            self.paused_until_ns = end_ns
            self.paused_total_ns += end_ns - clock_ns
        return ("paused", self.paused_until_ns)

    def lapsed(self, now_ns: int) -> set[Answer]:
        return {(slot.limit, slot.entry, slot.expires_ns) for slot in self.held if slot.expires_ns <= now_ns}

    def reap(self, seen: tuple[SlotEntry, ...], now_ns: int) -> Answer:
        due = self.lapsed(now_ns) & {(slot.limit, slot.entry, slot.expires_ns) for slot in seen}
        self.held = [slot for slot in self.held if (slot.limit, slot.entry, slot.expires_ns) not in due]
        return ("reaped", due)

    def fold(self, now_ns: int) -> Answer:
        past = {hour: amount for hour, amount in self.used.items() if hour[1] < now_ns // HOUR_NS}
        self.used = {hour: amount for hour, amount in self.used.items() if hour not in past}
        return ("folded", past)


def take(buckets: dict[BucketKey, OracleBucket], request: Take, now_ns: int) -> Answer:
    """All of the parts or nothing, on the buckets that they name."""
    held = [
        (len(buckets[part.key].held_by(request.lease_id, charge.name, now_ns)), charge.amount)
        for part in request.parts
        for charge in part.charges
        if isinstance(charge, SlotsCharge)
    ]
    if any(mine for mine, _ in held):
        return ("repeated",) if all(mine == amount for mine, amount in held) else ("clash",)
    asked = [(part, charge) for part in request.parts for charge in part.charges]
    clamped = tuple(c.name for p, c in asked if isinstance(c, RateCharge) and buckets[p.key].counted(c, now_ns)[1])
    waits = [buckets[part.key].wait_ns(charge, now_ns) for part, charge in asked]
    refused = [
        (part, charge)
        for (part, charge), wait_ns in zip(asked, waits, strict=True)
        if wait_ns > (request.wait_ns if isinstance(charge, RateCharge) else 0)
    ]
    if refused:
        statuses = tuple(buckets[part.key].status(part.key, charge, now_ns) for part, charge in refused)
        _recount_all(buckets, request.parts, now_ns)
        return ("denied", max(waits), statuses, clamped)
    for part, charge in asked:
        buckets[part.key].charge(request.lease_id, charge, now_ns)
    return ("granted", now_ns + max(waits), clamped)


def _recount_all(buckets: dict[BucketKey, OracleBucket], parts: tuple[Part, ...], now_ns: int) -> None:
    """A refusal takes nothing, but what it had to count anew stays counted so."""
    for part in parts:
        for charge in part.rates:
            buckets[part.key].recount(charge, now_ns)
