"""The end of a lease, and the undoing of a take: what has still to reach the store.

    Release   slots, and with them the corrections of the rates, in one write   repeatable: conditional on the lease id
    Settle    corrections alone          a debit may be repeated (it errs towards the limit), a give-back never
    GiveUp    a turn that nobody will use                                          never repeated

An end is made first and sent then. Before anything is sent, it is crossed off as far as a second sending would do harm,
and put back only if it surely was not applied. So whoever holds the end can go on where another was interrupted, at
whatever moment: the caller for two seconds, then the keeper until the lease expires, then it is reported as lost. One
of them at a time: who finds another at it waits for that one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import SluiceError
from sluice.core.requests import Delta, GiveUp, Gone, Release, Settle, Unknown, Unreached
from sluice.flow.persist import persist

if TYPE_CHECKING:
    from sluice.core.names import BucketKey
    from sluice.flow.client import Client
    from sluice.ports import Gate

END_NS: Final = 2 * NS_PER_SECOND
"""Leaving a block tries for so long to reach the store; then the keeper goes on."""

FIRST_RETRY_NS: Final = 50 * NS_PER_MS
LAST_RETRY_NS: Final = 800 * NS_PER_MS
"""The keeper's gap between two tries of one end doubles from one to the other."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request of an end.

    ``only_if_held``: its take is in doubt, so without slots there nothing was taken. ``doubted``: it may have been
    applied before; for a release that finds nothing any more, then only what is owed is sent on its own.
    """

    request: Release | Settle | GiveUp
    only_if_held: bool = False
    doubted: bool = False

    @property
    def deltas(self) -> tuple[Delta, ...]:
        return () if isinstance(self.request, GiveUp) else self.request.deltas

    def in_doubt(self) -> list[Step]:
        """What is left of it while nobody knows whether it was applied."""
        match self.request:
            case Release():
                return [Step(self.request, self.only_if_held, doubted=True)]
            case Settle(key, deltas):
                debits = tuple(delta for delta in deltas if delta.tokens > 0)
                return [Step(Settle(key, debits))] if debits else []
            case GiveUp():
                return []


@dataclass(eq=False)
class End:
    """Steps still to be sent, and who is at it. ``keys`` are the buckets in which something comes free by it."""

    lease_id: str
    steps: list[Step]
    expires_steady_ns: int
    keys: tuple[BucketKey, ...] = ()
    undoes: bool = False
    why: str = "not sent yet"
    refused: SluiceError | None = None
    sender: Gate | None = None
    retry_at_ns: int = 0
    _retry_gap_ns: int = field(default=FIRST_RETRY_NS)

    @property
    def done(self) -> bool:
        return not self.steps

    @property
    def unsettled(self) -> dict[str, int]:
        """The corrections that have not reached the store, by resource and limit."""
        return {
            f"{step.request.key.resource}#{delta.name}": delta.tokens for step in self.steps for delta in step.deltas
        }

    async def push(self, client: Client, until_ns: int) -> None:
        """Send what is left, each step until the deadline. What no retry cures is noted and tried again later."""
        self.refused = None
        number = 0
        try:
            while number < len(self.steps):
                number += await self._push_step(client, number, until_ns)
        except SluiceError as error:
            self.refused, self.why = error, str(error)

    async def _push_step(self, client: Client, number: int, until_ns: int) -> int:
        """Send one step; how many steps are left in its place."""
        step = self.steps[number]
        request = step.request
        in_doubt = step.in_doubt()
        self.steps[number : number + 1] = in_doubt
        answer: object
        if isinstance(request, Release):
            answer, doubtful = await persist(client, client.store.release, request, until_ns, repeatable=True)
        else:
            owes = isinstance(request, Settle) and request.only_owes
            try:
                answer, doubtful = await persist(client, client.store.settle, request, until_ns, repeatable=owes)
            except SluiceError:  # refused outright: none of the tries was applied
                self.steps[number : number + len(in_doubt)] = [step]
                raise
        left = self._left(step, in_doubt, answer, doubtful=doubtful)
        self.steps[number : number + len(in_doubt)] = left
        if isinstance(answer, Gone) and left:
            return await self._push_step(client, number, until_ns)
        return len(left)

    def _left(self, step: Step, in_doubt: list[Step], answer: object, *, doubtful: bool) -> list[Step]:
        match answer:
            case Unreached(why):
                self.why = why
                return [step]
            case Unknown(why):
                self.why = why
                return in_doubt
            case Gone() if step.deltas and not step.only_if_held:
                alone = Step(Settle(step.request.key, step.deltas))
                return alone.in_doubt() if doubtful or step.doubted else [alone]
        return []

    def tried(self, now_ns: int, jitter_ppm: int) -> None:
        """The keeper has tried in vain: it comes back to this one later."""
        self.retry_at_ns = now_ns + self._retry_gap_ns * jitter_ppm // 1_000_000
        self._retry_gap_ns = min(2 * self._retry_gap_ns, LAST_RETRY_NS)


async def finish_end(client: Client, work: End) -> bool:
    """Send an end for a moment; what is left then, the keeper goes on with. Whether nothing is left.

    An interruption of the sending is not the end of it: what it left is sent once more, and then the keeper has it.
    """
    until_ns = client.clock.steady_ns() + min(END_NS, client.settings.timeout_ns)
    keeper = client.keeper
    keeper.adopt(work)
    return await client.scope.finish(keeper.finish(work, until_ns), undo=lambda: keeper.finish(work, until_ns))
