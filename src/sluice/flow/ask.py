"""What a caller asks for, read from the public arguments: seconds become nanoseconds, names and bounds are checked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.core.bounds import MAX_BUCKETS, MAX_TTL_NS, MAX_TURN_NS, MAX_WAIT_NS, NS_PER_MS, NS_PER_SECOND, PPM
from sluice.core.errors import ConfigError
from sluice.core.limits import Limit, check_limits
from sluice.core.names import EVERYONE, check_lease_id, check_name, split_resource
from sluice.core.needs import Wanted, check_amounts
from sluice.core.requests import Need


@dataclass(frozen=True, slots=True)
class Ask:
    """A take as the caller wants it, before any limit is known."""

    wanted: tuple[Wanted, ...]
    wait_ns: int = 0
    turn_only: bool = False
    ttl_ns: int | None = None
    headroom_ppm: int = 0
    lease_id: str | None = None
    limits: tuple[Limit, ...] | None = None
    keep_alive: bool = True

    @property
    def text(self) -> str:
        """The ask in words, for messages."""
        return ", ".join(_wanted_text(wanted) for wanted in self.wanted)


def _wanted_text(wanted: Wanted) -> str:
    resource = wanted.resource if wanted.only is None else f"{wanted.resource}#{wanted.only}"
    amounts = f" {dict(wanted.amounts)}" if wanted.amounts else ""
    entity = "" if wanted.entity == EVERYONE else f" for entity {wanted.entity!r}"
    return f"{resource}{amounts}{entity}"


def read_wanted(resource: str | Sequence[Need], need: Mapping[str, int] | None, entity: str) -> tuple[Wanted, ...]:
    """One resource with its need, or a list of needs."""
    if isinstance(resource, str):
        return (_wanted(resource, need, entity),)
    if need is not None or entity != EVERYONE:
        raise ConfigError("with a list of Need, put the amounts and the entity into each Need")
    if not isinstance(resource, Sequence) or not resource:
        raise ConfigError(f"ask for a resource by name or with a list of Need; got {resource!r}")
    if len(resource) > MAX_BUCKETS:
        raise ConfigError(f"a take of {len(resource)} needs touches more buckets than are allowed, {MAX_BUCKETS}")
    wanted = []
    for item in resource:
        if not isinstance(item, Need):
            raise ConfigError(f"{item!r} is not a Need; write Need('openai', {{'tpm': 1200}})")
        wanted.append(_wanted(item.resource, item.amounts, item.entity))
    return tuple(wanted)


def _wanted(resource: str, need: Mapping[str, int] | None, entity: str) -> Wanted:
    name, only = split_resource(resource)
    check_name(entity, "entity")
    amounts = {} if need is None else need
    check_amounts(amounts, name)
    return Wanted(name, entity, amounts, only)


def read_ask(
    resource: str | Sequence[Need],
    need: Mapping[str, int] | None,
    *,
    entity: str,
    wait: float = 0,
    ttl: float | None = None,
    headroom: float = 0.0,
    lease_id: str | None = None,
    limits: Sequence[Limit] | None = None,
    keep_alive: bool = True,
) -> Ask:
    """Read the arguments of ``acquire``."""
    wanted = read_wanted(resource, need, entity)
    if limits is not None and len(wanted) > 1:
        raise ConfigError("limits= goes with one resource, not with a list of Need; use set_limits for several")
    if isinstance(headroom, bool) or not isinstance(headroom, int | float) or not 0 <= headroom < 1:
        raise ConfigError(f"headroom is the share left to others, from 0 up to but not 1; got {headroom!r}")
    if not isinstance(keep_alive, bool):
        raise ConfigError(f"keep_alive is True or False, not {keep_alive!r}")
    return Ask(
        wanted,
        wait_ns=seconds_ns(wait, "wait", most_ns=MAX_WAIT_NS),
        ttl_ns=None if ttl is None else _ttl_ns(ttl),
        headroom_ppm=round(headroom * PPM),
        lease_id=None if lease_id is None else check_lease_id(lease_id),
        limits=None if limits is None else check_limits(limits),
        keep_alive=keep_alive,
    )


def read_turn(
    resource: str, need: Mapping[str, int] | None, *, entity: str, within: float, limits: Sequence[Limit] | None
) -> Ask:
    """Read the arguments of ``reserve``."""
    return Ask(
        read_wanted(resource, need, entity),
        wait_ns=seconds_ns(within, "within", most_ns=MAX_TURN_NS),
        turn_only=True,
        limits=None if limits is None else check_limits(limits),
    )


def seconds_ns(seconds: float, what: str, *, most_ns: int) -> int:
    """A number of seconds from 0 as nanoseconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
        raise ConfigError(f"{what} is a number of seconds from 0, not {seconds!r}")
    if seconds > most_ns / NS_PER_SECOND:
        raise ConfigError(f"{what}={seconds} is past the most that is allowed, {most_ns // NS_PER_SECOND} seconds")
    return round(seconds * NS_PER_SECOND)


def _ttl_ns(ttl: float) -> int:
    ttl_ns = seconds_ns(ttl, "ttl", most_ns=MAX_TTL_NS)
    if ttl_ns < NS_PER_MS:
        raise ConfigError(f"ttl must be at least a millisecond, got {ttl!r}")
    return ttl_ns
