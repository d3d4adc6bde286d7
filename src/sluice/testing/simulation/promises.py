"""What must always hold, checked from the history alone, after every step.

This shares nothing with `sluice.core`. Each decision of the store must be the model's, to the nanosecond; as a second
and independent check, the grants themselves are laid out by their turns and counted over every interval that begins
or ends at a grant. What clients are told, what they keep, and what they settle must agree with what the store did; and
what the store holds in the end must be what all of that comes to.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sluice.testing.simulation.accounts import Accounts
from sluice.testing.simulation.history import (
    GHOST,
    Answered,
    Asked,
    Believed,
    BucketPaused,
    Charged,
    Corrected,
    InDoubt,
    Lapsed,
    Leaving,
    Left,
    LimitsChanged,
    NotReached,
    NotTold,
    Record,
    Refused,
    SlotsReaped,
    SlotsRenewed,
    SlotsReturned,
    Stored,
    Tokens,
    Took,
    TurnGivenUp,
)
from sluice.testing.simulation.model import BOOKS, Broken, Grant, Rate, SlotHolders


class Promises:
    """Reads the history, record by record, and raises `Broken` at the first that breaks a promise.

    ``steady_store`` says that the store's clock never steps in this run; only then can a client know for how long it
    holds a slot. ``calm`` says that nothing goes wrong in this run, so nothing may be lost either; ``fail_open`` that
    clients are to be let through while the store is unavailable.
    """

    def __init__(self, *, steady_store: bool = True, calm: bool = False, fail_open: bool = False) -> None:
        self.rates: dict[tuple[str, str], Rate] = {}
        self.slots: dict[tuple[str, str], SlotHolders] = {}
        self.paused_until_ns: dict[str, int] = {}
        self.accounts = Accounts(self.rates, self.slots, calm=calm, fail_open=fail_open)
        self.latest_ns = 0
        self._steady_store = steady_store
        accounts = self.accounts
        self._read: dict[type, Any] = {
            Took: self._took,
            Refused: self._refused,
            Corrected: lambda record: self._corrected(record.tokens, record.now_ns, record.task),
            TurnGivenUp: self._given_up,
            SlotsReturned: self._returned,
            SlotsRenewed: self._renewed,
            SlotsReaped: self._reaped,
            BucketPaused: self._paused,
            Answered: self._answered,
            Believed: self._believed,
            Left: lambda record: accounts.left(record, self.latest_ns),
            Stored: self._stored,
            InDoubt: accounts.in_doubt,
            NotReached: accounts.not_reached,
            Asked: accounts.asked,
            Leaving: accounts.leaves,
            NotTold: accounts.not_told,
            Lapsed: accounts.lapsed,
            LimitsChanged: accounts.limits_changed,
        }

    def read(self, record: Record) -> None:
        """Take a record in; raises `Broken` if it can't be."""
        now_ns = getattr(record, "now_ns", 0)
        self.latest_ns = max(self.latest_ns, now_ns)
        self._read[type(record)](record)

    # --- takes ---

    def _took(self, record: Took) -> None:
        self.accounts.check_limits_in_force(record.task, record.charges)
        if record.repeated:
            for charge in record.charges:
                if charge.ttl_ns and not self._holders(charge).held_by(record.lease, record.now_ns):
                    raise Broken(4, f"{record.lease} was granted again, but holds nothing of {charge.limit}")
            self.accounts.owns(record)
            return
        self._check_first_time(record)
        paused_ns = max(self.paused_until_ns.get(charge.bucket, 0) for charge in record.charges)
        self.accounts.check_promptness(record, paused_ns)
        self.accounts.took(record)
        longest_ns = max(self._grant(record, charge) for charge in record.charges)
        if record.turn_ns != record.now_ns + longest_ns:
            raise Broken(1, f"{record.lease} starts at {record.turn_ns}, its turn is at {record.now_ns + longest_ns}")

    def _check_first_time(self, record: Took) -> None:
        """The same take is never charged twice; with slots, as long as it holds them."""
        if record.task.endswith(GHOST):
            return
        slots = [charge for charge in record.charges if charge.ttl_ns]
        held = [charge.limit for charge in slots if self._holders(charge).held_by(record.lease, record.now_ns)]
        if held:
            raise Broken(4, f"{record.lease} holds {held} and took them once more")
        if not slots and self.accounts.has_taken(record.lease, record.charges):
            raise Broken(1, f"{record.lease} was charged twice")

    def _grant(self, record: Took, charge: Charged) -> int:
        wait_ns = self._wait_ns(charge, record.now_ns)
        if wait_ns > record.wait_ns:
            number = 4 if charge.ttl_ns else 1
            what = f"{charge.amount} of {charge.bucket} {charge.limit} (of {charge.capacity})"
            raise Broken(number, f"{record.lease} got {what}, free only in {wait_ns} ns")
        if charge.ttl_ns:
            holders = self._holders(charge)
            holders.hold(charge, record.lease, record.now_ns)
            if holders.live(record.now_ns) > charge.capacity:
                raise Broken(4, f"{holders.live(record.now_ns)} hold {holders.name}, capacity {charge.capacity}")
            return 0
        rate = self._rate(charge.bucket, charge.limit, charge.interval_ns, record.now_ns)
        owner = record.lease + GHOST if record.task.endswith(GHOST) else record.lease
        rate.take(charge)
        reserved = record.turn_ns > record.now_ns
        rate.grant(Grant(record.turn_ns, charge.amount, record.now_ns, owner, reserved, rate.full_at_ns))
        return wait_ns

    def _refused(self, record: Refused) -> None:
        self.accounts.check_limits_in_force(record.task, record.charges)
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
        return max(paused_ns, self._holders(charge).wait_ns(charge, now_ns))

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
        for bucket, limit, amount, interval_ns in tokens:
            known = self.rates.get((bucket, limit))
            if known is None and amount < 0:
                continue
            rate = self._rate(bucket, limit, known.interval_ns if known else interval_ns, now_ns)
            rate.correct(amount, now_ns)
        self.accounts.corrected(tokens, task)

    def _given_up(self, record: TurnGivenUp) -> None:
        rate = self.rates.get((record.bucket, record.limit))
        if rate is None:
            return
        self.accounts.given_up(record)
        mine = [grant for grant in rate.grants if grant.lease == record.lease and grant.reserved]
        rate.flow(max(record.now_ns, self.paused_until_ns.get(record.bucket, 0)))
        last = bool(mine) and mine[0].leaves_ns == rate.full_at_ns
        if mine and last != record.returned:
            fate = "though somebody came behind" if record.returned else "not, though nobody came behind"
            raise Broken(1, f"the turn of {record.lease} at {rate.name} went back {fate}")
        if record.returned:
            rate.backlog -= record.amount
            rate.net -= record.amount
            for grant in mine[:1]:
                rate.grants.remove(grant)
                if any(other.turn_ns >= grant.turn_ns for other in rate.grants):
                    # Others gave back and took as much in between: it went back from the middle all the same.
                    rate.gave_back.append((record.now_ns, record.amount))

    # --- slots ---

    def _reaped(self, record: SlotsReaped) -> None:
        for limit, lease in record.slots:
            holders = self._holders_of(record.bucket, limit)
            if holders.held_by(lease, record.now_ns):
                raise Broken(4, f"{lease} holds {holders.name}, and was tidied away")
            holders.let_go(lease, record.now_ns)

    def _returned(self, record: SlotsReturned) -> None:
        found = False
        for (bucket, _limit), holders in self.slots.items():
            if bucket == record.bucket:
                found = holders.let_go(record.lease, record.now_ns) or found
        if found and not record.found:
            raise Broken(4, f"{record.lease} holds slots of {record.bucket}, and its release found none")
        if record.found:
            self._corrected(record.tokens, record.now_ns, record.task)

    def _renewed(self, record: SlotsRenewed) -> None:
        held = [(self._holders_of(record.bucket, limit), amount, ttl_ns) for limit, amount, ttl_ns in record.limits]
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
                rate.pause(before_ns, record.until_ns)
        self.paused_until_ns[record.bucket] = record.until_ns

    # --- clients ---

    def _believed(self, record: Believed) -> None:
        for bucket, limit, lease in record.slots if self._steady_store else ():
            if not self._holders_of(bucket, limit).held_by(lease, record.store_now_ns):
                raise Broken(4, f"{record.task} acts on holding {limit} of {bucket} as {lease}, and does not")

    def _answered(self, record: Answered) -> None:
        self.accounts.answered(record, self.latest_ns)
        if record.answer == "granted" and record.starts and self._steady_store:
            self.latest_ns = max(self.latest_ns, record.store_now_ns)
            for rate in self.rates.values():
                early_ns = rate.early_ns(record.lease, self.latest_ns)
                if early_ns:
                    raise Broken(1, f"{record.lease} starts {early_ns} ns before its turn at {rate.name}")

    # --- the end ---

    def _stored(self, record: Stored) -> None:
        """What a bucket holds in the end is what its history comes to."""
        clock_ns = max(record.now_ns, self.paused_until_ns.get(record.bucket, 0))
        held = {limit: (full_at_ns, interval_ns) for limit, full_at_ns, interval_ns in record.rates}
        for (bucket, limit), rate in self.rates.items():
            if bucket == record.bucket:
                rate.flow(clock_ns)
                full_at_ns, interval_ns = held.get(limit, (0, rate.interval_ns))
                backlog = Fraction(max(0, full_at_ns - clock_ns), interval_ns)
                if (backlog, interval_ns) != (max(rate.backlog, Fraction(0)), rate.interval_ns):
                    raise Broken(BOOKS, f"{rate.name} holds a backlog of {backlog} tokens, not {rate.backlog}")
        for (bucket, limit), holders in self.slots.items():
            if bucket == record.bucket:
                stored = {lease: (amount, at_ns) for name, lease, amount, at_ns in record.slots if name == limit}
                live = {lease: held for lease, held in holders.holders.items() if held[1] > record.now_ns}
                if {lease: held for lease, held in stored.items() if held[1] > record.now_ns} != live:
                    raise Broken(BOOKS, f"{holders.name} is held by {stored}, not by {live}")
        paused_until_ns = self.paused_until_ns.get(record.bucket, 0)
        if max(record.paused_until_ns, record.now_ns) != max(paused_until_ns, record.now_ns):
            raise Broken(BOOKS, f"{record.bucket} is paused until {record.paused_until_ns}, not {paused_until_ns}")
        self.accounts.check_usage(record)

    def conclude(self, now_ns: int, alive: frozenset[str]) -> None:
        """Once everybody is done: nothing that was settled is missing, nobody who is alive has left a slot behind."""
        self.accounts.conclude(now_ns, alive)
