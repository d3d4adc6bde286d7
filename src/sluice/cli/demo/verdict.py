"""What must hold of a demo, and whether it did. Pure: a scenario and a history in, a verdict out.

Everything is judged by the times at which the store and the vendor decided, so a slow machine breaks nothing: it starts
fewer calls, and its calls reach the vendor less evenly, which is measured. How much was used, and how soon a slot was
taken again, are told as they were; only far too little of it is held against Sluice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.testing.vendor import AT_ONCE, Call, Violation, audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.cli.demo.history import History
    from sluice.cli.demo.scenario import Scenario
    from sluice.core.limits import Rate

FAR_TOO_LITTLE: Final = 0.5
"""A share of the allowed requests that any machine gets. One that is not busy gets 99 % and more."""


@dataclass(frozen=True, slots=True)
class Row:
    """How much of a limit was used; ``violations`` counts what the vendor should have refused."""

    limit: str
    rule: str
    granted: str
    allowed: str
    share: float
    violations: int


@dataclass(frozen=True, slots=True)
class Promise:
    """Something that must hold, whether it did, and the numbers."""

    text: str
    kept: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """All there is to say at the end."""

    rows: tuple[Row, ...]
    facts: tuple[tuple[str, str], ...]
    promises: tuple[Promise, ...]

    @property
    def kept(self) -> bool:
        return all(promise.kept for promise in self.promises)

    @property
    def sentence(self) -> str:
        """The whole of it in a sentence."""
        broken = [f"{promise.text} ({promise.detail})" for promise in self.promises if not promise.kept]
        return f"This must hold and did not: {'; '.join(broken)}." if broken else "Everything that must hold did."


def judge(scenario: Scenario, history: History) -> Verdict:
    return _Judge(scenario, history).verdict()


class _Judge:
    """One history, looked at from all sides."""

    def __init__(self, scenario: Scenario, history: History) -> None:
        self._scenario = scenario
        self._history = history
        delays_ns = history.delays_ns()
        self._jitter_ns = max(delays_ns) - min(delays_ns) if delays_ns else 0
        self._calls = history.calls()
        self._slots = scenario.slots

    def verdict(self) -> Verdict:
        promises = (
            self._grants_within_rates(),
            self._slots_within_capacity(),
            self._vendor_content(),
            self._slot_came_back(),
            self._nothing_left_lying(),
            self._processes_came_home(),
        )
        return Verdict(self._rows(), self._facts(), promises)

    # --- what must hold ---

    def _grants_within_rates(self) -> Promise:
        grants = self._history.grants.values()
        took = [
            Call(grant.at_ns, grant.at_ns, {name: grant.amounts[name] for name in ("requests", "tokens")})
            for grant in grants
        ]
        over = audit(took, *self._scenario.quotas)
        detail = f"{len(over)} of {len(took)} grants over"
        if over:
            worst = max(over, key=lambda violation: violation.over)
            detail += f", the worst by {worst.over:,} {worst.quota}"
        return Promise("grants never exceed capacity + rate x time", not over, detail)

    def _slots_within_capacity(self) -> Promise:
        over = audit(self._leases, at_once=self._slots.capacity)
        text = f"leases never hold more than {self._slots.capacity} slots"
        return Promise(text, not over, f"{_most_at_once(self._leases)} held at most")

    def _vendor_content(self) -> Promise:
        violations, strangers = self._violations, self._history.uncounted()
        detail = f"{len(violations)} of {len(self._calls)} calls over"
        if violations:
            detail += f"; the first: {violations[0].quota}, over by {violations[0].over:,}"
        if strangers:
            detail += f"; {len(strangers)} calls without a grant"
        if self._history.lost:
            detail += f"; {len(self._history.lost)} leases lapsed in use, since this machine stood still for too long"
        text = "the vendor counts no violation"
        return Promise(text, not violations and not strangers, detail)

    def _slot_came_back(self) -> Promise:
        ttl_ns, death = self._slots.ttl_ns, self._history.death
        text = f"the dead worker's slot is free at its TTL of {ttl_ns / NS_PER_SECOND:g} s"
        if death is None:
            return Promise(text, kept=False, detail="nobody was killed while holding a slot")
        if death.expires_ns is None:
            return Promise(text, kept=False, detail="the store knew nothing of its slot any more")
        if death.expires_ns > death.killed_ns + ttl_ns:
            lives = _ms(death.expires_ns - death.killed_ns)
            return Promise(text, kept=False, detail=f"the store keeps it for {lives} after the kill")
        taken = self._history.reuse(self._slots.capacity, ttl_ns)
        if taken is not None and taken.at_ns < death.expires_ns:
            early = _ms(death.expires_ns - taken.at_ns)
            return Promise(text, kept=False, detail=f"worker {taken.worker} took it {early} too early")
        wrongly_full = self._history.wrongly_full_ns(self._slots.capacity, ttl_ns)
        if wrongly_full:
            late = _ms(max(wrongly_full) - death.expires_ns)
            return Promise(text, kept=False, detail=f"{late} after it had lapsed, a take was refused for want of it")
        return Promise(text, kept=True, detail="not before, not later")

    def _nothing_left_lying(self) -> Promise:
        rate = self._scenario.requests
        share = self._granted("requests") / self._scenario.allowed(rate)
        text = "what is allowed is granted"
        return Promise(text, share >= FAR_TOO_LITTLE, f"{share:.1%} of the requests")

    def _processes_came_home(self) -> Promise:
        failures = self._history.failures
        detail = "; ".join(f"{name}: {words}" for name, words in sorted(failures.items()))
        return Promise("the other processes work to the end", not failures, detail or "none failed")

    # --- numbers ---

    @cached_property
    def _leases(self) -> list[Call]:
        history, ttl_ns = self._history, self._slots.ttl_ns
        return [Call(grant.at_ns, history.lease_end_ns(grant, ttl_ns)) for grant in history.grants.values()]

    @cached_property
    def _violations(self) -> list[Violation]:
        """What the vendor should have refused. A call whose lease has lapsed may run beside the next holder's."""
        jitter = -(-self._jitter_ns // 1_000) / 1_000_000
        over = audit(self._calls, *self._scenario.quotas, at_once=self._slots.capacity, jitter=jitter)
        return [violation for violation in over if violation.quota != AT_ONCE or not self._history.lost]

    def _granted(self, name: str) -> int:
        return sum(grant.amounts[name] for grant in self._history.grants.values())

    def _held_ns(self) -> int:
        """How long slots were held, all together, from the first grant on for as long as the demo lasts."""
        from_ns = min((lease.started_ns for lease in self._leases), default=0)
        until_ns = from_ns + self._scenario.length_ns
        ends_ns = [(lease.started_ns, lease.ended_ns) for lease in self._leases if lease.ended_ns is not None]
        return sum(max(0, min(ended_ns, until_ns) - started_ns) for started_ns, ended_ns in ends_ns)

    def _rows(self) -> tuple[Row, ...]:
        violations = Counter(violation.quota for violation in self._violations)

        def rate_row(name: str, rate: Rate) -> Row:
            granted, allowed = self._granted(name), self._scenario.allowed(rate)
            return Row(name, str(rate), f"{granted:,}", f"{allowed:,}", granted / allowed, violations[name])

        held_s, all_s = self._held_ns() / NS_PER_SECOND, self._slots.capacity * self._scenario.seconds
        return (
            rate_row("requests", self._scenario.requests),
            rate_row("tokens", self._scenario.tokens),
            Row("slots", str(self._slots), f"{held_s:.1f} s", f"{all_s:.1f} s", held_s / all_s, violations[AT_ONCE]),
        )

    def _facts(self) -> tuple[tuple[str, str], ...]:
        waits_ns = sorted(self._history.waited_ns)
        return (
            ("calls", f"{len(self._calls)}, of which {len(self._history.turned_away())} were answered 429"),
            ("waits", f"p50 {_ms(_percentile(waits_ns, 50))}, p99 {_ms(_percentile(waits_ns, 99))}"),
            ("start jitter", f"{_ms(self._jitter_ns)}: how unevenly calls reached the vendor"),
            ("dead worker's slot", self._reuse_text()),
        )

    def _reuse_text(self) -> str:
        death = self._history.death
        if death is None or death.expires_ns is None:
            return "it never had one"
        taken = self._history.reuse(self._slots.capacity, self._slots.ttl_ns)
        if taken is None:
            return f"free {_ms(death.expires_ns - death.killed_ns)} after the kill; nobody needed it"
        since_kill, since_lapse = _ms(taken.at_ns - death.killed_ns), _ms(taken.at_ns - death.expires_ns)
        return f"reused {since_kill} after the kill, {since_lapse} after it lapsed"


def _most_at_once(calls: Sequence[Call]) -> int:
    """How many ran at the busiest moment. Calls without an end count as running."""
    steps = [(call.started_ns, 1) for call in calls]
    steps += [(call.ended_ns, -1) for call in calls if call.ended_ns is not None]
    running = most = 0
    for _, step in sorted(steps):  # an end comes before a start of the same time
        running += step
        most = max(most, running)
    return most


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that so many percent do not exceed."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0


def _ms(duration_ns: int) -> str:
    places = 0 if abs(duration_ns) >= 10 * NS_PER_MS else 1
    return f"{duration_ns / NS_PER_MS:,.{places}f} ms"
