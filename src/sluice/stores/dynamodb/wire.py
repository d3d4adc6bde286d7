"""What the store needs of whoever speaks to DynamoDB: send these calls, with one certainty each.

Bodies are those of DynamoDB's JSON protocol, with attribute values in its own form (``{"N": "12"}``). Nothing is sent
twice behind the store's back: repeating is the flows' business, and only they know what may be repeated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from sluice.core.requests import Failure

Body = Mapping[str, Any]


class Operation(StrEnum):
    """What can be asked of the engine."""

    UPDATE_ITEM = "UpdateItem"
    DELETE_ITEM = "DeleteItem"
    BATCH_GET_ITEM = "BatchGetItem"
    GET_ITEM = "GetItem"
    QUERY = "Query"
    TRANSACT_WRITE_ITEMS = "TransactWriteItems"


@dataclass(frozen=True, slots=True)
class Call:
    """One request of the protocol."""

    operation: Operation
    body: Body


@dataclass(frozen=True, slots=True)
class Answered:
    """It was done; the body of the reply."""

    body: Body


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """Nothing was written. The item as it was, if the call asked for it and there is one; for a transaction, one
    reason for each of its writes: the code (``None`` where nothing stood in the way) and the item as it was.
    """

    item: Body | None = None
    reasons: tuple[tuple[str, Body | None], ...] = ()


Reply = Answered | ConditionFailed | Failure
"""Throttling, a transaction in conflict and an engine that refuses to decide are *unreached*: certainly not applied.
A time-out, a broken connection, a server error or a reply that can't be read, once it was sent, are *unknown*."""


class Wire(Protocol):
    """The way to one table."""

    def now_ns(self) -> int:
        """The time by which takes are decided: this host's clock, corrected when the engine's replies say so."""
        ...

    async def send(self, calls: Sequence[Call], /) -> Sequence[Reply]:
        """Send calls side by side: one certainty each, in order.

        What no retry cures is raised as `ConfigError`: a missing table, a missing permission, credentials that are
        refused, a request that the engine can't read. It is raised once all of the calls have ended.
        """
        ...

    async def close(self) -> None: ...
