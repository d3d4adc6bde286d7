"""The reference store: dictionaries, and the core applied to them.

It lives and dies with its process. It is what the other stores are compared with, what tests run on, and enough for
limits that one process has to itself. Buckets that have been idle for an hour are forgotten as their number grows: of a
stream of new entity names, what stays is the usage of each hour.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import EMPTY, Bucket, Hour, fold, idle
from sluice.core.decide import decide
from sluice.core.documents import (
    PAGE_SIZE,
    BucketPage,
    Document,
    DocumentKey,
    Kind,
    Mismatch,
    Page,
    Put,
    Stored,
    Write,
    holds,
    key_of,
)
from sluice.core.names import BucketKey
from sluice.core.requests import (
    BucketRequest,
    Clash,
    Denied,
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
from sluice.core.usage import file_hours
from sluice.ports import Clock, Traits

FIRST_SWEEP = 4_096
"""Buckets before idle ones are forgotten for the first time; then each time their number has doubled."""

IDLE_FOR_NS = NS_PER_HOUR
"""How long a bucket must have been idle to be forgotten: a clock that steps back by less mints nothing through it."""


@dataclass
class MemoryState:
    """What a memory store holds. Several stores may share it: one after another, or at once if they share a lock."""

    buckets: dict[BucketKey, Bucket] = field(default_factory=dict)
    documents: dict[DocumentKey, Document] = field(default_factory=dict)


class MemoryStore:
    """A `Store` in this process's memory. ``lock`` makes it safe to share between threads."""

    def __init__(
        self,
        clock: Clock,
        lock: AbstractContextManager[object],
        state: MemoryState | None = None,
        *,
        joint: bool = True,
    ) -> None:
        self._clock = clock
        self._lock = lock
        self._traits = Traits("memory", joint)
        state = state or MemoryState()
        self._buckets = state.buckets
        self._documents = state.documents
        self._sweep_at = FIRST_SWEEP

    @property
    def traits(self) -> Traits:
        return self._traits

    async def take(self, requests: Sequence[Take], /) -> list[Granted | Denied | Clash]:
        return self._decide(requests)

    async def settle(self, requests: Sequence[Settle | GiveUp], /) -> list[Settled | GaveUp]:
        return self._decide(requests)

    async def release(self, requests: Sequence[Release], /) -> list[Released | Gone]:
        return self._decide(requests)

    async def renew(self, requests: Sequence[Renew], /) -> list[Renewed | Gone]:
        return self._decide(requests)

    async def reap(self, requests: Sequence[Reap], /) -> list[Reaped]:
        return self._decide(requests)

    async def peek(self, requests: Sequence[Peek], /) -> list[Peeked]:
        return self._decide(requests)

    async def pause(self, requests: Sequence[Pause], /) -> list[Paused]:
        return self._decide(requests)

    async def fold(self, requests: Sequence[Fold], /) -> list[Folded]:
        return self._decide(requests)

    async def repair(self, requests: Sequence[Repair], /) -> list[Repaired]:
        return self._decide(requests)

    def _decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        with self._lock:
            now_ns = self._clock.now_ns()
            outcomes = []
            for request in requests:
                changed, past, outcome = decide(request, self._load, now_ns)
                self._buckets.update(changed)
                if past and isinstance(request, Fold):
                    self._file(request.key, past, now_ns)
                outcomes.append(outcome)
            if len(self._buckets) >= self._sweep_at:
                self._forget_idle(now_ns)
            return outcomes

    def _load(self, key: BucketKey) -> Bucket:
        return self._buckets.get(key, EMPTY)

    def _file(self, key: BucketKey, past: dict[Hour, int], now_ns: int) -> None:
        for document in file_hours(key, past, self._documents.get, now_ns):
            self._documents[document.key] = document

    def _forget_idle(self, now_ns: int) -> None:
        for key, bucket in list(self._buckets.items()):
            kept, past = fold(bucket, now_ns)
            if idle(kept, now_ns - IDLE_FOR_NS):
                self._file(key, past, now_ns)
                del self._buckets[key]
        self._sweep_at = max(FIRST_SWEEP, 2 * len(self._buckets))

    async def get(self, keys: Sequence[DocumentKey], /) -> list[Document | None]:
        with self._lock:
            return [self._documents.get(key) for key in keys]

    async def write(self, writes: Sequence[Write], /) -> Stored | Mismatch:
        with self._lock:
            for write in writes:
                if not holds(write.expect, self._documents.get(key_of(write))):
                    return Mismatch(key_of(write))
            for write in writes:
                if isinstance(write, Put):
                    self._documents[write.document.key] = write.document
                else:
                    self._documents.pop(write.key, None)
            return Stored()

    async def list(
        self,
        namespace: str,
        kind: Kind,
        /,
        *,
        under: tuple[str, str] | None = None,
        prefix: str = "",
        after: str | None = None,
    ) -> Page:
        with self._lock:
            found = {
                key.id: document
                for key, document in self._documents.items()
                if key.namespace == namespace
                and key.kind == kind
                and key.id.startswith(prefix)
                and (under is None or document.under.get(under[0]) == under[1])
            }
        ids, next_after = _page(found, after)
        return Page(tuple(found[item] for item in ids), next_after)

    async def buckets(
        self, namespace: str, /, *, under: tuple[str, str] | None = None, after: str | None = None
    ) -> BucketPage:
        with self._lock:
            found = [
                key.text
                for key in self._buckets
                if key.namespace == namespace and (under is None or getattr(key, under[0]) == under[1])
            ]
        keys, next_after = _page(found, after)
        return BucketPage(keys, next_after)

    async def forget(self, keys: Sequence[BucketKey], /) -> Stored:
        with self._lock:
            for key in keys:
                self._buckets.pop(key, None)
            return Stored()

    async def close(self) -> None:
        """Nothing to close; the state stays until the store is dropped."""


def _page(texts: Sequence[str] | dict[str, Document], after: str | None) -> tuple[tuple[str, ...], str | None]:
    ordered = sorted(texts)
    start = 0 if after is None else bisect_right(ordered, after)
    page = tuple(ordered[start : start + PAGE_SIZE])
    return page, (page[-1] if start + PAGE_SIZE < len(ordered) else None)
