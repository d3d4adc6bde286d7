"""DynamoDB Local as a child of this process, on loopback, at a free port.

It ends with whoever holds the other end of its standard input: when `LocalEngine.stop` is called, when this process
exits, and also when it is killed, because the system then closes that end. Several processes that share an engine each
hold an end (`LocalEngine.shared`), and it goes when the last of them has gone.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sluice.core.errors import StoreUnavailable
from sluice.testing.dynamodb.install import LAST_LINES, Installed, installed

HOST: Final = "127.0.0.1"

START_TIMEOUT: Final = 60.0
"""Seconds from the start of the process to its first answer; two or three on an idle machine."""

STOP_TIMEOUT: Final = 10.0
ANSWER_TIMEOUT: Final = 5.0
POLL: Final = 0.02

_LISTENING = re.compile(r"^listening on (\d+)$", re.MULTILINE)


@dataclass
class LocalEngine:
    """An engine that runs; stop it, or leave the ``with`` block."""

    port: int
    _alive: IO[bytes]
    _process: subprocess.Popen[bytes] | None = None
    _log: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://{HOST}:{self.port}"

    @classmethod
    def start(cls) -> LocalEngine:
        """Start an engine for this process alone, installing it first if need be."""
        ready = installed()
        folder = tempfile.TemporaryDirectory(prefix="sluice-dynamodb-")
        log = Path(folder.name) / "log"
        reading, writing = os.pipe()
        alive = os.fdopen(writing, "wb", buffering=0)
        try:
            process = launched(ready, "attached", 0, log, stdin=reading)
            port = awaited_port(process, log)
        except BaseException:
            alive.close()
            folder.cleanup()
            raise
        finally:
            os.close(reading)
        return cls(port, alive, process, folder)

    @classmethod
    def shared(cls, folder: Path) -> LocalEngine:
        """The engine of all processes that name this folder, started by the first of them."""
        folder.mkdir(parents=True, exist_ok=True)
        pipe, note = folder / "alive", folder / "port"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not pipe.exists():
                os.mkfifo(pipe, 0o600)
            # Opened without waiting for a writer; the engine then reads it as it would any other input.
            reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                alive = pipe.open("wb", buffering=0)
                os.set_blocking(reading, True)
                try:
                    process = None
                    if not (note.exists() and answers(int(note.read_text()))):
                        process = launched(installed(), "attached", 0, folder / "log", stdin=reading)
                        note.write_text(str(awaited_port(process, folder / "log")))
                except BaseException:
                    alive.close()
                    raise
            finally:
                os.close(reading)
            return cls(int(note.read_text()), alive, process)

    def stop(self) -> None:
        """Let go of it. It ends now, or, if others share it, with the last of them."""
        self._alive.close()
        if self._process is not None and self._log is not None:
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._log.cleanup()
        elif self._process is not None:
            self._process.returncode = self._process.poll() or 0  # others may go on with it: nobody waits for it here

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def launched(ready: Installed, kind: str, port: int, log: Path, *, stdin: int) -> subprocess.Popen[bytes]:
    """Start the launcher in a process group of its own, so that a Ctrl-C meant for us does not reach it."""
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - a program found on PATH, with arguments of our own
            ready.command(kind, str(port)), stdin=stdin, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def awaited_port(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port at which a launched engine listens, once it answers there; one that never does is ended."""
    until = time.monotonic() + START_TIMEOUT
    try:
        return _awaited_port(process, log, until)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _awaited_port(process: subprocess.Popen[bytes], log: Path, until: float) -> int:
    while time.monotonic() < until:
        found = _LISTENING.search(log.read_text(errors="replace"))
        if found and answers(int(found[1])):
            return int(found[1])
        if process.poll() is not None:
            raise StoreUnavailable(f"DynamoDB Local ended with exit status {process.returncode}:\n{_last_lines(log)}")
        time.sleep(POLL)
    raise StoreUnavailable(f"DynamoDB Local did not answer within {START_TIMEOUT:g} s:\n{_last_lines(log)}")


def answers(port: int) -> bool:
    """Whether an engine answers at this port of loopback."""
    try:
        reply = asked(port, "ListTables", {"Limit": 1})
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return "TableNames" in reply


def asked(port: int, operation: str, body: dict[str, object]) -> dict[str, object]:
    """One plain call; the engine takes any credentials."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_TIMEOUT)
    try:
        connection.request("POST", "/", json.dumps(body), headers(operation))
        reply: dict[str, object] = json.loads(connection.getresponse().read())
        return reply
    finally:
        connection.close()


def headers(operation: str) -> dict[str, str]:
    """What the engine wants to see of a request that nobody signed."""
    return {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        "Authorization": "AWS4-HMAC-SHA256 Credential=local/20000101/local/dynamodb/aws4_request, "
        "SignedHeaders=host, Signature=none",
    }


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
