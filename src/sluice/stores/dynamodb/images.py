"""What an item of the table says: a bucket or a document, read from the engine's own form of values."""

from typing import Any

from sluice.core.bucket import EMPTY, Bucket, Hour, RateState
from sluice.core.documents import Document, DocumentKey
from sluice.stores.dynamodb import table
from sluice.stores.dynamodb.table import BODY, INDEX_OF, INTERVAL, VERSION, kind_key
from sluice.stores.dynamodb.wire import Body

Value = dict[str, Any]
"""One value as the engine writes it, such as ``{"N": "12"}``."""


def number(value: int) -> Value:
    return {"N": str(value)}


def text(value: str) -> Value:
    return {"S": value}


def lease_map(entries: dict[str, int]) -> Value:
    return {"M": {entry: {"N": str(expires_ns)} for entry, expires_ns in entries.items()}}


def decode_bucket(item: Body | None) -> Bucket:
    """The bucket that an item holds; nothing there is a bucket that was never used."""
    if not item:
        return EMPTY
    rates: dict[str, RateState] = {}
    slots: dict[str, dict[str, int]] = {}
    usage: dict[Hour, int] = {}
    paused_until_ns = paused_total_ns = 0
    for attribute, value in item.items():
        match attribute[:2]:
            case table.FULL_AT:
                name = attribute[2:]
                rates[name] = RateState(int(value["N"]), int(item[INTERVAL + name]["N"]))
            case table.SLOTS:
                slots[attribute[2:]] = {entry: int(expires["N"]) for entry, expires in value["M"].items()}
            case table.USAGE:
                hour, _, name = attribute[2:].partition(":")
                usage[name, int(hour)] = int(value["N"])
            case table.PAUSED_UNTIL:
                paused_until_ns = int(value["N"])
            case table.PAUSED_TOTAL:
                paused_total_ns = int(value["N"])
    return Bucket(rates, slots, paused_until_ns, paused_total_ns, usage)


def decode_document(key: DocumentKey, item: Body | None) -> Document | None:
    """The document that an item holds."""
    if not item:
        return None
    start = len(kind_key(key.namespace, key.kind)) + 1
    under = {
        index: item[attribute]["S"][start:]
        for index, attribute in INDEX_OF.items()
        if index != "namespace" and attribute in item
    }
    return Document(key, item[BODY]["S"], item[VERSION]["S"], under)
