"""Waiting: in turn or in line.

    in turn    one rate of one bucket: the tokens are taken in advance, the caller sleeps until its turn and reads once
               whether a pause has moved it; first come, first served across all processes, one write and one read
    in line    anything else: holds nothing while it waits, and asks again when a denial's wait has passed

(Taking several limits in advance would burst: each is charged now, but used at the latest of their turns.)

A turn that is given up goes back if nobody came behind it, else it stays spent. If the store can't be read when the
turn comes, the turn is given up too: nobody starts on a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sluice.core import bucket as core
from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.core.requests import Denied, Granted, Part, Peek, Take
from sluice.flow.attempt import attempt
from sluice.flow.ending import finish_end
from sluice.flow.hold import Turn, new_lease_id
from sluice.flow.lease import Lease
from sluice.flow.persist import sure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.flow.ask import Ask
    from sluice.flow.client import Client
    from sluice.flow.line import Place

FIRST_PATIENCE_NS: Final = 20 * NS_PER_MS
LAST_PATIENCE_NS: Final = 500 * NS_PER_MS
"""Between asks for slots, and as jitter after a contended denial, the gap doubles from one to the other."""

LEAST_LENIENCE_NS: Final = 50 * NS_PER_MS
"""Of the refills that a rate foretells, a waiter lets others have those of `LAST_PATIENCE_NS` at most; each time that
it asks in vain, of half as long, down to this: who has waited longest lets the fewest pass."""


async def take_in_turn(client: Client, ask: Ask, lease: Lease) -> Granted | Denied:
    until_ns = client.clock.steady_ns() + ask.wait_ns
    outcome = await attempt(client, lease, lease.holds[0], ask.wait_ns)
    if isinstance(outcome, Denied) or lease.turn is None:
        return outcome
    came = False
    try:
        denied = await _wait_for_turn(client, lease, lease.turn, until_ns)
        came = denied is None
    finally:
        if not came:
            await finish_end(client, lease.undo_work(lease.holds[0]))
    return outcome if denied is None else denied


async def _wait_for_turn(client: Client, lease: Lease, turn: Turn, until_ns: int) -> Denied | None:
    """Sleep until the turn comes, by the store's clock. A pause that moves it past the deadline ends the wait."""
    clock = client.clock
    wait_ns = lease.starts_in_ns()
    while True:
        await client.sleep(wait_ns)
        peeked = await sure(client, client.store.peek, Peek(turn.key), f"waiting for a turn of {turn.key.resource}")
        wait_ns = turn.shifted_ns(peeked.image) - peeked.now_ns
        if wait_ns <= 0:
            return None
        lease.starts_steady_ns = clock.steady_ns() + wait_ns
        if lease.starts_steady_ns > until_ns:
            status = core.status(peeked.image, turn.key, turn.charge, peeked.now_ns)
            return Denied(peeked.now_ns, wait_ns, (status,), (peeked.image,))


# --- in line ----------------------------------------------------------------------------------------------------------


async def take_in_line(client: Client, ask: Ask, lease: Lease) -> tuple[Granted | Denied, int]:
    until_ns = client.clock.steady_ns() + ask.wait_ns
    parts = lease.holds[0].parts
    what = (tuple((part.key, tuple(charge.name for charge in part.charges)) for part in parts), ask.headroom_ppm)
    place = client.lines.join(what, parts)
    line = place.line
    tries = 0
    try:
        while True:
            first = client.lines.first(place)
            if first and client.clock.steady_ns() >= line.ask_at_steady_ns:
                nudges = line.nudges
                outcome = await _ask(client, ask, lease)
                tries += 1
                foreseen_ns = _next_ask_ns(client, place, lease.holds[0].parts, outcome, tries)
                line.ask_at_steady_ns = foreseen_ns if line.nudges == nudges else 0
                line.last_denied = outcome if isinstance(outcome, Denied) else None
                if isinstance(outcome, Granted) or _hopeless(client, outcome, lease, until_ns):
                    return outcome, tries
            if client.clock.steady_ns() >= until_ns:
                break
            gate = client.lines.rearm(place)
            first = client.lines.first(place)
            await gate.wait(min(until_ns, line.ask_at_steady_ns) if first else until_ns)
        # Time is up. The first asks a last time; who never came first learns what the first was told, if anything.
        if line.last_denied is not None and not client.lines.first(place):
            return line.last_denied, tries
        return await _ask(client, ask, lease), tries + 1
    finally:
        client.lines.leave(place)


async def _ask(client: Client, ask: Ask, lease: Lease) -> Granted | Denied:
    """Ask with the limits of now, which may have changed while the caller waited.

    A try that had to be undone has used its id up: a late copy of its undoing must not free what the next try takes.
    """
    plan = await client.configuration.plan(ask)
    lease.replan(plan, new_lease_id(client) if lease.holds[0].undone else lease.id)
    return await attempt(client, lease, lease.holds[0])


def _hopeless(client: Client, denied: Denied, lease: Lease, until_ns: int) -> bool:
    """Whether a rate alone makes the wait too long. Slots may come free at any time."""
    slots = {charge.name for part in lease.plan.taken for charge in part.slots}
    longest = max((status.retry_in for status in denied.limits if status.name not in slots), default=0.0)
    return client.clock.steady_ns() + round(longest * NS_PER_SECOND) > until_ns


def _next_ask_ns(client: Client, place: Place, parts: Sequence[Part], outcome: Granted | Denied, tries: int) -> int:
    """When the first in the line should ask next: when the image says so; later if that has not come true before.

    A rate foretells its refills, and whoever asks between two of them comes after those who knew. So a waiter that
    others have outrun lets some refills pass, but asks at the very time of one, on a par with whoever is granted now.
    """
    now_ns = client.clock.steady_ns()
    if isinstance(outcome, Granted):
        return now_ns + _foreseen_ns(outcome, client.lines.behind(place))
    patience_ns = min(FIRST_PATIENCE_NS << min(tries, 10), LAST_PATIENCE_NS)
    slots = {charge.name for part in parts for charge in part.slots}
    if any(status.name in slots for status in outcome.limits):
        return now_ns + min(outcome.retry_in_ns, patience_ns // 2 + client.rng.randrange(patience_ns // 2))
    if outcome.contended:
        return now_ns + outcome.retry_in_ns + client.rng.randrange(patience_ns)
    if tries == 1:
        return now_ns + outcome.retry_in_ns
    lenience_ns = max(LAST_PATIENCE_NS >> min(tries - 2, 10), LEAST_LENIENCE_NS)
    refill_ns = _refill_ns(parts, outcome)
    return now_ns + outcome.retry_in_ns + refill_ns * client.rng.randrange(lenience_ns // refill_ns + 1)


def _refill_ns(parts: Sequence[Part], denied: Denied) -> int:
    """How long the rate that a waiter waits for longest takes to bring what it wants of it."""
    longest = max(denied.limits, key=lambda status: status.retry_in)
    wanted = (longest.entity, longest.resource, longest.name)
    return next(
        charge.amount * charge.interval_ns
        for part in parts
        for charge in part.rates
        if (part.key.entity, part.key.resource, charge.name) == wanted
    )


def _foreseen_ns(granted: Granted, parts: tuple[Part, ...]) -> int:
    """How long the next in the line would have to wait, as far as the images of this grant tell."""
    if len(granted.images) != len(parts):
        return 0
    _, foreseen = core.take(granted.images, Take("next", parts), granted.now_ns)
    if not isinstance(foreseen, Denied):
        return 0
    with_slots = any(part.slots for part in parts)
    return min(foreseen.retry_in_ns, FIRST_PATIENCE_NS) if with_slots else foreseen.retry_in_ns
