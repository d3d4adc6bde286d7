"""Documents, read and written with certainty: what was sent is sent again until its answer is known.

Reading twice does no harm. A write says what must be true before it, and carries versions that nobody else writes; so
when its answer was lost and the second try meets something else, those versions tell whether the first was applied. A
lost reply is then no `Conflict`. Only a write that expects anything can land twice, the second time over somebody
else's; it asked for no better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.documents import Delete, Mismatch, Put, key_of
from sluice.core.errors import Conflict
from sluice.flow.persist import sure_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.core.documents import BucketPage, Document, DocumentKey, Kind, Page, Write
    from sluice.core.names import BucketKey
    from sluice.flow.client import Client


def new_version(client: Client) -> str:
    """A version that no document has had before."""
    return f"{client.rng.getrandbits(64):016x}"


async def read(client: Client, keys: Sequence[DocumentKey], asked: str) -> Sequence[Document | None]:
    """Read documents."""
    found, _ = await sure_call(client, lambda: client.store.get(keys), asked)
    return found


async def list_all(
    client: Client, namespace: str, kind: Kind, asked: str, *, under: tuple[str, str] | None = None
) -> list[Document]:
    """All documents of a kind."""
    documents: list[Document] = []
    page = await list_page(client, namespace, kind, asked, under=under)
    while True:
        documents += page.documents
        if page.after is None:
            return documents
        page = await list_page(client, namespace, kind, asked, under=under, after=page.after)


async def list_page(
    client: Client,
    namespace: str,
    kind: Kind,
    asked: str,
    *,
    under: tuple[str, str] | None = None,
    prefix: str = "",
    after: str | None = None,
) -> Page:
    """A page of documents of a kind."""
    page, _ = await sure_call(
        client, lambda: client.store.list(namespace, kind, under=under, prefix=prefix, after=after), asked
    )
    return page


async def bucket_page(
    client: Client, namespace: str, asked: str, *, under: tuple[str, str] | None = None, after: str | None = None
) -> BucketPage:
    """A page of bucket keys, as text within their namespace."""
    page, _ = await sure_call(client, lambda: client.store.buckets(namespace, under=under, after=after), asked)
    return page


async def write(client: Client, writes: Sequence[Write], asked: str) -> bool:
    """Write documents, all or nothing; False if one of them was not as expected."""
    outcome, doubtful = await sure_call(client, lambda: client.store.write(writes), asked)
    if not isinstance(outcome, Mismatch):
        return True
    return doubtful and await _landed(client, writes, asked)


async def _landed(client: Client, writes: Sequence[Write], asked: str) -> bool:
    """Whether a write whose answer was lost is what stands now."""
    found = await read(client, [key_of(one) for one in writes], asked)
    return all(_is_mine(one, document) for one, document in zip(writes, found, strict=True))


def _is_mine(one: Put | Delete, stands: Document | None) -> bool:
    if isinstance(one, Delete):
        return stands is None
    return stands is not None and stands.version == one.document.version


async def write_or_conflict(client: Client, writes: Sequence[Write], what: str, why: str = "") -> None:
    """The same, with a `Conflict` for what was not as expected."""
    if not await write(client, writes, f"writing {what}"):
        raise Conflict(f"{what}: {why or 'somebody else changed it first; read it again and decide anew'}")


async def forget(client: Client, keys: Sequence[BucketKey], asked: str) -> None:
    """Remove buckets, whatever is in them."""
    await sure_call(client, lambda: client.store.forget(keys), asked)
