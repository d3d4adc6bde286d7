"""The SQLite store: requests in, jobs out to a wire, outcomes back.

All state is in one file of the host. A take names any number of buckets and is decided whole, under the file's write
lock, so promises hold on several buckets as on one. What is written is what `sluice.core` decided and nothing else: the
SQL only finds rows and keeps them.

The clock is the host's, read once in each transaction after its lock is held. A process that dies in the middle leaves
nothing; one that dies after its commit leaves rates spent and slots to lapse.
"""

from collections.abc import Sequence
from typing import Any, Final

from sluice.core.documents import (
    BucketPage,
    Document,
    DocumentKey,
    Kind,
    Mismatch,
    Page,
    Stored,
    Write,
)
from sluice.core.names import BucketKey
from sluice.core.requests import (
    BucketRequest,
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
from sluice.stores.sqlite.listing import bucket_page, document_page
from sluice.stores.sqlite.transaction import Transaction
from sluice.stores.sqlite.wire import Wire

TRAITS: Final = Traits("sqlite", joint=True)


class SqliteStore:
    """A `Store` in a file, over a wire that has it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def traits(self) -> Traits:
        return TRAITS

    async def take(self, requests: Sequence[Take], /) -> Sequence[Granted | Denied | Clash | Failure]:
        return await self._decide(requests)

    async def settle(self, requests: Sequence[Settle | GiveUp], /) -> Sequence[Settled | GaveUp | Failure]:
        return await self._decide(requests)

    async def release(self, requests: Sequence[Release], /) -> Sequence[Released | Gone | Failure]:
        return await self._decide(requests)

    async def renew(self, requests: Sequence[Renew], /) -> Sequence[Renewed | Gone | Failure]:
        return await self._decide(requests)

    async def reap(self, requests: Sequence[Reap], /) -> Sequence[Reaped | Failure]:
        return await self._decide(requests)

    async def pause(self, requests: Sequence[Pause], /) -> Sequence[Paused | Failure]:
        return await self._decide(requests)

    async def fold(self, requests: Sequence[Fold], /) -> Sequence[Folded | Failure]:
        return await self._decide(requests)

    async def repair(self, requests: Sequence[Repair], /) -> Sequence[Repaired | Failure]:
        return await self._decide(requests)

    async def _decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        answer = await self._wire.write(lambda transaction: transaction.decide(requests))
        return _for_each(requests, answer)

    async def peek(self, requests: Sequence[Peek], /) -> Sequence[Peeked | Failure]:
        answer = await self._wire.read(lambda transaction: transaction.decide(requests))
        return _for_each(requests, answer)

    async def get(self, keys: Sequence[DocumentKey], /) -> Sequence[Document | None] | Failure:
        return await self._wire.read(lambda transaction: [transaction.document(key) for key in keys])

    async def write(self, writes: Sequence[Write], /) -> Stored | Mismatch | Failure:
        return await self._wire.write(lambda transaction: transaction.write(writes))

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
        return await self._wire.read(
            lambda transaction: document_page(transaction.rows, namespace, kind, under, prefix=prefix, after=after)
        )

    async def buckets(
        self, namespace: str, /, *, under: tuple[str, str] | None = None, after: str | None = None
    ) -> BucketPage | Failure:
        return await self._wire.read(lambda transaction: bucket_page(transaction.rows, namespace, under, after=after))

    async def forget(self, keys: Sequence[BucketKey], /) -> Stored | Failure:
        def job(transaction: Transaction) -> Stored:
            transaction.forget(keys)
            return Stored()

        return await self._wire.write(job)

    async def close(self) -> None:
        await self._wire.close()


def _for_each(requests: Sequence[BucketRequest], answer: list[Any] | Failure) -> list[Any]:
    return [answer] * len(requests) if isinstance(answer, Unknown | Unreached) else answer
