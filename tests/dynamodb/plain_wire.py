"""A wire to DynamoDB Local that never suspends and counts what is written: units by table and index, and refusals."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from sluice.core.errors import ConfigError
from sluice.stores.dynamodb import definition
from sluice.stores.dynamodb.wire import Answered, Call, ConditionFailed, Operation, Reply
from tests.dynamodb.plain import Plain

READS = {Operation.GET_ITEM, Operation.BATCH_GET_ITEM, Operation.QUERY}

_numbers = itertools.count()


class PlainWire:
    """One connection and one table of its own."""

    def __init__(self, port: int, now_ns: Callable[[], int]) -> None:
        self.table = f"t{os.getpid()}-{next(_numbers)}"
        self._plain = Plain(port)
        self._now_ns = now_ns
        self.calls: Counter[Operation] = Counter()
        self.units: Counter[str] = Counter()
        self.refused = 0
        status, body = self._plain.call("CreateTable", definition(self.table))
        assert status == 200, body

    def now_ns(self) -> int:
        return self._now_ns()

    async def send(self, calls: Sequence[Call], /) -> list[Reply]:
        return [self._send(call) for call in calls]

    def _send(self, call: Call) -> Reply:
        self.calls[call.operation] += 1
        status, body = self._plain.call(call.operation, {**call.body, "ReturnConsumedCapacity": "INDEXES"})
        if status == 200:
            if call.operation not in READS:
                self._count(body.pop("ConsumedCapacity"))
            return Answered(body)
        kind = body["__type"].rpartition("#")[2]
        if kind == "ConditionalCheckFailedException":
            self.refused += 1
            return ConditionFailed(body.get("Item"))
        if kind == "TransactionCanceledException":
            self.refused += 1
            reasons = body["CancellationReasons"]
            return ConditionFailed(None, tuple((reason["Code"], reason.get("Item")) for reason in reasons))
        raise ConfigError(f"{call.operation}: {body}\n{call.body}")

    def _count(self, told: Any) -> None:
        for one in told if isinstance(told, list) else [told]:
            self.units["table"] += int(one["Table"]["CapacityUnits"])
            for index, units in one.get("GlobalSecondaryIndexes", {}).items():
                self.units[index] += int(units["CapacityUnits"])

    def spent(self) -> tuple[int, int, int, int]:
        """What was written and read since the last look: units of the table, of its indexes, refusals, reads."""
        table = self.units.pop("table", 0)
        told = (table, sum(self.units.values()), self.refused, sum(self.calls[read] for read in READS))
        self.units.clear()
        self.calls.clear()
        self.refused = 0
        return told

    async def close(self) -> None:
        self._plain.call("DeleteTable", {"TableName": self.table})
        self._plain.close()
