"""One call on its way: sealed before it is sent, read when it comes back.

A `Desk` knows an account and a clock, and does no I/O: both wires send what it seals and show it what they received.
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.requests import Unreached
from sluice.stores.dynamodb.wire import Call, Operation, Reply
from sluice.wires.dynamodb.account import Account
from sluice.wires.dynamodb.options import Options
from sluice.wires.dynamodb.replies import CredentialsRefused, read_reply
from sluice.wires.dynamodb.signing import Keys, Signer
from sluice.wires.dynamodb.skew import Timepiece

VERSION: Final = "DynamoDB_20120810"
AGENT: Final = "sluice-quota"

MAX_REPLY_BYTES: Final = 32 * 1024 * 1024
"""The engine answers with 16 MB at most."""

IDLE_NS: Final = 20 * NS_PER_SECOND
"""A connection that was not used for so long is closed rather than used: the other side may be about to close it."""

MAX_CONNECTIONS: Final = 64
"""Connections of one wire at once; and idle ones kept."""

WRITES: Final = frozenset({Operation.UPDATE_ITEM, Operation.DELETE_ITEM, Operation.TRANSACT_WRITE_ITEMS})

CLOCK_CORRECTED: Final = Unreached("not decided: this host's clock has just been corrected")

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


@dataclass(frozen=True, slots=True)
class Letter:
    """A call, signed."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What is looked at in a reply."""

    status: int
    date: str | None
    crc32: str | None
    body: bytes


class Desk:
    """Seals calls to one engine, and reads its replies."""

    def __init__(self, options: Options, account: Account, clock: Timepiece) -> None:
        parts = urlsplit(account.endpoint)
        if parts.scheme not in {"http", "https"} or parts.hostname is None:
            raise ConfigError(f"the endpoint of DynamoDB is {account.endpoint!r}, which is no http or https URL")
        self.account = account
        self.clock = clock
        self.secure = parts.scheme == "https"
        self.hostname = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.path = parts.path or "/"
        name = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        self.host = name if self.port == (443 if self.secure else 80) else f"{name}:{self.port}"
        self.url = f"{parts.scheme}://{self.host}{self.path}"
        self._signer = Signer(self.host, self.path, account.region)
        self._where = f"DynamoDB table {options.table!r} in {account.region} at {account.endpoint}"

    def seal(self, call: Call, keys: Keys) -> Letter:
        """Write a call out and sign it."""
        body = _encode(call.body).encode()
        target = f"{VERSION}.{call.operation.value}"
        headers = self._signer.headers(keys, target, body, self.clock.now_ns() // NS_PER_SECOND)
        headers["Accept-Encoding"] = "identity"
        headers["User-Agent"] = AGENT
        headers["Content-Length"] = str(len(body))
        return Letter(headers, body)

    def read(self, reply: HttpReply, sent_ns: int) -> Reply | ConfigError:
        """Read a reply that has just come, and the time from it."""
        corrected = self.clock.observe(reply.date, sent_ns, self.clock.steady_ns())
        read = read_reply(reply.status, reply.crc32, reply.body, self._where)
        if isinstance(read, CredentialsRefused):
            self.account.forget()
            if corrected:  # it was signed by a clock that was wrong
                return CLOCK_CORRECTED
        return read

    def read_date(self, reply: HttpReply, sent_ns: int) -> bool:
        """Read nothing but the time from a reply that has just come; whether ours was corrected."""
        return self.clock.observe(reply.date, sent_ns, self.clock.steady_ns())


def trust(desk: Desk) -> ssl.SSLContext | None:
    """What the engine's certificate is held against; nothing for plain HTTP. Reads the bundle."""
    if not desk.secure:
        return None
    bundle = desk.account.ca_bundle
    try:
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        raise ConfigError(f"the certificate bundle {bundle} can't be read ({error}); correct AWS_CA_BUNDLE") from error


def asks_for_time(clock: Timepiece, calls: Sequence[Call]) -> bool:
    """Whether the engine's date is needed before these calls may be sent."""
    return any(call.operation in WRITES for call in calls) and clock.unsure()


def settled(replies: Sequence[Reply | ConfigError]) -> list[Reply]:
    """The replies, unless one of them says that no retry will help."""
    for reply in replies:
        if isinstance(reply, ConfigError):
            raise reply
    return [reply for reply in replies if not isinstance(reply, ConfigError)]
