"""Filing usage: past hours leave the bucket and reach their documents in one transaction.

The bucket's part names each hour with the amount that was seen, the documents' parts the version and body. So an hour
is filed once, however many fold at the same time; who comes second reads again. A reply that is lost leaves nothing to
do: whoever folds next finds the hours gone, or still there.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sluice.core import bucket as core
from sluice.core.bucket import Hour
from sluice.core.documents import Document, DocumentKey, Expect, Version
from sluice.core.requests import Fold, Folded, Unknown, Unreached
from sluice.core.usage import file_hours, hour_key
from sluice.stores.dynamodb.correcting import CONTENDED, TRIES
from sluice.stores.dynamodb.documents import get, put_update, transact
from sluice.stores.dynamodb.expressions import BucketWrite
from sluice.stores.dynamodb.rounds import Bench, Work
from sluice.stores.dynamodb.table import BODY, usage_attribute
from sluice.stores.dynamodb.wire import Answered, Body, ConditionFailed

MAX_HOURS: Final = 24
"""Hours of limits that one transaction files."""

MAX_TRANSACTIONS: Final = 64


def fold(bench: Bench, request: Fold, token: Callable[[], str]) -> Work[Folded | Unknown | Unreached]:
    """Move the usage of past hours out of a bucket."""
    filed = tries = 0
    for _ in range(MAX_TRANSACTIONS):
        image = yield from bench.read(request.key)
        if isinstance(image, Unknown | Unreached):
            return image
        _, past = core.fold(image, bench.now_ns)
        if not past:
            break
        some = dict(list(past.items())[:MAX_HOURS])
        found = yield from get(bench.table, [hour_key(request.key, hour) for hour in some])
        if isinstance(found, Unknown | Unreached):
            return found
        stored = {document.key: document for document in found if document is not None}
        documents = file_hours(request.key, some, stored.get, bench.now_ns)
        actions = [_removal(bench.table, request, some), *(_filing(bench.table, d, stored) for d in documents)]
        reply = yield from transact(bench.table, actions, token())
        if isinstance(reply, Answered):
            filed += len(some)
            if len(some) == len(past):
                kept = {hour: amount for hour, amount in image.usage.items() if hour not in some}
                bench.beliefs.saw(request.key, replace(image, usage=kept))
                break
        elif isinstance(reply, ConditionFailed):
            tries += 1
            if tries >= TRIES:
                return Unreached(CONTENDED)
        else:
            return reply
    return Folded(bench.now_ns, filed)


def _removal(table: str, request: Fold, past: Mapping[Hour, int]) -> Body:
    write = BucketWrite(request.key)
    for hour, amount in past.items():
        path = write.name(usage_attribute(*hour))
        write.only_if(f"{path}={write.number(amount)}")
        write.remove(path)
    return {"Update": write.body(table)}


def _filing(table: str, document: Document, stored: Mapping[DocumentKey, Document]) -> Body:
    before = stored.get(document.key)
    if before is None:
        return {"Update": put_update(document, Expect.ABSENT).body(table)}
    update = put_update(document, Version(before.version))
    update.only_if(f"{update.name(BODY)}={update.value({'S': before.body})}")
    return {"Update": update.body(table)}
