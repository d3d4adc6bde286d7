"""One transaction on the file: what is asked in it, decided by the core on what was loaded, saved once at its end.

    begin          the write lock is held, then now is read
    decide         a bucket is loaded when it is first asked for; what is decided on it stays here
    save           one row a bucket, and only if its text has changed; a batch that changes nothing writes nothing
    commit

Whoever dies before the commit has changed nothing. A clock that steps back between two transactions only delays: the
core's formulas see to that.

Idle buckets are forgotten while new ones are added: every eighth new row has 64 of the old ones looked at, from a place
that the row's number picks. So at most about an eighth of a large file is idle, no write looks at more than 64 rows,
and whose writes they are doesn't matter. What a bucket counts of past hours is filed first. It must have been idle for
an hour: a clock that steps back by less than that mints nothing through what was forgotten.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import EMPTY, Bucket, Hour, fold, idle
from sluice.core.decide import decide
from sluice.core.documents import Delete, Document, DocumentKey, Mismatch, Put, Stored, Write, holds, key_of
from sluice.core.errors import ConfigError
from sluice.core.names import BucketKey
from sluice.core.requests import BucketRequest, Fold, keys_of
from sluice.core.usage import file_hours
from sluice.stores.sqlite.state import decode, encode
from sluice.stores.sqlite.statements import BUCKETS, DOCUMENTS

FIRST_SWEEP: Final = 4_096
"""Fewer buckets than this are never looked over for idle ones."""

SWEEP_EVERY: Final = 8
SWEEP_ROWS: Final = 64
"""Rows looked at, each time that so many new ones were added."""

IDLE_FOR_NS: Final = NS_PER_HOUR
"""How long a bucket must have been idle to be forgotten."""

SPREAD: Final = 2_654_435_761
"""A large prime. Multiples of it, cut to any span, come to lie all over that span."""

LOAD_BUCKET: Final = BUCKETS["load_bucket"]
SAVE_BUCKET: Final = BUCKETS["save_bucket"]
ADD_BUCKET: Final = BUCKETS["add_bucket"]


class Cursor(Protocol):
    """What a statement answers."""

    @property
    def lastrowid(self) -> int | None: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Rows(Protocol):
    """The file, in a transaction that somebody else begins and ends."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Cursor: ...


class Transaction:
    """What is known, and what has been decided so far, in one transaction."""

    def __init__(self, rows: Rows, now_ns: int) -> None:
        self.rows = rows
        self.now_ns = now_ns
        self._buckets: dict[BucketKey, Bucket] = {}
        self._stored: dict[BucketKey, tuple[int, str] | None] = {}
        self._changed: dict[BucketKey, Bucket] = {}

    # --- buckets ---

    def load(self, key: BucketKey) -> Bucket:
        """A bucket as it stands in this transaction."""
        bucket = self._buckets.get(key)
        if bucket is None:
            row = self.rows.execute(LOAD_BUCKET, (key.namespace, key.text)).fetchone()
            bucket = EMPTY if row is None else decode(row[1])
            self._stored[key] = row
            self._buckets[key] = bucket
        return bucket

    def decide(self, requests: Sequence[BucketRequest]) -> list[Any]:
        """Answer requests, each as if alone. What can't be read raises before anything is decided."""
        if len(requests) > 1:
            for request in requests:
                for key in keys_of(request):
                    self.load(key)
        return [self._decide_one(request) for request in requests]

    def _decide_one(self, request: BucketRequest) -> Any:
        changed, past, outcome = decide(request, self.load, self.now_ns)
        if past and isinstance(request, Fold):
            self._file(request.key, past)
        if changed:
            self._buckets.update(changed)
            self._changed.update(changed)
        return outcome

    def save(self) -> None:
        """Write what has changed, then look over some old buckets if enough new ones came."""
        sweeps = []
        for key, bucket in self._changed.items():
            text = encode(bucket)
            stored = self._stored[key]
            if stored is None:
                row = (key.namespace, key.text, key.entity, key.resource, text)
                number = self.rows.execute(ADD_BUCKET, row).lastrowid
                if number is not None and number % SWEEP_EVERY == 0:
                    sweeps.append(number)
            elif text != stored[1]:
                self.rows.execute(SAVE_BUCKET, (text, stored[0]))
        for number in sweeps:
            self._forget_idle(number)

    def forget(self, keys: Sequence[BucketKey]) -> None:
        for key in keys:
            self.rows.execute(BUCKETS["forget_bucket"], (key.namespace, key.text))
            self._buckets[key] = EMPTY
            self._stored[key] = None
            self._changed.pop(key, None)

    def _forget_idle(self, number: int) -> None:
        first, last = self.rows.execute(BUCKETS["span_of_numbers"]).fetchone()
        span = last - first + 1
        if span < FIRST_SWEEP:
            return
        start = first + number // SWEEP_EVERY * SPREAD % span
        for namespace, text, state in self.rows.execute(BUCKETS["buckets_from_number"], (start, SWEEP_ROWS)).fetchall():
            try:
                bucket, past = fold(decode(state), self.now_ns)
            except ConfigError:
                continue  # told to whoever asks for that bucket, not to whom it is nothing
            if idle(bucket, self.now_ns - IDLE_FOR_NS):
                self._file(BucketKey.parse(namespace, text), past)
                self.rows.execute(BUCKETS["forget_bucket"], (namespace, text))

    # --- documents ---

    def document(self, key: DocumentKey) -> Document | None:
        row = self.rows.execute(DOCUMENTS["get_document"], (key.namespace, key.kind, key.id)).fetchone()
        return None if row is None else Document(key, row[0], row[1], json.loads(row[2]))

    def write(self, writes: Sequence[Write]) -> Stored | Mismatch:
        """Put and delete, all or nothing."""
        before = [self.document(key_of(write)) for write in writes]
        for write, stored in zip(writes, before, strict=True):
            if not holds(write.expect, stored):
                return Mismatch(key_of(write))
        for write in writes:
            if isinstance(write, Put):
                self._put(write.document)
            elif isinstance(write, Delete):
                self._delete(write.key)
        return Stored()

    def _file(self, key: BucketKey, past: dict[Hour, int]) -> None:
        for document in file_hours(key, past, self.document, self.now_ns):
            self._put(document)

    def _put(self, document: Document) -> None:
        key = document.key
        self._unlist(key)
        under = json.dumps(dict(document.under), ensure_ascii=False)
        row = (key.namespace, key.kind, key.id, document.body, document.version, under)
        self.rows.execute(DOCUMENTS["put_document"], row)
        for name, value in document.under.items():
            self.rows.execute(DOCUMENTS["list_document_under"], (key.namespace, key.kind, name, value, key.id))

    def _delete(self, key: DocumentKey) -> None:
        self._unlist(key)
        self.rows.execute(DOCUMENTS["delete_document"], (key.namespace, key.kind, key.id))

    def _unlist(self, key: DocumentKey) -> None:
        stored = self.document(key)
        for name, value in stored.under.items() if stored is not None else ():
            self.rows.execute(DOCUMENTS["unlist_document_under"], (key.namespace, key.kind, name, value, key.id))
