"""What the simulated clients do: ask, hold, use, settle, leave, as an application would with either facade.

Each ask is a task of its own. Its choices are drawn from a stream of its own, so leaving one ask out of a run leaves
the others as they were.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sluice.core import bucket as core
from sluice.core.errors import SluiceError
from sluice.core.limits import Limit, Slots
from sluice.core.names import EVERYONE, BucketKey
from sluice.core.requests import Denied, Need, Peek, Peeked, Reap
from sluice.flow import acquire as taking
from sluice.flow import survey
from sluice.flow.ask import Ask, read_ask, read_turn
from sluice.flow.client import Client
from sluice.flow.lease import Lease
from sluice.testing.simulation.history import Answered, Asked, Believed, Lapsed, Leaving, Left
from sluice.testing.simulation.network import Network
from sluice.testing.simulation.records import bucket_name
from sluice.testing.simulation.setting import SECOND, Setting
from sluice.testing.simulation.world import Cancelled, Process


class Failed(Exception):
    """What an application's own code raises in the middle of its work."""


@dataclass
class Asker:
    """One ask of one client, from its first call to the end of its lease. ``requeue`` has it asked again, elsewhere."""

    name: str
    network: Network
    process: Process
    client: Client
    setting: Setting
    requeue: Callable[[int], None]
    settled: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._draw = self.network.world.decisions.stream(f"ask/{self.name}")
        self._habits = self.setting.habits

    def _often(self, per_mille: int) -> bool:
        return self._draw.randrange(1000) < per_mille

    async def run(self) -> None:
        """Do one thing that an application does."""
        if self._often(self._habits.pauses):
            await self._beside(self._pause)
        elif self._often(self._habits.reaps):
            await self._beside(self._reap)
        else:
            ask, needs = self._reads_ask()
            self.network.note(Asked(self.name, self.network.world.now_ns, self.network.store_now_ns(), needs))
            await self._take(ask)

    # --- asking ---

    def _reads_ask(self) -> tuple[Ask, tuple[tuple[str, str, int], ...]]:
        """An ask, and what it must come to, bucket by bucket, worked out apart from the library."""
        habits, draw = self._habits, self._draw
        setting = self.setting
        resource = draw.choice(sorted(setting.limits))
        entity = draw.choice(list(setting.entities))
        limits = setting.limits[resource]
        wait = draw.randrange(habits.longest_wait_ns) / SECOND if self._often(habits.waits) else 0
        rates = [limit for limit in limits if not isinstance(limit.rule, Slots)]
        if rates and self._often(habits.reserves):
            limit = draw.choice(rates)
            amount = self._amount(limit)
            ask = read_turn(f"{resource}#{limit.name}", amount, entity=entity, within=wait, limits=None)
            return ask, self._needs(resource, entity, {limit.name: amount.get(limit.name, max(1, limit.cost))})
        if len(setting.limits) > 1 and self._often(habits.several):
            several = [Need(name, None, entity) for name in sorted(setting.limits)]
            ask = read_ask(several, None, entity=EVERYONE, wait=wait)
            costs = {name: {limit.name: limit.cost for limit in setting.limits[name]} for name in setting.limits}
            return ask, tuple(need for name in costs for need in self._needs(name, entity, costs[name]))
        headroom = draw.choice((0.1, 0.25, 0.5)) if self._often(habits.headroom) else 0.0
        keep_alive = not self._often(habits.unkept)
        if self._often(habits.one_limit):
            limit = draw.choice(limits)
            need = self._amount(limit)
            amounts = {limit.name: need.get(limit.name, max(1, limit.cost))}
            asked = f"{resource}#{limit.name}"
        else:
            need = {name: amount for limit in limits for name, amount in self._amount(limit).items()}
            amounts = {limit.name: need.get(limit.name, limit.cost) for limit in limits}
            asked = resource
        ask = read_ask(asked, need, entity=entity, wait=wait, headroom=headroom, keep_alive=keep_alive)
        return ask, self._needs(resource, entity, amounts)

    def _needs(self, resource: str, entity: str, amounts: dict[str, int]) -> tuple[tuple[str, str, int], ...]:
        return tuple(
            (f"{name}#{resource}#0", limit, amount)
            for name in self.setting.lineage(entity)
            for limit, amount in amounts.items()
            if amount
        )

    def _amount(self, limit: Limit) -> dict[str, int]:
        most = min(limit.rule.capacity, 4)
        return {limit.name: self._draw.randrange(1, most + 1)} if self._often(400) else {}

    async def _take(self, ask: Ask) -> None:
        try:
            outcome = await taking.try_acquire(self.client, ask)
        except SluiceError as error:
            self._answered(type(error).__name__)
            return
        except Cancelled:
            self._answered("cancelled")
            raise
        if isinstance(outcome, Denied):
            self._answered("denied")
            return
        self._answered("degraded" if outcome.degraded else "granted", outcome.id, starts=not ask.turn_only)
        if ask.turn_only and self._often(self._habits.requeues):
            await self._come_back(outcome)
            return
        try:
            if ask.turn_only:
                await self.client.sleep(outcome.starts_in_ns())
            await self._hold(outcome)
        except (Failed, SluiceError) as error:
            await self._leave(outcome, refund=isinstance(error, Failed) and self._often(500))
        except BaseException:
            await self._leave(outcome, refund=False)
            raise
        else:
            await self._leave(outcome, refund=False)

    def _answered(self, answer: str, lease: str = "", *, starts: bool = True) -> None:
        if not self.process.dead:
            self.network.note(Answered(self.name, answer, lease, self.network.store_now_ns(), starts))

    async def _come_back(self, lease: Lease) -> None:
        """A queue's job whose turn comes later: it is put back, and some process goes on with it then.

        Its turn waits for it, or is given back and asked for again.
        """
        starts_in_ns = lease.starts_in_ns()
        gives_back = self._often(500)
        await self._leave(lease, refund=gives_back)
        if gives_back and not self.process.dead:
            self.requeue(starts_in_ns)

    # --- holding ---

    async def _hold(self, lease: Lease) -> None:
        habits, draw = self._habits, self._draw
        for _ in range(draw.randrange(1, 4)):
            await self.client.sleep(draw.randrange(habits.longest_hold_ns))
            self._use(lease)
            await self._correct(lease)
            if self._often(habits.fails):
                raise Failed

    def _use(self, lease: Lease) -> None:
        """Do what must not be done without the slots, if the lease says that they are held."""
        if lease.holds_slots and lease.lost:
            self.network.note(Lapsed(self.name, lease.id, lease.keep_alive))
        elif lease.holds_slots:
            holds = tuple(
                (bucket_name(part.key), charge.name, hold.id)
                for hold in lease.holds
                for part in hold.granted()
                for charge in part.slots
            )
            self.network.note(Believed(self.name, self.network.store_now_ns(), holds))

    async def _correct(self, lease: Lease) -> None:
        habits, draw = self._habits, self._draw
        rates = sorted({charge.name for part in lease.plan.parts for charge in part.rates})
        if rates and self._often(habits.settles):
            name, total = draw.choice(rates), draw.randrange(8)
            lease.settle({name: total})
            self.settled[name] = total
        if rates and self._often(habits.adjusts):
            await lease.adjust({draw.choice(rates): draw.randrange(-3, 4)})
        if rates and self._often(habits.mores):
            await taking.more(lease, {draw.choice(rates): 1})
        if lease.holds_slots and self._often(habits.renews):
            await lease.renew()

    async def _leave(self, lease: Lease, *, refund: bool) -> None:
        """Leave the block, and remember what it cost: the application knows, whatever the library makes of it."""
        if not (lease.degraded or self.process.dead):
            self.network.note(Leaving(self.name, lease.id, tuple(self.settled.items()), refund))
        try:
            await lease.end(refund=refund)
        finally:
            if not self.process.dead:
                self.network.note(Left(self.name, lease.id))

    # --- beside takes ---

    async def _beside(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except SluiceError as error:
            self.network.tell(self.name, f"is told: {type(error).__name__}")

    async def _pause(self) -> None:
        resource = self._draw.choice(sorted(self.setting.limits))
        seconds = self._draw.randrange(1, 1000) / 1000
        await survey.pause(self.client, resource, seconds, self._draw.choice(list(self.setting.entities)))

    async def _reap(self) -> None:
        """Tidy up as the worker does: look at a bucket, and remove what was seen lapsed."""
        namespace = await self.client.configuration.namespace_id()
        resource = self._draw.choice(sorted(self.setting.limits))
        key = BucketKey(namespace, self._draw.choice(list(self.setting.entities)), resource)
        (peeked,) = await self.client.store.peek([Peek(key)])
        if isinstance(peeked, Peeked):
            seen = core.lapsed(peeked.image, peeked.now_ns)
            await self.client.sleep(self._draw.randrange(SECOND))
            await self.client.store.reap([Reap(key, seen)])
