"""Several takes of one bucket in one write: what they charge is added up.

    all fit            one write, and each is granted, with the bucket as it stood after it
    refused            the image tells, by the core, which of them fit one after another: those go in one write
    anything else      a repeated id, a limit counted anew, others who were faster: one by one, as if alone

Each keeps its own condition: taken in their order, the k-th needs ``f <= now + window_k - (cost_1 + .. + cost_k)``, and
all of them hold if the least of these bounds does. So what is granted is what would have been granted one by one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sluice.core import bucket as core
from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import Bucket, RateState
from sluice.core.names import BucketKey, entry_owner
from sluice.core.requests import Charge, Clash, Denied, Granted, Part, RateCharge, Take, Unknown, Unreached
from sluice.stores.dynamodb.charging import TakeWrite
from sluice.stores.dynamodb.expressions import MAX_ENTRIES, BucketWrite
from sluice.stores.dynamodb.rounds import Bench, Work
from sluice.stores.dynamodb.taking import Outcome, aged, take

MAX_TOGETHER: Final = 64
"""Takes that go in one write, as long as they make no more than `MAX_ENTRIES` slots."""

Numbered = tuple[int, Take]
Answers = list[tuple[int, Outcome]]


def take_all(bench: Bench, key: BucketKey, requests: Sequence[Numbered]) -> Work[Answers]:
    """Decide takes of one bucket, in their order."""
    answers: Answers = []
    waiting = list(requests)
    while waiting:
        together = _that_go_together(waiting)
        if len(together) == 1:
            answers += yield from _one_by_one(bench, together)
        else:
            answers += yield from _take_together(bench, key, together)
        del waiting[: len(together)]
    return answers


def _one_by_one(bench: Bench, requests: Sequence[Numbered]) -> Work[Answers]:
    answers: Answers = []
    for number, request in requests:
        outcome = yield from take(bench, request)
        answers.append((number, outcome))
    return answers


def _that_go_together(requests: Sequence[Numbered]) -> list[Numbered]:
    """The first of them, and those behind it that name the same limits. Who would wait for a turn goes alone."""
    _, first = requests[0]
    together = [requests[0]]
    slots = first.parts[0].slots
    ids = {first.lease_id}
    room = MAX_ENTRIES // max(1, len(slots)) - sum(charge.amount for charge in slots)
    for number, request in () if first.wait_ns else requests[1:MAX_TOGETHER]:
        room -= sum(charge.amount for charge in request.parts[0].slots)
        alike = not request.wait_ns and _limits(request) == _limits(first)
        if room < 0 or not alike or request.lease_id in ids:
            break
        ids.add(request.lease_id)
        together.append((number, request))
    return together


def _limits(request: Take) -> tuple[tuple[str, int], ...]:
    """The limits that a take names, and the intervals that they are counted in."""
    charges = request.parts[0].charges
    return tuple((c.name, c.interval_ns if isinstance(c, RateCharge) else 0) for c in charges)


def _take_together(bench: Bench, key: BucketKey, requests: Sequence[Numbered]) -> Work[Answers]:
    takes = [request for _, request in requests]
    answer = yield from bench.write(key, _write(bench, takes, bench.beliefs.get(key)))
    if isinstance(answer, Unknown | Unreached):
        return [(number, answer) for number, _ in requests]
    done, image = answer
    if done:
        return [(requests[n][0], granted) for n, granted in enumerate(_grants(bench, takes, image))]
    foreseen = _foreseen(bench, takes, image)
    if foreseen is None:
        return (yield from _one_by_one(bench, requests))
    fitting = [n for n, outcome in enumerate(foreseen) if isinstance(outcome, Granted)]
    if not fitting:
        return [(requests[n][0], replace(outcome, images=(image,))) for n, outcome in enumerate(foreseen)]
    answer = yield from bench.write(key, _write(bench, [takes[n] for n in fitting], image))
    if isinstance(answer, Unknown | Unreached):
        return [(number, answer) for number, _ in requests]
    if not answer[0]:
        return (yield from _one_by_one(bench, requests))
    granted = dict(zip(fitting, _grants(bench, [takes[n] for n in fitting], answer[1]), strict=True))
    return (yield from _with_denials(bench, requests, foreseen, granted, seen=image))


def _with_denials(
    bench: Bench,
    requests: Sequence[Numbered],
    foreseen: Sequence[Outcome],
    granted: dict[int, Granted],
    *,
    seen: Bucket,
) -> Work[Answers]:
    """Those that were granted, and between them those that were not, each by the bucket as it stood then."""
    answers: Answers = []
    stood = seen
    for n, (number, request) in enumerate(requests):
        outcome: Outcome = granted[n] if n in granted else foreseen[n]
        if isinstance(outcome, Granted):
            (stood,) = outcome.images
        elif stood is not seen:
            before = aged(stood, {request.lease_id}, bench.max_skew_ns)
            _, outcome = core.take((before,), request, bench.now_ns)
            if not isinstance(outcome, Denied):  # others gave back meanwhile
                outcome = yield from take(bench, request)
        answers.append((number, replace(outcome, images=(stood,)) if isinstance(outcome, Denied) else outcome))
    return answers


def _write(bench: Bench, takes: Sequence[Take], image: Bucket | None) -> BucketWrite:
    return TakeWrite(takes, _sum(takes), image, bench.now_ns, bench.max_skew_ns).guess()


def _sum(takes: Sequence[Take]) -> Part:
    """What takes charge together: the room is the least that any of them leaves, taken one after another."""
    parts = [request.parts[0] for request in takes]
    charges: list[Charge] = []
    for same in zip(*(part.charges for part in parts), strict=True):
        total = 0
        room = same[0].capacity
        for charge in same:
            total += charge.amount
            room = min(room, charge.capacity - charge.leave - total)
        charges.append(replace(same[0], amount=total, capacity=total + room, leave=0))
    return Part(parts[0].key, tuple(charges))


def _foreseen(bench: Bench, takes: Sequence[Take], image: Bucket) -> list[Granted | Denied] | None:
    """What the core says of takes one after another; None if it is more than plain grants and denials."""
    state = aged(image, {request.lease_id for request in takes}, bench.max_skew_ns)
    outcomes: list[Granted | Denied] = []
    for request in takes:
        if any(_counted_anew(charge, image) for charge in request.parts[0].rates):
            return None
        (after,), outcome = core.take((state,), request, bench.now_ns)
        if isinstance(outcome, Clash) or outcome.clamped or (isinstance(outcome, Granted) and outcome.repeated):
            return None
        if isinstance(outcome, Granted):
            state = after
        outcomes.append(outcome)
    return outcomes


def _counted_anew(charge: RateCharge, image: Bucket) -> bool:
    rate = image.rates.get(charge.name)
    return rate is not None and rate.interval_ns != charge.interval_ns


def _grants(bench: Bench, takes: Sequence[Take], image: Bucket) -> list[Granted]:
    """The grants of a write, each with the bucket as it stood after it: the last image without those behind."""
    images = [image]
    for request in reversed(takes[1:]):
        images.append(_before(request, images[-1], bench.now_ns))
    return [Granted(bench.now_ns, bench.now_ns, (stood,)) for stood in reversed(images)]


def _before(request: Take, image: Bucket, now_ns: int) -> Bucket:
    """An image without what a take has just charged."""
    rates, slots, usage = dict(image.rates), dict(image.slots), dict(image.usage)
    for charge in request.parts[0].charges:
        usage[charge.name, now_ns // NS_PER_HOUR] -= charge.amount
        if isinstance(charge, RateCharge):
            state = rates[charge.name]
            rates[charge.name] = RateState(state.full_at_ns - charge.amount * charge.interval_ns, state.interval_ns)
        else:
            entries = slots[charge.name]
            slots[charge.name] = {e: at_ns for e, at_ns in entries.items() if entry_owner(e) != request.lease_id}
    return replace(image, rates=rates, slots=slots, usage=usage)
