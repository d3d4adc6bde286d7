"""Listing namespaces, and purging one.

Purging marks the name, so that nobody can open the namespace any more; waits until no cache knows it as open and no
request to it is still on its way; deletes; and lists again until it finds nothing twice. Interrupted, it can be run
again: the mark stays until all is gone. Of two that purge at once, the later to mark it ends it; the other says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.bounds import NS_PER_HOUR, NS_PER_SECOND
from sluice.core.documents import MAX_WRITES, Delete, Document, DocumentKey, Kind, Put, Version
from sluice.core.errors import ConfigError, Conflict
from sluice.core.names import BucketKey, check_name
from sluice.flow.configure import PURGING, ROOT
from sluice.flow.documents import (
    bucket_page,
    forget,
    list_all,
    list_page,
    new_version,
    read,
    write,
    write_or_conflict,
)

if TYPE_CHECKING:
    from sluice.flow.client import Client

AGAIN_NS = NS_PER_SECOND
"""Between two lookings for what is left."""

MAX_ROUNDS = NS_PER_HOUR // AGAIN_NS


async def namespaces(client: Client) -> list[str]:
    """The names of all namespaces of the store."""
    return [document.key.id for document in await list_all(client, ROOT, Kind.NAMESPACE, "listing namespaces")]


async def purge_namespace(client: Client, name: str) -> None:
    """Delete everything in a namespace, and its name."""
    check_name(name, "namespace")
    asked = f"purging namespace {name!r}"
    key = DocumentKey(ROOT, Kind.NAMESPACE, name)
    (found,) = await read(client, [key], asked)
    if found is None:
        raise ConfigError(f"there is no namespace {name!r}; namespaces() lists those that exist")
    namespace, version = found.body.split(" ")[0], new_version(client)
    mark = Put(Document(key, f"{namespace} {PURGING}", version), Version(found.version))
    await write_or_conflict(client, [mark], f"namespace {name!r}", "somebody else is about to purge it, too")
    client.configuration.refresh()
    await client.sleep(client.settings.config_ttl_ns + client.settings.timeout_ns)
    empty = 0
    for _ in range(MAX_ROUNDS):
        empty = empty + 1 if not await _delete_all(client, namespace, asked) else 0
        if empty == 2:
            break
        await client.sleep(AGAIN_NS)
    else:
        raise Conflict(f"namespace {name!r} keeps filling while it is purged; stop its users and purge it again")
    unmark = Delete(key, Version(version))
    await write_or_conflict(client, [unmark], f"namespace {name!r}", "somebody else purges it, too, and will end it")


async def _delete_all(client: Client, namespace: str, asked: str) -> bool:
    """Delete everything that is listed; whether there was anything."""
    anything = False
    after: str | None = None
    while True:
        page = await bucket_page(client, namespace, asked, after=after)
        if page.keys:
            anything = True
            await forget(client, [BucketKey.parse(namespace, text) for text in page.keys], asked)
        after = page.after
        if after is None:
            break
    for kind in Kind:
        while True:
            documents = await list_page(client, namespace, kind, asked, after=after)
            keys = [document.key for document in documents.documents]
            anything = anything or bool(keys)
            for start in range(0, len(keys), MAX_WRITES):
                await write(client, [Delete(key) for key in keys[start : start + MAX_WRITES]], asked)
            after = documents.after
            if after is None:
                break
    return anything
