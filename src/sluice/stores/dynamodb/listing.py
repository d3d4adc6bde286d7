"""Lists: what there is of a kind, all of it or under a name, in the order of its keys, a page at a time.

They are read from the indexes, which follow the table by moments: a thing just made may be missing, one just removed
may still be named. Documents are then read themselves, so what is listed of them is as of now. An index holds keys of
under a kilobyte, and a page of them always fits into one reply.
"""

from collections.abc import Sequence
from typing import Any, Final

from sluice.core.documents import PAGE_SIZE, BucketPage, Document, DocumentKey, Kind, Page
from sluice.core.errors import ConfigError
from sluice.core.requests import Unknown, Unreached
from sluice.stores.dynamodb.documents import read_items
from sluice.stores.dynamodb.images import decode_document
from sluice.stores.dynamodb.rounds import Work, failed
from sluice.stores.dynamodb.table import BUCKET, INDEX_OF, KEY, document_key, kind_key
from sluice.stores.dynamodb.wire import Answered, Call, Operation

AFTER_ALL: Final = "\U0010ffff"
"""Sorts after every character that may stand in a name."""

MAX_PAGES: Final = 50
"""Pages of an index in a row of which no document was left, before a list gives up."""

Under = tuple[str, str] | None


def buckets(table: str, namespace: str, under: Under, after: str | None) -> Work[BucketPage | Unknown | Unreached]:
    """Bucket keys as text within their namespace."""
    found = yield from _keys(table, kind_key(namespace, BUCKET), under, prefix="", after=after)
    if isinstance(found, Unknown | Unreached):
        return found
    ids, more = found
    return BucketPage(tuple(ids), ids[-1] if more else None)


def documents(
    table: str, namespace: str, kind: Kind, under: Under, *, prefix: str, after: str | None
) -> Work[Page | Unknown | Unreached]:
    """Documents by id."""
    for _ in range(MAX_PAGES):
        found = yield from _keys(table, kind_key(namespace, kind), under, prefix=prefix, after=after)
        if isinstance(found, Unknown | Unreached):
            return found
        ids, more = found
        keys = [DocumentKey(namespace, kind, document_id) for document_id in ids]
        items = yield from read_items(table, [document_key(key) for key in keys])
        if isinstance(items, Unknown | Unreached):
            return items
        read = [decode_document(key, items.get(document_key(key))) for key in keys]
        page = tuple(document for document in read if document is not None and _is_under(document, under))
        after = ids[-1] if more else None
        if page or after is None:
            return Page(page, after)
    return Unreached(f"the index names {MAX_PAGES * PAGE_SIZE} documents in a row that are gone; it lags far behind")


def _is_under(document: Document, under: Under) -> bool:
    return under is None or document.under.get(under[0]) == under[1]


def _keys(
    table: str, listed: str, under: Under, *, prefix: str, after: str | None
) -> Work[tuple[list[str], bool] | Unknown | Unreached]:
    """A page of ids from an index, and whether there are more."""
    index = "namespace" if under is None else under[0]
    if index not in INDEX_OF or (under is not None and index == "namespace"):
        raise ConfigError(f"things are listed by 'entity' or 'resource', not by {index!r}")
    start = f"{listed}#"
    value = listed if under is None else f"{listed}#{under[1]}"
    first = prefix if after is None else max(prefix, after)
    ids: list[str] = []
    key: Any = None
    while len(ids) <= PAGE_SIZE:
        call = _query(table, index, value, (start + first, start + prefix + AFTER_ALL), key)
        reply = yield call
        if not isinstance(reply, Answered):
            return failed(reply)
        ids += _ids(reply.body["Items"], start, after)
        key = reply.body.get("LastEvaluatedKey")
        if key is None:
            break
    return ids[:PAGE_SIZE], len(ids) > PAGE_SIZE


def _ids(items: Sequence[Any], start: str, after: str | None) -> list[str]:
    ids = [item[KEY]["S"][len(start) :] for item in items]
    return ids if after is None else [item for item in ids if item > after]


def _query(table: str, index: str, value: str, between: tuple[str, str], key: Any) -> Call:
    body: dict[str, Any] = {
        "TableName": table,
        "IndexName": index,
        "KeyConditionExpression": "#listed = :listed AND #key BETWEEN :first AND :last",
        "ExpressionAttributeNames": {"#listed": INDEX_OF[index], "#key": KEY},
        "ExpressionAttributeValues": {
            ":listed": {"S": value},
            ":first": {"S": between[0]},
            ":last": {"S": between[1]},
        },
        # One for the thing that the page before ended with, one to know whether there are more.
        "Limit": PAGE_SIZE + 2,
    }
    if key is not None:
        body["ExclusiveStartKey"] = key
    return Call(Operation.QUERY, body)
