"""A model of DynamoDB behind the store's `Wire`: one table in memory, as exact as the store needs it.

Modelled, and compared with DynamoDB Local on random requests: UpdateItem, DeleteItem, GetItem, BatchGetItem, Query on
an index and TransactWriteItems; conditions and updates as `expressions` knows them; images returned on success and on
refusal; reasons of a cancelled transaction and its idempotency token; write units by table and index; the bounds on
items, numbers, expressions and batches. Each call is decided in one step, at the time that its clock shows.

Injected, since DynamoDB Local has none of it: an index that lags behind its table, and whatever a fault says of a call
before it is decided (`faults`: throttled, in conflict with another transaction, lost on its way).

Not modelled: sets but of texts, bytes, lists in paths, fractions, scans, queries on the table itself, other tables,
time to live, streams, read units, and the words of error messages. A request that needs any of it raises `Unmodelled`.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sluice.core.errors import ConfigError
from sluice.core.requests import Failure
from sluice.stores.dynamodb.wire import Answered, Call, ConditionFailed, Operation, Reply
from sluice.testing.dynamodb.conditions import holds
from sluice.testing.dynamodb.expressions import condition
from sluice.testing.dynamodb.indexes import Index
from sluice.testing.dynamodb.items import Item, Placeholders, size_of
from sluice.testing.dynamodb.judging import PART, Body, Judge, Write
from sluice.testing.dynamodb.tree import Invalid, Unmodelled

MAX_BATCH_GET: Final = 100
MAX_TRANSACTION: Final = 100
WRITE_UNIT_BYTES: Final = 1_024
TOKEN_LIVES_NS: Final = 600 * 1_000_000_000
"""How long the engine remembers the token of a transaction."""


class _Refused(Exception):
    """A condition did not hold."""

    def __init__(self, refusal: ConditionFailed) -> None:
        super().__init__()
        self.refusal = refusal


class Engine:
    """One table, made from the body of a ``CreateTable``.

    ``now_ns`` is the engine's own time; it only serves index lag and tokens. Its answers are the protocol's bodies.
    """

    def __init__(
        self, definition: Body, now_ns: Callable[[], int] = lambda: 0, index_lag_ns: Callable[[], int] = lambda: 0
    ) -> None:
        if len(definition["KeySchema"]) != 1:
            raise Unmodelled("a table with a sort key")
        self.table: str = definition["TableName"]
        self.key: str = definition["KeySchema"][0]["AttributeName"]
        self.items: dict[str, Item] = {}
        self.calls: Counter[Operation] = Counter()
        self.write_units = 0
        self._now_ns = now_ns
        self.index_lag_ns = index_lag_ns
        self._indexes = {
            index["IndexName"]: Index(index["KeySchema"][0]["AttributeName"])
            for index in definition.get("GlobalSecondaryIndexes", ())
        }
        self._judge = Judge(self.table, self.key, self.items, self._indexes.values())
        self._tokens: dict[str, tuple[int, Body]] = {}
        self._done: Mapping[Operation, Callable[[Body], dict[str, Any]]] = {
            Operation.UPDATE_ITEM: self._update_item,
            Operation.DELETE_ITEM: self._delete_item,
            Operation.GET_ITEM: self._get_item,
            Operation.BATCH_GET_ITEM: self._batch_get_item,
            Operation.QUERY: self._query,
            Operation.TRANSACT_WRITE_ITEMS: self._transact_write_items,
        }

    def decide(self, call: Call) -> Answered | ConditionFailed:
        """Do one call. Raises `Invalid` where the engine refuses the request, `Unmodelled` where the model ends."""
        self.calls[call.operation] += 1
        try:
            return Answered(self._done[call.operation](call.body))
        except _Refused as refused:
            return refused.refusal

    # --- writing one item ---

    def _update_item(self, body: Body) -> dict[str, Any]:
        self._judge.known(body, {*_WRITE, "UpdateExpression", "ReturnValues"})
        write = self._judge.update(body)
        return self._one(body, write, _wanted(body, {"NONE": None, "ALL_OLD": write.before, "ALL_NEW": write.after}))

    def _delete_item(self, body: Body) -> dict[str, Any]:
        self._judge.known(body, {*_WRITE, "ReturnValues"})
        write = self._judge.delete(body)
        return self._one(body, write, _wanted(body, {"NONE": None, "ALL_OLD": write.before}))

    def _one(self, body: Body, write: Write, wanted: Item | None) -> dict[str, Any]:
        if not write.held:
            self.write_units += _units(write.before)
            raise _Refused(ConditionFailed(write.seen))
        reply: dict[str, Any] = {"Attributes": wanted} if wanted else {}
        return reply | self._spent(body, self._applied([write]), each=1)

    def _applied(self, writes: Sequence[Write]) -> dict[str, int]:
        """Store what was decided; the units by index, and by the table under no name."""
        units = Counter({"": 0})
        now_ns = self._now_ns()
        for write in writes:
            units[""] += max(_units(write.before), _units(write.after))
            for name, index in self._indexes.items():
                old, new = (None if item is None else index.listed(item) for item in (write.before, write.after))
                if old != new:
                    units[name] += (old is not None) + (new is not None)
                    index.follow(write.key, new, now_ns + self.index_lag_ns())
            if write.after is None:
                self.items.pop(write.key, None)
            else:
                self.items[write.key] = write.after
        return units

    def _spent(self, body: Body, units: Mapping[str, int], *, each: int) -> dict[str, Any]:
        total = each * sum(units.values())
        self.write_units += total
        if body.get("ReturnConsumedCapacity", "NONE") == "NONE":
            return {}
        if body["ReturnConsumedCapacity"] != "INDEXES":
            raise Unmodelled("capacity is told by INDEXES or not at all")
        told: dict[str, Any] = {"TableName": self.table, "CapacityUnits": float(total)}
        told["Table"] = {"CapacityUnits": float(each * units[""])}
        by_index = {name: {"CapacityUnits": float(each * count)} for name, count in units.items() if name}
        return {"ConsumedCapacity": told | ({"GlobalSecondaryIndexes": by_index} if by_index else {})}

    # --- writing several ---

    def _transact_write_items(self, body: Body) -> dict[str, Any]:
        self._judge.known(body, {"TransactItems", "ClientRequestToken", "ReturnConsumedCapacity"})
        items: Sequence[Body] = body["TransactItems"]
        if not 1 <= len(items) <= MAX_TRANSACTION:
            raise Invalid(f"a transaction has 1 to {MAX_TRANSACTION} items")
        if self._repeated(body):
            return {}
        writes = [self._part(item) for item in items]
        if len({write.key for write in writes}) < len(writes):
            raise Invalid("a transaction has one operation an item")
        if not all(write.held for write in writes):
            self.write_units += 2 * sum(_units(write.before) for write in writes)
            reasons = tuple(("None" if write.held else "ConditionalCheckFailed", write.seen) for write in writes)
            raise _Refused(ConditionFailed(None, reasons))
        spent = self._spent(body, self._applied(writes), each=2)
        if "ClientRequestToken" in body:
            self._tokens[body["ClientRequestToken"]] = (self._now_ns(), body)
        return {name: [told] for name, told in spent.items()}

    def _part(self, item: Body) -> Write:
        ((verb, body),) = item.items()
        match verb:
            case "ConditionCheck":
                self._judge.known(body, PART)
                return self._judge.check(body)
            case "Update":
                self._judge.known(body, {*PART, "UpdateExpression"})
                return self._judge.update(body)
            case "Delete":
                self._judge.known(body, PART)
                return self._judge.delete(body)
            case "Put":
                self._judge.known(body, (PART - {"Key"}) | {"Item"})
                return self._judge.put(body)
        raise Invalid(f"a transaction can't {verb}")

    def _repeated(self, body: Body) -> bool:
        """Whether this transaction was done before; the same token for another one is refused."""
        token = body.get("ClientRequestToken")
        if token is None:
            return False
        done_ns, before = self._tokens.get(token, (0, None))
        if before is None or self._now_ns() - done_ns >= TOKEN_LIVES_NS:
            return False
        if before["TransactItems"] != body["TransactItems"]:
            raise Invalid("the token stands for another transaction")
        return True

    # --- reading ---

    def _get_item(self, body: Body) -> dict[str, Any]:
        self._judge.known(body, {"TableName", "Key", "ConsistentRead", "ReturnConsumedCapacity"})
        _, item = self._judge.at(body)
        return {} if item is None else {"Item": item}

    def _batch_get_item(self, body: Body) -> dict[str, Any]:
        self._judge.known(body, {"RequestItems", "ReturnConsumedCapacity"})
        ((table, asked),) = body["RequestItems"].items()
        if table != self.table:
            raise Unmodelled(f"another table: {table}")
        self._judge.known(asked, {"Keys", "ConsistentRead"})
        keys = [self._judge.key_of(key) for key in asked["Keys"]]
        if not 1 <= len(keys) <= MAX_BATCH_GET:
            raise Invalid(f"a batch has 1 to {MAX_BATCH_GET} keys")
        if len(set(keys)) < len(keys):
            raise Invalid("the keys of a batch are distinct")
        return {"Responses": {table: [self.items[key] for key in keys if key in self.items]}, "UnprocessedKeys": {}}

    def _query(self, body: Body) -> dict[str, Any]:
        self._judge.known(body, _QUERY)
        if "IndexName" not in body:
            raise Unmodelled("a query on the table itself")
        if body.get("ConsistentRead"):
            raise Invalid("an index is never consistent")
        index = self._indexes[body["IndexName"]]
        test = condition(body["KeyConditionExpression"])
        given = Placeholders.of(body, [test.mentions])
        entries: list[tuple[bytes, Item]] = []
        for key, value in index.as_of(self._now_ns()).items():
            entry = {self.key: {"S": key}, index.attribute: {"S": value}}
            if holds(test, entry, given):
                insort(entries, (key.encode(), entry), key=lambda found: found[0])
        if "ExclusiveStartKey" in body:
            after = self._judge.key_of(body["ExclusiveStartKey"]).encode()
            entries = [found for found in entries if found[0] > after]
        limit = body.get("Limit", len(entries) + 1)
        page = [entry for _, entry in entries[:limit]]
        reply = {"Items": page, "Count": len(page), "ScannedCount": len(page)}
        return reply | ({"LastEvaluatedKey": page[-1]} if len(page) == limit else {})


class ModelWire:
    """A `Wire` that never suspends: the model decides each call where it stands.

    ``faults`` is asked before each call, and what it answers is the reply; None lets the call through.
    """

    def __init__(
        self, engine: Engine, now_ns: Callable[[], int], faults: Callable[[Call], Failure | None] = lambda call: None
    ) -> None:
        self.engine = engine
        self._now_ns = now_ns
        self._faults = faults

    def now_ns(self) -> int:
        return self._now_ns()

    async def send(self, calls: Sequence[Call], /) -> list[Reply]:
        return [self._faults(call) or decided(self.engine, call) for call in calls]

    async def close(self) -> None:
        """Nothing to close in here."""


def decided(engine: Engine, call: Call) -> Reply:
    """What the engine makes of a call; what it can't read is a `ConfigError`, as with any wire."""
    try:
        return engine.decide(call)
    except (Invalid, Unmodelled) as error:
        raise ConfigError(f"DynamoDB refuses {call.operation}: {error}\n{call.body}") from error


_WRITE: Final = PART | {"ReturnConsumedCapacity"}
_QUERY: Final = frozenset(
    {
        "TableName",
        "IndexName",
        "KeyConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ExclusiveStartKey",
        "Limit",
        "ConsistentRead",
        "ReturnConsumedCapacity",
    }
)


def _wanted(body: Body, choices: Mapping[str, Item | None]) -> Item | None:
    wanted = body.get("ReturnValues", "NONE")
    if wanted not in choices:
        raise Unmodelled(f"nothing is known of returning {wanted}")
    return choices[wanted]


def _units(item: Item | None) -> int:
    return 1 if item is None else max(1, -(-size_of(item) // WRITE_UNIT_BYTES))
