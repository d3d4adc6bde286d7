"""What clients took, were told, settled and kept, set against what the store did.

    Asked -> Took ... -> Answered -> Believed, Corrected ... -> Leaving -> Left

Who is refused, errs or is cancelled keeps nothing; who is granted has exactly what it asked for, in every bucket that
counts; who leaves has paid exactly what it said it cost, and holds no slot. A task with a call in doubt can't know, so
of those only what everyone's usage comes to is checked, at the end.
"""

from __future__ import annotations

from sluice.testing.simulation.history import (
    GHOST,
    Answered,
    Asked,
    Charged,
    InDoubt,
    Lapsed,
    Leaving,
    Left,
    LimitsChanged,
    NotReached,
    NotTold,
    Stored,
    Tokens,
    Took,
    TurnGivenUp,
)
from sluice.testing.simulation.model import BOOKS, Balance, Broken, Rate, SlotHolders

Where = tuple[str, str]
"""A bucket and a limit of it."""

GRANTED = {"granted", "degraded"}

PROMPT_NS = 1_000_000_000
"""Whoever waits in line looks at least twice a second."""


class Accounts:
    """The balance of each task, and of each limit."""

    def __init__(
        self, rates: dict[Where, Rate], slots: dict[Where, SlotHolders], *, calm: bool, fail_open: bool
    ) -> None:
        self._rates = rates
        self._slots = slots
        self._calm = calm
        self._fail_open = fail_open
        self._balances: dict[str, Balance] = {}
        self._taken: dict[str, dict[Where, int]] = {}
        self._late: set[str] = set()
        self._leaving: dict[str, dict[Where, int]] = {}
        self._spent: dict[str, dict[Where, int]] = {}
        self._on_its_way: set[str] = set()
        self._not_told: set[str] = set()
        self._used: dict[Where, int] = {}
        self._changed: dict[str, LimitsChanged] = {}

    def _of(self, task: str) -> Balance:
        return self._balances.setdefault(task, Balance())

    def _count(self, bucket: str, limit: str, amount: int) -> None:
        self._used[bucket, limit] = self._used.get((bucket, limit), 0) + amount

    # --- what the store did ---

    def took(self, record: Took) -> None:
        if record.task.endswith(GHOST):
            self._late.add(record.lease)
        taken = self._taken.setdefault(record.lease, {})
        for charge in record.charges:
            taken[charge.bucket, charge.limit] = charge.amount
            self._count(charge.bucket, charge.limit, charge.amount)
        self.owns(record)

    def owns(self, record: Took) -> None:
        """What was granted is the task's from now on, also where a copy of its take had been first."""
        balance = self._of(record.task)
        for charge in record.charges:
            mine = (record.lease, charge.bucket, charge.limit)
            if charge.interval_ns and not (record.repeated and mine in balance.owns):
                balance.add(charge.bucket, charge.limit, charge.amount)
            balance.owns.add(mine)

    def check_promptness(self, record: Took, paused_until_ns: int) -> None:
        """While nothing goes wrong, who waits for the one slot of a limit has it soon after it comes free."""
        balance = self._balances.get(record.task)
        if not self._calm or balance is None or not balance.asked:
            return
        if any(charge.capacity != 1 or not charge.ttl_ns for charge in record.charges):
            return
        if len(record.charges) < len(balance.needs):  # one bucket of several: the wait may have been for another
            return
        holders = (self._slots.get((charge.bucket, charge.limit)) for charge in record.charges)
        freed = [found.free_since_ns(record.now_ns) for found in holders if found is not None]
        idle_ns = record.now_ns - max([balance.asked_ns[1], paused_until_ns, *freed])
        if idle_ns > PROMPT_NS:
            raise Broken(9, f"{record.task} waited for {idle_ns} ns although nobody held what it waits for")

    def has_taken(self, lease: str, charges: tuple[Charged, ...]) -> bool:
        """Whether this lease was granted any of these before; what arrived late is not the client's doing."""
        taken = self._taken.get(lease, {})
        return lease not in self._late and any((charge.bucket, charge.limit) in taken for charge in charges)

    def corrected(self, tokens: tuple[Tokens, ...], task: str) -> None:
        balance = self._of(task)
        for bucket, limit, amount, _ in tokens:
            self._count(bucket, limit, amount)
            if (bucket, limit) not in self._rates:
                continue
            balance.add(bucket, limit, amount)
            left = balance.taken[bucket, limit]
            if left < 0 and balance.asked and not balance.doubtful:
                raise Broken(1, f"{task} has given back {-left} more of {bucket} {limit} than it took")

    def given_up(self, record: TurnGivenUp) -> None:
        # Where it does not go back, it stays spent by the rule: the one who gave it up owes no more.
        self._of(record.task).add(record.bucket, record.limit, -record.amount)
        if record.returned:
            self._count(record.bucket, record.limit, -record.amount)

    def limits_changed(self, record: LimitsChanged) -> None:
        self._changed[record.resource] = record

    def check_limits_in_force(self, task: str, charges: tuple[Charged, ...]) -> None:
        """Whoever began to ask a cache's lifetime after a change takes by the new limits."""
        balance = self._balances.get(task)
        if not self._changed or balance is None or not balance.asked:
            return
        for charge in charges:
            changed = self._changed.get(charge.bucket.rsplit("#", 2)[1])
            if changed is None or balance.asked_ns[0] < changed.in_force_ns:
                continue
            if (charge.limit, charge.capacity, charge.interval_ns) not in changed.limits:
                raise Broken(1, f"{task} asked after {charge.limit} was changed, and takes by old limits: {charge}")

    # --- what clients did ---

    def asked(self, record: Asked) -> None:
        needs = frozenset(record.needs)
        asked_ns = (record.true_ns, record.store_now_ns)
        self._balances[record.task] = Balance(needs=needs, asked_ns=asked_ns, asked=True)

    def in_doubt(self, record: InDoubt) -> None:
        if record.call in {"take", "settle", "release"}:
            balance = self._of(record.task)
            balance.doubtful = balance.disturbed = True

    def not_reached(self, record: NotReached) -> None:
        self._of(record.task).disturbed = True

    def answered(self, record: Answered, now_ns: int) -> None:
        balance = self._of(record.task)
        if record.answer == "granted":
            got = self._taken.get(record.lease, {})
            named = frozenset((bucket.partition("/")[2], limit, amount) for (bucket, limit), amount in got.items())
            if named != balance.needs:
                raise Broken(6, f"{record.task} was granted {sorted(named)}, and asked for {sorted(balance.needs)}")
        if record.answer == "degraded" and not self._fail_open:
            raise Broken(1, f"{record.task} was let through uncounted, and nobody had asked for that")
        if record.answer in GRANTED:
            return
        left = {where: amount for where, amount in balance.taken.items() if amount}
        if left and not balance.disturbed:
            raise Broken(6, f"{record.task} was told {record.answer}, and keeps {left}")
        for lease in () if balance.disturbed else sorted({lease for lease, _, _ in balance.owns} - self._late):
            for holders in self._slots.values():
                if holders.held_by(lease, now_ns):
                    raise Broken(6, f"{record.task} was told {record.answer}, and {lease} holds {holders.name}")

    def leaves(self, record: Leaving) -> None:
        """What a lease has cost by then: what was settled last, else what it took and corrected, if it can know."""
        balance = self._of(record.task)
        settled = dict(record.settled)
        totals = self._leaving[record.lease] = {}
        for (bucket, limit), amount in balance.taken.items():
            if record.refund:
                totals[bucket, limit] = 0
            elif limit in settled:
                totals[bucket, limit] = settled[limit]
            elif not balance.disturbed:
                totals[bucket, limit] = amount

    def left(self, record: Left, now_ns: int) -> None:
        totals = self._leaving.pop(record.lease, None)
        if totals is None:
            return
        self._spent[record.lease] = totals
        balance = self._of(record.task)
        if balance.disturbed:
            self._on_its_way.add(record.lease)
            return
        for where, total in totals.items():
            if balance.taken[where] != total:
                raise Broken(1, f"{record.task} has paid {balance.taken[where]} of {where} for what cost {total}")
        for holders in self._slots.values():
            if holders.held_by(record.lease, now_ns) and record.lease not in self._late:
                raise Broken(4, f"{record.lease} has ended, and still holds {holders.name}")

    def not_told(self, record: NotTold) -> None:
        self._not_told.add(record.lease)
        self._spent.pop(record.lease, None)
        self._leaving.pop(record.lease, None)

    def lapsed(self, record: Lapsed) -> None:
        if self._calm and record.kept:
            raise Broken(4, f"{record.lease} was lost though its holder lives and nothing went wrong")

    # --- the end ---

    def check_usage(self, record: Stored) -> None:
        counted = {limit: amount for limit, amount in record.used if amount}
        used = {limit: amount for (bucket, limit), amount in self._used.items() if bucket == record.bucket and amount}
        if counted != used:
            raise Broken(BOOKS, f"{record.bucket} counts {counted} as used, and {used} was")

    def conclude(self, now_ns: int, alive: frozenset[str]) -> None:
        totals: dict[Where, int] = {}
        for lease, spent in self._spent.items():
            if lease in self._on_its_way and _owner(lease) not in alive:
                continue  # its end may have died with its process
            for where, amount in spent.items():
                totals[where] = totals.get(where, 0) + amount
        for where, total in totals.items():
            net = self._rates[where].net if where in self._rates else 0
            if net < total:
                raise Broken(1, f"{total} of {where} were used, and only {net} are accounted for")
        for holders in self._slots.values():
            for lease in holders.holders:
                late = lease in self._late or lease in self._not_told
                if _owner(lease) in alive and not late and holders.held_by(lease, now_ns):
                    raise Broken(4, f"{lease} holds {holders.name}, and nobody holds the lease any more")


def _owner(lease: str) -> str:
    """The process that a lease belongs to."""
    return lease.partition("@")[2]
