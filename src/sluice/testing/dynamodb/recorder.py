"""What a call to the table means as a request, written down when the table applies it; and what clients are told of it.

A request is decided by one of its calls. That one is written into the history, whether or not anybody hears of it; when
its client is told, the answer must be what was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.core.bucket import EMPTY, Bucket
from sluice.core.names import entry_owner
from sluice.core.requests import (
    Denied,
    GaveUp,
    GiveUp,
    Gone,
    Granted,
    Pause,
    Paused,
    RateCharge,
    Reap,
    Reaped,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    Settled,
    SlotEntry,
    Take,
)
from sluice.stores.dynamodb.images import decode_bucket
from sluice.stores.dynamodb.table import KEY, bucket_key
from sluice.stores.dynamodb.wire import Answered, Call, Operation, Reply
from sluice.testing.dynamodb.claims import Change, Claims
from sluice.testing.dynamodb.ledger import Grant
from sluice.testing.dynamodb.model import Engine as Table
from sluice.testing.dynamodb.model import decided
from sluice.testing.simulation.history import GHOST
from sluice.testing.simulation.model import Broken
from sluice.testing.simulation.network import Network
from sluice.testing.simulation.records import bucket_name, record_of
from sluice.testing.simulation.world import START_NS


@dataclass
class Sent:
    """Requests that a task has sent in one go, by its clock, and what has become of them in the table, by item."""

    task: str
    verb: str
    requests: Sequence[Any]
    ahead_ns: int = 0
    now_ns: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    seen: dict[str, Bucket] = field(default_factory=dict)

    def true_ns(self, time_ns: int) -> int:
        """The true time of what the sender's clock calls so."""
        return time_ns - START_NS - self.ahead_ns


class Recorder:
    """Between the wires of all processes and their one table."""

    def __init__(self, network: Network, table: Table, claims: Claims) -> None:
        self.granted = self.denied = self.contended = 0
        self._network = network
        self._table = table
        self._claims = claims

    def apply(self, sent: Sent, task: str, call: Call) -> Reply:
        """Have the table do a call, and write down what it did."""
        key = call.body["Key"][KEY]["S"] if call.operation is Operation.UPDATE_ITEM else ""
        requests = [request for request in sent.requests if _item(request) == key]
        if not requests:
            return decided(self._table, call)
        if len(requests) > 1 and sent.verb != "renew":
            raise TypeError(f"several requests on one bucket in one list are not told apart here: {requests}")
        before = decode_bucket(self._table.items.get(key))
        reply = decided(self._table, call)
        after = decode_bucket(self._table.items.get(key))
        if not task.endswith(GHOST):
            sent.seen[key] = after
        for request in requests if isinstance(reply, Answered) else ():
            change = Change(bucket_name(_key(request)), request, before, after, sent.now_ns)
            answer = self._answer(sent, task, change)
            if isinstance(answer, Granted | Settled | Released | GaveUp):
                self._claims.moved(change)
            if answer is not None:
                sent.applied[key] = sent.applied.get(key, 0) + (not task.endswith(GHOST))
                self._note(task, request, answer)
        return reply

    def _answer(self, sent: Sent, task: str, change: Change) -> Any:
        """What a write that was applied comes to; None if it decides nothing yet."""
        claims, now_ns, request = self._claims, sent.now_ns, change.request
        claims.stands(change.bucket, change.after)
        match request:
            case Take() if change.after.usage != change.before.usage:
                return self._took(sent, task, change)
            case Take():
                claims.removed(change)
            case Settle():
                self._gave_back(change)
                return Settled(now_ns)
            case GiveUp():
                turn = (change.bucket, request.name, request.left_full_at_ns, request.interval_ns)
                claims.gave_up(change, self._network.turns.get(turn, ""), self._network.world.now_ns)
                return GaveUp(now_ns, returned=True)
            case Release() if _item(request) not in sent.applied:
                self._gave_back(change)
                return Released(now_ns)
            case Renew() if claims.renewed(change):
                return Renewed(now_ns)
            case Reap():
                claims.removed(change)
                return Reaped(now_ns, _gone(change))
            case Pause():
                claims.paused(change, sent.true_ns(max(now_ns, change.before.paused_until_ns)))
                return Paused(now_ns, change.after.paused_until_ns)
        return None

    def _took(self, sent: Sent, task: str, change: Change) -> Granted:
        request, after = change.request, change.after
        now_ns = turn_ns = sent.now_ns
        for charge in request.parts[0].charges if request.wait_ns else ():
            if isinstance(charge, RateCharge):
                room_ns = (charge.capacity - charge.leave) * charge.interval_ns
                turn_ns = max(now_ns, after.paused_until_ns, after.rates[charge.name].full_at_ns - room_ns)
        late = task.endswith(GHOST)
        owner = request.lease_id + GHOST if late else request.lease_id
        self._claims.granted(
            change, Grant(sent.true_ns(turn_ns), 0, self._network.world.now_ns, owner, turn_ns > now_ns)
        )
        if not late:
            sent.turns[_item(request)] = turn_ns
        return Granted(now_ns, turn_ns, (after,))

    def _gave_back(self, change: Change) -> None:
        for hour, amount in change.after.usage.items():
            given = change.before.usage.get(hour, 0) - amount
            if given > 0:
                self._claims.gave_back(change.bucket, hour[0], given, self._network.world.now_ns)

    def _note(self, task: str, request: Any, answer: Any) -> None:
        record = record_of(task, request, answer, self._network.turns)
        if record is not None:
            self._network.note(record)
            self._network.touched(request)

    def told(self, sent: Sent, request: Any, answer: Any) -> None:
        """A client is told of a request: it must be what the table did."""
        item = _item(request)
        applied, image = sent.applied.get(item, 0), sent.seen.get(item, EMPTY)
        match request, answer:
            case Take(), Granted():
                self.granted += 1
                if answer.repeated:
                    self._note(sent.task, request, answer)
                elif answer.turn_ns != sent.turns.get(item):
                    raise Broken(1, f"{request.lease_id} is told {answer.turn_ns}; its turn is {sent.turns.get(item)}")
            case Take(), Denied():
                self._denied(sent, request, answer, image)
            case GiveUp(), GaveUp(returned=False):
                self._note(sent.task, request, answer)
            case Release(), Gone():
                if _holds(image, request.lease_id):
                    raise Broken(4, f"{request.lease_id} holds slots, and its release found none")
                self._note(sent.task, request, answer)
            case (Settle(), Settled()) | (Release(), Released()) | (GiveUp(), GaveUp()):
                if applied != 1:
                    raise Broken(1, f"{request} was applied {applied} times")

    def _denied(self, sent: Sent, request: Take, answer: Denied, image: Bucket) -> None:
        self.denied += 1
        self.contended += answer.contended
        if _item(request) in sent.turns:
            raise Broken(5, f"{request.lease_id} was denied, and charged")
        if not answer.contended:
            self._claims.denied(request, answer, image)


def _key(request: Any) -> Any:
    return request.parts[0].key if isinstance(request, Take) else request.key


def _item(request: Any) -> str:
    return bucket_key(_key(request))


def _holds(image: Bucket, lease: str) -> bool:
    return any(entry_owner(entry) == lease for entries in image.slots.values() for entry in entries)


def _gone(change: Change) -> tuple[SlotEntry, ...]:
    return tuple(
        SlotEntry(limit, entry, expires_ns)
        for limit, entries in change.before.slots.items()
        for entry, expires_ns in entries.items()
        if entry not in change.after.slots.get(limit, {})
    )
