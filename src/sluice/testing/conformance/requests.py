"""Seeded random requests: few names, few limits and small amounts, so that everything meets everything.

What is asked depends on what was answered before: turns that were granted are given up, slots that were seen lapse and
are tidied away, and time moves to where a denial pointed, or one tick short of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice.core.bounds import NS_PER_HOUR, NS_PER_MS, NS_PER_SECOND
from sluice.core.bucket import Bucket, lapsed
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Charge,
    Delta,
    Denied,
    Fold,
    GiveUp,
    Granted,
    Part,
    Pause,
    Peek,
    RateCharge,
    Reap,
    Release,
    Renew,
    Repair,
    Settle,
    SlotEntry,
    SlotsCharge,
    Take,
)

KEYS: Final = tuple(
    BucketKey(namespace, entity, resource)
    for namespace, entity, resource in (
        ("namespace-a", "*", "openai"),
        ("namespace-a", "tenant:ü/7", "openai"),
        ("namespace-a", "a#b", "POST /search"),
        ("namespace-b", "*", "openai"),
    )
)
RATES: Final = {"rpm": (10, 7 * NS_PER_SECOND + 1), "tpm": (1_000, 33 * NS_PER_MS), "daily": (5, NS_PER_HOUR)}
SLOTS: Final = {"concurrent": (3, 20 * NS_PER_SECOND), "gpu": (2, 500 * NS_PER_MS)}
LEASES: Final = tuple(f"lease-{number}@host:1" for number in range(8))


@dataclass(frozen=True)
class Ask:
    """A batch of requests for one verb of the store."""

    verb: str
    requests: tuple[Any, ...]


@dataclass(frozen=True)
class Pass:
    """Time that passes, or, with ``steps``, a wall clock that jumps."""

    ns: int
    steps: bool = False


Step = Ask | Pass


class Requests:
    """Makes one step after another. ``look`` shows a bucket as it should be."""

    def __init__(self, seed: int, look: Callable[[BucketKey], Bucket], *, joint: bool) -> None:
        self._rng = random.Random(seed)
        self._look = look
        self._joint = joint
        self._retry_in_ns = NS_PER_SECOND
        self._turns: list[GiveUp] = []
        self._number = 0

    def step(self, now_ns: int) -> Step:
        """What to do next."""
        makers: dict[Callable[[int], Step], int] = {
            self._pass: 30,
            self._jump: 3,
            self._take: 40,
            self._settle: 8,
            self._release: 9,
            self._renew: 7,
            self._reap: 5,
            self._peek: 2,
            self._pause: 2,
            self._fold: 2,
            self._repair: 2,
        }
        (make,) = self._rng.choices(list(makers), list(makers.values()))
        return make(now_ns)

    def learn(self, request: object, answer: object) -> None:
        """Remember what later requests can refer to."""
        if isinstance(answer, Denied):
            self._retry_in_ns = answer.retry_in_ns
        if isinstance(request, Take) and isinstance(answer, Granted) and len(request.parts) == 1:
            if answer.repeated:
                return
            (part,) = request.parts
            for charge in part.rates:
                left_ns = answer.images[0].rates[charge.name].full_at_ns
                give_up = GiveUp(part.key, charge.name, charge.amount, charge.interval_ns, left_ns)
                self._turns = [*self._turns[-9:], give_up]

    # --- time ---

    def _pass(self, now_ns: int) -> Step:
        rng = self._rng
        expiries = [
            expires - now_ns
            for key in KEYS
            for entries in self._look(key).slots.values()
            for expires in entries.values()
            if expires > now_ns
        ]
        target_ns = rng.choice(
            [
                self._retry_in_ns,
                rng.choice(expiries or [NS_PER_MS]),
                rng.randrange(NS_PER_SECOND),
                rng.randrange(30 * NS_PER_SECOND),
                -now_ns % NS_PER_HOUR if rng.random() < 0.05 else 0,
            ]
        )
        return Pass(max(0, target_ns - rng.choice([0, 0, 1])))

    def _jump(self, now_ns: int) -> Step:
        furthest_ns = self._rng.choice([NS_PER_SECOND, 60 * NS_PER_SECOND, 2 * NS_PER_HOUR, 24_000 * NS_PER_HOUR])
        ahead_ns = self._rng.randrange(-furthest_ns, furthest_ns)
        # Time stays within a few years of where it began, and so positive.
        return Pass(ahead_ns if abs(now_ns + ahead_ns - 1_700_000_000 * NS_PER_SECOND) < 10**17 else 0, steps=True)

    # --- takes ---

    def _take(self, now_ns: int) -> Step:
        return Ask("take", self._some(self._one_take))

    def _some(self, make: Callable[[], Any]) -> tuple[Any, ...]:
        count = self._rng.choice([0, 1, 1, 1, 1, 1, 1, 2, 3, 6])
        return tuple(make() for _ in range(count))

    def _one_take(self) -> Take:
        rng = self._rng
        if rng.random() < 0.2:
            return Take(self._lease(), (Part(self._key(), (self._rate_charge(),)),), rng.randrange(NS_PER_HOUR))
        keys = rng.sample(KEYS, rng.choice([1, 1, 2, 3]) if self._joint else 1)
        return Take(self._lease(), tuple(Part(key, self._charges()) for key in keys))

    def _charges(self) -> tuple[Charge, ...]:
        names = self._rng.sample([*RATES, *SLOTS], self._rng.choice([1, 2, 2, 3, 5]))
        return tuple(self._rate_charge(name) if name in RATES else self._slots_charge(name) for name in names)

    def _rate_charge(self, name: str | None = None) -> RateCharge:
        rng = self._rng
        name = name or rng.choice(list(RATES))
        capacity, interval_ns = RATES[name]
        if rng.random() < 0.1:
            capacity, interval_ns = rng.choice([(2 * capacity, interval_ns // 3), (capacity, 2 * interval_ns + 1)])
        amount = rng.randrange(1, capacity + 1) if rng.random() < 0.3 else rng.randrange(1, capacity // 5 + 2)
        leave = rng.randrange(capacity // 2) if rng.random() < 0.1 else 0
        return RateCharge(name, min(amount, capacity - leave), capacity, interval_ns, leave)

    def _slots_charge(self, name: str | None = None) -> SlotsCharge:
        rng = self._rng
        name = name or rng.choice(list(SLOTS))
        capacity, ttl_ns = SLOTS[name]
        ttl_ns = rng.choice([ttl_ns, ttl_ns, ttl_ns // 2, 3 * ttl_ns])
        leave = int(rng.random() < 0.1)
        return SlotsCharge(name, rng.randrange(1, capacity - leave + 1), capacity, ttl_ns, leave)

    def _key(self) -> BucketKey:
        return self._rng.choice(KEYS)

    def _lease(self) -> str:
        self._number += 1
        return self._rng.choice([*LEASES, f"fresh-{self._number}@host:1"])

    # --- what comes after a take ---

    def _settle(self, now_ns: int) -> Step:
        return Ask("settle", self._some(self._one_correction))

    def _one_correction(self) -> Settle | GiveUp:
        if self._turns and self._rng.random() < 0.4:
            return self._rng.choice(self._turns[-3:])
        return Settle(self._key(), self._deltas())

    def _deltas(self) -> tuple[Delta, ...]:
        names = self._rng.sample(list(RATES), self._rng.choice([1, 1, 2, 3]))
        return tuple(self._delta(name) for name in names)

    def _delta(self, name: str) -> Delta:
        capacity, interval_ns = RATES[name]
        most = 10 * capacity if self._rng.random() < 0.1 else capacity
        return Delta(name, self._rng.choice([-1, -1, 1]) * self._rng.randrange(1, most), interval_ns)

    def _holders(self, key: BucketKey) -> Sequence[str]:
        held = [entry.partition("#")[0] for entries in self._look(key).slots.values() for entry in entries]
        return sorted(set(held)) or LEASES

    def _release(self, now_ns: int) -> Step:
        return Ask("release", self._some(self._one_release))

    def _one_release(self) -> Release:
        key = self._key()
        lease = self._rng.choice(self._holders(key)) if self._rng.random() < 0.9 else self._lease()
        return Release(key, lease, self._deltas() if self._rng.random() < 0.5 else ())

    def _renew(self, now_ns: int) -> Step:
        return Ask("renew", self._some(self._one_renewal))

    def _one_renewal(self) -> Renew:
        key = self._key()
        lease = self._rng.choice(self._holders(key))
        held = {name: sum(entry.partition("#")[0] == lease for entry in e) for name, e in self._look(key).slots.items()}
        charges = [self._slots_charge(name) for name, amount in held.items() if amount or self._rng.random() < 0.1]
        amounts = [held[charge.name] or charge.amount for charge in charges]
        slots = tuple(
            SlotsCharge(charge.name, amount, charge.capacity, charge.ttl_ns)
            for charge, amount in zip(charges, amounts, strict=True)
        )
        return Renew(key, lease, slots or (self._slots_charge(),))

    def _reap(self, now_ns: int) -> Step:
        def one() -> Reap:
            key = self._key()
            seen = [*lapsed(self._look(key), now_ns), *lapsed(self._look(key), now_ns + NS_PER_HOUR)]
            self._rng.shuffle(seen)
            unlike = [SlotEntry(slot.limit, slot.entry, slot.expires_ns - 1) for slot in seen[:1]]
            return Reap(key, tuple(dict.fromkeys([*seen[:4], *unlike])))

        return Ask("reap", self._some(one))

    def _peek(self, now_ns: int) -> Step:
        return Ask("peek", self._some(lambda: Peek(self._key())))

    def _pause(self, now_ns: int) -> Step:
        longest_ns = self._rng.choice([NS_PER_SECOND, 60 * NS_PER_SECOND])
        return Ask("pause", self._some(lambda: Pause(self._key(), self._rng.randrange(1, longest_ns))))

    def _fold(self, now_ns: int) -> Step:
        return Ask("fold", self._some(lambda: Fold(self._key())))

    def _repair(self, now_ns: int) -> Step:
        return Ask("repair", self._some(lambda: Repair(self._key(), self._charges())))
