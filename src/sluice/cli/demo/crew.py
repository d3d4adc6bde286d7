"""The processes of the demo: started, heard, killed and stopped.

Each is a fresh interpreter in a session of its own, so that Ctrl-C reaches only the parent. One thread a process reads
its notes into one queue, another what it says on stderr. Leaving the block kills whoever is left and waits for them; if
the parent itself is killed, they see their stdin end and leave.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

LAST_WORDS: Final = 2_000
"""Characters of a process's stderr that are kept."""

END_S: Final = 5.0
"""How long a killed process may take to be gone."""


def module(name: str) -> list[str]:
    """The command that runs a module in a fresh interpreter."""
    return [sys.executable, "-m", name]


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that a process said; None as facts: it will say nothing more."""

    who: str
    facts: dict[str, Any] | None


class Crew:
    """Processes, by name."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []
        self._last_words: dict[str, str] = {}
        self._killed: set[str] = set()
        self._notes: queue.SimpleQueue[Note] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(END_S)
        for thread in self._threads:
            thread.join(END_S)
        for process in self._processes.values():
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def start(self, who: str, command: Sequence[str], order: dict[str, Any]) -> None:
        """Start a process and tell it what to do."""
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._processes[who] = process
        for read in (self._read_notes, self._read_last_words):
            thread = threading.Thread(target=read, args=(who, process), name=f"demo {who}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.tell(who, order)

    def tell(self, who: str, order: dict[str, Any]) -> None:
        """Send one line. A process that is gone already shows by its exit status."""
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(order), file=self._processes[who].stdin, flush=True)

    def hear(self, timeout_s: float) -> list[Note]:
        """All notes that have come; waits so long for the first."""
        notes = []
        with contextlib.suppress(queue.Empty):
            notes.append(self._notes.get(timeout=timeout_s))
            while True:
                notes.append(self._notes.get_nowait())
        return notes

    def kill(self, who: str) -> None:
        """End a process without a warning, and return when it is gone for certain."""
        self._killed.add(who)
        self._processes[who].kill()
        self._processes[who].wait(END_S)

    def failures(self) -> dict[str, str]:
        """What the processes that have ended badly had to say last; not those that were killed on purpose."""
        failed = {}
        for who, process in self._processes.items():
            status = process.poll()
            if status and who not in self._killed:
                words = self._last_words.get(who, "").strip()
                failed[who] = words.splitlines()[-1] if words else f"exit status {status}"
        return failed

    def _read_notes(self, who: str, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            if line.endswith("\n"):  # the last line of a killed process may be cut off
                self._notes.put(Note(who, json.loads(line)))
        process.wait()
        self._notes.put(Note(who, None))

    def _read_last_words(self, who: str, process: subprocess.Popen[str]) -> None:
        for line in process.stderr or ():
            self._last_words[who] = (self._last_words.get(who, "") + line)[-LAST_WORDS:]
