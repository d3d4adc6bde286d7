"""The store as one process reaches it: a `Store` whose calls travel, and may be lost, late, or come twice."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from sluice.core.documents import BucketPage, Document, DocumentKey, Kind, Mismatch, Page, Stored, Write
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Fold,
    GiveUp,
    Pause,
    Peek,
    Reap,
    Release,
    Renew,
    Repair,
    Settle,
    Take,
    Unknown,
    Unreached,
)
from sluice.ports import Traits
from sluice.testing.simulation.faults import Fault
from sluice.testing.simulation.history import InDoubt, NotReached
from sluice.testing.simulation.network import Answers, Call, Network
from sluice.testing.simulation.world import Process, Task, World, suspended


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

        A store that decides bucket by bucket is sent each request in a letter of its own, and each has its own fate.
        """
        self._process.check_alive()
        network, world = self._network, self._network.world
        task = world.running()
        network.calls += 1
        together = whole or len(requests) == 1 or self.traits.joint
        batches = [requests] if together else [[request] for request in requests]
        reply = Reply(world, task, [None] * len(batches))
        for number, batch in enumerate(batches):
            call = Call(network, task.name, verb, method, batch, whole)
            self._post(call, reply, number)
        world.resume_at(task, world.now_ns + network.timeout_ns, None)
        await suspended()
        return [answer for number, batch in enumerate(batches) for answer in self._received(verb, reply, number, batch)]

    def _post(self, call: Call, reply: Reply, number: int) -> None:
        """Send one letter. What is on its way goes on when its sender is killed, frozen or cancelled."""
        network, world = self._network, self._network.world
        out_ns, back_ns = self._trip_ns(), self._trip_ns()
        given_up_ns = world.now_ns + network.timeout_ns
        fault = network.strike(self._process.name, call.verb, call.requests)
        if fault is Fault.OVERTAKEN:
            out_ns += int(self._latency() * network.timeout_ns)
        if fault is Fault.REPLY_SLOW:
            back_ns += int(self._latency() * network.timeout_ns)

        def arrive() -> None:
            if network.down_until_ns > world.now_ns:
                network.tell(call.sender, f"{call.verb}: store unavailable")
                answers: Answers = [Unreached("connection refused")] * len(call.requests)
                reply.lands(number, answers, world.now_ns + back_ns)
            elif fault is Fault.DELAYED:
                late_ns = network.timeout_ns + int(self._latency() * 9 * network.timeout_ns)
                world.at(world.now_ns + late_ns, call.apply_as_ghost)
            elif world.now_ns >= given_up_ns:
                call.apply_as_ghost()
            elif fault is not Fault.REQUEST_LOST:
                answers = call.apply(call.sender)
                if fault is not Fault.REPLY_LOST:
                    reply.lands(number, answers, world.now_ns + back_ns)
                if fault is Fault.DUPLICATED:
                    world.at(world.now_ns + int(self._latency() * 2 * network.timeout_ns), call.apply_as_ghost)

        world.at(world.now_ns + out_ns, arrive)

    def _received(self, verb: str, reply: Reply, number: int, batch: Sequence[Any]) -> Answers:
        network, name = self._network, reply.task.name
        answers = reply.answers[number]
        if answers is None:
            network.note(InDoubt(name, verb))
            return [Unknown("timed out")] * len(batch)
        if any(isinstance(answer, Unreached) for answer in answers):
            network.note(NotReached(name, verb))
        return answers

    def _trip_ns(self) -> int:
        low_ns, high_ns = self._network.latency_ns
        return (low_ns + int(self._latency() * (high_ns - low_ns))) // 2


class Reply:
    """The answers to what one task sent together; it goes on when all have landed, or without the rest."""

    def __init__(self, world: World, task: Task, answers: list[Answers | None]) -> None:
        self.task = task
        self.answers = answers
        self._world = world
        self._ticket = task.ticket

    def lands(self, number: int, answers: Answers, at_ns: int) -> None:
        """An answer comes back at a time, if anybody waits for it by then."""

        def land() -> None:
            if self.task.ticket == self._ticket:
                self.answers[number] = answers
                if None not in self.answers:
                    self._world.resume_at(self.task, at_ns, None, self._ticket)

        self._world.at(at_ns, land)
