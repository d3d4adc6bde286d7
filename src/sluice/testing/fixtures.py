"""Fixtures for pytest. Name them to pytest once, in the ``conftest.py`` at the root of your tests:

    pytest_plugins = ["sluice.testing.fixtures"]

    sluice_clock            a `ManualClock`: time moves only when told, or when somebody waits
    sluice_client           a `Sluice` on an empty store in memory, on that clock, watched by sluice_never_over
    sluice_async_client     an `AsyncSluice` on the same store and clock
    sluice_never_over       a `NeverOver`; when the test is over, it fails it if more was granted than limits allow
    sluice_lose             `lose`: takes a lease's slots away, as if its process had stood still for too long

Waiting is switched off: a take with ``wait=30`` moves the clock to its turn and returns at once. A test such as these
takes no time, and goes the same way each time:

    import asyncio

    from sluice import Limit, Sluice


    def test_the_fourth_call_waits_for_its_turn(sluice_client, sluice_clock):
        sluice_client.set_limits("openai", [Limit("rpm", "3/min")])
        started = sluice_clock.now_ns()
        for _ in range(4):
            sluice_client.acquire("openai", wait=60)
        assert sluice_clock.now_ns() - started == 20 * 10**9


    async def ask(sluice):
        async with sluice, sluice.acquire("openai", wait=60) as lease:
            return lease.lost


    def test_asyncio_shares_the_store_and_the_clock(sluice_client, sluice_async_client):
        sluice_client.set_limits("openai", [Limit("rpm", "3/min")])
        assert asyncio.run(ask(sluice_async_client)) is False
        assert sluice_client.peek("openai").limits[0].available == 2


    def print_pages(sluice, pages):
        with sluice.acquire("printer") as lease:
            for page in pages:
                if lease.lost:
                    return f"stopped before page {page}"
        return "done"


    def test_a_job_stops_when_its_lease_is_lost(sluice_client, sluice_lose, monkeypatch):
        sluice_client.set_limits("printer", [Limit("jobs", "1 slots ttl 30s")])
        assert print_pages(sluice_client, [1, 2]) == "done"
        acquire = sluice_client.acquire

        def acquire_and_lose(resource):
            lease = acquire(resource)
            sluice_lose(lease)
            return lease

        monkeypatch.setattr(sluice_client, "acquire", acquire_and_lose)
        assert print_pages(sluice_client, [1, 2]) == "stopped before page 1"


    def test_a_client_of_my_own_never_goes_over(sluice_never_over, sluice_clock):
        mine = sluice_never_over(Sluice("memory://", clock=sluice_clock))
        mine.set_limits("openai", [Limit("rpm", "10/min")])
        granted = sum(bool(mine.try_acquire("openai")) for _ in range(99))
        assert granted == sluice_never_over.granted("openai#rpm") == 10

A fixture of your own with one of these names replaces it, as usual with pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from sluice.sync import Sluice
from sluice.testing.clock import ManualClock
from sluice.testing.losing import lose
from sluice.testing.never_over import NeverOver

if TYPE_CHECKING:
    from sluice.aio import AsyncSluice
    from sluice.facade import LeaseView


@pytest.fixture
def sluice_clock() -> ManualClock:
    """A clock that moves only when told, or when somebody waits on it."""
    return ManualClock()


@pytest.fixture
def sluice_never_over() -> Iterator[NeverOver]:
    """Watches clients; when the test is over, it fails it if they were granted more than their limits allow."""
    watch = NeverOver()
    yield watch
    watch.check()


@pytest.fixture
def sluice_client(sluice_clock: ManualClock, sluice_never_over: NeverOver) -> Iterator[Sluice]:
    """A client on an empty store in memory and a manual clock, watched."""
    with sluice_never_over(Sluice("memory://", clock=sluice_clock)) as client:
        yield client


@pytest.fixture
def sluice_async_client(sluice_client: Sluice, sluice_clock: ManualClock) -> AsyncSluice:
    """A client for asyncio on the store and the clock of ``sluice_client``. Use it with ``async with``."""
    from sluice.aio import AsyncSluice

    client = AsyncSluice("memory://", clock=sluice_clock)
    client._opener = sluice_client._opener
    return client


@pytest.fixture
def sluice_lose() -> Callable[[LeaseView], None]:
    """Takes the slots of a lease away."""
    return lose
