"""Configuring: limits at four levels, entities and their ancestors, namespaces and their purge."""

from __future__ import annotations

from typing import Any

import pytest

from sluice import ConfigError, Conflict, Limit, StoreUnavailable
from sluice.core.bounds import MAX_ANCESTORS, NS_PER_HOUR
from sluice.core.documents import Document, DocumentKey, Kind
from sluice.core.levels import Level
from tests.facade.kit import LOST, UNKNOWN, UNREACHED, Api, Fault, opened, raises

SECOND = 1_000_000_000
RPM = [Limit("rpm", "60/min")]


def limits(count: int) -> list[Limit]:
    return [Limit("rpm", f"{count}/min")]


# --- limits ---


def test_the_first_of_four_levels_that_exists_wins_whole(api: Api) -> None:
    levels = [("openai", "acme"), (None, "acme"), ("openai", None), (None, None)]
    for count, (resource, entity) in reversed(list(enumerate(levels, 1))):
        api.sluice.set_limits(resource, limits(count), entity=entity)
        resolved = api.sluice.resolve_limits("openai", entity="acme")
        assert resolved.limits == tuple(limits(count))
        assert resolved.level == Level(entity, resource)
        assert api.sluice.peek("openai", entity="acme").limits[0].capacity == count
    assert api.sluice.resolve_limits("search", entity="acme").level == Level("acme", None)
    assert api.sluice.resolve_limits("search").level == Level(None, None)
    for _, (resource, entity) in enumerate(levels):
        assert api.sluice.get_limits(resource, entity=entity) is not None
        api.sluice.delete_limits(resource, entity=entity)
        assert api.sluice.get_limits(resource, entity=entity) is None
    assert api.sluice.resolve_limits("openai", entity="acme").level is None
    with pytest.raises(ConfigError, match="no limits are set"):
        api.sluice.acquire("openai", entity="acme")


def test_levels_do_not_mix(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("rpm", "60/min"), Limit("tpm", "1000/min")])
    api.sluice.set_limits("openai", [Limit("rpm", "5/min")], entity="acme")
    with pytest.raises(ConfigError, match="unknown limit"):
        api.sluice.acquire("openai", {"tpm": 1}, entity="acme")


def test_a_limit_that_is_set_is_in_force_at_once_here_and_within_a_cache_lifetime_elsewhere(api: Api) -> None:
    api.sluice.set_limits("openai", limits(10))
    other = api.client(config_ttl=60)
    assert other.peek("openai").limits[0].capacity == 10
    api.advance(1)
    api.sluice.set_limits("openai", limits(20))
    assert api.sluice.peek("openai").limits[0].capacity == 20
    assert other.peek("openai").limits[0].capacity == 10
    api.advance(58.9)
    assert other.peek("openai").limits[0].capacity == 10
    api.advance(0.1)
    assert other.peek("openai").limits[0].capacity == 20


def test_that_there_was_nothing_is_remembered_too_until_it_is_refreshed(api: Api) -> None:
    api.sluice.set_limits("openai", RPM, entity="acme")
    other = api.client()
    for _ in range(2):
        with pytest.raises(ConfigError):
            other.acquire("openai")
    api.sluice.set_limits("openai", RPM)
    with pytest.raises(ConfigError):
        other.acquire("openai")
    other.refresh()
    assert other.acquire("openai")


def test_a_version_is_expected_and_told(api: Api) -> None:
    api.sluice.set_limits("openai", limits(1), expect="")
    first = api.sluice.get_limits("openai").version
    with pytest.raises(Conflict, match="resource 'openai'"):
        api.sluice.set_limits("openai", limits(2), expect="")
    api.sluice.set_limits("openai", limits(2), expect=first)
    for stale in (first, "never"):
        with pytest.raises(Conflict):
            api.sluice.set_limits("openai", limits(3), expect=stale)
        with pytest.raises(Conflict):
            api.sluice.delete_limits("openai", expect=stale)
    stored = api.sluice.get_limits("openai")
    assert stored.limits == tuple(limits(2))
    api.sluice.delete_limits("openai", expect=stored.version)
    api.sluice.delete_limits("openai")
    assert api.sluice.get_limits("openai") is None


def test_limits_for_one_take_stick_to_nothing(api: Api) -> None:
    api.sluice.set_limits("openai", limits(60))
    assert api.sluice.try_acquire("openai", {"rpm": 2}, limits=limits(2), headroom=0) is not None
    assert api.sluice.peek("openai").limits[0].capacity == 60
    assert api.sluice.resolve_limits("openai").limits == tuple(limits(60))
    assert api.sluice.acquire("unheard of", limits=limits(1))
    assert api.sluice.resources() == ["openai"]
    with pytest.raises(ConfigError, match="no limits are set"):
        api.sluice.acquire("unheard of")


def test_resources_are_those_that_limits_are_set_for(api: Api) -> None:
    assert api.sluice.resources() == []
    for name in ("b", "a", "c"):
        api.sluice.set_limits(name, RPM)
    api.sluice.set_limits("d", RPM, entity="acme")
    api.sluice.set_limits(None, RPM, entity="acme")
    assert api.sluice.resources() == ["a", "b", "c", "d"]
    with pytest.raises(ConfigError, match="Resources with limits: a, b, c, d"):
        api.sluice.acquire("z")


def test_more_resources_than_fit_on_a_page_are_listed(api: Api) -> None:
    names = [f"r{number:03d}" for number in range(230)]
    for name in names:
        api.rival.set_limits(name, RPM)
    assert api.sluice.resources() == names
    assert api.store.names().count("list") == 3


# --- entities ---


def test_an_entity_is_made_read_moved_and_deleted(api: Api) -> None:
    made = api.sluice.create_entity("acme", metadata={"plan": "pro", "seats": 5})
    assert (made.id, made.parent, made.cascade, dict(made.metadata)) == (
        "acme",
        None,
        False,
        {"plan": "pro", "seats": 5},
    )
    assert api.sluice.get_entity("acme") == made
    assert api.sluice.get_entity("globex") is None
    api.sluice.create_entity("team", "acme", cascade=True)
    assert [entity.id for entity in api.sluice.entities()] == ["acme", "team"]
    assert [entity.id for entity in api.sluice.entities("acme")] == ["team"]
    assert api.sluice.entities("team") == []
    with pytest.raises(ConfigError, match="parent of 'team'"):
        api.sluice.delete_entity("acme")
    moved = api.sluice.move_entity("team", "*")
    assert (moved.parent, moved.cascade) == ("*", True)
    assert [entity.id for entity in api.sluice.entities("*")] == ["team"]
    api.sluice.delete_entity("acme")
    with pytest.raises(ConfigError, match="no entity 'acme'"):
        api.sluice.delete_entity("acme")
    with pytest.raises(ConfigError, match="no entity 'acme'"):
        api.sluice.move_entity("acme", None)
    with pytest.raises(Conflict, match="exists already"):
        api.sluice.create_entity("team")


def test_without_cascade_a_parent_is_not_charged(api: Api) -> None:
    api.sluice.set_limits("openai", RPM)
    api.sluice.create_entity("acme", "*")
    api.sluice.acquire("openai", entity="acme")
    assert (api.free("openai", "rpm", "acme"), api.free("openai", "rpm")) == (59, 60)


def test_with_cascade_all_ancestors_are_charged_whatever_they_say_themselves(api: Api) -> None:
    api.sluice.set_limits("openai", RPM)
    api.sluice.create_entity("org", "*")
    api.sluice.create_entity("team", "org")
    api.sluice.create_entity("user", "team", cascade=True)
    api.sluice.acquire("openai", entity="user")
    assert [api.free("openai", "rpm", entity) for entity in ("user", "team", "org", "*")] == [59] * 4


def test_a_ring_and_too_many_ancestors_are_refused(api: Api) -> None:
    names = [f"e{number}" for number in range(MAX_ANCESTORS + 1)]
    for parent, name in zip([None, *names], names, strict=False):
        api.sluice.create_entity(name, parent)
    with pytest.raises(ConfigError, match=f"more than {MAX_ANCESTORS} ancestors"):
        api.sluice.create_entity("one more", names[-1])
    for parent in (names[0], names[3], names[-1]):
        with pytest.raises(ConfigError, match="its own ancestor"):
            api.sluice.move_entity(names[0], parent)


def test_two_moves_that_would_make_a_ring_together_do_not_both_land(api: Api) -> None:
    api.sluice.create_entity("a")
    api.sluice.create_entity("b")
    api.store.before["write"] = lambda: api.rival.move_entity("b", "a")
    with pytest.raises(Conflict):
        api.sluice.move_entity("a", "b")
    assert (api.sluice.get_entity("a").parent, api.sluice.get_entity("b").parent) == (None, "a")


def test_a_take_after_a_move_counts_against_the_new_ancestors(api: Api) -> None:
    api.sluice.set_limits("openai", RPM)
    for org in ("old", "new"):
        api.sluice.create_entity(org, "*")
    api.sluice.create_entity("team", "old")
    api.sluice.create_entity("user", "team", cascade=True)
    api.sluice.acquire("openai", entity="user")
    api.sluice.move_entity("team", "new")  # the path in the user's own record is an old one now
    api.sluice.acquire("openai", entity="user")
    assert [api.free("openai", "rpm", name) for name in ("user", "team", "old", "new", "*")] == [58, 58, 59, 59, 58]


def test_limits_and_buckets_of_a_deleted_entity_stay(api: Api) -> None:
    api.sluice.create_entity("acme")
    api.sluice.set_limits("openai", limits(7), entity="acme")
    api.sluice.acquire("openai", entity="acme")
    api.sluice.delete_entity("acme")
    assert api.free("openai", "rpm", "acme") == 6


# --- namespaces ---


def test_nothing_crosses_from_one_namespace_to_another(api: Api) -> None:
    one, two = (api.client(namespace=name) for name in ("one", "two"))
    one.set_limits("openai", limits(1))
    one.create_entity("acme", metadata={"of": "one"})
    with one.acquire("openai"):
        with pytest.raises(ConfigError, match="no limits"):
            two.acquire("openai")
        two.set_limits("openai", limits(1))
        assert two.acquire("openai")
        assert two.get_entity("acme") is None
        assert two.entities() == []
    assert not one.try_acquire("openai")
    assert api.rival.namespaces() == ["one", "two"]
    assert api.rival.namespace("one").resources() == ["openai"]


def filled(api: Api) -> Any:
    """A client of a namespace that holds something of every kind, on more than a page."""
    sluice = api.client(namespace="tenant")
    sluice.set_limits("openai", [Limit("rpm", "6000/min"), Limit("concurrent", "500 slots ttl 60s")])
    sluice.set_limits("openai", RPM, entity="acme")
    for number in range(150):
        sluice.acquire("openai#rpm", entity=f"e{number}")
    sluice.create_entity("acme")
    (namespace,) = [document.body for key, document in api.state.documents.items() if key.kind is Kind.NAMESPACE]
    for kind in set(Kind) - {Kind.NAMESPACE, Kind.LIMITS, Kind.ENTITY}:
        for number in range(120):
            key = DocumentKey(namespace, kind, f"{number}")
            api.state.documents[key] = Document(key, "", "v")
    return sluice


def test_a_purged_namespace_leaves_nothing_behind(api: Api) -> None:
    filled(api)
    keeper = api.client(namespace="other")
    keeper.set_limits("openai", [Limit("rpd", "60 per 300day")])
    keeper.acquire("openai")
    before_ns = api.clock.steady_ns()
    api.sluice.purge_namespace("tenant")
    assert api.clock.steady_ns() - before_ns >= 62 * SECOND
    assert api.clock.steady_ns() - before_ns < 70 * SECOND
    assert api.sluice.namespaces() == ["other"]
    assert len(api.state.documents) == 2
    assert len(api.state.buckets) == 1
    assert keeper.peek("openai").limits[0].available == 59


def test_a_namespace_that_is_being_purged_is_refused_and_can_be_made_anew_afterwards(api: Api) -> None:
    filled(api)
    said: list[str] = []

    def use() -> None:
        theirs = api.rival.namespace("tenant")
        with pytest.raises(ConfigError) as error:
            theirs.acquire("openai")
        said.append(str(error.value))

    api.clock.after(30, use)
    api.sluice.purge_namespace("tenant")
    assert ["being purged" in text for text in said] == [True]
    fresh = api.client(namespace="tenant")
    assert fresh.resources() == []


def test_there_is_nothing_to_purge_under_an_unknown_name(api: Api) -> None:
    with pytest.raises(ConfigError, match="no namespace 'tenant'"):
        api.sluice.purge_namespace("tenant")


@pytest.mark.parametrize("fault", [UNREACHED, UNKNOWN, LOST])
@pytest.mark.parametrize("call", ["get", "write", "buckets", "forget", "list"])
def test_a_purge_goes_on_after_an_answer_is_lost(api: Api, call: str, fault: Fault) -> None:
    filled(api)
    api.store.next[call].extend([fault] * 3)
    api.sluice.purge_namespace("tenant")
    assert (api.state.documents, api.state.buckets) == ({}, {})


@pytest.mark.parametrize("fault", [UNREACHED, UNKNOWN, raises(ConfigError("permission denied"))])
@pytest.mark.parametrize("call", ["buckets", "forget", "list"])
def test_a_purge_that_fails_says_so_leaves_its_mark_and_can_be_run_again(api: Api, call: str, fault: Fault) -> None:
    filled(api)
    api.store.fail(fault, call)
    with pytest.raises((StoreUnavailable, ConfigError)):
        api.sluice.purge_namespace("tenant")
    api.store.heal()
    with pytest.raises(ConfigError, match="being purged"):
        api.client(namespace="tenant").resources()
    assert api.rival.namespaces() == ["tenant"]
    api.sluice.purge_namespace("tenant")
    assert (api.state.documents, api.state.buckets) == ({}, {})


def test_a_write_that_fails_while_purging_is_not_overlooked(api: Api) -> None:
    filled(api)
    api.clock.after(30, lambda: api.store.fail(UNREACHED, "write"))
    with pytest.raises(StoreUnavailable, match="purging namespace 'tenant'"):
        api.sluice.purge_namespace("tenant")


def test_of_two_purges_at_once_one_ends_it_and_the_other_says_so() -> None:
    with opened("blocking") as api:
        filled(api)
        api.clock.after(30, lambda: api.state.documents.update(_marked_again(api)))
        with pytest.raises(Conflict, match="somebody else purges it, too"):
            api.sluice.purge_namespace("tenant")
        assert api.sluice.namespaces() == ["tenant"]


def _marked_again(api: Api) -> dict[DocumentKey, Document]:
    (mark,) = [document for document in api.state.documents.values() if document.key.kind is Kind.NAMESPACE]
    return {mark.key: Document(mark.key, mark.body, "their version")}


def test_a_namespace_that_keeps_filling_is_not_purged_for_ever() -> None:
    with opened("blocking") as api:
        sluice = filled(api)

        late: list[str] = []

        def fill() -> None:
            late.append(f"late {len(late)}")
            sluice.acquire("openai", entity=late[-1], limits=RPM)
            api.store.before["forget"] = fill

        client: Any = sluice._here()
        client.configuration._ids._ttl_ns = 1000 * NS_PER_HOUR  # it never learns that the namespace is being purged
        sluice.refresh()
        sluice.resources()
        api.store.before["forget"] = fill
        with pytest.raises(Conflict, match="keeps filling"):
            api.sluice.purge_namespace("tenant")
