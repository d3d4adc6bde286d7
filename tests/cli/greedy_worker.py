"""A worker of the demo whose store is asked by other limits than those that were set: three times as much of all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sluice.cli.demo import worker
from sluice.core.requests import Charge, RateCharge, Take
from sluice.wires.opening import blocking


class Greedy:
    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def take(self, requests: Sequence[Take]) -> Any:
        return await self._store.take([_widened(request) for request in requests])


def _widened(request: Take) -> Take:
    parts = [replace(part, charges=tuple(_wider(charge) for charge in part.charges)) for part in request.parts]
    return replace(request, parts=tuple(parts))


def _wider(charge: Charge) -> Charge:
    if isinstance(charge, RateCharge):
        return replace(charge, capacity=3 * charge.capacity, interval_ns=charge.interval_ns // 3)
    return replace(charge, capacity=3 * charge.capacity)


if __name__ == "__main__":
    vars(worker)["blocking"] = lambda url: lambda *how: Greedy(blocking(url)(*how))
    worker.main()
