"""Playing a demo from its first process to its verdict.

    starting --all ready--> running --victim hangs, then is killed--> running --time up, all gone--> judged

Whatever ends it, the workers are killed and waited for, and the folder with the file is removed.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sluice.cli.demo.crew import Crew
from sluice.cli.demo.history import Death, History, reuse
from sluice.cli.demo.scenario import HANG_MS, RESOURCE, Scenario
from sluice.cli.demo.scene import Actor, Event, Held, Scene
from sluice.cli.demo.verdict import Verdict, judge
from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import SluiceError
from sluice.sync import Sluice
from sluice.wires.clock import SystemClock

if TYPE_CHECKING:
    from sluice.cli.demo.screen import Screen

HEAR_S: Final = 0.05
DRAW_EVERY_NS: Final = 100 * NS_PER_MS
LOOK_EVERY_NS: Final = 250 * NS_PER_MS
"""How often the parent reads the limits and leases, to show them."""

READY_S: Final = 30
"""How long all processes together may take to start."""

GRACE_S: Final = 5
"""How long after the end a worker may still be in its last call."""

HEAD_START_NS: Final = 200 * NS_PER_MS
"""Between the word to begin and the beginning, so that all begin at once."""


def play(scenario: Scenario, screen: Screen) -> Verdict:
    """Play a scenario and judge what happened."""
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        url = f"sqlite:///{Path(folder, 'demo.db').as_posix()}"
        with Sluice(url) as sluice:
            sluice.set_limits(RESOURCE, scenario.limits)
            with Crew() as crew, screen.showing():
                play_of = _Play(scenario, screen, crew, sluice)
                play_of.start(url)
                play_of.go_on()
        return judge(scenario, play_of.history)


class _Play:
    """One demo while it runs."""

    def __init__(self, scenario: Scenario, screen: Screen, crew: Crew, sluice: Sluice) -> None:
        self.history = History()
        self._scenario = scenario
        self._screen = screen
        self._crew = crew
        self._sluice = sluice
        self._clock = SystemClock()
        self._numbers = range(1, scenario.workers + 1)
        actors = {number: Actor(number) for number in self._numbers}
        self._scene = Scene(scenario.seconds, scenario.slots.capacity, actors)
        self._from_ns = self._clock.steady_ns()
        self._present = set(self._numbers)
        self._kill_at_ns: int | None = None
        self._reuse_told = False
        self._drawn_ns = self._looked_ns = 0
        self._victims_lease = ""

    # --- the course of it ---

    def start(self, url: str) -> None:
        """Start all workers, and let them begin together."""
        for number in self._numbers:
            self._crew.start(number, self._scenario.order(number, url))
        until_ns = self._from_ns + READY_S * NS_PER_SECOND
        while any(actor.pid is None for actor in self._scene.actors.values()):
            self._hear()
            self._draw()
            missing = self._clock.steady_ns() > until_ns or len(self._present) < self._scenario.workers
            if missing:
                words = "; ".join(self._crew.failures().values())
                raise SluiceError(f"the demo's processes did not start: {words or 'not ready in time'}")
        self._from_ns = self._clock.steady_ns() + HEAD_START_NS
        for number in self._numbers:
            self._crew.tell(number, self._scenario.start(number, self._from_ns))
        self._tell(f"{self._scenario.workers} processes begin")

    def go_on(self) -> None:
        """Hear, kill, look and draw until everybody has gone."""
        end_ns = self._from_ns + int((self._scenario.seconds + GRACE_S) * NS_PER_SECOND)
        while self._present and self._clock.steady_ns() < end_ns:
            self._hear()
            if self._kill_at_ns is not None and self._clock.steady_ns() >= self._kill_at_ns:
                self._kill()
            self._announce_reuse()
            self._look()
            self._draw()
        self.history.failures = self._crew.failures() | dict.fromkeys(self._present, "it did not come to an end")

    # --- its parts ---

    def _hear(self) -> None:
        for note in self._crew.hear(HEAR_S):
            self._scene.now_s = self._now_s()
            if note.facts is None:
                self._present.discard(note.worker)
                killed = self.history.death is not None and self.history.death.worker == note.worker
                self._scene.gone(note.worker, killed=killed)
                continue
            self.history.read(note.worker, note.facts)
            self._scene.read(note.worker, note.facts)
            self._react(note.worker, note.facts)

    def _react(self, worker: int, facts: dict[str, Any]) -> None:
        if facts["note"] == "started" and facts["hangs"] and self.history.death is None:
            self._kill_at_ns = self._clock.steady_ns() + HANG_MS * NS_PER_MS
            self._victims_lease = facts["lease"]
            self._tell(f"worker {worker} holds a slot and is in the middle of a long call", loud=True)
        elif facts["note"] == "lost":
            self._tell(f"worker {worker} stood still for so long that its lease lapsed", loud=True)

    def _kill(self) -> None:
        """Kill the victim, and read from the store when the slot of a process that is gone will lapse."""
        victim, self._kill_at_ns = self._scenario.victim, None
        self._crew.kill(victim)
        killed_ns, self.history.died_steady_ns = self._clock.now_ns(), self._clock.steady_ns()
        held = {lease.id: lease for lease in self._sluice.leases(RESOURCE)}.get(self._victims_lease)
        expires_ns = None if held is None else killed_ns + int(held.expires_in * NS_PER_SECOND)
        self.history.death = Death(victim, self._victims_lease, killed_ns, expires_ns)
        pid = self._scene.actors[victim].pid
        self._tell(f"worker {victim} (pid {pid}) was killed with SIGKILL, nothing could clean up behind it", loud=True)
        if held is not None:
            self._tell(f"its slot stays taken for {held.expires_in:.2f} s more: nobody renews it", loud=True)

    def _announce_reuse(self) -> None:
        death = self.history.death
        if self._reuse_told or death is None or death.expires_ns is None:
            return
        taken = reuse(self.history, self._scenario.slots.capacity, self._scenario.slots.ttl_ns)
        if taken is not None:
            self._reuse_told = True
            late_ms = (taken.at_ns - death.expires_ns) / NS_PER_MS
            self._tell(f"the slot lapsed, and worker {taken.worker} took it {late_ms:.1f} ms later", loud=True)

    def _look(self) -> None:
        """See how the limits stand. It is only for show: what can't be read now is not shown anew."""
        if self._clock.steady_ns() < self._looked_ns + LOOK_EVERY_NS:
            return
        self._looked_ns = self._clock.steady_ns()
        with contextlib.suppress(SluiceError):
            self._scene.limits = self._sluice.peek(RESOURCE).limits
            holders = {grant.lease: grant.worker for grant in self.history.grants.values()}
            self._scene.held = tuple(
                Held(holders.get(lease.id, 0), lease.expires_in, lease.id == self._dead_lease())
                for lease in self._sluice.leases(RESOURCE)
            )

    def _dead_lease(self) -> str | None:
        return None if self.history.death is None else self.history.death.lease

    def _draw(self) -> None:
        now_ns = self._clock.steady_ns()
        if now_ns >= self._drawn_ns + DRAW_EVERY_NS:
            self._drawn_ns = now_ns
            self._scene.now_s = self._now_s()
            self._screen.draw(self._scene)

    def _tell(self, text: str, *, loud: bool = False) -> None:
        event = Event(max(0.0, self._now_s()), text, loud)
        self._scene.events.append(event)
        self._screen.tell(event)

    def _now_s(self) -> float:
        return (self._clock.steady_ns() - self._from_ns) / NS_PER_SECOND
