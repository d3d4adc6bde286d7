"""Pauses, and the repair of a bucket: what shifts all rates of a bucket at once.

    pause    for each rate that is there: ADD f shift if f > now', else SET f = now' + shift if f <= now'
             p = until                    if the pause, and the list of rates, are as they were seen

Takes go on meanwhile and don't stand in the way, as long as no rate runs dry or full. Which rates there are is kept in
the bucket, because a condition can't say "and no other": one that was made a moment ago must be shifted as well.
"""

from sluice.core import bucket as core
from sluice.core.bucket import Bucket
from sluice.core.names import BucketKey
from sluice.core.requests import Pause, Paused, Repair, Repaired, Unknown, Unreached
from sluice.stores.dynamodb.correcting import CONTENDED, TRIES
from sluice.stores.dynamodb.expressions import BucketWrite
from sluice.stores.dynamodb.pinning import pin_known_rates, pinned_write
from sluice.stores.dynamodb.rounds import Bench, Work
from sluice.stores.dynamodb.table import FULL_AT, PAUSED_TOTAL, PAUSED_UNTIL


def pause(bench: Bench, request: Pause) -> Work[Paused | Unknown | Unreached]:
    """Stop a bucket's clock for a while."""
    image = yield from bench.read(request.key)
    for _ in range(TRIES):
        if isinstance(image, Unknown | Unreached):
            return image
        after = core.pause(image, request.for_ns, bench.now_ns)
        if after is image:
            return Paused(bench.now_ns, image.paused_until_ns)
        answer = yield from bench.write(request.key, _shift(request.key, image, after, bench.now_ns))
        if isinstance(answer, Unknown | Unreached):
            return answer
        done, image = answer
        if done:
            return Paused(bench.now_ns, after.paused_until_ns)
    return Unreached(CONTENDED)


def _shift(key: BucketKey, seen: Bucket, decided: Bucket, now_ns: int) -> BucketWrite:
    write = BucketWrite(key)
    clock_ns = seen.clock_ns(now_ns)
    shift_ns = decided.paused_total_ns - seen.paused_total_ns
    clock, shift, until = (write.number(value) for value in (clock_ns, shift_ns, decided.paused_until_ns))
    paused = write.name(PAUSED_UNTIL)
    if seen.paused_until_ns > now_ns:
        write.only_if(f"{paused}={clock}")
    else:
        write.only_if(f"(attribute_not_exists({paused}) OR {paused}<={clock})", exists=False)
    write.set(paused, until)
    write.add(write.name(PAUSED_TOTAL), shift)
    for name, state in seen.rates.items():
        full_at = write.name(FULL_AT + name)
        if state.full_at_ns > clock_ns:
            write.add(full_at, shift)
            write.only_if(f"{full_at}>{clock}")
        else:
            write.set(full_at, until)
            write.only_if(f"{full_at}<={clock}")
    pin_known_rates(write, seen)
    return write


def repair(bench: Bench, request: Repair) -> Work[Repaired | Unknown | Unreached]:
    """Take back what a clock far ahead has left in a bucket."""
    image = yield from bench.read(request.key)
    for _ in range(TRIES):
        if isinstance(image, Unknown | Unreached):
            return image
        after, repaired = core.repair(image, request, bench.now_ns)
        if after is image:
            return repaired
        answer = yield from bench.write(request.key, pinned_write(request.key, image, after))
        if isinstance(answer, Unknown | Unreached):
            return answer
        done, image = answer
        if done:
            return repaired
    return Unreached(CONTENDED)
