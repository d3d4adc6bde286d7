"""Calls on their way to the simulated table, and what befalls each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from sluice.core.requests import Settle, Unknown, Unreached
from sluice.stores.dynamodb.wire import Call, Operation, Reply
from sluice.testing.dynamodb.recorder import Recorder, Sent
from sluice.testing.simulation.history import GHOST
from sluice.testing.simulation.network import Network
from sluice.testing.simulation.world import Process, suspended


class CallFault(StrEnum):
    """What can befall one call of the store, or all calls of a run."""

    REQUEST_LOST = "call lost"
    REPLY_LOST = "reply lost after the call was applied"
    DUPLICATED = "call duplicated"
    DELAYED = "call delayed past its time-out"
    OVERTAKEN = "call overtaken by later ones"
    REPLY_SLOW = "reply to a call slow"
    THROTTLED = "call throttled"
    CONFLICT = "transaction in conflict"
    CLOCKS_APART = "clients' clocks apart"
    INDEX_LATE = "indexes late"


OFTEN: Final = {
    CallFault.REQUEST_LOST: 12,
    CallFault.REPLY_LOST: 15,
    CallFault.DELAYED: 10,
    CallFault.OVERTAKEN: 20,
    CallFault.REPLY_SLOW: 20,
    CallFault.THROTTLED: 15,
    CallFault.CONFLICT: 15,
    CallFault.DUPLICATED: 12,
}
"""How often each strikes, in thousandths of the calls."""

LONGEST_DELAY: Final = 10
"""Time-outs by which what nobody waits for any more has arrived."""


@dataclass
class Roads:
    """What all ways to the table have in common."""

    network: Network
    recorder: Recorder
    calm: bool
    fired: Counter[CallFault] = field(default_factory=Counter)


class CallWire:
    """A `Wire` in virtual time. What is on its way goes on when its sender is killed, frozen or cancelled."""

    def __init__(self, roads: Roads, process: Process) -> None:
        self.sent: dict[str, Sent] = {}
        self._roads = roads
        self._network = roads.network
        self._world = roads.network.world
        self._process = process
        self._latency = self._world.decisions.stream(f"{process.name}/latency").random

    def now_ns(self) -> int:
        sent = self._sent()
        sent.now_ns, sent.ahead_ns = self._process.clock.now_ns(), self._process.clock.offset_ns
        return sent.now_ns

    def _sent(self) -> Sent:
        task = self._world.running().name
        return self.sent.get(task) or Sent(task, "document", ())

    async def send(self, calls: Sequence[Call], /) -> list[Reply]:
        self._process.check_alive()
        world = self._world
        task, sent = world.running(), self._sent()
        ticket = task.ticket
        replies: dict[int, Reply] = {}

        def ends(number: int) -> Callable[[Reply], None]:
            def end(reply: Reply) -> None:
                if number not in replies:
                    replies[number] = reply
                    if len(replies) == len(calls):
                        world.resume_at(task, world.now_ns, None, ticket)

            return end

        for number, call in enumerate(calls):
            self._go(sent, call, ends(number))
        await suspended()
        return [replies[number] for number in range(len(calls))]

    async def close(self) -> None:
        """Nothing to close in here."""

    def _go(self, sent: Sent, call: Call, end: Callable[[Reply], None]) -> None:
        """One call: out, applied, back; or whatever befalls it on the way."""
        world, network, recorder = self._world, self._network, self._roads.recorder
        network.calls += 1
        timeout_ns = network.timeout_ns
        fault = self._strike(sent, call)
        out_ns, back_ns = self._trip_ns(), self._trip_ns()
        if fault is CallFault.OVERTAKEN:
            out_ns += int(self._latency() * timeout_ns)
        if fault is CallFault.REPLY_SLOW:
            back_ns += int(self._latency() * timeout_ns)

        given_up_ns = world.now_ns + timeout_ns

        def applied() -> Reply:
            """What arrives when nobody waits for it any more is nobody's doing."""
            late = world.now_ns >= given_up_ns
            return recorder.apply(sent, sent.task + GHOST if late else sent.task, call)

        def again() -> None:
            recorder.apply(sent, sent.task + GHOST, call)

        def back(reply: Reply) -> None:
            world.at(world.now_ns + back_ns, lambda: end(reply))

        def arrive() -> None:
            if network.down_until_ns > world.now_ns:
                back(Unreached("connection refused"))
            elif fault in {CallFault.THROTTLED, CallFault.CONFLICT}:
                back(Unreached(str(fault)))
            elif fault is CallFault.DELAYED:
                world.at(world.now_ns + timeout_ns + int(self._latency() * (LONGEST_DELAY - 1) * timeout_ns), again)
            elif fault is not CallFault.REQUEST_LOST:
                reply = applied()
                if fault is not CallFault.REPLY_LOST:
                    back(reply)
                if fault is CallFault.DUPLICATED:
                    world.at(world.now_ns + int(self._latency() * 2 * timeout_ns), again)

        world.at(world.now_ns + out_ns, arrive)
        world.at(world.now_ns + timeout_ns, lambda: end(Unknown("timed out")))

    def _strike(self, sent: Sent, call: Call) -> CallFault | None:
        if self._roads.calm:
            return None
        never = set()
        if call.operation is not Operation.TRANSACT_WRITE_ITEMS:
            never.add(CallFault.CONFLICT)
        if not _may_come_twice(sent, call):
            never.add(CallFault.DUPLICATED)
        options = [(fault, 0 if fault in never else often) for fault, often in OFTEN.items()]
        fault = self._world.decisions.which(f"{self._process.name}/calls", options)
        if fault is not None:
            self._roads.fired[fault] += 1
            self._network.tell(self._process.name, f"-- {sent.verb}, {call.operation}: {fault}")
        return fault

    def _trip_ns(self) -> int:
        low_ns, high_ns = self._network.latency_ns
        return (low_ns + int(self._latency() * (high_ns - low_ns))) // 2


def _may_come_twice(sent: Sent, call: Call) -> bool:
    """What is conditional on its own lease, has a token, or errs towards the limit the second time."""
    if sent.verb == "settle":
        return all(isinstance(request, Settle) and request.only_owes for request in sent.requests)
    return sent.verb in {"take", "release", "renew", "reap"} or "ClientRequestToken" in call.body
