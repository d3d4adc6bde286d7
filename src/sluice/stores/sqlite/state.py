"""A bucket's state as one text: a line for each thing, its fields parted by tabs.

    p  paused_until  paused_total
    r  limit  full_at  interval
    s  limit  entry  expires_at  entry  expires_at ...
    u  limit  hour  amount

Names are printable, so no tab or line end is in them. What was written is read back equal, empty slot maps too. (JSON
takes three times as long to write and gains nothing: nobody but this module reads it.)
"""

from sluice.core.bucket import Bucket, Hour, RateState
from sluice.core.errors import ConfigError


def encode(bucket: Bucket) -> str:
    """The text of a bucket."""
    lines = []
    if bucket.paused_until_ns or bucket.paused_total_ns:
        lines.append(f"p\t{bucket.paused_until_ns}\t{bucket.paused_total_ns}")
    for name, state in bucket.rates.items():
        lines.append(f"r\t{name}\t{state.full_at_ns}\t{state.interval_ns}")
    for name, entries in bucket.slots.items():
        held = "".join(f"\t{entry}\t{expires_ns}" for entry, expires_ns in entries.items())
        lines.append(f"s\t{name}{held}")
    for (name, hour), amount in bucket.usage.items():
        lines.append(f"u\t{name}\t{hour}\t{amount}")
    return "\n".join(lines)


def decode(text: str) -> Bucket:
    """The bucket of a text."""
    rates: dict[str, RateState] = {}
    slots: dict[str, dict[str, int]] = {}
    usage: dict[Hour, int] = {}
    paused_until_ns = paused_total_ns = 0
    try:
        for line in text.split("\n") if text else ():
            kind, *fields = line.split("\t")
            if kind == "r":
                name, full_at, interval = fields
                rates[name] = RateState(int(full_at), int(interval))
            elif kind == "u":
                name, hour, amount = fields
                usage[name, int(hour)] = int(amount)
            elif kind == "s":
                slots[fields[0]] = {entry: int(at) for entry, at in zip(fields[1::2], fields[2::2], strict=True)}
            elif kind == "p":
                paused_until_ns, paused_total_ns = map(int, fields)
            else:
                raise ValueError(kind)
    except (ValueError, IndexError) as error:
        raise ConfigError(
            f"a bucket's state reads {text[:80]!r}, which Sluice did not write; delete that row, or restore the file"
        ) from error
    return Bucket(rates, slots, paused_until_ns, paused_total_ns, usage)
