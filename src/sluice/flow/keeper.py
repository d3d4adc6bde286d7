"""The keeper: one beside each client, while there is something to keep.

It renews all leases that hold slots, at a third of their time to live, in one batch; and it goes on with ends that
could not be sent at once, until their lease expires. It holds leases weakly: one that was dropped is not renewed and
lapses. It starts with the first lease or end, and goes when nothing was left to keep for a moment.

A renewal that gets no answer is tried again soon; the lease is lost only when its time is over, or the store says so.
Paused for longer than a lease lives, the keeper finds it lapsed at the store: a renewal never brings it back.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import SluiceError
from sluice.core.events import EndFailed, LeaseEnded
from sluice.core.requests import Failure, Gone, Renew, Renewed, Unreached
from sluice.flow.persist import FIRST_GAP_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.flow.client import Client
    from sluice.flow.ending import End
    from sluice.flow.lease import Lease
    from sluice.ports import Gate

LINGER_NS: Final = NS_PER_SECOND
"""The keeper looks around at least so often, and goes when it finds nothing twice."""

RETRY_PART: Final = 12
"""After a renewal without an answer, the next is tried a twelfth of the time to live later."""

MAX_BATCH: Final = 100
"""Renewals sent together."""

CLOSE_NS: Final = 2 * NS_PER_SECOND
"""Closing tries for so long to send what is pending."""


class Keeper:
    """Keeps leases alive and brings ends home."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = client.scope.lock()
        self._leases: dict[int, weakref.ref[Lease]] = {}
        self._retry_at_ns: dict[int, int] = {}
        self._ends: list[End] = []
        self._wake = client.scope.gate()
        self._over: Gate | None = None
        self._closing = False

    # --- what the flows call; none of it waits ---

    def watch(self, lease: Lease) -> None:
        """Renew this lease until it ends or is dropped."""
        with self._lock:
            self._leases[id(lease)] = weakref.ref(lease)
        self._start()

    def adopt(self, work: End) -> None:
        """Own an end from before it is sent, so that it is not lost with whoever sends it."""
        with self._lock:
            if work not in self._ends:
                self._ends.append(work)

    def review(self, work: End) -> None:
        """An end was tried: it is over, or it is the keeper's to go on with."""
        if not work.done:
            self._start()
            return
        with self._lock:
            if work not in self._ends:
                return
            self._ends.remove(work)
        if not work.undoes:
            self._client.tell(LeaseEnded(work.lease_id))

    def _start(self) -> None:
        with self._lock:
            running = self._over is not None
            if not running:
                self._over = self._client.scope.gate()
        if running:
            self._wake.set()
        else:
            self._client.scope.spawn(self._run(), "sluice keeper")

    # --- its life ---

    async def _run(self) -> None:
        over = self._over
        try:
            await self._keep()
        finally:
            with self._lock:
                if self._over is over:
                    self._over = None
            if over is not None:
                over.set()

    async def _keep(self) -> None:
        nothing_seen = False
        while True:
            await self._renew_due()
            await self._push_ends()
            with self._lock:
                self._forget_ended()
                nothing = not self._leases and all(work.in_hand for work in self._ends)
                if (nothing and nothing_seen) or self._closing:
                    self._over = None
                    return
                nothing_seen = nothing
                wake = self._wake = self._client.scope.gate()
            await wake.wait(self._next_ns())

    def _forget_ended(self) -> None:
        for number, reference in list(self._leases.items()):
            lease = reference()
            if lease is None or lease.ended or lease.lost:
                del self._leases[number]
                self._retry_at_ns.pop(number, None)

    def _alive(self) -> list[Lease]:
        with self._lock:
            found = [reference() for reference in self._leases.values()]
        return [lease for lease in found if lease is not None and not lease.ended]

    def _due_ns(self, lease: Lease) -> int:
        return max(lease.renew_at_steady_ns, self._retry_at_ns.get(id(lease), 0))

    def _next_ns(self) -> int:
        now_ns = self._client.clock.steady_ns()
        soon_ns = now_ns + (FIRST_GAP_NS * 8 if self._ends else LINGER_NS)
        return min([soon_ns, *(self._due_ns(lease) for lease in self._alive())])

    # --- renewing ---

    async def _renew_due(self) -> None:
        clock = self._client.clock
        leases = self._alive()
        now_ns = clock.steady_ns()
        if not any(self._due_ns(lease) <= now_ns for lease in leases):
            return
        due = [lease for lease in leases if not lease.lost]
        for lease in leases:
            if lease.lost:
                lease.lose("it could not be renewed in time")
        requests = [(lease, request) for lease in due for request in lease.renewals()]
        for start in range(0, len(requests), MAX_BATCH):
            batch = requests[start : start + MAX_BATCH]
            await self._renew(batch)

    async def _renew(self, batch: list[tuple[Lease, Renew]]) -> None:
        clock = self._client.clock
        steady_ns, wall_ns = clock.steady_ns(), clock.now_ns()
        answers = await self._send([request for _, request in batch])
        kept: dict[int, bool] = {}
        for (lease, _), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Gone):
                lease.lose("it lapsed before it was renewed")
            kept[id(lease)] = kept.get(id(lease), True) and isinstance(answer, Renewed)
        for lease in {id(lease): lease for lease, _ in batch}.values():
            if kept[id(lease)]:
                self._retry_at_ns.pop(id(lease), None)
                lease.trust_from(steady_ns, wall_ns)
            else:
                self._retry_at_ns[id(lease)] = clock.steady_ns() + lease.ttl_ns // RETRY_PART

    async def _send(self, requests: list[Renew]) -> Sequence[Renewed | Gone | Failure]:
        try:
            return await self._client.store.renew(requests)
        except SluiceError as error:  # a permission that was taken away may be given again before the leases lapse
            return [Unreached(str(error))] * len(requests)

    # --- bringing ends home ---

    async def _push_ends(self) -> None:
        with self._lock:
            waiting = [work for work in self._ends if not work.in_hand]
        for work in waiting:
            await self._push(work, self._client.clock.steady_ns() + self._client.settings.timeout_ns)
            if work.done:
                self.review(work)
            elif self._client.clock.steady_ns() >= work.expires_steady_ns:
                self._give_up_on(work)

    async def _push(self, work: End, until_ns: int) -> None:
        try:
            await work.push(self._client, until_ns)
        except SluiceError as error:
            work.why = str(error)

    def _give_up_on(self, work: End) -> None:
        with self._lock:
            self._ends.remove(work)
        self._client.tell(EndFailed(work.lease_id, work.unsettled, work.why))

    async def close(self) -> None:
        """Send what is pending, for a moment, and be gone. What stays unsent is reported as lost."""
        with self._lock:
            self._closing = True
            over = self._over
        self._wake.set()
        until_ns = self._client.clock.steady_ns() + CLOSE_NS
        if over is not None:
            await over.wait(until_ns)
        for work in list(self._ends):
            await self._push(work, until_ns)
            if work.done:
                self.review(work)
            else:
                self._give_up_on(work)
        with self._lock:
            self._closing = False
