"""The kit of these tests: both facades with one face, over a store that is watched and can be made to fail.

`Api` makes clients of one kind. Its `sluice` is used as if it blocked, also the asyncio one, so a test is written once.
All clients share one memory store and one manual clock; each has caches of its own, as another process would.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from sluice import AsyncLease, AsyncSluice, Lease, Sluice
from sluice.aio import Acquiring
from sluice.core.bucket import EMPTY, Bucket
from sluice.core.events import Event
from sluice.core.names import BucketKey
from sluice.core.requests import Unknown, Unreached
from sluice.ports import Traits
from sluice.stores.memory import MemoryState, MemoryStore
from sluice.testing import ManualClock

READS = {"get", "list", "buckets", "peek"}
KINDS = ("blocking", "asyncio")


@dataclass(frozen=True)
class Fault:
    """What becomes of a call: whether it is applied, and what the caller gets instead of its answer."""

    applied: bool
    gets: Callable[[], object]


UNREACHED = Fault(applied=False, gets=lambda: Unreached("no route"))
UNKNOWN = Fault(applied=False, gets=lambda: Unknown("no answer"))
LOST = Fault(applied=True, gets=lambda: Unknown("the answer was lost"))
FINE = Fault(applied=True, gets=lambda: None)


def raises(error: BaseException, *, applied: bool = False) -> Fault:
    """The call raises: a refused permission, or an interruption before or after it was applied."""
    return Fault(applied, lambda: error)


class Watched:
    """A store that counts its calls and fails as it is told."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.calls: list[tuple[str, Any]] = []
        self.next: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.at: dict[int, Fault] = {}
        self.always: dict[str, Fault] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.suspends = False

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if not hasattr(MemoryStore, name):
            raise AttributeError(name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await self._call(name, arguments, options)

        return call

    async def _call(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.calls.append((name, arguments[0] if arguments else None))
        fault = self.at.get(len(self.calls)) or self.always.get(name, FINE)
        if self.next[name]:
            fault = self.next[name].popleft()
        hook = self.before.pop(name, None)
        if hook is not None:
            hook()
        if self.suspends:
            await asyncio.sleep(0)
        answer = await getattr(self.inner, name)(*arguments, **options) if fault.applied else None
        if self.suspends:
            await asyncio.sleep(0)
        instead = fault.gets()
        if isinstance(instead, BaseException):
            raise instead
        if instead is None:
            return answer
        hot = name in {"take", "settle", "release", "renew", "reap", "peek", "pause", "fold"}
        return [instead] * len(arguments[0]) if hot else instead

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def requests(self, name: str) -> list[Any]:
        """The requests of all calls of one name, in order."""
        return [request for called, requests in self.calls if called == name for request in requests]

    def reads(self) -> int:
        return sum(name in READS for name in self.names())

    def writes(self) -> int:
        return sum(name not in READS | {"close"} for name in self.names())

    def fail(self, fault: Fault, *names: str) -> None:
        """Fail every call of these names from now on."""
        self.always |= dict.fromkeys(names, fault)

    def heal(self) -> None:
        self.always.clear()
        self.next.clear()
        self.at.clear()


class Api:
    """Clients of one kind over one store and one clock."""

    def __init__(self, kind: str, *, joint: bool = True, clock: Any = None) -> None:
        self.kind = kind
        self.clock = clock or ManualClock()
        self.state = MemoryState()
        self.store = Watched(MemoryStore(self.clock, threading.Lock(), self.state, joint=joint))
        self.events: list[Event] = []
        self._runner = asyncio.Runner() if kind == "asyncio" else None
        self._made: list[Any] = []
        self.sluice = self.client()
        self.rival = Sluice("memory://", clock=self.clock)
        self.rival._opener = lambda *_: MemoryStore(self.clock, threading.Lock(), self.state, joint=joint)

    def client(self, **options: Any) -> Any:
        """Another client of the same store, as another process would have."""
        kind = Sluice if self._runner is None else AsyncSluice
        sluice: Sluice | AsyncSluice = kind("memory://", clock=self.clock, observer=self.events.append, **options)
        store: Any = self.store
        sluice._opener = lambda *_: store
        made = self.drive(sluice)
        self._made.append(made)
        return made

    def run(self, work: Any) -> Any:
        """Run a coroutine where this kind's clients live."""
        assert self._runner is not None
        return self._runner.run(_awaited(work))

    def drive(self, value: Any) -> Any:
        """What a call gave, made to look as if it had blocked."""
        if inspect.isawaitable(value):
            value = self.run(value)
        return Driven(self, value) if isinstance(value, AsyncSluice | AsyncLease) else value

    def advance(self, seconds: float = 0, *, ns: int = 0) -> None:
        if self._runner is None:
            self.clock.advance(seconds, ns=ns)
        else:
            self.run(self.clock.aadvance(seconds, ns=ns))

    def bucket(self, resource: str, entity: str = "*", namespace: str = "default") -> Bucket:
        """A bucket as it is stored."""
        names = {key.id: document.body for key, document in self.state.documents.items() if key.kind == "NAMESPACE"}
        return self.state.buckets.get(BucketKey(names[namespace], entity, resource), EMPTY)

    def live(self, resource: str, entity: str = "*") -> int:
        """How many slots are held."""
        slots = self.bucket(resource, entity).slots.values()
        return sum(expires_ns > self.clock.now_ns() for entries in slots for expires_ns in entries.values())

    def free(self, resource: str, limit: str, entity: str = "*") -> int:
        """How many could be taken of a limit now, as another process sees it."""
        self.rival.refresh()
        found = self.rival.peek(resource, entity=entity).limits
        (status,) = [status for status in found if (status.entity, status.name) == (entity, limit)]
        return status.available

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def close(self) -> None:
        self.store.heal()
        for made in self._made:
            made.close()
        self.rival.close()
        if self._runner is not None:
            self._runner.close()


class Driven:
    """An asyncio client or lease, used as if it blocked."""

    def __init__(self, api: Api, it: Any) -> None:
        self._api = api
        self._it = it

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._it, "aclose" if name == "close" else name)
        if not callable(found):
            return found
        return lambda *arguments, **options: self._api.drive(found(*arguments, **options))

    def __enter__(self) -> Driven:
        self._api.run(self._it.__aenter__())
        return self

    def __exit__(self, *how: Any) -> None:
        self._api.run(self._it.__aexit__(*how))


async def _awaited(work: Awaitable[Any] | Acquiring) -> Any:
    return await work


def flow(lease: Any) -> Any:
    """The state behind a lease of either kind."""
    facade: Lease | AsyncLease = lease._it if isinstance(lease, Driven) else lease
    return facade._state


def limits_of(error: Any) -> Sequence[str]:
    """The names of the limits that stood in the way."""
    return [status.name for status in error.limits]


@contextmanager
def opened(kind: str, **options: Any) -> Iterator[Api]:
    made = Api(kind, **options)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=KINDS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with opened(request.param) as made:
        yield made


@pytest.fixture(params=KINDS)
def apart(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Over a store that decides each bucket by itself."""
    with opened(request.param, joint=False) as made:
        yield made
