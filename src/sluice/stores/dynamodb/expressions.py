"""One write to one item, put together from what changes and what must hold.

    SET, ADD, REMOVE      what changes
    conditions            all of them must hold, or nothing changes and the item comes back as it was

Names and values stand behind placeholders, each once however often it is used. The engine takes an expression of at
most 4,096 characters and 300 operators; `MAX_ENTRIES` keeps every write below both.
"""

from collections.abc import Mapping
from typing import Any, Final

from sluice.core.names import BucketKey
from sluice.stores.dynamodb.images import Value
from sluice.stores.dynamodb.table import KEY, RATES, bucket_key, bucket_listing
from sluice.stores.dynamodb.wire import Call, Operation

MAX_ENTRIES: Final = 50
"""Slots that one write names one by one. More are written as a whole map, pinned on the one that was seen."""


class Write:
    """A conditional update of one item, while it is being put together."""

    __slots__ = ("_adds", "_conditions", "_names", "_numbers", "_removes", "_sets", "_values", "exists", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.exists = False
        self._names: dict[str, str] = {}
        self._values: dict[str, Value] = {}
        self._numbers: dict[int, str] = {}
        self._sets: list[str] = []
        self._adds: list[str] = []
        self._removes: list[str] = []
        self._conditions: list[str] = []

    def name(self, attribute: str) -> str:
        """The placeholder of an attribute, or of an entry within one."""
        placeholder = self._names.get(attribute)
        if placeholder is None:
            placeholder = self._names[attribute] = f"#{len(self._names)}"
        return placeholder

    def entry(self, attribute: str, entry: str) -> str:
        """The path of an entry in a map."""
        return f"{self.name(attribute)}.{self.name(entry)}"

    def number(self, value: int) -> str:
        """The placeholder of a number, the same for the same one."""
        placeholder = self._numbers.get(value)
        if placeholder is None:
            placeholder = self._numbers[value] = self.value({"N": str(value)})
        return placeholder

    def value(self, value: Value) -> str:
        placeholder = f":{len(self._values)}"
        self._values[placeholder] = value
        return placeholder

    def set(self, path: str, value: str) -> None:
        self._sets.append(f"{path}={value}")

    def add(self, path: str, value: str) -> None:
        self._adds.append(f"{path} {value}")

    def remove(self, path: str) -> None:
        self._removes.append(path)

    def only_if(self, condition: str, *, exists: bool = True) -> None:
        """Require something; ``exists`` says that it can only hold of an item that is there."""
        self._conditions.append(condition)
        self.exists = self.exists or exists

    @property
    def changes(self) -> bool:
        return bool(self._sets or self._adds or self._removes)

    def body(self, table: str) -> dict[str, Any]:
        """The update as the engine reads it, alone or in a transaction."""
        update = ""
        if self._sets:
            update = f"SET {','.join(self._sets)} "
        if self._removes:
            update += f"REMOVE {','.join(self._removes)} "
        if self._adds:
            update += f"ADD {','.join(self._adds)}"
        body: dict[str, Any] = {
            "TableName": table,
            "Key": {KEY: {"S": self.key}},
            "UpdateExpression": update,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if self._conditions:
            body["ConditionExpression"] = " AND ".join(self._conditions)
        if self._names:
            body["ExpressionAttributeNames"] = {placeholder: name for name, placeholder in self._names.items()}
        if self._values:
            body["ExpressionAttributeValues"] = self._values
        return body

    def call(self, table: str) -> Call:
        body = self.body(table)
        body["ReturnValues"] = "ALL_NEW"
        return Call(Operation.UPDATE_ITEM, body)


class BucketWrite(Write):
    """A write to a bucket. One that may make the bucket has it listed, too."""

    __slots__ = ("_bucket", "_new_rates")

    def __init__(self, key: BucketKey) -> None:
        super().__init__(bucket_key(key))
        self._bucket = key
        self._new_rates: list[str] = []

    def new_rate(self, name: str) -> None:
        """Note a rate that may not have been in the bucket before."""
        self._new_rates.append(name)

    def body(self, table: str) -> dict[str, Any]:
        if self._new_rates:
            self.add(self.name(RATES), self.value({"SS": self._new_rates}))
        if not self.exists:
            for attribute, value in bucket_listing(self._bucket).items():
                self.set(self.name(attribute), self.value({"S": value}))
        return super().body(table)


def get_call(table: str, key: str) -> Call:
    """Read one item as of now."""
    body: Mapping[str, Any] = {"TableName": table, "Key": {KEY: {"S": key}}, "ConsistentRead": True}
    return Call(Operation.GET_ITEM, body)
