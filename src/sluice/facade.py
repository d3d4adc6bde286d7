"""What both facades share: how a client is made, once a process, and all of a lease that needs no I/O."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, Self, TypeVar

from sluice.core.errors import ConfigError
from sluice.core.names import check_name
from sluice.core.requests import seconds_up
from sluice.flow.client import Client, Settings
from sluice.flow.lease import Lease as LeaseState
from sluice.ports import Clock, Observer, Scope
from sluice.wires.clock import SystemClock
from sluice.wires.opening import Opener, default_url


class _Making:
    """The lock under which clients are made. One that another thread held at a fork is never released in the child."""

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = threading.Lock()


_making = _Making()

_inherited: list[Client] = []
"""What a forked child got from its parent: kept, so that nothing in there is closed under the parent's feet."""

S = TypeVar("S", bound=Scope)
Kinds = type[BaseException] | tuple[type[BaseException], ...]


class MakeOpener(Protocol):
    """Reads a URL: `sluice.wires.opening.blocking` or its asyncio twin."""

    def __call__(self, url: str, /) -> Opener: ...


class Facade(Generic[S]):
    """Arguments, read and kept; and this process's client, made on first use."""

    _read_url: MakeOpener
    _url: str
    _opener: Opener
    _settings: Settings
    _observer: Observer | None
    _clock: Clock
    _client: Client | None
    _scope: S

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "default",
        timeout: float = 2.0,
        on_unavailable: str = "closed",
        config_ttl: float = 60,
        observer: Observer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._url = default_url() if url is None else url
        self._opener = type(self)._read_url(self._url)
        self._settings = Settings.read(
            namespace,
            timeout,
            on_unavailable,
            config_ttl,
            max_retries=os.environ.get("SLUICE_MAX_RETRIES"),
            lease_ttl=os.environ.get("SLUICE_LEASE_TTL"),
        )
        if observer is not None and not callable(observer):
            raise ConfigError(f"observer is called with each event, and {observer!r} can't be called")
        if clock is not None and not (hasattr(clock, "now_ns") and hasattr(clock, "steady_ns")):
            raise ConfigError(
                f"clock has now_ns() and steady_ns(), as ManualClock of sluice.testing; {clock!r} has not"
            )
        self._observer = observer
        self._clock = SystemClock() if clock is None else clock
        self._client = None
        self._scope = self._make_scope(self._clock)

    def _make_scope(self, clock: Clock) -> S:
        raise NotImplementedError

    def _here(self) -> Client:
        """The client that belongs where this runs; after a fork the child gets one of its own."""
        client = self._client
        if client is not None and self._belongs(client):
            return client
        with _making.lock:
            client = self._client
            if client is None or not self._belongs(client):
                client = self._client = self._make(client)
            return client

    def _belongs(self, client: Client) -> bool:
        """Whether a client may be used where this runs."""
        return client.process == self._scope.process()

    def _make(self, before: Client | None) -> Client:
        """A client for this process. One that came with a fork stays as it is: its connections are the parent's."""
        if before is not None:
            _inherited.append(before)
        self._scope = self._make_scope(self._clock)
        store = self._opener(self._clock, self._scope, self._settings.timeout_ns)
        return Client(store, self._clock, self._scope, random.Random(), self._settings, observer=self._observer)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r}, namespace={self._settings.namespace!r})"

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} can't be pickled or copied: it belongs to this process; make one there")

    def namespace(self, name: str) -> Self:
        """The same client for another namespace of the store: nothing crosses from one to the other."""
        other = type(self)(self._url, clock=self._clock, observer=self._observer)
        other._opener = self._opener
        other._settings = self._settings.for_namespace(check_name(name, "namespace"))
        return other

    def refresh(self) -> None:
        """Forget what configuration was read, so that the next take reads it anew."""
        if self._client is not None:
            self._client.configuration.refresh()


def check_reactions(refund_on: Kinds, on_lost: Callable[[], object] | None) -> None:
    """Refuse what could only fail at a lease's end, when it is too late."""
    kinds = refund_on if isinstance(refund_on, tuple) else (refund_on,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise ConfigError(f"refund_on is a class of exceptions or a tuple of them, not {refund_on!r}")
    if on_lost is not None and not callable(on_lost):
        raise ConfigError(f"on_lost is called without arguments when a lease is lost, and {on_lost!r} can't be called")


def together(amounts: Mapping[str, int] | None, named: Mapping[str, int]) -> dict[str, int]:
    """Amounts given as a mapping, as keywords, or both."""
    if amounts is not None and not isinstance(amounts, Mapping):
        raise ConfigError(f"give amounts by limit, as in {{'openai#tpm': 500}} or tpm=500; got {amounts!r}")
    return {**(amounts or {}), **named}


class LeaseView:
    """A lease as its holder sees it, as far as no I/O is needed."""

    def __init__(
        self,
        state: LeaseState,
        refund_on: Kinds,
        on_lost: Callable[[], object] | None,
    ) -> None:
        self._state = state
        self._refund_on = refund_on
        state.on_lost = on_lost

    def _refunds(self, error: BaseException | None) -> bool:
        return error is not None and isinstance(error, self._refund_on)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._state.id} {self._state.standing}>"

    def __reduce__(self) -> str:
        raise TypeError(
            f"lease {self._state.id} can't be pickled or copied, because this process holds it; pass its id"
        )

    @property
    def id(self) -> str:
        """The id under which the store knows it: sorts by time, and says which host and process it was made in."""
        return self._state.id

    @property
    def lost(self) -> bool:
        """Whether its slots may be somebody else's by now. Look before anything that must not happen twice."""
        return self._state.lost

    @property
    def degraded(self) -> bool:
        """Whether it was let through uncounted because the store was unavailable."""
        return self._state.degraded

    @property
    def starts_in(self) -> float:
        """Seconds until its turn comes, 0 once it has; above 0 only for leases from ``reserve``."""
        return seconds_up(self._state.starts_in_ns())

    def settle(self, amounts: Mapping[str, int] | None = None, /, **totals: int) -> None:
        """Say what it truly cost, as totals by limit. No I/O; may be called often, the last call counts.

        The difference to what was taken is given back or owed when the lease ends, however it ends.
        """
        self._state.settle(together(amounts, totals))
