"""The write of a take: for each charge a shape, chosen by what is believed of the bucket.

    running   full_at is ahead of now:      ADD f cost               if i is the interval and now < f <= bound
    full      it is not, or nothing is:     SET f = now + cost       if f is not there or f <= now
    pinned    another interval, or beyond   SET f = what was         if f and i are what was seen
              all reach: counted anew       decided
    topped    nothing is believed:          SET f = top + cost       if i is the interval and f <= top
    slots     a map of leases:              SET s.id = expires       if size(s) <= capacity - amount, and no such id

where bound = now + window + wait - cost, so that what is granted is exactly what the core grants. In a pause that a
turn may wait for, the bucket's clock stands at its end, and the write is pinned on that. ``topped`` errs towards the
limit by up to `SLACK` costs, and so needs no guess.

Now is read once for a take. Whoever was refused because others had been faster finds ``f`` ahead of it, and ``running``
can then only be refused by the limit: so two wrong guesses in a row are rare, and a third all but never happens.

Lapsed slots are replaced in the same write, each named with the expiry seen, so nobody's renewed slot is removed.
"""

from collections.abc import Collection, Sequence
from typing import Final

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import Bucket, RateState
from sluice.core.names import entry_owner, slot_entries
from sluice.core.requests import Part, RateCharge, SlotsCharge, Take
from sluice.stores.dynamodb.expressions import MAX_ENTRIES, BucketWrite
from sluice.stores.dynamodb.images import lease_map
from sluice.stores.dynamodb.table import FULL_AT, INTERVAL, PAUSED_UNTIL, SLOTS, usage_attribute

MAX_REPLACED: Final = 20
"""Lapsed slots that a take replaces in its own write."""

SLACK: Final = 4
"""How many costs past what was seen a topped take may be charged."""


class TakeWrite:
    """One try at takes of one bucket, from an image that is believed (None: nothing is).

    ``part`` is what all of them charge together; each holds its own slots.
    """

    def __init__(self, takes: Sequence[Take], part: Part, image: Bucket | None, now_ns: int, max_skew_ns: int) -> None:
        self._takes = takes
        self._ids = frozenset(take.lease_id for take in takes)
        self._wait_ns = takes[0].wait_ns
        self._part = part
        self._image = image
        self._now_ns = now_ns
        self._max_skew_ns = max_skew_ns
        self._replaceable = MAX_REPLACED
        self._write = BucketWrite(part.key)

    def guess(self) -> BucketWrite:
        """By the shapes that the image suggests."""
        return self._put_together({}, topped=False)

    def decided(self, pinned: dict[str, RateState]) -> BucketWrite:
        """The same, with some rates counted anew: those, as the core has decided them."""
        return self._put_together(pinned, topped=False)

    def topped(self, pinned: dict[str, RateState]) -> BucketWrite:
        """Erring towards the limit, so that others who are faster don't stand in the way."""
        return self._put_together(pinned, topped=True)

    def _put_together(self, pinned: dict[str, RateState], *, topped: bool) -> BucketWrite:
        write = self._write
        clock_ns, clock = self._pause()
        several = len(self._part.slots)
        hour = self._now_ns // NS_PER_HOUR
        for charge in self._part.charges:
            if isinstance(charge, SlotsCharge):
                self._slots(charge, MAX_ENTRIES // several)
            elif charge.name in pinned:
                self._pinned(charge, pinned[charge.name])
            elif topped:
                self._topped(charge, clock_ns, clock)
            else:
                self._running_or_full(charge, clock_ns, clock)
            write.add(write.name(usage_attribute(charge.name, hour)), write.number(charge.amount))
        return write

    def _pause(self) -> tuple[int, str]:
        """The bucket's clock, and its placeholder; grants only outside a pause, or in the one that was seen."""
        write = self._write
        paused = write.name(PAUSED_UNTIL)
        until_ns = 0 if self._image is None else self._image.paused_until_ns
        if self._now_ns < until_ns <= self._now_ns + self._wait_ns:
            until = write.number(until_ns)
            write.only_if(f"{paused}={until}")
            return until_ns, until
        now = write.number(self._now_ns)
        write.only_if(f"(attribute_not_exists({paused}) OR {paused}<={now})", exists=False)
        return self._now_ns, now

    # --- rates ---

    def _bound_ns(self, charge: RateCharge) -> int:
        """The furthest ahead that full_at may lie for the charge to be granted."""
        room = charge.capacity - charge.leave - charge.amount
        return self._now_ns + room * charge.interval_ns + self._wait_ns

    def _running_or_full(self, charge: RateCharge, clock_ns: int, clock: str) -> None:
        write = self._write
        state = None if self._image is None else self._image.rates.get(charge.name)
        bound_ns = self._bound_ns(charge)
        full_at, interval = write.name(FULL_AT + charge.name), write.name(INTERVAL + charge.name)
        cost_ns = charge.amount * charge.interval_ns
        if bound_ns >= clock_ns and (state is None or state.full_at_ns <= clock_ns):
            write.set(full_at, write.number(clock_ns + cost_ns))
            if state is None:
                write.set(interval, write.number(charge.interval_ns))
                write.new_rate(charge.name)
                write.only_if(f"(attribute_not_exists({full_at}) OR {full_at}<={clock})", exists=False)
            elif state.interval_ns != charge.interval_ns:
                write.set(interval, write.number(charge.interval_ns))
                write.only_if(f"{full_at}<={clock}")
            else:
                write.only_if(f"{full_at}<={clock} AND {interval}={write.number(charge.interval_ns)}")
            return
        write.add(full_at, write.number(cost_ns))
        stands = write.number(charge.interval_ns)
        write.only_if(f"{interval}={stands} AND {full_at}>{clock} AND {full_at}<={write.number(bound_ns)}")

    def _pinned(self, charge: RateCharge, decided: RateState) -> None:
        write = self._write
        seen = self._image.rates[charge.name] if self._image is not None else decided
        pin_rate(write, charge.name, seen)
        set_rate(write, charge.name, decided)

    def _topped(self, charge: RateCharge, clock_ns: int, clock: str) -> None:
        state = None if self._image is None else self._image.rates.get(charge.name)
        if state is None or state.interval_ns != charge.interval_ns:
            self._running_or_full(charge, clock_ns, clock)
            return
        write = self._write
        cost_ns = charge.amount * charge.interval_ns
        top_ns = min(self._bound_ns(charge), max(state.full_at_ns, clock_ns) + SLACK * cost_ns)
        full_at, interval = write.name(FULL_AT + charge.name), write.name(INTERVAL + charge.name)
        write.set(full_at, write.number(top_ns + cost_ns))
        write.only_if(f"{interval}={write.number(charge.interval_ns)} AND {full_at}<={write.number(top_ns)}")

    # --- slots ---

    def _slots(self, charge: SlotsCharge, most_entries: int) -> None:
        write = self._write
        slots = write.name(SLOTS + charge.name)
        seen = None if self._image is None else self._image.slots.get(charge.name)
        mine = self._entries(charge.name)
        if seen is not None and charge.amount > most_entries:
            kept = {entry: at_ns for entry, at_ns in seen.items() if not self._lapsed(entry, at_ns)}
            fits = len(kept) + charge.amount + charge.leave <= charge.capacity
            if fits and self._ids.isdisjoint(kept):
                write.set(slots, write.value(lease_map(kept | mine)))
                write.only_if(f"{slots}={write.value(lease_map(dict(seen)))}")
                return
            seen = None  # a guess that is refused where it matters, and shows what is there
        room = charge.capacity - charge.leave - charge.amount
        if seen is None:
            write.set(slots, write.value(lease_map(mine)))
            write.only_if(f"attribute_not_exists({slots})", exists=False)
            if room < 0:
                write.only_if(f"size({slots})<={write.number(room)}")
            return
        lapsed = [entry for entry, at_ns in seen.items() if at_ns <= self._now_ns and self._lapsed(entry, at_ns)]
        del lapsed[self._replaceable :]
        self._replaceable -= len(lapsed)
        for entry in lapsed:
            path = write.entry(SLOTS + charge.name, entry)
            write.only_if(f"{path}={write.number(seen[entry])}")
            if entry not in mine:
                write.remove(path)
        for lease_id in sorted(self._ids.difference(lapsed)):
            own = write.entry(SLOTS + charge.name, lease_id)
            write.only_if(f"attribute_not_exists({own})", exists=False)
        for entry, expires_ns in mine.items():
            write.set(write.entry(SLOTS + charge.name, entry), write.number(expires_ns))
        write.only_if(f"size({slots})<={write.number(room + len(lapsed))}")

    def _entries(self, name: str) -> dict[str, int]:
        """The entries that the takes make of a limit, with their expiries."""
        return {
            entry: self._now_ns + charge.ttl_ns
            for take in self._takes
            for charge in take.parts[0].slots
            if charge.name == name
            for entry in slot_entries(take.lease_id, charge.amount)
        }

    def _lapsed(self, entry: str, expires_ns: int) -> bool:
        return lapsed_for(self._ids, entry, expires_ns, self._now_ns, self._max_skew_ns)


def lapsed_for(ids: Collection[str], entry: str, expires_ns: int, now_ns: int, max_skew_ns: int) -> bool:
    """Whether leases may replace an entry: their own at its expiry, another's once every clock says it is over."""
    own = max_skew_ns and entry_owner(entry) in ids
    return expires_ns + (0 if own else max_skew_ns) <= now_ns


def pin_rate(write: BucketWrite, name: str, seen: RateState) -> None:
    """Write only if a rate is still as it was seen."""
    full_at, interval = write.name(FULL_AT + name), write.name(INTERVAL + name)
    write.only_if(f"{full_at}={write.number(seen.full_at_ns)} AND {interval}={write.number(seen.interval_ns)}")


def set_rate(write: BucketWrite, name: str, state: RateState) -> None:
    write.set(write.name(FULL_AT + name), write.number(state.full_at_ns))
    write.set(write.name(INTERVAL + name), write.number(state.interval_ns))
