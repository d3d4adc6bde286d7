"""Where a SQLite file is: read from a URL, checked when it is first used.

    sqlite:///relative/path.db                  relative to where the process is when the client is made
    sqlite:////absolute/path.db
    sqlite:///quota.db?synchronous=full         every commit is on the disk before it is answered; "normal" by default

With "normal" a crash of the machine, not of a process, may lose what was taken in its last moments; the file stays
intact. Characters that mean something in a URL are written as in any URL: ``%3F`` for a question mark, ``%25`` for a
per cent sign.

Reading does no I/O. A folder that is missing is an error, since a typing error must not split the limits in two; only
the folder of a user's own default file is made when it is first needed.
"""

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from sluice.core.errors import ConfigError
from sluice.wires.sqlite.mounts import refuse_network

SYNCHRONOUS: Final = ("normal", "full")

EXAMPLE: Final = "write for example 'sqlite:///quota.db' or 'sqlite:////var/lib/app/quota.db'"


@dataclass(frozen=True, slots=True)
class Place:
    """A file, by its absolute path, and how carefully it is written."""

    path: Path
    synchronous: str = SYNCHRONOUS[0]

    def make_ready(self) -> None:
        """See to it that the file can be opened or made there, or raise `ConfigError`."""
        folder = self.path.parent
        if self._is_default():
            _make(folder)
        file = f"SQLite file {str(self.path)!r}"
        try:
            found = stat.S_ISDIR(folder.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            found = False
        except OSError as error:
            raise ConfigError(
                f"{file}: its folder can't be reached: {error.strerror}; let this user enter it"
            ) from error
        if not found:
            raise ConfigError(f"{file}: there is no folder {str(folder)!r}; make it, or correct the URL")
        refuse_network(self.path)
        if os.path.isdir(self.path):  # noqa: PTH112 - it answers where Path.is_dir() raises
            raise ConfigError(f"{file}: that is a folder; name a file in it")

    def identity(self) -> tuple[int, int] | None:
        """Which file is there now; None if there is none."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - asked before each transaction
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _is_default(self) -> bool:
        try:
            return self.path == default_file()
        except ConfigError:  # a user without a home has no default file
            return False


def read_url(url: str) -> Place:
    """The place that a URL names; raises `ConfigError` for one that names none."""
    parts = urlsplit(url)
    if parts.netloc:
        raise ConfigError(f"store URL {url!r}: a SQLite file is on this host, so three slashes come first; {EXAMPLE}")
    if parts.fragment:
        raise ConfigError(f"store URL {url!r}: '#' starts a part that means nothing here; in a path it is written %23")
    path = unquote(parts.path.removeprefix("/"))
    if path in {"", ":memory:"}:
        raise ConfigError(
            f"store URL {url!r} names no file that processes could share; {EXAMPLE}, or 'memory://' for this process's "
            "own memory"
        )
    if "\0" in path:
        raise ConfigError(f"store URL {url!r}: a path has no null character; {EXAMPLE}")
    return Place(Path(os.path.abspath(path)), _synchronous(url, parts.query))  # noqa: PTH100 - resolve() would do I/O


def _synchronous(url: str, query: str) -> str:
    found = SYNCHRONOUS[0]
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "synchronous":
            raise ConfigError(f"store URL {url!r}: there is no option {name!r}; the one option is synchronous=full")
        found = value.lower()
        if found not in SYNCHRONOUS:
            raise ConfigError(f"store URL {url!r}: synchronous is 'normal' (the default) or 'full', not {value!r}")
    return found


def default_file() -> Path:
    """A file of this user's, where the system keeps such things."""
    return _data_folder() / "sluice" / "sluice.db"


def default_url() -> str:
    """The URL of that file."""
    return f"sqlite:///{quote(default_file().as_posix(), safe='/:')}"


def _data_folder() -> Path:
    try:
        home = Path.home()
    except RuntimeError as error:
        raise ConfigError(
            "this user has no home folder for a file of its own; name a store, or set $SLUICE_URL"
        ) from error
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    named = os.environ.get("XDG_DATA_HOME", "")
    return Path(named) if os.path.isabs(named) else home / ".local" / "share"  # noqa: PTH117 - "" is no path


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"folder {str(folder)!r}, for this user's own limits, can't be made: {error.strerror}; name a store, or "
            "set $SLUICE_URL"
        ) from error
