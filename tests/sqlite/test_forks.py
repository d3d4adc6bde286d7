"""No connection crosses a fork: the parent closes, each side opens its own, and neither disturbs the other."""

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice import Limit, Sluice, StoreUnavailable
from sluice.core.errors import ConfigError
from sluice.stores.sqlite import Transaction
from sluice.wires.sqlite import forks
from tests.sqlite.kit import blocking_store, intact, locked, look, python, run, take, taken, url_of

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def in_child(work: Callable[[], object]) -> int:
    """What becomes of a forked child: 0 if its work returned true and its clients closed."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_parent_and_child_go_on_with_connections_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "100/hour")])
        sluice.acquire("openai")

        def work() -> bool:
            with sluice:
                for _ in range(10):
                    sluice.acquire("openai")
            return True

        for _ in range(3):
            assert in_child(work) == 0
            sluice.acquire("openai")
        assert sluice.peek("openai").limits[0].available == 100 - 1 - 3 * 11
    assert intact(path)


def test_no_connection_is_open_when_the_process_forks(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"

    def is_open() -> bool:
        return any(opened.path == path for opened in forks._opened)

    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "100/hour")])
        assert is_open()
        assert in_child(lambda: not is_open()) == 0


def test_a_child_that_outlives_its_parent_keeps_its_data() -> None:
    """A daemon: the parent opens, forks and leaves. What others then open must not be cut from under the child."""
    code = """
import os, sys, time
from sluice import Limit, Sluice, StoreUnavailable
path = sys.argv[1]
sluice = Sluice(f"sqlite:///{path}")
sluice.set_limits("openai", [Limit("rpm", "1000/hour")])
sluice.acquire("openai")
there, here = os.pipe()
if os.fork():
    os.close(here)
    os.read(there, 1)
    sys.exit(0)
sluice.acquire("openai")
os.write(here, b"x")
time.sleep(0.1)
with Sluice(f"sqlite:///{path}") as other:
    other.acquire("openai")
for _ in range(10):
    if os.fork() == 0:
        with Sluice(f"sqlite:///{path}") as other:
            other.acquire("openai")
        os._exit(0)
    os.wait()
    sluice.acquire("openai")
print(1000 - sluice.peek("openai").limits[0].available)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quota.db")
        assert python(code, str(path)).split() == ["23"]
        assert intact(path)


def test_a_fork_waits_for_the_transaction_that_a_thread_is_in(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "100k per 300day")])
        stop = threading.Event()
        taken = [0, 0]

        def ask(number: int) -> None:
            while not stop.is_set():
                sluice.acquire("openai")
                taken[number] += 1

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(20):

            def work() -> bool:
                with sluice:
                    sluice.acquire("openai")
                return True

            assert in_child(work) == 0
        stop.set()
        for thread in threads:
            thread.join()
        assert sluice.peek("openai").limits[0].available == 100_000 - sum(taken) - 20
    assert min(taken) > 0
    assert intact(path)


def test_a_fork_that_python_was_not_told_of_is_refused_in_the_child(tmp_path: Path) -> None:
    """Seen from the child, the connection belongs to another process: it is neither used nor closed."""
    path = tmp_path / "quota.db"
    connection = sqlite3.connect(path)
    inherited = forks.Opened(connection, path, os.getppid())
    forks._opened.add(inherited)
    try:
        with pytest.raises(ConfigError, match=r"was forked while its parent had SQLite file .*quota.db' open"):
            Sluice(url_of(path)).set_limits("openai", [Limit("rpm", "1/s")])
        inherited.close()
        assert connection.execute("SELECT 1").fetchone() == (1,), "what is another's is not closed"
        with Sluice(url_of(tmp_path / "other.db")) as sluice:
            sluice.set_limits("openai", [Limit("rpm", "1/s")])
    finally:
        forks._opened.discard(inherited)
        connection.close()


def test_a_lease_taken_before_the_fork_is_the_parents_alone(tmp_path: Path) -> None:
    from sluice import LeaseLost

    with Sluice(url_of(tmp_path / "quota.db")) as sluice:
        sluice.set_limits("openai", [Limit("concurrent", "2 slots ttl 60s")])
        with sluice.acquire("openai") as lease:

            def work() -> bool:
                try:
                    lease.renew()
                except LeaseLost:
                    return True
                return False

            assert in_child(work) == 0
            assert sluice.peek("openai").limits[0].available == 1
        assert sluice.peek("openai").limits[0].available == 2


def test_multiprocessing_by_fork_works_and_leaves_the_file_whole() -> None:
    code = """
import multiprocessing, sys
from sluice import Limit, Sluice, StoreUnavailable
sluice = Sluice(f"sqlite:///{sys.argv[1]}")
def work(number):
    return sum(bool(sluice.try_acquire("openai")) for _ in range(50))
if __name__ == "__main__":
    sluice.set_limits("openai", [Limit("rpm", "120/hour")])
    with multiprocessing.get_context("fork").Pool(4) as pool:
        print(sum(pool.map(work, range(4), chunksize=1)))
        pool.close()
        pool.join()
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quota.db")
        assert python(code, str(path)).split() == ["120"]
        assert intact(path)


def test_asyncio_parent_and_child_go_on_too(tmp_path: Path) -> None:
    code = """
import asyncio, os, sys
from sluice import AsyncSluice, Limit
sluice = AsyncSluice(f"sqlite:///{sys.argv[1]}")
async def ask():
    await sluice.acquire("openai")
    return (await sluice.peek("openai")).limits[0].available
async def main():
    await sluice.set_limits("openai", [Limit("rpm", "100/hour")])
    return await ask()
print(asyncio.run(main()), flush=True)
pid = os.fork()
if pid == 0:
    print(asyncio.run(ask()), flush=True)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(asyncio.run(ask()))
"""
    path = tmp_path / "quota.db"
    assert python(code, str(path)).split() == ["99", "98", "97"]
    assert intact(path)


def unavailable(sluice: Sluice) -> None:
    with pytest.raises(StoreUnavailable):
        sluice.acquire("openai")


def test_a_fork_is_not_held_up_for_longer_than_a_timeout(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with Sluice(url_of(path), timeout=0.2) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "1M/hour")])
        with locked(path):
            waiting = threading.Thread(target=unavailable, args=(sluice,))
            waiting.start()
            time.sleep(0.05)
            begun = time.monotonic()
            assert in_child(lambda: True) == 0
            assert time.monotonic() - begun < 1.5
            waiting.join()


def test_a_fork_out_of_a_transaction_is_refused_in_the_child_and_harms_no_parent(tmp_path: Path) -> None:
    """A signal handler that forks comes at any moment, and can't wait for what it has interrupted."""
    path = tmp_path / "quota.db"
    store = blocking_store(path)
    run(store.take([take("first")]))
    refused: list[int] = []

    def child() -> bool:
        try:
            run(blocking_store(path).take([take("child")]))
        except ConfigError:
            return True
        return False

    def forks(transaction: Transaction) -> object:
        answer = transaction.decide([take("second")])
        refused.append(in_child(child))
        return answer

    run(store._wire.write(forks))
    assert refused == [0]
    assert taken(look(store)) == 2
    run(store.close())
    assert intact(path)
