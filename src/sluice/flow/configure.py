"""Limits, entities and namespaces: read through a cache on the way to a take, read and written as they are otherwise.

On the way to a take there are at most three reads, each of many documents: the namespace; the entity's record with its
four levels of limits; all of its ancestors with theirs. What was read serves for one cache lifetime, also that there
was nothing; then a change is in force for every bucket, because limits travel with each take.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sluice.core.documents import Delete, Document, DocumentKey, Expect, Kind, Put, Version, Write
from sluice.core.entities import Entity, climb, entity_body, parse_entity_body
from sluice.core.errors import ConfigError, Conflict
from sluice.core.levels import Level, Resolved, limits_body, parse_limits_body
from sluice.core.limits import Limit, check_limits
from sluice.core.names import BucketKey, check_entity, check_name, check_resource
from sluice.core.needs import Plan, Wanted, charge, check_known, plan
from sluice.core.requests import Part
from sluice.flow.cache import Cache
from sluice.flow.documents import list_all, new_version, read, write, write_or_conflict
from sluice.flow.resolving import InForce, Pair, in_force, parsed_entity, resolve_pairs

if TYPE_CHECKING:
    from sluice.flow.ask import Ask
    from sluice.flow.client import Client

ROOT: Final = "-" * 11
"""The namespace that holds the names of all others."""

CACHE_SIZE: Final = 10_000
MAX_LISTED: Final = 50
"""Known resources named in an error message."""

PURGING: Final = "purging"


@dataclass(frozen=True, slots=True)
class StoredLimits:
    """Limits as they are set at one level, and the version to expect when changing them."""

    limits: tuple[Limit, ...]
    version: str


class Configuration:
    """The configuration of one namespace, as one client sees it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = client.settings.namespace
        clock, scope, ttl_ns = client.clock, client.scope, client.settings.config_ttl_ns
        self._ids: Cache[str, str] = Cache(clock, scope, ttl_ns, 1)
        self._standings: Cache[Pair, InForce] = Cache(clock, scope, ttl_ns, CACHE_SIZE)

    def refresh(self) -> None:
        """Forget what was read, so that the next take reads anew."""
        self._ids.clear()
        self._standings.clear()

    # --- on the way to a take ---

    async def plan(self, ask: Ask) -> Plan:
        """What a take charges, bucket by bucket. Raises `ConfigError` or `NeverAdmissible` for what can't be."""
        return plan(await self.charges(ask))

    async def charges(self, ask: Ask) -> list[Part]:
        """The buckets that a take counts against, need by need, with all of their limits, zeros included."""
        namespace = await self.namespace_id()
        in_force_for = await self._in_force(ask.wanted)
        ttl_ns = self._client.settings.lease_ttl_ns if ask.ttl_ns is None else ask.ttl_ns
        parts = []
        for wanted in ask.wanted:
            standing = in_force_for[wanted.entity, wanted.resource]
            own = standing.own.limits if ask.limits is None else ask.limits
            charged = [(wanted.entity, own), *((name, found.limits) for name, found in standing.ancestors)]
            if not any(limits for _, limits in charged):
                raise await self._no_limits(wanted)
            check_known(wanted, [limits for _, limits in charged])
            for entity, limits in charged:
                key = BucketKey(namespace, entity, wanted.resource)
                parts.append(charge(key, limits, wanted, ask.headroom_ppm, ttl_ns))
        return parts

    async def namespace_id(self) -> str:
        """The opaque id behind the namespace's name; made on first use."""
        cached = self._ids.get(self._name)
        if cached is not None:
            return cached
        ticket = self._ids.ticket()
        key = DocumentKey(ROOT, Kind.NAMESPACE, self._name)
        (found,) = await self._get([key])
        if found is None:
            made = base64.urlsafe_b64encode(self._client.rng.getrandbits(64).to_bytes(8, "big")).decode().rstrip("=")
            record = Document(key, made, new_version(self._client))
            await write(self._client, [Put(record, Expect.ABSENT)], f"making namespace {self._name!r}")
            (found,) = await self._get([key])  # ours, or that of whoever was first
            if found is None:
                raise Conflict(f"namespace {self._name!r} was deleted while it was being made; try again")
        namespace, _, state = found.body.partition(" ")
        if state == PURGING:
            raise ConfigError(f"namespace {self._name!r} is being purged; wait until that has ended, or use another")
        self._ids.put(ticket, self._name, namespace)
        return namespace

    async def _in_force(self, wanted: Sequence[Wanted]) -> dict[Pair, InForce]:
        """What is in force for each entity and resource that is wanted; all that isn't cached is read together."""
        ticket = self._standings.ticket()
        cached = {pair: self._standings.get(pair) for pair in dict.fromkeys((w.entity, w.resource) for w in wanted)}
        known = {pair: found for pair, found in cached.items() if found is not None}
        missing = [pair for pair, found in cached.items() if found is None]
        if missing:
            read_now = await in_force(self._get, await self.namespace_id(), missing)
            for pair, found in read_now.items():
                self._standings.put(ticket, pair, found)
            known |= read_now
        return known

    async def _no_limits(self, wanted: Wanted) -> ConfigError:
        names = await self.resources()
        shown = ", ".join(names[:MAX_LISTED]) or "none"
        return ConfigError(
            f"no limits are set for resource {wanted.resource!r} (entity {wanted.entity!r}), at any level; set some "
            f"with set_limits({wanted.resource!r}, [Limit('rpm', '100/min')]). Resources with limits: {shown}"
        )

    # --- limits ---

    async def set_limits(
        self, resource: str | None, limits: Sequence[Limit], *, entity: str | None, expect: str | None
    ) -> None:
        level = Level(entity, resource)
        document = Document(
            await self._limits_key(level), limits_body(check_limits(limits)), new_version(self._client), _filed(level)
        )
        await self._write([Put(document, _expected(expect))], f"limits of {level}")

    async def get_limits(self, resource: str | None, *, entity: str | None) -> StoredLimits | None:
        (found,) = await self._get([await self._limits_key(Level(entity, resource))])
        return None if found is None else StoredLimits(parse_limits_body(found.body), found.version)

    async def delete_limits(self, resource: str | None, *, entity: str | None, expect: str | None) -> None:
        level = Level(entity, resource)
        await self._write([Delete(await self._limits_key(level), _expected(expect))], f"limits of {level}")

    async def resolve_limits(self, resource: str, *, entity: str) -> Resolved:
        check_resource(resource)
        check_name(entity, "entity")
        found = await resolve_pairs(self._get, await self.namespace_id(), [(entity, resource)])
        resolved, _ = found[entity, resource]
        return resolved

    async def resources(self) -> list[str]:
        levels = [Level.parse(document.key.id) for document in await self._list(Kind.LIMITS)]
        return sorted({level.resource for level in levels if level.resource is not None})

    async def _limits_key(self, level: Level) -> DocumentKey:
        return DocumentKey(await self.namespace_id(), Kind.LIMITS, level.id)

    # --- entities ---

    async def create_entity(
        self, entity_id: str, *, parent: str | None, cascade: bool, metadata: Mapping[str, object] | None
    ) -> Entity:
        check_entity(entity_id)
        if not isinstance(cascade, bool):
            raise ConfigError(f"cascade is True or False, not {cascade!r}")
        if metadata is not None and not isinstance(metadata, Mapping):
            raise ConfigError(f"metadata of entity {entity_id!r} must be a dict that JSON can hold, not {metadata!r}")
        entity = Entity(entity_id, parent, cascade, metadata or {})
        made, writes = await self._placed(entity, Expect.ABSENT)
        await self._write(writes, f"entity {entity_id!r}", "it exists already, or an ancestor is being moved")
        return made

    async def get_entity(self, entity_id: str) -> Entity | None:
        check_entity(entity_id)
        return (await self._entities([entity_id]))[entity_id]

    async def entities(self, parent: str | None) -> list[Entity]:
        under = None if parent is None else ("entity", check_name(parent, "parent"))
        documents = await self._list(Kind.ENTITY, under=under)
        return [parse_entity_body(found.key.id, found.body, found.version) for found in documents]

    async def move_entity(self, entity_id: str, parent: str | None) -> Entity:
        before = await self._existing(entity_id)
        made, writes = await self._placed(replace(before, parent=parent), Version(before.version))
        await self._write(writes, f"entity {entity_id!r}", "it or an ancestor was changed meanwhile; try again")
        return made

    async def delete_entity(self, entity_id: str) -> None:
        before = await self._existing(entity_id)
        children = await self.entities(entity_id)
        if children:
            raise ConfigError(
                f"entity {entity_id!r} is the parent of {children[0].id!r}"
                f"{f' and {len(children) - 1} more' if len(children) > 1 else ''}; move or delete those first"
            )
        key = DocumentKey(await self.namespace_id(), Kind.ENTITY, entity_id)
        await self._write([Delete(key, Version(before.version))], f"entity {entity_id!r}")

    async def _existing(self, entity_id: str) -> Entity:
        entity = await self.get_entity(entity_id)
        if entity is None:
            raise ConfigError(f"there is no entity {entity_id!r}; make it with create_entity({entity_id!r})")
        return entity

    async def _placed(self, entity: Entity, expect: Expect | Version) -> tuple[Entity, list[Write]]:
        """The entity with its path, and the writes that put it there.

        Each ancestor that has a record is written again as it was: two moves that would make a ring together both
        write both ends, so only one of them lands.
        """
        if entity.parent is not None:
            check_name(entity.parent, "parent")
        known: dict[str, Entity | None] = {}
        path, unread = climb(entity, known)
        while unread is not None:
            known |= await self._entities([unread])
            path, unread = climb(entity, known)
        placed = replace(entity, path=path, version=new_version(self._client))
        writes: list[Write] = [Put(await self._entity_document(placed), expect)]
        for ancestor in known.values():
            if ancestor is not None:
                touched = replace(ancestor, version=new_version(self._client))
                writes.append(Put(await self._entity_document(touched), Version(ancestor.version)))
        return placed, writes

    async def _entity_document(self, entity: Entity) -> Document:
        key = DocumentKey(await self.namespace_id(), Kind.ENTITY, entity.id)
        under = {} if entity.parent is None else {"entity": entity.parent}
        return Document(key, entity_body(entity), entity.version, under)

    async def _entities(self, ids: Sequence[str]) -> dict[str, Entity | None]:
        namespace = await self.namespace_id()
        found = await self._get([DocumentKey(namespace, Kind.ENTITY, item) for item in ids])
        return {item: parsed_entity(item, document) for item, document in zip(ids, found, strict=True)}

    # --- documents ---

    async def _get(self, keys: Sequence[DocumentKey]) -> Sequence[Document | None]:
        return await read(self._client, keys, "reading the configuration")

    async def _list(self, kind: Kind, *, under: tuple[str, str] | None = None) -> list[Document]:
        namespace = await self.namespace_id()
        return await list_all(self._client, namespace, kind, "listing the configuration", under=under)

    async def _write(self, writes: Sequence[Write], what: str, why: str = "") -> None:
        try:
            await write_or_conflict(self._client, writes, what, why)
        finally:
            self._standings.clear()


def _filed(level: Level) -> dict[str, str]:
    named: Iterable[tuple[str, str | None]] = (("entity", level.entity), ("resource", level.resource))
    return {kind: name for kind, name in named if name is not None}


def _expected(expect: str | None) -> Expect | Version:
    """None: whatever is there. Empty: nothing may be there. Else: this version."""
    if expect is None:
        return Expect.ANYTHING
    if not isinstance(expect, str):
        raise ConfigError(f"expect is the version of get_limits(...), or '' if there must be none yet; got {expect!r}")
    return Version(expect) if expect else Expect.ABSENT
