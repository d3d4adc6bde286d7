"""Takes over several buckets where each is decided by itself: side by side or in turn, and all or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sluice import Limit, Need, StoreUnavailable
from tests.facade.kit import LOST, UNKNOWN, UNREACHED, Api

BOTH = [Need("gpt"), Need("vision")]


@pytest.fixture
def seen(apart: Api) -> Api:
    """Two resources whose buckets were seen with plenty of room."""
    for resource in ("gpt", "vision"):
        apart.sluice.set_limits(resource, [Limit("rpm", "100/min"), Limit("slots", "8 slots ttl 60s")])
    apart.sluice.acquire(BOTH).release()
    apart.store.calls.clear()
    return apart


def _batches(api: Api) -> list[list[str]]:
    """The resources of each list of takes that was sent."""
    return [
        [request.parts[0].key.resource for request in requests] for name, requests in api.store.calls if name == "take"
    ]


def _free(api: Api) -> list[int]:
    return [api.free(resource, limit) for resource in ("gpt", "vision") for limit in ("rpm", "slots")]


def test_buckets_that_were_never_seen_are_asked_one_after_another(apart: Api) -> None:
    for resource in ("gpt", "vision"):
        apart.sluice.set_limits(resource, [Limit("rpm", "100/min")])
    apart.sluice.acquire(BOTH).release()
    assert _batches(apart) == [["gpt"], ["vision"]]


def test_where_there_is_room_to_spare_they_are_asked_side_by_side(seen: Api) -> None:
    with seen.sluice.acquire(BOTH):
        assert _batches(seen) == [["gpt", "vision"]]
        assert _free(seen) == [98, 7, 98, 7]
    assert _free(seen) == [98, 8, 98, 8]


def test_where_room_is_scarce_they_are_asked_one_after_another(seen: Api) -> None:
    with seen.sluice.acquire([Need("gpt"), Need("vision", {"slots": 6})]):
        seen.store.calls.clear()
        seen.sluice.acquire(BOTH).release()
        assert _batches(seen) == [["gpt"], ["vision"]]


def test_slots_are_asked_first_and_then_what_would_refuse(apart: Api) -> None:
    apart.sluice.set_limits("a", [Limit("rpm", "100/min")])
    apart.sluice.set_limits("b", [Limit("rpm", "100/min")])
    apart.sluice.set_limits("c", [Limit("slots", "9 slots ttl 60s")])
    needs = [Need("a"), Need("b"), Need("c")]
    apart.sluice.acquire(needs).release()
    assert _batches(apart) == [["c"], ["a"], ["b"]]
    apart.sluice.acquire([Need("a"), Need("b", {"rpm": 99})]).release()
    apart.store.calls.clear()
    assert not apart.sluice.try_acquire(needs)
    assert _batches(apart) == [["c"], ["b"]]


def test_what_was_granted_beside_a_refusal_is_undone(seen: Api) -> None:
    with seen.rival.acquire("vision", {"slots": 8}, keep_alive=False):
        before = _free(seen)
        denied: Any = seen.sluice.try_acquire(BOTH)
        assert not denied
        assert [(status.resource, status.name) for status in denied.limits] == [("vision", "slots")]
        assert _batches(seen) == [["gpt", "vision"]]
        assert _free(seen) == before


@pytest.mark.parametrize("fault", [LOST, UNREACHED], ids=["lost", "unreached"])
def test_what_stays_without_an_answer_is_asked_for_again(seen: Api, fault: Any) -> None:
    seen.store.next["take"].append(fault)
    with seen.sluice.acquire(BOTH):
        assert _batches(seen) == [["gpt", "vision"], ["gpt"], ["vision"]]
        assert _free(seen) == [98, 7, 98, 7]


def test_rates_in_doubt_are_neither_asked_for_again_nor_undone(apart: Api) -> None:
    for resource in ("gpt", "vision"):
        apart.sluice.set_limits(resource, [Limit("rpm", "100/min")])
    apart.sluice.acquire(BOTH).release()
    apart.store.calls.clear()
    apart.store.next["take"].append(UNKNOWN)
    with pytest.raises(StoreUnavailable, match="may have been applied"):
        apart.sluice.acquire(BOTH)
    assert apart.store.names() == ["take"]
    assert (apart.free("gpt", "rpm"), apart.free("vision", "rpm")) == (99, 99)
