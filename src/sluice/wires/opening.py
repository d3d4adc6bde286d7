"""From a URL to a store.

    memory://                           this process's own memory
    sqlite:///relative/path.db          a file, relative to where the process runs
    sqlite:////absolute/path.db         a file
    dynamodb://table?region=eu-west-1   a table; see `sluice.wires.dynamodb.options`

Opening does no I/O; each process and each kind of facade gets a store of its own, on its first use. An engine has a
module of its own in each kind of wires, with a function ``opener`` that reads its URLs; it is imported when a URL first
names it, so nobody needs the drivers, or the event loop, of what is not used.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Final, Protocol
from urllib.parse import urlencode, urlsplit

from sluice.core.errors import ConfigError
from sluice.ports import Clock, Scope, Store
from sluice.stores.memory import MemoryState, MemoryStore
from sluice.wires.sqlite.place import default_url as own_file_url


class Opener(Protocol):
    """Makes the store behind a URL, for one process. ``timeout_ns`` bounds each operation on it."""

    def __call__(self, clock: Clock, scope: Scope, timeout_ns: int, /) -> Store: ...


ENGINES: Final = ("memory", "sqlite", "dynamodb")
"""The schemes, which are also the names of the modules that read them."""


def blocking(url: str) -> Opener:
    """Read a URL for the blocking facade; raises `ConfigError` for one that names no store."""
    return _read(url, "sluice.wires.blocking")


def asynchronous(url: str) -> Opener:
    """Read a URL for the asyncio facade; raises `ConfigError` for one that names no store."""
    return _read(url, "sluice.wires.aio")


def default_url() -> str:
    """``$SLUICE_URL``, else table ``$SLUICE_TABLE_NAME`` at ``$SLUICE_ENDPOINT_URL``, else a file of this user's."""
    table = os.environ.get("SLUICE_TABLE_NAME")
    from_table = dynamodb_url(table, endpoint=os.environ.get("SLUICE_ENDPOINT_URL")) if table else None
    return os.environ.get("SLUICE_URL") or from_table or own_file_url()


def dynamodb_url(table: str, *, region: str | None = None, endpoint: str | None = None) -> str:
    """The URL of a table."""
    given = {name: value for name, value in (("region", region), ("endpoint", endpoint)) if value}
    return f"dynamodb://{table}{'?' if given else ''}{urlencode(given, safe=':/')}"


def _read(url: str, wires: str) -> Opener:
    if not isinstance(url, str):
        raise ConfigError(f"a store is named by a URL such as 'sqlite:///quota.db', not {url!r}")
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise ConfigError(
            f"store URL {url!r} can't be read: {error}; write for example 'sqlite:///quota.db'"
        ) from error
    if scheme == "memory":
        return _memory(url)
    if scheme not in ENGINES:
        schemes = ", ".join(f"{name}://" for name in sorted(ENGINES))
        raise ConfigError(f"store URL {url!r} starts with none of {schemes}; write for example 'sqlite:///quota.db'")
    read: Callable[[str], Opener] = import_module(f"{wires}.{scheme}").opener
    return read(url)


def _memory(url: str) -> Opener:
    if url != "memory://":
        raise ConfigError(f"store URL {url!r}: memory has no options, write 'memory://'")
    state = MemoryState()
    locks: dict[str, AbstractContextManager[object]] = {}  # one a process: another thread may hold it during a fork
    return lambda clock, scope, _: MemoryStore(clock, locks.setdefault(scope.process(), scope.lock()), state)
