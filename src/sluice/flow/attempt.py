"""One attempt at a take: all of its parts, or nothing.

A store that decides several buckets jointly gets one request. At any other they are asked side by side where there is
room to spare, else one after another (see `sluice.flow.room`), and a refusal undoes the known others. Whoever is
cancelled while a take is on its way has it finished and undone. A process that dies here leaves rates spent and slots
to lapse.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.errors import ConfigError, Conflict, StoreUnavailable
from sluice.core.requests import Clash, Denied, Failure, Fold, Granted, Take, Unknown, Unreached
from sluice.core.usage import FOLD_PAST_HOURS, past_hours
from sluice.flow.ending import finish_end
from sluice.flow.hold import Hold, Sent
from sluice.flow.lease import Lease
from sluice.flow.persist import persist, unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sluice.flow.client import Client

logger = logging.getLogger("sluice")


async def attempt(client: Client, lease: Lease, hold: Hold, wait_ns: int = 0) -> Granted | Denied:
    """Ask once for all parts of a hold, all or nothing."""
    return await client.scope.finish(_attempt(client, lease, hold, wait_ns), undo=lambda: _undo(client, lease, hold))


async def _attempt(client: Client, lease: Lease, hold: Hold, wait_ns: int) -> Granted | Denied:
    try:
        outcome = await _ask(client, lease, hold, wait_ns)
    except ConfigError:
        await _undo(client, lease, hold)
        raise
    if isinstance(outcome, Granted):
        return outcome
    undone = await _undo(client, lease, hold)
    if isinstance(outcome, Clash):
        raise Conflict(
            f"lease id {hold.id!r} holds slots for another take already; an id names one take for ever, use a new one"
        )
    asked = f"taking {', '.join(part.key.resource for part in hold.parts)}"
    if isinstance(outcome, Unknown | Unreached):
        raise unavailable(outcome, asked)
    if not undone:
        raise StoreUnavailable(f"{asked}: refused, and a part that was taken is still being given back; try again")
    return outcome


async def _undo(client: Client, lease: Lease, hold: Hold) -> bool:
    """Undo what parts of a hold may have taken; whether the store knows."""
    work = lease.undo_work(hold)
    return work.done or await finish_end(client, work)


async def _ask(client: Client, lease: Lease, hold: Hold, wait_ns: int) -> Granted | Denied | Clash | Failure:
    parts = hold.parts
    if len(parts) == 1 or client.store.traits.joint:
        return await _send(client, lease, hold, list(range(len(parts))), wait_ns)
    now_ns = client.clock.now_ns()
    if client.room.to_spare(parts, now_ns):
        return await _send_side_by_side(client, lease, hold)
    granted: dict[int, Granted] = {}
    for number in client.room.in_order(parts, now_ns):
        outcome = await _send(client, lease, hold, [number], 0)
        if not isinstance(outcome, Granted):
            return outcome
        granted[number] = outcome
    return _together(granted)


def _together(granted: Mapping[int, Granted]) -> Granted:
    """The grants of all parts as one, with the images in the order of the parts."""
    answers = [granted[number] for number in sorted(granted)]
    now_ns = max(answer.now_ns for answer in answers)
    clamped = tuple(name for answer in answers for name in answer.clamped)
    images = tuple(image for answer in answers for image in answer.images)
    return Granted(now_ns, now_ns, images, clamped, repeated=all(answer.repeated for answer in answers))


async def _send_side_by_side(client: Client, lease: Lease, hold: Hold) -> Granted | Denied | Clash | Failure:
    """Send each part as a take of its own, all at once. What stays without an answer is asked for again, in turn."""
    takes = [Take(hold.id, (part,)) for part in hold.parts]
    steady_ns, wall_ns = client.clock.steady_ns(), client.clock.now_ns()
    hold.sent[:] = [Sent.DOUBTFUL] * len(takes)
    answers = await client.store.take(takes)
    granted: dict[int, Granted] = {}
    refused: list[Denied | Clash | Failure] = []
    unanswered: list[int] = []
    for number, answer in enumerate(answers):
        if isinstance(answer, Unreached) or (isinstance(answer, Unknown) and hold.parts[number].slots):
            unanswered.append(number)
            continue
        _note_found(lease, hold, takes[number], answer)
        _note(client, lease, hold, takes[number], answer, numbers=[number], sent_at_ns=(steady_ns, wall_ns))
        if isinstance(answer, Granted):
            granted[number] = answer
        else:
            refused.append(answer)
    for number in unanswered:
        if refused:  # nothing more is asked for; what is in doubt stays so, and is undone
            if isinstance(answers[number], Unreached):
                hold.sent[number] = Sent.NOT_YET
            continue
        outcome = await _send(client, lease, hold, [number], 0)
        if isinstance(outcome, Granted):
            granted[number] = outcome
        else:
            refused.append(outcome)
    return min(refused, key=_weight) if refused else _together(granted)


def _weight(refusal: Denied | Clash | Failure) -> tuple[int, int]:
    """Which of several refusals is told: what is in doubt, then a clash, then the denial with the longest wait."""
    if isinstance(refusal, Denied):
        return (2, -refusal.retry_in_ns)
    return (1, 0) if isinstance(refusal, Clash) else (0, 0)


async def _send(
    client: Client, lease: Lease, hold: Hold, numbers: list[int], wait_ns: int
) -> Granted | Denied | Clash | Failure:
    """Send some parts as one take, and note on the hold how far they have come."""
    parts = tuple(hold.parts[number] for number in numbers)
    take = Take(hold.id, parts, wait_ns)
    steady_ns, wall_ns = client.clock.steady_ns(), client.clock.now_ns()
    asked_before = any(hold.sent[number] is Sent.DOUBTFUL for number in numbers)
    for number in numbers:
        hold.sent[number] = Sent.DOUBTFUL
    until_ns = steady_ns + client.settings.timeout_ns
    repeatable = any(part.slots for part in parts)
    answer: Granted | Denied | Clash | Failure
    answer, doubtful = await persist(client, client.store.take, take, until_ns, repeatable=repeatable)
    if not asked_before and not doubtful:
        _note_found(lease, hold, take, answer)
    _note(client, lease, hold, take, answer, numbers=numbers, sent_at_ns=(steady_ns, wall_ns))
    return answer


def _note_found(lease: Lease, hold: Hold, take: Take, answer: Granted | Denied | Clash | Failure) -> None:
    """A take that this lease sent once, under an id of the caller's own, and that stood already, is somebody else's."""
    if lease.named and isinstance(answer, Granted) and answer.repeated:
        hold.found |= {part.key for part in take.parts}


def _note(
    client: Client,
    lease: Lease,
    hold: Hold,
    take: Take,
    answer: Granted | Denied | Clash | Failure,
    *,
    numbers: Sequence[int],
    sent_at_ns: tuple[int, int],
) -> None:
    """Write down what an answer says of the parts that were asked for."""
    if isinstance(answer, Unknown):
        return
    for number in numbers:
        hold.sent[number] = Sent.GRANTED if isinstance(answer, Granted) else Sent.NOT_YET
    if isinstance(answer, Granted):
        lease.granted(hold, answer, *sent_at_ns)
    if isinstance(answer, Granted | Denied):
        client.report(take, answer)
        _fold_old_hours(client, take, answer)
        if not client.store.traits.joint:
            client.room.saw(take.parts, answer.images)


def _fold_old_hours(client: Client, take: Take, answer: Granted | Denied) -> None:
    """File the usage of past hours when a bucket carries many, so that it stays small without a worker."""
    for part, image in zip(take.parts, answer.images, strict=True):
        many = past_hours(image.usage, answer.now_ns // NS_PER_HOUR) > FOLD_PAST_HOURS
        if many and part.key not in client.folding:
            client.folding.add(part.key)
            work = _fold(client, Fold(part.key))
            try:
                client.scope.spawn(work, "sluice fold")
            except RuntimeError as error:  # no thread to be had: whoever sees the bucket next files it
                work.close()
                client.folding.discard(part.key)
                logger.warning("usage of %s could not be filed: %s", part.key.text, error)


async def _fold(client: Client, request: Fold) -> None:
    try:
        await client.store.fold([request])
    except ConfigError as error:  # takes go on; whoever reads usage is told the same error
        logger.warning("usage of %s could not be filed: %s", request.key.text, error)
    finally:
        client.folding.discard(request.key)
