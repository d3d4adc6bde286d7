"""Acquiring: from what a caller asks to a lease in its hands, or a denial.

The lease is made before its take is sent. How it is taken depends on what is asked: at once, in turn or in line (see
`sluice.flow.waiting`). With ``on_unavailable="open"`` an absent store lets everybody through, on leases marked
``degraded`` that count for nothing; a denial, bad input or a refused permission never do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import ConfigError, RateLimited, StoreUnavailable, WaitTimeout
from sluice.core.events import TakeDegraded, TakeDenied, TakeGranted
from sluice.core.names import EVERYONE
from sluice.core.needs import Plan
from sluice.core.requests import Denied, Granted, RateCharge
from sluice.flow.attempt import attempt
from sluice.flow.hold import Hold, new_lease_id
from sluice.flow.lease import Lease
from sluice.flow.waiting import take_in_line, take_in_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.flow.ask import Ask
    from sluice.flow.client import Client


async def try_acquire(client: Client, ask: Ask) -> Lease | Denied:
    """Take, waiting as long as the ask allows. A denial is a value; bad input and an absent store raise."""
    asked_ns = client.clock.steady_ns()
    try:
        plan = await client.configuration.plan(ask)
        lease = Lease(client, ask.lease_id or new_lease_id(client), plan, keep_alive=ask.keep_alive)
        lease.named = ask.lease_id is not None
        outcome, tries = await _take(client, ask, lease)
    except StoreUnavailable as error:
        if not client.settings.fail_open:
            raise
        return _degraded(client, ask, str(error))
    resource, entity = ask.wanted[0].resource, ask.wanted[0].entity
    if isinstance(outcome, Denied):
        names = tuple(status.name for status in outcome.limits)
        client.tell(TakeDenied(resource, entity, names, outcome.retry_in_ns))
        return outcome
    waited_ns = client.clock.steady_ns() - asked_ns
    client.tell(TakeGranted(resource, entity, lease.id, lease.amounts, waited_ns, tries))
    if lease.holds_slots and lease.keep_alive:
        client.keeper.watch(lease)
    return lease


async def acquire(client: Client, ask: Ask) -> Lease:
    """The same, with a denial raised."""
    outcome = await try_acquire(client, ask)
    if isinstance(outcome, Denied):
        raise refusal(ask, outcome)
    return outcome


def refusal(ask: Ask, denied: Denied) -> RateLimited:
    """A denial as the error that says what was asked, what stands in the way and what to do."""
    blocking = ", ".join(
        f"{status.resource}#{status.name} ({status.available} of {status.capacity} free"
        + (f", entity {status.entity!r})" if status.entity != EVERYONE else ")")
        for status in denied.limits
    )
    stands = f"{ask.text} was refused by {blocking or 'contention'}; ask again in {denied.retry_in:g} s"
    if ask.turn_only:
        message = f"{stands}, or reserve with within= at least that"
        return RateLimited(message, denied.retry_in, denied.limits)
    if not ask.wait_ns:
        return RateLimited(f"{stands}, or pass wait=", denied.retry_in, denied.limits)
    message = f"{stands}; the wait of {ask.wait_ns / NS_PER_SECOND:g} s that was allowed is too short"
    return WaitTimeout(message, denied.retry_in, denied.limits)


async def _take(client: Client, ask: Ask, lease: Lease) -> tuple[Granted | Denied, int]:
    reservable = _reservable(lease.plan)
    if ask.turn_only:
        if not reservable:
            raise ConfigError(
                f"reserve takes a turn of one rate on one bucket, and {ask.text} is more than that; "
                "name one limit, as in 'openai#rpm'"
            )
        return await attempt(client, lease, lease.holds[0], ask.wait_ns), 1
    if not ask.wait_ns:
        return await attempt(client, lease, lease.holds[0]), 1
    if reservable and not ask.headroom_ppm:
        return await take_in_turn(client, ask, lease), 1
    return await take_in_line(client, ask, lease)


def _reservable(plan: Plan) -> bool:
    parts = plan.taken
    return len(parts) == 1 and len(parts[0].charges) == 1 and isinstance(parts[0].charges[0], RateCharge)


async def more(lease: Lease, amounts: Mapping[str, int]) -> None:
    """Take more of a lease's limits: a real take, under an id of its own, that ends with the lease."""
    client = lease.client
    lease.check_mine()
    if lease.degraded:
        return
    hold = Hold.of(new_lease_id(client), lease.account.more_parts(amounts))
    outcome = await attempt(client, lease, hold)
    if isinstance(outcome, Denied):
        names = ", ".join(f"{status.resource}#{status.name}" for status in outcome.limits)
        raise RateLimited(
            f"more {dict(amounts)} for lease {lease.id} was refused by {names}; ask again in {outcome.retry_in:g} s",
            outcome.retry_in,
            outcome.limits,
        )
    lease.add(hold)
    if lease.holds_slots and lease.keep_alive:
        client.keeper.watch(lease)


def _degraded(client: Client, ask: Ask, why: str) -> Lease:
    wanted = ask.wanted[0]
    client.tell(TakeDegraded(wanted.resource, wanted.entity, why))
    lease = Lease(client, ask.lease_id or new_lease_id(client), Plan((), {}), keep_alive=False)
    lease.degraded = True
    return lease
