"""Holding what was granted against the limits, by arithmetic that shares nothing with Sluice's own.

A `NeverOver` stands between clients and their store and writes down what the store decided. For a rate, what is granted
in an interval, counted when its turn comes, less what is given back in it, is at most ``capacity + rate * length``. The
*weight* of an interval is what it holds, in time that it takes to refill, less its length; the heaviest that ends with
a grant begins with that grant or goes on from the heaviest before it:

    heaviest = max(0, heaviest before - time since then) + amount * interval       at most capacity * interval

Whoever waits for a turn has paid for it by an earlier reckoning than those who come later: what was given back while it
waited counts for it. What is owed afterwards, through ``settle`` or ``adjust``, may go past a limit and is not counted.
From a change of a limit on, it is counted anew. For slots, leases that live at a grant are at most the capacity.

Times are the store's. It sees what passes through the clients it watches: others on the same store are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.names import BucketKey
from sluice.core.requests import (
    GaveUp,
    GiveUp,
    Granted,
    Pause,
    Paused,
    RateCharge,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    Settled,
    SlotsCharge,
    Take,
)

if TYPE_CHECKING:
    from sluice.aio import AsyncSluice
    from sluice.ports import Clock, Scope, Store
    from sluice.sync import Sluice

    C = TypeVar("C", Sluice, AsyncSluice)


@dataclass(eq=False)
class _Grant:
    """Tokens of a rate, granted at ``now_ns`` for a turn at ``at_ns``."""

    now_ns: int
    at_ns: int
    amount: int
    charge: RateCharge
    left_full_at_ns: int


@dataclass(eq=False)
class _Back:
    """Tokens that were given back."""

    at_ns: int
    amount: int


@dataclass
class _Rate:
    """What happened to one rate of one bucket, in the order in which the store decided it."""

    steps: list[_Grant | _Back] = field(default_factory=list)

    @property
    def grants(self) -> list[_Grant]:
        return [step for step in self.steps if isinstance(step, _Grant)]

    def counted(self, grant: _Grant) -> int:
        """A grant's tokens, less what was given back while it waited for its turn."""
        later = self.steps[self.steps.index(grant) + 1 :] if grant.at_ns > grant.now_ns else []
        back = sum(step.amount for step in later if isinstance(step, _Back) and step.at_ns <= grant.at_ns)
        return max(0, grant.amount - back)


class NeverOver:
    """Watches clients, and raises an `AssertionError` if more was granted than their limits allow.

    >>> from sluice import Limit, Sluice
    >>> from sluice.testing import ManualClock
    >>> watch = NeverOver()
    >>> sluice = watch(Sluice("memory://", clock=ManualClock()))
    >>> sluice.set_limits("openai", [Limit("rpm", "10/min")])
    >>> sum(bool(sluice.try_acquire("openai")) for _ in range(50))
    10
    >>> watch.check()
    >>> watch.granted("openai#rpm")
    10
    """

    def __init__(self) -> None:
        self._rates: defaultdict[tuple[BucketKey, str], _Rate] = defaultdict(_Rate)
        self._holders: defaultdict[tuple[BucketKey, str], dict[str, tuple[int, int]]] = defaultdict(dict)
        self._held: defaultdict[tuple[BucketKey, str], int] = defaultdict(int)
        self._paused_until_ns: dict[BucketKey, int] = {}
        self._slots_over: list[str] = []

    def __call__(self, client: C) -> C:
        """Watch a client from before its first use, and return it."""
        if client._client is not None:
            raise RuntimeError(f"{client!r} was used before it was watched; watch it right after it is made")
        opener = client._opener

        def open_watched(clock: Clock, scope: Scope, timeout_ns: int) -> Store:
            store: Any = _Watched(opener(clock, scope, timeout_ns), self)
            return store  # type: ignore[no-any-return]

        client._opener = open_watched
        return client

    def granted(self, limit: str, *, entity: str = "*") -> int:
        """How many tokens or slots were granted of a limit such as ``"openai#rpm"``, whatever was given back."""
        resource, _, name = limit.rpartition("#")

        def meant(key: BucketKey, of: str) -> bool:
            return (key.resource, key.entity, of) == (resource, entity, name)

        tokens = sum(grant.amount for where, rate in self._rates.items() if meant(*where) for grant in rate.grants)
        return tokens + sum(slots for where, slots in self._held.items() if meant(*where))

    def check(self) -> None:
        """Raise an `AssertionError` that says which limit was passed, when, and by how much."""
        over = [text for where, rate in self._rates.items() for text in _rate_over(where, rate)]
        if over or self._slots_over:
            raise AssertionError("more was granted than the limits allow:\n" + "\n".join(over + self._slots_over))

    # --- what the store decided ---

    def _read(self, request: Any, answer: Any) -> None:
        match request, answer:
            case Take(), Granted(repeated=False):
                self._took(request, answer)
            case Renew(), Renewed():
                self._renewed(request, answer.now_ns)
            case Release(), Released():
                for (key, _), holders in self._holders.items():
                    if key == request.key:
                        holders.pop(request.lease_id, None)
                self._corrected(request, answer.now_ns)
            case Settle(), Settled():
                self._corrected(request, answer.now_ns)
            case GiveUp(), GaveUp(returned=True):
                rate = self._rates[request.key, request.name]
                rate.steps = [
                    step
                    for step in rate.steps
                    if isinstance(step, _Back) or step.left_full_at_ns != request.left_full_at_ns
                ]
            case Pause(), Paused():
                self._paused(request.key, answer)
            case _:
                """What was refused, repeated or in doubt has changed nothing that is known of."""

    def _took(self, request: Take, granted: Granted) -> None:
        for part, image in zip(request.parts, granted.images, strict=True):
            for charge in part.charges:
                if isinstance(charge, SlotsCharge):
                    self._hold(part.key, charge, request.lease_id, granted.now_ns)
                elif charge.amount:
                    left_ns = image.rates[charge.name].full_at_ns
                    grant = _Grant(granted.now_ns, granted.turn_ns, charge.amount, charge, left_ns)
                    self._rates[part.key, charge.name].steps.append(grant)

    def _hold(self, key: BucketKey, charge: SlotsCharge, lease_id: str, now_ns: int) -> None:
        holders = self._holders[key, charge.name]
        holders[lease_id] = (charge.amount, now_ns + charge.ttl_ns)
        self._held[key, charge.name] += charge.amount
        live = sum(slots for slots, expires_ns in holders.values() if expires_ns > now_ns)
        if live > charge.capacity:
            where = _where(key, charge.name)
            self._slots_over.append(f"{where}: {live} slots held at {_time(now_ns)}, {charge.capacity} allowed")

    def _renewed(self, request: Renew, now_ns: int) -> None:
        for charge in request.slots:
            holders = self._holders[request.key, charge.name]
            slots, expires_ns = holders.get(request.lease_id, (charge.amount, 0))
            holders[request.lease_id] = (slots, max(expires_ns, now_ns + charge.ttl_ns))

    def _corrected(self, request: Settle | Release, now_ns: int) -> None:
        for delta in request.deltas:
            if delta.tokens < 0:
                self._rates[request.key, delta.name].steps.append(_Back(now_ns, -delta.tokens))

    def _paused(self, key: BucketKey, paused: Paused) -> None:
        """The bucket's clock stands still, so turns that have not come yet come so much later."""
        from_ns = max(paused.now_ns, self._paused_until_ns.get(key, 0))
        shift_ns = max(0, paused.until_ns - from_ns)
        self._paused_until_ns[key] = from_ns + shift_ns
        for (bucket, _), rate in self._rates.items():
            for grant in rate.grants if bucket == key else ():
                if grant.at_ns > from_ns:
                    grant.at_ns += shift_ns


class _Watched:
    """A store whose decisions are written down."""

    def __init__(self, store: Store, watch: NeverOver) -> None:
        self._store = store
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _noted(self, name: str, requests: Sequence[Any]) -> Sequence[Any]:
        answers: Sequence[Any] = await getattr(self._store, name)(requests)
        for request, answer in zip(requests, answers, strict=True):
            self._watch._read(request, answer)
        return answers

    async def take(self, requests: Sequence[Any]) -> Sequence[Any]:
        return await self._noted("take", requests)

    async def settle(self, requests: Sequence[Any]) -> Sequence[Any]:
        return await self._noted("settle", requests)

    async def release(self, requests: Sequence[Any]) -> Sequence[Any]:
        return await self._noted("release", requests)

    async def renew(self, requests: Sequence[Any]) -> Sequence[Any]:
        return await self._noted("renew", requests)

    async def pause(self, requests: Sequence[Any]) -> Sequence[Any]:
        return await self._noted("pause", requests)


def _rate_over(where: tuple[BucketKey, str], rate: _Rate) -> list[str]:
    """The worst of what was granted past a rate, as text; nothing if it was kept."""
    heaviest_ns = last_ns = began_ns = granted = 0
    limit: tuple[int, int] | None = None
    worst: tuple[int, str] = (0, "")
    for step in sorted(rate.steps, key=lambda step: step.at_ns):
        heaviest_ns = max(0, heaviest_ns - (step.at_ns - last_ns))
        last_ns = step.at_ns
        if isinstance(step, _Back):
            heaviest_ns = max(0, heaviest_ns - step.amount * (limit[1] if limit else 0))
            granted -= step.amount
            continue
        charge = step.charge
        if limit != (charge.capacity, charge.interval_ns):
            limit, heaviest_ns = (charge.capacity, charge.interval_ns), 0
        if not heaviest_ns:
            began_ns, granted = step.at_ns, 0
        granted += step.amount
        heaviest_ns += rate.counted(step) * charge.interval_ns
        over = -(-heaviest_ns // charge.interval_ns) - charge.capacity
        if over > worst[0]:
            span = f"from {_time(began_ns)} to {_time(step.at_ns)}"
            worst = (over, f"{_where(*where)}: {granted:,} granted {span}, {over:,} more than allowed")
    return [worst[1]] if worst[0] else []


def _where(key: BucketKey, limit: str) -> str:
    whose = "" if key.entity == "*" else f" of entity {key.entity!r}"
    return f"{key.resource}#{limit}{whose}"


def _time(at_ns: int) -> str:
    return f"{at_ns // NS_PER_SECOND}.{at_ns % NS_PER_SECOND:09d}"
