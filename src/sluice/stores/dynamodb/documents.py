"""Documents: read as of now, written on conditions, several all or nothing.

One is written by a conditional update of its item. Several go in one transaction, which costs twice as much. A
transaction carries a token of its own, so one whose reply was lost is sent once more: the engine knows the token and
tells what became of it. A single write in doubt stays in doubt.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from sluice.core.documents import (
    Condition,
    Document,
    DocumentKey,
    Expect,
    Mismatch,
    Put,
    Stored,
    Version,
    key_of,
)
from sluice.core.documents import Write as DocumentWrite
from sluice.core.errors import ConfigError
from sluice.core.requests import Unknown, Unreached
from sluice.stores.dynamodb.expressions import Write
from sluice.stores.dynamodb.images import decode_document
from sluice.stores.dynamodb.rounds import Work, failed
from sluice.stores.dynamodb.table import BODY, INDEX_OF, KEY, VERSION, document_key, document_listing
from sluice.stores.dynamodb.wire import Answered, Body, Call, ConditionFailed, Operation

MAX_READ: Final = 100
"""Items that one call reads."""

MAX_READS: Final = 8
"""How often what the engine left out of a reply is asked for again."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read_items(table: str, keys: Sequence[str]) -> Work[dict[str, Body] | Unknown | Unreached]:
    """The items that are there, by key, as of after every write acknowledged before."""
    found: dict[str, Body] = {}
    unread: list[Any] = [{KEY: {"S": key}} for key in dict.fromkeys(keys)]
    for _ in range(MAX_READS + len(unread) // MAX_READ):
        if not unread:
            return found
        asked, unread = unread[:MAX_READ], unread[MAX_READ:]
        reply = yield Call(Operation.BATCH_GET_ITEM, {"RequestItems": {table: {"Keys": asked, "ConsistentRead": True}}})
        if not isinstance(reply, Answered):
            return failed(reply)
        for item in reply.body["Responses"].get(table, ()):
            found[item[KEY]["S"]] = item
        left_out = reply.body.get("UnprocessedKeys", {})
        unread += left_out.get(table, {}).get("Keys", ())
    return found if not unread else Unreached(f"{len(unread)} of {len(keys)} items were left out of every reply")


def get(table: str, keys: Sequence[DocumentKey]) -> Work[list[Document | None] | Unknown | Unreached]:
    """Documents, each in its place."""
    found = yield from read_items(table, [document_key(key) for key in keys])
    if isinstance(found, Unknown | Unreached):
        return found
    return [decode_document(key, found.get(document_key(key))) for key in keys]


# --- writing ----------------------------------------------------------------------------------------------------------


def write(
    table: str, writes: Sequence[DocumentWrite], token: Callable[[], str]
) -> Work[Stored | Mismatch | Unknown | Unreached]:
    """Put and delete, all or nothing."""
    if not writes:
        return Stored()
    keys = [key_of(item) for item in writes]
    if len(set(keys)) < len(keys):
        raise ConfigError("documents written together must be different ones; write the same one in a call of its own")
    if len(writes) == 1:
        return (yield from _write_one(table, writes[0]))
    reply = yield from transact(table, [_as_action(table, item) for item in writes], token())
    if isinstance(reply, ConditionFailed):
        return Mismatch(keys[first_failed(reply)])
    return Stored() if isinstance(reply, Answered) else reply


def _write_one(table: str, item: DocumentWrite) -> Work[Stored | Mismatch | Unknown | Unreached]:
    ((operation, body),) = _as_action(table, item).items()
    one = Operation.UPDATE_ITEM if operation == "Update" else Operation.DELETE_ITEM
    reply = yield Call(one, body)
    if isinstance(reply, ConditionFailed):
        return Mismatch(key_of(item))
    return Stored() if isinstance(reply, Answered) else reply


def transact(table: str, actions: Sequence[Body], token: str) -> Work[Answered | ConditionFailed | Unknown | Unreached]:
    """Send a transaction, once more if its reply was lost."""
    call = Call(Operation.TRANSACT_WRITE_ITEMS, {"TransactItems": list(actions), "ClientRequestToken": token})
    reply = yield call
    if isinstance(reply, Unknown):
        again = yield call
        # Not reached the second time, the first may have been applied all the same.
        reply = reply if isinstance(again, Unreached) else again
    return reply


def first_failed(reply: ConditionFailed) -> int:
    """Which of a transaction's writes stood in the way."""
    for number, (code, _) in enumerate(reply.reasons):
        if code == "ConditionalCheckFailed":
            return number
    return 0


def _as_action(table: str, item: DocumentWrite) -> dict[str, Any]:
    """A write as part of a transaction, or as a call of its own."""
    if isinstance(item, Put):
        return {"Update": put_update(item.document, item.expect).body(table)}
    body: dict[str, Any] = {"TableName": table, "Key": {KEY: {"S": document_key(item.key)}}}
    write_of = Write(document_key(item.key))
    _expect(write_of, item.expect)
    conditions = write_of.body(table)
    for part in ("ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"):
        if part in conditions:
            body[part] = conditions[part]
    return {"Delete": body}


def put_update(document: Document, expect: Condition) -> Write:
    """A document as it must be, on its condition."""
    update = Write(document_key(document.key))
    update.set(update.name(BODY), update.value({"S": document.body}))
    update.set(update.name(VERSION), update.value({"S": document.version}))
    listed = document_listing(document.key, document.under)
    for attribute in INDEX_OF.values():
        if attribute in listed:
            update.set(update.name(attribute), update.value({"S": listed[attribute]}))
        else:
            update.remove(update.name(attribute))
    _expect(update, expect)
    return update


def _expect(update: Write, expect: Condition) -> None:
    if isinstance(expect, Version):
        update.only_if(f"{update.name(VERSION)}={update.value({'S': expect.text})}")
    elif expect is Expect.ABSENT:
        update.only_if(f"attribute_not_exists({update.name(KEY)})")
