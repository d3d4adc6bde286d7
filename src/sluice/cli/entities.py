"""`sluice entities`: who counts against whom. Needed only for a parent or metadata."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from sluice.cli.client import open_client
from sluice.cli.output import print_json, print_table
from sluice.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sluice.core.entities import Entity

TEXT = "set and read who counts against whom"


def add(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    entities = subjects.add_parser("entities", help=TEXT, description=f"{TEXT.capitalize()}.")
    verbs = entities.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add_verb(verb: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(
            verb, parents=[everywhere], help=text, description=f"{text.capitalize()}."
        )
        parser.set_defaults(run=run)
        return parser

    creating = add_verb("create", create, "make an entity known")
    creating.add_argument("entity", metavar="NAME")
    creating.add_argument("--parent", metavar="NAME", help="another entity, or * for what everyone shares")
    creating.add_argument("--cascade", action="store_true", help="its takes count against all of its ancestors too")
    creating.add_argument("--metadata", metavar="JSON", default="{}", help="a JSON object, kept with it")
    getting = add_verb("get", get, "an entity's record")
    getting.add_argument("entity", metavar="NAME")
    listing = add_verb("list", list_all, "all entities that have a record")
    listing.add_argument("--parent", metavar="NAME", help="only the children of this one")
    moving = add_verb("move", move, "give an entity another parent, or none")
    moving.add_argument("entity", metavar="NAME")
    moving.add_argument("parent", nargs="?", metavar="PARENT")
    deleting = add_verb("delete", delete, "remove an entity's record; its limits and buckets stay")
    deleting.add_argument("entity", metavar="NAME")


def create(asked: argparse.Namespace) -> int:
    """Make an entity known."""
    try:
        metadata = json.loads(asked.metadata)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--metadata {asked.metadata!r} is not JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise ConfigError(f"--metadata {asked.metadata!r} is not a JSON object; write for example '{{\"plan\": 1}}'")
    with open_client(asked) as sluice:
        entity = sluice.create_entity(asked.entity, asked.parent, cascade=asked.cascade, metadata=metadata)
    return _print(asked, [entity], one=True)


def get(asked: argparse.Namespace) -> int:
    """Print an entity's record."""
    with open_client(asked) as sluice:
        entity = sluice.get_entity(asked.entity)
    if entity is not None:
        return _print(asked, [entity], one=True)
    if asked.json:
        print_json(None)
    else:
        print(f"{asked.entity!r} has no record")
    return 0


def list_all(asked: argparse.Namespace) -> int:
    """Print all entities that have a record."""
    with open_client(asked) as sluice:
        found = sluice.entities(asked.parent)
    return _print(asked, found, one=False)


def move(asked: argparse.Namespace) -> int:
    """Give an entity another parent, or none."""
    with open_client(asked) as sluice:
        entity = sluice.move_entity(asked.entity, asked.parent)
    return _print(asked, [entity], one=True)


def delete(asked: argparse.Namespace) -> int:
    """Remove an entity's record."""
    with open_client(asked) as sluice:
        sluice.delete_entity(asked.entity)
    if asked.json:
        print_json({"deleted": asked.entity})
    else:
        print(f"{asked.entity!r} has no record any more")
    return 0


def _print(asked: argparse.Namespace, entities: Sequence[Entity], *, one: bool) -> int:
    if asked.json:
        records = [_entity_json(entity) for entity in entities]
        print_json(records[0] if one else records)
        return 0
    rows = [
        (
            entity.id,
            entity.parent or "-",
            "yes" if entity.cascade else "no",
            json.dumps(dict(entity.metadata), ensure_ascii=False),
        )
        for entity in entities
    ]
    print_table(("entity", "parent", "cascade", "metadata"), rows, "no entity has a record")
    return 0


def _entity_json(entity: Entity) -> dict[str, object]:
    return {
        "entity": entity.id,
        "parent": entity.parent,
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
    }
