"""Sending until the answer is certain, or time is up.

*Unreached* was certainly not applied: it may be sent again. *Unknown* may have been: it is sent again only if a second
time does no harm, because the request is conditional on the lease id that it carries. Between tries the gap doubles.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from sluice.core.bounds import NS_PER_MS
from sluice.core.errors import StoreUnavailable
from sluice.core.requests import Failure, Unknown, Unreached

if TYPE_CHECKING:
    from sluice.flow.client import Client

FIRST_GAP_NS: Final = 25 * NS_PER_MS
LAST_GAP_NS: Final = 200 * NS_PER_MS

R = TypeVar("R")
A = TypeVar("A")


async def persist(
    client: "Client",
    call: Callable[[Sequence[R]], Awaitable[Sequence[A | Failure]]],
    request: R,
    until_ns: int,
    *,
    repeatable: bool,
) -> tuple[A | Failure, bool]:
    """Send one request until it is answered or the deadline passes; also whether any try before was left in doubt."""
    doubtful = False
    gap_ns = FIRST_GAP_NS
    while True:
        (answer,) = await call([request])
        if not isinstance(answer, Unknown | Unreached):
            return answer, doubtful
        if isinstance(answer, Unknown):
            doubtful = True
            if not repeatable:
                return answer, doubtful
        if client.clock.steady_ns() + gap_ns >= until_ns:
            return (Unknown(answer.why) if doubtful else answer), doubtful
        await client.sleep(gap_ns * client.rng.randrange(50, 101) // 100)
        gap_ns = min(2 * gap_ns, LAST_GAP_NS)


async def sure(
    client: "Client", call: Callable[[Sequence[R]], Awaitable[Sequence[A | Failure]]], request: R, asked: str
) -> A:
    """Send a request that may be repeated; raise `StoreUnavailable` if it stays without an answer."""
    until_ns = client.clock.steady_ns() + client.settings.timeout_ns
    answer, _ = await persist(client, call, request, until_ns, repeatable=True)
    return answered(answer, asked)


def answered(answer: A | Failure, asked: str) -> A:
    """The answer, or `StoreUnavailable` in its place."""
    if isinstance(answer, Unknown | Unreached):
        raise unavailable(answer, asked)
    return answer


def unavailable(failure: Failure, asked: str) -> StoreUnavailable:
    fate = "it may have been applied" if isinstance(failure, Unknown) else "it was not applied"
    return StoreUnavailable(f"{asked}: the store did not answer in time, {fate} ({failure.why}); try again")
