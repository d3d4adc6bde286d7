"""A write that brings a bucket from an image that was seen to one that was decided, if it is still as it was seen.

It is pinned on what it changes and on nothing else, so it is for what few do at a time: counting a limit anew, a
repair, a correction that names a limit twice. What many do at a time has shapes that don't mind each other.
"""

from sluice.core.bucket import Bucket
from sluice.core.names import BucketKey
from sluice.stores.dynamodb.charging import pin_rate, set_rate
from sluice.stores.dynamodb.expressions import BucketWrite
from sluice.stores.dynamodb.images import lease_map
from sluice.stores.dynamodb.table import (
    FULL_AT,
    PAUSED_TOTAL,
    PAUSED_UNTIL,
    RATES,
    SLOTS,
    usage_attribute,
)


def pinned_write(key: BucketKey, seen: Bucket, decided: Bucket) -> BucketWrite:
    """The difference between two images of a bucket, on condition of the first."""
    write = BucketWrite(key)
    for name, state in decided.rates.items():
        was = seen.rates.get(name)
        if was is None:
            write.only_if(f"attribute_not_exists({write.name(FULL_AT + name)})", exists=False)
            write.new_rate(name)
        elif was != state:
            pin_rate(write, name, was)
        if was != state:
            set_rate(write, name, state)
    for name, entries in decided.slots.items():
        if entries != seen.slots.get(name):
            path = write.name(SLOTS + name)
            write.only_if(f"{path}={write.value(lease_map(dict(seen.slots[name])))}")
            write.set(path, write.value(lease_map(dict(entries))))
    for hour, amount in decided.usage.items():
        if amount != seen.usage.get(hour):
            _pin_number(write, usage_attribute(*hour), seen.usage.get(hour), amount)
    if (seen.paused_until_ns, seen.paused_total_ns) != (decided.paused_until_ns, decided.paused_total_ns):
        _pin_number(write, PAUSED_UNTIL, seen.paused_until_ns or None, decided.paused_until_ns)
        shift_ns = decided.paused_total_ns - seen.paused_total_ns
        write.add(write.name(PAUSED_TOTAL), write.number(shift_ns))
        pin_known_rates(write, seen)
    return write


def pin_known_rates(write: BucketWrite, seen: Bucket) -> None:
    """Write only if the bucket has no other rates than those that were seen: all of them are shifted together."""
    rates = write.name(RATES)
    if seen.rates:
        write.only_if(f"{rates}={write.value({'SS': sorted(seen.rates)})}")
    else:
        write.only_if(f"attribute_not_exists({rates})", exists=False)


def _pin_number(write: BucketWrite, attribute: str, seen: int | None, decided: int) -> None:
    path = write.name(attribute)
    if seen is None:
        write.only_if(f"attribute_not_exists({path})", exists=False)
    else:
        write.only_if(f"{path}={write.number(seen)}")
    if seen != decided:
        write.set(path, write.number(decided))
