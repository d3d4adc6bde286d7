"""The system's clocks."""

import time
from collections.abc import Callable


def _steady_clock() -> Callable[[], int]:
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return time.monotonic_ns
    return lambda: time.clock_gettime_ns(boottime)


class SystemClock:
    """Wall time, and a steady clock that goes on while the machine is suspended where the system has one."""

    def __init__(self) -> None:
        self._steady = _steady_clock()

    def now_ns(self) -> int:
        return time.time_ns()

    def steady_ns(self) -> int:
        return self._steady()
