"""DynamoDB for threads: calls are sent and awaited in the thread that makes them.

Several calls of one `send` go side by side without one thread more: each is written to a connection of its own, then
the replies are read, all against time-outs that began when each was sent. An interrupt in the middle closes the
connections that have an answer to come, so no later call reads it.

A fork gets a wire of its own from the facade, and with it connections and credentials of its own.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.requests import Failure, Unknown, Unreached
from sluice.stores.dynamodb.wire import Call, Reply
from sluice.wires.blocking.http import Connection, Connections, NoAnswer, NotSent, Peer
from sluice.wires.dynamodb.account import Account, NotResolved
from sluice.wires.dynamodb.letters import (
    CLOCK_CORRECTED,
    IDLE_NS,
    MAX_CONNECTIONS,
    MAX_REPLY_BYTES,
    Desk,
    HttpReply,
    asks_for_time,
    settled,
    trust,
)
from sluice.wires.dynamodb.opening import DynamoOpener, read_opener
from sluice.wires.dynamodb.options import Options
from sluice.wires.dynamodb.signing import Keys
from sluice.wires.dynamodb.skew import Timepiece

SIDE_BY_SIDE: Final = 32
"""How many calls of one `send` are under way at once; more go in several rounds."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    connection: Connection
    sent_ns: int


class BlockingWire:
    """A `Wire` that blocks. Any number of threads may use it."""

    def __init__(self, options: Options, clock: Timepiece, account: Callable[[], Account]) -> None:
        self._options = options
        self._clock = clock
        self._account = account
        self._opening = threading.Lock()
        self._opened: tuple[Desk, Connections] | None = None

    def now_ns(self) -> int:
        return self._clock.now_ns()

    async def send(self, calls: Sequence[Call], /) -> Sequence[Reply]:
        try:
            desk, connections = self._opened or self._open()
            keys = desk.account.keys()
        except NotResolved as error:
            return [error.failure] * len(calls)
        if asks_for_time(self._clock, calls):
            failure = _ask_for_time(desk, connections)
            if failure is not None:
                return [failure] * len(calls)
        self._clock.check()
        replies: list[Reply | ConfigError] = []
        for start in range(0, len(calls), SIDE_BY_SIDE):
            replies += _exchange(desk, connections, keys, calls[start : start + SIDE_BY_SIDE])
        return settled(replies)

    async def close(self) -> None:
        if self._opened is not None:
            self._opened[1].close()

    def _open(self) -> tuple[Desk, Connections]:
        with self._opening:
            if self._opened is None:
                options = self._options
                account = self._account()
                desk = Desk(options, account, self._clock)
                peer = Peer(
                    desk.hostname,
                    desk.port,
                    trust(desk),
                    account.proxy,
                    options.connect_timeout_ns / NS_PER_SECOND,
                    options.read_timeout_ns / NS_PER_SECOND,
                    MAX_REPLY_BYTES,
                )
                self._opened = desk, Connections(peer, MAX_CONNECTIONS, IDLE_NS)
            return self._opened


def _exchange(desk: Desk, connections: Connections, keys: Keys, calls: Sequence[Call]) -> list[Reply | ConfigError]:
    """Send all, then wait for all."""
    under_way: deque[_UnderWay | Unreached | ConfigError] = deque()
    replies: list[Reply | ConfigError] = []
    try:
        for call in calls:
            under_way.append(_begin(desk, connections, keys, call))
        while under_way:
            replies.append(_end(desk, connections, under_way.popleft()))
    except BaseException:
        for each in under_way:
            if isinstance(each, _UnderWay):
                each.connection.close()
        raise
    return replies


def _begin(desk: Desk, connections: Connections, keys: Keys, call: Call) -> _UnderWay | Unreached | ConfigError:
    letter = desk.seal(call, keys)
    head = "".join(f"{name}: {value}\r\n" for name, value in letter.headers.items())
    request = f"POST {desk.path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + letter.body
    return _send(desk, connections, request)


def _send(desk: Desk, connections: Connections, request: bytes) -> _UnderWay | Unreached | ConfigError:
    try:
        connection = connections.take()
    except NotSent as error:
        return Unreached(str(error))
    except ConfigError as error:
        return error
    sent_ns = desk.clock.steady_ns()
    try:
        connection.send(request)
    except NotSent as error:
        connection.close()
        return Unreached(str(error))
    except BaseException:
        connection.close()
        raise
    return _UnderWay(connection, sent_ns)


def _end(desk: Desk, connections: Connections, begun: _UnderWay | Unreached | ConfigError) -> Reply | ConfigError:
    if not isinstance(begun, _UnderWay):
        return begun
    try:
        return desk.read(_received(connections, begun.connection), begun.sent_ns)
    except NoAnswer as error:
        return Unknown(str(error))


def _received(connections: Connections, connection: Connection) -> HttpReply:
    """Wait for a reply. The connection goes back to the others, or is closed."""
    try:
        reply, reusable = connection.receive()
    except BaseException:
        connection.close()
        raise
    if reusable:
        connections.keep(connection)
    else:
        connection.close()
    return reply


def _ask_for_time(desk: Desk, connections: Connections) -> Failure | None:
    """Ask the engine for nothing but its date. A failure if the calls that wait for it are to be made anew."""
    begun = _send(desk, connections, f"GET {desk.path} HTTP/1.1\r\nHost: {desk.host}\r\n\r\n".encode("latin-1"))
    if isinstance(begun, ConfigError):
        raise begun
    if isinstance(begun, Unreached):
        return begun
    try:
        reply = _received(connections, begun.connection)
    except NoAnswer as error:
        return Unreached(f"the engine did not say what time it is: {error}")
    return CLOCK_CORRECTED if desk.read_date(reply, begun.sent_ns) else None


def opener(url: str) -> DynamoOpener:
    """Read a URL for the blocking facade."""
    return read_opener(url, BlockingWire)
