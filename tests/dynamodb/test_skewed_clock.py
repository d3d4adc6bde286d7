"""A client whose clock runs an hour ahead: what it does to a bucket, and how that is ended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice import Denied, Limit, Sluice
from sluice.core.bounds import NS_PER_HOUR
from sluice.core.errors import ConfigError
from sluice.core.events import ClockCorrected
from sluice.testing.dynamodb import LocalEngine
from sluice.wires.clock import SystemClock
from sluice.wires.dynamodb.account import Account
from sluice.wires.dynamodb.options import read_options
from sluice.wires.dynamodb.table import make_table

LIMITS = [Limit("rpm", "10/min"), Limit("calls", "1 slots ttl 30s")]


class AnHourAhead(SystemClock):
    def now_ns(self) -> int:
        return super().now_ns() + NS_PER_HOUR


@pytest.fixture
def url(engine: LocalEngine, somebody: None, tmp_path: Path) -> str:
    made = f"dynamodb://{tmp_path.name}?endpoint={engine.url}&read_timeout=10s"
    make_table(Account(read_options(made)), tmp_path.name)
    return made


@pytest.fixture
def honest(url: str) -> Iterator[Sluice]:
    with Sluice(url, timeout=20) as sluice:
        yield sluice


def test_its_clock_is_corrected_before_it_takes_so_the_others_go_on(url: str, honest: Sluice) -> None:
    events: list[object] = []
    with Sluice(url, timeout=20, clock=AnHourAhead(), observer=events.append) as ahead:
        ahead.acquire("openai", limits=LIMITS).release()
        (corrected,) = [event for event in events if isinstance(event, ClockCorrected)]
        assert abs(corrected.offset_ns + NS_PER_HOUR) < NS_PER_HOUR // 1000
        for _ in range(9):  # the corrected clock may still be up to a second ahead
            honest.acquire("openai", limits=LIMITS, wait=2).release()
        denied = honest.try_acquire("openai", limits=LIMITS)
        assert isinstance(denied, Denied)
        assert denied.retry_in <= 7, "a token every six seconds"


def test_it_replaces_no_slot_that_another_still_holds(url: str, honest: Sluice) -> None:
    with Sluice(url, timeout=20, clock=AnHourAhead()) as ahead, honest.acquire("openai", limits=LIMITS):
        assert not ahead.try_acquire("openai", limits=LIMITS)


def test_past_max_skew_it_is_refused_and_takes_nothing(url: str, honest: Sluice) -> None:
    honest.set_limits("openai", LIMITS)
    with (
        Sluice(f"{url}&max_skew=5s", timeout=20, clock=AnHourAhead()) as ahead,
        pytest.raises(ConfigError, match="ahead of the engine's, and max_skew allows 5 s"),
    ):
        ahead.acquire("openai")
    assert [limit.available for limit in honest.peek("openai").limits] == [10, 1]


def test_with_the_correction_switched_off_it_freezes_the_bucket_and_repair_ends_that(url: str, honest: Sluice) -> None:
    honest.set_limits("openai", LIMITS)
    with Sluice(f"{url}&clock=host", timeout=20, clock=AnHourAhead()) as ahead:
        lease = ahead.acquire("openai", keep_alive=False)
        denied = honest.try_acquire("openai")
        assert isinstance(denied, Denied)
        assert denied.retry_in > 3_500, "so it says how bad it is"

        repairs = honest.repair("openai")
        assert repairs.limits == ("rpm", "calls")
        rpm, calls = honest.peek("openai").limits
        assert rpm.available == 0, "what may have been taken meanwhile stays taken"
        assert 0 < rpm.retry_in <= 6
        assert calls.available == 0
        assert calls.retry_in <= 32
        assert honest.repair("openai").limits == ()
        lease.release()


def test_a_bucket_of_an_entity_is_repaired_by_itself(url: str, honest: Sluice) -> None:
    honest.set_limits("openai", [Limit("rpm", "10/min")])
    with Sluice(f"{url}&clock=host", timeout=20, clock=AnHourAhead()) as ahead:
        ahead.acquire("openai", entity="acme")
    assert honest.repair("openai").limits == ()
    assert honest.repair("openai", entity="acme").limits == ("rpm",)
