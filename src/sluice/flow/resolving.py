"""Which limits are in force for an entity's takes of a resource: those of its own level, and of each ancestor's.

Whatever is asked together is read together: the records and levels of all entities in one read, then those of all their
ancestors, by the paths that the records remember, in another. Only where a path turns out to be old, because an
ancestor was moved, is the climb followed a generation at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.documents import Document, DocumentKey, Kind
from sluice.core.entities import Entity, climb, parse_entity_body
from sluice.core.levels import Resolved, levels_for, parse_limits_body, resolve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sluice.core.limits import Limit

    Read = Callable[[Sequence[DocumentKey]], Awaitable[Sequence[Document | None]]]

Pair = tuple[str, str]
"""An entity and a resource."""


@dataclass(frozen=True, slots=True)
class InForce:
    """Whose limits count for an entity's takes of a resource: its own, then each ancestor's."""

    own: Resolved
    ancestors: tuple[tuple[str, Resolved], ...] = ()


async def in_force(read: Read, namespace: str, pairs: Sequence[Pair]) -> dict[Pair, InForce]:
    """What is in force for each pair, ancestors of those that cascade included. Two reads at most, as a rule."""
    found = await resolve_pairs(read, namespace, pairs)
    cascading = {pair: record for pair, (_, record) in found.items() if record is not None and record.cascade}
    ancestors = await _resolve_ancestors(read, namespace, cascading)
    return {pair: InForce(own, ancestors.get(pair, ())) for pair, (own, _) in found.items()}


async def resolve_pairs(
    read: Read, namespace: str, pairs: Sequence[Pair]
) -> dict[Pair, tuple[Resolved, Entity | None]]:
    """The limits of the first level that has any, and the entity's record, for each pair, in one read."""
    keys: list[DocumentKey] = []
    for entity, resource in pairs:
        keys += [DocumentKey(namespace, Kind.LIMITS, level.id) for level in levels_for(entity, resource)]
        keys.append(DocumentKey(namespace, Kind.ENTITY, entity))
    once = list(dict.fromkeys(keys))
    found = dict(zip(once, await read(once), strict=True))
    documents = [found[key] for key in keys]
    resolved = {}
    for number, (entity, resource) in enumerate(pairs):
        *limits, record = documents[5 * number : 5 * number + 5]
        own = resolve(levels_for(entity, resource), [parsed_limits(document) for document in limits])
        resolved[entity, resource] = own, parsed_entity(entity, record)
    return resolved


async def _resolve_ancestors(
    read: Read, namespace: str, records: Mapping[Pair, Entity]
) -> dict[Pair, tuple[tuple[str, Resolved], ...]]:
    found: dict[Pair, tuple[Resolved, Entity | None]] = {}
    missing = [
        (ancestor, resource)
        for (_, resource), record in records.items()
        for ancestor in record.path or ((record.parent,) if record.parent else ())
    ]
    paths: dict[Pair, tuple[str, ...]] = {}
    while missing:
        found |= await resolve_pairs(read, namespace, list(dict.fromkeys(missing)))
        known = {entity: record for (entity, _), (_, record) in found.items()}
        missing = []
        for pair, record in records.items():
            paths[pair], unread = climb(record, known)
            wanted = [*paths[pair], *([unread] if unread is not None else [])]
            missing += [(entity, pair[1]) for entity in wanted if (entity, pair[1]) not in found]
    return {pair: tuple((name, found[name, pair[1]][0]) for name in path) for pair, path in paths.items()}


def parsed_limits(document: Document | None) -> tuple[Limit, ...] | None:
    return None if document is None else parse_limits_body(document.body)


def parsed_entity(entity_id: str, document: Document | None) -> Entity | None:
    return None if document is None else parse_entity_body(entity_id, document.body, document.version)
