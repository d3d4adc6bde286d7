"""One request on loaded buckets: what every store does that loads state, applies the core and saves."""

from collections.abc import Callable
from typing import assert_never

from sluice.core import bucket as core
from sluice.core.bucket import Bucket, Hour
from sluice.core.names import BucketKey
from sluice.core.requests import (
    BucketOutcome,
    BucketRequest,
    Fold,
    Folded,
    GiveUp,
    Pause,
    Paused,
    Peek,
    Peeked,
    Reap,
    Release,
    Renew,
    Repair,
    Settle,
    Settled,
    Take,
)

Changes = dict[BucketKey, Bucket]


def decide(
    request: BucketRequest, load: Callable[[BucketKey], Bucket], now_ns: int
) -> tuple[Changes, dict[Hour, int], BucketOutcome]:
    """Apply a request: the buckets that changed, usage of past hours to be filed (for a fold), and the answer."""
    if isinstance(request, Take):
        before = [load(part.key) for part in request.parts]
        after, outcome = core.take(before, request, now_ns)
        keys = [part.key for part in request.parts]
        changed = {k: new for k, old, new in zip(keys, before, after, strict=True) if new is not old}
        return changed, {}, outcome
    before_one = load(request.key)
    after_one, filed, answer = _decide_one(request, before_one, now_ns)
    return ({request.key: after_one} if after_one is not before_one else {}), filed, answer


def _decide_one(  # noqa: PLR0911 - one a verb
    request: Settle | GiveUp | Release | Renew | Reap | Peek | Pause | Fold | Repair, bucket: Bucket, now_ns: int
) -> tuple[Bucket, dict[Hour, int], BucketOutcome]:
    match request:
        case Settle():
            return core.settle(bucket, request.deltas, now_ns), {}, Settled(now_ns)
        case GiveUp():
            after, gave_up = core.give_up(bucket, request, now_ns)
            return after, {}, gave_up
        case Release():
            after, released = core.release(bucket, request, now_ns)
            return after, {}, released
        case Renew():
            after, renewed = core.renew(bucket, request, now_ns)
            return after, {}, renewed
        case Reap():
            after, reaped = core.reap(bucket, request.seen, now_ns)
            return after, {}, reaped
        case Peek():
            return bucket, {}, Peeked(now_ns, bucket)
        case Pause():
            after = core.pause(bucket, request.for_ns, now_ns)
            return after, {}, Paused(now_ns, after.paused_until_ns)
        case Fold():
            after, past = core.fold(bucket, now_ns)
            return after, past, Folded(now_ns, len(past))
        case Repair():
            after, repaired = core.repair(bucket, request, now_ns)
            return after, {}, repaired
        case _:  # pragma: no cover
            assert_never(request)
