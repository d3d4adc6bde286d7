"""What happens to a bucket. THE specification: every engine's translation must answer exactly as this does.

A bucket holds, for each rate, ``full_at``: the time at which it will be full again if nobody takes, and the interval it
is counted in; for each slots limit the leases themselves, ``entry -> expires_at``; a pause; and usage by hour.

    now'     = max(now, paused_until)                     the bucket's clock stands still in a pause
    take n:    due  = max(full_at, now') + n * interval
               wait = due - now' - window, and the rest of a pause.    <= allowed: granted, full_at = due
    owe n:     full_at = max(full_at, now') + n * interval
    give n:    full_at = full_at - n * interval           the next take's max() caps it
    give up:   the same, only if full_at is still what the take left
    pause d:   full_at = max(full_at, now') + d
    restate:   full_at = now' + ceil((full_at - now') * new / old)     the limit's interval has changed

Why no interval of time can see more than capacity + rate * time: each take owns a stretch of the ``full_at`` axis, its
cost long, that begins no earlier than its turn and ends within a window of it; stretches never overlap; so those of all
turns in an interval fit into that interval and one window.

The clock: stepping back leaves ``full_at`` where it is, so it delays and never mints; one that was far ahead leaves a
``full_at`` no honest history can reach, which is clamped and reported. A process that dies leaves slots that count for
nothing from their expiry on. A lost reply is found again by the lease id if slots were taken; rates alone stay spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sluice.core.bounds import MAX_DEBT_CAPACITIES, MAX_TURN_NS, NS_PER_HOUR
from sluice.core.names import BucketKey, entry_owner, slot_entries
from sluice.core.requests import (
    Charge,
    Clash,
    Delta,
    Denied,
    GaveUp,
    GiveUp,
    Gone,
    Granted,
    LimitStatus,
    Part,
    RateCharge,
    Reaped,
    Release,
    Released,
    Renew,
    Renewed,
    Repair,
    Repaired,
    SlotEntry,
    SlotsCharge,
    Take,
    seconds_up,
)


@dataclass(frozen=True, slots=True)
class RateState:
    """A rate's whole state: when it will be full again, and the interval in which that was counted."""

    full_at_ns: int
    interval_ns: int


Hour = tuple[str, int]
"""A limit's name and hours since the epoch, UTC."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The state of one bucket. Its mappings are never changed in place."""

    rates: Mapping[str, RateState] = field(default_factory=dict)
    slots: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    paused_until_ns: int = 0
    paused_total_ns: int = 0
    usage: Mapping[Hour, int] = field(default_factory=dict)

    def clock_ns(self, now_ns: int) -> int:
        """The bucket's own time: it stands still until a pause has passed."""
        return max(now_ns, self.paused_until_ns)


EMPTY = Bucket()


# --- taking ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What one part would do to its bucket."""

    taken: Bucket
    untaken: Bucket
    wait_ns: int
    refusals: tuple[LimitStatus, ...]
    clamped: tuple[str, ...]


def take(buckets: Sequence[Bucket], request: Take, now_ns: int) -> tuple[tuple[Bucket, ...], Granted | Denied | Clash]:
    """Decide a take over the buckets of its parts, all or nothing.

    A refusal takes nothing, but states that were counted in another interval, or lay out of all reach, stay put right.
    """
    before = tuple(buckets)
    match _slots_already_held(before, request, now_ns):
        case "all":
            return before, Granted(now_ns, now_ns, before, repeated=True)
        case "some":
            return before, Clash(request.lease_id)
    verdicts = [_judge(bucket, part, request, now_ns) for bucket, part in zip(before, request.parts, strict=True)]
    clamped = tuple(name for verdict in verdicts for name in verdict.clamped)
    refusals = tuple(status for verdict in verdicts for status in verdict.refusals)
    wait_ns = max(verdict.wait_ns for verdict in verdicts)
    if refusals:
        after = tuple(verdict.untaken for verdict in verdicts)
        return after, Denied(now_ns, wait_ns, refusals, after, clamped)
    after = tuple(verdict.taken for verdict in verdicts)
    return after, Granted(now_ns, now_ns + wait_ns, after, clamped)


def _slots_already_held(buckets: Sequence[Bucket], request: Take, now_ns: int) -> str:
    """Whether this lease id holds what the take asks for: "none", "all" or "some" of it."""
    asked = held = 0
    clash = False
    for bucket, part in zip(buckets, request.parts, strict=True):
        for charge in part.charges:
            if isinstance(charge, SlotsCharge):
                asked += 1
                mine = _held_by(bucket.slots.get(charge.name, {}), request.lease_id, now_ns)
                held += mine > 0
                clash = clash or mine not in {0, charge.amount}
    if not held:
        return "none"
    return "some" if clash or held < asked else "all"


def _held_by(entries: Mapping[str, int], lease_id: str, now_ns: int) -> int:
    if lease_id not in entries:
        return 0
    return sum(expires_ns > now_ns and entry_owner(entry) == lease_id for entry, expires_ns in entries.items())


def _judge(bucket: Bucket, part: Part, request: Take, now_ns: int) -> _Verdict:
    clock_ns = bucket.clock_ns(now_ns)
    rates, slots, usage = dict(bucket.rates), dict(bucket.slots), dict(bucket.usage)
    counted = dict(bucket.rates)
    refusals: list[LimitStatus] = []
    clamped: list[str] = []
    longest_wait_ns = 0
    for charge in part.charges:
        if isinstance(charge, RateCharge):
            state = bucket.rates.get(charge.name)
            if state is not None:
                state, was_clamped = _counted_in(state, charge, clock_ns)
                counted[charge.name] = state
                if was_clamped:
                    clamped.append(charge.name)
            due_ns = _due_ns(state, charge, clock_ns)
            wait_ns = _rate_wait_ns(due_ns, charge, clock_ns) + clock_ns - now_ns
            rates[charge.name] = RateState(due_ns, charge.interval_ns)
            refused = wait_ns > request.wait_ns
        else:
            live = _live(bucket.slots.get(charge.name, {}), now_ns)
            wait_ns = _slots_wait_ns(live, charge, now_ns)
            wait_ns = max(wait_ns, clock_ns - now_ns)
            expires_ns = now_ns + charge.ttl_ns
            slots[charge.name] = live | dict.fromkeys(slot_entries(request.lease_id, charge.amount), expires_ns)
            refused = wait_ns > 0
        longest_wait_ns = max(longest_wait_ns, wait_ns)
        hour = (charge.name, now_ns // NS_PER_HOUR)
        usage[hour] = usage.get(hour, 0) + charge.amount
        if refused:
            refusals.append(_status(bucket, part.key, charge, wait_ns, now_ns))
    return _Verdict(
        replace(bucket, rates=rates, slots=slots, usage=usage),
        replace(bucket, rates=counted) if counted != bucket.rates else bucket,
        longest_wait_ns,
        tuple(refusals),
        tuple(clamped),
    )


def _counted_in(state: RateState, charge: RateCharge, clock_ns: int) -> tuple[RateState, bool]:
    """The state in the charge's interval and within all reach, and whether it had to be clamped for that."""
    full_at_ns = state.full_at_ns
    if state.interval_ns != charge.interval_ns:
        full_at_ns = restated_up(state, charge.interval_ns, clock_ns)
    reach_ns = clock_ns + (MAX_DEBT_CAPACITIES + 1) * charge.capacity * charge.interval_ns + MAX_TURN_NS
    if full_at_ns > reach_ns:
        return RateState(reach_ns, charge.interval_ns), True
    return RateState(full_at_ns, charge.interval_ns), False


def restated_up(state: RateState, interval_ns: int, clock_ns: int) -> int:
    """``full_at`` for the same backlog of tokens at another interval, rounded up to the nanosecond."""
    backlog_ns = state.full_at_ns - clock_ns
    if backlog_ns <= 0:
        return state.full_at_ns
    return clock_ns - (-backlog_ns * interval_ns // state.interval_ns)


def _due_ns(state: RateState | None, charge: RateCharge, clock_ns: int) -> int:
    full_at_ns = clock_ns if state is None else max(state.full_at_ns, clock_ns)
    return full_at_ns + charge.amount * charge.interval_ns


def _rate_wait_ns(due_ns: int, charge: RateCharge, clock_ns: int) -> int:
    return max(0, due_ns - clock_ns - (charge.capacity - charge.leave) * charge.interval_ns)


def _live(entries: Mapping[str, int], now_ns: int) -> dict[str, int]:
    return {entry: expires_ns for entry, expires_ns in entries.items() if expires_ns > now_ns}


def _slots_wait_ns(live: Mapping[str, int], charge: SlotsCharge, now_ns: int) -> int:
    """0 if there is room, else the time until enough of those seen will have lapsed."""
    missing = len(live) + charge.amount + charge.leave - charge.capacity
    if missing <= 0:
        return 0
    return sorted(live.values())[min(missing, len(live)) - 1] - now_ns


# --- looking --------------------------------------------------------------------------------------------------------


def status(bucket: Bucket, key: BucketKey, charge: Charge, now_ns: int) -> LimitStatus:
    """How a limit stands, and when ``charge`` could be taken if nobody else took."""
    clock_ns = bucket.clock_ns(now_ns)
    if isinstance(charge, RateCharge):
        state = bucket.rates.get(charge.name)
        if state is not None:
            state, _ = _counted_in(state, charge, clock_ns)
        wait_ns = _rate_wait_ns(_due_ns(state, charge, clock_ns), charge, clock_ns) + clock_ns - now_ns
    else:
        live = _live(bucket.slots.get(charge.name, {}), now_ns)
        wait_ns = max(_slots_wait_ns(live, charge, now_ns), clock_ns - now_ns)
    return _status(bucket, key, charge, wait_ns, now_ns)


def _status(bucket: Bucket, key: BucketKey, charge: Charge, wait_ns: int, now_ns: int) -> LimitStatus:
    available = _available(bucket, charge, now_ns)
    return LimitStatus(key.resource, charge.name, key.entity, charge.capacity, available, seconds_up(wait_ns))


def _available(bucket: Bucket, charge: Charge, now_ns: int) -> int:
    """What could be taken at once. Nothing during a pause."""
    if bucket.paused_until_ns > now_ns:
        return 0
    if isinstance(charge, SlotsCharge):
        return max(0, charge.capacity - len(_live(bucket.slots.get(charge.name, {}), now_ns)))
    state = bucket.rates.get(charge.name)
    if state is None:
        return charge.capacity
    state, _ = _counted_in(state, charge, now_ns)
    backlog_ns = max(0, state.full_at_ns - now_ns)
    return max(0, (charge.capacity * charge.interval_ns - backlog_ns) // charge.interval_ns)


# --- correcting -----------------------------------------------------------------------------------------------------


def settle(bucket: Bucket, deltas: Sequence[Delta], now_ns: int) -> Bucket:
    """Owe what was used beyond what was taken, give back what was not.

    Tokens are counted in the interval that stands in the bucket; in the delta's own only if the rate is not there,
    which means that it is full: nothing can be given back to it then.
    """
    clock_ns = bucket.clock_ns(now_ns)
    rates, usage = dict(bucket.rates), dict(bucket.usage)
    for delta in deltas:
        state = rates.get(delta.name)
        if delta.tokens > 0:
            state = state or RateState(clock_ns, delta.interval_ns)
            base_ns = max(state.full_at_ns, clock_ns)
            rates[delta.name] = RateState(base_ns + delta.tokens * state.interval_ns, state.interval_ns)
        elif state is not None:
            full_at_ns = state.full_at_ns + delta.tokens * state.interval_ns
            rates[delta.name] = RateState(full_at_ns, state.interval_ns)
        hour = (delta.name, now_ns // NS_PER_HOUR)
        usage[hour] = usage.get(hour, 0) + delta.tokens
    return replace(bucket, rates=rates, usage=usage)


def give_up(bucket: Bucket, request: GiveUp, now_ns: int) -> tuple[Bucket, GaveUp]:
    """Give a turn up. It goes back only from the end of the line; from its middle, two would get the same turn."""
    state = bucket.rates.get(request.name)
    if state != RateState(request.left_full_at_ns, request.interval_ns):
        return bucket, GaveUp(now_ns, returned=False)
    returned = settle(bucket, (Delta(request.name, -request.amount, request.interval_ns),), now_ns)
    return returned, GaveUp(now_ns, returned=True)


def release(bucket: Bucket, request: Release, now_ns: int) -> tuple[Bucket, Released | Gone]:
    """Give back a lease's slots and correct its rates. A second time, or once replaced, nothing is left to do."""
    slots = {
        name: {entry: expires_ns for entry, expires_ns in entries.items() if entry_owner(entry) != request.lease_id}
        for name, entries in bucket.slots.items()
    }
    if slots == bucket.slots:
        return bucket, Gone(now_ns)
    return settle(replace(bucket, slots=slots), request.deltas, now_ns), Released(now_ns)


def renew(bucket: Bucket, request: Renew, now_ns: int) -> tuple[Bucket, Renewed | Gone]:
    """Raise the expiry of live slots, all or none. A lapsed lease is never brought back, reaped or not."""
    slots = dict(bucket.slots)
    for charge in request.slots:
        entries = slots.get(charge.name, {})
        if _held_by(entries, request.lease_id, now_ns) != charge.amount:
            return bucket, Gone(now_ns)
        expires_ns = now_ns + charge.ttl_ns
        slots[charge.name] = {
            entry: max(was_ns, expires_ns) if was_ns > now_ns and entry_owner(entry) == request.lease_id else was_ns
            for entry, was_ns in entries.items()
        }
    return replace(bucket, slots=slots), Renewed(now_ns)


def pause(bucket: Bucket, for_ns: int, now_ns: int) -> Bucket:
    """Stop the bucket's clock until ``for_ns`` from now: nobody is granted, and the line moves as one."""
    clock_ns = bucket.clock_ns(now_ns)
    shift_ns = now_ns + for_ns - clock_ns
    if shift_ns <= 0:
        return bucket
    rates = {
        name: RateState(max(state.full_at_ns, clock_ns) + shift_ns, state.interval_ns)
        for name, state in bucket.rates.items()
    }
    return replace(
        bucket,
        rates=rates,
        paused_until_ns=now_ns + for_ns,
        paused_total_ns=bucket.paused_total_ns + shift_ns,
    )


# --- tidying --------------------------------------------------------------------------------------------------------


def lapsed(bucket: Bucket, now_ns: int) -> tuple[SlotEntry, ...]:
    """The slots whose holders let them lapse and that nobody has tidied away."""
    return tuple(
        SlotEntry(name, entry, expires_ns)
        for name, entries in bucket.slots.items()
        for entry, expires_ns in entries.items()
        if expires_ns <= now_ns
    )


def reap(bucket: Bucket, seen: Sequence[SlotEntry], now_ns: int) -> tuple[Bucket, Reaped]:
    """Tidy away those of ``seen`` that have lapsed and are still as they were seen."""
    due = {slot for slot in lapsed(bucket, now_ns) if slot in set(seen)}
    if not due:
        return bucket, Reaped(now_ns, ())
    slots = {
        name: {e: expires for e, expires in entries.items() if SlotEntry(name, e, expires) not in due}
        for name, entries in bucket.slots.items()
    }
    return replace(bucket, slots=slots), Reaped(now_ns, tuple(slot for slot in seen if slot in due))


def repair(bucket: Bucket, request: Repair, now_ns: int) -> tuple[Bucket, Repaired]:
    """Take back what a clock far ahead has left: the pause, full_at past a window from now, expiries past a TTL.

    A pause is ended as if it had been set to end now, so the line moves back as one. A rate is left spent whole: debts,
    and turns beyond the window, are forgiven, so who holds such a turn starts beside those who are granted from now on.
    Slots keep the limit's TTL from now, and whoever lives renews them.
    """
    rest_ns = max(0, bucket.paused_until_ns - now_ns)
    rates = {name: RateState(state.full_at_ns - rest_ns, state.interval_ns) for name, state in bucket.rates.items()}
    slots = dict(bucket.slots)
    limits = []
    for charge in request.charges:
        if isinstance(charge, RateCharge):
            state = rates.get(charge.name)
            if state is None:
                continue
            most_ns = now_ns + charge.capacity * charge.interval_ns
            if state.interval_ns != charge.interval_ns:
                state = RateState(restated_up(state, charge.interval_ns, now_ns), charge.interval_ns)
            if state.full_at_ns > most_ns:
                rates[charge.name] = RateState(most_ns, charge.interval_ns)
                limits.append(charge.name)
        else:
            most_ns = now_ns + charge.ttl_ns
            entries = slots.get(charge.name, {})
            if any(expires_ns > most_ns for expires_ns in entries.values()):
                slots[charge.name] = {entry: min(expires_ns, most_ns) for entry, expires_ns in entries.items()}
                limits.append(charge.name)
    if not rest_ns and not limits:
        return bucket, Repaired(now_ns, bucket, (), pause_ended=False)
    repaired = Bucket(rates, slots, min(bucket.paused_until_ns, now_ns), bucket.paused_total_ns - rest_ns, bucket.usage)
    return repaired, Repaired(now_ns, repaired, tuple(limits), pause_ended=rest_ns > 0)


def fold(bucket: Bucket, now_ns: int) -> tuple[Bucket, dict[Hour, int]]:
    """Take the usage of past hours out of the bucket."""
    this_hour = now_ns // NS_PER_HOUR
    past = {hour: amount for hour, amount in bucket.usage.items() if hour[1] < this_hour}
    kept = {hour: amount for hour, amount in bucket.usage.items() if hour[1] >= this_hour}
    return (replace(bucket, usage=kept), past) if past else (bucket, {})


def idle(bucket: Bucket, now_ns: int) -> bool:
    """Whether the bucket could be forgotten: every rate full, no lease, no usage, no pause."""
    return (
        bucket.paused_until_ns <= now_ns
        and not bucket.usage
        and not any(bucket.slots.values())
        and all(state.full_at_ns <= now_ns for state in bucket.rates.values())
    )
