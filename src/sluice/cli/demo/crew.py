"""The processes of the demo: started, heard, killed and stopped.

Each worker is a fresh interpreter in a session of its own, so that Ctrl-C reaches only the parent. One thread a worker
reads its notes into one queue. Leaving the block kills whoever is left and waits for them; if the parent itself is
killed, the workers see their stdin end and leave.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

WORKER: Final = "sluice.cli.demo.worker"

LAST_WORDS: Final = 2_000
"""Characters of a worker's stderr that are kept."""

END_S: Final = 5.0
"""How long a killed process may take to be gone."""


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that a worker said; None as facts: it will say nothing more."""

    worker: int
    facts: dict[str, Any] | None


class Crew:
    """Workers, numbered from 1."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []
        self._last_words: dict[int, str] = {}
        self._killed: set[int] = set()
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

    def start(self, number: int, order: dict[str, Any]) -> None:
        """Start a worker and tell it what to do."""
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._processes[number] = process
        for read in (self._read_notes, self._read_last_words):
            thread = threading.Thread(target=read, args=(number, process), name=f"demo worker {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.tell(number, order)

    def tell(self, number: int, order: dict[str, Any]) -> None:
        """Send one line. A worker that is gone already shows by its exit status."""
        stdin = self._processes[number].stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(order), file=stdin, flush=True)

    def hear(self, timeout_s: float) -> list[Note]:
        """All notes that have come; waits so long for the first."""
        notes = []
        with contextlib.suppress(queue.Empty):
            notes.append(self._notes.get(timeout=timeout_s))
            while True:
                notes.append(self._notes.get_nowait())
        return notes

    def kill(self, number: int) -> None:
        """End a worker without a warning, and return when it is gone for certain."""
        self._killed.add(number)
        self._processes[number].kill()
        self._processes[number].wait(END_S)

    def failures(self) -> dict[int, str]:
        """What the workers that have ended badly had to say last; not those that were killed on purpose."""
        failed = {}
        for number, process in self._processes.items():
            status = process.poll()
            if status and number not in self._killed:
                words = self._last_words.get(number, "").strip()
                failed[number] = words.splitlines()[-1] if words else f"exit status {status}"
        return failed

    def _read_notes(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # the last line of a killed process may be cut off
                self._notes.put(Note(number, json.loads(line)))
        process.wait()
        self._notes.put(Note(number, None))

    def _read_last_words(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._last_words[number] = (self._last_words.get(number, "") + line)[-LAST_WORDS:]
