"""The end of a lease, and the undoing of a take: what has still to reach the store.

    Release   slots, and with them the corrections of the rates, in one write     repeatable: conditional on the lease id
    Settle    corrections alone          a debit may be repeated (it errs towards the limit), a give-back never
    GiveUp    a turn that nobody will use                                          never repeated

An end is made first and sent then, and it crosses off what is done, so whoever holds it can go on where another was
interrupted: the caller for a moment, then the keeper until the lease expires, then it is reported as lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.core.requests import Delta, GiveUp, Gone, Release, Settle, Unknown, Unreached
from sluice.flow.persist import persist

if TYPE_CHECKING:
    from sluice.flow.client import Client


@dataclass(frozen=True, slots=True)
class Step:
    """One request of an end. ``only_if_held``: its take is in doubt, so without slots there nothing was taken."""

    request: Release | Settle | GiveUp
    only_if_held: bool = False

    @property
    def deltas(self) -> tuple[Delta, ...]:
        return () if isinstance(self.request, GiveUp) else self.request.deltas


@dataclass(eq=False)
class End:
    """Steps still to be sent. While ``in_hand``, a caller is at it and the keeper stays away."""

    lease_id: str
    steps: list[Step]
    expires_steady_ns: int
    undoes: bool = False
    in_hand: bool = False
    why: str = "not sent yet"
    _doubted: set[Step] = field(default_factory=set)

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
        """Send what is left, until the deadline."""
        number = 0
        while number < len(self.steps):
            left = await self._push_step(client, self.steps[number], until_ns)
            self.steps[number : number + 1] = left
            number += len(left)

    async def _push_step(self, client: Client, step: Step, until_ns: int) -> list[Step]:
        """Send one step; what is left of it."""
        request = step.request
        if isinstance(request, Release):
            return await self._push_release(client, step, request, until_ns)
        repeatable = isinstance(request, Settle) and request.only_owes
        answer, _ = await persist(client, client.store.settle, request, until_ns, repeatable=repeatable)
        match answer:
            case Unreached(why):
                self.why = why
                return [step]
            case Unknown(why):
                self.why = why
                return _debits_alone(request)
        return []

    async def _push_release(self, client: Client, step: Step, request: Release, until_ns: int) -> list[Step]:
        answer, doubted = await persist(client, client.store.release, request, until_ns, repeatable=True)
        if doubted:
            self._doubted.add(step)
        match answer:
            case Unknown(why) | Unreached(why):
                self.why = why
                return [step]
            case Gone() if request.deltas and not step.only_if_held:
                settle = Settle(request.key, request.deltas)
                left = _debits_alone(settle) if step in self._doubted else [Step(settle)]
                return [rest for one in left for rest in await self._push_step(client, one, until_ns)]
        return []


def _debits_alone(request: Settle | GiveUp) -> list[Step]:
    if isinstance(request, GiveUp):
        return []
    debits = tuple(delta for delta in request.deltas if delta.tokens > 0)
    return [Step(Settle(request.key, debits))] if debits else []
