"""SQLite under asyncio: the loop never waits for the file, and no thread is left behind."""

import asyncio
import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sluice import AsyncSluice, Limit, Sluice, StoreUnavailable
from sluice.core.bounds import NS_PER_MS
from sluice.core.requests import Granted, Peek, Peeked, Unknown, Unreached
from sluice.stores.sqlite import SqliteStore, Transaction
from sluice.testing import ManualClock
from sluice.wires.aio.sqlite import AioWire
from sluice.wires.sqlite.place import Place
from tests.sqlite.kit import KEY, TIMEOUT_NS, intact, locked, python, statements, take, taken, until, url_of, verbs

PER_HOUR = [Limit("rpm", "1M/hour")]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sluice sqlite"]


def aio_store(path: Path, *, timeout_ns: int = TIMEOUT_NS) -> SqliteStore:
    return SqliteStore(AioWire(Place(path), ManualClock(), timeout_ns))


async def longest_gap(work: Any) -> float:
    """The longest that the loop did nothing else while something was awaited."""
    longest, last = 0.0, time.monotonic()
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0.001)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    await asyncio.gather(task, return_exceptions=True)
    return longest


def test_the_loop_goes_on_while_somebody_else_has_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"

    async def main() -> None:
        async with AsyncSluice(url_of(path), timeout=0.4) as sluice:
            await sluice.set_limits("openai", PER_HOUR)
            with locked(path):
                assert await longest_gap(sluice.try_acquire("openai")) < 0.3
                with pytest.raises(StoreUnavailable, match="was not applied"):
                    await sluice.acquire("openai")

    asyncio.run(main())


def test_jobs_that_wait_at_the_same_time_share_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[str]:
        with statements(monkeypatch) as heard:
            store = aio_store(tmp_path / "quota.db")
            await store.take([take("first")])
            heard.clear()
            answers = await asyncio.gather(*(store.take([take(f"lease {n}")]) for n in range(100)))
            assert sum(isinstance(answer, Granted) for (answer,) in answers) == 9
            await store.close()
            return verbs(heard)

    heard = asyncio.run(main())
    assert 1 <= heard.count("COMMIT") <= 3, heard


def test_closing_waits_for_the_thread_and_what_it_was_asked(tmp_path: Path) -> None:
    async def main() -> None:
        store = aio_store(tmp_path / "quota.db")
        asked = [asyncio.create_task(store.take([take(f"lease {n}")])) for n in range(5)]
        await asyncio.sleep(0)
        await store.close()
        assert not threads()
        assert [type((await one)[0]) for one in asked] == [Granted] * 5
        assert isinstance((await store.take([take("after")]))[0], Granted), "it can be used again"
        await store.close()
        await store.close()

    asyncio.run(main())
    assert not threads()
    assert [entry.name for entry in tmp_path.iterdir()] == ["quota.db"], "closed, so its log is in the file"


def test_one_client_serves_one_loop_after_another(tmp_path: Path) -> None:
    sluice = AsyncSluice(url_of(tmp_path / "quota.db"))

    async def ask() -> int:
        await sluice.set_limits("openai", [Limit("rpm", "100/hour")])
        await sluice.acquire("openai")
        return (await sluice.peek("openai")).limits[0].available

    assert [asyncio.run(ask()) for _ in range(3)] == [99, 98, 97]
    asyncio.run(sluice.aclose())
    assert not threads()


def test_a_loop_that_was_closed_meanwhile_harms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    wire = AioWire(Place(path), ManualClock(), TIMEOUT_NS)
    store = SqliteStore(wire)

    async def abandon() -> None:
        await store.take([take("first")])
        loop.call_later(0.02, loop.stop)
        await asyncio.gather(*(store.take([take(f"lease {n}")]) for n in range(3)))

    loop = asyncio.new_event_loop()
    with locked(path) if path.exists() else locked_after(path):
        task = loop.create_task(abandon())
        with pytest.raises(RuntimeError):
            loop.run_until_complete(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()

    async def go_on() -> None:
        assert isinstance((await store.take([take("after")]))[0], Granted)
        await store.close()

    asyncio.run(go_on())
    del task
    gc.collect()
    assert intact(path)


def locked_after(path: Path) -> Any:
    """The write lock on a file that was just made."""
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", PER_HOUR)
    return locked(path)


def test_a_job_whose_time_is_up_is_answered_by_its_loop_whatever_the_disk_does(tmp_path: Path) -> None:
    begun, let_go = threading.Event(), threading.Event()

    async def main() -> None:
        wire = AioWire(Place(tmp_path / "quota.db"), ManualClock(), 100 * NS_PER_MS)
        store = SqliteStore(wire)
        await store.take([take("first")])

        def hangs(_: Transaction) -> None:
            begun.set()
            let_go.wait(10)

        hanging = asyncio.create_task(wire.write(hangs))
        assert await asyncio.to_thread(begun.wait, 10)
        (behind,) = await store.take([take("behind")])
        assert isinstance(behind, Unreached)
        assert isinstance(await hanging, Unknown)
        let_go.set()
        (peeked,) = await store.peek([Peek(KEY)])
        assert isinstance(peeked, Peeked)
        assert taken(peeked) == 1, "who was told 'unreached' was not taken"
        await store.close()

    asyncio.run(main())


def test_a_cancelled_job_that_still_waits_is_not_done(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"

    async def main() -> None:
        store = aio_store(path)
        await store.take([take("first")])
        with locked(path):
            waiting = [asyncio.create_task(store.take([take(f"lease {n}")])) for n in range(3)]
            await asyncio.sleep(0.02)
            waiting[1].cancel()
            await asyncio.wait([waiting[1]])
        answers = await asyncio.gather(waiting[0], waiting[2])
        assert [type(answer) for (answer,) in answers] == [Granted] * 2
        (peeked,) = await store.peek([Peek(KEY)])
        assert isinstance(peeked, Peeked)
        assert taken(peeked) == 3
        await store.close()

    asyncio.run(main())


def test_cancelling_a_caller_at_any_moment_leaks_no_slot(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"

    async def main() -> None:
        async with AsyncSluice(url_of(path)) as sluice:
            await sluice.set_limits("openai", [Limit("concurrent", "4 slots ttl 600s")])

            async def hold() -> None:
                async with sluice.acquire("openai", wait=5):
                    await asyncio.sleep(0.002)

            for round_ in range(60):
                tasks = [asyncio.create_task(hold()) for _ in range(4)]
                await asyncio.sleep(0.0002 * (round_ % 30))
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert (await sluice.peek("openai")).limits[0].available == 4

    asyncio.run(main())
    assert not threads()


def test_a_client_that_is_dropped_leaves_no_thread(tmp_path: Path) -> None:
    async def main() -> None:
        await aio_store(tmp_path / "quota.db").take([take("first")])

    asyncio.run(main())
    gc.collect()
    until(lambda: not threads())


USES = """
import asyncio, sys, threading
from sluice import AsyncSluice, Limit
sluice = AsyncSluice(f"sqlite:///{sys.argv[1]}")
async def main():
    await sluice.set_limits("openai", [Limit("rpm", "100/hour"), Limit("concurrent", "2 slots ttl 60s")])
    held = await sluice.acquire("openai", keep_alive=False)
    held.release
    await held.release()
"""


@pytest.mark.parametrize(
    "end",
    [
        "asyncio.run(main())",
        "async def twice():\n    await main()\n    await sluice.aclose()\nasyncio.run(twice())",
        "asyncio.run(main())\ndel sluice",
        "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())\nloop.close()",
    ],
    ids=["not closed", "closed", "dropped", "loop closed"],
)
def test_the_interpreter_ends_at_once_and_silently(tmp_path: Path, end: str) -> None:
    begun = time.monotonic()
    python(USES + end + "\nprint('over')", str(tmp_path / "quota.db"), seconds=20)
    assert time.monotonic() - begun < 10
    assert intact(tmp_path / "quota.db")


def test_the_end_of_the_interpreter_waits_for_what_is_being_written(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from sluice import AsyncSluice, Limit
sluice = AsyncSluice(f"sqlite:///{sys.argv[1]}")
async def main():
    await sluice.set_limits("openai", [Limit("rpm", "100000/hour")])
    for _ in range(200):
        asyncio.create_task(sluice.acquire("openai"))
    await asyncio.sleep(0.01)
    sys.exit(0)
asyncio.run(main())
"""
    python(code, str(tmp_path / "quota.db"), seconds=20)
    assert intact(tmp_path / "quota.db")
