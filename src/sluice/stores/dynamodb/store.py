"""The DynamoDB store: requests in, calls out to a wire, replies in, outcomes out.

A bucket is one item, so any number of its limits is one conditional write, which grants or shows why not. Buckets are
decided one by one, side by side: who takes several at once sends several takes and undoes what it must (see
`sluice.flow.attempt`). Which write is tried first is guessed from what was last seen of the bucket; what decides is the
engine, and what is answered is what `sluice.core` says of the image that it returns.

The clock is this host's, read once for each batch. A client that is ahead by more than `max_skew` could replace slots
that others still hold; a rate that one has left beyond all reach is clamped by the next, and `repair` ends the rest.
"""

import uuid
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeVar

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.documents import BucketPage, Document, DocumentKey, Kind, Mismatch, Page, Stored
from sluice.core.documents import Write as DocumentWrite
from sluice.core.errors import ConfigError
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
    Unknown,
    Unreached,
)
from sluice.ports import Traits
from sluice.stores.dynamodb import combining, correcting, documents, filing, leases, listing, pausing
from sluice.stores.dynamodb.beliefs import Beliefs
from sluice.stores.dynamodb.images import decode_bucket
from sluice.stores.dynamodb.rounds import Bench, Work, run
from sluice.stores.dynamodb.table import KEY, bucket_key
from sluice.stores.dynamodb.wire import Answered, Call, Operation, Reply, Wire

TRAITS: Final = Traits("dynamodb", joint=False)

MAX_SKEW_NS: Final = 2 * NS_PER_SECOND
"""How far two clients' clocks may be apart: a lapsed slot is another's this long after its expiry."""

R = TypeVar("R")
T = TypeVar("T")


class DynamoStore:
    """A `Store` in one table of DynamoDB, over a wire to it."""

    def __init__(
        self,
        wire: Wire,
        table: str,
        *,
        max_skew_ns: int = MAX_SKEW_NS,
        token: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._wire = wire
        self._table = table
        self._max_skew_ns = max_skew_ns
        self._token = token
        self._beliefs = Beliefs()

    @property
    def traits(self) -> Traits:
        return TRAITS

    # --- buckets ---

    async def take(self, requests: Sequence[Take], /) -> Sequence[Granted | Denied | Clash | Failure]:
        bench = self._bench()
        works = [combining.take_all(bench, key, some) for key, some in _by_bucket(requests, _key_of_take).items()]
        return _in_order(await run(self._wire, works), len(requests))

    async def settle(self, requests: Sequence[Settle | GiveUp], /) -> Sequence[Settled | GaveUp | Failure]:
        return await self._each(requests, _settle_or_give_up)

    async def release(self, requests: Sequence[Release], /) -> Sequence[Released | Gone | Failure]:
        return await self._each(requests, leases.release)

    async def renew(self, requests: Sequence[Renew], /) -> Sequence[Renewed | Gone | Failure]:
        bench = self._bench()
        works = [leases.renew(bench, key, numbered) for key, numbered in _by_bucket(requests, _key_of).items()]
        return _in_order(await run(self._wire, works), len(requests))

    async def reap(self, requests: Sequence[Reap], /) -> Sequence[Reaped | Failure]:
        return await self._each(requests, leases.reap)

    async def pause(self, requests: Sequence[Pause], /) -> Sequence[Paused | Failure]:
        return await self._each(requests, pausing.pause)

    async def repair(self, requests: Sequence[Repair], /) -> Sequence[Repaired | Failure]:
        return await self._each(requests, pausing.repair)

    async def fold(self, requests: Sequence[Fold], /) -> Sequence[Folded | Failure]:
        token = self._token
        return await self._each(requests, lambda bench, request: filing.fold(bench, request, token))

    async def peek(self, requests: Sequence[Peek], /) -> Sequence[Peeked | Failure]:
        bench = self._bench()
        keys = [bucket_key(request.key) for request in requests]
        (found,) = await run(self._wire, [documents.read_items(self._table, keys)])
        if isinstance(found, Unknown | Unreached):
            return [found] * len(requests)
        images = {key: decode_bucket(found.get(key)) for key in keys}
        for request in requests:
            self._beliefs.saw(request.key, images[bucket_key(request.key)])
        return [Peeked(bench.now_ns, images[key]) for key in keys]

    def _bench(self) -> Bench:
        return Bench(self._table, self._beliefs, self._wire.now_ns(), self._max_skew_ns)

    async def _each(self, requests: Sequence[R], work: Callable[[Bench, R], Work[T]]) -> list[Any]:
        """Answer requests: those on the same bucket in their order, different buckets side by side."""
        bench = self._bench()
        works = [_in_turn(bench, numbered, work) for numbered in _by_bucket(requests, _key_of).values()]
        return _in_order(await run(self._wire, works), len(requests))

    # --- documents ---

    async def get(self, keys: Sequence[DocumentKey], /) -> Sequence[Document | None] | Failure:
        return await self._one(documents.get(self._table, keys))

    async def write(self, writes: Sequence[DocumentWrite], /) -> Stored | Mismatch | Failure:
        return await self._one(documents.write(self._table, writes, self._token))

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
        return await self._one(listing.documents(self._table, namespace, kind, under, prefix=prefix, after=after))

    async def buckets(
        self, namespace: str, /, *, under: tuple[str, str] | None = None, after: str | None = None
    ) -> BucketPage | Failure:
        return await self._one(listing.buckets(self._table, namespace, under, after))

    async def forget(self, keys: Sequence[BucketKey], /) -> Stored | Failure:
        replies = await run(self._wire, [_delete(self._table, key) for key in dict.fromkeys(keys)])
        for key in keys:
            self._beliefs.forget(key)
        failures = [reply for reply in replies if not isinstance(reply, Answered)]
        unknown = [reply for reply in failures if isinstance(reply, Unknown)]
        if failures and len(failures) < len(replies) and not unknown:
            return Unknown("some of the buckets were not reached")
        return (unknown or failures or [Stored()])[0]  # type: ignore[return-value]

    async def close(self) -> None:
        await self._wire.close()

    async def _one(self, work: Work[T]) -> T:
        (outcome,) = await run(self._wire, [work])
        return outcome


def _settle_or_give_up(bench: Bench, request: Settle | GiveUp) -> Work[Settled | GaveUp | Unknown | Unreached]:
    if isinstance(request, GiveUp):
        return correcting.give_up(bench, request)
    return correcting.settle(bench, request)


def _key_of(request: Any) -> BucketKey:
    return request.key  # type: ignore[no-any-return]


def _key_of_take(request: Take) -> BucketKey:
    if len(request.parts) != 1:
        raise ConfigError(
            f"take {request.lease_id!r} names {len(request.parts)} buckets; DynamoDB decides one at a time, "
            "so send a take for each"
        )
    return request.parts[0].key


def _by_bucket(requests: Sequence[R], key_of: Callable[[R], BucketKey]) -> dict[BucketKey, list[tuple[int, R]]]:
    grouped: dict[BucketKey, list[tuple[int, R]]] = {}
    for number, request in enumerate(requests):
        grouped.setdefault(key_of(request), []).append((number, request))
    return grouped


def _in_turn(
    bench: Bench, numbered: Sequence[tuple[int, R]], work: Callable[[Bench, R], Work[T]]
) -> Work[list[tuple[int, T]]]:
    answers = []
    for number, request in numbered:
        answer = yield from work(bench, request)
        answers.append((number, answer))
    return answers


def _in_order(answered: Sequence[Sequence[tuple[int, T]]], count: int) -> list[T]:
    answers: list[Any] = [None] * count
    for numbered in answered:
        for number, answer in numbered:
            answers[number] = answer
    return answers


def _delete(table: str, key: BucketKey) -> Generator[Call, Reply, Reply]:
    reply = yield Call(Operation.DELETE_ITEM, {"TableName": table, "Key": {KEY: {"S": bucket_key(key)}}})
    return reply
