"""What SQLite's errors mean to whoever asked.

An error before the commit was rolled back, so it is certainly not applied; one in the commit may be.

    busy, until time was up            unreached: no lock, so nothing was decided
    full, before or in the commit      unreached: it was rolled back, and works again once there is room
    any other input or output error    unreached before the commit; unknown in it
    what no retry cures                `ConfigError`: not a database, corrupt, read-only, not to be opened
"""

import os
import sqlite3
from typing import Final

from sluice.core.errors import ConfigError
from sluice.core.requests import Failure, Unknown, Unreached
from sluice.wires.sqlite.place import Place

Fate = type[Unreached] | type[Unknown]

PRIMARY: Final = 0xFF
"""An extended code has the primary one in its lowest byte."""

BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
PASSING: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT})


def code_of(error: sqlite3.Error) -> int:
    """The primary code; what Python's own module raises has none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & PRIMARY


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has the lock that was asked for."""
    return code_of(error) in BUSY


def failure_of(error: sqlite3.Error, place: Place, fate: Fate) -> Failure:
    """The certainty that an error leaves; raises `ConfigError` if no retry cures it.

    ``fate`` is what an error of unclear cause means: unreached before the commit was sent, unknown from then on.
    """
    code, path = code_of(error), str(place.path)
    if code in BUSY:
        return Unreached(f"SQLite file {path!r} stayed locked by others for all of the timeout")
    if code == sqlite3.SQLITE_FULL:
        return Unreached(f"the disk under SQLite file {path!r} is full; make room")
    if code in PASSING:
        why = f"SQLite file {path!r}: {error} ({getattr(error, 'sqlite_errorname', 'no code')})"
        return fate(why)
    if code == sqlite3.SQLITE_CANTOPEN and _could_be_opened(place):
        return Unreached(f"SQLite file {path!r} can't be opened for now: {error}; are there too many open files?")
    raise ConfigError(f"SQLite file {path!r} {_why(code, place)} ({error})") from error


def _could_be_opened(place: Place) -> bool:
    place.make_ready()
    folder_is_ours = os.access(place.path.parent, os.W_OK | os.X_OK)
    return folder_is_ours and (not os.access(place.path, os.F_OK) or os.access(place.path, os.R_OK | os.W_OK))


def _why(code: int, place: Place) -> str:
    match code:
        case sqlite3.SQLITE_NOTADB:
            return "is not a SQLite database; name another file, or move this one away"
        case sqlite3.SQLITE_CORRUPT:
            return "is damaged; stop all processes that use it, then restore it or move it away, and limits start anew"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return "can't be written; let this user write it and its folder, where SQLite keeps two files beside it"
        case sqlite3.SQLITE_CANTOPEN:
            return f"can't be opened; let this user write it and its folder {str(place.path.parent)!r}"
        case _:
            return "can't be used as it is; is something else writing it? Restore it or move it away"
