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
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.core.errors import ConfigError
from sluice.core.requests import Failure
from sluice.stores.dynamodb.wire import Answered, Call, ConditionFailed, Operation, Reply
from sluice.testing.dynamodb.conditions import holds
from sluice.testing.dynamodb.expressions import Condition, Invalid, Unmodelled, Update, condition, update
from sluice.testing.dynamodb.items import MAX_ITEM_BYTES, Item, Placeholders, checked, size_of
from sluice.testing.dynamodb.updates import check_update, updated

MAX_KEY_BYTES: Final = 2_048
MAX_SORT_KEY_BYTES: Final = 1_024
MAX_BATCH_GET: Final = 100
MAX_TRANSACTION: Final = 100
WRITE_UNIT_BYTES: Final = 1_024
TOKEN_LIVES_NS: Final = 600 * 1_000_000_000
"""How long the engine remembers the token of a transaction."""

Body = Mapping[str, Any]


class _Refused(Exception):
    """A condition did not hold."""

    def __init__(self, refusal: ConditionFailed) -> None:
        super().__init__()
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class _Write:
    """What one write would do to one item, if its condition held."""

    key: str
    before: Item | None
    after: Item | None
    held: bool
    seen: Item | None


@dataclass
class _Index:
    """An index of keys, and what has not reached it yet."""

    attribute: str
    entries: dict[str, str] = field(default_factory=dict)
    coming: deque[tuple[int, str, str | None]] = field(default_factory=deque)

    def follow(self, key: str, value: str | None, at_ns: int) -> None:
        """Have a change arrive at a time; changes never overtake each other."""
        self.coming.append((max(at_ns, self.coming[-1][0] if self.coming else 0), key, value))

    def as_of(self, now_ns: int) -> Mapping[str, str]:
        """What the index shows: the value of its attribute by item."""
        while self.coming and self.coming[0][0] <= now_ns:
            _, key, value = self.coming.popleft()
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value
        return self.entries


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
            index["IndexName"]: _Index(index["KeySchema"][0]["AttributeName"])
            for index in definition.get("GlobalSecondaryIndexes", ())
        }
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

    def _known(self, body: Body, fields: frozenset[str] | set[str]) -> None:
        unknown = body.keys() - fields
        if unknown:
            raise Unmodelled(f"nothing is known of {sorted(unknown)}")
        if "TableName" in fields and body["TableName"] != self.table:
            raise Unmodelled(f"another table: {body['TableName']}")

    # --- writing one item ---

    def _update_item(self, body: Body) -> dict[str, Any]:
        self._known(body, {*_WRITE, "UpdateExpression", "ReturnValues"})
        write = self._update(body)
        return self._one(body, write, _wanted(body, {"NONE": None, "ALL_OLD": write.before, "ALL_NEW": write.after}))

    def _delete_item(self, body: Body) -> dict[str, Any]:
        self._known(body, {*_WRITE, "ReturnValues"})
        write = self._delete(body)
        return self._one(body, write, _wanted(body, {"NONE": None, "ALL_OLD": write.before}))

    def _one(self, body: Body, write: _Write, wanted: Item | None) -> dict[str, Any]:
        if not write.held:
            self.write_units += _units(write.before)
            raise _Refused(ConditionFailed(write.seen))
        reply: dict[str, Any] = {"Attributes": wanted} if wanted else {}
        return reply | self._spent(body, self._applied([write]), each=1)

    def _update(self, body: Body) -> _Write:
        change = update(body["UpdateExpression"]) if "UpdateExpression" in body else None
        test, given = self._condition(body, change)
        key, before = self._at(body)
        if change is not None:
            check_update(change, self.key, given)
        if not holds(test, before or {}, given):
            return self._refusal(body, key, before)
        after = before or {self.key: {"S": key}}
        if change is not None:
            after = updated(change, after, given)
        return self._judged(key, before, after)

    def _put(self, body: Body) -> _Write:
        test, given = self._condition(body)
        item = {name: checked(value) for name, value in body["Item"].items()}
        key = self._key_of(item)
        before = self.items.get(key)
        if not holds(test, before or {}, given):
            return self._refusal(body, key, before)
        return self._judged(key, before, item)

    def _delete(self, body: Body) -> _Write:
        test, given = self._condition(body)
        key, before = self._at(body)
        if not holds(test, before or {}, given):
            return self._refusal(body, key, before)
        return _Write(key, before, None, held=True, seen=None)

    def _check(self, body: Body) -> _Write:
        test, given = self._condition(body)
        key, before = self._at(body)
        if not holds(test, before or {}, given):
            return self._refusal(body, key, before)
        return _Write(key, before, before, held=True, seen=None)

    def _condition(self, body: Body, change: Update | None = None) -> tuple[Condition | None, Placeholders]:
        test = condition(body["ConditionExpression"]) if "ConditionExpression" in body else None
        given = Placeholders.of(body, [said.mentions for said in (test, change) if said is not None])
        return test, given

    def _refusal(self, body: Body, key: str, before: Item | None) -> _Write:
        wanted = body.get("ReturnValuesOnConditionCheckFailure", "NONE")
        if wanted not in {"NONE", "ALL_OLD"}:
            raise Invalid(f"a refusal can't return {wanted}")
        return _Write(key, before, before, held=False, seen=before if wanted == "ALL_OLD" else None)

    def _judged(self, key: str, before: Item | None, after: Item) -> _Write:
        if size_of(after) > MAX_ITEM_BYTES:
            raise Invalid(f"the item would have {size_of(after)} bytes; {MAX_ITEM_BYTES} are allowed")
        for index in self._indexes.values():
            _sorted_by(index, after)
        return _Write(key, before, after, held=True, seen=None)

    def _at(self, body: Body) -> tuple[str, Item | None]:
        key = self._key_of(body["Key"])
        if len(body["Key"]) != 1:
            raise Invalid("a key has just its own attributes")
        return key, self.items.get(key)

    def _key_of(self, attributes: Item) -> str:
        value = attributes.get(self.key, {})
        if "S" not in value or not value["S"] or len(value["S"].encode()) > MAX_KEY_BYTES:
            raise Invalid(f"a key is a text of 1 to {MAX_KEY_BYTES} bytes")
        if self._indexes and len(value["S"].encode()) > MAX_SORT_KEY_BYTES:
            raise Invalid(f"what an index is sorted by has at most {MAX_SORT_KEY_BYTES} bytes")
        return str(value["S"])

    def _applied(self, writes: Sequence[_Write]) -> dict[str, int]:
        """Store what was decided; the units by index, and by the table under no name."""
        units = Counter({"": 0})
        now_ns = self._now_ns()
        for write in writes:
            units[""] += max(_units(write.before), _units(write.after))
            for name, index in self._indexes.items():
                old, new = (None if item is None else _sorted_by(index, item) for item in (write.before, write.after))
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
        self._known(body, {"TransactItems", "ClientRequestToken", "ReturnConsumedCapacity"})
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

    def _part(self, item: Body) -> _Write:
        ((verb, body),) = item.items()
        match verb:
            case "ConditionCheck":
                self._known(body, _PART)
                return self._check(body)
            case "Update":
                self._known(body, {*_PART, "UpdateExpression"})
                return self._update(body)
            case "Delete":
                self._known(body, _PART)
                return self._delete(body)
            case "Put":
                self._known(body, (_PART - {"Key"}) | {"Item"})
                return self._put(body)
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
        self._known(body, {"TableName", "Key", "ConsistentRead", "ReturnConsumedCapacity"})
        _, item = self._at(body)
        return {} if item is None else {"Item": item}

    def _batch_get_item(self, body: Body) -> dict[str, Any]:
        self._known(body, {"RequestItems", "ReturnConsumedCapacity"})
        ((table, asked),) = body["RequestItems"].items()
        if table != self.table:
            raise Unmodelled(f"another table: {table}")
        self._known(asked, {"Keys", "ConsistentRead"})
        keys = [self._key_of(key) for key in asked["Keys"]]
        if not 1 <= len(keys) <= MAX_BATCH_GET:
            raise Invalid(f"a batch has 1 to {MAX_BATCH_GET} keys")
        if len(set(keys)) < len(keys):
            raise Invalid("the keys of a batch are distinct")
        return {"Responses": {table: [self.items[key] for key in keys if key in self.items]}, "UnprocessedKeys": {}}

    def _query(self, body: Body) -> dict[str, Any]:
        self._known(body, _QUERY)
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
            after = self._key_of(body["ExclusiveStartKey"]).encode()
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


_PART: Final = frozenset(
    {
        "TableName",
        "Key",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)
_WRITE: Final = _PART | {"ReturnConsumedCapacity"}
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


def _sorted_by(index: _Index, item: Item) -> str | None:
    """What an item is listed under in an index, None if it isn't."""
    value = item.get(index.attribute)
    if value is None:
        return None
    if "S" not in value or not value["S"]:
        raise Invalid(f"what an index is sorted by is a text: {index.attribute}")
    return str(value["S"])
