"""All planted bugs, and the few that every test run plants."""

from typing import Final

from proof.mutants.core import CORE
from proof.mutants.flow import FLOW
from proof.mutants.mutant import Mutant
from proof.mutants.stores import STORES

MUTANTS: Final[tuple[Mutant, ...]] = (*CORE, *FLOW, *STORES)

ALWAYS: Final = (
    "clip forgotten",
    "one slot too many",
    "renew resurrects",
    "unknown treated as refused",
    "undo forgotten in a cascade",
    "a turn goes back from the middle",
    "a give-back is sent twice",
    "cache that admits",
)
"""Planted in every test run; the simulator must catch them."""


def mutants_named(part: str) -> list[Mutant]:
    """Those whose name has ``part`` in it."""
    return [mutant for mutant in MUTANTS if part in mutant.name]
