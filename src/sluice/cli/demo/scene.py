"""What there is to see of a running demo at a moment: who does what, how the limits stand, and the latest events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from sluice.core.bounds import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sluice.core.requests import LimitStatus

MAX_EVENTS: Final = 50


class Mood(Enum):
    """How an event is meant."""

    PLAIN = "plain"
    BAD = "bad"
    GOOD = "good"


@dataclass
class Actor:
    """One worker, as far as it is to be seen."""

    number: int
    pid: int | None = None
    doing: str = "starts"
    since_s: float = 0.0
    tokens: int = 0
    calls: int = 0
    all_tokens: int = 0
    last_wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A slot in use; ``dead`` if its holder was killed."""

    lease: str
    worker: int
    expires_in: float
    dead: bool


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line."""

    at_s: float
    text: str
    mood: Mood = Mood.PLAIN


@dataclass
class Scene:
    """The present, drawn again and again. A lease stays in its cell of ``cells`` for as long as it lives."""

    seconds: float
    actors: dict[int, Actor]
    cells: list[Held | None]
    now_s: float = 0.0
    limits: tuple[LimitStatus, ...] = ()
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))

    @property
    def calls(self) -> int:
        return sum(actor.calls for actor in self.actors.values())

    @property
    def all_tokens(self) -> int:
        return sum(actor.all_tokens for actor in self.actors.values())

    def hold(self, leases: Sequence[Held]) -> None:
        """These leases live now, and no others."""
        living = {held.lease: held for held in leases}
        self.cells = [None if cell is None else living.pop(cell.lease, None) for cell in self.cells]
        new = iter(living.values())
        self.cells = [cell or next(new, None) for cell in self.cells]

    def read(self, worker: int, facts: Mapping[str, Any]) -> None:
        """Take in a worker's note."""
        actor = self.actors[worker]
        match facts["note"]:
            case "ready":
                actor.pid = facts["pid"]
                self._now_does(actor, "ready")
            case "asks":
                actor.tokens = facts["tokens"]
                self._now_does(actor, "waits")
            case "waited":
                actor.last_wait_ms = facts["waited_ns"] // NS_PER_MS
            case "calls":
                actor.calls += 1
                actor.all_tokens += facts["tokens"]
                self._now_does(actor, "calls")

    def hangs(self, worker: int) -> None:
        """A worker's call is not answered."""
        self._now_does(self.actors[worker], "hangs")

    def gone(self, worker: int, *, killed: bool) -> None:
        """A worker's process has ended."""
        self._now_does(self.actors[worker], "killed" if killed else "done")

    def _now_does(self, actor: Actor, doing: str) -> None:
        actor.doing, actor.since_s = doing, self.now_s
