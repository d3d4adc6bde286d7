"""One simulated run: a store, some processes with their clients, their asks, and what befalls them.

Faults strike while the processes ask; then everybody gets to the end, in bounded time, and what the store holds by
then is compared with what the history comes to. A process that is killed is restarted at once under another name, as a
supervisor would. A job whose turn comes later may be put back and done by another process.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sluice.core.events import EndFailed, Event
from sluice.core.limits import Limit, Rate
from sluice.core.names import EVERYONE
from sluice.core.requests import Denied, Take
from sluice.flow.client import Client, Settings
from sluice.flow.configure import Configuration
from sluice.ports import Store
from sluice.testing.simulation.asks import Asker
from sluice.testing.simulation.decisions import Decisions
from sluice.testing.simulation.faults import Fault, Faults
from sluice.testing.simulation.history import LimitsChanged, NotTold
from sluice.testing.simulation.model import Broken
from sluice.testing.simulation.network import Network
from sluice.testing.simulation.promises import Promises
from sluice.testing.simulation.reached import SimStore
from sluice.testing.simulation.setting import MS, SECOND, Setting
from sluice.testing.simulation.world import Process, SimClock, SimScope, Task, World, at_once

ANSWERED_WITHIN_NS: Final = 30 * SECOND
"""After the last fault, the longest wait and the longest hold, all is over within this."""

STRANGERS_PER_MILLE: Final = 250
MAX_STRANGERS: Final = 8
"""Takes at the exact moment that a refusal named, in one run; and how many refusals lead to one."""

MAX_RESTARTS: Final = 2
MAX_REQUEUES: Final = 2


@dataclass
class System:
    """A run in progress."""

    seed: str
    setting: Setting
    faults: Faults
    dropped: frozenset[str] = frozenset()
    shows_state: bool = False

    def __post_init__(self) -> None:
        setting = self.setting
        self.decisions = Decisions(self.seed, self.dropped)
        self.world = World(self.decisions)
        self.draw = self.decisions.stream("system")
        self.store_clock = SimClock(self.world)
        self.store = setting.engine.open(self.store_clock)
        faults = self.faults.calmed() if setting.calm else self.faults
        self.network = Network(
            self.world, self.store, self.store_clock, faults, setting.latency_ns, shows_state=self.shows_state
        )
        steps_store = self.network.fires(Fault.CLOCK_STEPPED, "store/clock")
        if steps_store:
            self._schedule_step("store", self.store_clock, self.draw.randrange(-5, 6) * SECOND, self.draw)
        self.network.on_refusal = self._tempt
        self.promises = Promises(steady_store=not steps_store, calm=setting.calm, fail_open=setting.fail_open)
        self.admins = [self._admin(name) for name in setting.namespaces]
        self.clients: dict[str, tuple[Process, Client]] = {}
        self.keeping: dict[str, bool] = {}
        self.asking: list[Task] = []
        self.errors: list[Exception] = []
        self.read = self.strangers = 0
        self.world.after_step = self._check

    # --- before ---

    def _admin(self, namespace: str) -> Configuration:
        """Somebody who sets limits, beside the faults."""
        process = Process(self.world, f"admin of {namespace}", SimClock(self.world))
        rng = self.decisions.stream(f"{process.name}/rng")
        return Client(self.store, process.clock, SimScope(process), rng, Settings(namespace)).configuration

    def _prepare(self) -> None:
        """Set limits and entities, start the processes, lay out their asks and what will befall them."""
        setting = self.setting
        parents = sorted(set(setting.parents.values()) - {EVERYONE})
        children = [entity for entity in setting.entities if entity != EVERYONE]
        for admin in self.admins:
            for resource, limits in setting.limits.items():
                at_once(admin.set_limits(resource, limits, entity=None, expect=None))
            for entity in [*parents, *children]:
                parent = setting.parents.get(entity)
                at_once(admin.create_entity(entity, parent=parent, cascade=True, metadata=None))
        for number in range(setting.processes):
            self._start_process(f"p{number}", setting.namespaces[number % len(setting.namespaces)])
        self._schedule_limit_change()
        self._schedule_outage()

    def _start_process(self, name: str, namespace: str) -> None:
        setting = self.setting
        from_ns = self.world.now_ns
        clock = SimClock(self.world)
        draw = self.decisions.stream(f"{name}/life")
        if self.network.fires(Fault.CLOCK_OFFSET, f"{name}/offset"):
            clock.offset_ns = draw.randrange(-3600, 3600) * SECOND
        if self.network.fires(Fault.CLOCK_FAST, f"{name}/fast"):
            clock.fast_per_mille = 10
        process = Process(self.world, name, clock)
        process.on_error = self._failed
        settings = Settings(namespace, setting.timeout_ns, setting.fail_open, setting.config_ttl_ns)
        rng = self.decisions.stream(f"{name}/rng")
        client = Client(self.reached(process), clock, SimScope(process), rng, settings, observer=self._observe)
        self.clients[name] = (process, client)
        for number in range(setting.asks):
            at_ns = from_ns + draw.randrange(setting.asking_ns)
            if self.decisions.happens("ask", f"{name}/{number}/asks", 1000):
                self.world.at(at_ns, self._asks(f"{name}/{number}", name))
        self._schedule_fate(process, draw)

    def reached(self, process: Process) -> Store:
        """The store, as a process reaches it."""
        return SimStore(self.network, process)

    def _schedule_fate(self, process: Process, draw: random.Random) -> None:
        from_ns = self.world.now_ns
        if self.network.fires(Fault.KILLED, f"{process.name}/killed"):
            self.world.at(from_ns + draw.randrange(self.setting.asking_ns), lambda: self._kill(process))
        if self.network.fires(Fault.FROZEN, f"{process.name}/frozen"):
            for_ns = draw.randrange(SECOND // 2, 3 * SECOND)
            self.world.at(from_ns + draw.randrange(self.setting.asking_ns), lambda: process.freeze(for_ns))
        if self.network.fires(Fault.CLOCK_STEPPED, f"{process.name}/stepped"):
            self._schedule_step(process.name, process.clock, draw.randrange(-20, 21) * SECOND, draw)

    def _schedule_step(self, whose: str, clock: SimClock, step_ns: int, draw: random.Random) -> None:
        def step() -> None:
            clock.offset_ns += step_ns
            self.network.tell(whose, f"has its clock stepped by {step_ns / SECOND:+g} s")

        self.world.at(self.world.now_ns + draw.randrange(self.setting.asking_ns), step)

    def _schedule_limit_change(self) -> None:
        if self.network.fires(Fault.LIMITS_CHANGED, "limits"):
            resource = min(self.setting.limits)
            changed = [_changed(limit, self.draw) for limit in self.setting.limits[resource]]
            at_ns = self.draw.randrange(self.setting.asking_ns)
            self.world.at(at_ns, lambda: self._change_limits(resource, changed))

    def _change_limits(self, resource: str, limits: list[Limit]) -> None:
        for admin in self.admins:
            at_once(admin.set_limits(resource, limits, entity=None, expect=None))
        in_force_ns = self.world.now_ns + self.setting.config_ttl_ns
        terms = tuple(
            (limit.name, limit.rule.capacity, limit.rule.interval_ns if isinstance(limit.rule, Rate) else 0)
            for limit in limits
        )
        self.network.note(LimitsChanged(resource, terms, in_force_ns))

    def _schedule_outage(self) -> None:
        if self.network.fires(Fault.UNAVAILABLE, "store"):
            at_ns = self.draw.randrange(self.setting.asking_ns)
            for_ns = self.draw.randrange(50 * MS, 4 * SECOND)
            self.world.at(at_ns, lambda: setattr(self.network, "down_until_ns", at_ns + for_ns))

    # --- what happens ---

    def _asks(self, name: str, process_name: str, requeued: int = 0) -> Callable[[], None]:
        return partial(self._ask, name, process_name, requeued)

    def _ask(self, name: str, process_name: str, requeued: int) -> None:
        process, client = self.clients[process_name]
        if process.dead:
            return
        requeue = partial(self._requeue, name, requeued)
        asker = Asker(name, self.network, process, client, self.setting, requeue)
        task = process.start(asker.run(), name)
        self.asking.append(task)
        if self.network.fires(Fault.CANCELLED, f"{name}/cancelled"):
            delay_ns = int(2 * SECOND * self.decisions.stream(f"{name}/cancel").random() ** 3)
            self.world.at(self.world.now_ns + delay_ns, lambda: self._cancel(task))

    def _requeue(self, name: str, requeued: int, in_ns: int) -> None:
        """A job is put back into the queue: when its turn comes, whichever process is free takes it up."""
        alive = sorted(name for name, (process, _) in self.clients.items() if not process.dead)
        if requeued < MAX_REQUEUES and alive:
            taker = self.decisions.pick(f"{name}/requeued", alive)
            self.network.tell(name, f"is put back into the queue, for {taker}")
            self.world.at(self.world.now_ns + in_ns, self._asks(f"{name}+", taker, requeued + 1))

    def _cancel(self, task: Task) -> None:
        if task.process.frozen_until_ns > self.world.now_ns:
            self.world.at(task.process.frozen_until_ns, lambda: self._cancel(task))
            return
        self.network.tell(task.name, "is cancelled")
        self.world.cancel(task)

    def _kill(self, process: Process) -> None:
        self.network.tell(process.name, "is killed, and restarted")
        process.kill()
        if process.name.count("'") < MAX_RESTARTS:
            _, client = self.clients[process.name]
            self._start_process(f"{process.name}'", client.settings.namespace)

    def _failed(self, task: Task) -> None:
        if isinstance(task.error, Exception):
            self.errors.append(task.error)

    def _observe(self, event: Event) -> None:
        if isinstance(event, EndFailed):
            self.network.note(NotTold(event.lease_id))

    def _tempt(self, request: Take, denied: Denied) -> None:
        """Now and then, somebody asks for the same at the very moment at which it comes free, or a tick beside it."""
        draw = self.decisions.stream("stranger/when")
        in_ns = denied.retry_in_ns - request.wait_ns + draw.choice((-1, 0, 1))
        if self.strangers == MAX_STRANGERS or in_ns > self.setting.asking_ns:
            return
        if self.decisions.happens("a stranger", "stranger", STRANGERS_PER_MILLE):
            self.strangers += 1
            self.world.at(self.world.now_ns + in_ns, partial(self.network.ask_at_once, request, self.strangers))

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
            at_once(self.store.close())

    def _run(self) -> None:
        self._prepare()
        asking_ends_ns = 2 * self.setting.asking_ns
        habits = self.setting.habits
        bound_ns = asking_ends_ns + habits.longest_wait_ns + 3 * habits.longest_hold_ns + ANSWERED_WITHIN_NS
        self.world.at(asking_ends_ns, lambda: None)
        self.world.run(lambda: self.world.now_ns >= asking_ends_ns and not self._unanswered(bound_ns))
        living = [(process, client) for process, client in self.clients.values() if not process.dead]
        closing = [process.start(client.close(), "close") for process, client in living]
        self.world.run(lambda: all(task.done for task in closing))
        for key in self.network.seen:
            self.network.note(self.network.look(key))
        self._check()
        self.promises.conclude(self.network.store_now_ns(), frozenset(process.name for process, _ in living))

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
    if isinstance(rule, Rate):
        period_ns = rule.period_ns * draw.choice((1, 2)) // draw.choice((1, 2))
        return Limit(limit.name, replace(rule, capacity=capacity, period_ns=period_ns // MS * MS), cost=limit.cost)
    return Limit(limit.name, replace(rule, capacity=capacity), cost=limit.cost)
