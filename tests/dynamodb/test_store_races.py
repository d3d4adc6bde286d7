"""What happens between two calls of one request, or behind a store's back, changes nothing that is promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import Bucket, RateState
from sluice.core.documents import Kind
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Charge,
    Delta,
    Denied,
    Fold,
    Gone,
    Granted,
    Part,
    Pause,
    Paused,
    Peek,
    RateCharge,
    Reap,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    Settled,
    SlotEntry,
    SlotsCharge,
    Take,
)
from sluice.stores.dynamodb import DynamoStore, definition
from sluice.stores.dynamodb.wire import Call, Operation
from sluice.testing import ManualClock
from sluice.testing.dynamodb.model import Engine, ModelWire
from sluice.wires.blocking.scope import BlockingScope

S = 1_000_000_000
KEY = BucketKey("namespace-a", "*", "openai")
RPM = RateCharge("rpm", 1, 10, 6 * S)
SLOT = SlotsCharge("slots", 1, 2, 60 * S)


class Race:
    """Two stores on one table; what the second does can be put right before a call of the first."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = Engine(definition("sluice"))
        self._before: list[Callable[[], object]] = []
        self.first = DynamoStore(ModelWire(self.engine, self.clock.now_ns, self._interfere), "sluice")
        self.second = DynamoStore(ModelWire(self.engine, self.clock.now_ns), "sluice")

    def _interfere(self, call: Call) -> None:
        if self._before and call.operation in {Operation.UPDATE_ITEM, Operation.TRANSACT_WRITE_ITEMS}:
            self._before.pop(0)()

    def before_its_writes(self, *happenings: Callable[[], object]) -> None:
        """What happens before the next writes of the first store, one each."""
        self._before += happenings

    def ask(self, verb: str, *requests: Any, of: DynamoStore | None = None) -> Any:
        answers = BlockingScope(self.clock).run(getattr(of or self.first, verb)(list(requests)))
        return answers[0] if len(requests) == 1 else list(answers)

    def take(self, lease: str, *charges: Charge, of: DynamoStore | None = None) -> Any:
        return self.ask("take", Take(lease, (Part(KEY, charges),)), of=of)

    @property
    def image(self) -> Bucket:
        image: Bucket = self.ask(
            "peek", Peek(KEY), of=DynamoStore(ModelWire(self.engine, self.clock.now_ns), "sluice")
        ).image
        return image


@pytest.fixture
def race() -> Race:
    return Race()


def test_a_rate_made_while_a_pause_is_written_is_shifted_too(race: Race) -> None:
    race.take("lease", RPM)
    race.before_its_writes(lambda: race.take("other", RateCharge("tpm", 5, 10, S), of=race.second))
    now_ns = race.clock.now_ns()
    assert race.ask("pause", Pause(KEY, 30 * S)) == Paused(now_ns, now_ns + 30 * S)
    assert race.image.rates == {"rpm": RateState(now_ns + 36 * S, 6 * S), "tpm": RateState(now_ns + 35 * S, S)}
    assert race.image.paused_total_ns == 30 * S


def test_a_pause_gets_through_while_others_take(race: Race) -> None:
    race.take("lease", RateCharge("rpm", 5, 10, 6 * S))
    race.before_its_writes(lambda: race.take("other", RPM, of=race.second))
    race.engine.calls.clear()
    assert isinstance(race.ask("pause", Pause(KEY, 30 * S)), Paused)
    assert race.engine.calls == {Operation.GET_ITEM: 1, Operation.UPDATE_ITEM: 3}  # two of them are the other's
    assert race.image.rates["rpm"].full_at_ns == race.clock.now_ns() + 66 * S


def test_pauses_at_the_same_time_do_not_add_up(race: Race) -> None:
    race.take("lease", RPM)
    race.before_its_writes(lambda: race.ask("pause", Pause(KEY, 20 * S), of=race.second))
    assert race.ask("pause", Pause(KEY, 30 * S)).until_ns == race.clock.now_ns() + 30 * S
    assert (race.image.paused_total_ns, race.image.rates["rpm"].full_at_ns) == (30 * S, race.clock.now_ns() + 36 * S)


def test_a_give_back_to_a_bucket_that_was_forgotten_mints_nothing(race: Race) -> None:
    race.take("lease", RateCharge("rpm", 10, 10, 6 * S))
    BlockingScope(race.clock).run(race.second.forget([KEY]))
    assert isinstance(race.ask("settle", Settle(KEY, (Delta("rpm", -10, 6 * S),))), Settled)
    assert race.image.rates == {}
    assert isinstance(race.take("all", RateCharge("rpm", 10, 10, 6 * S)), Granted)
    assert isinstance(race.take("more", RPM), Denied)


@pytest.mark.parametrize("idle_ns", [0, NS_PER_HOUR])
def test_a_bucket_that_was_forgotten_is_made_and_listed_again(race: Race, idle_ns: int) -> None:
    race.take("lease", RPM, SLOT)
    race.clock.advance(ns=idle_ns)
    run = BlockingScope(race.clock).run
    run(race.second.forget([KEY]))
    assert isinstance(race.take("next", RPM, SLOT), Granted)
    for under in (None, ("entity", "*"), ("resource", "openai")):
        page: Any = run(race.second.buckets(KEY.namespace, under=under))
        assert page.keys == (KEY.text,)


def test_a_debt_finds_a_rate_that_ran_dry_or_full_meanwhile(race: Race) -> None:
    race.take("lease", RPM)
    race.clock.advance(6)
    race.before_its_writes(lambda: race.take("other", RPM, of=race.second))
    race.ask("settle", Settle(KEY, (Delta("rpm", 5, 6 * S),)))
    assert race.image.rates["rpm"].full_at_ns == race.clock.now_ns() + 36 * S
    back = Settle(KEY, (Delta("rpm", -9, 6 * S),))
    race.before_its_writes(lambda: race.ask("settle", back, of=race.second))
    race.ask("settle", Settle(KEY, (Delta("rpm", 1, 6 * S),)))
    assert race.image.rates["rpm"].full_at_ns == race.clock.now_ns() + 6 * S


def test_a_take_from_a_bucket_that_others_filled_meanwhile_starts_now(race: Race) -> None:
    race.take("lease", RateCharge("rpm", 5, 10, 6 * S))
    race.ask("settle", Settle(KEY, (Delta("rpm", -9, 6 * S),)), of=race.second)
    assert isinstance(race.take("next", RPM), Granted)
    assert race.image.rates["rpm"].full_at_ns == race.clock.now_ns() + 6 * S


def test_two_who_replace_the_same_lapsed_slot_get_one(race: Race) -> None:
    race.take("dead", SLOT)
    race.take("alive", SLOT)
    race.clock.advance(30)
    assert isinstance(race.ask("renew", Renew(KEY, "alive", (SLOT,))), Renewed)
    race.clock.advance(32)
    race.before_its_writes(lambda: race.take("faster", SLOT, of=race.second))
    assert isinstance(race.take("slower", SLOT), Denied)
    assert sorted(race.image.slots["slots"]) == ["alive", "faster"]


def test_a_slot_that_is_renewed_meanwhile_is_neither_replaced_nor_reaped(race: Race) -> None:
    race.take("lease", SlotsCharge("slots", 2, 2, 60 * S))
    seen = tuple(SlotEntry("slots", entry, at_ns) for entry, at_ns in race.image.slots["slots"].items())
    race.clock.advance(59)
    renewal = Renew(KEY, "lease", (SlotsCharge("slots", 2, 2, 60 * S),))
    assert isinstance(race.ask("renew", renewal, of=race.second), Renewed)
    race.clock.advance(10)
    assert isinstance(race.take("other", SLOT), Denied)
    assert race.ask("reap", Reap(KEY, seen)).removed == ()
    assert len(race.image.slots["slots"]) == 2


def test_leases_that_lapsed_are_split_from_those_that_are_renewed(race: Race) -> None:
    many = SlotsCharge("slots", 1, 9, 60 * S)
    for number in range(4):
        race.take(f"lease {number}", many)
    race.ask("release", Release(KEY, "lease 2"), of=race.second)
    race.clock.advance(1)
    answers = race.ask("renew", *(Renew(KEY, f"lease {number}", (many,)) for number in range(4)))
    assert [type(answer) for answer in answers] == [Renewed, Renewed, Gone, Renewed]
    now_ns = race.clock.now_ns()
    assert race.image.slots["slots"] == {f"lease {number}": now_ns + 60 * S for number in (0, 1, 3)}


def test_a_lease_that_somebody_else_ended_is_released_once(race: Race) -> None:
    race.take("lease", RPM, SLOT)
    end = Release(KEY, "lease", (Delta("rpm", -1, 6 * S),))
    race.before_its_writes(lambda: race.ask("release", end, of=race.second))
    assert isinstance(race.ask("release", end), Gone)
    assert race.image.rates["rpm"].full_at_ns == race.clock.now_ns()


def test_a_release_by_a_store_that_never_saw_the_lease_finds_it(race: Race) -> None:
    race.take("lease", RPM, SlotsCharge("slots", 2, 2, 60 * S), SlotsCharge("gpu", 1, 3, 60 * S))
    assert isinstance(race.ask("release", Release(KEY, "lease"), of=race.second), Released)
    assert race.image.slots == {"slots": {}, "gpu": {}}


def test_an_hour_is_filed_once_however_many_file_it(race: Race) -> None:
    race.take("lease", RateCharge("rpm", 3, 10, 6 * S))
    race.clock.advance(ns=NS_PER_HOUR)
    race.before_its_writes(lambda: race.ask("fold", Fold(KEY), of=race.second))
    assert race.ask("fold", Fold(KEY)).hours == 0
    page: Any = BlockingScope(race.clock).run(race.first.list(KEY.namespace, Kind.USAGE))
    assert [document.body for document in page.documents] == ["3"]
    assert race.image.usage == {}


def test_what_is_counted_in_a_past_hour_while_it_is_filed_is_not_lost(race: Race) -> None:
    race.take("lease", RateCharge("rpm", 3, 10, 6 * S))
    race.clock.advance(ns=NS_PER_HOUR)

    def late() -> None:
        race.clock.step(ns=-NS_PER_HOUR)
        race.ask("settle", Settle(KEY, (Delta("rpm", 4, 6 * S),)), of=race.second)
        race.clock.step(ns=NS_PER_HOUR)

    race.before_its_writes(late)
    assert race.ask("fold", Fold(KEY)).hours == 1
    page: Any = BlockingScope(race.clock).run(race.first.list(KEY.namespace, Kind.USAGE))
    assert [document.body for document in page.documents] == ["7"]


def test_limits_counted_in_two_intervals_at_the_same_time_lose_nothing(race: Race) -> None:
    race.take("lease", RateCharge("rpm", 5, 10, 6 * S))
    race.before_its_writes(
        lambda: race.take("old", RPM, of=race.second), lambda: race.take("old, once more", RPM, of=race.second)
    )
    answer = race.take("new", RateCharge("rpm", 1, 10, 12 * S))
    assert isinstance(answer, Granted)
    assert race.image.rates["rpm"] == RateState(race.clock.now_ns() + 8 * 12 * S, 12 * S)


def test_a_fourth_try_needs_no_guess_and_stays_within_the_limit(race: Race) -> None:
    def others(tokens: int) -> Callable[[], object]:
        return lambda: race.ask("settle", Settle(KEY, (Delta("rpm", tokens, 6 * S),)), of=race.second)

    race.take("lease", RPM)
    race.clock.advance(6)
    race.before_its_writes(others(2), others(-3), others(8))
    assert isinstance(race.take("fourth", RPM), Granted)
    assert race.image.rates["rpm"].full_at_ns == race.clock.now_ns() + 60 * S
    assert sum(race.image.usage.values()) == 1 + 2 - 3 + 8 + 1


def test_others_who_are_always_faster_end_in_a_denial_that_says_so(race: Race) -> None:
    def restated(interval_ns: int) -> Callable[[], object]:
        return lambda: race.take(f"other {interval_ns}", RateCharge("rpm", 1, 100, interval_ns), of=race.second)

    race.take("lease", RateCharge("rpm", 5, 100, 6 * S))
    race.before_its_writes(*(restated((7 + number) * S) for number in range(8)))
    answer = race.take("slow", RateCharge("rpm", 1, 100, 6 * S))
    assert isinstance(answer, Denied)
    assert (answer.contended, answer.limits) == (True, ())
    assert 0 < answer.retry_in_ns < S
