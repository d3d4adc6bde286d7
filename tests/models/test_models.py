"""The models hold over their whole state space, which is large; each broken variant breaks the promise it should."""

from pathlib import Path

import pytest

from tests.models.tlc import Broken, broken_variants, check

STATES_AT_LEAST = 100_000


@pytest.mark.parametrize("model", ["slots", "two_items"])
def test_every_promise_of_the_model_holds_in_every_state(model: str, tmp_path: Path) -> None:
    found = check(model, tmp_path)
    assert found.violated is None, found.printed
    assert found.whole, found.printed
    assert found.states >= STATES_AT_LEAST


@pytest.mark.parametrize("broken", broken_variants(), ids=lambda broken: f"{broken.model}: {broken.name}")
def test_the_checker_rejects(broken: Broken, tmp_path: Path) -> None:
    found = check(broken.model, tmp_path, broken=broken)
    assert found.violated == broken.violates, found.printed


def test_each_model_has_at_least_five_broken_variants() -> None:
    models = [broken.model for broken in broken_variants()]
    assert {model: models.count(model) >= 5 for model in models} == {"slots": True, "two_items": True}
