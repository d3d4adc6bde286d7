"""Entities: the climb from one to its ancestors, and the record that a store keeps."""

from itertools import pairwise
from typing import Any

import pytest

from sluice.core.bounds import MAX_ANCESTORS, MAX_METADATA_BYTES
from sluice.core.entities import Entity, climb, entity_body, parse_entity_body
from sluice.core.errors import ConfigError


def chain(*ids: str) -> dict[str, Entity | None]:
    """Records of which each names the next as its parent."""
    parents = [*ids[1:], None]
    return {id: Entity(id, parent) for id, parent in zip(ids, parents, strict=True)}


def test_an_entity_without_a_parent_has_no_ancestors() -> None:
    assert climb(Entity("acme"), {}) == ((), None)


def test_ancestors_come_nearest_first() -> None:
    assert climb(Entity("a", "b"), chain("b", "c", "d")) == (("b", "c", "d"), None)


def test_the_climb_stops_at_the_first_record_that_is_not_known_yet_and_names_it() -> None:
    assert climb(Entity("a", "b"), {}) == (("b",), "b")
    assert climb(Entity("a", "b"), {"b": Entity("b", "c")}) == (("b", "c"), "c")


def test_an_ancestor_without_a_record_is_the_last() -> None:
    assert climb(Entity("a", "b"), {"b": Entity("b", "c"), "c": None}) == (("b", "c"), None)


def test_everyone_is_the_last_ancestor_and_needs_no_record() -> None:
    assert climb(Entity("a", "b"), {"b": Entity("b", "*")}) == (("b", "*"), None)
    assert climb(Entity("a", "*"), {"*": Entity("*", "b")}) == (("*",), None)


@pytest.mark.parametrize("ids", [("a",), ("b", "a"), ("b", "c", "a"), ("b", "c", "b"), ("b", "b")])
def test_a_chain_that_bites_its_tail_is_refused(ids: tuple[str, ...]) -> None:
    known = {id: Entity(id, parent) for id, parent in pairwise(ids)}
    with pytest.raises(ConfigError, match=f"entity 'a' is its own ancestor, through '{ids[-1]}'"):
        climb(Entity("a", ids[0]), known)


def test_as_many_ancestors_as_allowed_are_allowed_and_one_more_is_not() -> None:
    ids = [f"p{n}" for n in range(MAX_ANCESTORS)]
    assert climb(Entity("a", "p0"), chain(*ids)) == (tuple(ids), None)
    assert climb(Entity("a", "p0"), chain(*ids[:-1]) | {"p6": Entity("p6", "*")}) == ((*ids[:-1], "*"), None)
    with pytest.raises(ConfigError, match="entity 'a' has more than 8 ancestors; flatten the tree"):
        climb(Entity("a", "p0"), chain(*ids, "p8"))


def test_a_record_reads_back_as_it_was_written() -> None:
    entity = Entity("acme", "größe", True, {"plan": "gold", "deep": [1, {"x": None}], "ü": 1.5}, ("größe", "*"), "v1")
    assert parse_entity_body("acme", entity_body(entity), "v1") == entity
    plain = Entity("acme", version="v2")
    assert parse_entity_body("acme", entity_body(plain), "v2") == plain


def test_metadata_ends_at_its_bound_counted_in_bytes() -> None:
    most = "ü" * ((MAX_METADATA_BYTES - len('{"k": ""}')) // 2) + "x"
    assert entity_body(Entity("acme", metadata={"k": most}))
    with pytest.raises(ConfigError, match=r"metadata of entity 'acme' has 4097 bytes as JSON; 4096 are allowed"):
        entity_body(Entity("acme", metadata={"k": most + "x"}))


@pytest.mark.parametrize(
    "metadata",
    [5, "text", {"k": int}, {"k": {1, 2}}, {(1, 2): 3}, {"k": float("nan")}, {"k": float("inf")}, {"k": "\ud800"}],
    ids=repr,
)
def test_metadata_that_json_cannot_hold_is_refused(metadata: Any) -> None:
    with pytest.raises(ConfigError, match="metadata of entity 'acme' must be a dict that JSON can hold"):
        entity_body(Entity("acme", metadata=metadata))


def test_metadata_that_holds_itself_is_refused() -> None:
    ring: dict[str, object] = {}
    ring["ring"] = ring
    with pytest.raises(ConfigError, match="must be a dict that JSON can hold"):
        entity_body(Entity("acme", metadata=ring))
