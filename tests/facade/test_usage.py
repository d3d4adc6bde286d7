"""Usage: what was taken, less what came back, by the hour, the day and the month."""

from typing import Any

import pytest

from sluice import ConfigError, Conflict, Limit, Usage
from sluice.core.documents import Kind
from sluice.core.requests import Fold
from tests.facade.kit import LOST, UNREACHED, Api, opened

HOUR = 3600
START = 1_700_000_000  # 14 November 2023, 22:13:20 UTC
THIS_HOUR = START - START % HOUR
TPM = [Limit("tpm", "10000/hour burst 100k"), Limit("concurrent", "4 slots ttl 60s", cost=0)]


@pytest.fixture
def openai(api: Api) -> Api:
    api.sluice.set_limits("openai", TPM)
    return api


def use(api: Api, amount: int, entity: str = "*") -> None:
    api.sluice.acquire("openai#tpm", {"tpm": amount}, entity=entity)


def fold(api: Api, entity: str = "*") -> None:
    """File the past hours, as takes do once a bucket has seen several."""
    client = api.rival._here()
    (key,) = [key for key in api.state.buckets if (key.resource, key.entity) == ("openai", entity)]
    api.rival._run(client.store.fold([Fold(key)]))


def test_what_was_used_is_what_was_taken_and_settled(openai: Api) -> None:
    with openai.sluice.acquire("openai", {"tpm": 500, "concurrent": 1}) as lease:
        lease.settle(tpm=120)
    use(openai, 30)
    assert openai.sluice.usage("openai") == [Usage("concurrent", THIS_HOUR, 1), Usage("tpm", THIS_HOUR, 150)]


def test_nothing_used_is_nothing_told(openai: Api) -> None:
    assert openai.sluice.usage("openai") == []
    assert openai.sluice.usage("unheard of") == []
    openai.sluice.acquire("openai", {"tpm": 5}).refund()
    assert openai.sluice.usage("openai") == []


@pytest.mark.parametrize("folded", [False, True])
def test_hours_add_up_to_days_and_months_filed_or_not(openai: Api, folded: bool) -> None:
    for _ in range(50):
        use(openai, 10)
        openai.advance(HOUR)
        if folded:
            fold(openai)
    assert any(key.kind is Kind.USAGE for key in openai.state.documents)
    hours = openai.sluice.usage("openai", since=START, until=START + 50 * HOUR)
    assert hours == [Usage("tpm", THIS_HOUR + number * HOUR, 10) for number in range(50)]
    days = openai.sluice.usage("openai", since=START, window="day")
    midnight = START - START % 86400
    assert days == [
        Usage("tpm", midnight, 20),
        Usage("tpm", midnight + 86400, 240),
        Usage("tpm", midnight + 2 * 86400, 240),
    ]
    (month,) = openai.sluice.usage("openai", since=START, window="month")
    assert (month.amount, month.start) == (500, 1698796800)  # 1 November 2023


def test_since_and_until_bound_it_by_whole_hours(openai: Api) -> None:
    for _ in range(5):
        use(openai, 10)
        openai.advance(HOUR)
    found = openai.sluice.usage("openai", since=START + HOUR + 5, until=START + 3 * HOUR)
    assert [usage.start - THIS_HOUR for usage in found] == [HOUR, 2 * HOUR, 3 * HOUR]
    assert openai.sluice.usage("openai", since=0, until=HOUR) == []


def test_names_that_begin_alike_are_kept_apart(openai: Api) -> None:
    openai.sluice.set_limits(None, TPM)
    for resource, entity in (("openai", "a"), ("b", "a#openai"), ("openai", "a2"), ("openai 2", "a")):
        openai.sluice.acquire(f"{resource}#tpm", {"tpm": 7}, entity=entity)
        openai.advance(HOUR)
        openai.sluice.acquire(f"{resource}#tpm", {"tpm": 1}, entity=entity)
        client = openai.rival._here()
        keys = [key for key in openai.state.buckets if (key.resource, key.entity) == (resource, entity)]
        openai.rival._run(client.store.fold([Fold(key) for key in keys]))
    assert [usage.amount for usage in openai.sluice.usage("openai", entity="a")] == [7, 1]
    assert [usage.amount for usage in openai.sluice.usage("b", entity="a#openai")] == [7, 1]


def test_an_hour_that_is_filed_while_it_is_read_is_counted_once(openai: Api) -> None:
    for _ in range(3):
        use(openai, 10)
        openai.advance(HOUR)
    openai.store.before["list"] = lambda: fold(openai)
    assert sum(usage.amount for usage in openai.sluice.usage("openai")) == 30
    assert sum(usage.amount for usage in openai.sluice.usage("openai")) == 30


def test_a_report_that_hours_are_filed_under_again_and_again_gives_up() -> None:
    with opened("blocking") as api:
        api.sluice.set_limits("openai", TPM)

        def file_again() -> None:
            use(api, 1)
            api.clock.move_to(api.clock.steady_ns() + HOUR * 10**9)
            fold(api)
            use(api, 1)
            api.store.before["list"] = file_again

        use(api, 1)
        api.store.before["list"] = file_again
        with pytest.raises(Conflict, match="try again"):
            api.sluice.usage("openai", since=START)


@pytest.mark.parametrize("fault", [UNREACHED, LOST])
@pytest.mark.parametrize("call", ["peek", "list"])
def test_a_lost_answer_is_asked_for_again(openai: Api, call: str, fault: Any) -> None:
    use(openai, 10)
    openai.store.next[call].append(fault)
    assert [usage.amount for usage in openai.sluice.usage("openai")] == [10]


@pytest.mark.parametrize(
    "options",
    [
        {"since": -1},
        {"since": "yesterday"},
        {"until": True},
        {"until": float("nan")},
        {"until": float("inf")},
        {"since": START, "until": START - 1},
        {"since": 0},
        {"window": "week"},
        {"window": None},
        {"window": ["hour"]},
        {"entity": ""},
    ],
)
def test_bad_input_is_refused(openai: Api, options: dict[str, Any]) -> None:
    openai.store.calls.clear()
    with pytest.raises(ConfigError):
        openai.sluice.usage("openai", **options)
    assert openai.store.calls == []
