"""The account of a lease: what it was charged, what it says that it truly cost, and so what is still to be corrected.

    charged    per bucket and limit: taken, and then adjusted; the least that it can be while an answer is in doubt
    totals     what `settle` noted: the true cost, the last note counts
    deltas     totals - charged: what the end of the lease owes (above 0) or gives back (below 0)

No I/O: the end of the lease carries the deltas. A total never goes below 0, and settling past ten capacities is capped.
Where several needs of the take met in one bucket, what is named counts there once for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sluice.core.bounds import MAX_DEBT_CAPACITIES
from sluice.core.errors import ConfigError
from sluice.core.needs import check_admissible, check_amounts, unknown_limit
from sluice.core.requests import Charge, Delta, Part, RateCharge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sluice.core.names import BucketKey
    from sluice.core.needs import Plan

BucketLimit = tuple["BucketKey", str]
"""One limit of one bucket."""

Capped = tuple[str, int, int]
"""A limit, the total that was noted for it, and what is counted of it."""


class Account:
    """What a lease was charged and what it cost, for every limit of its plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.charged: dict[BucketLimit, int] = {(p.key, c.name): c.amount for p in plan.parts for c in p.charges}
        self._totals: dict[BucketLimit, int] = {}

    # --- what is charged ---

    @property
    def own_amounts(self) -> dict[str, int]:
        """What was taken in the bucket that was asked for, by limit."""
        own = self._plan.taken[0].key
        return {name: amount for (key, name), amount in self.charged.items() if key == own and amount}

    def add(self, parts: Iterable[Part]) -> None:
        """More was taken."""
        for part in parts:
            for charge in part.charges:
                self.charged[part.key, charge.name] += charge.amount

    def more_parts(self, amounts: Mapping[str, int]) -> tuple[Part, ...]:
        """What ``more`` takes: the limits named, in every bucket of the lease."""
        if not amounts:
            raise ConfigError("more: name what to take, as in more(tpm=500)")
        check_amounts(amounts, "more")
        wanted: dict[BucketKey, dict[str, Charge]] = {}
        for name, amount in amounts.items():
            for key, charge in self._named(name):
                charges = wanted.setdefault(key, {})
                if charge.name in charges:
                    raise ConfigError(f"more names {charge.name!r} twice, once as {name!r}; name it once")
                charges[charge.name] = replace(charge, amount=amount * self._plan.times.get(key, 1))
        for key, charges in wanted.items():
            for charge in charges.values():
                check_admissible(key, charge)
        return tuple(Part(key, tuple(charges.values())) for key, charges in wanted.items())

    # --- what it cost ---

    def note(self, totals: Mapping[str, int]) -> list[Capped]:
        """Note true totals, all of them or none; what had to be capped."""
        noted: dict[BucketLimit, int] = {}
        capped = []
        for name, total in totals.items():
            if isinstance(total, bool) or not isinstance(total, int) or total < 0:
                raise ConfigError(f"settle: the total of {name!r} is a whole number from 0, not {total!r}")
            for key, charge in self._rates_named(name):
                asked = total * self._plan.times.get(key, 1)
                most = self.charged[key, charge.name] + MAX_DEBT_CAPACITIES * charge.capacity
                noted[key, charge.name] = min(asked, most)
                if asked > most:
                    capped.append((f"{key.resource}#{charge.name}", asked, most))
        self._totals |= noted
        return capped

    def deltas(self) -> dict[BucketKey, list[Delta]]:
        """What the end must correct, so that what was noted is what it cost."""
        return self._corrections(self._totals)

    def refunds(self) -> dict[BucketKey, list[Delta]]:
        """What the end must give back, so that it cost nothing."""
        return self._corrections(dict.fromkeys(self.charged, 0))

    def _corrections(self, totals: Mapping[BucketLimit, int]) -> dict[BucketKey, list[Delta]]:
        deltas: dict[BucketKey, list[Delta]] = {}
        for part in self._plan.parts:
            for charge in part.rates:
                taken = self.charged[part.key, charge.name]
                total = totals.get((part.key, charge.name), taken)
                if total != taken:
                    delta = Delta(charge.name, total - taken, charge.interval_ns)
                    deltas.setdefault(part.key, []).append(delta)
        return deltas

    # --- adjusting at once ---

    def adjustments(self, changes: Mapping[str, int]) -> dict[BucketKey, list[Delta]]:
        """What ``adjust`` sends, bucket by bucket."""
        by_key: dict[BucketKey, list[Delta]] = {}
        charged = dict(self.charged)
        for name, tokens in changes.items():
            if isinstance(tokens, bool) or not isinstance(tokens, int):
                raise ConfigError(f"adjust: the change of {name!r} is a whole number, not {tokens!r}")
            for key, charge in self._rates_named(name):
                if tokens > MAX_DEBT_CAPACITIES * charge.capacity:
                    raise ConfigError(
                        f"adjust: {tokens} more of {name!r} is past ten capacities ({charge.capacity} each); "
                        "check the unit, or spread it over several leases"
                    )
                counted = max(tokens * self._plan.times.get(key, 1), -charged[key, charge.name])
                charged[key, charge.name] += counted
                if counted:
                    by_key.setdefault(key, []).append(Delta(charge.name, counted, charge.interval_ns))
        return by_key

    def doubt(self, key: BucketKey, deltas: Iterable[Delta]) -> None:
        """Corrections are being sent: from now on, what is charged is the least that it can be."""
        for delta in deltas:
            self.charged[key, delta.name] += min(0, delta.tokens)

    def applied(self, key: BucketKey, deltas: Iterable[Delta]) -> None:
        """Corrections that were in doubt have been applied."""
        for delta in deltas:
            self.charged[key, delta.name] += max(0, delta.tokens)

    def not_applied(self, key: BucketKey, deltas: Iterable[Delta]) -> None:
        """Corrections that were in doubt have surely not been applied."""
        for delta in deltas:
            self.charged[key, delta.name] -= min(0, delta.tokens)

    # --- names ---

    def _named(self, name: str) -> list[tuple[BucketKey, Charge]]:
        """The limits that a name such as ``tpm`` or ``openai#tpm`` means, in every bucket of the lease."""
        if not isinstance(name, str):
            raise ConfigError(f"limits are named by text such as 'tpm', not {name!r}")
        resource, hash_sign, limit = name.rpartition("#")
        named = [
            (part.key, charge)
            for part in self._plan.parts
            for charge in part.charges
            if charge.name == limit and (not hash_sign or part.key.resource == resource)
        ]
        if not named:
            known = sorted({charge.name for part in self._plan.parts for charge in part.charges})
            raise unknown_limit(name, limit, known)
        return named

    def _rates_named(self, name: str) -> list[tuple[BucketKey, RateCharge]]:
        rates = [(key, charge) for key, charge in self._named(name) if isinstance(charge, RateCharge)]
        if not rates:
            raise ConfigError(f"{name!r} are slots: they are held or released, not settled")
        return rates
