"""The time by which takes are decided: this host's clock, corrected by the dates on the engine's replies.

    time     = wall clock at the start + steady time since + offset
    offset   = 0, until the replies show that the clock is surely off by more than a second

A date says in which second a reply was written, and the reply was written between our sending and our receiving. So
each reply gives bounds, ``date - received <= engine - here < date + 1 s - sent``; the bounds of several replies are cut
with each other, widened by what a quartz may drift. When even the bound nearer to zero is further than a second from
the offset in use, the middle of the bounds is the new offset. A client that is wrong by an hour is right to within half
a second after one reply; one that is right is never touched.

When the wall clock and the steady clock part by more than a second, somebody has set the clock or the machine slept in
a way that its steady clock did not count. Then nothing is known any more: time starts again at the wall clock, and no
write is sent before the engine was asked for its date. The same holds before the first write of a process. A clock that
is set back never mints: a bucket holds times, not tokens. Without dates on the replies the host's clock is believed.
"""

import logging
import threading
from email.utils import mktime_tz, parsedate_tz
from typing import Final, Protocol

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.events import ClockCorrected
from sluice.core.requests import seconds_up
from sluice.ports import Clock, Observer

TOLERATED_NS: Final = NS_PER_SECOND
"""A clock that may be right to within this is left alone."""

DRIFT_PPM: Final = 500
"""How fast two clocks may run apart, in millionths."""

logger = logging.getLogger("sluice")


class Timepiece(Protocol):
    """What a wire asks of its clock."""

    def now_ns(self) -> int: ...

    def steady_ns(self) -> int: ...

    def unsure(self) -> bool:
        """Whether the engine should be asked for its date before a write is sent."""
        ...

    def observe(self, date: str | None, sent_ns: int, received_ns: int) -> bool:
        """Take note of a reply's date, sent and received by the steady clock; whether the time was corrected."""
        ...

    def check(self) -> None:
        """Raise `ConfigError` if this host's clock is too far off to be used."""
        ...

    def report_to(self, tell: Observer, /) -> None:
        """Tell of corrections from now on."""
        ...


class HostClock:
    """This host's clock, whatever the engine's replies say."""

    def __init__(self, clock: Clock) -> None:
        self.now_ns = clock.now_ns
        self.steady_ns = clock.steady_ns

    def unsure(self) -> bool:
        return False

    def observe(self, date: str | None, sent_ns: int, received_ns: int) -> bool:
        return False

    def check(self) -> None:
        return None

    def report_to(self, tell: Observer, /) -> None:
        return None


class EngineClock:
    """This host's clock, corrected. Used by any number of threads."""

    def __init__(self, clock: Clock, max_skew_ns: int | None = None) -> None:
        self._clock = clock
        self._tell: Observer | None = None
        self._max_skew_ns = max_skew_ns
        self._lock = threading.Lock()
        self._last_date = ("", 0)
        self.steady_ns = clock.steady_ns
        self._start()

    def _start(self) -> None:
        self._base_ns = self._clock.now_ns() - self._clock.steady_ns()
        self._offset_ns = 0
        self._bounds: tuple[int, int] | None = None
        self._bounded_at_ns = 0
        self._asked = False

    def now_ns(self) -> int:
        return self._base_ns + self.steady_ns() + self._offset_ns

    def unsure(self) -> bool:
        self._look_at_the_wall()
        return not self._asked

    def _look_at_the_wall(self) -> None:
        """Begin anew if the wall clock was set."""
        if abs(self._clock.now_ns() - self.steady_ns() - self._base_ns) > TOLERATED_NS:
            with self._lock:
                self._start()

    def observe(self, date: str | None, sent_ns: int, received_ns: int) -> bool:
        with self._lock:
            self._asked = True
            written_ns = self._read(date)
            if written_ns is None:
                return False
            low_ns = written_ns - self._base_ns - received_ns
            high_ns = written_ns + NS_PER_SECOND - self._base_ns - sent_ns
            self._bounds = low_ns, high_ns = self._cut(low_ns, high_ns, received_ns)
            if low_ns - TOLERATED_NS <= self._offset_ns <= high_ns + TOLERATED_NS:
                return False
            before_ns, self._offset_ns = self._offset_ns, (low_ns + high_ns) // 2
            offset_ns = self._offset_ns
        logger.warning(
            "this host's clock is about %.1f s %s the engine's; corrected for this client, and worth setting",
            abs(offset_ns) / NS_PER_SECOND,
            "behind" if offset_ns > 0 else "ahead of",
        )
        if self._tell is not None:
            self._tell(ClockCorrected(offset_ns, offset_ns - before_ns))
        return True

    def report_to(self, tell: Observer, /) -> None:
        self._tell = tell

    def _read(self, date: str | None) -> int | None:
        """When a reply was written. Most replies of a second bear the same date, so the last one is kept."""
        if not date:
            return None
        text, written_ns = self._last_date
        if text != date:
            parsed = parsedate_tz(date)
            if parsed is None:
                return None
            written_ns = mktime_tz(parsed) * NS_PER_SECOND
            self._last_date = (date, written_ns)
        return written_ns

    def _cut(self, low_ns: int, high_ns: int, now_ns: int) -> tuple[int, int]:
        """New bounds, made tighter by the old ones. Bounds that exclude each other: the newer hold."""
        if self._bounds is not None:
            drift_ns = abs(now_ns - self._bounded_at_ns) * DRIFT_PPM // 1_000_000
            tighter_low_ns = max(low_ns, self._bounds[0] - drift_ns)
            tighter_high_ns = min(high_ns, self._bounds[1] + drift_ns)
            if tighter_low_ns <= tighter_high_ns:
                low_ns, high_ns = tighter_low_ns, tighter_high_ns
        self._bounded_at_ns = now_ns
        return low_ns, high_ns

    def check(self) -> None:
        if self._max_skew_ns is None:
            return
        self._look_at_the_wall()
        bounds = self._bounds
        if bounds is None:
            return
        low_ns, high_ns = bounds
        if low_ns > self._max_skew_ns or high_ns < -self._max_skew_ns:
            off_ns = min(abs(low_ns), abs(high_ns))
            raise ConfigError(
                f"this host's clock is at least {seconds_up(off_ns):.1f} s {'behind' if low_ns > 0 else 'ahead of'} "
                f"the engine's, and max_skew allows {seconds_up(self._max_skew_ns):g} s; set the clock (NTP), or leave "
                "max_skew out to have it corrected"
            )
