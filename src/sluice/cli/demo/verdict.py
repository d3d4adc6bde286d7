"""What must hold of a demo, and whether it did. Pure: a scenario and a history in, a verdict out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sluice.cli.demo.history import History, reuse
from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.testing.vendor import Call, audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.cli.demo.scenario import Scenario
    from sluice.core.limits import Rate

REUSED_WITHIN_NS: Final = NS_PER_SECOND
"""A slot that has lapsed must be taken so soon: somebody always waits, and asks at least every half second."""


@dataclass(frozen=True, slots=True)
class Row:
    """How much of a limit was used; ``refused`` counts what a vendor would have refused."""

    limit: str
    rule: str
    granted: str
    allowed: str
    share: float
    refused: int


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


def judge(scenario: Scenario, history: History) -> Verdict:
    jitter_ns = _jitter_ns(history)
    waits_ns = sorted(history.waited_ns)
    facts = (
        ("calls", str(len(history.began))),
        ("waits", f"p50 {_ms(_percentile(waits_ns, 50))}, p99 {_ms(_percentile(waits_ns, 99))}"),
        ("start jitter", f"{_ms(jitter_ns)} between the earliest and the latest call after its grant"),
    )
    promises = (
        _grants_within_rates(scenario, history),
        _slots_within_capacity(scenario, history),
        _vendor_content(scenario, history, jitter_ns),
        _slot_came_back(scenario, history),
        _workers_came_home(history),
    )
    return Verdict(_rows(scenario, history, jitter_ns), facts, promises)


# --- promises ---


def _grants_within_rates(scenario: Scenario, history: History) -> Promise:
    over = audit(_grants_as_calls(history), *scenario.quotas)
    detail = f"{len(over)} of {len(history.grants)} grants over"
    if over:
        worst = max(over, key=lambda violation: violation.over)
        detail += f"; worst: {worst.quota} over by {worst.over:,}"
    return Promise(
        "grants never exceed capacity + rate x time, by the store's clock", bool(history.grants) and not over, detail
    )


def _slots_within_capacity(scenario: Scenario, history: History) -> Promise:
    slots = scenario.slots
    held = _leases_as_calls(scenario, history)
    over = audit(held, at_once=slots.capacity)
    most = _most_at_once(held)
    return Promise(
        f"leases never hold more than {slots.capacity} slots, by the store's clock",
        not over,
        f"{most} held at most",
    )


def _vendor_content(scenario: Scenario, history: History, jitter_ns: int) -> Promise:
    calls = history.calls()
    over = audit(calls, *scenario.quotas, at_once=scenario.slots.capacity, jitter=_seconds_up(jitter_ns))
    strangers = history.uncounted()
    detail = f"{len(over)} of {len(calls)} calls over, {_most_at_once(calls)} at once at most"
    if over:
        detail += f"; first: {over[0].quota} over by {over[0].over}"
    if strangers:
        detail += f"; {len(strangers)} calls without a grant"
    if history.lost:
        detail += f"; {len(history.lost)} leases lapsed in use, because this machine stood still for too long"
    text = "the vendor had nothing to refuse: capacity + rate x (time + start jitter), and calls at once"
    return Promise(text, not over and not strangers, detail)


def _slot_came_back(scenario: Scenario, history: History) -> Promise:
    slots = scenario.slots
    text = f"a killed worker's slot came back at its TTL of {slots.ttl_ns / NS_PER_SECOND:g} s, and not before"
    death = history.death
    if death is None:
        return Promise(text, kept=False, detail="nobody was killed while holding a slot")
    if death.expires_ns is None:
        return Promise(text, kept=False, detail="the store knew nothing of its slot any more")
    taken = reuse(history, slots.capacity, slots.ttl_ns)
    lived = f"lapsed {_ms(death.expires_ns - death.killed_ns)} after the kill"
    if taken is None:
        return Promise(text, kept=False, detail=f"{lived}, but nobody took it")
    late_ns = taken.at_ns - death.expires_ns
    if late_ns < 0:
        return Promise(text, kept=False, detail=f"worker {taken.worker} took it {_ms(-late_ns)} too early")
    detail = f"{lived}, taken by worker {taken.worker} {_ms(late_ns)} later"
    return Promise(text, late_ns <= REUSED_WITHIN_NS, detail)


def _workers_came_home(history: History) -> Promise:
    detail = "; ".join(f"worker {number}: {words}" for number, words in sorted(history.failures.items()))
    return Promise("every other worker worked to the end", not history.failures, detail or "no process failed")


# --- numbers ---


def _rows(scenario: Scenario, history: History, jitter_ns: int) -> tuple[Row, ...]:
    over = audit(history.calls(), *scenario.quotas, at_once=scenario.slots.capacity, jitter=_seconds_up(jitter_ns))
    refused = [violation.quota for violation in over]

    def rate_row(name: str, rate: Rate) -> Row:
        granted = sum(grant.amounts[name] for grant in history.grants.values())
        allowed = scenario.allowed(rate)
        return Row(name, str(rate), f"{granted:,}", f"{allowed:,}", granted / allowed, refused.count(name))

    slots = scenario.slots
    held_ns = sum(call.ended_ns - call.started_ns for call in _leases_as_calls(scenario, history) if call.ended_ns)
    held_s, all_s = held_ns / NS_PER_SECOND, slots.capacity * scenario.seconds
    at_once = refused.count("at once")
    return (
        rate_row("requests", scenario.requests),
        rate_row("tokens", scenario.tokens),
        Row("slots", str(slots), f"{held_s:.1f} s", f"{all_s:.1f} s", held_s / all_s, at_once),
    )


def _grants_as_calls(history: History) -> list[Call]:
    return [
        Call(grant.at_ns, grant.at_ns, {name: grant.amounts[name] for name in ("requests", "tokens")})
        for grant in history.grants.values()
    ]


def _leases_as_calls(scenario: Scenario, history: History) -> list[Call]:
    ttl_ns = scenario.slots.ttl_ns
    return [Call(grant.at_ns, history.lease_end_ns(grant, ttl_ns)) for grant in history.grants.values()]


def _most_at_once(calls: Sequence[Call]) -> int:
    """How many ran at the busiest moment. Calls without an end count as running."""
    steps = [(call.started_ns, 1) for call in calls]
    steps += [(call.ended_ns, -1) for call in calls if call.ended_ns is not None]
    running = most = 0
    for _, step in sorted(steps):  # an end comes before a start of the same time
        running += step
        most = max(most, running)
    return most


def _jitter_ns(history: History) -> int:
    delays_ns = history.delays_ns()
    return max(delays_ns) - min(delays_ns) if delays_ns else 0


def _seconds_up(duration_ns: int) -> float:
    """Seconds, rounded up to the microsecond."""
    return -(-duration_ns // 1_000) / 1_000_000


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that so many percent do not exceed."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / NS_PER_MS:,.0f} ms" if duration_ns >= NS_PER_MS else f"{duration_ns / NS_PER_MS:.1f} ms"
