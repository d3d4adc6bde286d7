"""One client in one process: its ports, its settings, and what it remembers between calls.

A fork makes a new process, so the facades make a new client there; nothing in here crosses it. When an event loop has
died and work goes on in another, the client moves there.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sluice.core.bounds import MAX_TTL_NS, NS_PER_HOUR, NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.events import Event, RateClamped
from sluice.core.limit_text import parse_duration_ns
from sluice.core.names import check_name
from sluice.core.requests import Denied, Granted, Take
from sluice.flow.ask import seconds_ns
from sluice.flow.configure import Configuration
from sluice.flow.keeper import Keeper
from sluice.flow.line import Lines
from sluice.flow.room import Room
from sluice.ports import Reporting

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice.core.names import BucketKey
    from sluice.ports import Clock, Observer, Scope, Store

MAX_TIMEOUT_NS: Final = 60 * NS_PER_SECOND
MAX_RETRIES_DIGITS: Final = 6

logger = logging.getLogger("sluice")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user sets once for a client."""

    namespace: str = "default"
    timeout_ns: int = 2 * NS_PER_SECOND
    fail_open: bool = False
    config_ttl_ns: int = 60 * NS_PER_SECOND
    max_retries: int | None = None
    lease_ttl_ns: int | None = None

    @classmethod
    def read(
        cls,
        namespace: str,
        timeout: float,
        on_unavailable: str,
        config_ttl: float,
        *,
        max_retries: str | None = None,
        lease_ttl: str | None = None,
    ) -> Settings:
        """Read the arguments of a facade and what the environment says; seconds become nanoseconds and bounds hold."""
        if not isinstance(on_unavailable, str) or on_unavailable not in {"closed", "open"}:
            raise ConfigError(f"on_unavailable is 'closed' (raise) or 'open' (let through), not {on_unavailable!r}")
        timeout_ns = seconds_ns(timeout, "timeout", most_ns=MAX_TIMEOUT_NS)
        if timeout_ns < NS_PER_MS:
            raise ConfigError(f"timeout must be at least a millisecond, got {timeout!r}")
        return cls(
            check_name(namespace, "namespace"),
            timeout_ns,
            on_unavailable == "open",
            seconds_ns(config_ttl, "config_ttl", most_ns=NS_PER_HOUR),
            _max_retries(max_retries),
            _lease_ttl_ns(lease_ttl),
        )

    def for_namespace(self, name: str) -> Settings:
        return replace(self, namespace=name)


def _max_retries(text: str | None) -> int | None:
    """``SLUICE_MAX_RETRIES``: how often a call is tried again at most; unset or empty: until the timeout."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_RETRIES_DIGITS):
        raise ConfigError(f"SLUICE_MAX_RETRIES is a whole number from 0, not {text!r}; unset it to bound only the time")
    return int(text)


def _lease_ttl_ns(text: str | None) -> int | None:
    """``SLUICE_LEASE_TTL``: how long slots live when a take names no ttl; unset or empty: as their limit says."""
    if not text:
        return None
    try:
        ttl_ns = parse_duration_ns(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)
    except ConfigError:
        ttl_ns = 0
    if not 0 < ttl_ns <= MAX_TTL_NS:
        raise ConfigError(f"SLUICE_LEASE_TTL is a time such as 60s or 5min, at most seven days, not {text!r}")
    return ttl_ns


class Client:
    """The ports and the memory that all flows of one client share."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        scope: Scope,
        rng: random.Random,
        settings: Settings,
        *,
        observer: Observer | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.scope = scope
        self.rng = rng
        self.settings = settings
        self.process = scope.process()
        self._observer = observer
        self.folding: set[BucketKey] = set()
        self.configuration = Configuration(self)
        self.lines = Lines(scope)
        self.room = Room()
        self.keeper = Keeper(self)
        self._listen()

    def move_to(self, store: Store, scope: Scope) -> None:
        """Go on over another store and scope, those before are dead: what was read and is pending comes along."""
        self.store, self.scope = store, scope
        self.folding.clear()
        self.lines = Lines(scope)
        self.keeper = self.keeper.heir()
        self._listen()

    def _listen(self) -> None:
        if isinstance(self.store, Reporting):
            self.store.report_to(self.tell)

    def tell(self, event: Event) -> None:
        observer = self._observer
        if observer is not None:
            self.call(lambda: observer(event))

    def call(self, theirs: Callable[[], object]) -> None:
        """Call what a user gave us. Whatever it raises is logged: it must not cost a slot or stop the keeper."""
        try:
            theirs()
        except Exception:
            logger.exception("an observer or on_lost callback raised")

    def report(self, take: Take, outcome: Granted | Denied) -> None:
        """Tell of rates that had to be pulled back."""
        for name in outcome.clamped:
            key = next(part.key for part in take.parts for charge in part.charges if charge.name == name)
            self.tell(RateClamped(key.resource, key.entity, name))

    async def sleep(self, duration_ns: int) -> None:
        await self.scope.gate().wait(self.clock.steady_ns() + duration_ns)

    async def close(self) -> None:
        """Finish what is pending, bounded in time, and stop."""
        await self.keeper.close()
        await self.store.close()
