"""Sending until the answer is certain, or time is up. The one place where anything is tried again.

    Unreached   certainly not applied: sent again
    Unknown     may have been applied: sent again only if a second time does no harm, because the request only reads, or
                is conditional on the lease id or the version that it carries

Between tries the gap doubles from 25 to 200 ms, with jitter. The deadline bounds the tries, and ``SLUICE_MAX_RETRIES``
if it is set. Which tries were left in doubt is told with the answer.
"""

from __future__ import annotations

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
    client: Client,
    call: Callable[[Sequence[R]], Awaitable[Sequence[A | Failure]]],
    request: R,
    until_ns: int,
    *,
    repeatable: bool,
) -> tuple[A | Failure, bool]:
    """Send one request until it is answered or the deadline passes; also whether any try before was left in doubt."""

    async def send() -> A | Failure:
        (answer,) = await call([request])
        return answer

    return await persist_call(client, send, until_ns, repeatable=repeatable)


async def persist_call(
    client: Client, send: Callable[[], Awaitable[A | Failure]], until_ns: int, *, repeatable: bool
) -> tuple[A | Failure, bool]:
    """The same for a call that is no list of requests, such as one on documents."""
    doubtful = False
    gap_ns = FIRST_GAP_NS
    retries_left = client.settings.max_retries
    while True:
        answer = await send()
        if not isinstance(answer, Unknown | Unreached):
            return answer, doubtful
        if isinstance(answer, Unknown):
            doubtful = True
            if not repeatable:
                return answer, doubtful
        if retries_left == 0 or client.clock.steady_ns() + gap_ns >= until_ns:
            return (Unknown(answer.why) if doubtful else answer), doubtful
        await client.sleep(gap_ns * client.rng.randrange(50, 101) // 100)
        gap_ns = min(2 * gap_ns, LAST_GAP_NS)
        if retries_left is not None:
            retries_left -= 1


async def sure(
    client: Client, call: Callable[[Sequence[R]], Awaitable[Sequence[A | Failure]]], request: R, asked: str
) -> A:
    """Send a request that may be repeated; raise `StoreUnavailable` if it stays without an answer."""
    until_ns = client.clock.steady_ns() + client.settings.timeout_ns
    answer, _ = await persist(client, call, request, until_ns, repeatable=True)
    return answered(answer, asked)


async def sure_batch(
    client: Client, call: Callable[[Sequence[R]], Awaitable[Sequence[A | Failure]]], requests: Sequence[R], asked: str
) -> Sequence[A]:
    """The same for several requests, which are sent together until all of them are answered."""

    async def send() -> Sequence[A] | Failure:
        answers: list[A] = []
        for answer in await call(requests):
            if isinstance(answer, Unknown | Unreached):
                return answer
            answers.append(answer)
        return answers

    answers, _ = await sure_call(client, send, asked)
    return answers


async def sure_call(client: Client, send: Callable[[], Awaitable[A | Failure]], asked: str) -> tuple[A, bool]:
    """The same for a call on documents; also whether any try before was left in doubt."""
    until_ns = client.clock.steady_ns() + client.settings.timeout_ns
    answer, doubtful = await persist_call(client, send, until_ns, repeatable=True)
    return answered(answer, asked), doubtful


def answered(answer: A | Failure, asked: str) -> A:
    """The answer, or `StoreUnavailable` in its place."""
    if isinstance(answer, Unknown | Unreached):
        raise unavailable(answer, asked)
    return answer


def unavailable(failure: Failure, asked: str) -> StoreUnavailable:
    fate = "it may have been applied" if isinstance(failure, Unknown) else "it was not applied"
    return StoreUnavailable(f"{asked}: the store did not answer in time, {fate} ({failure.why}); try again")
