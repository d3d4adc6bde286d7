"""From what a caller needs and what limits there are to what is charged: pure arithmetic, and the refusal of bad input.

A limit that is not named takes its cost. A name must be known to at least one bucket; each bucket takes what it has a
limit for. When two needs meet in one bucket (a common ancestor), their amounts add up.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from sluice.core.bounds import MAX_AMOUNT, MAX_BUCKETS, PPM
from sluice.core.errors import ConfigError, NeverAdmissible
from sluice.core.limits import Limit, Rate
from sluice.core.names import BucketKey
from sluice.core.requests import Charge, Part, RateCharge, SlotsCharge


@dataclass(frozen=True, slots=True)
class Wanted:
    """A need, read: the amounts named, and whether only one limit is meant."""

    resource: str
    entity: str
    amounts: Mapping[str, int]
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a take will charge, bucket by bucket; charges of 0 are limits that could be settled but are not taken.

    ``times`` says how many needs met in a bucket, where more than one did.
    """

    parts: tuple[Part, ...]
    times: Mapping[BucketKey, int]

    @property
    def taken(self) -> tuple[Part, ...]:
        """The parts and charges that are really taken."""
        parts = (Part(part.key, tuple(c for c in part.charges if c.amount)) for part in self.parts)
        return tuple(part for part in parts if part.charges)


def check_amounts(amounts: Mapping[str, int], resource: str) -> None:
    """Refuse amounts that are not whole numbers above 0."""
    if not isinstance(amounts, Mapping):
        raise ConfigError(f"need must map limits to amounts, as in {{'tpm': 1200}}; got {amounts!r}")
    for name, amount in amounts.items():
        if not isinstance(name, str):
            raise ConfigError(f"need must map names of limits to amounts, as in {{'tpm': 1200}}; {name!r} is no name")
        if isinstance(amount, bool) or not isinstance(amount, int):
            raise ConfigError(f"{resource}#{name}: an amount is a whole number, not {amount!r}")
        if amount <= 0:
            raise ConfigError(
                f"{resource}#{name}: an amount must be above 0, not {amount}; leave out what is not needed"
            )
        if amount > MAX_AMOUNT:
            raise ConfigError(f"{resource}#{name}: an amount of {amount} is past {MAX_AMOUNT}; count in a larger unit")


def check_known(wanted: Wanted, buckets: Iterable[Sequence[Limit]]) -> None:
    """Refuse a name that none of the take's buckets has a limit for."""
    known = sorted({limit.name for limits in buckets for limit in limits})
    named = list(wanted.amounts) if wanted.only is None else [wanted.only, *wanted.amounts]
    for name in named:
        if name not in known:
            raise unknown_limit(f"{wanted.resource}#{name}", name, known)
        if wanted.only is not None and name != wanted.only:
            raise ConfigError(f"'{wanted.resource}#{wanted.only}' takes that limit alone; {name!r} is another one")


def unknown_limit(asked: str, name: str, known: Sequence[str]) -> ConfigError:
    """The error for a limit that nobody has set, with the nearest one that exists."""
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ConfigError(f"unknown limit {asked!r}{hint} Known: {', '.join(known) or 'none'}")


def charge(key: BucketKey, limits: Sequence[Limit], wanted: Wanted, headroom_ppm: int, ttl_ns: int | None) -> Part:
    """What ``wanted`` charges to a bucket that has these limits, zeros included."""
    charges: list[Charge] = []
    for limit in limits:
        if wanted.only is not None and limit.name != wanted.only:
            continue
        default = max(1, limit.cost) if wanted.only is not None else limit.cost
        amount = wanted.amounts.get(limit.name, default)
        rule = limit.rule
        leave = -(-rule.capacity * headroom_ppm // PPM)
        if isinstance(rule, Rate):
            charges.append(RateCharge(limit.name, amount, rule.capacity, rule.interval_ns, leave))
        else:
            charges.append(SlotsCharge(limit.name, amount, rule.capacity, ttl_ns or rule.ttl_ns, leave))
    return Part(key, tuple(charges))


def plan(parts: Iterable[Part]) -> Plan:
    """Put the parts of all needs together, one for each bucket, and refuse what could never be granted."""
    merged: dict[BucketKey, Part] = {}
    times: dict[BucketKey, int] = {}
    for part in parts:
        if part.key in merged:
            merged[part.key] = _added(merged[part.key], part)
            times[part.key] = times.get(part.key, 1) + 1
        elif part.charges:
            merged[part.key] = part
    if len(merged) > MAX_BUCKETS:
        raise ConfigError(f"a take touches {len(merged)} buckets, ancestors counted; {MAX_BUCKETS} are allowed")
    for part in merged.values():
        for item in part.charges:
            check_admissible(part.key, item)
    made = Plan(tuple(merged.values()), times)
    if not made.taken:
        raise ConfigError("this take would take nothing: every limit has cost 0; name what is needed")
    return made


def _added(first: Part, second: Part) -> Part:
    amounts = {item.name: item.amount for item in second.charges}
    charges = [replace(item, amount=item.amount + amounts.pop(item.name, 0)) for item in first.charges]
    charges += [item for item in second.charges if item.name in amounts]
    return Part(first.key, tuple(charges))


def check_admissible(key: BucketKey, item: Charge) -> None:
    """Refuse what could never be granted at once."""
    if item.amount > item.capacity - item.leave:
        kept = f", of which {item.leave} are left to others" if item.leave else ""
        raise NeverAdmissible(
            f"{item.amount} of {key.resource}#{item.name} for entity {key.entity!r} can never be granted: its capacity "
            f"is {item.capacity}{kept}; ask for less at once or raise the limit's burst"
        )
