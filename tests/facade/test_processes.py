"""Threads, forks and the end of the interpreter: real ones, over memory and over a file."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice import Limit, Sluice
from tests.facade.kit import Watched

STORES = ["memory", "sqlite"]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/quota.db"


def script(url: str, body: str, *, seconds: int = 40) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own, with warnings as errors; what hangs is killed."""
    head = f"""
        import atexit, os, signal, sys, threading, time, warnings
        signal.alarm({seconds})
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests may ignore it
        from sluice import Limit, Sluice, LeaseLost
        sluice = Sluice({url!r})
        sluice.set_limits("openai", [Limit("tpd", "1000 per 300day", cost=0), Limit("concurrent", "8 slots ttl 60s")])
        sluice.acquire("openai").release()
    """
    code = textwrap.dedent(head) + textwrap.dedent(body)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=seconds + 10,
        check=False,
        env=environment,
    )


def says(ran: subprocess.CompletedProcess[str]) -> list[str]:
    """What a program printed, once it has ended well and without a word on the error stream."""
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


# --- threads ---


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failed == []


def test_a_client_is_shared_by_threads_and_never_over(url: str) -> None:
    held, most, granted = Counter[str](), Counter[str](), Counter[str]()
    lock = threading.Lock()
    with Sluice(url) as sluice:
        sluice.set_limits("openai", [Limit("tpd", "100000 per 300day", cost=3), Limit("concurrent", "3 slots ttl 60s")])

        def work(number: int) -> None:
            for turn in range(25):
                with sluice.acquire("openai", wait=60) as lease:
                    with lock:
                        held["now"] += 1
                        most["seen"] = max(most["seen"], held["now"])
                        granted["in all"] += 1
                    lease.settle(tpd=5 if turn % 2 else 1)
                    with lock:
                        held["now"] -= 1

        in_threads(8, work)
        assert granted["in all"] == 200
        assert most["seen"] <= 3
        status = {status.name: status for status in sluice.peek("openai").limits}
        assert status["concurrent"].available == 3
        assert 100_000 - status["tpd"].available == 8 * (13 * 1 + 12 * 5)
        assert sluice.leases() == []


def test_threads_start_one_keeper_between_them() -> None:
    sluice = Sluice("memory://")
    sluice.set_limits("openai", [Limit("concurrent", "64 slots ttl 60s")])
    seen: list[int] = []
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        barrier.wait()
        for _ in range(20):
            with sluice.acquire("openai"):
                seen.append(sum(thread.name == "sluice keeper" for thread in threading.enumerate()))

    in_threads(8, work)
    assert max(seen) == 1
    sluice.close()
    assert not any(thread.name == "sluice keeper" for thread in threading.enumerate())


def test_threads_that_begin_at_once_make_one_client() -> None:
    sluice = Sluice("memory://")
    clients: list[int] = []
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        barrier.wait()
        sluice.set_limits("openai", [Limit("rpm", "60/min")])
        clients.append(id(sluice._client))

    in_threads(8, work)
    assert len(set(clients)) == 1


def test_threads_that_ask_in_line_cost_about_a_write_a_grant() -> None:
    sluice = Sluice("memory://")
    sluice.set_limits("openai", [Limit("rps", "100/s burst 1"), Limit("rpm", "6000/min")])
    sluice.peek("openai")
    client: Any = sluice._here()
    client.store = watched = Watched(client.store)

    def work(_: int) -> None:
        for _ in range(5):
            sluice.acquire("openai", wait=30)

    in_threads(8, work)
    assert watched.names().count("take") <= 40 * 1.5


# --- forks ---


FORKED = """
    def fork(work):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os.close(reading)
            try:
                text = str(work())
            except BaseException as error:
                text = type(error).__name__
            os.write(writing, text.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        assert os.waitpid(child, 0)[1] == 0
        return text
"""


def test_a_lease_belongs_to_the_process_that_took_it(url: str) -> None:
    ran = script(
        url,
        FORKED
        + """
    lease = sluice.acquire("openai", {"tpd": 10})

    def child():
        before = lease.id
        with lease:
            pass
        told = []
        for use in (lease.release, lease.refund, lease.renew, lambda: lease.settle(tpd=1), lambda: lease.more(tpd=1)):
            try:
                use()
            except LeaseLost as error:
                told.append(str(os.getppid()) in str(error))
        return sum(told)

    print(fork(child))
    print(len(sluice.leases()))
    lease.settle(tpd=4)
    lease.release()
    print(len(sluice.leases()), 1000 - sluice.peek("openai").limits[0].available)
    """,
    )
    assert says(ran) == ["5", "1", "0", "4"]


def test_a_child_gets_a_client_of_its_own(url: str) -> None:
    ran = script(
        url,
        FORKED
        + """
    mine = sluice.acquire("openai")

    def child():
        with sluice.acquire("openai") as lease:
            held = sorted(lease.holder for lease in sluice.leases())
            keepers = [thread.name for thread in threading.enumerate()]
            assert "sluice keeper" in keepers, keepers
            assert lease.id.endswith(f":{os.getpid()}"), lease.id
        sluice.close()
        return len(held)

    print(fork(child), fork(child))
    assert not mine.lost
    mine.release()
    print(len(sluice.leases()))
    sluice.close()
    """,
    )
    # A file is shared with the child; memory is the child's own, a copy.
    assert says(ran) == ["2", "2", "0"]


def test_a_child_that_does_nothing_with_its_client_touches_nothing(url: str) -> None:
    ran = script(
        url,
        """
    lease = sluice.acquire("openai")
    child = os.fork()
    if child == 0:
        del lease
        sys.exit(0)  # runs what is registered for the end of the interpreter
    assert os.waitpid(child, 0)[1] == 0
    print(len(sluice.leases()), lease.lost)
    lease.release()
    """,
    )
    assert says(ran) == ["1", "False"]


def test_locks_that_other_threads_hold_at_a_fork_never_stop_the_child(url: str) -> None:
    ran = script(
        url,
        FORKED
        + """
    stop = threading.Event()

    def hammer():
        while not stop.is_set():
            with sluice.acquire("openai", {"tpd": 1}, wait=5) as lease:
                sluice.refresh()
                lease.settle(tpd=0)

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()

    def child():
        for _ in range(3):
            with sluice.acquire("openai", wait=20):
                pass
        sluice.namespace("other").set_limits("gpu", [Limit("rpm", "1/min")])
        return "fine"

    said = [fork(child) for _ in range(15)]
    stop.set()
    for thread in threads:
        thread.join()
    print(*sorted(set(said)))
    """,
        seconds=60,
    )
    assert says(ran) == ["fine"]


def test_a_fork_while_another_thread_makes_a_client_does_not_stop_the_child(url: str) -> None:
    ran = script(
        url,
        FORKED
        + """
    from sluice.facade import _making

    def child():
        with sluice.acquire("openai"):
            return "fine"

    with _making.lock:  # as another thread holds it, which the child has not got
        print(fork(child))
    """,
    )
    assert says(ran) == ["fine"]


def test_a_client_made_before_the_first_fork_of_a_server_serves_each_worker(tmp_path: Path) -> None:
    ran = script(
        f"sqlite:///{tmp_path}/quota.db",
        FORKED
        + """
    import multiprocessing

    def worker(number):
        with sluice.acquire("openai", {"tpd": 10}, wait=20) as lease:
            lease.settle(tpd=number)
        return number

    with multiprocessing.get_context("fork").Pool(4) as pool:
        print(sum(pool.map(worker, range(8))))
    print(1000 - sluice.peek("openai").limits[0].available, len(sluice.leases()))
    """,
    )
    assert says(ran) == ["28", "28", "0"]


# --- the end of the interpreter ---


SLOW = """
    from sluice.core.requests import Unreached

    client = sluice._here()
    release, tries = client.store.release, []

    async def failing(requests):
        tries.append(1)
        return [Unreached("down")] * len(requests) if len(tries) < {times} else await release(requests)

    client.store.release = failing
"""


def test_the_interpreter_ends_at_once_with_a_keeper_and_leases_at_large(url: str) -> None:
    before = time.monotonic()
    ran = script(
        url,
        """
    warnings.simplefilter("ignore", ResourceWarning)  # it says rightly that they were dropped
    leases = [sluice.acquire("openai") for _ in range(3)]
    print("held", flush=True)
    """,
    )
    assert says(ran) == ["held"]
    assert time.monotonic() - before < 15


def test_an_end_that_is_pending_is_sent_before_the_interpreter_ends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/quota.db"
    ran = script(
        url,
        SLOW.format(times=25)
        + """
    with sluice.acquire("openai", {"tpd": 10}) as lease:
        lease.settle(tpd=4)
    print(len(sluice.leases()))
    """,
    )
    assert says(ran) == ["1"]
    with Sluice(url) as sluice:
        assert sluice.leases() == []
        assert 1000 - sluice.peek("openai").limits[0].available == 4


def test_an_end_that_is_pending_is_sent_also_when_its_client_was_closed_or_dropped(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/quota.db"
    ran = script(
        url,
        """
    first = sluice.acquire("openai", {"tpd": 10})
    sluice.close()
    other = Sluice(sluice._url)
    second = other.acquire("openai", {"tpd": 10})
    del other
    for lease in (first, second):
        lease.settle(tpd=4)
        lease.release()
    print(len(sluice.leases()))
    """,
    )
    assert says(ran) == ["0"]
    with Sluice(url) as sluice:
        assert 1000 - sluice.peek("openai").limits[0].available == 8


def test_a_store_that_stays_away_holds_the_interpreter_for_seconds_at_most(url: str) -> None:
    before = time.monotonic()
    ran = script(
        url,
        SLOW.format(times=10**9)
        + """
    sluice._observer = client._observer = lambda event: print(type(event).__name__)
    for _ in range(2):
        with sluice.acquire("openai"):
            pass
    """,
    )
    assert says(ran).count("EndFailed") == 2
    assert time.monotonic() - before < 25


def test_leases_that_are_used_while_the_interpreter_ends_still_end(url: str) -> None:
    ran = script(
        url,
        """
    def late():
        with sluice.acquire("openai", {"tpd": 10}) as lease:
            lease.settle(tpd=4)
        print(len(sluice.leases()))

    atexit.register(late)
    """,
    )
    assert says(ran) == ["0"]


def test_ctrl_c_leaves_no_slot_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/quota.db"
    ran = script(
        url,
        """
    try:
        with sluice.acquire("openai", {"tpd": 10}) as lease:
            lease.settle(tpd=4)
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            time.sleep(20)
    except KeyboardInterrupt:
        print("interrupted", len(sluice.leases()))
    """,
    )
    assert says(ran) == ["interrupted", "0"]
    with Sluice(url) as sluice:
        assert 1000 - sluice.peek("openai").limits[0].available == 4
