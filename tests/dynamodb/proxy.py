"""A proxy on loopback in front of the engine: counts what passes, and keeps replies or requests back when told to.

It reads whole requests and whole replies, so it knows which write was applied before it drops the reply to it. A reply
is dropped by closing the connection, as a broken network would; a request that is held is never passed on.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sluice.testing.dynamodb.engine import HOST

READ = 1 << 16


def nothing(_: str, __: bytes) -> bool:
    return False


@dataclass
class Proxy:
    """Between clients and the engine; use it with ``with``.

    ``drops`` is asked for each answered request whether its reply is lost, ``holds`` for each request whether it never
    arrives. Both are given the operation and the body of the request.
    """

    engine_port: int
    drops: Callable[[str, bytes], bool] = nothing
    holds: Callable[[str, bytes], bool] = nothing
    calls: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    dropped: int = 0
    held: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    _errors: list[BaseException] = field(default_factory=list)

    @property
    def writes(self) -> int:
        return self.calls["UpdateItem"]

    def url(self, table: str, **more: str) -> str:
        options = "".join(f"&{name}={value}" for name, value in more.items())
        return f"dynamodb://{table}?region=eu-west-1&endpoint=http://{HOST}:{self.port}{options}"

    def forget(self) -> None:
        """Count from 0 again."""
        self.calls.clear()
        self.refused = self.dropped = 0

    def __enter__(self) -> Proxy:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(ready),))
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()
        if self._errors and error[0] is None:
            raise self._errors[0]

    async def _serve(self, ready: threading.Event) -> None:
        self._over = asyncio.Event()
        self._open: set[asyncio.Task[Any]] = set()
        server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._over.wait()
        server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        engine_reader, engine_writer = await asyncio.open_connection(HOST, self.engine_port)
        try:
            while (request := await _message(reader)) is not None:
                if not await self._pass_on(request, (engine_reader, engine_writer), writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client or the engine has gone: so has this connection
        except asyncio.CancelledError:
            pass  # the proxy ends
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._open.discard(task)
            for each in (writer, engine_writer):
                each.close()

    async def _pass_on(
        self,
        request: tuple[bytes, dict[str, str], bytes],
        engine: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        client: asyncio.StreamWriter,
    ) -> bool:
        head, headers, body = request
        operation = headers["x-amz-target"].rpartition(".")[2]
        self.calls[operation] += 1
        if self.holds(operation, body):
            self.held.set()
            await self._over.wait()
            return False
        engine[1].write(head + body)
        reply = await _message(engine[0])
        if reply is None:
            raise ConnectionError("the engine has closed")
        self.refused += b"ConditionalCheckFailed" in reply[2]
        if reply[0].startswith(b"HTTP/1.1 200") and self.drops(operation, body):
            self.dropped += 1
            return False
        client.write(reply[0] + reply[2])
        await client.drain()
        return True


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str], bytes] | None:
    """One request or reply: its head as it came, its headers, its body. None where the other side has closed."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    lines = head.decode("latin-1").split("\r\n")[1:-2]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "content-length" not in headers:
        raise ValueError(f"a message without its length: {head!r}")
    return head, headers, await reader.readexactly(int(headers["content-length"]))
