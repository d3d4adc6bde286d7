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
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.errors import ConfigError, LeaseLost, StoreUnavailable
from sluice.core.events import LeaseEnded, LeaseLapsed, SettleCapped
from sluice.core.names import BucketKey, entry_owner
from sluice.core.requests import Delta, GiveUp, Gone, Granted, Release, Renew, Settle, Unknown, Unreached
from sluice.flow.account import Account
from sluice.flow.ending import END_NS, End, Step, finish_end
from sluice.flow.hold import Hold, Sent, Turn, shortest_ttl_ns
from sluice.flow.persist import persist, sure, unavailable

if TYPE_CHECKING:
    from sluice.core.needs import Plan
    from sluice.flow.client import Client

END_WITHOUT_SLOTS_NS: Final = NS_PER_HOUR // 60
"""How long the end of a lease that holds no slots is tried."""


class Lease:
    """The state of a lease and its verbs; the facades wrap it."""

    def __init__(self, client: Client, lease_id: str, plan: Plan, *, keep_alive: bool) -> None:
        self.client = client
        self.id = lease_id
        self.plan = plan
        self.keep_alive = keep_alive
        self.named = False
        self.process = client.process
        self.holds = [Hold.of(lease_id, plan.taken)]
        self.account = Account(plan)
        self.turn: Turn | None = None
        self.starts_steady_ns = 0
        self.degraded = False
        self.on_lost: Callable[[], object] | None = None
        self._ttl_ns = shortest_ttl_ns(plan.taken)
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
        """What was taken in the bucket that was asked for, by limit."""
        return {} if self.degraded else self.account.own_amounts

    @property
    def lost(self) -> bool:
        """Whether its slots may be somebody else's by now."""
        if not self.holds_slots or self.ended:
            return self._lost
        clock = self.client.clock
        return self._lost or clock.steady_ns() >= self._trusted_steady_ns or clock.now_ns() >= self._trusted_wall_ns

    @property
    def known_lost(self) -> bool:
        """Whether its loss has been noticed and told."""
        return self._lost

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
            slots_ttl_ns = shortest_ttl_ns(hold.parts)
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
        self.account.add(hold.parts)

    def replan(self, plan: Plan, lease_id: str) -> None:
        """Take by other limits than before, or under another id; only while nothing is taken."""
        if plan == self.plan and lease_id == self.id:
            return
        self.id = lease_id
        self.plan = plan
        self.holds = [Hold.of(self.id, plan.taken)]
        self.account = Account(plan)
        self._ttl_ns = shortest_ttl_ns(plan.taken)

    # --- settling ---

    def settle(self, totals: Mapping[str, int]) -> None:
        """Note what the lease truly cost. No I/O: its end carries it. The last call counts."""
        self.check_mine()
        if self.degraded:
            return
        for limit, asked, counted in self.account.note(totals):
            self.client.tell(SettleCapped(self.id, limit, asked, counted))

    async def adjust(self, changes: Mapping[str, int]) -> None:
        """Owe or give back at once. A total never goes below 0."""
        self.check_mine()
        if not self.degraded:
            await self.client.scope.finish(self._adjust(self.account.adjustments(changes)))

    async def _adjust(self, by_key: Mapping[BucketKey, list[Delta]]) -> None:
        client, account = self.client, self.account
        until_ns = client.clock.steady_ns() + client.settings.timeout_ns
        for key, deltas in by_key.items():
            request = Settle(key, tuple(deltas))
            account.doubt(key, deltas)
            answer, _ = await persist(client, client.store.settle, request, until_ns, repeatable=request.only_owes)
            if isinstance(answer, Unreached):
                account.not_applied(key, deltas)
            if isinstance(answer, Unreached | Unknown):
                raise unavailable(answer, f"adjusting lease {self.id}")
            account.applied(key, deltas)

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
        deltas = self.account.refunds() if refund else self.account.deltas()
        steps = []
        for hold in self.holds:
            for part in hold.granted():
                owed = tuple(deltas.pop(part.key, ()))
                if part.slots:
                    # Under an id of the caller's own, another process may have ended this take, and given back.
                    steps.append(Step(Release(part.key, hold.id, owed), doubted=self.named))
                elif owed:
                    settling = Step(Settle(part.key, owed))
                    steps += settling.in_doubt() if part.key in hold.found else [settling]
        return steps + [Step(Settle(key, tuple(owed))) for key, owed in deltas.items()]

    def _give_up_step(self, turn: Turn) -> Step:
        charge = turn.charge
        return Step(GiveUp(turn.key, charge.name, charge.amount, charge.interval_ns, turn.left_full_at_ns))

    def undo_work(self, hold: Hold) -> End:
        """What must be sent so that a take that nobody will use leaves nothing behind, whatever became of it."""
        steps = []
        for part, sent in zip(hold.parts, hold.sent, strict=True):
            if part.key in hold.found:
                continue
            back = tuple(Delta(charge.name, -charge.amount, charge.interval_ns) for charge in part.rates)
            if part.slots and sent is not Sent.NOT_YET:
                steps.append(Step(Release(part.key, hold.id, back), only_if_held=sent is Sent.DOUBTFUL))
            elif sent is Sent.GRANTED:
                turn = self.turn if hold is self.holds[0] else None
                steps.append(Step(Settle(part.key, back)) if turn is None else self._give_up_step(turn))
        work = End(hold.id, steps, self._end_by_ns(), undoes=True)
        hold.sent = [Sent.NOT_YET] * len(hold.parts)
        hold.found.clear()
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
            keys = tuple(part.key for part in self.plan.parts)
            self._end = End(self.id, self._end_steps(refund=refund), self._end_by_ns(), keys)
            if self._end.done and not self.degraded:
                self.client.tell(LeaseEnded(self.id))
        if not self._end.done:
            await finish_end(self.client, self._end)

    async def end_by_hand(self, *, refund: bool) -> None:
        """The same, but an end that can't be sent now is an error. Ending twice is none."""
        if self.foreign:
            self.check_mine()
        await self.end(refund=refund)
        if self._end is None or self._end.done:
            return
        if self._end.refused is not None:
            raise self._end.refused
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
