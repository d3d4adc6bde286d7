"""What flows need of the world: a store, a clock, a scope, an observer. Protocols only.

Rules for flows, so that the same code runs blocking, under asyncio and in the simulator, and leaks nothing:

- what was sent is finished through `Scope.finish`, which then raises the cancellation and sends the undo;
- a flow awaits in ``except`` or ``finally`` only through `Scope.finish`;
- between an outcome and the object that owns it there is no await;
- a lock is never held across an await.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sluice.core.documents import BucketPage, Document, DocumentKey, Kind, Mismatch, Page, Stored, Write
from sluice.core.events import Event
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Clash,
    Denied,
    Failure,
    Fold,
    Folded,
    GaveUp,
    GiveUp,
    Gone,
    Granted,
    Pause,
    Paused,
    Peek,
    Peeked,
    Reap,
    Reaped,
    Release,
    Released,
    Renew,
    Renewed,
    Repair,
    Repaired,
    Settle,
    Settled,
    Take,
)

T = TypeVar("T")


class Clock(Protocol):
    """Time, injected."""

    def now_ns(self) -> int:
        """Wall-clock nanoseconds since the epoch. May jump."""
        ...

    def steady_ns(self) -> int:
        """Nanoseconds that only ever grow and go on while the machine is suspended."""
        ...


class Gate(Protocol):
    """Something to wait for. Sleeping is a gate that nobody sets."""

    def set(self) -> None:
        """Let everybody through, now and from now on."""
        ...

    async def wait(self, deadline_ns: int) -> bool:
        """Wait until set or until the steady clock reaches the deadline; whether it was set."""
        ...


class Scope(Protocol):
    """How work is run here: to the end, in parallel, one at a time, and in which process."""

    async def finish(
        self, work: Coroutine[Any, Any, T], undo: Callable[[], Coroutine[Any, Any, object]] | None = None
    ) -> T:
        """Run ``work`` to its end whatever happens to the caller; if the caller was cancelled, undo, then raise it."""
        ...

    def gate(self) -> Gate: ...

    def lock(self) -> AbstractContextManager[object]: ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> Gate:
        """Start ``work`` beside the caller; the gate is set once it has ended. `RuntimeError` if it can't be."""
        ...

    def process(self) -> str:
        """Which process this is, as ``host:pid``. After a fork, another one."""
        ...


class Observer(Protocol):
    """Is told what happens. Called inline: keep it quick, and don't raise."""

    def __call__(self, event: Event, /) -> None: ...


class Reporting(ABC):
    """A store that has more to tell than its answers, such as that its clock was corrected, says so by this base."""

    @abstractmethod
    def report_to(self, tell: Observer, /) -> None:
        """From now on, tell this observer."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What flows may rely on in a store. ``joint``: a take over several buckets is decided at once, all or nothing."""

    name: str
    joint: bool


class Store(Protocol):
    """State, kept by an engine.

    Hot half: lists in, lists out, one answer an item and in order, each decided as if alone; ``now`` is read once a
    batch, after the lock is held. Cold half: documents. A failed batch answers a failure for each item; permission and
    format errors are raised as `ConfigError`, because no retry cures them.
    """

    @property
    def traits(self) -> Traits: ...

    async def take(self, requests: Sequence[Take], /) -> Sequence[Granted | Denied | Clash | Failure]: ...
    async def settle(self, requests: Sequence[Settle | GiveUp], /) -> Sequence[Settled | GaveUp | Failure]: ...
    async def release(self, requests: Sequence[Release], /) -> Sequence[Released | Gone | Failure]: ...
    async def renew(self, requests: Sequence[Renew], /) -> Sequence[Renewed | Gone | Failure]: ...
    async def reap(self, requests: Sequence[Reap], /) -> Sequence[Reaped | Failure]: ...
    async def peek(self, requests: Sequence[Peek], /) -> Sequence[Peeked | Failure]: ...
    async def pause(self, requests: Sequence[Pause], /) -> Sequence[Paused | Failure]: ...
    async def fold(self, requests: Sequence[Fold], /) -> Sequence[Folded | Failure]:
        """Move past hours' usage into the hour documents, in one transaction with its removal."""
        ...

    async def repair(self, requests: Sequence[Repair], /) -> Sequence[Repaired | Failure]: ...

    async def get(self, keys: Sequence[DocumentKey], /) -> Sequence[Document | None] | Failure:
        """Read documents, as of after every write that was acknowledged before."""
        ...

    async def write(self, writes: Sequence[Write], /) -> Stored | Mismatch | Failure:
        """Put and delete up to `MAX_WRITES` documents, all or nothing."""
        ...

    async def list(
        self,
        namespace: str,
        kind: Kind,
        /,
        *,
        under: tuple[str, str] | None = None,
        prefix: str = "",
        after: str | None = None,
    ) -> Page | Failure:
        """List documents by id, a page at a time. May lag; nothing that must be right relies on it."""
        ...

    async def buckets(
        self, namespace: str, /, *, under: tuple[str, str] | None = None, after: str | None = None
    ) -> BucketPage | Failure:
        """List bucket keys, a page at a time; ``under`` is ("entity", name) or ("resource", name). May lag."""
        ...

    async def forget(self, keys: Sequence[BucketKey], /) -> Stored | Failure:
        """Remove buckets, whatever is in them."""
        ...

    async def close(self) -> None: ...
