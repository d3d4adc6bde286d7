"""A lease: what a take left in the caller's hands, and what it will owe at its end.

    pending --take granted--> held --end sent--> ended
       |                       '--not renewed in time--> lost (ends all the same: its settlement still counts)
       '--refused or cancelled--> ended

The lease exists before its take is sent, so whatever happens, somebody owns the outcome. Each of its takes is a `Hold`
with an id of its own; the first has the lease's id, `more` adds others. It belongs to the process that took it: in a
forked child it does nothing. Whether it still holds its slots is judged by two clocks, one that counts suspension and
the wall clock, from before the take or renewal was sent: whichever says first that the time is over is believed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from sluice.core.bounds import MAX_DEBT_CAPACITIES, NS_PER_HOUR, NS_PER_MS, NS_PER_SECOND
from sluice.core.bucket import Bucket
from sluice.core.errors import ConfigError, LeaseLost, StoreUnavailable
from sluice.core.events import LeaseLapsed, SettleCapped
from sluice.core.names import BucketKey, entry_owner
from sluice.core.needs import Plan, check_admissible, check_amounts, unknown_limit
from sluice.core.requests import (
    Charge,
    Delta,
    GiveUp,
    Gone,
    Granted,
    Part,
    RateCharge,
    Release,
    Renew,
    Settle,
    Unknown,
    Unreached,
)
from sluice.flow.ending import End, Step
from sluice.flow.persist import persist, sure, unavailable

if TYPE_CHECKING:
    from sluice.flow.client import Client

END_NS: Final = 2 * NS_PER_SECOND
"""Leaving a block tries for so long to reach the store; then the keeper goes on."""

END_WITHOUT_SLOTS_NS: Final = NS_PER_HOUR // 60
"""How long the end of a lease that holds no slots is tried."""


class Sent(Enum):
    """How far a part of a take has come."""

    NOT_YET = "not sent, or surely not applied"
    DOUBTFUL = "sent, and no answer"
    GRANTED = "granted"


@dataclass
class Hold:
    """One take of a lease, and how far each of its parts has come."""

    id: str
    parts: tuple[Part, ...]
    sent: list[Sent]
    undone: bool = False

    @classmethod
    def of(cls, hold_id: str, parts: tuple[Part, ...]) -> Hold:
        return cls(hold_id, parts, [Sent.NOT_YET] * len(parts))

    def granted(self) -> Iterator[Part]:
        return (part for part, sent in zip(self.parts, self.sent, strict=True) if sent is Sent.GRANTED)


@dataclass(frozen=True, slots=True)
class Turn:
    """When a reserved take's turn comes, by the store's clock, and what is needed to shift it or give it up."""

    key: BucketKey
    charge: RateCharge
    at_ns: int
    left_full_at_ns: int
    paused_total_ns: int

    def shifted_ns(self, image: Bucket) -> int:
        """Where pauses have moved the turn; one that had come before the bucket's pause began stays in the past."""
        at_ns = self.at_ns + image.paused_total_ns - self.paused_total_ns
        return at_ns if at_ns >= image.paused_until_ns else 0


class Lease:
    """The state of a lease and its verbs; the facades wrap it."""

    def __init__(self, client: Client, lease_id: str, plan: Plan, *, keep_alive: bool) -> None:
        self.client = client
        self.id = lease_id
        self.plan = plan
        self.keep_alive = keep_alive
        self.process = client.process
        self.holds = [Hold.of(lease_id, plan.taken)]
        self.charged = {(p.key, c.name): c.amount for p in plan.parts for c in p.charges}
        self.totals: dict[tuple[BucketKey, str], int] = {}
        self.turn: Turn | None = None
        self.starts_steady_ns = 0
        self.degraded = False
        self.on_lost: Callable[[], object] | None = None
        self._ttl_ns = _shortest_ttl_ns(plan.taken)
        self._trusted_steady_ns = 0
        self._trusted_wall_ns = 0
        self._lost = False
        self._end: End | None = None

    # --- what it is ---

    @property
    def ended(self) -> bool:
        return self._end is not None

    @property
    def standing(self) -> str:
        """In a word or two, how it stands."""
        if self.degraded:
            return "degraded"
        if self.ended:
            return "ended"
        return "lost" if self.lost else "held"

    @property
    def holds_slots(self) -> bool:
        return self._ttl_ns > 0 and not self.degraded

    @property
    def ttl_ns(self) -> int:
        """The shortest time to live of its slots; 0 without slots."""
        return self._ttl_ns

    @property
    def amounts(self) -> dict[str, int]:
        """What was taken in the buckets that were asked for, by limit."""
        if self.degraded:
            return {}
        own = self.plan.taken[0].key
        return {name: amount for (key, name), amount in self.charged.items() if key == own and amount}

    @property
    def lost(self) -> bool:
        """Whether its slots may be somebody else's by now."""
        if not self.holds_slots or self.ended:
            return self._lost
        clock = self.client.clock
        return self._lost or clock.steady_ns() >= self._trusted_steady_ns or clock.now_ns() >= self._trusted_wall_ns

    @property
    def renew_at_steady_ns(self) -> int:
        """When the keeper should renew it: after a third of its time."""
        return self._trusted_steady_ns - self._ttl_ns + self._ttl_ns // 3

    @property
    def expires_steady_ns(self) -> int:
        return self._trusted_steady_ns

    @property
    def foreign(self) -> bool:
        """Whether this process got the lease through a fork and must leave it alone."""
        return self.process != self.client.scope.process()

    def trust_from(self, steady_ns: int, wall_ns: int) -> None:
        """Its slots are known to live for a whole TTL from before this was sent."""
        self._trusted_steady_ns = steady_ns + self._ttl_ns
        self._trusted_wall_ns = wall_ns + self._ttl_ns

    def starts_in_ns(self) -> int:
        """How long until its turn comes; 0 once it has."""
        return max(0, self.starts_steady_ns - self.client.clock.steady_ns())

    # --- what its takes bring ---

    def granted(self, hold: Hold, answer: Granted, steady_ns: int, wall_ns: int) -> None:
        """A take sent at these times was granted: its slots live at least so much longer."""
        owned = [
            expires_ns - answer.now_ns
            for image in answer.images
            for entries in image.slots.values()
            for entry, expires_ns in entries.items()
            if entry_owner(entry) == hold.id
        ]
        if owned:
            slots_ttl_ns = _shortest_ttl_ns(hold.parts)
            lives_ns = min(owned)
            if not self._trusted_steady_ns or steady_ns + lives_ns < self._trusted_steady_ns:
                self._trusted_steady_ns, self._trusted_wall_ns = steady_ns + lives_ns, wall_ns + lives_ns
            self._ttl_ns = min(self._ttl_ns, slots_ttl_ns) if self._ttl_ns else slots_ttl_ns
        if answer.turn_ns > answer.now_ns:
            part, image = hold.parts[0], answer.images[0]
            charge = part.rates[0]
            left_ns = image.rates[charge.name].full_at_ns
            self.turn = Turn(part.key, charge, answer.turn_ns, left_ns, image.paused_total_ns)
            self.starts_steady_ns = self.client.clock.steady_ns() + answer.turn_ns - answer.now_ns

    def add(self, hold: Hold) -> None:
        """Own what `more` took."""
        self.holds.append(hold)
        for part in hold.parts:
            for charge in part.charges:
                self.charged[part.key, charge.name] += charge.amount

    def replan(self, plan: Plan, lease_id: str) -> None:
        """Take by other limits than before, or under another id; only while nothing is taken."""
        if plan == self.plan and lease_id == self.id:
            return
        self.id = lease_id
        self.plan = plan
        self.holds = [Hold.of(self.id, plan.taken)]
        self.charged = {(part.key, charge.name): charge.amount for part in plan.parts for charge in part.charges}
        self._ttl_ns = _shortest_ttl_ns(plan.taken)

    def more_parts(self, amounts: Mapping[str, int]) -> tuple[Part, ...]:
        """What ``more`` takes: the limits named, in every bucket of the lease."""
        if not amounts:
            raise ConfigError("more: name what to take, as in more(tpm=500)")
        wanted: dict[BucketKey, list[Charge]] = {}
        for name, amount in amounts.items():
            check_amounts({name: amount}, "more")
            for key, charge in self._named(name):
                wanted.setdefault(key, []).append(replace(charge, amount=amount * self.plan.times.get(key, 1)))
        for key, charges in wanted.items():
            for charge in charges:
                check_admissible(key, charge)
        return tuple(Part(key, tuple(charges)) for key, charges in wanted.items())

    # --- settling ---

    def settle(self, totals: Mapping[str, int]) -> None:
        """Note what the lease truly cost. No I/O: its end carries it. The last call counts."""
        if self.ended:
            raise ConfigError("this lease has ended; settle before it does, inside the block")
        if self.degraded:
            return
        noted = {}
        for name, total in totals.items():
            if isinstance(total, bool) or not isinstance(total, int) or total < 0:
                raise ConfigError(f"settle: the total of {name!r} is a whole number from 0, not {total!r}")
            for key, charge in self._rates_named(name):
                noted[key, charge.name] = self._capped(key, charge, total * self.plan.times.get(key, 1))
        self.totals |= noted

    def _capped(self, key: BucketKey, charge: RateCharge, total: int) -> int:
        most = self.charged[key, charge.name] + MAX_DEBT_CAPACITIES * charge.capacity
        if total <= most:
            return total
        self.client.tell(SettleCapped(self.id, f"{key.resource}#{charge.name}", total, most))
        return most

    def _named(self, name: str) -> list[tuple[BucketKey, Charge]]:
        """The limits that a name such as ``tpm`` or ``openai#tpm`` means, in every bucket of the lease."""
        resource, hash_sign, limit = name.rpartition("#")
        named = [
            (part.key, charge)
            for part in self.plan.parts
            for charge in part.charges
            if charge.name == limit and (not hash_sign or part.key.resource == resource)
        ]
        if not named:
            known = sorted({charge.name for part in self.plan.parts for charge in part.charges})
            raise unknown_limit(name, limit, known)
        return named

    def _rates_named(self, name: str) -> list[tuple[BucketKey, RateCharge]]:
        rates = [(key, charge) for key, charge in self._named(name) if isinstance(charge, RateCharge)]
        if not rates:
            raise ConfigError(f"{name!r} are slots: they are held or released, not settled")
        return rates

    async def adjust(self, deltas: Mapping[str, int]) -> None:
        """Owe or give back at once. A total never goes below 0."""
        self.check_mine()
        if self.degraded:
            return
        by_key: dict[BucketKey, list[Delta]] = {}
        for name, tokens in deltas.items():
            if isinstance(tokens, bool) or not isinstance(tokens, int):
                raise ConfigError(f"adjust: the change of {name!r} is a whole number, not {tokens!r}")
            for key, charge in self._rates_named(name):
                if tokens > MAX_DEBT_CAPACITIES * charge.capacity:
                    raise ConfigError(
                        f"adjust: {tokens} more of {name!r} is past ten capacities ({charge.capacity} each); "
                        "check the unit, or spread it over several leases"
                    )
                counted = max(tokens, -self.charged[key, charge.name])
                if counted:
                    by_key.setdefault(key, []).append(Delta(charge.name, counted, charge.interval_ns))
        await self.client.scope.finish(self._adjust(by_key))

    async def _adjust(self, by_key: Mapping[BucketKey, list[Delta]]) -> None:
        client = self.client
        until_ns = client.clock.steady_ns() + client.settings.timeout_ns
        for key, deltas in by_key.items():
            request = Settle(key, tuple(deltas))
            answer, _ = await persist(client, client.store.settle, request, until_ns, repeatable=request.only_owes)
            if isinstance(answer, Unreached):
                raise unavailable(answer, f"adjusting lease {self.id}")
            for delta in deltas:  # in doubt, what is charged is the least that can be: then no more is ever given back
                if delta.tokens < 0 or not isinstance(answer, Unknown):
                    self.charged[key, delta.name] += delta.tokens
            if isinstance(answer, Unknown):
                raise unavailable(answer, f"adjusting lease {self.id}")

    # --- living ---

    def check_mine(self) -> None:
        if self.foreign:
            raise LeaseLost(f"lease {self.id} belongs to process {self.process}; take one in this process")
        if self.ended:
            raise ConfigError(f"lease {self.id} has ended; take another")

    def renewals(self) -> list[Renew]:
        return [Renew(part.key, hold.id, part.slots) for hold in self.holds for part in hold.granted() if part.slots]

    async def renew(self) -> None:
        """Renew its slots now. Raises `LeaseLost` if they have lapsed."""
        self.check_mine()
        clock = self.client.clock
        steady_ns, wall_ns = clock.steady_ns(), clock.now_ns()
        for request in self.renewals():
            answer = await sure(self.client, self.client.store.renew, request, f"renewing lease {self.id}")
            if isinstance(answer, Gone):
                self.lose("it lapsed before it was renewed")
                raise LeaseLost(f"lease {self.id} lapsed before it was renewed; stop what it protects, take another")
        self.trust_from(steady_ns, wall_ns)

    def lose(self, why: str) -> None:
        """Its slots are gone, or may be."""
        if self._lost or self.ended:
            return
        self._lost = True
        self.client.tell(LeaseLapsed(self.id, why))
        if self.on_lost is not None:
            self.client.call(self.on_lost)

    # --- ending ---

    def _end_steps(self, *, refund: bool) -> list[Step]:
        if refund and self.turn is not None and self.starts_in_ns() > 0:
            return [self._give_up_step(self.turn)]
        deltas = self._deltas(refund=refund)
        steps = []
        for hold in self.holds:
            for part in hold.granted():
                owed = deltas.pop(part.key, ())
                if part.slots:
                    steps.append(Step(Release(part.key, hold.id, tuple(owed))))
                elif owed:
                    steps.append(Step(Settle(part.key, tuple(owed))))
        return steps + [Step(Settle(key, tuple(owed))) for key, owed in deltas.items()]

    def _deltas(self, *, refund: bool) -> dict[BucketKey, list[Delta]]:
        deltas: dict[BucketKey, list[Delta]] = {}
        for part in self.plan.parts:
            for charge in part.rates:
                taken = self.charged[part.key, charge.name]
                total = 0 if refund else self.totals.get((part.key, charge.name), taken)
                if total != taken:
                    delta = Delta(charge.name, total - taken, charge.interval_ns)
                    deltas.setdefault(part.key, []).append(delta)
        return deltas

    def _give_up_step(self, turn: Turn) -> Step:
        charge = turn.charge
        return Step(GiveUp(turn.key, charge.name, charge.amount, charge.interval_ns, turn.left_full_at_ns))

    def undo_work(self, hold: Hold) -> End:
        """What must be sent so that a take that nobody will use leaves nothing behind, whatever became of it."""
        steps = []
        for part, sent in zip(hold.parts, hold.sent, strict=True):
            back = tuple(Delta(charge.name, -charge.amount, charge.interval_ns) for charge in part.rates)
            if part.slots and sent is not Sent.NOT_YET:
                steps.append(Step(Release(part.key, hold.id, back), only_if_held=sent is Sent.DOUBTFUL))
            elif sent is Sent.GRANTED:
                turn = self.turn if hold is self.holds[0] else None
                steps.append(Step(Settle(part.key, back)) if turn is None else self._give_up_step(turn))
        work = End(hold.id, steps, self._end_by_ns(), undoes=True)
        hold.sent = [Sent.NOT_YET] * len(hold.parts)
        hold.undone = hold.undone or bool(steps)
        if hold is self.holds[0]:
            self._trusted_steady_ns = self._trusted_wall_ns = 0
        return work

    def _end_by_ns(self) -> int:
        steady_ns = self.client.clock.steady_ns()
        if self.holds_slots:
            return max(self._trusted_steady_ns, steady_ns + END_NS)
        return steady_ns + END_WITHOUT_SLOTS_NS

    async def end(self, *, refund: bool) -> None:
        """Give its slots back and settle; what does not reach the store now, the keeper goes on with."""
        if self.foreign:
            return
        if self._end is None:
            self._end = End(self.id, self._end_steps(refund=refund), self._end_by_ns())
        if not self._end.done:
            await finish_end(self.client, self._end)
            self.client.lines.nudge(part.key for part in self.plan.parts)

    async def end_by_hand(self, *, refund: bool) -> None:
        """The same, but an end that can't be sent now is an error. Ending twice is none."""
        if self.foreign:
            self.check_mine()
        await self.end(refund=refund)
        if self._end is not None and not self._end.done:
            raise StoreUnavailable(
                f"lease {self.id} has ended, but the store does not know yet ({self._end.why}); it is told in the "
                "background until the lease expires"
            )

    def __del__(self) -> None:
        # A lease that nobody ended lapses; whoever dropped it should know. Half-made or foreign ones are not theirs.
        if getattr(self, "ended", True) or not self.holds_slots or not self.renewals() or self.foreign:
            return
        warnings.warn(
            f"lease {self.id} was dropped without being released; its slots stay taken until they lapse",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )


async def finish_end(client: Client, work: End) -> bool:
    """Send an end for a moment; what is left then, the keeper goes on with. Whether nothing was left."""
    work.in_hand = True
    client.keeper.adopt(work)
    until_ns = client.clock.steady_ns() + min(END_NS, client.settings.timeout_ns)
    try:
        await client.scope.finish(work.push(client, until_ns))
    finally:
        work.in_hand = False
        client.keeper.review(work)
    return work.done


def new_lease_id(client: Client) -> str:
    """An id that sorts by time and says whose it is: start in milliseconds, something random, host and process."""
    return f"{client.clock.now_ns() // NS_PER_MS:012x}{client.rng.getrandbits(40):010x}@{client.process}"


def _shortest_ttl_ns(parts: tuple[Part, ...]) -> int:
    return min((charge.ttl_ns for part in parts for charge in part.slots), default=0)
