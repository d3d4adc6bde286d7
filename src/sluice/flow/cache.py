"""A bounded cache whose entries grow old. The oldest written goes first when it is full."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from sluice.ports import Clock, Scope

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Values by key, each for ``ttl_ns`` from its reading, at most ``size`` of them."""

    def __init__(self, clock: Clock, scope: Scope, ttl_ns: int, size: int) -> None:
        self._clock = clock
        self._lock = scope.lock()
        self._ttl_ns = ttl_ns
        self._size = size
        self._entries: dict[K, tuple[int, V]] = {}
        self._cleared = 0

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is None or found[0] <= self._clock.steady_ns():
            return None
        return found[1]

    def ticket(self) -> tuple[int, int]:
        """Draw before reading what is to be put: an entry ages from then, and a `clear` in between keeps it out."""
        return self._clock.steady_ns(), self._cleared

    def put(self, ticket: tuple[int, int], key: K, value: V) -> None:
        read_ns, cleared = ticket
        with self._lock:
            if cleared != self._cleared:
                return
            self._entries.pop(key, None)
            while len(self._entries) >= self._size:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = (read_ns + self._ttl_ns, value)

    def clear(self) -> None:
        with self._lock:
            self._cleared += 1
            self._entries.clear()
