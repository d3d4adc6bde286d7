"""The clock that decides takes: this host's, corrected by the engine's dates when it is surely off by over a second."""

import logging
import random
from email.utils import formatdate

import pytest

from sluice.core.bounds import NS_PER_HOUR, NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.events import ClockCorrected, Event
from sluice.core.requests import Unreached
from sluice.stores.dynamodb.wire import Answered
from sluice.testing import ManualClock
from sluice.wires.clock import SystemClock
from sluice.wires.dynamodb.opening import timepiece_for
from sluice.wires.dynamodb.options import read_options
from sluice.wires.dynamodb.skew import EngineClock, HostClock
from tests.dynamodb.scripted import Scripted, close, error, get, reply, update, wired

S = NS_PER_SECOND


class Engine:
    """An engine whose clock is ahead of a manual one, and which dates its replies in whole seconds."""

    def __init__(self, host: ManualClock, ahead_ns: int) -> None:
        self.host = host
        self.ahead_ns = ahead_ns

    def now_ns(self) -> int:
        return self.host.now_ns() + self.ahead_ns

    def answer(self, clock: EngineClock, there_ns: int = 0, back_ns: int = 0) -> bool:
        """One call: whether the clock was corrected by its reply."""
        sent_ns = self.host.steady_ns()
        self.host.advance(ns=there_ns)
        date = formatdate(self.now_ns() // S, usegmt=True)
        self.host.advance(ns=back_ns)
        return clock.observe(date, sent_ns, self.host.steady_ns())


@pytest.mark.parametrize("ahead_ns", [0, S // 2, -S // 2, S, -S])
@pytest.mark.parametrize("seed", range(20))
def test_a_clock_that_is_off_by_no_more_than_a_second_is_left_alone(ahead_ns: int, seed: int) -> None:
    rng = random.Random(seed)
    host = ManualClock(1_700_000_000 + rng.random())
    clock, engine = EngineClock(host), Engine(host, ahead_ns)
    for _ in range(50):
        assert not engine.answer(clock, rng.randrange(300 * NS_PER_MS), rng.randrange(300 * NS_PER_MS))
        host.advance(ns=rng.randrange(3 * S))
    assert clock.now_ns() == host.now_ns()


@pytest.mark.parametrize("ahead_ns", [NS_PER_HOUR, -NS_PER_HOUR, 5 * S, -5 * S, -400 * 24 * NS_PER_HOUR])
@pytest.mark.parametrize("seed", range(20))
def test_one_that_is_off_by_more_is_right_to_a_second_after_one_reply(ahead_ns: int, seed: int) -> None:
    rng = random.Random(seed)
    host = ManualClock(1_700_000_000 + rng.random())
    clock, engine = EngineClock(host), Engine(host, ahead_ns)
    assert engine.answer(clock, rng.randrange(300 * NS_PER_MS), rng.randrange(300 * NS_PER_MS))
    assert abs(clock.now_ns() - engine.now_ns()) <= S
    for _ in range(50):
        engine.answer(clock, rng.randrange(300 * NS_PER_MS), rng.randrange(300 * NS_PER_MS))
        assert abs(clock.now_ns() - engine.now_ns()) <= S
        host.advance(ns=rng.randrange(3 * S))


def test_a_little_over_a_second_is_found_out_once_the_bounds_are_tight() -> None:
    host = ManualClock()
    clock, engine = EngineClock(host), Engine(host, 1_100 * NS_PER_MS)
    for _ in range(100):
        host.advance(0.377)
        engine.answer(clock)
    assert abs(clock.now_ns() - engine.now_ns()) < S // 10


def test_a_clock_that_drifts_is_followed() -> None:
    host = ManualClock()
    clock, engine = EngineClock(host), Engine(host, 0)
    for _ in range(40_000):
        host.advance(0.5)
        engine.ahead_ns += 100_000  # 200 millionths
        engine.answer(clock, NS_PER_MS, NS_PER_MS)
        assert abs(clock.now_ns() - engine.now_ns()) <= 1_100 * NS_PER_MS
    assert engine.ahead_ns == 4 * S


def test_what_was_known_of_a_clock_grows_old() -> None:
    host = ManualClock()
    clock, engine = EngineClock(host, max_skew_ns=1_500 * NS_PER_MS), Engine(host, 1_600 * NS_PER_MS)
    for _ in range(100):
        host.advance(0.377)
        engine.answer(clock)
    with pytest.raises(ConfigError):
        clock.check()
    host.advance(1_000)
    engine.ahead_ns = 1_400 * NS_PER_MS  # 200 millionths nearer
    host.advance(ns=S - engine.now_ns() % S)
    engine.answer(clock)
    clock.check()


def test_an_engine_that_is_set_anew_is_followed() -> None:
    host = ManualClock()
    clock, engine = EngineClock(host), Engine(host, 0)
    engine.answer(clock)
    engine.ahead_ns = NS_PER_HOUR
    assert engine.answer(clock)
    assert abs(clock.now_ns() - engine.now_ns()) <= S


def test_a_correction_is_told_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    host = ManualClock()
    clock, engine = EngineClock(host), Engine(host, -NS_PER_HOUR)
    told: list[Event] = []
    clock.report_to(told.append)
    with caplog.at_level(logging.WARNING, "sluice"):
        for _ in range(5):
            engine.answer(clock)
            host.advance(1)
    (event,) = told
    assert isinstance(event, ClockCorrected)
    assert event.offset_ns == event.by_ns
    assert abs(event.offset_ns + NS_PER_HOUR) <= S
    (record,) = caplog.records
    assert "ahead of the engine's" in record.getMessage()


def test_time_goes_on_evenly_while_the_wall_clock_is_set() -> None:
    host = ManualClock()
    clock, engine = EngineClock(host), Engine(host, 0)
    engine.answer(clock)
    before_ns = clock.now_ns()
    host.step(-NS_PER_HOUR // S)
    engine.ahead_ns += NS_PER_HOUR
    assert clock.now_ns() == before_ns


def test_when_the_wall_clock_was_set_the_engine_is_asked_before_the_next_write() -> None:
    host = ManualClock()
    clock, engine = EngineClock(host), Engine(host, 0)
    assert clock.unsure()
    engine.answer(clock)
    assert not clock.unsure()
    host.step(0.9)
    assert not clock.unsure()
    host.step(3_600)
    engine.ahead_ns = -NS_PER_HOUR
    assert clock.unsure()
    assert engine.answer(clock)
    assert not clock.unsure()
    assert abs(clock.now_ns() - engine.now_ns()) <= S


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_without_a_date_the_host_is_believed(date: str | None) -> None:
    host = ManualClock()
    clock = EngineClock(host)
    assert not clock.observe(date, 0, 1)
    assert not clock.unsure()
    assert clock.now_ns() == host.now_ns()


@pytest.mark.parametrize("ahead_s", [3, -3])
def test_past_max_skew_a_host_is_refused_until_its_clock_is_set(ahead_s: int) -> None:
    host = ManualClock()
    clock, engine = EngineClock(host, max_skew_ns=2 * S), Engine(host, ahead_s * S)
    clock.check()
    for _ in range(20):
        engine.answer(clock)
        host.advance(0.3)
    with pytest.raises(ConfigError, match=r"clock is at least [23]\.\d s (behind|ahead of) the engine's.*allows 2 s"):
        clock.check()
    host.step(ahead_s)
    engine.ahead_ns = 0
    clock.check()
    assert clock.unsure()
    engine.answer(clock)
    clock.check()


def test_within_max_skew_it_is_not_refused() -> None:
    host = ManualClock()
    clock, engine = EngineClock(host, max_skew_ns=2 * S), Engine(host, 1_900 * NS_PER_MS)
    for _ in range(50):
        engine.answer(clock)
        clock.check()
        host.advance(0.3)


def test_a_clock_given_by_a_test_is_believed_and_so_is_the_hosts_if_the_url_says_so() -> None:
    options = read_options("dynamodb://quota")
    assert isinstance(timepiece_for(options, SystemClock()), EngineClock)
    assert isinstance(timepiece_for(options, ManualClock()), HostClock)
    assert isinstance(timepiece_for(read_options("dynamodb://quota?clock=host"), SystemClock()), HostClock)


def test_before_its_first_write_a_client_asks_what_time_it_is(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url) as wire:
        assert wire.one(update()) == Answered({})
        assert [request.method for request in engine.requests] == ["GET", "POST"]
        assert "authorization" not in engine.requests[0].headers
        wire.one(update())
        assert [request.method for request in engine.requests] == ["GET", "POST", "POST"]


def test_a_read_tells_the_time_just_as_well(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url) as wire:
        wire.one(get())
        wire.one(update())
        assert [request.operation for request in engine.requests] == ["GetItem", "UpdateItem"]


@pytest.mark.parametrize("ahead_s", [3_600, -3_600])
def test_a_client_that_is_off_by_an_hour_writes_nothing_before_it_is_right(kind: str, ahead_s: int) -> None:
    with Scripted() as engine, wired(kind, engine.url) as wire:
        engine.ahead_s = ahead_s
        answer = wire.one(update())
        assert isinstance(answer, Unreached)
        assert not engine.calls
        off_ns = wire.wire.now_ns() - SystemClock().now_ns() - ahead_s * S
        assert abs(off_ns) <= S
        assert wire.one(update()) == Answered({})
        assert len(wire.events) == 1


def test_past_max_skew_nothing_is_sent(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url, "&max_skew=10s") as wire:
        engine.ahead_s = 60
        assert isinstance(wire.one(update()), Unreached)
        with pytest.raises(ConfigError, match="clock is at least"):
            wire.one(update())
        assert not engine.calls


def test_an_engine_that_does_not_say_what_time_it_is_gets_no_write(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url) as wire:
        engine.asked_for_time = close
        answer = wire.one(update())
        assert isinstance(answer, Unreached)
        assert "what time it is" in answer.why
        assert not engine.calls
        engine.asked_for_time = reply(Date="", raw=b"healthy: dynamodb")
        assert wire.one(update()) == Answered({}), "a reply without a date will do: nothing better is to be had"


def test_a_signature_out_of_time_is_tried_again_by_the_corrected_clock(kind: str) -> None:
    refused = error("InvalidSignatureException", "Signature expired")
    with Scripted(refused, refused) as engine, wired(kind, engine.url) as wire:
        engine.ahead_s = 3_600
        assert isinstance(wire.one(get()), Unreached)
        with pytest.raises(ConfigError, match="credentials are refused"):
            wire.one(get())
        assert wire.one(get()) == Answered({})


def test_the_hosts_clock_is_never_corrected_if_the_url_says_so(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url, "&clock=host") as wire:
        engine.ahead_s = 3_600
        assert wire.one(update()) == Answered({})
        assert [request.method for request in engine.requests] == ["POST"]
        assert abs(wire.wire.now_ns() - SystemClock().now_ns()) < S
