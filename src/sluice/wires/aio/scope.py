"""Running flows on asyncio.

``finish`` runs its work in a task of its own, so cancelling the caller does not cancel what was sent: the caller goes
on waiting for it, then the undo is sent, then the cancellation is raised. Tasks are kept until they end, so none is
collected half-way; `drain` waits for them when the client closes.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from sluice.core.bounds import NS_PER_SECOND
from sluice.ports import Clock
from sluice.wires.process import process_name

T = TypeVar("T")


class AioGate:
    """A gate that suspends its task. Set from the loop's own thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, deadline_ns: int) -> bool:
        while not self._event.is_set():
            left_ns = deadline_ns - self._clock.steady_ns()
            if left_ns <= 0:
                await asyncio.sleep(0)
                return self._event.is_set()
            try:
                async with asyncio.timeout(left_ns / NS_PER_SECOND):
                    await self._event.wait()
            except TimeoutError:
                continue  # the loop's clock may stand still while the machine is suspended: look at ours again
        return True


class AioScope:
    """A `Scope` of asyncio tasks, on one loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(
        self, work: Coroutine[Any, Any, T], undo: Callable[[], Coroutine[Any, Any, object]] | None = None
    ) -> T:
        task = self._start(work)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            return task.result()
        if undo is not None:
            await self.finish(undo())
        if not task.cancelled():
            task.exception()  # it is not lost: whoever cancels wants no answer
        raise cancelled

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def gate(self) -> AioGate:
        return AioGate(self._clock)

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> AioGate:
        over = self.gate()
        task = self._start(work)
        task.set_name(name)
        task.add_done_callback(lambda _: over.set())
        return over

    def process(self) -> str:
        return process_name()

    async def drain(self) -> None:
        """Wait for everything that was started to end."""
        others = self._tasks - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)
