"""Between the simulated processes and their one store: latency, faults, and a record of all that passed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.core.documents import BucketPage, Document, DocumentKey, Kind, Mismatch, Page, Stored, Write
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Denied,
    Fold,
    Folded,
    GaveUp,
    GiveUp,
    Gone,
    Granted,
    Part,
    Pause,
    Paused,
    Peek,
    Peeked,
    RateCharge,
    Reap,
    Reaped,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    Settled,
    SlotsCharge,
    Take,
    Unknown,
    Unreached,
)
from sluice.ports import Store, Traits
from sluice.testing.simulation.faults import NETWORK, NETWORK_ONCE, Fault, Faults
from sluice.testing.simulation.history import (
    GHOST,
    BucketPaused,
    Charged,
    Corrected,
    InDoubt,
    Record,
    Refused,
    SlotsReaped,
    SlotsRenewed,
    SlotsReturned,
    Took,
    TurnGivenUp,
)
from sluice.testing.simulation.world import Process, SimClock, World, suspended

MS = 1_000_000
Answers = list[Any]


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
    turns: dict[tuple[str, str, int], str] = field(default_factory=dict)
    calls: int = 0
    story: list[tuple[int, str, object]] = field(default_factory=list)

    def tell(self, who: str, what: object) -> None:
        self.story.append((self.world.now_ns, who, what))

    def note(self, record: Record) -> None:
        """Write down what happened, for the promises and for the story."""
        self.history.append(record)
        self.story.append((self.world.now_ns, "", record))

    def store_now_ns(self) -> int:
        return self.store_clock.now_ns()

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
        task = world.current
        assert task is not None
        network.calls += 1
        trip_ns = network.latency_ns[1] - network.latency_ns[0]
        out_ns = (network.latency_ns[0] + int(self._latency() * trip_ns)) // 2
        back_ns = (network.latency_ns[0] + int(self._latency() * trip_ns)) // 2
        fault = network.strike(self._process.name, verb, requests)
        ticket = task.ticket
        name = task.name

        def arrive() -> None:
            if network.down_until_ns > world.now_ns:
                network.tell(name, f"{verb}: store unavailable")
                answers: Answers = [Unreached("connection refused")] * len(requests)
                world.resume_at(task, world.now_ns + back_ns, answers, ticket)
            elif fault is Fault.DELAYED:
                late_ns = network.timeout_ns + int(self._latency() * 9 * network.timeout_ns)
                world.at(world.now_ns + late_ns, ghost)
            elif fault is not Fault.REQUEST_LOST:
                answers = _applied(network, name, verb, method, requests, whole=whole)
                if fault is not Fault.REPLY_LOST:
                    world.resume_at(task, world.now_ns + back_ns, answers, ticket)
                if fault is Fault.DUPLICATED:
                    world.at(world.now_ns + int(self._latency() * 2 * network.timeout_ns), ghost)

        def ghost() -> None:
            _applied(network, f"{name}{GHOST}", verb, method, requests, whole=whole)

        world.at(world.now_ns + out_ns, arrive)
        world.resume_at(task, world.now_ns + network.timeout_ns, None, ticket)
        answers = await suspended()
        if answers is None:
            network.note(InDoubt(name, verb))
            return [Unknown("timed out")] * len(requests)
        return answers  # type: ignore[no-any-return]


def _may_come_twice(verb: str, requests: Sequence[Any]) -> bool:
    """Only what a wire may repeat arrives twice: a give-back or an unconditional write, never."""
    if verb == "settle":
        return all(isinstance(request, Settle) and request.only_owes for request in requests)
    return verb not in {"write", "forget", "pause"}


def _applied(
    network: Network,
    task: str,
    verb: str,
    method: Callable[[Any], Coroutine[Any, Any, Any]],
    requests: Sequence[Any],
    *,
    whole: bool,
) -> Answers:
    """Have the store decide, and write down what it did."""
    try:
        method(requests).send(None)
    except StopIteration as ended:
        answers = [ended.value] if whole else list(ended.value)
    for request, answer in zip(requests, answers, strict=True):
        record = _record(network, task, request, answer)
        if record is not None:
            network.note(record)
    return answers


def _record(network: Network, task: str, request: Any, answer: Any) -> Record | None:
    match request, answer:
        case Take(), Granted():
            if answer.turn_ns > answer.now_ns:
                (part,), (charge,) = request.parts, request.parts[0].charges
                left_ns = answer.images[0].rates[charge.name].full_at_ns
                network.turns[bucket_name(part.key), charge.name, left_ns] = request.lease_id
            return Took(
                answer.now_ns,
                task,
                request.lease_id,
                _charged(request.parts),
                request.wait_ns,
                answer.turn_ns,
                answer.repeated,
            )
        case Take(), Denied():
            named = {(part.key.entity, part.key.resource): bucket_name(part.key) for part in request.parts}
            blocking = frozenset((named[s.entity, s.resource], s.name) for s in answer.limits)
            charges = _charged(request.parts)
            return Refused(
                answer.now_ns, task, request.lease_id, charges, request.wait_ns, answer.retry_in_ns, blocking
            )
        case Settle(), Settled():
            return Corrected(answer.now_ns, task, _tokens(request))
        case GiveUp(), GaveUp():
            return TurnGivenUp(
                answer.now_ns,
                task,
                bucket_name(request.key),
                request.name,
                network.turns.get((bucket_name(request.key), request.name, request.left_full_at_ns), ""),
                request.amount,
                answer.returned,
            )
        case Release(), Released() | Gone():
            found = isinstance(answer, Released)
            return SlotsReturned(
                answer.now_ns, task, bucket_name(request.key), request.lease_id, found, _tokens(request) if found else ()
            )
        case Renew(), Renewed() | Gone():
            limits = tuple((slots.name, slots.amount, slots.ttl_ns) for slots in request.slots)
            renewed = isinstance(answer, Renewed)
            return SlotsRenewed(answer.now_ns, bucket_name(request.key), request.lease_id, limits, renewed)
        case Reap(), Reaped():
            removed = tuple((slot.limit, slot.entry.partition("#")[0]) for slot in answer.removed)
            return SlotsReaped(answer.now_ns, bucket_name(request.key), removed) if removed else None
        case Pause(), Paused():
            return BucketPaused(answer.now_ns, bucket_name(request.key), answer.until_ns)
    return None


def bucket_name(key: BucketKey) -> str:
    return f"{key.namespace[:4]}/{key.text}"


def _tokens(request: Settle | Release) -> tuple[tuple[str, str, int, int], ...]:
    return tuple((bucket_name(request.key), delta.name, delta.tokens, delta.interval_ns) for delta in request.deltas)


def _charged(parts: tuple[Part, ...]) -> tuple[Charged, ...]:
    return tuple(_one_charge(bucket_name(part.key), charge) for part in parts for charge in part.charges)


def _one_charge(bucket: str, charge: RateCharge | SlotsCharge) -> Charged:
    if isinstance(charge, RateCharge):
        return Charged(bucket, charge.name, charge.amount, charge.capacity, charge.leave, interval_ns=charge.interval_ns)
    return Charged(bucket, charge.name, charge.amount, charge.capacity, charge.leave, ttl_ns=charge.ttl_ns)
