"""Corrections: owing what was used beyond what was taken, giving back what was not, giving a turn up.

    owe, running      ADD f cost                  if i is what was counted in, and f > now
    owe, full         SET f = now + cost          if f is not there or f <= now
    give back         ADD f -cost                 if i is what was counted in; nothing, if the rate is not there
    give up           ADD f -cost                 if f and i are what the take left

There is no upper bound: a debt goes past the window. Tokens are counted in the interval that stands in the bucket, so
each shape names it, and a wrong guess of it costs one more write. Giving back never makes a rate: on a bucket that has
been forgotten, adding would start from nothing and mint.
"""

from collections.abc import Sequence
from typing import Final

from sluice.core import bucket as core
from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import Bucket
from sluice.core.requests import Delta, GaveUp, GiveUp, Settle, Settled, Unknown, Unreached
from sluice.stores.dynamodb.expressions import BucketWrite
from sluice.stores.dynamodb.pinning import pinned_write
from sluice.stores.dynamodb.rounds import Bench, Work
from sluice.stores.dynamodb.table import FULL_AT, INTERVAL, PAUSED_UNTIL, usage_attribute

TRIES: Final = 6
"""Writes that a correction or the end of a lease may try, each decided on the image that refused the one before."""

CONTENDED: Final = "others changed the bucket faster, several times in a row"


def settle(bench: Bench, request: Settle) -> Work[Settled | Unknown | Unreached]:
    """Correct the rates of a bucket, all in one write."""
    if not request.deltas:
        return Settled(bench.now_ns)
    image = bench.beliefs.get(request.key)
    if _names_twice(request.deltas):
        return (yield from _settle_pinned(bench, request))
    for _ in range(TRIES):
        write = BucketWrite(request.key)
        correct(write, request.deltas, image, bench.now_ns)
        answer = yield from bench.write(request.key, write)
        if isinstance(answer, Unknown | Unreached):
            return answer
        done, image = answer
        if done:
            return Settled(bench.now_ns)
    return Unreached(CONTENDED)


def _names_twice(deltas: Sequence[Delta]) -> bool:
    return len({delta.name for delta in deltas}) < len(deltas)


def _settle_pinned(bench: Bench, request: Settle) -> Work[Settled | Unknown | Unreached]:
    """The same where a rate is named twice: the order counts, so the core decides, on what was read."""
    image = yield from bench.read(request.key)
    for _ in range(TRIES):
        if isinstance(image, Unknown | Unreached):
            return image
        answer = yield from bench.write(
            request.key, pinned_write(request.key, image, core.settle(image, request.deltas, bench.now_ns))
        )
        if isinstance(answer, Unknown | Unreached):
            return answer
        done, image = answer
        if done:
            return Settled(bench.now_ns)
    return Unreached(CONTENDED)


def correct(write: BucketWrite, deltas: Sequence[Delta], image: Bucket | None, now_ns: int) -> None:
    """Add corrections to a write, in the shapes that an image suggests (None: nothing is believed)."""
    clock_ns = now_ns
    if any(delta.tokens > 0 for delta in deltas):
        clock_ns = _clock(write, image, now_ns)
    hour = now_ns // NS_PER_HOUR
    for delta in deltas:
        if delta.tokens > 0:
            _owe(write, delta, image, clock_ns)
        else:
            _give_back(write, delta, image)
        write.add(write.name(usage_attribute(delta.name, hour)), write.number(delta.tokens))


def _clock(write: BucketWrite, image: Bucket | None, now_ns: int) -> int:
    """The bucket's clock, on which the write is pinned in a pause."""
    paused = write.name(PAUSED_UNTIL)
    if image is not None and image.paused_until_ns > now_ns:
        write.only_if(f"{paused}={write.number(image.paused_until_ns)}")
        return image.paused_until_ns
    write.only_if(f"(attribute_not_exists({paused}) OR {paused}<={write.number(now_ns)})", exists=False)
    return now_ns


def _owe(write: BucketWrite, delta: Delta, image: Bucket | None, clock_ns: int) -> None:
    state = None if image is None else image.rates.get(delta.name)
    full_at, interval = write.name(FULL_AT + delta.name), write.name(INTERVAL + delta.name)
    interval_ns = delta.interval_ns if state is None else state.interval_ns
    cost_ns = delta.tokens * interval_ns
    stands, clock = write.number(interval_ns), write.number(clock_ns)
    if state is None:
        write.set(full_at, write.number(clock_ns + cost_ns))
        write.set(interval, stands)
        write.new_rate(delta.name)
        full = f"{full_at}<={clock} AND {interval}={stands}"
        write.only_if(f"(attribute_not_exists({full_at}) OR ({full}))", exists=False)
    elif state.full_at_ns <= clock_ns:
        write.set(full_at, write.number(clock_ns + cost_ns))
        write.only_if(f"{full_at}<={clock} AND {interval}={stands}")
    else:
        write.add(full_at, write.number(cost_ns))
        write.only_if(f"{full_at}>{clock} AND {interval}={stands}")


def _give_back(write: BucketWrite, delta: Delta, image: Bucket | None) -> None:
    state = None if image is None else image.rates.get(delta.name)
    full_at = write.name(FULL_AT + delta.name)
    if image is not None and state is None:
        write.only_if(f"attribute_not_exists({full_at})", exists=False)
        return
    interval_ns = delta.interval_ns if state is None else state.interval_ns
    write.add(full_at, write.number(delta.tokens * interval_ns))
    write.only_if(f"{write.name(INTERVAL + delta.name)}={write.number(interval_ns)}")


def give_up(bench: Bench, request: GiveUp) -> Work[GaveUp | Unknown | Unreached]:
    """Give a turn up, if nobody came behind it."""
    write = BucketWrite(request.key)
    full_at, interval = write.name(FULL_AT + request.name), write.name(INTERVAL + request.name)
    left, stands = write.number(request.left_full_at_ns), write.number(request.interval_ns)
    write.only_if(f"{full_at}={left} AND {interval}={stands}")
    write.add(full_at, write.number(-request.amount * request.interval_ns))
    hour = bench.now_ns // NS_PER_HOUR
    write.add(write.name(usage_attribute(request.name, hour)), write.number(-request.amount))
    answer = yield from bench.write(request.key, write)
    if isinstance(answer, Unknown | Unreached):
        return answer
    return GaveUp(bench.now_ns, returned=answer[0])
