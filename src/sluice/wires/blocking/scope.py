"""Running flows in the caller's own thread.

Every port used here blocks instead of suspending, so a flow runs to its end in one ``send(None)``. Interruptions
(KeyboardInterrupt, SystemExit, what a signal handler raises) can come between any two steps; what is theirs to undo is
undone at once, and what could not be sent belongs to the keeper by then.
"""

import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import SluiceError
from sluice.ports import Clock
from sluice.wires.process import process_name

LOOK_AGAIN_NS: Final = 10 * NS_PER_SECOND
"""How long a thread waits before it looks for itself: whoever was to give the lock on may have been interrupted."""

T = TypeVar("T")


class BlockingGate:
    """A gate that blocks its thread.

    It is a lock that whoever gets through gives on, rather than a `threading.Event`: that one, interrupted by a signal
    at the wrong moment, raises an error of its own in place of the interruption. (`queue.SimpleQueue` may then wait for
    ever, in CPython 3.11.)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._shut = threading.Lock()
        self._shut.acquire()
        self._opened = threading.Lock()

    def set(self) -> None:
        self._is_set = True
        if self._opened.acquire(blocking=False):
            self._shut.release()

    async def wait(self, deadline_ns: int) -> bool:
        while not self._is_set:
            left_ns = deadline_ns - self._clock.steady_ns()
            if left_ns <= 0:
                return False
            if self._shut.acquire(timeout=min(left_ns, LOOK_AGAIN_NS) / NS_PER_SECOND):
                self._shut.release()
        return True


class BlockingScope:
    """A `Scope` of threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a flow to its end."""
        try:
            work.send(None)
        except StopIteration as ended:
            value: T = ended.value
            return value
        work.close()
        raise RuntimeError("a flow suspended although every port under it blocks")

    async def finish(
        self, work: Coroutine[Any, Any, T], undo: Callable[[], Coroutine[Any, Any, object]] | None = None
    ) -> T:
        try:
            return await work
        except SluiceError:
            raise
        except BaseException:  # whatever else comes out of a flow has interrupted it
            if undo is not None:
                await undo()
            raise

    def gate(self) -> BlockingGate:
        return BlockingGate(self._clock)

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> BlockingGate:
        over = self.gate()

        def body() -> None:
            try:
                self.run(work)
            finally:
                over.set()

        threading.Thread(target=body, name=name, daemon=True).start()
        return over

    def process(self) -> str:
        return process_name()
