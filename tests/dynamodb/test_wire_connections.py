"""Connections: kept, several at once, one for each call under way, verified, and never across a fork."""

import asyncio
import gc
import logging
import os
import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sluice import AsyncSluice, Limit, Sluice
from sluice.core.errors import ConfigError
from sluice.core.requests import Unknown, Unreached
from sluice.stores.dynamodb.wire import Answered
from sluice.testing.dynamodb import LocalEngine
from sluice.wires.blocking import dynamodb as blocking
from sluice.wires.blocking.http import Connection
from sluice.wires.dynamodb.account import Account
from sluice.wires.dynamodb.options import read_options
from sluice.wires.dynamodb.table import make_table
from tests.dynamodb.scripted import Request, Scripted, Somebody, get, hang, reply, together, wired, with_shutdown


def test_one_connection_serves_one_call_after_another(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url) as wire:
        for _ in range(20):
            wire.one(get())
        assert engine.connections == 1


def test_calls_of_one_send_are_under_way_at_once_and_answered_in_order(kind: str) -> None:
    count = 12
    with Scripted(otherwise=together(count)) as engine, wired(kind, engine.url) as wire:
        for first in (0, 100):
            calls = [get(first + number) for number in range(count)]
            assert wire.send(*calls) == [Answered(call.body) for call in calls]
        assert engine.connections == count


def test_more_calls_than_connections_are_all_answered(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "SIDE_BY_SIDE", 5)
    with Scripted(otherwise=together(1)) as engine, wired(kind, engine.url) as wire:
        calls = [get(number) for number in range(70)]
        assert wire.send(*calls) == [Answered(call.body) for call in calls]


def test_several_that_hang_take_no_longer_than_one(kind: str) -> None:
    with Scripted(otherwise=hang) as engine, wired(kind, engine.url, "&read_timeout=200ms") as wire:
        begun = time.monotonic()
        answers = wire.send(*[get(number) for number in range(30)])
        assert all(isinstance(answer, Unknown) for answer in answers)
        assert time.monotonic() - begun < 5, "30 time-outs one after another take 6 s"


def test_no_thread_is_started_and_the_caller_speaks_for_itself() -> None:
    speaking: set[int] = set()

    class Watched(Somebody):
        def keys(self):  # type: ignore[no-untyped-def]
            speaking.add(threading.get_ident())
            return super().keys()

    with Scripted() as engine, wired("blocking", engine.url, account=Watched(engine.url)) as wire:
        wire.one(get())
        before = threading.active_count()
        wire.one(get())
        assert threading.active_count() == before
    assert speaking == {threading.get_ident()}


def test_threads_share_a_wire_and_each_gets_its_own_answers() -> None:
    with Scripted(otherwise=together(1)) as engine, wired("blocking", engine.url) as wire:

        def ask(number: int) -> bool:
            calls = [get(1000 * number + each) for each in range(3)]
            return wire.send(*calls) == [Answered(call.body) for call in calls]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(200)))
        assert engine.connections <= 24


def test_tasks_share_a_wire_and_each_gets_its_own_answers() -> None:
    with Scripted(otherwise=together(1)) as engine, wired("asyncio", engine.url) as wire:

        async def ask(number: int) -> bool:
            calls = [get(1000 * number + each) for each in range(3)]
            return await wire.wire.send(calls) == [Answered(call.body) for call in calls]

        async def all_of_them() -> list[bool]:
            return await asyncio.gather(*[ask(number) for number in range(100)])

        assert all(wire.run(all_of_them()))
        assert engine.connections <= 64


def test_a_connection_that_the_engine_has_closed_is_not_used_again(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url) as wire:
        wire.one(get())
        engine.drop_connections()
        if wire.runner is not None:
            wire.runner.run(asyncio.sleep(0.05))
        assert wire.one(get()) == Answered({})
        assert engine.connections == 2


def test_one_that_the_engine_wants_to_close_is_not_used_again(kind: str) -> None:
    def announce(scripted: Scripted, connection: socket.socket, request: Request) -> bool:
        reply(Connection="close")(scripted, connection, request)
        return True

    with Scripted(announce) as engine, wired(kind, engine.url) as wire:
        assert wire.send(get()) == wire.send(get()) == [Answered({})]
        assert engine.connections == 2


def test_one_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "IDLE_NS", 0)
    with Scripted() as engine, wired("blocking", engine.url) as wire:
        assert wire.send(get()) == wire.send(get()) == [Answered({})]
        assert engine.connections == 2


def test_idle_ones_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "MAX_CONNECTIONS", 3)
    with Scripted(otherwise=together(6)) as engine, wired("blocking", engine.url) as wire:
        calls = [get(number) for number in range(6)]
        wire.send(*calls)
        wire.send(*calls)
        assert engine.connections == 9


@pytest.mark.parametrize("method", ["send", "receive"])
@pytest.mark.parametrize("interrupted", range(3))
def test_an_interrupt_leaves_no_answer_behind_for_another_call(
    monkeypatch: pytest.MonkeyPatch, method: str, interrupted: int
) -> None:
    with Scripted(otherwise=together(1)) as engine, wired("blocking", engine.url) as wire:
        wire.send(*[get(number) for number in range(3)])
        real, left = getattr(Connection, method), [interrupted]

        def interrupting(connection: Connection, *arguments: object) -> object:
            left[0] -= 1
            if left[0] == -1 and method == "receive":
                raise KeyboardInterrupt
            done = real(connection, *arguments)
            if left[0] == -1:
                raise KeyboardInterrupt
            return done

        monkeypatch.setattr(Connection, method, interrupting)
        with pytest.raises(KeyboardInterrupt):
            wire.send(*[get(10 + number) for number in range(3)])
        for number in range(20, 26):
            assert wire.one(get(number)) == Answered({"value": number})


def test_a_cancelled_call_leaves_no_answer_behind_for_another() -> None:
    slow = threading.Event()

    def wait(scripted, connection, request):  # type: ignore[no-untyped-def]
        slow.wait(5)
        return together(1)(scripted, connection, request)

    with Scripted(wait, wait, otherwise=together(1)) as engine, wired("asyncio", engine.url) as wire:

        async def cancel_half_way() -> None:
            sending = asyncio.create_task(wire.wire.send([get(1), get(2)]))
            while len(engine.requests) < 2:  # noqa: ASYNC110 - the server is no task
                await asyncio.sleep(0.001)
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending
            slow.set()

        wire.run(cancel_half_way())
        for number in range(3, 10):
            assert wire.one(get(number)) == Answered({"value": number})


def test_a_wire_that_was_closed_can_be_used_again(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url) as wire:
        wire.one(get())
        wire.run(wire.wire.close())
        assert wire.one(get()) == Answered({})
        assert engine.connections == 2


# --- TLS, and a proxy in between ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost that nobody else vouches for, and its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    both = folder / "both.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    extension = ["-addext", "subjectAltName=DNS:localhost"]
    out = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *extension, *out], check=True, capture_output=True)
    both.write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
    return both


@pytest.fixture
def secure(certificate: Path) -> Iterator[Scripted]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with Scripted(otherwise=together(1), tls=tls) as engine:
        yield engine


def public_bundle() -> str:
    from botocore.httpsession import get_cert_path

    return str(get_cert_path(True))


class Trusting(Somebody):
    """An account with a bundle, and perhaps a proxy."""

    def __init__(self, endpoint: str, bundle: Path | None, proxy: str | None = None) -> None:
        super().__init__(endpoint)
        self.ca_bundle = str(bundle or public_bundle())
        self.proxy = proxy  # type: ignore[assignment]


def test_a_certificate_in_the_bundle_is_good(kind: str, secure: Scripted, certificate: Path) -> None:
    with wired(kind, secure.url, account=Trusting(secure.url, certificate)) as wire:
        assert wire.send(get(1), get(2)) == [Answered({"value": 1}), Answered({"value": 2})]
        assert wire.one(get(3)) == Answered({"value": 3})
        assert secure.connections == 2


def test_another_certificate_is_a_clear_error(kind: str, secure: Scripted) -> None:
    account, says = Trusting(secure.url, None), r"certificate of localhost can't be verified.*AWS_CA_BUNDLE"
    with (
        wired(kind, secure.url, account=account) as wire,
        pytest.raises(ConfigError, match=says),
    ):
        wire.one(get())
    assert not secure.requests


def test_a_certificate_of_another_host_is_a_clear_error(kind: str, secure: Scripted, certificate: Path) -> None:
    url = secure.url.replace("localhost", "127.0.0.1")
    account, says = Trusting(url, certificate), r"certificate of 127\.0\.0\.1 can't be verified"
    with wired(kind, url, account=account) as wire, pytest.raises(ConfigError, match=says):
        wire.one(get())
    assert not secure.requests


def test_a_bundle_that_is_not_there_is_a_clear_error(kind: str, secure: Scripted, tmp_path: Path) -> None:
    account, says = Trusting(secure.url, tmp_path / "gone.pem"), r"certificate bundle .*gone\.pem can't be read"
    with wired(kind, secure.url, account=account) as wire, pytest.raises(ConfigError, match=says):
        wire.one(get())


def test_a_handshake_that_hangs_is_certainly_not_applied(kind: str, certificate: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}"
        with wired(kind, url, "&connect_timeout=150ms", account=Trusting(url, certificate)) as wire:
            assert isinstance(wire.one(get()), Unreached)


@contextmanager
def forwarding(answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> Iterator[tuple[str, list[str]]]:
    """A proxy that passes on whatever follows a CONNECT; its URL, and what it was asked."""
    asked: list[str] = []
    open_ones: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                first = connection.recv(65_536).decode().partition("\r\n")[0]
                open_ones.append(connection)
                asked.append(first)
                connection.sendall(answer)
                if b" 200 " not in answer:
                    connection.close()
                    continue
                host, _, port = first.split(" ")[1].rpartition(":")
                upstream = socket.create_connection((host, int(port)))
                open_ones.append(upstream)
                for pair in ((connection, upstream), (upstream, connection)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        listening.shutdown(socket.SHUT_RDWR)
        for each in open_ones:
            with_shutdown(each)
            each.close()


def test_through_a_proxy_it_is_the_engine_that_is_verified(kind: str, secure: Scripted, certificate: Path) -> None:
    with forwarding() as (proxy, asked):
        account = Trusting(secure.url, certificate, proxy)
        with wired(kind, secure.url, account=account) as wire:
            assert wire.one(get(1)) == Answered({"value": 1})
        assert asked == [f"CONNECT {secure.url.removeprefix('https://')} HTTP/1.1"] or asked == [
            f"CONNECT {secure.url.removeprefix('https://')} HTTP/1.0"
        ]


def test_a_proxy_that_refuses_is_certainly_not_applied(kind: str, secure: Scripted, certificate: Path) -> None:
    with forwarding(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n") as (proxy, _):
        with wired(kind, secure.url, account=Trusting(secure.url, certificate, proxy)) as wire:
            answer = wire.one(get(1))
        assert isinstance(answer, Unreached)
        assert "407" in answer.why
    assert not secure.requests


# --- processes and loops, on the real engine ---


@pytest.fixture
def table(engine: LocalEngine, somebody: None, tmp_path: Path) -> str:
    """The URL of a table of this test's own, with a limit."""
    url = f"dynamodb://{tmp_path.name}?endpoint={engine.url}&read_timeout=10s"
    options = read_options(url)
    make_table(Account(options), options.table)
    with Sluice(url, timeout=20) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "1000/min"), Limit("calls", "500 slots")])
    return url


def test_a_forked_child_speaks_over_connections_of_its_own(table: str) -> None:
    with Sluice(table, timeout=20) as sluice:
        sluice.acquire("openai").release()
        children = []
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                status = 1
                with suppress(BaseException):
                    for _ in range(20):
                        sluice.acquire("openai").release()
                    status = 0
                os._exit(status)
            children.append(pid)
        for _ in range(20):
            sluice.acquire("openai").release()
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
        (rpm, _) = sluice.peek("openai").limits
        assert 1000 - 61 <= rpm.available < 1000


def test_one_client_serves_one_loop_after_another_without_a_word(table: str, caplog: pytest.LogCaptureFixture) -> None:
    sluice = AsyncSluice(table, timeout=20)

    async def take() -> None:
        async with sluice.acquire("openai"):
            pass

    async def last() -> None:
        await take()
        await sluice.aclose()

    with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(take())
        asyncio.run(take())
        asyncio.run(last())
        gc.collect()
    assert not caplog.records
    assert {each.category for each in warned} <= {ResourceWarning}, "which Python shows only to those who ask for it"


def test_a_client_that_is_closed_leaves_nothing_open(table: str) -> None:
    async def main() -> None:
        async with AsyncSluice(table, timeout=20) as sluice:
            await asyncio.gather(*[(await sluice.acquire("openai")).release() for _ in range(5)])

    asyncio.run(main())
    with Sluice(table, timeout=20) as sluice:
        sluice.acquire("openai").release()
    del sluice
    gc.collect()
