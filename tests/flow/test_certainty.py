"""What was sent is sent again until its answer is certain; a lost reply is neither a conflict nor a second change."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from sluice import ConfigError, Conflict, Limit, Sluice, StoreUnavailable
from tests.facade.kit import LOST, UNKNOWN, UNREACHED, Api, Fault, opened, raises

RPM = [Limit("rpm", "60/min")]
DAILY = [Limit("rpd", "600/day")]

READS: list[tuple[str, Callable[[Any], object]]] = [
    ("get", lambda sluice: sluice.get_limits("openai")),
    ("get", lambda sluice: sluice.resolve_limits("openai")),
    ("get", lambda sluice: sluice.get_entity("acme")),
    ("get", lambda sluice: bool(sluice.try_acquire("openai"))),
    ("list", lambda sluice: sluice.resources()),
    ("list", lambda sluice: sluice.entities()),
    ("list", lambda sluice: sluice.namespaces()),
    ("buckets", lambda sluice: [lease.id for lease in sluice.leases()]),
    ("peek", lambda sluice: sluice.peek("openai")),
    ("peek", lambda sluice: [lease.id for lease in sluice.leases()]),
]


def prepared(api: Api, **options: Any) -> Any:
    """A client that has read nothing yet, of a store that holds something of each kind."""
    api.rival.set_limits("openai", RPM)
    if api.rival.get_entity("acme") is None:
        api.rival.create_entity("acme", "*")
    api.rival.set_limits("gpu", [Limit("concurrent", "4 slots ttl 60s")])
    return api.client(**options)


@pytest.mark.parametrize(("call", "use"), READS)
def test_reads_are_repeated_until_they_are_answered(api: Api, call: str, use: Callable[[Any], object]) -> None:
    sluice = prepared(api)
    with api.rival.acquire("gpu", keep_alive=False):
        expected = use(prepared(api))
        api.store.next[call].extend([UNREACHED, UNKNOWN, LOST])
        api.store.calls.clear()
        assert use(sluice) == expected
        assert api.store.names().count(call) >= 4


@pytest.mark.parametrize("fault", [UNREACHED, UNKNOWN])
@pytest.mark.parametrize(("call", "use"), READS)
def test_reads_without_an_answer_end_at_the_timeout(
    api: Api, call: str, use: Callable[[Any], object], fault: Fault
) -> None:
    sluice = prepared(api, timeout=3)
    with api.rival.acquire("gpu", keep_alive=False):
        api.store.fail(fault, call)
        before_ns = api.clock.steady_ns()
        with pytest.raises(StoreUnavailable, match="try again"):
            use(sluice)
        assert 2.5 <= (api.clock.steady_ns() - before_ns) / 1e9 <= 3
        assert 12 <= api.store.names().count(call) <= 40


def set_first(sluice: Any) -> None:
    sluice.set_limits("openai", DAILY, expect="")


def set_next(sluice: Any) -> None:
    sluice.set_limits("search", DAILY, expect=sluice.get_limits("search").version)


def delete(sluice: Any) -> None:
    sluice.delete_limits("search", expect=sluice.get_limits("search").version)


WRITES: list[Callable[[Any], object]] = [
    set_first,
    set_next,
    delete,
    lambda sluice: sluice.create_entity("globex", "acme", cascade=True),
    lambda sluice: sluice.move_entity("team", None),
    lambda sluice: sluice.delete_entity("team"),
]


def populated(api: Api) -> None:
    api.sluice.set_limits("search", RPM)
    api.sluice.create_entity("acme", "*")
    api.sluice.create_entity("team", "acme", cascade=True)


def configuration(api: Api) -> dict[str, str]:
    return {f"{key.kind} {key.id}": document.body for key, document in api.state.documents.items()}


@pytest.mark.parametrize("number", range(len(WRITES)))
@pytest.mark.parametrize("faults", [[UNREACHED], [UNKNOWN], [LOST], [LOST, LOST], [UNKNOWN, LOST, UNREACHED]])
def test_a_write_whose_answer_was_lost_is_no_conflict_and_happens_once(
    api: Api, number: int, faults: list[Fault]
) -> None:
    write = WRITES[number]
    with opened(api.kind) as twin:
        populated(twin)
        write(twin.sluice)
        expected = configuration(twin)
    populated(api)
    api.store.next["write"].extend(faults)
    write(api.sluice)
    assert configuration(api).keys() == expected.keys()
    ours, theirs = configuration(api), dict(expected)
    assert ours.pop("NAMESPACE default") != theirs.pop("NAMESPACE default")  # an id at random
    assert ours == theirs


@pytest.mark.parametrize("number", range(len(WRITES)))
def test_a_write_that_stays_without_an_answer_may_have_been_applied(api: Api, number: int) -> None:
    populated(api)
    api.store.fail(UNKNOWN, "write")
    with pytest.raises(StoreUnavailable, match="it may have been applied"):
        WRITES[number](api.sluice)


def test_a_write_that_lost_its_answer_and_then_its_place_is_a_conflict(api: Api) -> None:
    api.sluice.set_limits("search", RPM)
    version = api.sluice.get_limits("search").version
    api.store.next["write"].append(UNKNOWN)
    api.store.before["write"] = lambda: api.rival.set_limits("search", DAILY)
    with pytest.raises(Conflict, match="decide anew"):
        api.sluice.set_limits("search", [Limit("rpm", "1/min")], expect=version)
    assert api.sluice.get_limits("search").limits == tuple(DAILY)


def test_a_conflict_is_told_without_reading_when_no_answer_was_lost(api: Api) -> None:
    api.sluice.set_limits("search", RPM)
    api.store.calls.clear()
    with pytest.raises(Conflict):
        api.sluice.set_limits("search", DAILY, expect="")
    assert api.store.names() == ["write"]


@pytest.mark.parametrize("fault", [UNREACHED, UNKNOWN, LOST])
def test_a_namespace_is_made_once_though_the_answer_is_lost(api: Api, fault: Fault) -> None:
    sluice = api.client(namespace="fresh")
    api.store.next["write"].append(fault)
    sluice.set_limits("openai", RPM)
    assert api.rival.namespace("fresh").resolve_limits("openai").limits == tuple(RPM)
    assert api.rival.namespaces() == ["fresh"]


def test_a_namespace_that_two_make_at_once_is_one(api: Api) -> None:
    sluice = api.client(namespace="fresh")
    theirs = api.rival.namespace("fresh")
    api.store.before["write"] = lambda: theirs.set_limits("openai", RPM)
    sluice.set_limits("search", RPM)
    assert api.rival.namespace("fresh").resources() == ["openai", "search"]


# --- how often ---


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_the_environment_bounds_how_often_a_call_is_tried_again(
    api: Api, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    monkeypatch.setenv("SLUICE_MAX_RETRIES", str(retries))
    sluice = prepared(api)
    sluice.peek("openai")
    api.store.fail(UNREACHED, "take", "peek", "get", "write")
    calls: dict[str, Callable[[], object]] = {
        "take": lambda: sluice.acquire("openai"),
        "peek": lambda: sluice.peek("openai"),
        "get": lambda: sluice.get_limits("openai"),
        "write": lambda: sluice.set_limits("openai", RPM),
    }
    for call, use in calls.items():
        api.store.calls.clear()
        with pytest.raises(StoreUnavailable):
            use()
        assert api.store.names() == [call] * (1 + retries)


def test_an_end_is_still_brought_home_when_calls_are_not_tried_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_MAX_RETRIES", "0")
    sluice = prepared(api)
    with sluice.acquire("gpu"):
        api.store.fail(UNREACHED, "release")
    assert api.live("gpu") == 1
    api.store.heal()
    api.advance(1)
    assert api.live("gpu") == 0


@pytest.mark.parametrize("text", ["-1", "1.5", "many", " 3", "+3", "1_0", "٣", "9999999"])
def test_a_bound_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SLUICE_MAX_RETRIES", text)
    with pytest.raises(ConfigError, match="SLUICE_MAX_RETRIES is a whole number from 0"):
        Sluice("memory://")


def test_an_empty_bound_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_MAX_RETRIES", "")
    Sluice("memory://")


def test_the_gaps_between_tries_double_from_25_to_200_ms_with_jitter() -> None:
    with opened("blocking") as api:
        sluice = prepared(api, timeout=5)
        at: list[int] = []

        def note() -> None:
            at.append(api.clock.steady_ns())
            api.store.before["get"] = note

        api.store.before["get"] = note
        api.store.fail(UNREACHED, "get")
        with pytest.raises(StoreUnavailable):
            sluice.get_limits("openai")
        gaps_ms = [(later - earlier) / 1e6 for earlier, later in pairwise(at)]
        for gap_ms, most_ms in zip(gaps_ms, [25, 50, 100] + [200] * 100, strict=False):
            assert most_ms / 2 <= gap_ms <= most_ms
        assert len(set(gaps_ms)) > 5


# --- nothing else ---


def test_a_refused_permission_is_not_tried_again(api: Api) -> None:
    sluice = prepared(api)
    api.store.fail(raises(ConfigError("permission denied")), "get", "list", "write", "buckets", "peek")
    for use in (lambda: sluice.get_limits("openai"), sluice.resources, sluice.leases):
        api.store.calls.clear()
        with pytest.raises(ConfigError, match="permission denied"):
            use()
        assert len(api.store.calls) == 1
