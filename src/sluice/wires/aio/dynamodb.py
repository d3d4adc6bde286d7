"""DynamoDB for asyncio, over one aiohttp session of the loop that the client belongs to.

Whatever botocore may block on, resolving the account and refreshing credentials, runs in a thread, once for all tasks
that need it; while credentials that expire soon are refreshed, the old ones are used. The session is closed with the
wire. Connecting and being answered fail in different ways: what was never sent is *unreached*, what was is *unknown*.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.requests import Failure, Unknown, Unreached
from sluice.stores.dynamodb.wire import Call, Reply
from sluice.wires.dynamodb.account import Account, NotResolved, missing_extra
from sluice.wires.dynamodb.letters import (
    CLOCK_CORRECTED,
    IDLE_NS,
    MAX_CONNECTIONS,
    MAX_REPLY_BYTES,
    Desk,
    HttpReply,
    Letter,
    asks_for_time,
    settled,
    trust,
)
from sluice.wires.dynamodb.opening import DynamoOpener, read_opener
from sluice.wires.dynamodb.options import Options
from sluice.wires.dynamodb.signing import Keys
from sluice.wires.dynamodb.skew import Timepiece

try:
    import aiohttp
    from yarl import URL
except ImportError as error:
    raise missing_extra("aiohttp") from error

NO_AUTO_HEADERS: Final = ("Accept", "User-Agent")

logger = logging.getLogger("sluice")


class AioWire:
    """A `Wire` of one event loop."""

    def __init__(self, options: Options, clock: Timepiece, account: Callable[[], Account]) -> None:
        self._options = options
        self._clock = clock
        self._account = account
        self._opening = asyncio.Lock()
        self._office: _Office | None = None

    def now_ns(self) -> int:
        return self._clock.now_ns()

    async def send(self, calls: Sequence[Call], /) -> Sequence[Reply]:
        try:
            office = self._office or await self._open()
            keys = await office.keys()
        except NotResolved as error:
            return [error.failure] * len(calls)
        if asks_for_time(self._clock, calls):
            failure = await office.ask_for_time()
            if failure is not None:
                return [failure] * len(calls)
        self._clock.check()
        if len(calls) == 1:
            return settled([await office.exchange(calls[0], keys)])
        return settled(await asyncio.gather(*[office.exchange(call, keys) for call in calls]))

    async def close(self) -> None:
        office, self._office = self._office, None
        if office is not None:
            await office.close()

    async def _open(self) -> "_Office":
        async with self._opening:
            if self._office is None:
                desk, tls = await asyncio.to_thread(self._resolve)
                self._office = _Office(self._options, desk, tls)
            return self._office

    def _resolve(self) -> tuple[Desk, ssl.SSLContext | None]:
        desk = Desk(self._options, self._account(), self._clock)
        return desk, trust(desk)


class _Office:
    """A desk, and the session that carries its letters."""

    def __init__(self, options: Options, desk: Desk, tls: ssl.SSLContext | None) -> None:
        self._desk = desk
        self._connect_timeout = options.connect_timeout_ns / NS_PER_SECOND
        self._read_timeout = options.read_timeout_ns / NS_PER_SECOND
        self._url = URL(desk.url, encoded=True)
        self._proxy = desk.account.proxy
        self._loop = asyncio.get_running_loop()
        self._asking = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=MAX_CONNECTIONS, keepalive_timeout=IDLE_NS / NS_PER_SECOND, ssl=True if tls is None else tls
            ),
            timeout=aiohttp.ClientTimeout(connect=self._connect_timeout, sock_read=self._read_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=NO_AUTO_HEADERS,
        )

    def __del__(self) -> None:
        """A loop that was closed took the connections along; the session then closes without waiting for any."""
        if self._loop.is_closed():
            with suppress(StopIteration):
                self._session.close().send(None)

    async def keys(self) -> Keys:
        """Credentials. Those about to expire are refreshed beside the calls that still use them."""
        account = self._desk.account
        keys, stale = account.at_hand()
        if keys is None:
            async with self._asking:
                keys, _ = account.at_hand()
                if keys is None:
                    keys = await asyncio.to_thread(account.keys)
            return keys
        if stale and self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(), name="sluice credentials")
        return keys

    async def _refresh(self) -> None:
        try:
            await asyncio.to_thread(self._desk.account.keys)
        except (NotResolved, ConfigError) as error:
            logger.warning("AWS credentials that expire soon could not be refreshed: %s", error)
        finally:
            self._refreshing = None

    async def exchange(self, call: Call, keys: Keys) -> Reply | ConfigError:
        letter = self._desk.seal(call, keys)
        sent_ns = self._desk.clock.steady_ns()
        reply = await self._carried("POST", letter)
        return self._desk.read(reply, sent_ns) if isinstance(reply, HttpReply) else reply

    async def ask_for_time(self) -> Failure | None:
        """Ask the engine for nothing but its date. A failure if the calls that wait for it are to be made anew."""
        sent_ns = self._desk.clock.steady_ns()
        reply = await self._carried("GET", Letter({"Host": self._desk.host}, b""))
        if isinstance(reply, ConfigError):
            raise reply
        if isinstance(reply, HttpReply):
            return CLOCK_CORRECTED if self._desk.read_date(reply, sent_ns) else None
        return Unreached(f"the engine did not say what time it is: {reply.why}")

    async def _carried(self, method: str, letter: Letter) -> HttpReply | Failure | ConfigError:
        try:
            async with self._session.request(
                method, self._url, headers=letter.headers, data=letter.body, allow_redirects=False, proxy=self._proxy
            ) as response:
                if (response.content_length or 0) > MAX_REPLY_BYTES:
                    return Unknown(f"the reply has more than {MAX_REPLY_BYTES} bytes")
                body = await response.read()
                headers = response.headers
                return HttpReply(response.status, headers.get("Date"), headers.get("X-Amz-Crc32"), body)
        except aiohttp.ClientConnectorCertificateError as error:
            return ConfigError(
                f"the certificate of {self._desk.hostname} can't be verified ({error.certificate_error}); name the "
                "bundle to trust in AWS_CA_BUNDLE"
            )
        except aiohttp.ConnectionTimeoutError:
            return Unreached(f"no connection to {self._desk.host} within {self._connect_timeout:g} s")
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
            return Unreached(f"no connection to {self._desk.host} ({error})")
        except aiohttp.SocketTimeoutError:
            return Unknown(f"no answer within {self._read_timeout:g} s")
        except aiohttp.ServerDisconnectedError:
            return Unknown("the connection was closed without an answer")
        except (aiohttp.ClientError, OSError) as error:
            return Unknown(f"the connection broke, or the reply can't be read ({type(error).__name__}: {error})")

    async def close(self) -> None:
        refreshing = self._refreshing
        if refreshing is not None:
            refreshing.cancel()
            await asyncio.wait([refreshing])
        await self._session.close()


def opener(url: str) -> DynamoOpener:
    """Read a URL for the asyncio facade."""
    return read_opener(url, AioWire)
