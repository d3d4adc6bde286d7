"""A small stage for the acceptance tests: clients in virtual time over one memory store, with nothing but latency.

No fault strikes here and nothing is recorded, so an hour of a saturated limit passes in seconds. A caller's time is
its process's; the store has one clock for all.
"""

import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from typing import Any, Self

from sluice.core.limits import Limit
from sluice.core.requests import Denied
from sluice.flow.acquire import try_acquire
from sluice.flow.ask import Ask, read_ask
from sluice.flow.client import Client, Settings
from sluice.flow.lease import Lease
from sluice.stores.memory import MemoryStore
from sluice.testing.simulation.decisions import Decisions
from sluice.testing.simulation.world import Process, SimClock, SimScope, Task, World, at_once

MS = 1_000_000
SECOND = 1_000 * MS
HOUR = 3_600 * SECOND

Latency = tuple[int, int]
ANY_LATENCY = (MS // 10, 20 * MS)


class Latent:
    """A store that is some milliseconds away: half of them before it decides, half after."""

    def __init__(self, world: World, store: MemoryStore, latency: Latency, draw: random.Random) -> None:
        self._world = world
        self._store = store
        self._latency = latency
        self._draw = draw
        self.traits = store.traits

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._store, verb)

        async def call(*arguments: Any, **options: Any) -> Any:
            world, half_ns = self._world, self._draw.randint(*self._latency) // 2
            await world.sleep_until(world.now_ns + half_ns)
            answer = at_once(method(*arguments, **options))
            await world.sleep_until(world.now_ns + half_ns)
            return answer

        return call


class Stage:
    """A world, a store, and clients; each grant is noted with its time."""

    def __init__(self, limits: Sequence[Limit], *, latency: Latency = ANY_LATENCY, config_ttl_ns: int = 60 * SECOND):
        self.world = World(Decisions("stage"))
        self.store = MemoryStore(SimClock(self.world), nullcontext())
        self.granted_ns: list[int] = []
        self.processes: list[Process] = []
        self._latency = latency
        self._config_ttl_ns = config_ttl_ns
        admin = Client(self.store, SimClock(self.world), _scope(self.world, "admin"), random.Random(1), Settings())
        self.admin = admin.configuration
        self.set_limits(limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End whatever still waits."""
        for process in self.processes:
            process.kill()

    def set_limits(self, limits: Sequence[Limit]) -> None:
        at_once(self.admin.set_limits("api", limits, entity=None, expect=None))

    def client(self, number: int) -> Client:
        """A client in a process of its own."""
        process = Process(self.world, f"p{number}", SimClock(self.world))
        self.processes.append(process)
        store = Latent(self.world, self.store, self._latency, random.Random(f"latency/{number}"))
        settings = Settings(config_ttl_ns=self._config_ttl_ns)
        return Client(store, process.clock, SimScope(process), random.Random(f"rng/{number}"), settings)

    def start(self, client: Client, work: Coroutine[Any, Any, None]) -> Task:
        process = next(process for process in self.processes if process.name == client.process)
        return process.start(work, "caller")

    async def take(self, client: Client, ask: Ask) -> Lease | Denied:
        """Ask, note the grant by the time at which the caller has it, and end the lease at once."""
        outcome = await try_acquire(client, ask)
        if not isinstance(outcome, Denied):
            self.granted_ns.append(self.world.now_ns)
            await outcome.end(refund=False)
        return outcome

    async def keep_asking(self, client: Client, ask: Ask, until_ns: int, gap_ns: int = 0) -> None:
        """Ask again and again; ``gap_ns`` is how long it waits after each ask, on average."""
        draw = random.Random(f"gaps of {client.process}")
        while self.world.now_ns < until_ns:
            await self.take(client, ask)
            if gap_ns:
                await client.sleep(draw.randrange(2 * gap_ns))

    def saturate(self, wait: float, until_ns: int, *, processes: int, callers: int, gap_ns: int = 0) -> None:
        """Have processes with some callers each ask for one of everything, over and over."""
        for number in range(processes):
            client = self.client(number)
            for _ in range(callers):
                self.start(client, self.keep_asking(client, ask(wait=wait), until_ns, gap_ns))

    def run_until(self, time_ns: int) -> None:
        self.world.at(time_ns, lambda: None)
        self.world.run(lambda: self.world.now_ns >= time_ns)

    def granted_between(self, from_ns: int, until_ns: int) -> int:
        return sum(from_ns <= at_ns < until_ns for at_ns in self.granted_ns)


def _scope(world: World, name: str) -> SimScope:
    return SimScope(Process(world, name, SimClock(world)))


def ask(need: str = "api", *, wait: float = 0, **amounts: int) -> Ask:
    return read_ask(need, amounts or None, entity="*", wait=wait)


def granted_in_a_saturated_hour() -> int:
    """How much of 50 a second 32 callers get who wait for their turn and ask again at once."""
    with Stage([Limit("rps", "50/s")]) as stage:
        stage.saturate(60, HOUR, processes=4, callers=8)
        stage.run_until(HOUR)
        return len(stage.granted_ns)
