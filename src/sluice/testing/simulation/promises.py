"""What must always hold, checked from the history alone, after every step.

This shares nothing with `sluice.core`. Where the core keeps a timestamp, a rate is modelled here the old way: a backlog
of tokens, an exact fraction, and when it was last looked at. Each decision of the store must be the model's, to the
nanosecond; and, as a second and independent check, the grants themselves are laid out by their turns and counted over
every interval that begins or ends at a grant.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sluice.testing.simulation.history import (
    GHOST,
    Answered,
    Asked,
    Believed,
    BucketPaused,
    Charged,
    Corrected,
    InDoubt,
    Leaving,
    Left,
    NotTold,
    Record,
    Refused,
    SlotsReaped,
    SlotsRenewed,
    SlotsReturned,
    Tokens,
    Took,
    TurnGivenUp,
)

MAX_GRANTS = 500
"""Grants of a limit that are looked back on; older ones are forgotten, a half at a time."""


class Broken(AssertionError):
    """A promise did not hold; ``number`` is its number in the list of promises."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"promise {number} is broken: {what}")
        self.number = number


@dataclass(order=True)
class Grant:
    """A granted take of one rate, at its turn."""

    turn_ns: int
    amount: int
    decided_ns: int
    lease: str
    reserved: bool


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
    last_taker: str = ""
    moved_ns: int = 0
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
        self.last_taker, self.moved_ns = "", self.at_ns
        # Those who hold a turn by the old limit start by it; the new one counts without them.
        self.grants = [grant for grant in self.grants if grant.turn_ns <= self.at_ns]

    def wait_ns(self, charge: Charged) -> int:
        missing = max(self.backlog, Fraction(0)) + charge.amount - (charge.capacity - charge.leave)
        wait = missing * self.interval_ns
        if wait.denominator != 1:
            raise Broken(5, f"{self.name}: a backlog of {self.backlog} tokens is not a whole number of nanoseconds")
        return max(0, wait.numerator)

    def grant(self, charge: Charged, grant: Grant) -> None:
        self.backlog = max(self.backlog, Fraction(0)) + charge.amount
        self.capacity = max(self.capacity, charge.capacity)
        self.fastest_ns = min(self.fastest_ns or charge.interval_ns, charge.interval_ns)
        self.last_taker = grant.lease
        self.net += charge.amount
        if len(self.grants) >= MAX_GRANTS:
            del self.grants[: MAX_GRANTS // 2]
        insort(self.grants, grant)
        self.check_intervals(grant)

    def correct(self, tokens: int, now_ns: int) -> None:
        self.net += tokens
        self.last_taker, self.moved_ns = "", now_ns
        if tokens > 0:
            self.backlog = max(self.backlog, Fraction(0)) + tokens
        else:
            self.backlog += tokens
            self.gave_back.append((now_ns, -tokens))

    def check_intervals(self, new: Grant) -> None:
        """Promise 1 for every interval that begins or ends at this grant's turn."""
        at = self.grants.index(new)
        before = [grant for grant in self.grants[: at + 1]]
        self._count_towards(list(reversed(before)), new.turn_ns)
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

    def live(self, now_ns: int) -> int:
        return sum(amount for amount, expires_ns in self.holders.values() if expires_ns > now_ns)

    def held_by(self, lease: str, now_ns: int) -> int:
        amount, expires_ns = self.holders.get(lease, (0, 0))
        return amount if expires_ns > now_ns else 0

    def hold(self, charge: Charged, lease: str, now_ns: int) -> None:
        self.holders = {name: held for name, held in self.holders.items() if held[1] > now_ns}
        self.holders[lease] = (charge.amount, now_ns + charge.ttl_ns)


@dataclass
class Balance:
    """What a task has taken since it began to ask, and whether it can know."""

    taken: dict[tuple[str, str], int] = field(default_factory=dict)
    in_doubt: bool = False

    def add(self, bucket: str, limit: str, amount: int) -> None:
        self.taken[bucket, limit] = self.taken.get((bucket, limit), 0) + amount


class Promises:
    """Reads the history, record by record, and raises `Broken` at the first that breaks a promise.

    ``steady_store`` says that the store's clock never steps in this run; only then can a client know for how long it
    holds a slot.
    """

    def __init__(self, *, steady_store: bool = True) -> None:
        self.rates: dict[tuple[str, str], Rate] = {}
        self.slots: dict[tuple[str, str], SlotHolders] = {}
        self.paused_until_ns: dict[str, int] = {}
        self.balances: dict[str, Balance] = {}
        self.leaving: dict[str, dict[tuple[str, str], int]] = {}
        self.spent: dict[str, dict[tuple[str, str], int]] = {}
        self.taken_late: set[str] = set()
        self.latest_ns = 0
        self._steady_store = steady_store
        self._read: dict[type, Any] = {
            Took: self._took,
            Refused: self._refused,
            Corrected: lambda record: self._corrected(record.tokens, record.now_ns, record.task),
            TurnGivenUp: self._given_up,
            SlotsReturned: self._returned,
            SlotsRenewed: self._renewed,
            SlotsReaped: self._reaped,
            BucketPaused: self._paused,
            InDoubt: self._in_doubt,
            Asked: self._asked,
            Answered: self._answered,
            Believed: self._believed,
            Leaving: self._leaves,
            Left: self._left,
            NotTold: self._not_told,
        }

    def read(self, record: Record) -> None:
        """Take a record in; raises `Broken` if it can't be."""
        now_ns = getattr(record, "now_ns", 0)
        self.latest_ns = max(self.latest_ns, now_ns)
        self._read[type(record)](record)

    # --- takes ---

    def _took(self, record: Took) -> None:
        if record.repeated:
            for charge in record.charges:
                if charge.ttl_ns and not self._holders(charge).held_by(record.lease, record.now_ns):
                    raise Broken(4, f"{record.lease} was granted again, but holds nothing of {charge.limit}")
            return
        longest_ns = 0
        if record.task.endswith(GHOST):
            self.taken_late.add(record.lease)
        balance = self.balances.setdefault(record.task, Balance())
        for charge in record.charges:
            longest_ns = max(longest_ns, self._grant(record, charge))
            balance.add(charge.bucket, charge.limit, charge.amount)
        if record.turn_ns != record.now_ns + longest_ns:
            raise Broken(1, f"{record.lease} starts at {record.turn_ns}, its turn is at {record.now_ns + longest_ns}")

    def _grant(self, record: Took, charge: Charged) -> int:
        wait_ns = self._wait_ns(charge, record.now_ns)
        if wait_ns > record.wait_ns:
            number = 4 if charge.ttl_ns else 1
            raise Broken(number, f"{record.lease} got {charge}, which is free only in {wait_ns} ns")
        if charge.ttl_ns:
            holders = self._holders(charge)
            holders.hold(charge, record.lease, record.now_ns)
            if holders.live(record.now_ns) > charge.capacity:
                raise Broken(4, f"{holders.live(record.now_ns)} hold {holders.name}, capacity {charge.capacity}")
            return 0
        rate = self._rate(charge.bucket, charge.limit, charge.interval_ns, record.now_ns)
        owner = record.lease + GHOST if record.task.endswith(GHOST) else record.lease
        grant = Grant(record.turn_ns, charge.amount, record.now_ns, owner, record.turn_ns > record.now_ns)
        rate.grant(charge, grant)
        return wait_ns

    def _refused(self, record: Refused) -> None:
        waits = {(c.bucket, c.limit): self._wait_ns(c, record.now_ns) for c in record.charges}
        blocking = {where for where, wait_ns in waits.items() if wait_ns > record.wait_ns}
        if blocking != record.blocking:
            wrong = sorted(blocking ^ record.blocking)
            slots = any(c.ttl_ns for c in record.charges if (c.bucket, c.limit) in wrong)
            raise Broken(4 if slots else 5, f"{record.lease} was refused by {set(record.blocking)}, not by {blocking}")
        if record.retry_in_ns != max(waits.values()):
            raise Broken(5, f"{record.lease} was told to retry in {record.retry_in_ns} ns, not {max(waits.values())}")

    def _wait_ns(self, charge: Charged, now_ns: int) -> int:
        paused_ns = max(0, self.paused_until_ns.get(charge.bucket, 0) - now_ns)
        if charge.interval_ns:
            if (charge.bucket, charge.limit) not in self.rates:
                return Rate(charge.limit, charge.interval_ns).wait_ns(charge) + paused_ns
            return self._rate(charge.bucket, charge.limit, charge.interval_ns, now_ns).wait_ns(charge) + paused_ns
        live = sorted(expires for _, expires in self._entries(charge) if expires > now_ns)
        missing = len(live) + charge.amount + charge.leave - charge.capacity
        return max(paused_ns, live[min(missing, len(live)) - 1] - now_ns if missing > 0 else 0)

    def _entries(self, charge: Charged) -> list[tuple[str, int]]:
        held = self._holders(charge).holders.items()
        return [(lease, expires_ns) for lease, (amount, expires_ns) in held for _ in range(amount)]

    def _rate(self, bucket: str, limit: str, interval_ns: int, now_ns: int) -> Rate:
        """The rate, drained up to now and counted in this interval."""
        clock_ns = max(now_ns, self.paused_until_ns.get(bucket, 0))
        rate = self.rates.get((bucket, limit))
        if rate is None:
            rate = self.rates[bucket, limit] = Rate(
                f"{bucket} {limit}", interval_ns, at_ns=clock_ns, steady=self._steady_store
            )
        rate.flow(clock_ns)
        rate.recount(interval_ns)
        return rate

    def _holders(self, charge: Charged) -> SlotHolders:
        return self._holders_of(charge.bucket, charge.limit)

    def _holders_of(self, bucket: str, limit: str) -> SlotHolders:
        return self.slots.setdefault((bucket, limit), SlotHolders(f"{bucket} {limit}"))

    # --- corrections ---

    def _corrected(self, tokens: tuple[Tokens, ...], now_ns: int, task: str) -> None:
        balance = self.balances.setdefault(task, Balance())
        for bucket, limit, amount, interval_ns in tokens:
            known = self.rates.get((bucket, limit))
            if known is None and amount < 0:
                continue
            rate = self._rate(bucket, limit, known.interval_ns if known else interval_ns, now_ns)
            rate.correct(amount, now_ns)
            balance.add(bucket, limit, amount)

    def _given_up(self, record: TurnGivenUp) -> None:
        rate = self.rates.get((record.bucket, record.limit))
        if rate is None:
            return
        # Where it does not go back, it stays spent by the rule: the one who gave it up owes no more.
        self.balances.setdefault(record.task, Balance()).add(record.bucket, record.limit, -record.amount)
        mine = [grant for grant in rate.grants if grant.lease == record.lease and grant.reserved]
        if record.returned:
            rate = self._rate(record.bucket, record.limit, rate.interval_ns, record.now_ns)
            rate.backlog -= record.amount
            rate.net -= record.amount
            for grant in mine[:1]:
                rate.grants.remove(grant)
            last = rate.grants[-1] if rate.grants else None
            rate.last_taker = last.lease if last and last.decided_ns > rate.moved_ns else ""
        elif mine and rate.last_taker == record.lease:
            raise Broken(1, f"{record.lease} was last in the line for {rate.name} and its turn did not go back")

    # --- slots ---

    def _reaped(self, record: SlotsReaped) -> None:
        for limit, lease in record.slots:
            holders = self.slots[record.bucket, limit]
            if holders.held_by(lease, record.now_ns):
                raise Broken(4, f"{lease} holds {holders.name}, and was tidied away")
            holders.holders.pop(lease, None)

    def _returned(self, record: SlotsReturned) -> None:
        found = False
        balance = self.balances.setdefault(record.task, Balance())
        for (bucket, limit), holders in self.slots.items():
            if bucket == record.bucket:
                _, expires_ns = holders.holders.pop(record.lease, (0, 0))
                balance.taken.pop((bucket, limit), None)
                found = found or expires_ns > record.now_ns
        if found and not record.found:
            raise Broken(4, f"{record.lease} holds slots of {record.bucket}, and its release found none")
        if record.found:
            self._corrected(record.tokens, record.now_ns, record.task)

    def _renewed(self, record: SlotsRenewed) -> None:
        held = [
            (self.slots.setdefault((record.bucket, limit), SlotHolders(f"{record.bucket} {limit}")), amount, ttl_ns)
            for limit, amount, ttl_ns in record.limits
        ]
        live = all(holders.held_by(record.lease, record.now_ns) == amount for holders, amount, _ in held)
        if live != record.renewed:
            raise Broken(4, f"{record.lease} was {'' if record.renewed else 'not '}renewed, though it is live: {live}")
        for holders, amount, ttl_ns in held if live else ():
            expires_ns = max(holders.holders[record.lease][1], record.now_ns + ttl_ns)
            holders.holders[record.lease] = (amount, expires_ns)

    def _paused(self, record: BucketPaused) -> None:
        before_ns = max(record.now_ns, self.paused_until_ns.get(record.bucket, 0))
        shift_ns = record.until_ns - before_ns
        if shift_ns <= 0:
            return
        for (bucket, _), rate in self.rates.items():
            if bucket == record.bucket:
                rate.flow(before_ns)
                rate.backlog = max(rate.backlog, Fraction(0))
                rate.at_ns = record.until_ns
                rate.last_taker, rate.moved_ns = "", record.now_ns
                for grant in rate.grants:
                    if grant.reserved and grant.turn_ns >= before_ns:
                        grant.turn_ns += shift_ns
                rate.grants.sort()
        self.paused_until_ns[record.bucket] = record.until_ns

    # --- clients ---

    def _asked(self, record: Asked) -> None:
        self.balances[record.task] = Balance()

    def _in_doubt(self, record: InDoubt) -> None:
        if record.call in {"take", "settle", "release"}:
            self.balances.setdefault(record.task, Balance()).in_doubt = True

    def _believed(self, record: Believed) -> None:
        for bucket, limit, lease in record.slots if self._steady_store else ():
            if not self._holders_of(bucket, limit).held_by(lease, record.store_now_ns):
                raise Broken(4, f"{record.task} acts on holding {limit} of {bucket} as {lease}, and does not")

    def _leaves(self, record: Leaving) -> None:
        """What a lease has cost by then: what was settled last, else what it took and corrected, if it can know."""
        balance = self.balances.get(record.task, Balance())
        settled = dict(record.settled)
        totals = self.leaving[record.lease] = {}
        for (bucket, limit), amount in balance.taken.items():
            if record.refund or (bucket, limit) not in self.rates:
                continue
            if limit in settled:
                totals[bucket, limit] = settled[limit]
            elif not balance.in_doubt:
                totals[bucket, limit] = amount

    def _left(self, record: Left) -> None:
        if record.lease in self.leaving:
            self.spent[record.lease] = self.leaving.pop(record.lease)

    def _not_told(self, record: NotTold) -> None:
        self.spent.pop(record.lease, None)
        self.leaving.pop(record.lease, None)

    def _answered(self, record: Answered) -> None:
        balance = self.balances.setdefault(record.task, Balance())
        left = {where: amount for where, amount in balance.taken.items() if amount}
        if record.answer == "denied" and left and not balance.in_doubt:
            raise Broken(6, f"{record.task} was refused, and keeps {left}")
        if record.answer == "granted" and self._steady_store:
            self.latest_ns = max(self.latest_ns, record.store_now_ns)
            for rate in self.rates.values():
                for grant in rate.grants:
                    if grant.lease == record.lease and grant.reserved and grant.turn_ns > self.latest_ns:
                        early_ns = grant.turn_ns - self.latest_ns
                        raise Broken(1, f"{record.lease} starts {early_ns} ns before its turn at {rate.name}")

    def conclude(self, now_ns: int, alive: frozenset[str]) -> None:
        """Once everybody is done: nothing that was settled is missing, nobody who is alive has left a slot behind."""
        totals: dict[tuple[str, str], int] = {}
        for spent in self.spent.values():
            for where, amount in spent.items():
                totals[where] = totals.get(where, 0) + amount
        for where, total in totals.items():
            net = self.rates[where].net if where in self.rates else 0
            if net < total:
                raise Broken(1, f"{total} of {where} were used, and only {net} are accounted for")
        for holders in self.slots.values():
            for lease in holders.holders:
                owner = lease.partition("@")[2]
                late = lease in self.taken_late
                if lease in self.spent and owner in alive and not late and holders.held_by(lease, now_ns):
                    raise Broken(4, f"{lease} has ended, and still holds {holders.name}")
