"""HTTP/1.1 over connections that are kept: a request is sent whole, and its reply read when the caller comes for it.

Sending and receiving are two steps, so that one thread can have several requests under way, each on a connection of its
own. A connection has at most one request under way and goes back to the pool after a reply that was read to its end;
after anything else it is closed. Two failures are told apart:

    NotSent     the other side can't have the whole request: no connection, or it broke while the request was written
    NoAnswer    it may have the request
"""

import http.client
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sluice.core.errors import ConfigError
from sluice.wires.dynamodb.letters import HttpReply

SHORTEST_WAIT: Final = 0.001


class NotSent(Exception):
    """The request certainly did not arrive."""


class NoAnswer(Exception):
    """The request was sent, and no answer came that can be read."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom to connect to, and how long to wait for it. ``tls`` is ``None`` for plain HTTP."""

    hostname: str
    port: int
    tls: ssl.SSLContext | None
    proxy: str | None
    connect_timeout: float
    read_timeout: float
    max_reply_bytes: int


class Connection:
    """One connection to a peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._socket = _connected(peer)
        self._deadline = 0.0
        self.idle_since_ns = 0

    def send(self, request: bytes) -> None:
        """Send a whole request."""
        self._deadline = time.monotonic() + self._peer.read_timeout
        try:
            self._socket.settimeout(self._peer.read_timeout)
            self._socket.sendall(request)
        except OSError as error:
            raise NotSent(f"the connection broke while sending ({_text(error)})") from error

    def receive(self) -> tuple[HttpReply, bool]:
        """Read the reply, and whether the connection can be used again."""
        self._socket.settimeout(max(self._deadline - time.monotonic(), SHORTEST_WAIT))
        reply = http.client.HTTPResponse(self._socket, method="POST")
        try:
            reply.begin()
            if (reply.length or 0) > self._peer.max_reply_bytes:
                raise NoAnswer(f"the reply has more than {self._peer.max_reply_bytes} bytes")
            body = reply.read()
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {self._peer.read_timeout:g} s") from error
        except http.client.RemoteDisconnected as error:
            raise NoAnswer("the connection was closed without an answer") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoAnswer(f"the reply broke off or can't be read ({_text(error)})") from error
        finally:
            reply.close()
        headers = reply.headers
        return HttpReply(reply.status, headers["Date"], headers["X-Amz-Crc32"], body), not reply.will_close

    def stale(self) -> bool:
        """Whether the other side has closed it, or sent what nobody asked for."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._socket.close()


class Connections:
    """Connections to one peer, kept for the next request. Used by any number of threads."""

    def __init__(self, peer: Peer, most: int, idle_ns: int) -> None:
        self._peer = peer
        self._idle_ns = idle_ns
        self._most = most
        self._kept: deque[Connection] = deque()

    def take(self) -> Connection:
        """The connection that was used last, or a new one."""
        while True:
            try:
                connection = self._kept.pop()
            except IndexError:
                return Connection(self._peer)
            if time.monotonic_ns() - connection.idle_since_ns < self._idle_ns and not connection.stale():
                return connection
            connection.close()

    def keep(self, connection: Connection) -> None:
        """Put a connection back; one too many is closed."""
        if len(self._kept) >= self._most:
            connection.close()
            return
        connection.idle_since_ns = time.monotonic_ns()
        self._kept.append(connection)

    def close(self) -> None:
        """Close what is idle. What is under way closes itself or comes back to be closed with the pool."""
        while True:
            try:
                connection = self._kept.pop()
            except IndexError:
                return
            connection.close()


def _connected(peer: Peer) -> socket.socket:
    hostname, port = peer.hostname, peer.port
    tunnel = None
    if peer.proxy is not None:
        parts = urlsplit(peer.proxy if "//" in peer.proxy else f"http://{peer.proxy}")
        if parts.scheme != "http" or parts.hostname is None or parts.username is not None:
            raise ConfigError(f"the proxy {peer.proxy!r} can't be used: only http://host:port can")
        hostname, port, tunnel = parts.hostname, parts.port or 80, (hostname, port)
    opening = http.client.HTTPConnection(hostname, port, timeout=peer.connect_timeout)
    if tunnel is not None:
        opening.set_tunnel(*tunnel)
    try:
        opening.connect()
        made: socket.socket = opening.sock
        if peer.tls is not None:
            made = peer.tls.wrap_socket(made, server_hostname=peer.hostname)
    except ssl.SSLCertVerificationError as error:
        opening.close()
        raise ConfigError(
            f"the certificate of {peer.hostname} can't be verified ({error.verify_message}); name the bundle to "
            "trust in AWS_CA_BUNDLE"
        ) from error
    except TimeoutError as error:
        opening.close()
        raise NotSent(f"no connection to {hostname}:{port} within {peer.connect_timeout:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        opening.close()
        raise NotSent(f"no connection to {hostname}:{port} ({_text(error)})") from error
    return made


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
