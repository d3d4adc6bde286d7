"""Between the simulated processes and their one store: latency, faults, and a record of all that passed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.core.documents import BucketPage, Document, DocumentKey, Kind, Mismatch, Page, Stored, Write
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Denied,
    Fold,
    GiveUp,
    Pause,
    Peek,
    Peeked,
    Reap,
    Release,
    Renew,
    Repair,
    Settle,
    Take,
    Unknown,
    Unreached,
)
from sluice.ports import Store, Traits
from sluice.testing.simulation.faults import NETWORK, NETWORK_ONCE, Fault, Faults
from sluice.testing.simulation.history import GHOST, InDoubt, NotReached, Record
from sluice.testing.simulation.history import Stored as Holding
from sluice.testing.simulation.records import Turns, record_of, stored
from sluice.testing.simulation.setting import MS
from sluice.testing.simulation.world import Process, SimClock, World, at_once, suspended

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
        kinds = NETWORK if _may_come_twice(verb, requests) else NETWORK_ONCE
        fault = self.world.decisions.which(f"{process}/network", [(kind, self.faults.often(kind)) for kind in kinds])
        if fault is not None:
            self.faults.fired[fault] += 1
            self.tell(process, f"-- {verb}: {fault}")
        return fault


class SimStore:
    """The store as one process reaches it."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._latency = network.world.decisions.stream(f"{process.name}/latency").random

    @property
    def traits(self) -> Traits:
        return self._network.store.traits

    async def take(self, requests: Sequence[Take], /) -> Answers:
        return await self._send("take", self._network.store.take, requests)

    async def settle(self, requests: Sequence[Settle | GiveUp], /) -> Answers:
        return await self._send("settle", self._network.store.settle, requests)

    async def release(self, requests: Sequence[Release], /) -> Answers:
        return await self._send("release", self._network.store.release, requests)

    async def renew(self, requests: Sequence[Renew], /) -> Answers:
        return await self._send("renew", self._network.store.renew, requests)

    async def reap(self, requests: Sequence[Reap], /) -> Answers:
        return await self._send("reap", self._network.store.reap, requests)

    async def peek(self, requests: Sequence[Peek], /) -> Answers:
        return await self._send("peek", self._network.store.peek, requests)

    async def pause(self, requests: Sequence[Pause], /) -> Answers:
        return await self._send("pause", self._network.store.pause, requests)

    async def fold(self, requests: Sequence[Fold], /) -> Answers:
        return await self._send("fold", self._network.store.fold, requests)

    async def repair(self, requests: Sequence[Repair], /) -> Answers:
        return await self._send("repair", self._network.store.repair, requests)

    async def get(self, keys: Sequence[DocumentKey], /) -> Sequence[Document | None] | Unknown | Unreached:
        (answer,) = await self._send("get", lambda _: self._network.store.get(keys), [None], whole=True)
        return answer  # type: ignore[no-any-return]

    async def write(self, writes: Sequence[Write], /) -> Stored | Mismatch | Unknown | Unreached:
        (answer,) = await self._send("write", lambda _: self._network.store.write(writes), [None], whole=True)
        return answer  # type: ignore[no-any-return]

    async def list(
        self,
        namespace: str,
        kind: Kind,
        /,
        *,
        under: tuple[str, str] | None = None,
        prefix: str = "",
        after: str | None = None,
    ) -> Page | Unknown | Unreached:
        store = self._network.store
        (answer,) = await self._send(
            "list", lambda _: store.list(namespace, kind, under=under, prefix=prefix, after=after), [None], whole=True
        )
        return answer  # type: ignore[no-any-return]

    async def buckets(
        self, namespace: str, /, *, under: tuple[str, str] | None = None, after: str | None = None
    ) -> BucketPage | Unknown | Unreached:
        store = self._network.store
        (answer,) = await self._send(
            "list", lambda _: store.buckets(namespace, under=under, after=after), [None], whole=True
        )
        return answer  # type: ignore[no-any-return]

    async def forget(self, keys: Sequence[BucketKey], /) -> Stored | Unknown | Unreached:
        (answer,) = await self._send("forget", lambda _: self._network.store.forget(keys), [None], whole=True)
        return answer  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Nothing to close in here."""

    async def _send(
        self,
        verb: str,
        method: Callable[[Any], Coroutine[Any, Any, Any]],
        requests: Sequence[Any],
        *,
        whole: bool = False,
    ) -> Answers:
        """Out, applied, back; or whatever befalls it on the way. ``whole``: one answer, not a list of them.

        What is on its way goes on when its sender is killed, frozen or cancelled.
        """
        self._process.check_alive()
        network, world = self._network, self._network.world
        task = world.running()
        network.calls += 1
        call = Call(network, task.name, verb, method, requests, whole)
        out_ns, back_ns = self._trip_ns(), self._trip_ns()
        fault = network.strike(self._process.name, verb, requests)
        if fault is Fault.OVERTAKEN:
            out_ns += int(self._latency() * network.timeout_ns)
        if fault is Fault.REPLY_SLOW:
            back_ns += int(self._latency() * network.timeout_ns)
        ticket = task.ticket

        def arrive() -> None:
            if network.down_until_ns > world.now_ns:
                network.tell(task.name, f"{verb}: store unavailable")
                answers: Answers = [Unreached("connection refused")] * len(requests)
                world.resume_at(task, world.now_ns + back_ns, answers, ticket)
            elif fault is Fault.DELAYED:
                late_ns = network.timeout_ns + int(self._latency() * 9 * network.timeout_ns)
                world.at(world.now_ns + late_ns, call.apply_as_ghost)
            elif fault is not Fault.REQUEST_LOST:
                answers = call.apply(task.name)
                if fault is not Fault.REPLY_LOST:
                    world.resume_at(task, world.now_ns + back_ns, answers, ticket)
                if fault is Fault.DUPLICATED:
                    world.at(world.now_ns + int(self._latency() * 2 * network.timeout_ns), call.apply_as_ghost)

        world.at(world.now_ns + out_ns, arrive)
        world.resume_at(task, world.now_ns + network.timeout_ns, None, ticket)
        answers = await suspended()
        if answers is None:
            network.note(InDoubt(task.name, verb))
            return [Unknown("timed out")] * len(requests)
        if any(isinstance(answer, Unreached) for answer in answers):
            network.note(NotReached(task.name, verb))
        return answers  # type: ignore[no-any-return]

    def _trip_ns(self) -> int:
        low_ns, high_ns = self._network.latency_ns
        return (low_ns + int(self._latency() * (high_ns - low_ns))) // 2


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


def _may_come_twice(verb: str, requests: Sequence[Any]) -> bool:
    """Only what a wire may repeat arrives twice: a give-back or an unconditional write, never."""
    if verb == "settle":
        return all(isinstance(request, Settle) and request.only_owes for request in requests)
    return verb not in {"write", "forget", "pause", "repair"}
