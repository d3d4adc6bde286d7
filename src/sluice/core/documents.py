"""Documents: small versioned records. All configuration is made of them, so a new feature needs no new table.

A version is a text that is new with every write, never counted from 1 again, so a record deleted and made anew never
passes for the old one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MAX_WRITES: Final = 25
"""Documents written together, all or nothing."""

MAX_BODY_BYTES: Final = 32_768

PAGE_SIZE: Final = 100
"""Documents listed at once."""


class Kind(StrEnum):
    """What a document is about."""

    NAMESPACE = "NAMESPACE"
    LIMITS = "LIMITS"
    ENTITY = "ENTITY"
    USAGE = "USAGE"


@dataclass(frozen=True, slots=True)
class DocumentKey:
    namespace: str
    kind: Kind
    id: str


@dataclass(frozen=True, slots=True)
class Document:
    """A record as a store holds it. ``under`` names the entity or resource it can be listed by."""

    key: DocumentKey
    body: str
    version: str
    under: Mapping[str, str] = field(default_factory=dict)


class Expect(StrEnum):
    """What must be true of a document for a write to happen, when it is not a certain version."""

    ABSENT = "absent"
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Version:
    """The document must still have this version."""

    text: str


Condition = Expect | Version


@dataclass(frozen=True, slots=True)
class Put:
    """Write a document if ``expect`` holds."""

    document: Document
    expect: Condition = Expect.ANYTHING


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a document if ``expect`` holds."""

    key: DocumentKey
    expect: Condition = Expect.ANYTHING


Write = Put | Delete


@dataclass(frozen=True, slots=True)
class Stored:
    """All of it was written."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Nothing was written: this document was not as expected."""

    key: DocumentKey


@dataclass(frozen=True, slots=True)
class Page:
    """Some documents, and where to go on; None at the end."""

    documents: tuple[Document, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class BucketPage:
    """Some bucket keys, as text within their namespace, and where to go on."""

    keys: tuple[str, ...]
    after: str | None


def holds(condition: Condition, stored: Document | None) -> bool:
    """Whether a condition holds of what is stored."""
    if isinstance(condition, Version):
        return stored is not None and stored.version == condition.text
    return condition is Expect.ANYTHING or stored is None


def key_of(write: Write) -> DocumentKey:
    return write.document.key if isinstance(write, Put) else write.key
