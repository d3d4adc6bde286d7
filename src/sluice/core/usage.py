"""Usage by the hour: what was taken of each limit, counted where it was granted, settled or undone.

A bucket counts its hours in itself. `fold` moves past hours into documents, one for each (entity, resource, limit,
hour), whose body is the amount. Days and months are sums of hours. An hour may be negative: a give-back is counted in
the hour in which it happened.
"""

from collections.abc import Callable, Mapping
from typing import Final

from sluice.core.bucket import Hour
from sluice.core.documents import Document, DocumentKey, Kind
from sluice.core.names import BucketKey

FOLD_PAST_HOURS: Final = 3
"""A client that sees more past hours than this in a bucket folds them."""


def hour_key(key: BucketKey, hour: Hour) -> DocumentKey:
    """The document of one limit's hour. The hour has a fixed width, so ids sort by time."""
    name, number = hour
    return DocumentKey(key.namespace, Kind.USAGE, f"{key.entity}#{key.resource}#{name}#{number:09d}")


def file_hours(
    key: BucketKey, past: Mapping[Hour, int], stored: Callable[[DocumentKey], Document | None], now_ns: int
) -> list[Document]:
    """The hour documents as they must be once ``past`` is added to what is stored."""
    filed = []
    for hour, amount in past.items():
        document_key = hour_key(key, hour)
        before = stored(document_key)
        total = amount + (int(before.body) if before else 0)
        under = {"entity": key.entity, "resource": key.resource}
        filed.append(Document(document_key, str(total), version=str(now_ns), under=under))
    return filed


def past_hours(usage: Mapping[Hour, int], this_hour: int) -> int:
    """How many past hours a bucket still counts in itself."""
    return len({number for _, number in usage if number < this_hour})
