"""The store that is watched: the real one, or one with a bug that histories must show.

decided outside      loads a bucket, decides, and saves it later: somebody else may have saved in between
release lost         answers that a slot was released, one time in two without releasing it
stale denial         once refused, a take of the same bucket is refused again for a moment, unasked
early time           reads the time before it has the lock
charged twice        sends a take of rates alone again, although the first was applied
renewed unasked      answers that a lease was renewed when it is there to be renewed, and does nothing
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from sluice.core.bounds import NS_PER_MS
from sluice.core.bucket import Bucket
from sluice.core.decide import decide
from sluice.core.names import BucketKey
from sluice.core.requests import BucketRequest, Denied, Granted, Release, Renew, Renewed, Take, keys_of
from sluice.ports import Clock, Store
from sluice.stores.sqlite import SqliteStore, Transaction
from sluice.wires.blocking.sqlite import BlockingWire
from sluice.wires.sqlite.place import read_url


class _Broken(SqliteStore):
    def __init__(self, wire: BlockingWire, clock: Clock) -> None:
        super().__init__(wire)
        self.wire = wire
        self.clock = clock

    async def read(self, requests: Sequence[BucketRequest]) -> tuple[dict[BucketKey, Bucket], int]:
        keys = {key for request in requests for key in keys_of(request)}
        found = await self.wire.read(lambda transaction: {key: transaction.load(key) for key in keys})
        assert isinstance(found, dict)
        return found, self.clock.now_ns()


class DecidedOutside(_Broken):
    async def _decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        found, now_ns = await self.read(requests)
        changes, _, outcome = decide(requests[0], found.__getitem__, now_ns)

        def save(transaction: Transaction) -> list[Any]:
            for key in changes:
                transaction.load(key)
            transaction._changed.update(changes)
            return [outcome]

        return await self.wire.write(save)  # type: ignore[return-value]


class ReleaseLost(_Broken):
    async def _decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        if isinstance(requests[0], Release) and random.random() < 0.5:
            found, now_ns = await self.read(requests)
            return [decide(requests[0], found.__getitem__, now_ns)[2]]
        return await super()._decide(requests)


class StaleDenial(_Broken):
    def __init__(self, wire: BlockingWire, clock: Clock) -> None:
        super().__init__(wire, clock)
        self.refused: dict[tuple[Any, ...], Denied] = {}

    async def _decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        request = requests[0]
        what = request.parts if isinstance(request, Take) else ()
        before = self.refused.get(what)
        if before is not None and self.clock.now_ns() < before.now_ns + 5 * NS_PER_MS:
            return [replace(before, now_ns=self.clock.now_ns())]
        (outcome,) = await super()._decide(requests)
        if isinstance(outcome, Denied):
            self.refused[what] = outcome
        return [outcome]


class EarlyTime(_Broken):
    async def _decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        early_ns = self.clock.now_ns()

        def job(transaction: Transaction) -> list[Any]:
            transaction.now_ns = early_ns
            return transaction.decide(requests)

        return await self.wire.write(job)  # type: ignore[return-value]


class ChargedTwice(_Broken):
    async def _decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        outcomes = await super()._decide(requests)
        request = requests[0]
        rates_alone = isinstance(request, Take) and not any(part.slots for part in request.parts)
        if rates_alone and isinstance(outcomes[0], Granted) and random.random() < 0.5:
            await super()._decide(requests)
        return outcomes


class RenewedUnasked(_Broken):
    async def _decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        if isinstance(requests[0], Renew):
            found, now_ns = await self.read(requests)
            _, _, outcome = decide(requests[0], found.__getitem__, now_ns)
            return [outcome] if isinstance(outcome, Renewed) else await super()._decide(requests)
        return await super()._decide(requests)


BROKEN: Final[dict[str, Callable[[BlockingWire, Clock], Store]]] = {
    "decided outside": DecidedOutside,
    "release lost": ReleaseLost,
    "stale denial": StaleDenial,
    "early time": EarlyTime,
    "charged twice": ChargedTwice,
    "renewed unasked": RenewedUnasked,
}

REAL: Final = "sqlite"


def open_store(name: str, file: str, clock: Clock, timeout_ns: int) -> Store:
    """The store of that name on a file, for this process."""
    wire = BlockingWire(read_url(f"sqlite:///{file}"), clock, timeout_ns)
    return SqliteStore(wire) if name == REAL else BROKEN[name](wire, clock)
