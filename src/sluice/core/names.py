"""Names, and the keys made of them.

Names come from users and, for entities, from strangers. A name is printable text in NFC, up to 128 characters and
256 bytes. ``#`` joins the parts of a key, so a resource or a limit may not contain it; an entity may, because keys are
read from the right. ``*`` is the entity that everyone shares. So no two different names ever make the same key.
"""

import unicodedata
from dataclasses import dataclass

from sluice.core.bounds import MAX_NAME_BYTES, MAX_NAME_CHARS
from sluice.core.errors import InvalidName

EVERYONE = "*"
"""The entity whose buckets everyone shares."""


def check_name(text: str, what: str) -> str:
    """Return ``text`` if it is a usable name, else raise `InvalidName`; ``what`` says in the message what it names."""
    if not isinstance(text, str):
        raise InvalidName(f"{what} must be text, not {type(text).__name__}")
    shown = repr(text if len(text) <= 40 else text[:40] + "…")
    if not text:
        raise InvalidName(f"{what} is empty; give it a name")
    if len(text) > MAX_NAME_CHARS:
        raise InvalidName(
            f"{what} {shown} has {len(text)} characters; {MAX_NAME_CHARS} are allowed (hash long names first)"
        )
    if not text.isprintable():
        raise InvalidName(f"{what} {shown} has characters that don't print; remove them")
    if len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidName(f"{what} {shown} has {len(text.encode())} bytes in UTF-8; {MAX_NAME_BYTES} are allowed")
    if not unicodedata.is_normalized("NFC", text):
        raise InvalidName(f"{what} {shown} is not in NFC; pass unicodedata.normalize('NFC', name)")
    return text


def check_entity(text: str, what: str = "entity") -> str:
    """Like `check_name`, for an entity that callers made up: ``*`` is taken."""
    if text == EVERYONE:
        raise InvalidName(f"{what} '*' is the entity that everyone shares; it exists without being made")
    return check_name(text, what)


def check_resource(text: str) -> str:
    return _without_hash(check_name(text, "resource"), "resource")


def check_limit_name(text: str) -> str:
    return _without_hash(check_name(text, "limit"), "limit")


def check_lease_id(text: str) -> str:
    return _without_hash(check_name(text, "lease id"), "lease id")


def _without_hash(text: str, what: str) -> str:
    if "#" in text:
        raise InvalidName(f"{what} {text!r} contains '#', which joins names in keys; use another character")
    if text == EVERYONE:
        raise InvalidName(f"{what} '*' is reserved; use another name")
    return text


def split_resource(text: str) -> tuple[str, str | None]:
    """Split ``openai#rpm`` into a resource and the one limit meant, ``openai`` into itself and None."""
    if isinstance(text, str) and "#" in text:
        resource, _, limit = text.partition("#")
        return check_resource(resource), check_limit_name(limit)
    return check_resource(text), None


@dataclass(frozen=True, slots=True)
class BucketKey:
    """Where a bucket lives: one entity's share of one resource, in one namespace."""

    namespace: str
    entity: str
    resource: str
    shard: int = 0

    @property
    def text(self) -> str:
        return f"{self.entity}#{self.resource}#{self.shard}"

    @classmethod
    def parse(cls, namespace: str, text: str) -> "BucketKey":
        entity, resource, shard = text.rsplit("#", 2)
        return cls(namespace, entity, resource, int(shard))


def slot_entries(lease_id: str, amount: int) -> tuple[str, ...]:
    """The names under which a lease's slots are entered: as many as it has slots."""
    if amount == 1:
        return (lease_id,)
    return (lease_id, *(f"{lease_id}#{k}" for k in range(1, amount)))


def entry_owner(entry: str) -> str:
    """The lease that an entry belongs to."""
    return entry.partition("#")[0]
