"""What must hold of the DynamoDB store, checked on what the table does, call by call.

The store decides by its client's clock, and several clients' calls come in between each other, so a decision can't be
foretold to the nanosecond as for a store that decides by its own clock. This is what is claimed instead. ``spread`` is
how far the clocks of a run are apart; it is never more than the store's ``max_skew``, for that is its condition.

    rates    in any interval, by true time at the turn: taken - given back <= capacity + (length + spread) x rate.
             With clocks that agree this is promise 1 as it stands
    slots    a bucket never holds more leases than its capacity; whoever acts on holding one has its entry there; an
             entry of another's goes only ``max_skew`` after its expiry, by the clock of who removes it
    writes   move each rate by what its request charges, and by nothing else: no write undoes another's
    denials  are the arithmetic of the image that came back with them, and take nothing
    books    what is told, kept, settled and counted agrees with what the table did, to the token, as for any store

Nothing here uses `sluice.core` to decide; images are read as the store reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sluice.core.bucket import Bucket, RateState
from sluice.core.names import entry_owner
from sluice.core.requests import Denied, RateCharge, Take
from sluice.stores.dynamodb.charging import SLACK
from sluice.testing.dynamodb.ledger import Grant, Ledger, tokens_of, waits_ns
from sluice.testing.simulation.accounts import Accounts
from sluice.testing.simulation.history import (
    GHOST,
    Answered,
    Asked,
    Believed,
    BucketPaused,
    Corrected,
    InDoubt,
    Lapsed,
    Leaving,
    Left,
    LimitsChanged,
    NotReached,
    NotTold,
    Record,
    SlotsReaped,
    SlotsRenewed,
    SlotsReturned,
    Stored,
    Took,
    TurnGivenUp,
)
from sluice.testing.simulation.model import Broken, SlotHolders
from sluice.testing.simulation.model import Rate as Balance

Where = tuple[str, str]
"""A bucket and a limit of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A write of a request was applied to its bucket, by this client time."""

    bucket: str
    request: Any
    before: Bucket
    after: Bucket
    now_ns: int


class Claims:
    """Reads the history, and is told of every write; raises `Broken` at the first that breaks a claim."""

    def __init__(self, *, max_skew_ns: int, spread_ns: int, calm: bool, fail_open: bool) -> None:
        self._max_skew_ns = max_skew_ns
        self._spread_ns = spread_ns
        self._ledgers: dict[Where, Ledger] = {}
        self._rates: dict[Where, Balance] = {}
        self._slots: dict[Where, SlotHolders] = {}
        self._latest_ns = 0
        self._disturbed: set[str] = set()
        self._told_late: dict[str, str] = {}
        accounts = self._accounts = Accounts(self._rates, self._slots, calm=calm, fail_open=fail_open)
        self._read: dict[type, Any] = {
            Took: self._took,
            Corrected: lambda record: self._corrected(record.tokens, record.task),
            TurnGivenUp: self._given_up,
            SlotsReturned: self._returned,
            SlotsRenewed: lambda record: None,
            SlotsReaped: lambda record: None,
            BucketPaused: lambda record: None,
            Believed: self._believed,
            Answered: lambda record: accounts.answered(record, self._latest_ns),
            Left: self._left,
            Stored: accounts.check_usage,
            InDoubt: self._in_doubt,
            NotReached: self._not_reached,
            Asked: accounts.asked,
            Leaving: accounts.leaves,
            NotTold: accounts.not_told,
            Lapsed: accounts.lapsed,
            LimitsChanged: accounts.limits_changed,
        }

    def read(self, record: Record) -> None:
        """Take a record in; raises `Broken` if it can't be."""
        self._latest_ns = max(self._latest_ns, getattr(record, "now_ns", 0))
        self._read[type(record)](record)

    # --- what the table did ---

    def stands(self, bucket: str, image: Bucket) -> None:
        """A bucket as a write has left it."""
        for limit, entries in image.slots.items():
            held: dict[str, tuple[int, int]] = {}
            for entry, expires_ns in entries.items():
                amount, at_ns = held.get(entry_owner(entry), (0, expires_ns))
                held[entry_owner(entry)] = (amount + 1, min(at_ns, expires_ns))
            self._holders(bucket, limit).holders = held
        for limit, state in image.rates.items():
            ledger = self._ledgers.get((bucket, limit))
            if ledger is not None:
                ledger.counted_in(state.interval_ns)

    def granted(self, change: Change, grant: Grant) -> None:
        """A take was applied, to be counted at this turn."""
        lease = change.request.lease_id
        for limit, entries in change.before.slots.items():
            if any(entry_owner(entry) == lease and at > change.now_ns for entry, at in entries.items()):
                raise Broken(4, f"{lease} holds {limit} of {change.bucket}, and took it once more")
        for charge in change.request.parts[0].charges:
            if isinstance(charge, RateCharge):
                where = (change.bucket, charge.name)
                ledger = self._ledgers.setdefault(where, Ledger(" ".join(where), self._spread_ns))
                ledger.grant(charge, replace(grant, amount=charge.amount))
            elif len(change.after.slots[charge.name]) > charge.capacity:
                held = len(change.after.slots[charge.name])
                raise Broken(4, f"{held} hold {charge.name} of {change.bucket}, capacity {charge.capacity}")
        self.removed(change)

    def moved(self, change: Change) -> None:
        """Each rate of the bucket has moved by what the request charges it, and by no other's doing."""
        clock_ns = max(change.now_ns, change.before.paused_until_ns)
        due = tokens_of(change.request)
        for limit, after in change.after.rates.items():
            before = change.before.rates.get(limit, RateState(clock_ns, after.interval_ns))
            if before.interval_ns != after.interval_ns:
                continue  # counted anew in another interval
            tokens = due.get(limit, 0)
            if tokens > 0:
                least_ns = max(before.full_at_ns, clock_ns) + tokens * after.interval_ns
                most_ns = least_ns + (SLACK * tokens * after.interval_ns if isinstance(change.request, Take) else 0)
            else:
                least_ns = most_ns = before.full_at_ns + tokens * after.interval_ns
            if not least_ns <= after.full_at_ns <= most_ns:
                by = Fraction(after.full_at_ns - before.full_at_ns, after.interval_ns)
                raise Broken(1, f"{change.bucket} {limit} was charged {tokens}, and moved by {by} tokens")

    def removed(self, change: Change) -> None:
        """Slots may have been tidied away: none of another's before its time."""
        lease = getattr(change.request, "lease_id", "")
        for limit, entries in change.before.slots.items():
            for entry, expires_ns in entries.items():
                late_ns = 0 if entry_owner(entry) == lease else self._max_skew_ns
                if entry not in change.after.slots.get(limit, {}) and expires_ns + late_ns > change.now_ns:
                    raise Broken(4, f"{entry} held {limit} of {change.bucket}, and was removed before its time")

    def renewed(self, change: Change) -> bool:
        """Whether a write has renewed a lease; it may only have been a live one."""
        raised = False
        for limit, entries in change.after.slots.items():
            for entry, expires_ns in entries.items():
                was_ns = change.before.slots.get(limit, {}).get(entry, expires_ns)
                if entry_owner(entry) != change.request.lease_id or was_ns == expires_ns:
                    continue
                if was_ns <= change.now_ns or expires_ns < was_ns:
                    raise Broken(
                        4, f"{entry} of {change.bucket} lapsed at {was_ns}, and was renewed at {change.now_ns}"
                    )
                raised = True
        return raised

    def gave_back(self, bucket: str, limit: str, amount: int, true_ns: int) -> None:
        ledger = self._ledgers.get((bucket, limit))
        if ledger is not None:
            ledger.gave_back.append((true_ns, amount))

    def gave_up(self, change: Change, lease: str, true_ns: int) -> None:
        """A turn went back, which it may only if the rate is as its take left it."""
        request = change.request
        if change.before.rates[request.name].full_at_ns != request.left_full_at_ns:
            raise Broken(1, f"a turn of {change.bucket} {request.name} went back from the middle of the line")
        ledger = self._ledgers.get((change.bucket, request.name))
        if ledger is not None:
            ledger.give_up(lease, true_ns)

    def paused(self, change: Change, from_ns: int) -> None:
        """A bucket's clock stands still: every rate that runs must be shifted, and the turns with it."""
        shift_ns = change.after.paused_total_ns - change.before.paused_total_ns
        clock_ns = max(change.now_ns, change.before.paused_until_ns)
        for limit, before in change.before.rates.items():
            if change.after.rates[limit].full_at_ns < max(before.full_at_ns, clock_ns) + shift_ns:
                raise Broken(1, f"{change.bucket} was paused, and {limit} was not")
        for (bucket, _), ledger in self._ledgers.items():
            if bucket == change.bucket:
                ledger.pause(from_ns, shift_ns)

    # --- what clients are told ---

    def denied(self, request: Take, answer: Denied, image: Bucket) -> None:
        """A denial says what the image says that came with it."""
        waits = waits_ns(image, request, answer.now_ns, self._max_skew_ns)
        blocking = {name for name, wait_ns in waits.items() if wait_ns > request.wait_ns}
        named = {status.name for status in answer.limits}
        if blocking != named:
            raise Broken(5, f"{request.lease_id} was refused by {named}, not by {blocking}")
        if not answer.clamped and answer.retry_in_ns != max(waits.values()):
            raise Broken(5, f"{request.lease_id} was told {answer.retry_in_ns} ns, not {max(waits.values())}")

    def _took(self, record: Took) -> None:
        accounts = self._accounts
        accounts.check_limits_in_force(record.task, record.charges)
        if record.repeated:
            accounts.owns(record)
            return
        rates = [charge for charge in record.charges if charge.interval_ns]
        once = len(rates) == len(record.charges) and not record.task.endswith(GHOST)
        if once and accounts.has_taken(record.lease, record.charges):
            raise Broken(1, f"{record.lease} was charged twice")
        accounts.took(record)
        for charge in rates:
            self._balance(charge.bucket, charge.limit, charge.interval_ns).net += charge.amount

    def _corrected(self, tokens: tuple[tuple[str, str, int, int], ...], task: str) -> None:
        for bucket, limit, amount, interval_ns in tokens:
            if amount > 0 or (bucket, limit) in self._rates:
                self._balance(bucket, limit, interval_ns).net += amount
        self._accounts.corrected(tokens, task)

    def _given_up(self, record: TurnGivenUp) -> None:
        if (record.bucket, record.limit) in self._rates:
            self._accounts.given_up(record)
            if record.returned:
                self._rates[record.bucket, record.limit].net -= record.amount

    def _returned(self, record: SlotsReturned) -> None:
        if record.found:
            self._corrected(record.tokens, record.task)

    def _believed(self, record: Believed) -> None:
        for bucket, limit, lease in record.slots:
            if lease not in self._holders(bucket, limit).holders:
                raise Broken(4, f"{record.task} acts on holding {limit} of {bucket} as {lease}, and does not")

    def _in_doubt(self, record: InDoubt) -> None:
        self._disturbed.add(record.task)
        self._accounts.in_doubt(record)

    def _not_reached(self, record: NotReached) -> None:
        self._disturbed.add(record.task)
        self._accounts.not_reached(record)

    def _left(self, record: Left) -> None:
        self._accounts.left(record, self._latest_ns)
        if record.task in self._disturbed:
            self._told_late[record.lease] = record.task

    def killed(self, process: str) -> None:
        """A process has died: an end that its keeper still had to tell is lost with it."""
        for lease, task in self._told_late.items():
            if task.partition("/")[0] == process:
                self._accounts.not_told(NotTold(lease))

    def _balance(self, bucket: str, limit: str, interval_ns: int) -> Balance:
        return self._rates.setdefault((bucket, limit), Balance(f"{bucket} {limit}", interval_ns))

    def _holders(self, bucket: str, limit: str) -> SlotHolders:
        return self._slots.setdefault((bucket, limit), SlotHolders(f"{bucket} {limit}"))

    def conclude(self, now_ns: int, alive: frozenset[str]) -> None:
        """Once everybody is done: nothing that was settled is missing, nobody who is alive has left a slot behind."""
        self._accounts.conclude(now_ns, alive)
