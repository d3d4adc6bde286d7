"""Limits and their texts: what parses, what is printed, and what every refusal says."""

import contextlib
import copy
import pickle
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.core.bounds import MAX_AMOUNT, MAX_LIMITS, MAX_TTL_NS, MAX_WINDOW_NS, NS_PER_DAY, NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import ConfigError, InvalidName
from sluice.core.limit_text import amount_text, duration_text, parse_duration_ns, parse_rule
from sluice.core.limits import Limit, Rate, Slots, check_limits

MINUTE_NS = 60 * NS_PER_SECOND
HOUR_NS = 60 * MINUTE_NS


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Limit("rpm", text)
    return str(caught.value)


# --- texts ---


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("100/min", Rate(100, MINUTE_NS, 100)),
        ("200k/min burst 400k", Rate(200_000, MINUTE_NS, 400_000)),
        ("10 per 30s", Rate(10, 30 * NS_PER_SECOND, 10)),
        ("1.5M/hour", Rate(1_500_000, HOUR_NS, 1_500_000)),
        ("32 slots ttl 60s", Slots(32, MINUTE_NS)),
        ("32 slots", Slots(32, MINUTE_NS)),
        ("1 slot ttl 1.5min", Slots(1, 90 * NS_PER_SECOND)),
        ("5000/day", Rate(5_000, NS_PER_DAY, 5_000)),
        ("1 per 250ms", Rate(1, 250 * NS_PER_MS, 1)),
        ("  7   per   1.5 s   burst  9  ", Rate(7, 1_500 * NS_PER_MS, 9)),
        ("3 / min", Rate(3, MINUTE_NS, 3)),
        ("1.0/s", Rate(1, NS_PER_SECOND, 1)),
        ("0.5k per s", Rate(500, NS_PER_SECOND, 500)),
    ],
)
def test_a_text_means_the_rule_it_says(text: str, rule: Rate | Slots) -> None:
    assert Limit("rpm", text).rule == rule


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("100/min", "100/min"),
        ("100 per 60s", "100/min"),
        ("100/min burst 100", "100/min"),
        ("0.2M/min burst 400000", "200k/min burst 400k"),
        ("10 per 30s", "10 per 30s"),
        ("1 per 36hour", "1 per 36hour"),
        ("1 per 48hour", "1 per 2day"),
        ("1050/s", "1050/s"),
        ("1500/s", "1.5k/s"),
        ("1000k/s", "1M/s"),
        ("32 slots", "32 slots ttl 1min"),
        ("2 slots ttl 1500ms", "2 slots ttl 1500ms"),
    ],
)
def test_a_rule_is_printed_in_one_way(text: str, canonical: str) -> None:
    assert str(Limit("rpm", text).rule) == canonical


def sound_rate(refill: int, period_ms: int, burst: Fraction) -> Rate | None:
    try:
        return Rate(refill, period_ms * NS_PER_MS, max(1, int(refill * burst)))
    except ConfigError:
        return None


RATES = st.builds(
    sound_rate,
    st.one_of(st.integers(1, 5_000), st.integers(1, 50_000).map(lambda count: count * 100)),
    st.one_of(st.integers(1, 100_000), st.sampled_from((1_000, 60_000, 3_600_000, 86_400_000))),
    st.sampled_from((Fraction(1), Fraction(2), Fraction(1, 3), Fraction(7, 2))),
).filter(lambda rule: rule is not None)
SLOTS = st.builds(
    Slots, st.integers(1, MAX_AMOUNT), st.integers(1, MAX_TTL_NS // NS_PER_MS).map(lambda count: count * NS_PER_MS)
)


@given(st.one_of(RATES, SLOTS))
def test_what_is_printed_parses_back_to_the_same_rule(rule: Rate | Slots) -> None:
    limit = Limit("rpm", str(rule))
    assert limit.rule == rule
    assert str(limit.rule) == str(rule)


@given(st.integers(1, MAX_AMOUNT))
def test_an_amount_is_printed_without_losing_anything(amount: int) -> None:
    assert parse_rule(f"{amount_text(amount)}/day") == (amount, NS_PER_DAY, amount)


@given(st.text(max_size=30))
def test_any_text_is_a_limit_or_a_clear_error(text: str) -> None:
    limit = None
    with contextlib.suppress(ConfigError):
        limit = Limit("rpm", text)
    assert limit is None or Limit("rpm", str(limit.rule)) == limit


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("", 1, "expected an amount"),
        ("many/min", 1, "expected an amount"),
        ("-1/min", 1, "expected an amount"),
        ("10x/min", 1, "expected an amount"),
        ("1e3/min", 1, "expected an amount"),
        ("0/min", 1, "must be above 0"),
        ("1.5/min", 1, "whole numbers: use a smaller unit"),
        ("1.0005k/min", 1, "whole numbers"),
        ("100", 4, "expected '/', 'per' or 'slots'"),
        ("100 every min", 10, "expected '/', 'per' or 'slots'"),
        ("100 per", 8, "expected a time, in units of ms, s, min, hour, day"),
        ("100/fortnight", 5, "expected a time"),
        ("100/0s", 5, "a time must be above 0"),
        ("100/0.5ms", 5, "times are whole milliseconds"),
        ("100 per 1.00001s", 9, "times are whole milliseconds"),
        ("100/min bust 200", 9, "expected 'burst' or the end"),
        ("100/min burst", 14, "expected an amount"),
        ("100/min burst 200 more", 19, "expected the end"),
        ("4 slots tll 60s", 9, "expected 'ttl' or the end"),
        ("4 slots ttl", 12, "expected a time"),
        ("4 slots ttl 60s burst 5", 17, "expected the end"),
        ("100/min\n", 8, "expected 'burst' or the end"),
    ],
)
def test_bad_text_is_shown_with_the_place_where_it_breaks(text: str, at: int, why: str) -> None:
    message = refused(text)
    assert message.startswith(f"limit text {text!r} breaks at character {at} ({text[at - 1 :]!r}): ")
    assert why in message


def test_every_text_that_an_error_holds_up_as_an_example_works() -> None:
    _, _, examples = refused("nonsense").partition("Texts that work: ")
    texts = re.findall(r"'([^']+)'", examples)
    assert len(texts) == 4
    for text in texts:
        assert Limit("rpm", text)
    (advised,) = re.findall(r"such as '([^']+)'", refused("1.5/s"))
    rule = Limit("rpm", advised).rule
    assert isinstance(rule, Rate)
    assert Fraction(rule.refill * NS_PER_SECOND, rule.period_ns) == Fraction(3, 2)


def test_a_text_past_all_reason_is_shown_cut_short() -> None:
    message = refused("1" * 5_000)
    assert "5000 characters, 200 are allowed" in message
    assert len(message) < 400


def test_a_duration_is_read_by_itself() -> None:
    assert parse_duration_ns("30s") == 30 * NS_PER_SECOND
    assert parse_duration_ns("1.5min") == 90 * NS_PER_SECOND
    with pytest.raises(ConfigError, match="expected the end"):
        parse_duration_ns("30s or so")


@pytest.mark.parametrize(
    ("duration_ns", "parts"),
    [
        (2 * NS_PER_DAY, ("2", "day")),
        (90 * NS_PER_SECOND, ("90", "s")),
        (NS_PER_MS, ("1", "ms")),
        (1_500, ("1500", "ns")),
    ],
)
def test_a_duration_is_told_in_the_largest_unit_that_divides_it(duration_ns: int, parts: tuple[str, str]) -> None:
    assert duration_text(duration_ns) == parts


# --- rates ---


def test_a_rate_is_counted_in_intervals_rounded_up_and_never_faster_than_asked() -> None:
    rate = Rate(7, NS_PER_SECOND, 14)
    assert rate.interval_ns == 142_857_143
    assert rate.window_ns == 14 * 142_857_143


@given(RATES)
def test_a_rate_is_never_faster_than_asked_and_at_most_a_thousandth_slower(rate: Rate) -> None:
    asked = Fraction(rate.refill, rate.period_ns)
    counted = Fraction(1, rate.interval_ns)
    assert asked / (1 + Fraction(1, 1_000)) <= counted <= asked
    assert rate.window_ns <= MAX_WINDOW_NS


def test_rounding_of_exactly_a_thousandth_is_allowed_and_past_it_is_refused() -> None:
    exact = Rate(1_001, NS_PER_MS, 1)
    assert exact.interval_ns * exact.refill * 1_000 == NS_PER_MS * 1_001
    assert Rate(1_002_002, NS_PER_SECOND, 1).interval_ns == 999
    with pytest.raises(ConfigError, match=r"rounding would slow it by more than 0\.1 %"):
        Rate(1_002_003, NS_PER_SECOND, 1)


@pytest.mark.parametrize("text", ["3M/s", "1002003/s", "700k/ms", "1000000M/s"])
def test_a_rate_too_fast_to_count_is_told_the_smallest_unit_that_would_do(text: str) -> None:
    message = refused(text)
    (unit,) = re.findall(r"count in units of (\S+) tokens instead", message)
    refill, period_ns, _ = parse_rule(text)
    group, _, _ = parse_rule(f"{unit}/s")
    slowed = Fraction(-(-period_ns * group // refill) * refill, period_ns * group) - 1
    finer = Fraction(-(-period_ns * group // 10 // refill) * refill * 10, period_ns * group) - 1
    assert slowed <= Fraction(1, 1_000) < finer


def test_a_bucket_may_take_a_year_to_fill_and_no_longer() -> None:
    assert Limit("rpm", "1 per 366day").rule.capacity == 1
    assert "takes more than a year to fill" in refused("1 per 367day")
    assert "lower the burst" in refused("1/day burst 367")


@pytest.mark.parametrize("count", [0, -1, True, 1.0, "1", None])
def test_counts_are_whole_numbers_above_0(count: object) -> None:
    with pytest.raises(ConfigError, match="the refill of a Rate must be a whole number above 0"):
        Rate(count, NS_PER_SECOND, 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the capacity of a Rate"):
        Rate(1, NS_PER_SECOND, count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the number of slots of a Slots"):
        Slots(count, NS_PER_SECOND)  # type: ignore[arg-type]


def test_counts_end_at_their_bound() -> None:
    assert Slots(MAX_AMOUNT, NS_PER_SECOND).capacity == MAX_AMOUNT
    with pytest.raises(ConfigError, match="count in a larger unit"):
        Slots(MAX_AMOUNT + 1, NS_PER_SECOND)


@pytest.mark.parametrize("period_ns", [0, -NS_PER_SECOND])
def test_a_period_or_ttl_of_0_is_refused_with_an_example(period_ns: int) -> None:
    with pytest.raises(ConfigError, match="a rate needs a period above 0, as in '100/min'"):
        Rate(1, period_ns, 1)
    with pytest.raises(ConfigError, match="slots need a ttl above 0, as in '32 slots ttl 60s'"):
        Slots(1, period_ns)


@pytest.mark.parametrize("period_ns", [1, NS_PER_SECOND + 1, 1e9, True, "60s", None])
def test_times_are_whole_numbers_of_milliseconds(period_ns: object) -> None:
    with pytest.raises(ConfigError, match="a period is a whole number of nanoseconds and of milliseconds"):
        Rate(1, period_ns, 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a ttl is a whole number of nanoseconds and of milliseconds"):
        Slots(1, period_ns)  # type: ignore[arg-type]


def test_a_lease_may_live_a_week_unrenewed_and_no_longer() -> None:
    assert Slots(1, MAX_TTL_NS).ttl_ns == 7 * NS_PER_DAY
    assert "7 days at most" in refused("1 slots ttl 8day")


# --- limits ---


def test_a_limit_shows_itself_as_it_is_written() -> None:
    for limit in (Limit("rpm", "500/min"), Limit("tpm", "200k/min burst 400k", cost=0), Limit("c", "3 slots", cost=2)):
        assert eval(repr(limit), {"Limit": Limit}) == limit
    assert repr(Limit("rpm", "500/min")) == "Limit('rpm', '500/min')"


def test_limits_are_values() -> None:
    limit = Limit("rpm", "100 per 60s")
    assert limit == Limit("rpm", Rate(100, MINUTE_NS, 100))
    assert hash(limit) == hash(Limit("rpm", "100/min"))
    assert limit != Limit("rpm", "100/min", cost=2)
    assert pickle.loads(pickle.dumps(limit)) == limit == copy.deepcopy(limit)
    with pytest.raises(AttributeError):
        limit.cost = 3  # type: ignore[misc]


@pytest.mark.parametrize("rule", [100, None, b"100/min", ("100/min",)])
def test_a_limit_needs_a_text_or_a_rule(rule: object) -> None:
    with pytest.raises(ConfigError, match="limit 'rpm' needs a text such as '100/min', a Rate or Slots"):
        Limit("rpm", rule)  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", [-1, 0.5, True, "1", None])
def test_a_cost_is_a_whole_number_from_0(cost: object) -> None:
    with pytest.raises(ConfigError, match="limit 'rpm': cost must be a whole number from 0"):
        Limit("rpm", "5/min", cost=cost)  # type: ignore[arg-type]


def test_a_cost_must_fit_into_the_limit() -> None:
    assert Limit("rpm", "5/min", cost=5).cost == 5
    with pytest.raises(ConfigError, match="a cost of 6 never fits in 5/min"):
        Limit("rpm", "5/min", cost=6)


@pytest.mark.parametrize("name", ["", "a#b", "*", "a\n"])
def test_a_limit_needs_a_good_name(name: str) -> None:
    with pytest.raises(InvalidName, match="limit"):
        Limit(name, "5/min")


# --- limits together ---


def test_limits_of_one_resource_are_kept_in_their_order() -> None:
    limits = [Limit("tpm", "5/min"), Limit("rpm", "5/min")]
    assert check_limits(limits) == check_limits(tuple(limits)) == tuple(limits)


@pytest.mark.parametrize("limits", [Limit("rpm", "5/min"), "rpm", None, {"rpm": "5/min"}, 5])
def test_limits_come_as_a_list(limits: object) -> None:
    with pytest.raises(ConfigError, match="limits must be a list"):
        check_limits(limits)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ([Limit("rpm", "5/min"), "100/min"], "'100/min' is not a Limit"),
        ([], "to remove a level's limits, call delete_limits"),
        ([Limit("rpm", "5/min"), Limit("a", "1/s"), Limit("rpm", "6/min")], "limit 'rpm' stands twice"),
        ([Limit(f"l{n}", "5/min") for n in range(MAX_LIMITS + 1)], f"33 limits on one resource; {MAX_LIMITS} are"),
    ],
)
def test_limits_that_do_not_go_together_are_refused(limits: object, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        check_limits(limits)


def test_as_many_limits_as_allowed_are_allowed() -> None:
    assert len(check_limits([Limit(f"l{n}", "5/min") for n in range(MAX_LIMITS)])) == MAX_LIMITS
