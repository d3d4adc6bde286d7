"""What the simulated clients do: ask, hold, use, settle, leave, as an application would with either facade.

Each ask is a task of its own. Its choices are drawn from a stream of its own, so leaving one ask out of a run leaves
the others as they were.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from sluice.testing.simulation.history import Answered, Asked, Believed, Leaving, Left
from sluice.testing.simulation.network import MS, Network, bucket_name
from sluice.testing.simulation.world import Process

SECOND = 1_000 * MS


class Failed(Exception):
    """What an application's own code raises in the middle of its work."""


@dataclass(frozen=True)
class Habits:
    """What the asks of a run look like, in thousandths: how often each thing is done."""

    several: int = 100
    one_limit: int = 350
    waits: int = 600
    reserves: int = 120
    headroom: int = 100
    settles: int = 500
    fails: int = 150
    mores: int = 120
    adjusts: int = 120
    renews: int = 60
    unkept: int = 100
    pauses: int = 40
    reaps: int = 120
    longest_hold_ns: int = 2 * SECOND
    longest_wait_ns: int = 3 * SECOND
    mostly: int | None = None


class Asker:
    """One ask of one client, from its first call to the end of its lease."""

    def __init__(
        self,
        network: Network,
        process: Process,
        client: Client,
        number: int,
        limits: Mapping[str, Sequence[Limit]],
        entities: Sequence[str],
        habits: Habits,
    ) -> None:
        self.name = f"{process.name}/{number}"
        self._network = network
        self._process = process
        self._client = client
        self._limits = limits
        self._entities = entities
        self._habits = habits
        self._settled: dict[str, int] = {}
        self._draw: random.Random = network.world.decisions.stream(f"ask/{self.name}")

    def _often(self, per_mille: int) -> bool:
        return self._draw.randrange(1000) < per_mille

    async def run(self) -> None:
        network = self._network
        network.note(Asked(self.name))
        try:
            if self._often(self._habits.pauses):
                await self._pause()
            elif self._often(self._habits.reaps):
                await self._reap()
            else:
                await self._take(self._reads_ask())
        except SluiceError as error:
            self._answered(type(error).__name__)

    # --- asking ---

    def _reads_ask(self) -> Ask:
        habits, draw = self._habits, self._draw
        resource = draw.choice(sorted(self._limits))
        entity = draw.choice(list(self._entities))
        limits = self._limits[resource]
        wait = draw.randrange(habits.longest_wait_ns) / SECOND if self._often(habits.waits) else 0
        rates = [limit for limit in limits if not isinstance(limit.rule, Slots)]
        if rates and self._often(habits.reserves):
            limit = draw.choice(rates)
            return read_turn(f"{resource}#{limit.name}", self._amount(limit), entity=entity, within=wait, limits=None)
        if len(self._limits) > 1 and self._often(habits.several):
            needs = [Need(name, None, entity) for name in sorted(self._limits)]
            return read_ask(needs, None, entity=EVERYONE, wait=wait)
        headroom = draw.choice((0.1, 0.25, 0.5)) if self._often(habits.headroom) else 0.0
        if self._often(habits.one_limit):
            limit = draw.choice(limits)
            need, resource = self._amount(limit), f"{resource}#{limit.name}"
        else:
            need = {}
            for limit in limits:
                need |= self._amount(limit)
        keep_alive = not self._often(habits.unkept)
        return read_ask(resource, need, entity=entity, wait=wait, headroom=headroom, keep_alive=keep_alive)

    def _amount(self, limit: Limit) -> dict[str, int]:
        if self._habits.mostly is not None:
            return {limit.name: self._habits.mostly}
        most = min(limit.rule.capacity, 4)
        return {limit.name: self._draw.randrange(1, most + 1)} if self._often(400) else {}

    async def _take(self, ask: Ask) -> None:
        outcome = await taking.try_acquire(self._client, ask)
        if isinstance(outcome, Denied):
            self._answered("denied")
            return
        self._answered("granted", "" if ask.turn_only else outcome.id)
        try:
            if ask.turn_only:
                await self._client.sleep(outcome.starts_in_ns())
            await self._hold(outcome)
        except BaseException as error:
            await self._leave(outcome, refund=isinstance(error, Failed) and self._often(500))
            if not isinstance(error, Failed | SluiceError):
                raise
        else:
            await self._leave(outcome, refund=False)

    def _answered(self, answer: str, lease: str = "") -> None:
        network = self._network
        if not self._process.dead:
            network.note(Answered(self.name, answer, lease, network.store_now_ns()))

    # --- holding ---

    async def _hold(self, lease: Lease) -> None:
        habits, draw = self._habits, self._draw
        for _ in range(draw.randrange(1, 4)):
            await self._client.sleep(draw.randrange(habits.longest_hold_ns))
            self._use(lease)
            await self._correct(lease)
            if self._often(habits.fails):
                raise Failed

    def _use(self, lease: Lease) -> None:
        """Do what must not be done without the slots, if the lease says that they are held."""
        if lease.holds_slots and not lease.lost:
            holds = tuple(
                (bucket_name(part.key), charge.name, hold.id)
                for hold in lease.holds
                for part in hold.granted()
                for charge in part.slots
            )
            self._network.note(Believed(self.name, self._network.store_now_ns(), holds))

    async def _correct(self, lease: Lease) -> None:
        habits, draw = self._habits, self._draw
        rates = sorted({charge.name for part in lease.plan.parts for charge in part.rates})
        if rates and self._often(habits.settles):
            name, total = draw.choice(rates), draw.randrange(8)
            lease.settle({name: total})
            self._settled[name] = total
        if rates and self._often(habits.adjusts):
            await lease.adjust({draw.choice(rates): draw.randrange(-3, 4)})
        if rates and self._often(habits.mores):
            await taking.more(lease, {draw.choice(rates): 1})
        if lease.holds_slots and self._often(habits.renews):
            await lease.renew()

    async def _leave(self, lease: Lease, *, refund: bool) -> None:
        """Leave the block, and remember what it cost: the application knows, whatever the library makes of it."""
        if not (lease.degraded or self._process.dead):
            self._network.note(Leaving(self.name, lease.id, tuple(self._settled.items()), refund))
        try:
            await lease.end(refund=refund)
        finally:
            if not self._process.dead:
                self._network.note(Left(self.name, lease.id))

    # --- beside takes ---

    async def _pause(self) -> None:
        resource = self._draw.choice(sorted(self._limits))
        seconds = self._draw.randrange(1, 1000) / 1000
        await survey.pause(self._client, resource, seconds, self._draw.choice(list(self._entities)))

    async def _reap(self) -> None:
        """Tidy up as the worker does: look at a bucket, and remove what was seen lapsed."""
        namespace = await self._client.configuration.namespace_id()
        resource = self._draw.choice(sorted(self._limits))
        key = BucketKey(namespace, self._draw.choice(list(self._entities)), resource)
        (peeked,) = await self._client.store.peek([Peek(key)])
        if isinstance(peeked, Peeked):
            seen = core.lapsed(peeked.image, peeked.now_ns)
            await self._client.sleep(self._draw.randrange(SECOND))
            await self._client.store.reap([Reap(key, seen)])

