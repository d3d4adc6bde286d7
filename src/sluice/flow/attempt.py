"""One attempt at a take: all of its parts, or nothing.

A store that decides several buckets jointly gets one request. At any other they are asked one after another, slots
first, then the likeliest to refuse, and a refusal undoes the known others. Whoever is cancelled while a take is on its
way has it finished and undone. A process that dies here leaves rates spent and slots to lapse.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.errors import ConfigError, Conflict, StoreUnavailable
from sluice.core.requests import Clash, Denied, Failure, Fold, Granted, Part, Take, Unknown, Unreached
from sluice.core.usage import FOLD_PAST_HOURS, past_hours
from sluice.flow.ending import finish_end
from sluice.flow.hold import Hold, Sent
from sluice.flow.lease import Lease
from sluice.flow.persist import persist, unavailable

if TYPE_CHECKING:
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
    numbers = list(range(len(hold.parts)))
    if len(numbers) == 1 or client.store.traits.joint:
        return await _send(client, lease, hold, numbers, wait_ns)
    first, *others = sorted(numbers, key=lambda number: _reluctance(hold.parts[number]))
    outcome = await _send(client, lease, hold, [first], 0)
    for number in others:
        if not isinstance(outcome, Granted):
            break
        outcome = await _send(client, lease, hold, [number], 0)
    return outcome


def _reluctance(part: Part) -> tuple[bool, int]:
    """Slots come first, since giving them back is exact; then what has the fewest takes of this size to give."""
    return (not part.slots, min(charge.capacity // charge.amount for charge in part.charges))


async def _send(
    client: Client, lease: Lease, hold: Hold, numbers: list[int], wait_ns: int
) -> Granted | Denied | Clash | Failure:
    """Send some parts as one take, and note on the hold how far they have come."""
    parts = tuple(hold.parts[number] for number in numbers)
    take = Take(hold.id, parts, wait_ns)
    steady_ns, wall_ns = client.clock.steady_ns(), client.clock.now_ns()
    for number in numbers:
        hold.sent[number] = Sent.DOUBTFUL
    until_ns = steady_ns + client.settings.timeout_ns
    repeatable = any(part.slots for part in parts)
    answer: Granted | Denied | Clash | Failure
    answer, _ = await persist(client, client.store.take, take, until_ns, repeatable=repeatable)
    if isinstance(answer, Unknown):
        return answer
    for number in numbers:
        hold.sent[number] = Sent.GRANTED if isinstance(answer, Granted) else Sent.NOT_YET
    if isinstance(answer, Granted):
        lease.granted(hold, answer, steady_ns, wall_ns)
    if isinstance(answer, Granted | Denied):
        client.report(take, answer)
        _fold_old_hours(client, take, answer)
    return answer


def _fold_old_hours(client: Client, take: Take, answer: Granted | Denied) -> None:
    """File the usage of past hours when a bucket carries many, so that it stays small without a worker."""
    for part, image in zip(take.parts, answer.images, strict=True):
        many = past_hours(image.usage, answer.now_ns // NS_PER_HOUR) > FOLD_PAST_HOURS
        if many and part.key not in client.folding:
            client.folding.add(part.key)
            client.scope.spawn(_fold(client, Fold(part.key)), "sluice fold")


async def _fold(client: Client, request: Fold) -> None:
    try:
        await client.store.fold([request])
    except ConfigError as error:  # takes go on; whoever reads usage is told the same error
        logger.warning("usage of %s could not be filed: %s", request.key.text, error)
    finally:
        client.folding.discard(request.key)
