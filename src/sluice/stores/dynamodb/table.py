"""The one table: how it is made, where a bucket or a document lies in it, and what its attributes are called.

    pk                 {namespace}/BUCKET#{entity}#{resource}#{shard}      or      {namespace}/{KIND}#{id}
    n, e, r            {namespace}/{KIND}, and with #{entity} or #{resource} behind: what the indexes are sorted by

    a bucket           f:rpm  i:rpm             full_at and interval of a rate
                       s:concurrent             the leases of a slots limit: a map, entry -> expires_at
                       u:490000:rpm             usage of an hour
                       p, q                     paused until, paused in total
                       k                        the names of the rates that are there
    a document         b, v                     body and version

Everything of a bucket is a top-level attribute, since a condition on a path into a map that is not there can't be
written together with its making. Namespaces are opaque and hold no ``/``, kinds no ``#``, and what follows the kind is
the whole rest; so no two things share a key. The longest key, an hour of the longest names, takes about 800 bytes.

Three indexes list things by namespace, entity and resource, in the order of their keys. They hold keys only, and no
write to something that exists changes one, so they cost a write when it is made and when it goes.
"""

from collections.abc import Mapping
from typing import Any, Final

from sluice.core.documents import DocumentKey, Kind
from sluice.core.names import BucketKey

KEY: Final = "pk"
NAMESPACE: Final = "n"
ENTITY: Final = "e"
RESOURCE: Final = "r"

PAUSED_UNTIL: Final = "p"
PAUSED_TOTAL: Final = "q"
RATES: Final = "k"
FULL_AT: Final = "f:"
INTERVAL: Final = "i:"
SLOTS: Final = "s:"
USAGE: Final = "u:"

BODY: Final = "b"
VERSION: Final = "v"

BUCKET: Final = "BUCKET"
"""The kind of things that buckets are; documents have theirs."""

INDEX_OF: Final[Mapping[str, str]] = {"namespace": NAMESPACE, "entity": ENTITY, "resource": RESOURCE}
"""The indexes and what each is sorted by."""


def definition(table: str) -> dict[str, Any]:
    """The body of ``CreateTable``: on demand, one string key, three indexes of keys."""
    return {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"} for name in (KEY, NAMESPACE, ENTITY, RESOURCE)
        ],
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index,
                "KeySchema": [
                    {"AttributeName": attribute, "KeyType": "HASH"},
                    {"AttributeName": KEY, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
            for index, attribute in INDEX_OF.items()
        ],
    }


def kind_key(namespace: str, kind: Kind | str) -> str:
    """What everything of a kind in a namespace is listed under."""
    return f"{namespace}/{kind}"


def bucket_key(key: BucketKey) -> str:
    return f"{key.namespace}/{BUCKET}#{key.entity}#{key.resource}#{key.shard}"


def document_key(key: DocumentKey) -> str:
    return f"{key.namespace}/{key.kind}#{key.id}"


def bucket_listing(key: BucketKey) -> dict[str, str]:
    """What a bucket is listed under, by the attributes of the indexes."""
    kind = kind_key(key.namespace, BUCKET)
    return {NAMESPACE: kind, ENTITY: f"{kind}#{key.entity}", RESOURCE: f"{kind}#{key.resource}"}


def document_listing(key: DocumentKey, under: Mapping[str, str]) -> dict[str, str]:
    """What a document is listed under."""
    kind = kind_key(key.namespace, key.kind)
    return {NAMESPACE: kind} | {INDEX_OF[name]: f"{kind}#{value}" for name, value in under.items()}


def usage_attribute(name: str, hour: int) -> str:
    return f"{USAGE}{hour}:{name}"
