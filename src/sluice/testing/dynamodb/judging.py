"""What a write would do to one item: whether its condition holds, and what would be there then. It stores nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluice.testing.dynamodb.conditions import holds
from sluice.testing.dynamodb.expressions import condition, update
from sluice.testing.dynamodb.indexes import Index
from sluice.testing.dynamodb.items import MAX_ITEM_BYTES, Item, Placeholders, checked, size_of
from sluice.testing.dynamodb.tree import Condition, Invalid, Unmodelled, Update
from sluice.testing.dynamodb.updates import check_update, updated

MAX_KEY_BYTES: Final = 2_048
MAX_SORT_KEY_BYTES: Final = 1_024

Body = Mapping[str, Any]

PART: Final = frozenset(
    {
        "TableName",
        "Key",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)
"""The fields of a write within a transaction."""


@dataclass(frozen=True, slots=True)
class Write:
    """What one write would do to one item, if its condition held."""

    key: str
    before: Item | None
    after: Item | None
    held: bool
    seen: Item | None


class Judge:
    """Knows the table's name and key, and what lies in it."""

    def __init__(self, table: str, key: str, items: Mapping[str, Item], indexes: Collection[Index]) -> None:
        self.table = table
        self.key = key
        self._items = items
        self._indexes = indexes

    def known(self, body: Body, fields: frozenset[str] | set[str]) -> None:
        """Refuse to guess at fields that are not modelled, and at other tables."""
        unknown = body.keys() - fields
        if unknown:
            raise Unmodelled(f"nothing is known of {sorted(unknown)}")
        if "TableName" in fields and body["TableName"] != self.table:
            raise Unmodelled(f"another table: {body['TableName']}")

    def update(self, body: Body) -> Write:
        change = update(body["UpdateExpression"]) if "UpdateExpression" in body else None
        test, given = self._condition(body, change)
        key, before = self.at(body)
        if change is not None:
            check_update(change, self.key, given)
        if not holds(test, before or {}, given):
            return self._refusal(body, key, before)
        after = before or {self.key: {"S": key}}
        if change is not None:
            after = updated(change, after, given)
        return self._judged(key, before, after)

    def put(self, body: Body) -> Write:
        test, given = self._condition(body)
        item = {name: checked(value) for name, value in body["Item"].items()}
        key = self.key_of(item)
        before = self._items.get(key)
        if not holds(test, before or {}, given):
            return self._refusal(body, key, before)
        return self._judged(key, before, item)

    def delete(self, body: Body) -> Write:
        test, given = self._condition(body)
        key, before = self.at(body)
        if not holds(test, before or {}, given):
            return self._refusal(body, key, before)
        return Write(key, before, None, held=True, seen=None)

    def check(self, body: Body) -> Write:
        test, given = self._condition(body)
        key, before = self.at(body)
        if not holds(test, before or {}, given):
            return self._refusal(body, key, before)
        return Write(key, before, before, held=True, seen=None)

    def _condition(self, body: Body, change: Update | None = None) -> tuple[Condition | None, Placeholders]:
        test = condition(body["ConditionExpression"]) if "ConditionExpression" in body else None
        given = Placeholders.of(body, [said.mentions for said in (test, change) if said is not None])
        return test, given

    def _refusal(self, body: Body, key: str, before: Item | None) -> Write:
        wanted = body.get("ReturnValuesOnConditionCheckFailure", "NONE")
        if wanted not in {"NONE", "ALL_OLD"}:
            raise Invalid(f"a refusal can't return {wanted}")
        return Write(key, before, before, held=False, seen=before if wanted == "ALL_OLD" else None)

    def _judged(self, key: str, before: Item | None, after: Item) -> Write:
        if size_of(after) > MAX_ITEM_BYTES:
            raise Invalid(f"the item would have {size_of(after)} bytes; {MAX_ITEM_BYTES} are allowed")
        for index in self._indexes:
            index.listed(after)
        return Write(key, before, after, held=True, seen=None)

    def at(self, body: Body) -> tuple[str, Item | None]:
        key = self.key_of(body["Key"])
        if len(body["Key"]) != 1:
            raise Invalid("a key has just its own attributes")
        return key, self._items.get(key)

    def key_of(self, attributes: Item) -> str:
        value = attributes.get(self.key, {})
        if "S" not in value or not value["S"] or len(value["S"].encode()) > MAX_KEY_BYTES:
            raise Invalid(f"a key is a text of 1 to {MAX_KEY_BYTES} bytes")
        if self._indexes and len(value["S"].encode()) > MAX_SORT_KEY_BYTES:
            raise Invalid(f"what an index is sorted by has at most {MAX_SORT_KEY_BYTES} bytes")
        return str(value["S"])
