"""Listing namespaces, and purging one.

Purging marks the name, so that nobody can open the namespace any more; waits until no cache knows it as open and no
request to it is still on its way; deletes; and lists again until it finds nothing twice. Interrupted, it can be run
again: the mark stays until all is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.bounds import NS_PER_HOUR, NS_PER_SECOND
from sluice.core.documents import MAX_WRITES, Delete, Document, DocumentKey, Expect, Kind, Put, Version
from sluice.core.errors import ConfigError, Conflict
from sluice.core.names import BucketKey, check_name
from sluice.core.requests import Unknown, Unreached
from sluice.flow.configure import PURGING, ROOT
from sluice.flow.persist import unavailable

if TYPE_CHECKING:
    from sluice.flow.client import Client

AGAIN_NS = NS_PER_SECOND
"""Between two lookings for what is left."""

MAX_ROUNDS = NS_PER_HOUR // AGAIN_NS


async def namespaces(client: Client) -> list[str]:
    """The names of all namespaces of the store."""
    names: list[str] = []
    after: str | None = None
    while True:
        page = await client.store.list(ROOT, Kind.NAMESPACE, after=after)
        if isinstance(page, Unknown | Unreached):
            raise unavailable(page, "listing namespaces")
        names += [document.key.id for document in page.documents]
        after = page.after
        if after is None:
            return names


async def purge_namespace(client: Client, name: str) -> None:
    """Delete everything in a namespace, and its name."""
    check_name(name, "namespace")
    key = DocumentKey(ROOT, Kind.NAMESPACE, name)
    found = await client.store.get([key])
    if isinstance(found, Unknown | Unreached):
        raise unavailable(found, f"purging namespace {name!r}")
    if found[0] is None:
        raise ConfigError(f"there is no namespace {name!r}; namespaces() lists those that exist")
    namespace = found[0].body.split(" ")[0]
    version = f"{client.rng.getrandbits(64):016x}"
    mark = Put(Document(key, f"{namespace} {PURGING}", version), Version(found[0].version))
    outcome = await client.store.write([mark])
    if isinstance(outcome, Unknown | Unreached):
        raise unavailable(outcome, f"purging namespace {name!r}")
    client.configuration.refresh()
    await client.sleep(client.settings.config_ttl_ns + client.settings.timeout_ns)
    empty = 0
    for _ in range(MAX_ROUNDS):
        empty = empty + 1 if not await _delete_page(client, namespace) else 0
        if empty == 2:
            break
        if empty:
            await client.sleep(AGAIN_NS)
    else:
        raise Conflict(f"namespace {name!r} keeps filling while it is purged; stop its users and purge it again")
    await client.store.write([Delete(key, Expect.ANYTHING)])


async def _delete_page(client: Client, namespace: str) -> bool:
    """Delete a page of everything; whether there was anything."""
    anything = False
    page = await client.store.buckets(namespace)
    if isinstance(page, Unknown | Unreached):
        raise unavailable(page, "purging a namespace")
    if page.keys:
        anything = True
        await client.store.forget([BucketKey.parse(namespace, text) for text in page.keys])
    for kind in (Kind.LIMITS, Kind.ENTITY, Kind.USAGE):
        documents = await client.store.list(namespace, kind)
        if isinstance(documents, Unknown | Unreached):
            raise unavailable(documents, "purging a namespace")
        keys = [document.key for document in documents.documents]
        anything = anything or bool(keys)
        for start in range(0, len(keys), MAX_WRITES):
            await client.store.write([Delete(key) for key in keys[start : start + MAX_WRITES]])
    return anything
