"""The asyncio facade on real event loops: it never blocks them, outlives them, and loses nothing with them."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sluice import AsyncSluice, ConfigError, Limit, Sluice
from sluice.core.events import LeaseLapsed
from tests.facade.kit import UNREACHED, Watched, opened

LIMITS = [Limit("tpd", "1000 per 300day", cost=0), Limit("concurrent", "8 slots ttl 60s")]
STORES = ["memory", "sqlite"]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/quota.db"


async def used(sluice: AsyncSluice) -> tuple[int, int]:
    """Tokens used and slots held."""
    standing = await sluice.peek("openai")
    tokens, slots = ({status.name: status for status in standing.limits}[name] for name in ("tpd", "concurrent"))
    return tokens.capacity - tokens.available, slots.capacity - slots.available


def slow(sluice: AsyncSluice, seconds: float) -> Watched:
    """Make a client's store take its time, as one across a network does."""
    client: Any = sluice._here()
    client.store = watched = Watched(client.store)
    call = watched._call

    async def later(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        await asyncio.sleep(seconds)
        answer = await call(name, arguments, options)
        await asyncio.sleep(seconds)
        return answer

    watched._call = later  # type: ignore[method-assign]
    return watched


# --- closing ---


@pytest.mark.parametrize("when_ms", range(0, 60, 4))
def test_with_async_with_nothing_is_lost_when_asyncio_run_returns(url: str, when_ms: int) -> None:
    """Tasks are cancelled at any moment, and the program ends at once: every end has reached the store."""

    async def work(sluice: AsyncSluice) -> None:
        async with sluice.acquire("openai", {"tpd": 100}, wait=5) as lease:
            lease.settle(tpd=40)
            await asyncio.sleep(0.005)

    taken: list[tuple[int, int]] = []
    watching = AsyncSluice(url)

    async def main() -> None:
        async with AsyncSluice(url, timeout=30) if url != "memory://" else watching as sluice:
            await sluice.set_limits("openai", LIMITS)
            slow(sluice, 0.004)
            tasks = [asyncio.create_task(work(sluice)) for _ in range(4)]
            await asyncio.sleep(when_ms / 1000)
            for task in tasks:
                task.cancel()
        # Nothing is awaited any more: what was to be finished, aclose has finished.
        state = await used(watching)
        taken.append(state)
        await watching.aclose()

    asyncio.run(main())
    tokens, slots = taken[0]
    assert slots == 0
    assert tokens in {0, 40, 80, 120, 160}


def test_a_program_that_is_interrupted_ends_its_leases(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/quota.db"
    code = f"""
import asyncio, os, signal, threading
from sluice import AsyncSluice, Limit

signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests may ignore it

async def work(sluice, everybody):
    async with sluice.acquire("openai", {{"tpd": 100}}) as lease:
        lease.settle(tpd=40)
        await everybody.wait()
        await asyncio.sleep(30)

async def main():
    async with AsyncSluice({url!r}) as sluice:
        await sluice.set_limits("openai", [Limit("tpd", "1000 per 300day"), Limit("concurrent", "8 slots ttl 60s")])
        everybody = asyncio.Barrier(4)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(work(sluice, everybody))
            await everybody.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(30)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "interrupted\n")
    with Sluice(url) as sluice:
        assert sluice.leases() == []
        assert 1000 - {status.name: status.available for status in sluice.peek("openai").limits}["tpd"] == 120


def test_what_a_dying_loop_cancels_is_still_finished(url: str) -> None:
    """A task that nobody awaits holds a lease when ``asyncio.run`` returns; the loop cancels it, and waits for it."""
    sluice = AsyncSluice(url)

    async def work(entered: asyncio.Event) -> None:
        async with sluice.acquire("openai", {"tpd": 100}) as lease:
            lease.settle(tpd=40)
            entered.set()
            await asyncio.sleep(30)

    async def main() -> None:
        await sluice.set_limits("openai", LIMITS)
        entered = asyncio.Event()
        task = asyncio.create_task(work(entered))
        await entered.wait()
        assert not task.done()

    asyncio.run(main())
    assert asyncio.run(_then_close(sluice)) == (40, 0)


async def _then_close(sluice: AsyncSluice) -> tuple[int, int]:
    state = await used(sluice)
    await sluice.aclose()
    return state


def test_closing_waits_for_ends_that_are_on_their_way(url: str) -> None:
    async def main() -> tuple[int, int]:
        other = AsyncSluice(url)
        sluice = AsyncSluice(url)
        other._opener = sluice._opener
        await sluice.set_limits("openai", LIMITS)
        lease = await sluice.acquire("openai", {"tpd": 100})
        lease.settle(tpd=40)
        watched = slow(sluice, 0.02)
        ending = asyncio.create_task(lease.release())
        await asyncio.sleep(0.005)
        ending.cancel()
        await sluice.aclose()
        assert watched.names() == ["release", "close"]
        try:
            return await used(other)
        finally:
            await other.aclose()

    assert asyncio.run(main()) == (40, 0)


def test_a_client_that_was_closed_can_be_used_again(url: str) -> None:
    async def main() -> None:
        sluice = AsyncSluice(url)
        await sluice.aclose()
        for _ in range(3):
            await sluice.set_limits("openai", LIMITS)
            async with sluice.acquire("openai"):
                pass
            await sluice.aclose()
            await sluice.aclose()
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(main())


# --- loops ---


def test_one_made_at_import_serves_one_loop_after_another(url: str) -> None:
    sluice = AsyncSluice(url)

    async def handler() -> None:
        if not await sluice.resources():
            await sluice.set_limits("openai", LIMITS)
        async with sluice.acquire("openai", {"tpd": 10}, wait=5) as lease:
            lease.settle(tpd=4)

    for _ in range(5):
        asyncio.run(handler())
    assert asyncio.run(_then_close(sluice)) == (20, 0)


def test_what_was_read_serves_the_next_loop_too() -> None:
    sluice = AsyncSluice("memory://")
    asyncio.run(_set(sluice))
    client: Any = sluice._client
    opener, seen = sluice._opener, []

    def watch(*arguments: Any) -> Any:
        seen.append(Watched(opener(*arguments)))  # type: ignore[arg-type]
        return seen[-1]

    sluice._opener = watch

    async def take() -> None:
        await sluice.try_acquire("openai#tpd")

    asyncio.run(take())
    asyncio.run(take())
    assert sluice._client is client
    assert [store.names() for store in seen] == [["get", "take"], ["take"]]


async def _set(sluice: AsyncSluice) -> None:
    await sluice.set_limits("openai", LIMITS)


def test_an_end_that_one_loop_left_pending_is_sent_in_the_next() -> None:
    sluice = AsyncSluice("memory://")

    async def first() -> None:
        await _set(sluice)
        client: Any = sluice._here()
        client.store = watched = Watched(client.store)
        watched.fail(UNREACHED, "release")
        async with sluice.acquire("openai", {"tpd": 100}) as lease:
            lease.settle(tpd=40)

    async def second() -> tuple[int, int]:
        await sluice.resources()
        for _ in range(200):
            if (await used(sluice))[1] == 0:
                break
            await asyncio.sleep(0.01)
        return await used(sluice)

    asyncio.run(first())
    assert asyncio.run(second()) == (40, 0)


def test_two_loops_at_once_are_refused() -> None:
    sluice = AsyncSluice("memory://")
    said: list[str] = []

    async def elsewhere() -> None:
        for use in (sluice.resources, sluice.aclose):
            try:
                await use()
            except ConfigError as error:
                said.append(str(error))

    async def main() -> None:
        await _set(sluice)
        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        assert await sluice.resources() == ["openai"]

    asyncio.run(main())
    assert len(said) == 2
    assert all("another event loop" in text and "one for each loop" in text for text in said)


def test_making_one_and_what_needs_no_loop_needs_none() -> None:
    sluice = AsyncSluice("memory://")
    sluice.refresh()
    assert "other" in repr(sluice.namespace("other"))
    waiting = sluice.acquire("openai")  # nothing is sent before it is awaited

    async def main() -> None:
        await _set(sluice)
        async with waiting as lease:
            assert lease.id
        await sluice.aclose()

    asyncio.run(main())


def test_bad_input_is_refused_before_anything_is_awaited() -> None:
    sluice = AsyncSluice("memory://")
    with pytest.raises(ConfigError):
        sluice.acquire("openai", wait=-1)
    with pytest.raises(ConfigError):
        sluice.acquire("openai", on_lost=5)  # type: ignore[arg-type]


# --- the loop is never blocked ---


def test_who_forgets_to_await_is_warned() -> None:
    asking = AsyncSluice("memory://").acquire("openai")
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        del asking


@pytest.mark.parametrize("when_ms", range(1, 12, 2))
def test_a_second_taker_of_a_lease_id_that_is_cancelled_leaves_the_first_its_slot(url: str, when_ms: int) -> None:
    async def work() -> None:
        async with AsyncSluice(url) as sluice:
            await sluice.set_limits("openai", LIMITS)
            async with sluice.acquire("openai", {"tpd": 100}, lease_id="job-7") as first:
                slow(sluice, 0.01)
                again = asyncio.ensure_future(sluice.try_acquire("openai", {"tpd": 100}, lease_id="job-7"))
                await asyncio.sleep(when_ms / 1000)
                again.cancel()
                await asyncio.wait([again])
                assert again.cancelled()
                assert await used(sluice) == (100, 1)
                await first.renew()

    asyncio.run(work())


def test_a_take_can_be_made_a_task_and_one_that_is_cancelled_at_once_takes_nothing(url: str) -> None:
    async def main() -> None:
        async with AsyncSluice(url) as sluice:
            await _set(sluice)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(sluice.acquire("openai", {"tpd": 100})) for _ in range(3)]
                tasks[0].cancel()
            assert await used(sluice) == (200, 2)
            for task in tasks[1:]:
                await task.result().release()

    asyncio.run(main())


def test_a_file_that_another_process_holds_does_not_block_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    sluice = AsyncSluice(f"sqlite:///{path}", timeout=10)
    gaps: list[float] = []

    async def heartbeat() -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - before)
            before = time.monotonic()

    async def main() -> None:
        await _set(sluice)
        beating = asyncio.create_task(heartbeat())
        blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        blocker.execute("BEGIN IMMEDIATE")
        threading.Timer(1.0, lambda: blocker.execute("ROLLBACK")).start()
        started = time.monotonic()
        async with sluice.acquire("openai", {"tpd": 1}):
            waited = time.monotonic() - started
        beating.cancel()
        await sluice.aclose()
        blocker.close()
        assert waited > 0.5

    asyncio.run(main())
    assert len(gaps) > 40
    assert max(gaps) < 0.5


# --- being told ---


def test_a_lease_that_lapses_while_it_is_held_is_told_in_the_loop() -> None:
    with opened("asyncio") as api:
        api.sluice.set_limits("openai", LIMITS)
        told: list[bool] = []

        async def scene() -> None:
            here = asyncio.get_running_loop()
            lease = await api.sluice._it.acquire(
                "openai", on_lost=lambda: told.append(asyncio.get_running_loop() is here)
            )
            api.state.buckets.clear()
            await api.clock.aadvance(30)
            assert lease.lost
            await lease.release()

        api.run(scene())
        assert told == [True]
        assert len(api.told(LeaseLapsed)) == 1
