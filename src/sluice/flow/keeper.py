"""The keeper: one beside each client, while there is something to keep.

It renews all leases that hold slots, at a third of their time to live, in one batch; and it goes on with ends that
could not be sent at once, until their lease expires. It holds leases weakly: one that was dropped is not renewed and
lapses. It starts with the first lease or end, and goes when nothing was left to keep for a moment.

A renewal that gets no answer is tried again soon; the lease is lost only when its time is over, or the store says so.
Paused for longer than a lease lives, the keeper finds it lapsed at the store: a renewal never brings it back. Renewals
come first: between two ends, which may take long to send, it looks whether one is due.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Final

from sluice.core.bounds import NS_PER_SECOND, PPM
from sluice.core.errors import SluiceError
from sluice.core.events import EndFailed, LeaseEnded
from sluice.core.requests import Failure, Gone, Renew, Renewed, Unreached
from sluice.flow.persist import LAST_GAP_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.flow.client import Client
    from sluice.flow.ending import End
    from sluice.flow.lease import Lease
    from sluice.ports import Gate

LINGER_NS: Final = NS_PER_SECOND
"""The keeper looks around at least so often, and goes when it finds nothing twice."""

RETRY_PART: Final = 24
"""After a renewal without an answer, the next is tried such a part of the time to live later, or sooner."""

MAX_BATCH: Final = 100
"""Renewals sent together."""

CLOSE_NS: Final = 2 * NS_PER_SECOND
"""Closing tries for so long to send what is pending."""

logger = logging.getLogger("sluice")


class Keeper:
    """Keeps leases alive and brings ends home."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = client.scope.lock()
        self._leases: dict[int, weakref.ref[Lease]] = {}
        self._retry_at_ns: dict[int, int] = {}
        self._ends: dict[int, End] = {}
        self._wake = client.scope.gate()
        self._over: Gate | None = None
        self._closing = False

    def heir(self) -> Keeper:
        """A keeper that goes on with what this one was at, where its client is now."""
        heir = Keeper(self._client)
        heir._leases, heir._ends = self._leases, self._ends
        for work in heir._ends.values():
            work.sender = None
        if heir._leases or heir._ends:
            heir._start()
        return heir

    # --- what the flows call; only `finish` waits ---

    def watch(self, lease: Lease) -> None:
        """Renew this lease until it ends or is dropped."""
        with self._lock:
            self._leases[id(lease)] = weakref.ref(lease)
        self._start()

    def adopt(self, work: End) -> None:
        """Own an end from before it is sent, so that it is not lost with whoever sends it."""
        with self._lock:
            self._ends[id(work)] = work

    async def finish(self, work: End, until_ns: int) -> bool:
        """Send an end that was adopted; if somebody is at it, wait for that first. Whether nothing is left."""
        while not work.done:
            sender = await self._try(work, until_ns)
            if sender is None or not await sender.wait(until_ns):
                break
        return work.done

    async def _try(self, work: End, until_ns: int) -> Gate | None:
        """Send what is left of an end, unless somebody is at it: then the gate that opens when they have let go."""
        mine = self._client.scope.gate()
        try:
            sender = self._claim(work, mine)
            if sender is not mine:
                return sender
            await work.push(self._client, until_ns)
        finally:
            if work.sender is mine:  # at once and without a call, so that no interruption can come before
                work.sender = None
                self._let_go(work, mine)
        return None

    def _claim(self, work: End, mine: Gate) -> Gate:
        with self._lock:
            if work.sender is None:
                work.sender = mine
            return work.sender

    def _let_go(self, work: End, sender: Gate) -> None:
        sender.set()
        if work.done:
            self._home(work)
        else:
            self._start()

    def _home(self, work: End) -> None:
        """The store knows. Told once, whoever finds it."""
        with self._lock:
            over = self._ends.pop(id(work), None) is not None
        if over and not work.undoes:
            self._client.tell(LeaseEnded(work.lease_id))
            self._client.lines.nudge(work.keys)

    def _start(self) -> None:
        """See to it that the keeper runs and looks at what is new."""
        over = self._client.scope.gate()
        running = False
        try:
            running = not self._begin(over) or self._spawn(over)
        finally:
            if not running and self._over is over:
                self._over = None

    def _spawn(self, over: Gate) -> bool:
        work = self._run(over)
        try:
            self._client.scope.spawn(work, "sluice keeper")
        except RuntimeError as error:  # no thread to be had, as when the interpreter ends: closing sends what is left
            work.close()
            logger.warning("the keeper could not be started, so leases may lapse: %s", error)
            return False
        return True

    def _begin(self, over: Gate) -> bool:
        """Whether it must be started; if it runs, it is woken."""
        with self._lock:
            if self._over is not None:
                self._wake.set()
            elif not self._closing:
                self._over = over
            return self._over is over

    # --- its life ---

    async def _run(self, over: Gate) -> None:
        try:
            await self._keep()
        finally:
            with self._lock:
                if self._over is over:
                    self._over = None
            over.set()

    async def _keep(self) -> None:
        nothing_seen = False
        while True:
            await self._renew_due()
            await self._push_due()
            with self._lock:
                self._forget_ended()
                nothing = not self._leases and all(work.sender is not None for work in self._ends.values())
                if (nothing and nothing_seen) or self._closing:
                    self._over = None
                    return
                nothing_seen = nothing
                wake = self._wake = self._client.scope.gate()
            await wake.wait(self._next_ns())

    def _forget_ended(self) -> None:
        for number, reference in list(self._leases.items()):
            lease = reference()
            if lease is None or lease.ended or lease.known_lost:
                del self._leases[number]
                self._retry_at_ns.pop(number, None)

    def _alive(self) -> list[Lease]:
        with self._lock:
            found = [reference() for reference in self._leases.values()]
        return [lease for lease in found if lease is not None and not lease.ended]

    def _due_ns(self, lease: Lease) -> int:
        """When to renew it next, or to find that it is lost."""
        return min(max(lease.renew_at_steady_ns, self._retry_at_ns.get(id(lease), 0)), lease.expires_steady_ns)

    def _waiting(self) -> list[End]:
        """The ends that nobody is at."""
        with self._lock:
            return [work for work in self._ends.values() if work.sender is None]

    def _next_ns(self) -> int:
        soon_ns = self._client.clock.steady_ns() + LINGER_NS
        ends = [work.retry_at_ns for work in self._waiting()]
        return min([soon_ns, *ends, *(self._due_ns(lease) for lease in self._alive())])

    # --- renewing ---

    async def _renew_due(self) -> None:
        now_ns = self._client.clock.steady_ns()
        leases = self._alive()
        for lease in leases:
            if lease.lost:
                lease.lose("it could not be renewed in time")
        if not any(self._due_ns(lease) <= now_ns for lease in leases):
            return
        requests = [(lease, request) for lease in leases if not lease.lost for request in lease.renewals()]
        for start in range(0, len(requests), MAX_BATCH):
            await self._renew(requests[start : start + MAX_BATCH])

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
                self._retry_at_ns[id(lease)] = clock.steady_ns() + self._retry_gap_ns(lease)

    def _retry_gap_ns(self, lease: Lease) -> int:
        """How long until the next try: the less time is left, the sooner."""
        left_ns = lease.expires_steady_ns - self._client.clock.steady_ns()
        gap_ns = min(lease.ttl_ns // RETRY_PART, max(left_ns // 4, LAST_GAP_NS))
        return gap_ns * self._client.rng.randrange(PPM // 2, PPM + 1) // PPM

    async def _send(self, requests: list[Renew]) -> Sequence[Renewed | Gone | Failure]:
        try:
            return await self._client.store.renew(requests)
        except SluiceError as error:  # a permission that was taken away may be given again before the leases lapse
            return [Unreached(str(error))] * len(requests)

    # --- bringing ends home ---

    async def _push_due(self) -> None:
        """Try each end that is due once. No retries in here: while it waits, the keeper would renew nothing."""
        clock, rng = self._client.clock, self._client.rng
        for work in self._waiting():
            if work.retry_at_ns > clock.steady_ns():
                continue
            if self._closing:
                return
            await self.finish(work, clock.steady_ns())
            if work.done:
                self._home(work)
            else:
                work.tried(clock.steady_ns(), rng.randrange(PPM // 2, PPM + 1))
                if clock.steady_ns() >= work.expires_steady_ns:
                    self._give_up_on(work)
            await self._renew_due()

    def _give_up_on(self, work: End) -> None:
        with self._lock:
            given_up = self._ends.pop(id(work), None) is not None
        if given_up and not work.done:
            self._client.tell(EndFailed(work.lease_id, work.unsettled, work.why))

    async def close(self) -> None:
        """Send what is pending, for a moment, and be gone. What stays unsent is reported as lost."""
        with self._lock:
            self._closing = True
            over = self._over
            self._wake.set()
        clock = self._client.clock
        until_ns = clock.steady_ns() + CLOSE_NS
        if over is not None:
            await over.wait(until_ns)
        try:
            await self._push_all(until_ns)
        finally:
            self._closing = False
        for work in list(self._ends.values()):
            self._home(work) if work.done else self._give_up_on(work)

    async def _push_all(self, until_ns: int) -> None:
        """Go round what is pending, so that no end waits behind another that can't be sent."""
        clock = self._client.clock
        while True:
            for work in list(self._ends.values()):
                if clock.steady_ns() >= until_ns:
                    return
                sender = await self._try(work, clock.steady_ns())
                if sender is not None:
                    await sender.wait(until_ns)
            if not self._ends or clock.steady_ns() + LAST_GAP_NS >= until_ns:
                return
            await self._client.sleep(LAST_GAP_NS)
