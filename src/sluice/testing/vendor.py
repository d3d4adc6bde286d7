"""A vendor to test against: it limits calls as a vendor would, and counts by itself.

It shares no arithmetic with the rest of Sluice, so it can be the judge of it. A quota allows any interval of time at
most ``burst + amount * length / per``. The *weight* of an interval is what it holds, less what its length earns. The
heaviest interval that ends with a call begins with that call, or goes on from the heaviest that ended before it:

    heaviest = max(0, heaviest before - what the time since then earned) + what the call counts

A call is over when that is more than the burst. It is then answered `Throttled`, kept as a `Violation`, and counts for
nothing further. All of it is integers: amounts are multiplied by ``per`` in nanoseconds, so nothing is ever rounded.

Jitter: a caller is let go at one time, and its call arrives a little later. When every delay lies between a shortest
and a longest, an interval of arrivals can hold what an interval of departures holds that is longer by the difference;
``jitter`` is that difference, in seconds. Calls at once need none: a call lies within the time in which it was allowed.

One vendor serves the threads and tasks of one process. Calls that many processes made are judged together afterwards:
each notes its own as `Call`, by a clock that all of them share, and `audit` says which of them a vendor would refuse.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.requests import seconds_up
from sluice.ports import Clock
from sluice.wires.clock import SystemClock

MAX_KEPT: Final = 100_000
"""Calls and violations that a vendor remembers, the latest ones."""

BUSY_RETRY_AFTER: Final = 0.1
"""What a vendor with too many calls at once says, in seconds: it can't know when one of them will end."""

NEVER_NS: Final = 2**63
"""When a call that has not ended will end, as far as an audit can tell."""

AT_ONCE: Final = "at once"
"""What stands in the place of a quota's name when there were too many calls at once."""


@dataclass(frozen=True, slots=True)
class Quota:
    """``amount`` in each ``per`` seconds, and ``burst`` at once (by default ``amount``).

    A call that does not name it counts ``cost``.

    >>> Quota("tokens", 10_000, per=60).most
    10000
    """

    name: str
    amount: int
    per: float
    burst: int | None = None
    cost: int = 1

    def __post_init__(self) -> None:
        if self.amount <= 0 or self.per_ns <= 0 or self.most <= 0 or self.cost < 0:
            raise ValueError(f"{self}: amount, per and burst must be above 0, and cost not below")

    @property
    def per_ns(self) -> int:
        """The period in nanoseconds."""
        return round(self.per * NS_PER_SECOND)

    @property
    def most(self) -> int:
        """The most that can be had at once."""
        return self.amount if self.burst is None else self.burst


@dataclass(frozen=True, slots=True)
class Accepted:
    """The call was let in."""

    started_ns: int

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Throttled:
    """A 429: falsy. ``retry_after`` is in seconds, infinite for what could never be had at once."""

    retry_after: float
    quota: str

    def __bool__(self) -> bool:
        return False


Answer = Accepted | Throttled


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the vendor saw it; ``ended_ns`` is None while it runs."""

    started_ns: int
    ended_ns: int | None
    amounts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """A call that should not have been made: ``over`` is by how much it went past what was allowed, rounded up."""

    started_ns: int
    quota: str
    amount: int
    over: int


class _Meter:
    """One quota, and the heaviest interval that ended with the last call it counted."""

    def __init__(self, quota: Quota, jitter_ns: int) -> None:
        self.quota = quota
        self._allowed = quota.most * quota.per_ns + quota.amount * jitter_ns
        self._heaviest = 0
        self._last_ns: int | None = None

    def amount(self, amounts: Mapping[str, int]) -> int:
        return amounts.get(self.quota.name, self.quota.cost)

    def _weight(self, at_ns: int, amount: int) -> int:
        since_ns = 0 if self._last_ns is None else max(0, at_ns - self._last_ns)
        return max(0, self._heaviest - self.quota.amount * since_ns) + amount * self.quota.per_ns

    def excess(self, at_ns: int, amount: int) -> int:
        return max(0, self._weight(at_ns, amount) - self._allowed) if amount else 0

    def count(self, at_ns: int, amount: int) -> None:
        self._heaviest = self._weight(at_ns, amount)
        self._last_ns = at_ns if self._last_ns is None else max(at_ns, self._last_ns)

    def refusal(self, at_ns: int, amount: int) -> tuple[Throttled, Violation] | None:
        excess = self.excess(at_ns, amount)
        if not excess:
            return None
        fits = amount * self.quota.per_ns <= self._allowed
        retry_after = seconds_up(-(-excess // self.quota.amount)) if fits else math.inf
        violation = Violation(at_ns, self.quota.name, amount, -(-excess // self.quota.per_ns))
        return Throttled(retry_after, self.quota.name), violation


class _Desk:
    """Where calls arrive, in order of time. A call that is refused counts nowhere."""

    def __init__(self, quotas: Iterable[Quota], at_once: int | None, jitter: float) -> None:
        jitter_ns = round(jitter * NS_PER_SECOND)
        self._meters = [_Meter(quota, jitter_ns) for quota in quotas]
        self._names = [meter.quota.name for meter in self._meters]
        self._at_once = at_once
        self.running = 0

    def check(self, amounts: Mapping[str, int]) -> None:
        for name, amount in amounts.items():
            if name not in self._names:
                raise ValueError(f"this vendor counts {', '.join(self._names) or 'nothing'}; there is no {name!r}")
            if amount < 0:
                raise ValueError(f"{name}={amount}: a call can't count less than nothing")

    def arrive(self, at_ns: int, amounts: Mapping[str, int]) -> tuple[Throttled, Violation] | None:
        """Let a call in, or say what refuses it."""
        refusals = [meter.refusal(at_ns, meter.amount(amounts)) for meter in self._meters]
        if self._at_once is not None and self.running >= self._at_once:
            over = self.running + 1 - self._at_once
            refusals.append((Throttled(BUSY_RETRY_AFTER, AT_ONCE), Violation(at_ns, AT_ONCE, 1, over)))
        refused = [refusal for refusal in refusals if refusal is not None]
        if refused:
            return max(refused, key=lambda refusal: refusal[0].retry_after)
        for meter in self._meters:
            meter.count(at_ns, meter.amount(amounts))
        self.running += 1
        return None

    def leave(self) -> None:
        self.running -= 1


class FakeVendor:
    """A vendor in this process.

    >>> vendor = FakeVendor(Quota("requests", 2, per=60), Quota("tokens", 1_000, per=60), at_once=4)
    >>> with vendor.call(tokens=600) as answer:
    ...     bool(answer)
    True
    >>> with vendor.call(tokens=600) as answer:
    ...     answer.quota
    'tokens'
    >>> len(vendor.calls), len(vendor.violations)
    (1, 1)

    A test of code that uses Sluice ends with ``assert not vendor.violations``. ``throttle_next`` makes it answer 429
    without cause, as vendors do. ``clock`` may be a `ManualClock`. Safe for threads and for asyncio.
    """

    def __init__(
        self, *quotas: Quota, at_once: int | None = None, jitter: float = 0.0, clock: Clock | None = None
    ) -> None:
        self._desk = _Desk(quotas, at_once, jitter)
        self._clock = SystemClock() if clock is None else clock
        self._lock = threading.Lock()
        self._calls: deque[Call] = deque(maxlen=MAX_KEPT)
        self._violations: deque[Violation] = deque(maxlen=MAX_KEPT)
        self._running: dict[int, Call] = {}
        self._injected = 0
        self._injected_retry_after = 0.0
        self.throttled = 0
        """Calls that were answered 429, injected ones too."""
        self.most_at_once = 0
        """The most calls that ever ran at the same time."""

    def call(self, **amounts: int) -> Calling:
        """Call the vendor: ``with vendor.call(tokens=900) as answer``, or ``async with``. The call runs for the block.

        An amount that is not named counts as its quota's ``cost``. A refused call's block runs too: look at the answer.
        """
        self._desk.check(amounts)
        return Calling(self, amounts)

    def throttle_next(self, calls: int = 1, *, retry_after: float = 1.0) -> None:
        """Answer the next calls with 429, whatever the quotas say. They count for nothing and violate nothing."""
        with self._lock:
            self._injected, self._injected_retry_after = calls, retry_after

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that were let in, those that have ended first."""
        with self._lock:
            return (*self._calls, *self._running.values())

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The calls that should not have been made."""
        with self._lock:
            return tuple(self._violations)

    @property
    def running(self) -> int:
        """How many calls are running now."""
        with self._lock:
            return len(self._running)

    def _start(self, ticket: int, amounts: Mapping[str, int]) -> Answer:
        with self._lock:
            now_ns = self._clock.steady_ns()
            if self._injected:
                self._injected -= 1
                self.throttled += 1
                return Throttled(self._injected_retry_after, "injected")
            refused = self._desk.arrive(now_ns, amounts)
            if refused is not None:
                answer, violation = refused
                self.throttled += 1
                self._violations.append(violation)
                return answer
            self._running[ticket] = Call(now_ns, None, amounts)
            self.most_at_once = max(self.most_at_once, len(self._running))
            return Accepted(now_ns)

    def _end(self, ticket: int) -> None:
        with self._lock:
            started = self._running.pop(ticket, None)
            if started is not None:
                self._desk.leave()
                self._calls.append(Call(started.started_ns, self._clock.steady_ns(), started.amounts))


class Calling:
    """One call: it begins when the block is entered and ends when it is left."""

    def __init__(self, vendor: FakeVendor, amounts: Mapping[str, int]) -> None:
        self._vendor = vendor
        self._amounts = amounts
        self._made = False

    def __enter__(self) -> Answer:
        if self._made:
            raise RuntimeError("this call was made already; write vendor.call() for each")
        self._made = True
        return self._vendor._start(id(self), self._amounts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._vendor._end(id(self))

    async def __aenter__(self) -> Answer:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def audit(
    calls: Iterable[Call], *quotas: Quota, at_once: int | None = None, jitter: float = 0.0
) -> tuple[Violation, ...]:
    """The calls that a vendor with these quotas would have refused, whoever made them and in whatever order they come.

    >>> calls = [Call(0, 5, {}), Call(3, 8, {}), Call(5, 9, {})]
    >>> audit(calls, at_once=1)
    (Violation(started_ns=3, quota='at once', amount=1, over=1),)
    """
    desk = _Desk(quotas, at_once, jitter)
    ends: list[int] = []
    violations = []
    for call in sorted(calls, key=lambda call: call.started_ns):
        desk.check(call.amounts)
        gone = [end for end in ends if end <= call.started_ns]
        for _ in gone:
            desk.leave()
        ends = [end for end in ends if end > call.started_ns]
        refused = desk.arrive(call.started_ns, call.amounts)
        if refused is not None:
            violations.append(refused[1])
        else:
            ends.append(NEVER_NS if call.ended_ns is None else call.ended_ns)
    return tuple(violations)
