"""A server on loopback that does with each call what a test has written down, and both wires to speak to it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Self

from sluice.ports import Clock
from sluice.stores.dynamodb.wire import Call, Operation, Reply
from sluice.wires.aio.dynamodb import AioWire
from sluice.wires.blocking.dynamodb import BlockingWire
from sluice.wires.blocking.scope import BlockingScope
from sluice.wires.clock import SystemClock
from sluice.wires.dynamodb.account import Account
from sluice.wires.dynamodb.opening import timepiece_for
from sluice.wires.dynamodb.options import Options, read_options
from sluice.wires.dynamodb.signing import Keys

ENDED_WITHIN = 5.0

PATIENCE = "10s"
"""How long a wire waits, unless waiting is what a test is about: nothing here depends on how fast the machine is."""


@dataclass(frozen=True)
class Request:
    """What has come: on which connection, asking for what."""

    connection: int
    method: str
    headers: dict[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        return self.headers.get("x-amz-target", "").rpartition(".")[2]


Act = Callable[["Scripted", socket.socket, Request], bool]
"""What is done about a request; whether the connection stays open."""


def reply(body: object = None, status: int = 200, *, raw: bytes | None = None, **headers: str) -> Act:
    """Answer: with ``raw`` in place of JSON, with headers in place of the engine's, an empty one not at all."""

    def act(scripted: Scripted, connection: socket.socket, _: Request) -> bool:
        content = json.dumps(body or {}).encode() if raw is None else raw
        sent = {
            "Date": formatdate(time.time() + scripted.ahead_s, usegmt=True),
            "x-amz-crc32": str(zlib.crc32(content)),
            "Content-Length": str(len(content)),
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value)
        connection.sendall(f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + content)
        return sent.get("Connection") != "close"

    return act


def error(code: str, message: str = "so it is", status: int = 400, **more: Any) -> Act:
    """Answer with an error as the engine words it."""
    return reply({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **more}, status)


def hang(scripted: Scripted, _: socket.socket, __: Request) -> bool:
    """Never answer."""
    scripted.over.wait()
    return False


def close(_: Scripted, __: socket.socket, ___: Request) -> bool:
    """Close the connection without an answer."""
    return False


def reset(_: Scripted, connection: socket.socket, __: Request) -> bool:
    """Break the connection off."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def text(content: bytes) -> Act:
    """Send these bytes as they are, and close."""

    def act(_: Scripted, connection: socket.socket, __: Request) -> bool:
        connection.sendall(content)
        return False

    return act


def together(count: int, act: Act | None = None) -> Act:
    """Answer once so many requests are there at the same time."""
    barrier = threading.Barrier(count)

    def wait(scripted: Scripted, connection: socket.socket, request: Request) -> bool:
        barrier.wait(ENDED_WITHIN)
        return (act or reply(json.loads(request.body)))(scripted, connection, request)

    return wait


class Scripted:
    """The server. Calls are answered by ``script``, one act each, and when it is over by ``otherwise``."""

    def __init__(self, *script: Act, otherwise: Act | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.script = deque(script)
        self.otherwise = otherwise or reply()
        self.asked_for_time: Act = reply()
        self.ahead_s = 0.0
        self.requests: list[Request] = []
        self.over = threading.Event()
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self._listening.getsockname()[1]}"

    @property
    def calls(self) -> list[Request]:
        return [request for request in self.requests if request.method == "POST"]

    @property
    def connections(self) -> int:
        return len({request.connection for request in self.requests})

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in list(self._open):
            with_shutdown(connection)
        for thread in self._threads:
            thread.join(ENDED_WITHIN)

    def _start(self, body: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=body, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            number += 1
            self._start(self._serve, connection, number)

    def _serve(self, plain: socket.socket, number: int) -> None:
        connection = plain
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
            self._open.add(connection)
            while (request := _read(connection, number)) is not None:
                self.requests.append(request)
                if not self._act(request)(self, connection, request):
                    return
        except (OSError, threading.BrokenBarrierError):
            return
        finally:
            self._open.discard(connection)
            connection.close()

    def _act(self, request: Request) -> Act:
        if request.method != "POST":
            return self.asked_for_time
        try:
            return self.script.popleft()
        except IndexError:
            return self.otherwise

    def drop_connections(self) -> None:
        """Close what is open, as a server does that restarts."""
        for connection in list(self._open):
            with_shutdown(connection)


def with_shutdown(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other side was faster


def _read(connection: socket.socket, number: int) -> Request | None:
    read = b""
    while b"\r\n\r\n" not in read:
        more = connection.recv(65_536)
        if not more:
            return None
        read += more
    head, _, body = read.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65_536)
    return Request(number, first.partition(" ")[0], headers, body)


def update(value: int = 1) -> Call:
    """A write, which echoing servers answer with itself."""
    return Call(Operation.UPDATE_ITEM, {"value": value})


def get(value: int = 1) -> Call:
    return Call(Operation.GET_ITEM, {"value": value})


class Somebody:
    """An account that needs no resolving, which takes botocore a tenth of a second."""

    region = "eu-west-1"
    proxy = None
    ca_bundle = ""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.forgotten = 0

    def at_hand(self) -> tuple[Keys, bool]:
        return self.keys(), False

    def keys(self) -> Keys:
        return Keys("AKIDEXAMPLE", "secret", None)

    def forget(self) -> None:
        self.forgotten += 1


class Wired:
    """A wire of one kind and what runs it."""

    def __init__(self, kind: str, options: Options, clock: Clock, account: Callable[[], Account]) -> None:
        self.timepiece = timepiece_for(options, clock)
        self.events: list[Any] = []
        self.timepiece.report_to(self.events.append)
        self.runner = asyncio.Runner() if kind == "asyncio" else None
        make = AioWire if kind == "asyncio" else BlockingWire
        self.wire: AioWire | BlockingWire = make(options, self.timepiece, account)

    def run(self, work: Any) -> Any:
        return BlockingScope(SystemClock()).run(work) if self.runner is None else self.runner.run(work)

    def send(self, *calls: Call) -> Sequence[Reply]:
        replies: Sequence[Reply] = self.run(self.wire.send(calls))
        return replies

    def one(self, call: Call | None = None) -> Reply:
        (answer,) = self.send(call or update())
        return answer

    def close(self) -> None:
        self.run(self.wire.close())
        if self.runner is not None:
            self.runner.close()


@contextmanager
def wired(
    kind: str,
    url: str,
    query: str = "",
    *,
    clock: Clock | None = None,
    account: Any = None,
    resolve: Callable[[], Account] | None = None,
) -> Iterator[Wired]:
    """A wire to an endpoint, closed in the end; as somebody, unless an account is given."""
    patience = "".join(f"&{name}={PATIENCE}" for name in ("connect_timeout", "read_timeout") if name not in query)
    options = read_options(f"dynamodb://quota?endpoint={url}{patience}{query}")
    somebody: Any = Somebody(url) if account is None else account
    made = Wired(kind, options, clock or SystemClock(), resolve or (lambda: somebody))
    try:
        yield made
    finally:
        made.close()
