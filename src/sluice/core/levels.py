"""The four levels at which limits can be set; the first that exists wins whole.

    acme#openai     entity + resource
    acme#           entity default, whatever the resource
    #openai         resource, whoever the entity
    #               system

An id is read from its last ``#``: resources never contain one and entities are never empty, so no two levels share one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sluice.core.limits import Limit
from sluice.core.names import check_name, check_resource


@dataclass(frozen=True, slots=True)
class Level:
    """Where limits are set: for an entity or all, for a resource or all."""

    entity: str | None
    resource: str | None

    def __post_init__(self) -> None:
        if self.entity is not None:
            check_name(self.entity, "entity")
        if self.resource is not None:
            check_resource(self.resource)

    @property
    def id(self) -> str:
        return f"{self.entity or ''}#{self.resource or ''}"

    @classmethod
    def parse(cls, text: str) -> "Level":
        entity, resource = text.rsplit("#", 1)
        return cls(entity or None, resource or None)

    def __str__(self) -> str:
        match (self.entity, self.resource):
            case (None, None):
                return "system"
            case (None, resource):
                return f"resource {resource!r}"
            case (entity, None):
                return f"entity {entity!r}"
            case _:
                return f"entity {self.entity!r}, resource {self.resource!r}"


def levels_for(entity: str, resource: str) -> tuple[Level, Level, Level, Level]:
    """The levels that can decide for a bucket, strongest first."""
    return (Level(entity, resource), Level(entity, None), Level(None, resource), Level(None, None))


@dataclass(frozen=True, slots=True)
class Resolved:
    """The limits in force for a bucket and the level that they come from; no limits at any level: None."""

    limits: tuple[Limit, ...]
    level: Level | None


def resolve(levels: Sequence[Level], found: Sequence[tuple[Limit, ...] | None]) -> Resolved:
    """The first level with limits wins, whole."""
    for level, limits in zip(levels, found, strict=True):
        if limits is not None:
            return Resolved(limits, level)
    return Resolved((), None)


def limits_body(limits: Sequence[Limit]) -> str:
    """Limits as the text of a document."""
    return json.dumps(
        [{"name": limit.name, "rule": str(limit.rule), "cost": limit.cost} for limit in limits], ensure_ascii=False
    )


def parse_limits_body(body: str) -> tuple[Limit, ...]:
    return tuple(Limit(item["name"], item["rule"], cost=item["cost"]) for item in json.loads(body))
