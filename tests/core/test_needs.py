"""From what is needed to what is charged: defaults, names, headroom, ancestors, and every refusal of bad input."""

import re
from collections.abc import Mapping

import pytest

from sluice.core.bounds import MAX_AMOUNT, MAX_BUCKETS, NS_PER_SECOND, PPM
from sluice.core.errors import ConfigError, NeverAdmissible
from sluice.core.limits import Limit
from sluice.core.names import BucketKey
from sluice.core.needs import (
    Plan,
    Wanted,
    charge,
    check_admissible,
    check_amounts,
    check_known,
    plan,
    unknown_limit,
)
from sluice.core.requests import Part, RateCharge, SlotsCharge

KEY = BucketKey("ns", "acme", "openai")
PARENT = BucketKey("ns", "parent", "openai")
LIMITS = (Limit("rpm", "500/min"), Limit("tpm", "200k/min", cost=0), Limit("conc", "32 slots ttl 60s"))


def wanted(amounts: Mapping[str, int] | None = None, only: str | None = None) -> Wanted:
    return Wanted("openai", "acme", amounts or {}, only)


def charged(amounts: Mapping[str, int] | None = None, only: str | None = None, headroom_ppm: int = 0) -> Part:
    return charge(KEY, LIMITS, wanted(amounts, only), headroom_ppm, None)


def amounts_of(part: Part) -> dict[str, int]:
    return {item.name: item.amount for item in part.charges}


# --- amounts ---


@pytest.mark.parametrize("amount", [0, -1])
def test_an_amount_of_zero_or_less_is_refused_and_the_error_says_what_to_do(amount: int) -> None:
    with pytest.raises(ConfigError, match=f"openai#tpm: an amount must be above 0, not {amount}; leave out"):
        check_amounts({"rpm": 1, "tpm": amount}, "openai")


@pytest.mark.parametrize("amount", [1.0, "1", None, True])
def test_an_amount_is_a_whole_number(amount: object) -> None:
    with pytest.raises(ConfigError, match="openai#tpm: an amount is a whole number"):
        check_amounts({"tpm": amount}, "openai")  # type: ignore[dict-item]


def test_an_amount_ends_at_its_bound() -> None:
    check_amounts({"tpm": MAX_AMOUNT}, "openai")
    with pytest.raises(ConfigError, match="count in a larger unit"):
        check_amounts({"tpm": MAX_AMOUNT + 1}, "openai")


@pytest.mark.parametrize("amounts", [5, "tpm", [("tpm", 5)], {5: 5}])
def test_a_need_maps_names_of_limits_to_amounts(amounts: object) -> None:
    with pytest.raises(ConfigError, match=re.escape("as in {'tpm': 1200}")):
        check_amounts(amounts, "openai")  # type: ignore[arg-type]


# --- names ---


def test_a_name_that_one_of_the_buckets_knows_is_known() -> None:
    check_known(wanted({"rpm": 1, "day": 1}), [LIMITS, (Limit("day", "5000/day"),)])


def test_an_unknown_limit_is_refused_with_the_nearest_one_and_all_that_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        check_known(wanted({"tmp": 5}), [LIMITS, (Limit("day", "5000/day"),)])
    assert str(caught.value) == "unknown limit 'openai#tmp'; did you mean 'tpm'? Known: conc, day, rpm, tpm"


def test_an_unknown_limit_without_a_near_one_is_not_given_a_false_hint() -> None:
    assert str(unknown_limit("openai#zzz", "zzz", ["rpm"])) == "unknown limit 'openai#zzz'. Known: rpm"
    assert str(unknown_limit("openai#zzz", "zzz", [])) == "unknown limit 'openai#zzz'. Known: none"


def test_the_one_limit_meant_must_be_known_and_leaves_no_room_for_others() -> None:
    check_known(wanted({"rpm": 2}, only="rpm"), [LIMITS])
    with pytest.raises(ConfigError, match="unknown limit 'openai#rpn'; did you mean 'rpm'"):
        check_known(wanted(only="rpn"), [LIMITS])
    with pytest.raises(ConfigError, match="'openai#rpm' takes that limit alone; 'tpm' is another one"):
        check_known(wanted({"tpm": 2}, only="rpm"), [LIMITS])


# --- what is charged to one bucket ---


def test_a_limit_that_is_not_named_takes_its_cost() -> None:
    assert amounts_of(charged()) == {"rpm": 1, "tpm": 0, "conc": 1}
    assert amounts_of(charged({"tpm": 1_200, "conc": 2})) == {"rpm": 1, "tpm": 1_200, "conc": 2}


def test_one_limit_alone_takes_at_least_one_even_where_its_cost_is_0() -> None:
    assert amounts_of(charged(only="tpm")) == {"tpm": 1}
    assert amounts_of(charged({"tpm": 7}, only="tpm")) == {"tpm": 7}
    costly = (Limit("tpm", "200k/min", cost=20),)
    assert amounts_of(charge(KEY, costly, wanted(only="tpm"), 0, None)) == {"tpm": 20}


def test_a_bucket_without_the_one_limit_meant_is_charged_nothing() -> None:
    assert charged(only="day") == Part(KEY, ())


def test_a_charge_carries_all_of_its_limit() -> None:
    part = charged({"tpm": 5})
    assert part.rates == (RateCharge("rpm", 1, 500, 120_000_000), RateCharge("tpm", 5, 200_000, 300_000))
    assert part.slots == (SlotsCharge("conc", 1, 32, 60 * NS_PER_SECOND),)


def test_a_ttl_of_the_take_replaces_that_of_the_limit() -> None:
    (item,) = charge(KEY, LIMITS, wanted(), 0, 5_000).slots
    assert item.ttl_ns == 5_000


@pytest.mark.parametrize(("headroom_ppm", "leave"), [(0, 0), (1, 1), (PPM // 5, 7), (PPM - 1, 32)])
def test_headroom_is_a_share_of_the_capacity_rounded_up(headroom_ppm: int, leave: int) -> None:
    (item,) = charged(headroom_ppm=headroom_ppm).slots
    assert item.leave == leave


# --- a plan ---


def test_charges_of_0_are_planned_but_not_taken() -> None:
    made = plan([charged()])
    assert amounts_of(made.parts[0]) == {"rpm": 1, "tpm": 0, "conc": 1}
    assert amounts_of(made.taken[0]) == {"rpm": 1, "conc": 1}
    assert made.times == {}


def test_a_bucket_of_which_nothing_is_taken_is_no_part_of_the_take() -> None:
    parent = charge(PARENT, (Limit("day", "5/day", cost=0),), wanted(), 0, None)
    made = plan([charged(), parent])
    assert [part.key for part in made.parts] == [KEY, PARENT]
    assert [part.key for part in made.taken] == [KEY]


def test_needs_that_meet_in_one_bucket_add_up_limit_by_limit() -> None:
    first = Part(PARENT, (RateCharge("rpm", 1, 500, 7), RateCharge("tpm", 30, 900, 7)))
    second = Part(PARENT, (RateCharge("tpm", 40, 900, 7), SlotsCharge("conc", 1, 9, 5)))
    made = plan([charged(), first, second])
    assert amounts_of(made.parts[1]) == {"rpm": 1, "tpm": 70, "conc": 1}
    assert made.times == {PARENT: 2}
    assert plan([first, second, first]).times == {PARENT: 3}


def test_a_part_without_charges_is_dropped() -> None:
    assert [part.key for part in plan([charged(only="day"), charge(PARENT, LIMITS, wanted(), 0, None)]).parts] == [
        PARENT
    ]


@pytest.mark.parametrize("parts", [[], [Part(KEY, ())], [Part(KEY, (RateCharge("tpm", 0, 900, 7),))]])
def test_a_take_that_would_take_nothing_is_refused(parts: list[Part]) -> None:
    with pytest.raises(ConfigError, match="every limit has cost 0; name what is needed"):
        plan(parts)


def test_a_take_ends_at_so_many_buckets() -> None:
    parts = [Part(BucketKey("ns", f"e{n}", "openai"), charged().charges) for n in range(MAX_BUCKETS)]
    assert len(plan(parts).parts) == MAX_BUCKETS
    assert len(plan([*parts, parts[0]]).parts) == MAX_BUCKETS
    with pytest.raises(ConfigError, match=f"touches 33 buckets, ancestors counted; {MAX_BUCKETS} are allowed"):
        plan([*parts, Part(PARENT, charged().charges)])


def test_more_than_the_capacity_is_never_admissible_and_the_error_says_so() -> None:
    assert plan([charged({"rpm": 500})])
    with pytest.raises(NeverAdmissible) as caught:
        plan([charged({"rpm": 501})])
    assert str(caught.value) == (
        "501 of openai#rpm for entity 'acme' can never be granted: its capacity is 500; "
        "ask for less at once or raise the limit's burst"
    )


def test_more_than_headroom_leaves_is_never_admissible() -> None:
    check_admissible(KEY, SlotsCharge("conc", 25, 32, 5, leave=7))
    with pytest.raises(NeverAdmissible, match="its capacity is 32, of which 7 are left to others"):
        check_admissible(KEY, SlotsCharge("conc", 26, 32, 5, leave=7))


def test_needs_that_together_pass_the_capacity_are_never_admissible() -> None:
    half = Part(PARENT, (RateCharge("tpm", 500, 900, 7),))
    with pytest.raises(NeverAdmissible, match="1000 of openai#tpm for entity 'parent'"):
        plan([half, half])


def test_a_plan_is_a_value() -> None:
    assert plan([charged()]) == Plan((charged(),), {})
