"""Reporting what was used: sums of hours, from the documents in which they are filed and from the bucket itself.

An hour is in the bucket until it is folded, and then in its document; both are changed in one transaction. The bucket
is read before and after the documents: if an hour has left it meanwhile, all is read again, so that none is counted
twice or not at all. The listing may lag behind, and then so does the report.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from sluice.core.bounds import NS_PER_DAY, NS_PER_HOUR, NS_PER_SECOND
from sluice.core.documents import Kind
from sluice.core.errors import ConfigError, Conflict
from sluice.core.names import BucketKey, check_name, check_resource
from sluice.core.requests import Peek
from sluice.flow.documents import list_page
from sluice.flow.persist import sure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.bucket import Hour
    from sluice.flow.client import Client

SECONDS_PER_HOUR: Final = NS_PER_HOUR // NS_PER_SECOND
HOURS_PER_DAY: Final = NS_PER_DAY // NS_PER_HOUR
MAX_DAYS: Final = 366
"""The longest time that one report can cover."""

MAX_READINGS: Final = 5
"""How often all is read again because hours were filed meanwhile."""

LAST_SECOND: Final = 253_402_300_800
"""The year 9999 ends here; times past it are mistakes."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used of a limit in one hour, day or month (UTC) from ``start``, in seconds since the epoch.

    It is what was taken, less what was given back: a window in which more came back than was taken is below 0.
    """

    limit: str
    start: float
    amount: int


async def usage(
    client: Client, resource: str, entity: str, *, since: float | None, until: float | None, window: str
) -> list[Usage]:
    """What was used of each limit of a bucket, window by window, without those in which nothing was."""
    check_resource(resource)
    check_name(entity, "entity")
    if not isinstance(window, str) or window not in {"hour", "day", "month"}:
        raise ConfigError(f"window is 'hour', 'day' or 'month', not {window!r}")
    now_s = client.clock.now_ns() / NS_PER_SECOND
    last = now_s if until is None else _posix(until, "until")
    first = last - HOURS_PER_DAY * SECONDS_PER_HOUR if since is None else _posix(since, "since")
    if first > last:
        raise ConfigError(f"since={first} is after until={last}; a report goes from the earlier to the later")
    if last - first > MAX_DAYS * HOURS_PER_DAY * SECONDS_PER_HOUR:
        raise ConfigError(
            f"a report covers {MAX_DAYS} days at most; ask for since={since!r} to until={until!r} in parts"
        )
    key = BucketKey(await client.configuration.namespace_id(), entity, resource)
    sums: defaultdict[tuple[str, float], int] = defaultdict(int)
    for (limit, hour), amount in (await _hours(client, key)).items():
        if first // SECONDS_PER_HOUR <= hour <= last // SECONDS_PER_HOUR:
            sums[limit, _start(hour, window)] += amount
    return [Usage(limit, start, amount) for (limit, start), amount in sorted(sums.items()) if amount]


def _posix(seconds: float, what: str) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LAST_SECOND:
        raise ConfigError(f"{what} is a time in seconds since the epoch, as time.time() gives, not {seconds!r}")
    return seconds


def _start(hour: int, window: str) -> float:
    if window == "day":
        hour -= hour % HOURS_PER_DAY
    start = hour * SECONDS_PER_HOUR
    if window == "month":
        return datetime.fromtimestamp(start, UTC).replace(day=1, hour=0).timestamp()
    return float(start)


async def _hours(client: Client, key: BucketKey) -> dict[Hour, int]:
    """All hours of a bucket, filed or not."""
    asked = f"reading the usage of {key.resource}"
    before = await sure(client, client.store.peek, Peek(key), asked)
    for _ in range(MAX_READINGS):
        hours = await _filed_hours(client, key, asked)
        after = await sure(client, client.store.peek, Peek(key), asked)
        if before.image.usage.keys() <= after.image.usage.keys():
            return _added(hours, after.image.usage)
        before = after
    raise Conflict(f"{asked}: hours were filed each of {MAX_READINGS} times that it was read; try again")


async def _filed_hours(client: Client, key: BucketKey, asked: str) -> dict[Hour, int]:
    hours: dict[Hour, int] = {}
    after: str | None = None
    while True:
        page = await list_page(
            client, key.namespace, Kind.USAGE, asked, prefix=f"{key.entity}#{key.resource}#", after=after
        )
        for document in page.documents:
            entity, resource, limit, hour = document.key.id.rsplit("#", 3)
            if (entity, resource) == (key.entity, key.resource):
                hours[limit, int(hour)] = int(document.body)
        after = page.after
        if after is None:
            return hours


def _added(filed: Mapping[Hour, int], counted: Mapping[Hour, int]) -> dict[Hour, int]:
    return {hour: filed.get(hour, 0) + counted.get(hour, 0) for hour in {**filed, **counted}}
