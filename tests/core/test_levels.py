"""Levels: the first that has limits wins whole, and what is stored reads back as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.core.errors import InvalidName
from sluice.core.levels import Level, Resolved, levels_for, limits_body, parse_limits_body, resolve
from sluice.core.limits import Limit

LEVELS = levels_for("acme", "openai")
LIMITS = [(Limit(f"l{n}", "5/min"),) for n in range(4)]


def test_levels_are_asked_from_the_most_special_to_the_most_general() -> None:
    assert [level.id for level in LEVELS] == ["acme#openai", "acme#", "#openai", "#"]
    assert [str(level) for level in LEVELS] == [
        "entity 'acme', resource 'openai'",
        "entity 'acme'",
        "resource 'openai'",
        "system",
    ]


@given(st.lists(st.booleans(), min_size=4, max_size=4))
def test_the_first_level_with_limits_wins_whole(has: list[bool]) -> None:
    found = [limits if there else None for limits, there in zip(LIMITS, has, strict=True)]
    if not any(has):
        assert resolve(LEVELS, found) == Resolved((), None)
    else:
        first = has.index(True)
        assert resolve(LEVELS, found) == Resolved(LIMITS[first], LEVELS[first])


def test_a_level_is_made_of_good_names() -> None:
    assert Level("*", "openai").id == "*#openai"
    for entity, resource in (("", None), (None, ""), (None, "a#b"), (None, "*"), ("a\n", None)):
        with pytest.raises(InvalidName):
            Level(entity, resource)


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (Level("a#b", "c"), "a#b#c"),
        (Level("a#b", None), "a#b#"),
        (Level("a", "b"), "a#b"),
        (Level("#", None), "##"),
        (Level(None, None), "#"),
    ],
)
def test_a_hash_in_an_entity_makes_no_two_levels_alike(level: Level, text: str) -> None:
    assert level.id == text
    assert Level.parse(text) == level


def test_limits_read_back_from_a_document_as_they_were() -> None:
    limits = (Limit("rpm", "500/min"), Limit("tpm", "200k/min burst 400k", cost=0), Limit("größe", "32 slots", cost=2))
    body = limits_body(limits)
    assert "größe" in body
    assert parse_limits_body(body) == limits
    assert parse_limits_body(limits_body(())) == ()
