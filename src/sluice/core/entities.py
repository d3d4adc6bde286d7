"""Entities with a parent: whose takes count against whom.

A record names its parent, and the whole path of ancestors as it was believed to be when the record was written. The
path is a hint that lets all ancestors be read at once; each ancestor's own record is the truth. The path ends at
`EVERYONE`, or at an entity without a record.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.core.bounds import MAX_ANCESTORS, MAX_METADATA_BYTES
from sluice.core.errors import ConfigError
from sluice.core.names import EVERYONE


@dataclass(frozen=True, slots=True)
class Entity:
    """Who consumes. With ``cascade``, its takes count against all of its ancestors too."""

    id: str
    parent: str | None = None
    cascade: bool = False
    metadata: Mapping[str, object] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    version: str = ""


def entity_body(entity: Entity) -> str:
    """An entity as the text of a document."""
    try:
        metadata = json.dumps(dict(entity.metadata), ensure_ascii=False, allow_nan=False)
        size = len(metadata.encode())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"metadata of entity {entity.id!r} must be a dict that JSON can hold: {error}") from error
    if size > MAX_METADATA_BYTES:
        raise ConfigError(
            f"metadata of entity {entity.id!r} has {size} bytes as JSON; {MAX_METADATA_BYTES} are allowed"
        )
    record = {"parent": entity.parent, "cascade": entity.cascade, "path": list(entity.path)}
    return json.dumps(record, ensure_ascii=False)[:-1] + f', "metadata": {metadata}}}'


def parse_entity_body(entity_id: str, body: str, version: str) -> Entity:
    record = json.loads(body)
    return Entity(entity_id, record["parent"], record["cascade"], record["metadata"], tuple(record["path"]), version)


def climb(entity: Entity, known: Mapping[str, Entity | None]) -> tuple[tuple[str, ...], str | None]:
    """Follow parents through ``known`` records: the ancestors found, and the first whose record is not known yet.

    A chain that bites its tail or is too long is refused here, however it came about.
    """
    path: list[str] = []
    parent = entity.parent
    while parent is not None:
        if parent == entity.id or parent in path:
            raise ConfigError(f"entity {entity.id!r} is its own ancestor, through {parent!r}; give one another parent")
        path.append(parent)
        if len(path) > MAX_ANCESTORS:
            raise ConfigError(f"entity {entity.id!r} has more than {MAX_ANCESTORS} ancestors; flatten the tree")
        if parent == EVERYONE:
            return tuple(path), None
        if parent not in known:
            return tuple(path), parent
        record = known[parent]
        parent = record.parent if record is not None else None
    return tuple(path), None
