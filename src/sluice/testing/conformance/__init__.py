"""What any store passes, or it is not a store.

The suite is written once over `sluice.ports.Store`. A store's own tests need a harness, that says how an empty store is
opened on a clock and how a coroutine is run, and two lines for each half:

    harness = conformance.blocking(lambda clock: MyStore(clock))       # or conformance.asynchronous

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
    def test_conforms(check):
        check(harness)

    @pytest.mark.parametrize("seed", range(3))
    def test_decides_as_the_core_does(seed):
        conformance.differential(harness, seed, steps=3_000)

Each call of ``open`` must give a store of its own, empty, that goes by the clock it is given: a `ManualClock`, so no
check sleeps. ``reopen`` (of a store that outlives its process) gives another store on the same data. Both may return an
awaitable, and an asyncio harness calls them on the loop on which the check then runs. The suite closes what it opens.

`CHECKS` is for a store that decides several buckets in one request, keeps its data and goes by the clock it is given;
`checks` leaves out what needs one of these. Each check's docstring is the sentence that must be true.

`differential` runs seeded random requests on the store and on `sluice.core.decide` over dictionaries: every answer must
be equal, image included, and so must the state after it. What fails is cut down to the fewest requests that still fail.

Everything a store may choose is left to it: whether it keeps empty lease maps, whether it forgets an idle bucket.
"""

from typing import Final

from sluice.testing.conformance import corrections, isolation, leases, records, repairs, takes, turns
from sluice.testing.conformance.bench import (
    REGISTRY,
    Bench,
    Check,
    Harness,
    NotConforming,
    asynchronous,
    blocking,
)
from sluice.testing.conformance.differential import differential

__all__ = [
    "CHECKS",
    "Bench",
    "Check",
    "Harness",
    "NotConforming",
    "asynchronous",
    "blocking",
    "checks",
    "differential",
]

CHECKS: Final[tuple[Check, ...]] = tuple(REGISTRY.values())
"""Every check there is."""

PARTS: Final = (takes, leases, corrections, turns, repairs, records, isolation)
"""The modules that the checks are in."""


def checks(*, joint: bool = True, durable: bool = True, sets_time: bool = True) -> tuple[Check, ...]:
    """The checks for a store that lacks some of these: deciding several buckets at once, outliving its process, or
    going by the clock that it is given.

    >>> len(checks(joint=False)) < len(CHECKS)
    True
    """
    return tuple(
        check
        for check in CHECKS
        if (joint or not check.joint) and (durable or not check.durable) and (sets_time or not check.sets_time)
    )
