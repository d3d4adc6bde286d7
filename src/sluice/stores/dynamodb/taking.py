"""A take of one bucket: at most a few writes, of which all but one change nothing.

    guess          by the image last seen: no read comes first
    refused        the engine shows the bucket as it is, and the core decides on that, exactly:
                     denied       so it is denied. What must be counted anew for it is, pinned on what was seen
                     repeated     the id holds what it asks for already: its first reply was lost
                     granted      the guess was wrong: the shapes that the image asks for, then
    `TRIES` times  others were faster each time: denied, ``contended``

A reply that is lost leaves the take in doubt, and the doubt is the caller's: with slots it asks again under the same id
and finds them; rates alone stay spent. A clock that is behind is denied more than it must be; one that is ahead leaves
what the next exact image clamps. The slots of others count until `max_skew` after their expiry.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from typing import Final

from sluice.core import bucket as core
from sluice.core.bounds import NS_PER_MS
from sluice.core.bucket import Bucket, RateState
from sluice.core.names import entry_owner
from sluice.core.requests import Clash, Denied, Granted, Part, RateCharge, SlotEntry, Take, Unknown, Unreached
from sluice.stores.dynamodb.charging import MAX_REPLACED, TakeWrite, lapsed_for
from sluice.stores.dynamodb.expressions import MAX_ENTRIES, BucketWrite
from sluice.stores.dynamodb.leases import removal
from sluice.stores.dynamodb.pinning import pinned_write
from sluice.stores.dynamodb.rounds import Bench, Work

TRIES: Final = 4
"""Writes that a take may try before it is denied as contended."""

TIDYINGS: Final = 20
"""Writes beyond those in which a take may tidy away lapsed slots that are too many for its own."""

CONTENDED_RETRY_NS: Final = 5 * NS_PER_MS

Outcome = Granted | Denied | Clash | Unknown | Unreached


class _Step(Enum):
    """What a write of a take is for."""

    TAKING = "to take"
    COUNTING = "to count anew what a denial was decided on"
    TIDYING = "to tidy away lapsed slots that stand in the way"


def take(bench: Bench, request: Take) -> Work[Outcome]:
    """Decide a take of one bucket."""
    (part,) = request.parts
    write = _try(bench, request, bench.beliefs.get(part.key)).guess()
    step = _Step.TAKING
    clamped: tuple[str, ...] = ()
    tries = 0
    for _ in range(TRIES + TIDYINGS):
        answer = yield from bench.write(part.key, write)
        if isinstance(answer, Unknown | Unreached):
            return answer if step is _Step.TAKING else Unreached(answer.why)
        done, image = answer
        if done and step is _Step.TAKING:
            return Granted(bench.now_ns, _turn_ns(bench, request, part, image), (image,), clamped)
        tries += step is _Step.TAKING
        after, outcome = _decide(bench, request, image)
        if isinstance(outcome, Clash):
            return outcome
        if isinstance(outcome, Denied):
            if after.rates == image.rates:
                told = clamped if done and step is _Step.COUNTING else outcome.clamped
                return replace(outcome, images=(image,), clamped=told)
            step, clamped = _Step.COUNTING, outcome.clamped
            write = pinned_write(part.key, image, replace(image, rates=after.rates))
        elif outcome.repeated:
            return replace(outcome, images=(image,))
        elif tries >= TRIES:
            break
        elif (tidying := _tidying(bench, request, part, image)) is not None:
            step, write = _Step.TIDYING, tidying
        else:
            step, clamped = _Step.TAKING, outcome.clamped
            pinned = _counted_anew(part, image, after, clamped, bench.now_ns)
            made = _try(bench, request, image)
            write = made.topped(pinned) if tries == TRIES - 1 else made.decided(pinned)
    return Denied(bench.now_ns, CONTENDED_RETRY_NS, (), (image,), contended=True)


def _try(bench: Bench, request: Take, image: Bucket | None) -> TakeWrite:
    return TakeWrite((request,), request.parts[0], image, bench.now_ns, bench.max_skew_ns)


def _decide(bench: Bench, request: Take, image: Bucket) -> tuple[Bucket, Granted | Denied | Clash]:
    """What the core says of an image, in which the slots of others live on until every clock says that they lapsed."""
    (after,), outcome = core.take((aged(image, {request.lease_id}, bench.max_skew_ns),), request, bench.now_ns)
    return after, outcome


def aged(image: Bucket, ids: Collection[str], max_skew_ns: int) -> Bucket:
    """An image in which the slots of others lapse as late as any clock may say."""
    if not max_skew_ns or not image.slots:
        return image
    slots = {
        name: {
            entry: expires_ns if entry_owner(entry) in ids else expires_ns + max_skew_ns
            for entry, expires_ns in entries.items()
        }
        for name, entries in image.slots.items()
    }
    return replace(image, slots=slots)


def _counted_anew(
    part: Part, image: Bucket, after: Bucket, clamped: tuple[str, ...], now_ns: int
) -> dict[str, RateState]:
    """The rates of a grant that no shape fits: counted in another interval, or out of all reach."""
    clock_ns = image.clock_ns(now_ns)
    return {
        charge.name: after.rates[charge.name]
        for charge in part.rates
        if (state := image.rates.get(charge.name)) is not None
        and state.full_at_ns > clock_ns
        and (state.interval_ns != charge.interval_ns or charge.name in clamped)
    }


def _turn_ns(bench: Bench, request: Take, part: Part, image: Bucket) -> int:
    """When the turn of a grant comes, from what its write has left behind."""
    if not request.wait_ns:
        return bench.now_ns
    clock_ns = image.clock_ns(bench.now_ns)
    return max(
        max(clock_ns, image.rates[charge.name].full_at_ns - (charge.capacity - charge.leave) * charge.interval_ns)
        for charge in part.charges
        if isinstance(charge, RateCharge)
    )


def _tidying(bench: Bench, request: Take, part: Part, image: Bucket) -> BucketWrite | None:
    """A write that tidies lapsed slots away where more of them stand in the way than a take replaces by itself."""
    for charge in part.slots:
        entries = image.slots.get(charge.name, {})
        excess = len(entries) + charge.amount + charge.leave - charge.capacity
        if excess > MAX_REPLACED // len(part.slots) and charge.amount <= MAX_ENTRIES // len(part.slots):
            lapsed = [
                SlotEntry(charge.name, entry, at_ns)
                for entry, at_ns in entries.items()
                if lapsed_for({request.lease_id}, entry, at_ns, bench.now_ns, bench.max_skew_ns)
            ]
            return removal(part.key, lapsed[:MAX_ENTRIES])
    return None
