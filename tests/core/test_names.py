"""Names: what is one, what is not and why, and that no two different ones ever make the same key."""

import re
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluice.core.bounds import MAX_NAME_BYTES, MAX_NAME_CHARS
from sluice.core.errors import ConfigError, InvalidName
from sluice.core.levels import Level
from sluice.core.names import (
    BucketKey,
    check_entity,
    check_lease_id,
    check_limit_name,
    check_name,
    check_resource,
    entry_owner,
    slot_entries,
    split_resource,
)
from sluice.core.usage import hour_key


def is_name(text: str) -> bool:
    try:
        check_name(text, "name")
    except InvalidName:
        return False
    return True


NAMES = (
    st.one_of(
        st.text(alphabet="ab#*/: é", min_size=1, max_size=6),
        st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20),
    )
    .map(lambda text: unicodedata.normalize("NFC", text))
    .filter(is_name)
)
RESOURCES = NAMES.filter(lambda text: "#" not in text and text != "*")


@pytest.mark.parametrize(
    "text", ["openai", "POST /search", "tenant:ü/7", "a#b", "#", " ", "日本", "🙂", "*", "x" * 128]
)
def test_printable_text_is_a_name(text: str) -> None:
    assert check_name(text, "entity") == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "entity is empty"),
        ("a\nb", "characters that don't print"),
        ("a\x00", "characters that don't print"),
        ("a\u200bb", "characters that don't print"),
        ("a\ud800", "characters that don't print"),
        ("u\u0308", "is not in NFC; pass unicodedata.normalize('NFC', name)"),
        ("x" * 129, "has 129 characters; 128 are allowed (hash long names first)"),
        ("ü" * 100 + "日" * 19, "has 257 bytes in UTF-8; 256 are allowed"),
        (5, "entity must be text, not int"),
        (None, "entity must be text, not NoneType"),
        (b"a", "entity must be text, not bytes"),
    ],
)
def test_anything_else_is_an_invalid_name_and_the_error_says_why(text: object, why: str) -> None:
    with pytest.raises(InvalidName, match=re.escape(why)):
        check_name(text, "entity")  # type: ignore[arg-type]


def test_names_end_at_their_bounds() -> None:
    assert len("ü" * MAX_NAME_CHARS) == MAX_NAME_CHARS
    assert len(("ü" * MAX_NAME_CHARS).encode()) == MAX_NAME_BYTES
    assert is_name("ü" * MAX_NAME_CHARS)
    assert not is_name("ü" * (MAX_NAME_CHARS - 1) + "日")


def test_an_invalid_name_is_a_config_error_that_shows_little_of_a_long_name() -> None:
    with pytest.raises(ConfigError) as caught:
        check_name("x" * 100_000, "entity")
    assert len(str(caught.value)) < 200


@given(st.text())
def test_any_text_is_a_name_or_an_invalid_name(text: str) -> None:
    if is_name(text):
        assert text.isprintable()
        assert unicodedata.normalize("NFC", text) == text
        assert 1 <= len(text) <= MAX_NAME_CHARS
        assert len(text.encode()) <= MAX_NAME_BYTES


@pytest.mark.parametrize("check", [check_resource, check_limit_name, check_lease_id])
def test_a_resource_a_limit_and_a_lease_id_have_no_hash_and_are_no_star(check: object) -> None:
    assert callable(check)
    assert check("a*b") == "a*b"
    with pytest.raises(InvalidName, match="contains '#', which joins names in keys"):
        check("a#b")
    with pytest.raises(InvalidName, match=r"'\*' is reserved"):
        check("*")


def test_the_entity_that_everyone_shares_is_not_made_by_anyone() -> None:
    assert check_entity("a#b") == "a#b"
    with pytest.raises(InvalidName, match=r"parent '\*' is the entity that everyone shares"):
        check_entity("*", "parent")
    with pytest.raises(InvalidName, match="entity is empty"):
        check_entity("")


def test_a_resource_may_carry_the_one_limit_that_is_meant() -> None:
    assert split_resource("openai") == ("openai", None)
    assert split_resource("openai#rpm") == ("openai", "rpm")


@pytest.mark.parametrize("text", ["#rpm", "openai#", "a#b#c", "*", "*#rpm", "openai#*", "#", "", 5, None])
def test_a_resource_that_does_not_split_into_good_names_is_refused(text: object) -> None:
    with pytest.raises(InvalidName):
        split_resource(text)  # type: ignore[arg-type]


# --- no two names make the same key ---


@given(NAMES, RESOURCES, st.integers(0, 64))
def test_a_bucket_key_reads_back_as_what_it_was_made_of(entity: str, resource: str, shard: int) -> None:
    key = BucketKey("ns", entity, resource, shard)
    assert BucketKey.parse("ns", key.text) == key


@given(st.tuples(NAMES, RESOURCES), st.tuples(NAMES, RESOURCES))
def test_different_names_never_make_the_same_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    assume(one != other)
    assert BucketKey("ns", *one).text != BucketKey("ns", *other).text
    assert Level(*one).id != Level(*other).id
    assert hour_key(BucketKey("ns", *one), ("rpm", 1)).id != hour_key(BucketKey("ns", *other), ("rpm", 1)).id


LEVELS = st.builds(Level, st.one_of(st.none(), NAMES), st.one_of(st.none(), RESOURCES))


@given(LEVELS)
def test_a_level_reads_back_from_its_id(level: Level) -> None:
    assert Level.parse(level.id) == level


@given(LEVELS, LEVELS)
def test_different_levels_never_share_an_id(one: Level, other: Level) -> None:
    assert (one == other) == (one.id == other.id)


@given(RESOURCES, RESOURCES, st.integers(1, 12), st.integers(1, 12))
def test_the_entries_of_different_leases_never_meet(one: str, other: str, amount: int, other_amount: int) -> None:
    entries, others = slot_entries(one, amount), slot_entries(other, other_amount)
    assert len(set(entries)) == amount
    assert {entry_owner(entry) for entry in entries} == {one}
    assert one == other or not set(entries) & set(others)
