"""What every check works with: the store under test on its bench, ways to ask it, and a registry of the checks.

A check is an ``async def`` that gets a `Bench` and raises `NotConforming`. Its docstring is the sentence that must be
true. It names nothing of how it is run: a blocking harness runs it in one ``send(None)``, an asyncio harness on a loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.bucket import Bucket
from sluice.core.documents import Document, DocumentKey, Kind, Mismatch, Page, Stored, Write
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Charge,
    Clash,
    Delta,
    Denied,
    GaveUp,
    GiveUp,
    Gone,
    Granted,
    Part,
    Peek,
    Peeked,
    RateCharge,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    SlotsCharge,
    Take,
    Unknown,
    Unreached,
)
from sluice.ports import Store
from sluice.testing.clock import ManualClock
from sluice.wires.blocking.scope import BlockingScope

T = TypeVar("T")

S: Final = NS_PER_SECOND
NAMESPACE: Final = "Zm9vYmFyYmF"
KEY: Final = BucketKey(NAMESPACE, "*", "openai")


class NotConforming(AssertionError):
    """The store does not do what a store does."""


@dataclass(frozen=True)
class Harness:
    """How the suite gets at a store: how to open an empty one on a clock, and how to run a coroutine that uses it.

    ``open`` and ``reopen`` may return the store or an awaitable of it; they are called where the coroutine runs.
    ``reopen`` gives another store on the same data, as a process that starts later would; None if nothing outlives it.
    """

    run: Callable[[Coroutine[Any, Any, None]], None]
    open: Callable[[ManualClock], Store | Awaitable[Store]]
    reopen: Callable[[Store, ManualClock], Store | Awaitable[Store]] | None = None


def blocking(
    open: Callable[[ManualClock], Store],  # noqa: A002 - it is the harness's own word
    reopen: Callable[[Store, ManualClock], Store] | None = None,
) -> Harness:
    """A harness for a store whose methods block and never suspend."""
    return Harness(BlockingScope(ManualClock()).run, open, reopen)


def asynchronous(
    open: Callable[[ManualClock], Store | Awaitable[Store]],  # noqa: A002 - it is the harness's own word
    reopen: Callable[[Store, ManualClock], Store | Awaitable[Store]] | None = None,
) -> Harness:
    """A harness for a store on asyncio. Each check gets a loop of its own."""
    import asyncio

    return Harness(asyncio.run, open, reopen)


@dataclass(frozen=True)
class Check:
    """Something that must be true of a store; call it with a harness.

    ``sets_time``: it needs a store that goes by the clock it was given. ``joint``: it takes over several buckets in one
    request. ``durable``: it opens the same data again.
    """

    name: str
    sentence: str
    body: Callable[[Bench], Coroutine[Any, Any, None]]
    sets_time: bool = False
    joint: bool = False
    durable: bool = False

    def __str__(self) -> str:
        return self.name

    def __call__(self, harness: Harness) -> None:
        harness.run(self._run(harness))

    async def _run(self, harness: Harness) -> None:
        bench = Bench(harness, self)
        bench.store = await bench.open(bench.clock)
        try:
            await self.body(bench)
        except NotConforming as error:
            raise NotConforming(f"{self.sentence} {error}") from error
        finally:
            for store in bench.opened:
                await store.close()


REGISTRY: Final[dict[str, Check]] = {}


def check(
    *, sets_time: bool = False, joint: bool = False, durable: bool = False
) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], Check]:
    """Register a check under its function's name."""

    def register(body: Callable[[Bench], Coroutine[Any, Any, None]]) -> Check:
        made = Check(body.__name__, inspect.getdoc(body) or "", body, sets_time, joint, durable)
        if body.__name__ in REGISTRY or not made.sentence:
            raise ValueError(f"check {body.__name__} needs a name of its own and a sentence")
        REGISTRY[body.__name__] = made
        return made

    return register


class Bench:
    """A store under test, its clock, and short ways to ask it one thing."""

    store: Store

    def __init__(self, harness: Harness, check: Check) -> None:
        self.harness = harness
        self.clock = ManualClock()
        self.opened: list[Store] = []
        self._check = check

    async def open(self, clock: ManualClock) -> Store:
        """Another empty store."""
        return await self._opened(self.harness.open(clock))

    async def reopen(self) -> None:
        """Go on with another store on the same data."""
        if self.harness.reopen is None:
            raise ValueError(f"check {self._check} opens the same data again: the harness needs reopen=")
        self.store = await self._opened(self.harness.reopen(self.store, self.clock))

    async def _opened(self, opening: Store | Awaitable[Store]) -> Store:
        store: Store = await opening if inspect.isawaitable(opening) else opening
        self.opened.append(store)
        return store

    def advance(self, ns: int) -> None:
        """Let time pass."""
        self._may_set_time()
        self.clock.advance(ns=ns)

    def step(self, ns: int) -> None:
        """Make the wall clock jump."""
        self._may_set_time()
        self.clock.step(ns=ns)

    def _may_set_time(self) -> None:
        if not self._check.sets_time:
            raise ValueError(f"check {self._check} sets the time: say so where it is registered")

    # --- asking one thing ---

    async def take(
        self, lease: str, *charges: Charge, at: BucketKey = KEY, wait_ns: int = 0
    ) -> Granted | Denied | Clash:
        """Take from one bucket."""
        return await self.take_parts(lease, Part(at, charges), wait_ns=wait_ns)

    async def take_parts(self, lease: str, *parts: Part, wait_ns: int = 0) -> Granted | Denied | Clash:
        """Take from several buckets."""
        answer: Granted | Denied | Clash = one_of(await self.store.take([Take(lease, parts, wait_ns)]))
        return answer

    async def granted(self, lease: str, *charges: Charge, at: BucketKey = KEY, wait_ns: int = 0) -> Granted:
        """Take from one bucket what must be granted."""
        return a(Granted, await self.take(lease, *charges, at=at, wait_ns=wait_ns))

    async def denied(self, lease: str, *charges: Charge, at: BucketKey = KEY, wait_ns: int = 0) -> Denied:
        """Ask one bucket for what must be denied, and must leave it as it was or counted anew."""
        return a(Denied, await self.take(lease, *charges, at=at, wait_ns=wait_ns))

    async def image(self, at: BucketKey = KEY) -> Bucket:
        """A bucket as it stands."""
        return a(Peeked, one(await self.store.peek([Peek(at)]))).image

    async def settle(self, *deltas: Delta, at: BucketKey = KEY) -> None:
        """Correct one bucket."""
        one(await self.store.settle([Settle(at, deltas)]))

    async def give_up(self, granted: Granted, charge: RateCharge, at: BucketKey = KEY) -> GaveUp:
        """Give a reserved turn up."""
        left_ns = granted.images[0].rates[charge.name].full_at_ns
        request = GiveUp(at, charge.name, charge.amount, charge.interval_ns, left_ns)
        return a(GaveUp, one(await self.store.settle([request])))

    async def release(self, lease: str, *deltas: Delta, at: BucketKey = KEY) -> Released | Gone:
        """Give back all slots of a lease in one bucket."""
        answer: Released | Gone = one_of(await self.store.release([Release(at, lease, deltas)]))
        return answer

    async def renew(self, lease: str, *slots: SlotsCharge, at: BucketKey = KEY) -> Renewed | Gone:
        """Renew slots of a lease in one bucket."""
        answer: Renewed | Gone = one_of(await self.store.renew([Renew(at, lease, slots)]))
        return answer

    async def write(self, *writes: Write) -> Stored | Mismatch:
        """Write documents."""
        outcome = await self.store.write(writes)
        if isinstance(outcome, Unknown | Unreached):
            raise NotConforming(f"The store answered {outcome!r}.")
        return outcome

    async def get(self, *keys: DocumentKey) -> list[Document | None]:
        """Read documents."""
        return list(certain(await self.store.get(keys)))

    async def listed(
        self, kind: Kind, namespace: str = NAMESPACE, *, under: tuple[str, str] | None = None, prefix: str = ""
    ) -> list[Document]:
        """All documents of a kind, page by page."""
        found: list[Document] = []
        after: str | None = None
        while True:
            page: Page = certain(await self.store.list(namespace, kind, under=under, prefix=prefix, after=after))
            found += page.documents
            after = page.after
            if after is None:
                return found
            true(page.documents, "A page that says where to go on must not be empty.")

    async def bucket_texts(self, namespace: str = NAMESPACE, *, under: tuple[str, str] | None = None) -> list[str]:
        """All bucket keys of a namespace, page by page."""
        found: list[str] = []
        after: str | None = None
        while True:
            page = certain(await self.store.buckets(namespace, under=under, after=after))
            found += page.keys
            after = page.after
            if after is None:
                return found
            true(page.keys, "A page that says where to go on must not be empty.")


# --- charges, short ---------------------------------------------------------------------------------------------------


def rate(
    amount: int = 1, name: str = "rpm", capacity: int = 10, interval_ns: int = 60 * S, leave: int = 0
) -> RateCharge:
    """A charge to a rate of ten that gives a token a minute."""
    return RateCharge(name, amount, capacity, interval_ns, leave)


def slots(
    amount: int = 1, name: str = "concurrent", capacity: int = 3, ttl_ns: int = 60 * S, leave: int = 0
) -> SlotsCharge:
    """A charge of three slots that live for a minute."""
    return SlotsCharge(name, amount, capacity, ttl_ns, leave)


# --- saying what is wrong ---------------------------------------------------------------------------------------------


def certain(answer: T | Unknown | Unreached) -> T:
    """An answer that is not a failure: here nothing stands between the suite and the store."""
    if isinstance(answer, Unknown | Unreached):
        raise NotConforming(f"The store answered {answer!r}.")
    return answer


def one(answers: Sequence[T | Unknown | Unreached]) -> T:
    """The one answer to one request."""
    same(len(answers), 1, "answers to one request")
    return certain(answers[0])


def one_of(answers: Sequence[Any]) -> Any:
    """The one answer to one request that can be answered in several ways."""
    return one(answers)


def a(kind: type[T], answer: object) -> T:
    """An answer that must be of this kind."""
    if not isinstance(answer, kind):
        raise NotConforming(f"Expected {kind.__name__}, got {answer!r}.")
    return answer


def same(got: object, want: object, what: str) -> None:
    """Two things must be equal."""
    if got != want:
        raise NotConforming(f"{what}: expected {want!r}, got {got!r}.")


def true(condition: object, what: str) -> None:
    """Something must hold."""
    if not condition:
        raise NotConforming(what)


def plain(image: Bucket) -> Bucket:
    """An image without the empty lease maps that say nothing."""
    return replace(image, slots={name: dict(entries) for name, entries in image.slots.items() if entries})
