"""One simulated run: a store, some processes with their clients, their asks, and what befalls them.

What a run is like (its limits, its entities, how many ask how often) is drawn from its seed. Faults strike during its
first seconds; then everybody gets to the end, in bounded time, and the promises that speak of the end are checked.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sluice.core.errors import SluiceError
from sluice.core.events import EndFailed, Event
from sluice.core.limits import Limit
from sluice.core.names import EVERYONE
from sluice.flow.client import Client, Settings
from sluice.flow.configure import Configuration
from sluice.stores.memory import MemoryStore
from sluice.testing.simulation.asks import MS, SECOND, Asker, Habits
from sluice.testing.simulation.decisions import Decisions
from sluice.testing.simulation.faults import Fault, Faults
from sluice.testing.simulation.history import NotTold
from sluice.testing.simulation.network import Network, SimStore
from sluice.testing.simulation.promises import Broken, Promises
from sluice.testing.simulation.world import Process, SimClock, SimScope, Task, World

T = TypeVar("T")

ANSWERED_WITHIN_NS = 30 * SECOND
"""After the last fault, the longest wait and the longest hold, all is over within this."""


@dataclass(frozen=True)
class Setting:
    """What a run is like, before anything goes wrong."""

    limits: Mapping[str, Sequence[Limit]]
    entities: Sequence[str] = (EVERYONE,)
    parents: Mapping[str, str] = field(default_factory=dict)
    processes: int = 3
    asks: int = 8
    joint: bool = True
    asking_ns: int = 3 * SECOND
    latency_ns: tuple[int, int] = (MS // 10, 20 * MS)
    fail_open: bool = False
    habits: Habits = Habits()

    @classmethod
    def drawn(cls, draw: random.Random) -> Setting:
        """Any setting: small limits, so that they bind."""
        ttl_ms = draw.choice((600, 1500))
        slots = Limit("held", f"{draw.randrange(1, 4)} slots ttl {ttl_ms}ms", cost=draw.choice((0, 1, 1)))
        fast = Limit("fast", f"{draw.choice((3, 7, 20))} per {draw.choice(('1s', '300ms'))}")
        slow = Limit("slow", f"{draw.choice((2, 5))} per {draw.choice(('700ms', '3s'))} burst {draw.choice((2, 8))}")
        shapes: tuple[tuple[Limit, ...], ...] = ((fast,), (slots,), (fast, slow), (fast, slots), (fast, slow, slots))
        limits: dict[str, Sequence[Limit]] = {"api": draw.choice(shapes)}
        if draw.random() < 0.3:
            limits["db"] = draw.choice(shapes[1:])
        entities: Sequence[str] = (EVERYONE,)
        parents: dict[str, str] = {}
        if draw.random() < 0.4:
            entities, parents = ("ann", "bob"), {"ann": "org", "bob": "org"}
            if draw.random() < 0.3:
                parents["org"] = EVERYONE
        return cls(
            limits,
            entities,
            parents,
            processes=draw.randrange(1, 4),
            asks=draw.randrange(3, 8),
            joint=draw.random() < 0.5,
            fail_open=draw.random() < 0.1,
        )


@dataclass
class System:
    """A run in progress."""

    seed: str
    setting: Setting
    faults: Faults
    dropped: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.decisions = Decisions(self.seed, self.dropped)
        self.world = World(self.decisions)
        self.draw = self.decisions.stream("system")
        self.store_clock = SimClock(self.world)
        store = MemoryStore(self.store_clock, nullcontext(), joint=self.setting.joint)
        self.network = Network(self.world, store, self.store_clock, self.faults, self.setting.latency_ns)
        steps_store = self.decisions.happens("store's clock steps", "store/clock", self.faults.often(Fault.CLOCK_STEPPED))
        if steps_store:
            step_ns = self.draw.randrange(-5, 6) * SECOND
            self.world.at(self.draw.randrange(self.setting.asking_ns), lambda: self._step_clock(self.store_clock, step_ns))
        self.promises = Promises(steady_store=not steps_store)
        self.admin = self._configuration("admin")
        self.clients: dict[str, tuple[Process, Client]] = {}
        self.asking: list[Task] = []
        self.errors: list[BaseException] = []
        self.read = 0
        self.world.after_step = self._check

    # --- before ---

    def _configuration(self, name: str) -> Configuration:
        process = Process(self.world, name, SimClock(self.world))
        settings = Settings(config_ttl_ns=2 * SECOND)
        rng = self.decisions.stream(f"{name}/rng")
        return Configuration(self.network.store, process.clock, SimScope(process), rng, settings)

    def prepare(self) -> None:
        """Set limits and entities, start the processes, lay out their asks and what will befall them."""
        setting = self.setting
        for resource, limits in setting.limits.items():
            at_once(self.admin.set_limits(resource, limits, entity=None, expect=None))
        for parent in sorted(set(setting.parents.values()) - {EVERYONE}):
            self._create(parent, setting.parents.get(parent))
        for entity in setting.entities:
            if entity != EVERYONE:
                self._create(entity, setting.parents.get(entity))
        for number in range(setting.processes):
            self._start_process(f"p{number}", 0)
        self._schedule_limit_change()
        self._schedule_outage()

    def _create(self, entity: str, parent: str | None) -> None:
        at_once(self.admin.create_entity(entity, parent=parent, cascade=True, metadata=None))

    def _start_process(self, name: str, from_ns: int) -> None:
        clock = SimClock(self.world)
        draw = self.decisions.stream(f"{name}/life")
        if self.network.fires(Fault.CLOCK_OFFSET, f"{name}/offset"):
            clock.offset_ns = draw.randrange(-3600, 3600) * SECOND
        if self.network.fires(Fault.CLOCK_FAST, f"{name}/fast"):
            clock.fast_per_mille = 10
        process = Process(self.world, name, clock)
        process.on_error = self._failed
        settings = Settings(config_ttl_ns=2 * SECOND, fail_open=self.setting.fail_open)
        store = SimStore(self.network, process)
        rng = self.decisions.stream(f"{name}/rng")
        client = Client(store, clock, SimScope(process), rng, settings, self._observe)
        self.clients[name] = (process, client)
        for number in range(self.setting.asks):
            at_ns = from_ns + draw.randrange(self.setting.asking_ns)
            if self.decisions.happens("ask", f"{name}/{number}/asks", 1000):
                self.world.at(at_ns, lambda number=number: self._ask(process, client, number))  # type: ignore[misc]
        self._schedule_fate(process, draw, from_ns)

    def _schedule_fate(self, process: Process, draw: random.Random, from_ns: int) -> None:
        at_ns = from_ns + draw.randrange(self.setting.asking_ns)
        if self.network.fires(Fault.KILLED, f"{process.name}/killed"):
            self.world.at(at_ns, lambda: self._kill(process))
        if self.network.fires(Fault.FROZEN, f"{process.name}/frozen"):
            for_ns = draw.randrange(SECOND // 2, 3 * SECOND)
            self.world.at(from_ns + draw.randrange(self.setting.asking_ns), lambda: process.freeze(for_ns))
        if self.network.fires(Fault.CLOCK_STEPPED, f"{process.name}/stepped"):
            step_ns = draw.randrange(-20, 21) * SECOND
            self.world.at(at_ns // 2, lambda: self._step_clock(process.clock, step_ns))

    def _schedule_limit_change(self) -> None:
        if not self.network.fires(Fault.LIMITS_CHANGED, "limits"):
            return
        resource = sorted(self.setting.limits)[0]
        changed = [_changed(limit, self.draw) for limit in self.setting.limits[resource]]
        self.world.at(
            self.draw.randrange(self.setting.asking_ns),
            lambda: at_once(self.admin.set_limits(resource, changed, entity=None, expect=None)),
        )

    def _schedule_outage(self) -> None:
        if self.network.fires(Fault.UNAVAILABLE, "store"):
            at_ns = self.draw.randrange(self.setting.asking_ns)
            for_ns = self.draw.randrange(50 * MS, 4 * SECOND)
            self.world.at(at_ns, lambda: setattr(self.network, "down_until_ns", at_ns + for_ns))

    # --- what happens ---

    def _ask(self, process: Process, client: Client, number: int) -> None:
        if process.dead:
            return
        setting = self.setting
        asker = Asker(self.network, process, client, number, setting.limits, setting.entities, setting.habits)
        task = process.start(asker.run(), asker.name)
        self.asking.append(task)
        if self.network.fires(Fault.CANCELLED, f"{asker.name}/cancelled"):
            delay_ns = int(2 * SECOND * self.decisions.stream(f"{asker.name}/cancel").random() ** 3)
            self.world.at(self.world.now_ns + delay_ns, lambda: self._cancel(task))

    def _cancel(self, task: Task) -> None:
        if task.process.frozen_until_ns > self.world.now_ns:
            self.world.at(task.process.frozen_until_ns, lambda: self._cancel(task))
            return
        self.network.tell(task.name, "is cancelled")
        self.world.cancel(task)

    def _kill(self, process: Process) -> None:
        self.network.tell(process.name, "is killed")
        process.kill()
        if not process.name.endswith("'"):
            self._start_process(f"{process.name}'", self.world.now_ns)

    def _step_clock(self, clock: SimClock, step_ns: int) -> None:
        clock.offset_ns += step_ns

    def _failed(self, task: Task) -> None:
        if isinstance(task.error, Exception):
            self.errors.append(task.error)

    def _observe(self, event: Event) -> None:
        if isinstance(event, EndFailed):
            self.network.note(NotTold(event.lease_id))

    # --- what must hold ---

    def _check(self) -> None:
        history = self.network.history
        while self.read < len(history):
            self.promises.read(history[self.read])
            self.read += 1
        if self.errors:
            raise self.errors[0]

    def run(self) -> None:
        """From the first step to the last; raises what went wrong."""
        try:
            self._run()
        finally:
            for process, _ in self.clients.values():
                process.kill()

    def _run(self) -> None:
        self.prepare()
        asking_ends_ns = 2 * self.setting.asking_ns
        habits = self.setting.habits
        bound_ns = asking_ends_ns + habits.longest_wait_ns + 3 * habits.longest_hold_ns + ANSWERED_WITHIN_NS
        self.world.at(asking_ends_ns, lambda: None)
        self.world.run(lambda: self.world.now_ns >= asking_ends_ns and not self._unanswered(bound_ns))
        closing = [process.start(client.close(), "close") for process, client in self.clients.values() if not process.dead]
        self.world.run(lambda: all(task.done for task in closing))
        alive = frozenset(process.name for process, _ in self.clients.values() if not process.dead)
        self.promises.conclude(self.network.store_now_ns(), alive)

    def _unanswered(self, bound_ns: int) -> bool:
        waiting = [task for task in self.asking if not task.done]
        if waiting and self.world.now_ns > bound_ns:
            raise Broken(9, f"{waiting[0].name} has no answer {ANSWERED_WITHIN_NS / SECOND:g} s after it was due")
        return bool(waiting)


def _changed(limit: Limit, draw: random.Random) -> Limit:
    """The limit as somebody might change it: another capacity, another pace."""
    rule = limit.rule
    factor = draw.choice((1, 2, 3))
    capacity = max(limit.cost, rule.capacity * factor // draw.choice((1, 2)), 1)
    if hasattr(rule, "period_ns"):
        period_ns = rule.period_ns * draw.choice((1, 2)) // draw.choice((1, 2))
        return Limit(limit.name, replace(rule, capacity=capacity, period_ns=period_ns // MS * MS), cost=limit.cost)
    return Limit(limit.name, replace(rule, capacity=capacity), cost=limit.cost)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what never suspends."""
    try:
        work.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    raise RuntimeError("this was to be done at once, and waits for something")


def run(seed: str, setting: Setting | None = None, faults: Faults | None = None, dropped: frozenset[str] = frozenset()) -> System:
    """Run one schedule to its end, or to the first promise that it breaks."""
    made = System(seed, setting or Setting.drawn(random.Random(f"{seed}/setting")), faults or Faults.usual(), dropped)
    made.run()
    return made


__all__ = ["Broken", "Setting", "SluiceError", "System", "run"]
