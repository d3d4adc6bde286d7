"""Between the simulated processes and their one store: latency, faults, and a record of all that passed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.core.names import BucketKey
from sluice.core.requests import (
    Denied,
    Peek,
    Peeked,
    Release,
    Settle,
    Take,
)
from sluice.ports import Store
from sluice.testing.simulation.faults import NETWORK, NETWORK_ONCE, Fault, Faults
from sluice.testing.simulation.history import GHOST, Record
from sluice.testing.simulation.history import Stored as Holding
from sluice.testing.simulation.records import Turns, record_of, stored
from sluice.testing.simulation.setting import MS
from sluice.testing.simulation.world import SimClock, World, at_once

Answers = list[Any]

STRANGER: Final = "stranger"


@dataclass
class Network:
    """The way to the store, shared by all processes."""

    world: World
    store: Store
    store_clock: SimClock
    faults: Faults
    latency_ns: tuple[int, int] = (100_000, 20 * MS)
    timeout_ns: int = 300 * MS
    down_until_ns: int = 0
    history: list[Record] = field(default_factory=list)
    turns: Turns = field(default_factory=dict)
    calls: int = 0
    story: list[tuple[int, str, object]] = field(default_factory=list)
    on_refusal: Callable[[Take, Denied], None] = lambda request, denied: None
    shows_state: bool = False
    seen: dict[BucketKey, Holding] = field(default_factory=dict)

    def tell(self, who: str, what: object) -> None:
        self.story.append((self.world.now_ns, who, what))

    def note(self, record: Record) -> None:
        """Write down what happened, for the promises and for the story."""
        self.history.append(record)
        self.story.append((self.world.now_ns, "", record))

    def store_now_ns(self) -> int:
        return self.store_clock.now_ns()

    def look(self, key: BucketKey) -> Holding:
        """What the store holds of a bucket, as the store itself says."""
        (peeked,) = at_once(self.store.peek([Peek(key)]))
        if not isinstance(peeked, Peeked):
            raise TypeError(f"an engine is never at fault by itself, and this one answered {peeked!r}")
        return stored(key, peeked)

    def touched(self, request: Any) -> None:
        """Remember which buckets there are, and tell how they stand if the story shows it."""
        keys = [part.key for part in request.parts] if isinstance(request, Take) else [request.key]
        for key in keys:
            if not self.shows_state:
                self.seen.setdefault(key, Holding(0, "", (), (), (), 0))
                continue
            now_holds = self.look(key)
            if now_holds != self.seen.get(key):
                self.story.append((self.world.now_ns, "", now_holds))
            self.seen[key] = now_holds

    def ask_at_once(self, refused: Take, number: int) -> None:
        """Somebody beside the clients takes the same, without any latency, and gives slots back at once."""
        lease = f"{number:022x}@{STRANGER}"
        self._call("take", self.store.take, Take(lease, refused.parts, refused.wait_ns))
        for part in refused.parts:
            if part.slots:
                self._call("release", self.store.release, Release(part.key, lease))

    def _call(self, verb: str, method: Callable[[Any], Coroutine[Any, Any, Any]], request: Any) -> None:
        Call(self, STRANGER, verb, method, [request], whole=False).apply(STRANGER)

    def fires(self, fault: Fault, where: str) -> bool:
        """Whether a fault strikes at this occasion."""
        if not self.world.decisions.happens(fault, where, self.faults.often(fault)):
            return False
        self.faults.fired[fault] += 1
        self.tell(where, f"-- {fault}")
        return True

    def strike(self, process: str, verb: str, requests: Sequence[Any]) -> Fault | None:
        """What befalls this call on its way."""
        kinds = NETWORK if may_come_twice(verb, requests) else NETWORK_ONCE
        fault = self.world.decisions.which(f"{process}/network", [(kind, self.faults.often(kind)) for kind in kinds])
        if fault is not None:
            self.faults.fired[fault] += 1
            self.tell(process, f"-- {verb}: {fault}")
        return fault


@dataclass(frozen=True)
class Call:
    """A call on its way, to be decided by the store when it arrives, once or twice or never."""

    network: Network
    sender: str
    verb: str
    method: Callable[[Any], Coroutine[Any, Any, Any]]
    requests: Sequence[Any]
    whole: bool

    def apply(self, task: str) -> Answers:
        """Have the store decide, and write down what it did."""
        answer = at_once(self.method(self.requests))
        answers = [answer] if self.whole else list(answer)
        for request, answer in zip(self.requests, answers, strict=True):
            record = record_of(task, request, answer, self.network.turns)
            if record is not None:
                self.network.note(record)
                self.network.touched(request)
            if isinstance(answer, Denied) and task != STRANGER:
                self.network.on_refusal(request, answer)
        return answers

    def apply_as_ghost(self) -> None:
        """What nobody waits for any more arrives all the same."""
        self.apply(f"{self.sender}{GHOST}")


def may_come_twice(verb: str, requests: Sequence[Any]) -> bool:
    """Only what a wire may repeat arrives twice: a give-back or an unconditional write, never."""
    if verb == "settle":
        return all(isinstance(request, Settle) and request.only_owes for request in requests)
    return verb not in {"write", "forget", "pause", "repair"}
