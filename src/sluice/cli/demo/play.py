"""Playing a demo from its first process to its verdict.

    starting --all ready--> running --a call hangs, its worker is killed--> running --time up, workers gone--> judged

Whatever ends it, all processes are killed and waited for, and the folder with the file is removed.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sluice.cli.demo.crew import Crew, module
from sluice.cli.demo.history import Death, History
from sluice.cli.demo.scenario import KILL_AFTER_MS, RESOURCE, STORE_TIMEOUT_S, Scenario
from sluice.cli.demo.scene import Actor, Event, Held, Mood, Scene
from sluice.cli.demo.verdict import Verdict, judge
from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import SluiceError
from sluice.sync import Sluice
from sluice.wires.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.cli.demo.screen import Screen

WORKER: Final = module("sluice.cli.demo.worker")
VENDOR: Final = "vendor"

HEAR_S: Final = 0.05
DRAW_EVERY_NS: Final = 100 * NS_PER_MS
"""How often the limits and leases are read and drawn."""

READY_S: Final = 60
"""How long all processes together may take to start."""

GRACE_S: Final = 30
"""How long after the end a worker may still be in its last call."""

SETTLED_NS: Final = 200 * NS_PER_MS
"""All that happened so long ago has been heard of, as far as what is shown goes."""

LAST_NOTES_S: Final = 5
"""How long the vendor's last notes may take."""

HEAD_START_NS: Final = 200 * NS_PER_MS
"""Between the word to begin and the beginning, so that all begin at once."""


def play(scenario: Scenario, screen: Screen, worker: Sequence[str] = WORKER) -> Verdict:
    """Play a scenario and judge what happened. ``worker`` is the command that runs a worker."""
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        url = f"sqlite:///{Path(folder, 'demo.db').as_posix()}"
        with Sluice(url, timeout=STORE_TIMEOUT_S) as sluice:
            sluice.set_limits(RESOURCE, scenario.limits)
            with Crew() as crew, screen.showing():
                playing = _Play(scenario, screen, crew, sluice)
                playing.start(url, worker)
                playing.go_on()
        return judge(scenario, playing.history)


def name_of(worker: int) -> str:
    return f"worker {worker}"


class _Play:
    """One demo while it runs."""

    def __init__(self, scenario: Scenario, screen: Screen, crew: Crew, sluice: Sluice) -> None:
        self.history = History()
        self._scenario = scenario
        self._screen = screen
        self._crew = crew
        self._sluice = sluice
        self._clock = SystemClock()
        self._workers = {name_of(number): number for number in range(1, scenario.workers + 1)}
        actors = {number: Actor(number) for number in self._workers.values()}
        self._scene = Scene(scenario.seconds, actors, [None] * scenario.slots.capacity)
        self._from_ns = self._clock.steady_ns()
        self._present = {VENDOR, *self._workers}
        self._port: int | None = None
        self._victim: tuple[int, str] | None = None
        self._kill_at_ns = 0
        self._reuse_told = False
        self._drawn_ns = 0

    # --- the course of it ---

    def start(self, url: str, worker: Sequence[str]) -> None:
        """Start all processes, and let the workers begin together."""
        self._crew.start(VENDOR, module("sluice.cli.demo.vendor"), self._scenario.vendor_order())
        for who, number in self._workers.items():
            self._crew.start(who, worker, self._scenario.order(number, url))
        until_ns = self._from_ns + READY_S * NS_PER_SECOND
        while self._port is None or any(actor.pid is None for actor in self._scene.actors.values()):
            self._hear()
            self._draw()
            if self._clock.steady_ns() > until_ns or len(self._present) <= len(self._workers):
                words = "; ".join(f"{who}: {last}" for who, last in self._crew.failures().items())
                raise SluiceError(f"the demo's processes did not start: {words or 'not ready in time'}")
        self._from_ns = self._clock.steady_ns() + HEAD_START_NS
        self._crew.tell(VENDOR, self._scenario.vendor_start(self._from_ns))
        for who in self._workers:
            self._crew.tell(who, self._scenario.start(self._from_ns, self._port))
        self._tell(f"{self._scenario.workers} workers begin")

    def go_on(self) -> None:
        """Hear, kill, look and draw until every worker has gone."""
        end_ns = self._from_ns + self._scenario.length_ns + GRACE_S * NS_PER_SECOND
        while self._present & self._workers.keys() and self._clock.steady_ns() < end_ns:
            self._hear()
            if self._victim is not None and self.history.death is None and self._clock.steady_ns() >= self._kill_at_ns:
                self._kill(*self._victim)
            self._announce_reuse()
            self._draw()
        self._hear_vendor_out()
        self._draw_now()
        missing = self._present & self._workers.keys()
        self.history.failures = dict.fromkeys(missing, "it did not come to an end") | self._crew.failures()

    def _hear_vendor_out(self) -> None:
        """What the vendor said before it answered the last call may still be on its way."""
        until_ns = self._clock.steady_ns() + LAST_NOTES_S * NS_PER_SECOND
        made = sum(actor.calls for actor in self._scene.actors.values())
        while self.history.unfinished(made) and VENDOR in self._present and self._clock.steady_ns() < until_ns:
            self._hear()

    # --- its parts ---

    def _hear(self) -> None:
        for note in self._crew.hear(HEAR_S):
            self._scene.now_s = self._now_s()
            if note.facts is None:
                self._present.discard(note.who)
            if note.who == VENDOR:
                self._hear_vendor(note.facts)
            else:
                self._hear_worker(self._workers[note.who], note.facts)

    def _hear_worker(self, worker: int, facts: dict[str, Any] | None) -> None:
        if facts is None:
            death = self.history.death
            self._scene.gone(worker, killed=death is not None and death.worker == worker)
            return
        self.history.read(worker, facts)
        self._scene.read(worker, facts)
        if facts["note"] == "lost":
            self._tell(f"worker {worker} stood still for so long that its lease lapsed", Mood.BAD)

    def _hear_vendor(self, facts: dict[str, Any] | None) -> None:
        if facts is None:
            return
        self.history.read_vendor(facts)
        match facts["note"]:
            case "ready":
                self._port = facts["port"]
            case "refused":
                self._tell(f"the vendor answered worker {facts['worker']} 429, for {facts['quota']}", Mood.BAD)
            case "called" if facts["hangs"]:
                worker = facts["worker"]
                self._victim = (worker, facts["lease"])
                self._kill_at_ns = self._clock.steady_ns() + KILL_AFTER_MS * NS_PER_MS
                self._scene.hangs(worker)
                self._tell(f"worker {worker} holds a slot, and the vendor does not answer it", Mood.BAD)

    def _kill(self, victim: int, lease: str) -> None:
        """Kill the victim, and read from the store when the slot of a process that is gone will lapse."""
        self._crew.kill(name_of(victim))
        killed_ns = self._clock.now_ns()
        held = {lease.id: lease for lease in self._sluice.leases(RESOURCE)}.get(lease)
        death = Death(victim, lease, killed_ns, None)
        pid = self._scene.actors[victim].pid
        self._tell(f"worker {victim} (pid {pid}) is killed with SIGKILL: nothing cleans up", Mood.BAD)
        if held is not None:
            slack_ns = self._clock.now_ns() - killed_ns
            expires_ns = killed_ns + int(held.expires_in * NS_PER_SECOND)
            death = replace(death, expires_ns=expires_ns, slack_ns=slack_ns)
            self._tell(f"its slot stays taken for {held.expires_in:.2f} s more, as nobody renews it", Mood.BAD)
        self.history.death = death

    def _announce_reuse(self) -> None:
        death = self.history.death
        if self._reuse_told or death is None or death.expires_ns is None:
            return
        taken = self.history.reuse(self._scenario.slots.capacity, self._scenario.slots.ttl_ns)
        if taken is None or not death.expires_ns <= taken.at_ns < self._clock.now_ns() - SETTLED_NS:
            return  # a release that is still on its way makes it look so; the verdict waits for all notes
        self._reuse_told = True
        late_ms = (taken.at_ns - death.expires_ns) / NS_PER_MS
        self._tell(f"the slot lapsed, and worker {taken.worker} took it {late_ms:.1f} ms later", Mood.GOOD)

    def _draw(self) -> None:
        if self._clock.steady_ns() >= self._drawn_ns + DRAW_EVERY_NS:
            self._draw_now()

    def _draw_now(self) -> None:
        self._drawn_ns = self._clock.steady_ns()
        self._scene.now_s = self._now_s()
        self._look()
        self._screen.draw(self._scene)

    def _look(self) -> None:
        """See how the limits stand. It is only for show: what can't be read now is not shown anew."""
        by_pid = {str(actor.pid): actor.number for actor in self._scene.actors.values()}
        dead = None if self.history.death is None else self.history.death.lease
        with contextlib.suppress(SluiceError):
            self._scene.limits = self._sluice.peek(RESOURCE).limits
            self._scene.hold(
                [
                    Held(
                        lease.id,
                        by_pid.get((lease.holder or "").rpartition(":")[2], 0),
                        lease.expires_in,
                        lease.id == dead,
                    )
                    for lease in self._sluice.leases(RESOURCE)
                ]
            )

    def _tell(self, text: str, mood: Mood = Mood.PLAIN) -> None:
        event = Event(max(0.0, self._now_s()), text, mood)
        self._scene.events.append(event)
        self._screen.tell(event)

    def _now_s(self) -> float:
        return (self._clock.steady_ns() - self._from_ns) / NS_PER_SECOND
