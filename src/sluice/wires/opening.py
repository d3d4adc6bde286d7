"""From a URL to a store.

    memory://                           this process's own memory
    sqlite:///relative/path.db          a file, relative to where the process runs
    sqlite:////absolute/path.db         a file

Opening does no I/O; each process and each kind of facade gets a store of its own, on its first use.
"""

import os
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from sluice.core.errors import ConfigError
from sluice.ports import Clock, Scope, Store
from sluice.stores.memory import MemoryState, MemoryStore


class Opener(Protocol):
    """Makes the store behind a URL, for one process."""

    def __call__(self, clock: Clock, scope: Scope, /) -> Store: ...


def blocking(url: str) -> Opener:
    """Read a URL for the blocking facade; raises `ConfigError` for one that names no store."""
    return _read(url, {"memory": _memory})


def asynchronous(url: str) -> Opener:
    """Read a URL for the asyncio facade; raises `ConfigError` for one that names no store."""
    return _read(url, {"memory": _memory})


def default_url() -> str:
    """``$SLUICE_URL``, else a file of this user's."""
    return os.environ.get("SLUICE_URL") or "memory://"


def _read(url: str, known: Mapping[str, Callable[[str], Opener]]) -> Opener:
    if not isinstance(url, str):
        raise ConfigError(f"a store is named by a URL such as 'sqlite:///quota.db', not {url!r}")
    scheme = urlsplit(url).scheme
    if scheme not in known:
        schemes = ", ".join(f"{name}://" for name in sorted(known))
        raise ConfigError(f"store URL {url!r} starts with none of {schemes}; write for example 'sqlite:///quota.db'")
    return known[scheme](url)


def _memory(url: str) -> Opener:
    if url != "memory://":
        raise ConfigError(f"store URL {url!r}: memory has no options, write 'memory://'")
    state = MemoryState()
    return lambda clock, scope: MemoryStore(clock, scope.lock(), state)
