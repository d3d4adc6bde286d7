"""Threads of one process on one file: exact together, and nobody waits for ever."""

import threading
from pathlib import Path
from typing import Any

from sluice import Limit, Sluice
from tests.sqlite.kit import intact, python, url_of

THREADS = 16


def together(work: Any) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_threads_take_exactly_what_there_is(tmp_path: Path) -> None:
    granted = [0] * THREADS
    with Sluice(url_of(tmp_path / "quota.db")) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "500 per 300day")])

        def work(number: int) -> None:
            granted[number] = sum(bool(sluice.try_acquire("openai")) for _ in range(50))

        together(work)
        assert sum(granted) == 500
        assert sluice.peek("openai").limits[0].available == 0


def test_threads_of_several_clients_hold_no_more_slots_than_there_are(tmp_path: Path) -> None:
    holding, most, over = [0], [0], threading.Lock()
    clients = [Sluice(url_of(tmp_path / "quota.db")) for _ in range(4)]
    clients[0].set_limits("openai", [Limit("concurrent", "3 slots ttl 60s")])

    def work(number: int) -> None:
        for _ in range(10):
            with clients[number % 4].acquire("openai", wait=50):
                with over:
                    holding[0] += 1
                    most[0] = max(most[0], holding[0])
                with over:
                    holding[0] -= 1

    together(work)
    assert most[0] <= 3
    assert clients[0].peek("openai").limits[0].available == 3
    for client in clients:
        client.close()
    assert intact(tmp_path / "quota.db")


def test_a_client_can_be_closed_and_used_while_others_use_it(tmp_path: Path) -> None:
    with Sluice(url_of(tmp_path / "quota.db")) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "800 per 300day")])

        def work(number: int) -> None:
            for _ in range(50):
                if number == 0:
                    sluice.close()
                else:
                    sluice.acquire("openai")

        together(work)
        assert sluice.peek("openai").limits[0].available == 800 - 15 * 50
    assert [entry.name for entry in tmp_path.iterdir()] == ["quota.db"]


def test_the_end_of_the_interpreter_leaves_a_connection_to_the_thread_that_is_using_it(tmp_path: Path) -> None:
    code = """
import atexit, sys, threading, time
atexit.register(lambda: print("open" if database._opened else "closed"))  # what is registered first is called last
from pathlib import Path
from sluice.testing import ManualClock
from sluice.wires.sqlite.database import Database
from sluice.wires.sqlite.jobs import reading
from sluice.wires.sqlite.place import Place
database = Database(Place(Path(sys.argv[1])), ManualClock())
begun = threading.Event()
def look(transaction):
    begun.set()
    while sys.argv[2] == "busy":
        time.sleep(0.01)
job = reading(look, 10**10)
thread = threading.Thread(target=database.run, args=(job, lambda: [job]), daemon=True)
thread.start()
begun.wait(10)
if sys.argv[2] != "busy":
    thread.join()
"""
    path = str(tmp_path / "quota.db")
    assert python(code, path, "busy", seconds=20) == "open\n"
    assert python(code, path, "done", seconds=20) == "closed\n"
