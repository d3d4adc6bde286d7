"""No SQLite connection crosses a fork.

A child would inherit what its parent's SQLite remembers of its locks, without the locks: the next process to open the
file could cut short what the child is using. So this process's connections are closed before it forks, between two
transactions, and each side opens its own when it next needs one. (Starting another program is no fork in this sense.)

A fork that Python is not told of, by a server written in C, can't be prepared. Its child is refused, with an error that
says so, and the connection it got is never touched.
"""

import os
import sqlite3
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sluice.core.errors import ConfigError


class Forkable(Protocol):
    """Something that has a connection and can be without one for a while."""

    def before_fork(self) -> None: ...
    def after_fork_in_parent(self) -> None: ...
    def after_fork_in_child(self) -> None: ...


@dataclass(eq=False, frozen=True, slots=True)
class Opened:
    """A connection, and the process that opened it: nobody else may use or close it."""

    connection: sqlite3.Connection
    path: Path
    pid: int

    def close(self) -> None:
        if self.pid == os.getpid():
            self.connection.close()
            _opened.discard(self)


_opened: set[Opened] = set()
"""All open connections, held here so that one which belongs to another process is never closed by being forgotten."""

_forkables: weakref.WeakSet[Forkable] = weakref.WeakSet()


def keep(connection: sqlite3.Connection, path: Path) -> Opened:
    """Note a connection as this process's own."""
    opened = Opened(connection, path, os.getpid())
    _opened.add(opened)
    return opened


def refuse_inherited(path: Path) -> None:
    """Raise `ConfigError` if this process was forked with a connection to that file open."""
    pid = os.getpid()
    if any(opened.pid != pid and opened.path == path for opened in list(_opened)):
        raise ConfigError(
            f"this process was forked while its parent had SQLite file {str(path)!r} open, and Python was not told; "
            "let the server load the application after it forks, or don't use limits before"
        )


class _Forking:
    """Forks one at a time, each with all connections closed."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.RLock()
        self._prepared: list[list[Forkable]] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
            )

    def watch(self, forkable: Forkable) -> None:
        _forkables.add(forkable)

    def _before(self) -> None:
        self._one_at_a_time.acquire()
        self._prepared.append(list(_forkables))
        for forkable in self._prepared[-1]:
            forkable.before_fork()

    def _after_in_parent(self) -> None:
        for forkable in self._prepared.pop():
            forkable.after_fork_in_parent()
        self._one_at_a_time.release()

    def _after_in_child(self) -> None:
        for forkable in self._prepared.pop():
            forkable.after_fork_in_child()
        self._one_at_a_time = threading.RLock()


forking = _Forking()
