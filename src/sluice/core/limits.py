"""Limits: what may be taken of a resource.

A `Rate` refills ``refill`` tokens each ``period_ns`` and holds ``capacity`` of them. Counted in whole nanoseconds:

    interval = ceil(period / refill)      one token's time; rounded up, so never faster than asked
    window   = capacity * interval        an empty bucket is full after this

`Slots` are things held at once: ``capacity`` of them, each for ``ttl_ns`` unless renewed. A `Limit` gives one of the
two a name and a default cost. All of these check themselves when made, so whatever exists is sound.
"""

from dataclasses import dataclass

from sluice.core.bounds import MAX_AMOUNT, MAX_LIMITS, MAX_TTL_NS, MAX_WINDOW_NS, NS_PER_MS, ROUNDING_PER_MILLE
from sluice.core.errors import ConfigError
from sluice.core.limit_text import amount_text, duration_text, parse_rule
from sluice.core.names import check_limit_name


@dataclass(frozen=True, slots=True)
class Rate:
    """``refill`` tokens each ``period_ns``, at most ``capacity`` at once."""

    refill: int
    period_ns: int
    capacity: int

    def __post_init__(self) -> None:
        _check_count(self.refill, "refill", self)
        _check_count(self.capacity, "capacity", self)
        _check_time(self.period_ns, "period")
        if self.period_ns <= 0:
            raise ConfigError(f"a rate needs a period above 0, as in '100/min'; this one has {self.period_ns} ns")
        excess_ns = self.interval_ns * self.refill - self.period_ns
        if excess_ns * 1000 > self.period_ns * ROUNDING_PER_MILLE:
            raise ConfigError(
                f"{self} can't be counted: one token would come back in less than a few nanoseconds, and rounding "
                f"would slow it by more than 0.1 %; count in {_fitting_unit(self.refill, self.period_ns)} instead"
            )
        if self.window_ns > MAX_WINDOW_NS:
            raise ConfigError(
                f"{self} takes more than a year to fill from empty; lower the burst or shorten the period"
            )

    @property
    def interval_ns(self) -> int:
        """The time in which one token comes back, rounded up."""
        return -(-self.period_ns // self.refill)

    @property
    def window_ns(self) -> int:
        """The time in which an empty bucket fills."""
        return self.capacity * self.interval_ns

    def __str__(self) -> str:
        burst = "" if self.capacity == self.refill else f" burst {amount_text(self.capacity)}"
        count, unit = duration_text(self.period_ns)
        per = f"/{unit}" if count == "1" else f" per {count}{unit}"
        return f"{amount_text(self.refill)}{per}{burst}"


@dataclass(frozen=True, slots=True)
class Slots:
    """``capacity`` things held at once; a holder that dies loses its slot after ``ttl_ns``."""

    capacity: int
    ttl_ns: int

    def __post_init__(self) -> None:
        _check_count(self.capacity, "number of slots", self)
        _check_time(self.ttl_ns, "ttl")
        if self.ttl_ns <= 0:
            raise ConfigError(f"slots need a ttl above 0, as in '32 slots ttl 60s'; got {self.ttl_ns} ns")
        if self.ttl_ns > MAX_TTL_NS:
            raise ConfigError(f"{self}: a ttl may be 7 days at most; the keeper renews leases that live longer")

    def __str__(self) -> str:
        count, unit = duration_text(self.ttl_ns)
        return f"{amount_text(self.capacity)} slots ttl {count}{unit}"


Rule = Rate | Slots


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """A named rule on a resource.

    >>> Limit("rpm", "500/min")
    Limit('rpm', '500/min')
    >>> Limit("tpm", "200k/min burst 400k", cost=0).rule.capacity
    400000

    ``cost`` is what a take that does not name the limit takes of it; with ``cost=0`` it is taken only when named.
    """

    name: str
    rule: Rule
    cost: int

    def __init__(self, name: str, rule: str | Rule, *, cost: int = 1) -> None:
        check_limit_name(name)
        if isinstance(rule, str):
            refill_or_slots, period_or_ttl_ns, burst = parse_rule(rule)
            if burst is None:
                rule = Slots(refill_or_slots, period_or_ttl_ns)
            else:
                rule = Rate(refill_or_slots, period_or_ttl_ns, burst)
        elif not isinstance(rule, Rate | Slots):
            raise ConfigError(f"limit {name!r} needs a text such as '100/min', a Rate or Slots, not {rule!r}")
        if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
            raise ConfigError(f"limit {name!r}: cost must be a whole number from 0, not {cost!r}")
        if cost > rule.capacity:
            raise ConfigError(f"limit {name!r}: a cost of {cost} never fits in {rule}; lower it or raise the limit")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "cost", cost)

    def __repr__(self) -> str:
        cost = "" if self.cost == 1 else f", cost={self.cost}"
        return f"Limit({self.name!r}, {str(self.rule)!r}{cost})"


def check_limits(limits: object) -> tuple[Limit, ...]:
    """Return the limits of one resource as a tuple, or raise `ConfigError` if they don't go together."""
    if isinstance(limits, Limit) or not isinstance(limits, list | tuple):
        raise ConfigError(f"limits must be a list, as in [Limit('rpm', '500/min')]; got {limits!r}")
    for limit in limits:
        if not isinstance(limit, Limit):
            raise ConfigError(f"{limit!r} is not a Limit; write Limit('rpm', '500/min')")
    if not limits:
        raise ConfigError("no limits were given; to remove a level's limits, call delete_limits")
    if len(limits) > MAX_LIMITS:
        raise ConfigError(f"{len(limits)} limits on one resource; {MAX_LIMITS} are allowed")
    names = [limit.name for limit in limits]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"limit {twice[0]!r} stands twice; give each limit a name of its own")
    return tuple(limits)


def _check_count(count: int, what: str, rule: Rule) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        raise ConfigError(f"the {what} of a {type(rule).__name__} must be a whole number above 0, not {count!r}")
    if count > MAX_AMOUNT:
        raise ConfigError(f"a {what} of {count} is past {MAX_AMOUNT}; count in a larger unit")


def _check_time(time_ns: int, what: str) -> None:
    if isinstance(time_ns, bool) or not isinstance(time_ns, int) or time_ns % NS_PER_MS:
        raise ConfigError(f"a {what} is a whole number of nanoseconds and of milliseconds; {time_ns!r} ns is not")


def _fitting_unit(refill: int, period_ns: int) -> str:
    """The smallest power of ten of tokens that, counted as one, makes the rounding small enough."""
    group = 10
    while True:
        interval_ns = -(-period_ns * group // refill)
        if (interval_ns * refill - period_ns * group) * 1000 <= period_ns * group * ROUNDING_PER_MILLE:
            return f"units of {amount_text(group)} tokens"
        group *= 10
