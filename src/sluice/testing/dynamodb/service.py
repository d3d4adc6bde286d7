"""DynamoDB Local in the background: started by one command, stopped by another, and there for all in between.

What runs is written down in one small file of this user's: process, port and log. The file is only believed if a
process of that number still runs our launcher, so a number that the system has given to somebody else is left alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sluice.core.errors import ConfigError, StoreUnavailable
from sluice.testing.dynamodb.engine import HOST, POLL, STOP_TIMEOUT, awaited_port, launched
from sluice.testing.dynamodb.install import installed

LAUNCHED: Final = "Launcher detached"
"""What the command line of a process that we started contains."""


@dataclass(frozen=True, slots=True)
class Running:
    """An engine in the background."""

    pid: int
    port: int
    log: str

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://{HOST}:{self.port}"


class Service:
    """The engine that this folder's file speaks of; by default the one of this user."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _state_folder()

    def start(self, port: int = 0) -> Running:
        """Start it at a port, 0 for any that is free; if it runs already, say where."""
        with self._alone():
            running = self._running()
            if running is not None:
                if port not in {0, running.port}:
                    raise ConfigError(
                        f"DynamoDB Local was asked for at port {port}, and runs at {running.port}; stop that one first"
                    )
                return running
            log = self._folder / "dynamodb-local.log"
            process = launched(installed(), "detached", port, log, stdin=subprocess.DEVNULL)
            running = Running(process.pid, awaited_port(process, log), str(log))
            self._note.write_text(json.dumps(asdict(running)))
            process.returncode = 0  # it outlives us on purpose: nobody here waits for it
            return running

    def stop(self) -> Running | None:
        """Stop it and wait until it is gone; what was stopped, or None if nothing ran."""
        with self._alone():
            running = self._running()
            if running is not None:
                _end(running.pid)
            self._note.unlink(missing_ok=True)
            return running

    def status(self) -> Running | None:
        """What runs, if anything does."""
        with self._alone():
            return self._running()

    @property
    def _note(self) -> Path:
        return self._folder / "dynamodb-local.json"

    def _running(self) -> Running | None:
        try:
            running = Running(**json.loads(self._note.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self._note} can't be read: {error}; remove it") from error
        return running if LAUNCHED in _command_line(running.pid) else None

    @contextmanager
    def _alone(self) -> Generator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / "dynamodb-local.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except PermissionError as error:
            raise ConfigError(f"nothing can be kept in {self._folder}: {error}; set XDG_STATE_HOME") from error


def _state_folder() -> Path:
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(root) / "sluice"


def _command_line(pid: int) -> str:
    """What a process runs; empty if there is none, or only what is left of one that has ended."""
    done = subprocess.run(  # noqa: S603 - fixed arguments
        ["ps", "-ww", "-o", "stat=,args=", "-p", str(pid)],  # noqa: S607 - wherever the system keeps it
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    state, _, command = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else command


def _end(pid: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        until = time.monotonic() + STOP_TIMEOUT
        while time.monotonic() < until:
            if LAUNCHED not in _command_line(pid):
                return
            time.sleep(POLL)
    raise StoreUnavailable(f"process {pid} does not end, even when killed; look at it with ps")
