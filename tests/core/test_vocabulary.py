"""The words that flows and stores share: documents and their conditions, requests, errors, events."""

import copy
import dataclasses
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.core import errors, events
from sluice.core.bucket import EMPTY
from sluice.core.documents import Condition, Delete, Document, DocumentKey, Expect, Kind, Put, Version, holds, key_of
from sluice.core.errors import NeverAdmissible, RateLimited, SluiceError, WaitTimeout
from sluice.core.names import BucketKey
from sluice.core.requests import Delta, Denied, Granted, LimitStatus, Need, Settle, seconds_up

KEY = DocumentKey("ns", Kind.LIMITS, "#openai")
STORED = Document(KEY, "{}", "v1")
STATUS = LimitStatus("openai", "rpm", "*", 500, 3, 0.25)


# --- documents ---


@pytest.mark.parametrize(
    ("condition", "of_the_stored", "of_nothing"),
    [
        (Expect.ANYTHING, True, True),
        (Expect.ABSENT, False, True),
        (Version("v1"), True, False),
        (Version("v2"), False, False),
        (Version(""), False, False),
    ],
)
def test_a_condition_is_about_what_is_stored(condition: Condition, of_the_stored: bool, of_nothing: bool) -> None:
    assert holds(condition, STORED) is of_the_stored
    assert holds(condition, None) is of_nothing


def test_a_write_is_about_one_document() -> None:
    assert key_of(Put(STORED)) == key_of(Delete(KEY)) == KEY


# --- requests ---


@given(st.integers(0, 400 * 86_400 * 10**9))
def test_seconds_are_rounded_up_to_the_microsecond(duration_ns: int) -> None:
    assert seconds_up(duration_ns) == float(Fraction(-(-duration_ns // 1_000), 1_000_000))
    micros = round(seconds_up(duration_ns) * 1_000_000)
    assert 0 <= micros * 1_000 - duration_ns < 1_000


def test_a_denial_is_false_and_a_grant_is_true() -> None:
    assert not Denied(5, 1_500_000_001, (STATUS,))
    assert Granted(5, 5, (EMPTY,))
    assert Denied(5, 1_500_000_001, (STATUS,)).retry_in == 1.500001


def test_a_denial_does_not_show_the_images_of_its_buckets() -> None:
    assert "images" not in repr(Denied(5, 1, (STATUS,), (EMPTY,)))


def test_a_need_is_everyones_unless_it_says_whose() -> None:
    assert Need("openai").entity == "*"
    assert Need("openai").amounts is None


@pytest.mark.parametrize(("tokens", "only_owes"), [((), True), ((3, 1), True), ((3, -1), False), ((0,), False)])
def test_a_settlement_knows_whether_it_gives_anything_back(tokens: tuple[int, ...], only_owes: bool) -> None:
    deltas = tuple(Delta("tpm", number, 7) for number in tokens)
    assert Settle(BucketKey("ns", "*", "openai"), deltas).only_owes is only_owes


# --- errors ---


@pytest.mark.parametrize("kind", [RateLimited, WaitTimeout])
def test_a_refusal_survives_pickling_and_copying_whole(kind: type[RateLimited]) -> None:
    error = kind("openai#rpm: come back", 0.25, (STATUS,))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert str(again) == "openai#rpm: come back"
        assert (again.message, again.retry_in, again.limits) == (error.message, 0.25, (STATUS,))


def test_a_wait_that_was_too_short_is_a_timeout_and_no_os_error_of_some_number() -> None:
    error = WaitTimeout("too short", 1.5, ())
    assert isinstance(error, RateLimited)
    assert isinstance(error, TimeoutError)
    assert error.errno is None


def test_every_error_has_the_one_root_and_survives_pickling() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) == 9
    for kind in kinds:
        assert issubclass(kind, SluiceError)
        if not issubclass(kind, RateLimited):
            assert str(pickle.loads(pickle.dumps(kind("why")))) == "why"


def test_bad_input_is_a_value_error_and_a_bad_name_is_bad_input() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.InvalidName, errors.ConfigError)
    assert not issubclass(NeverAdmissible, RateLimited)


# --- events ---


def test_every_event_is_a_frozen_value_and_counts_as_one() -> None:
    told = [kind for kind in vars(events).values() if dataclasses.is_dataclass(kind)]
    assert set(told) == set(events.Event.__args__)
    for kind in told:
        assert isinstance(kind, type)
        fields = [field.name for field in dataclasses.fields(kind)]
        event = kind(*fields)
        assert event == kind(*fields)
        with pytest.raises(AttributeError):
            setattr(event, fields[0], "other")
