"""Making a lease lost, as if its process had stood still for longer than its slots live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.requests import Release
from sluice.flow.lease import Lease as LeaseState

if TYPE_CHECKING:
    from sluice.facade import LeaseView


def lose(lease: LeaseView) -> None:
    """Take a lease's slots away from it: others can have them at once, and it is ``lost``.

    >>> from sluice import Limit, Sluice
    >>> sluice = Sluice("memory://")
    >>> sluice.set_limits("printer", [Limit("jobs", "1 slots ttl 30s")])
    >>> with sluice.acquire("printer") as lease:
    ...     lose(lease)
    ...     with sluice.acquire("printer"):
    ...         lease.lost
    True

    Its ``on_lost`` is called, and ``renew`` raises `LeaseLost`. For leases on ``memory://`` that hold slots.
    """
    state: LeaseState = lease._state
    state.check_mine()
    renewals = state.renewals()
    if not renewals or state.lost:
        raise ValueError(f"{lease!r} holds no slots that it could lose")
    work = state.client.store.release([Release(renewal.key, renewal.lease_id) for renewal in renewals])
    try:
        work.send(None)
    except StopIteration:
        state.lose("a test took its slots away")
        return
    work.close()
    raise ValueError(f"{lease!r} is kept where losing it takes time; use a client on 'memory://' in this test")
