"""Pages of documents and bucket keys.

Both are in the order of their bytes in UTF-8, which is that of their characters. A page starts right after the last
thing of the page before, so nothing is read twice however many pages there are.
"""

import json
from typing import Final

from sluice.core.documents import PAGE_SIZE, BucketPage, Document, DocumentKey, Kind, Page
from sluice.core.errors import ConfigError
from sluice.stores.sqlite.statements import BUCKETS, DOCUMENTS
from sluice.stores.sqlite.transaction import Rows

AFTER_ALL: Final = "\U0010ffff"
"""Sorts after every character that may stand in a name."""


def _start(prefix: str, after: str | None) -> str:
    """The first text that may be on the page: a null character makes the least text that is more than another."""
    return prefix if after is None else max(prefix, after + "\0")


def document_page(
    rows: Rows, namespace: str, kind: Kind, under: tuple[str, str] | None, *, prefix: str, after: str | None
) -> Page:
    """Documents by id. One more than a page is read, to know whether there is another."""
    ids = (_start(prefix, after), prefix + AFTER_ALL, PAGE_SIZE + 1)
    if under is None:
        found = rows.execute(DOCUMENTS["list_documents"], (namespace, kind, *ids)).fetchall()
    else:
        found = rows.execute(DOCUMENTS["list_documents_under"], (namespace, kind, *under, *ids)).fetchall()
    documents = tuple(
        Document(DocumentKey(namespace, kind, document_id), body, version, json.loads(listed))
        for document_id, body, version, listed in found[:PAGE_SIZE]
    )
    return Page(documents, documents[-1].key.id if len(found) > PAGE_SIZE else None)


def bucket_page(rows: Rows, namespace: str, under: tuple[str, str] | None, *, after: str | None) -> BucketPage:
    """Bucket keys, as text."""
    keys = (_start("", after), PAGE_SIZE + 1)
    if under is None:
        found = rows.execute(BUCKETS["list_buckets"], (namespace, *keys)).fetchall()
    elif under[0] in {"entity", "resource"}:
        found = rows.execute(BUCKETS[f"list_buckets_of_{under[0]}"], (namespace, under[1], *keys)).fetchall()
    else:
        raise ConfigError(f"buckets are listed by 'entity' or 'resource', not by {under[0]!r}")
    texts = tuple(key for (key,) in found[:PAGE_SIZE])
    return BucketPage(texts, texts[-1] if len(found) > PAGE_SIZE else None)
