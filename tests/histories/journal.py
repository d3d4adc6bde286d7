"""What a process did with a store, on a file that survives it.

    made      a call and its request, before it is sent
    read      each time that the store reads from the clock it was given, before it gets it
    over      the answer

Each is one write to a file opened for appending, so `kill -9` at any moment leaves whole records, but perhaps the last.
A call that never read the time was not decided. One without an answer was decided, if at all, at a time read after it
was made. All times are of one clock that every process of the host shares.
"""

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from sluice.core.requests import BucketOutcome, BucketRequest, Unknown, Unreached
from tests.histories.linearize import NEVER_NS
from tests.histories.model import Recorded

_LENGTH_BYTES: Final = 4

_EPOCH_NS: Final = 1_800_000_000_000_000_000
"""Added to the monotonic clock, so that times look like wall time."""


def now_ns() -> int:
    """The host's time: the same in every process, and it never goes back."""
    return _EPOCH_NS + time.monotonic_ns()


class Journal:
    """One process's records. It is also the clock of the store that is watched."""

    def __init__(self, path: Path, after_reading: Callable[[], None] = lambda: None) -> None:
        self._after_reading = after_reading
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._numbers = iter(range(1 << 62))
        self._lock = threading.Lock()

    def made(self, request: BucketRequest) -> int:
        with self._lock:
            number = next(self._numbers)
        self._note(("made", number, now_ns(), request))
        return number

    def over(self, number: int, outcome: BucketOutcome | Unknown | Unreached) -> None:
        self._note(("over", number, now_ns(), outcome))

    def now_ns(self) -> int:
        """The `Clock` port."""
        read_ns = now_ns()
        self._note(("read", 0, read_ns, None))
        self._after_reading()
        return read_ns

    def steady_ns(self) -> int:
        return time.monotonic_ns()

    def _note(self, record: tuple[str, int, int, object]) -> None:
        frame = pickle.dumps(record)
        os.write(self._file, len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)


def read_journal(path: Path, dead_ns: int = NEVER_NS) -> list[Recorded]:
    """The calls of a process that was gone at ``dead_ns``. What surely was not applied is left out."""
    made: dict[int, tuple[int, BucketRequest, int]] = {}
    reads: list[int] = []
    calls = []
    for kind, number, at_ns, what in _records(path):
        if kind == "made":
            made[number] = (at_ns, what, len(reads))
        elif kind == "read":
            reads.append(at_ns)
        elif isinstance(what, Unreached):
            del made[number]
        elif not isinstance(what, Unknown):
            made_ns, request, first = made.pop(number)
            calls.append(Recorded(request, made_ns, at_ns, what, tuple(reads[first:])))
    doubtful = [
        Recorded(request, at_ns, dead_ns, None, tuple(reads[first:])) for at_ns, request, first in made.values()
    ]
    return calls + [call for call in doubtful if call.read_ns]


def _records(path: Path) -> Iterator[tuple[str, int, int, Any]]:
    written = path.read_bytes()
    start = 0
    while start + _LENGTH_BYTES <= len(written):
        end = start + _LENGTH_BYTES + int.from_bytes(written[start : start + _LENGTH_BYTES], "big")
        if end > len(written):
            return
        yield pickle.loads(written[start + _LENGTH_BYTES : end])
        start = end
