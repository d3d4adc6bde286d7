"""The blocking facade: every method runs a flow to its end in the caller's thread."""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from sluice.core.entities import Entity
from sluice.core.errors import SluiceError
from sluice.core.levels import Resolved
from sluice.core.limits import Limit
from sluice.core.requests import Denied, Need
from sluice.facade import Facade, Kinds, LeaseView, check_reactions, together
from sluice.flow import acquire as taking
from sluice.flow import namespaces, report, survey
from sluice.flow.ask import read_ask, read_turn
from sluice.flow.client import Client
from sluice.flow.configure import StoredLimits
from sluice.flow.lease import Lease as LeaseState
from sluice.flow.report import Usage
from sluice.flow.survey import HeldLease, Repairs, Standing
from sluice.ports import Clock, Scope
from sluice.wires.blocking.scope import BlockingScope
from sluice.wires.opening import blocking

T = TypeVar("T")

logger = logging.getLogger("sluice")


class RunningScope(Scope, Protocol):
    """A scope that can run a flow from outside of it."""

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


@runtime_checkable
class BlockingClock(Protocol):
    """A clock that brings its own way of waiting, such as the manual clock of `sluice.testing`."""

    def blocking_scope(self) -> RunningScope: ...


class Lease(LeaseView):
    """What a granted take returns: use it as a context manager, or call `release` yourself.

    It owns its slots until it is released or lapses. Leaving the block tells the store, once, what was settled and that
    the slots are free; if the store can't be reached then, the keeper goes on trying and the block does not raise.
    """

    def __init__(self, state: LeaseState, scope: RunningScope, refund_on: Kinds, on_lost: Any) -> None:
        super().__init__(state, refund_on, on_lost)
        self._scope = scope

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.run(self._state.end(refund=self._refunds(error)))

    def adjust(self, amounts: Mapping[str, int] | None = None, /, **deltas: int) -> None:
        """Owe more (above 0) or give back (below 0) at once."""
        self._scope.run(self._state.adjust(together(amounts, deltas)))

    def more(self, needs: Mapping[str, int] | None = None, /, **amounts: int) -> None:
        """Take more of its limits, or raise `RateLimited`. What it takes ends with the lease."""
        self._scope.run(taking.more(self._state, together(needs, amounts)))

    def renew(self) -> None:
        """Renew its slots now, or raise `LeaseLost`. The keeper does so by itself unless ``keep_alive=False``."""
        self._scope.run(self._state.renew())

    def release(self) -> None:
        """End it: slots go back, what was settled is settled. Raises if the store can't be told."""
        self._scope.run(self._state.end_by_hand(refund=False))

    def refund(self) -> None:
        """End it as if nothing had been used: everything goes back. Raises if the store can't be told."""
        self._scope.run(self._state.end_by_hand(refund=True))


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
"""Those of this process and, after a fork, its parent's."""


@atexit.register
def _close_all() -> None:
    """When the interpreter ends, tell the stores what is still pending; bounded in time."""
    for client in list(_clients):
        if client.process == client.scope.process():
            try:
                _run(client.scope, client.close())
            except SluiceError as error:  # the others are told all the same
                logger.warning("at the end of the interpreter, a store could not be told what is pending: %s", error)


def _run(scope: Scope, work: Coroutine[Any, Any, T]) -> T:
    running: Any = scope
    value: T = running.run(work)
    return value


class Sluice(Facade[RunningScope]):
    """Share limits with every process that uses the same store.

    >>> sluice = Sluice("memory://")
    >>> sluice.set_limits("openai", [Limit("rpm", "500/min"), Limit("concurrent", "32 slots ttl 60s")])
    >>> with sluice.acquire("openai") as lease:
    ...     lease.lost
    False

    Making one does no I/O and binds neither a loop nor a process, so it may be made at import. ``url`` defaults to
    ``$SLUICE_URL``, else to a SQLite file of the user's. ``timeout`` bounds each operation on the store, in seconds.
    With ``on_unavailable="open"`` takes are let through, marked ``degraded``, while the store is unavailable.
    Configuration is cached for ``config_ttl`` seconds. ``observer`` is called with every event.
    """

    _read_url = staticmethod(blocking)

    def _make_scope(self, clock: Clock) -> RunningScope:
        return clock.blocking_scope() if isinstance(clock, BlockingClock) else BlockingScope(clock)

    def _make(self, before: Client | None) -> Client:
        client = super()._make(before)
        _clients.add(client)
        return client

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._scope.run(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is pending, within seconds, and let go of the store. It can be used again afterwards."""
        client = self._client
        if client is not None and self._belongs(client):
            self._client = None
            self._scope.run(client.close())

    # --- asking ---

    def acquire(
        self,
        resource: str | Sequence[Need],
        need: Mapping[str, int] | None = None,
        *,
        entity: str = "*",
        wait: float = 0,
        ttl: float | None = None,
        keep_alive: bool = True,
        refund_on: Kinds = (),
        headroom: float = 0.0,
        lease_id: str | None = None,
        limits: Sequence[Limit] | None = None,
        on_lost: Callable[[], object] | None = None,
    ) -> Lease:
        """Take what a call needs, or raise `RateLimited`; with ``wait``, after so many seconds at most `WaitTimeout`.

        ``need`` gives the amounts that differ from the limits' default costs. ``resource`` may be ``"openai#rpm"`` for
        one limit alone, or a list of `Need`: all of it is taken or nothing. ``entity`` is who consumes; left out, it is
        the bucket that everyone shares. ``ttl`` is how long slots live unless renewed, ``keep_alive=False`` leaves the
        renewing to you. An exception of a kind in ``refund_on`` gives everything back. ``headroom=0.2`` leaves a fifth
        of each limit to others. While a take with this ``lease_id`` holds slots, the same again is that take, and one
        for other slots is a `Conflict`; without slots an id means nothing to the store. ``limits`` counts by other
        limits than those stored, for this take only. ``on_lost`` is called once the keeper, or ``renew``, finds that
        its slots have lapsed.

        One rate of one bucket is waited for in turn: first come, first served, across all processes. Whatever else is
        waited for, slots above all, is asked for again: in order within a process, with luck between processes.
        """
        ask = read_ask(
            resource,
            need,
            entity=entity,
            wait=wait,
            ttl=ttl,
            keep_alive=keep_alive,
            headroom=headroom,
            lease_id=lease_id,
            limits=limits,
        )
        check_reactions(refund_on, on_lost)
        client = self._here()
        return Lease(self._run(taking.acquire(client, ask)), self._scope, refund_on, on_lost)

    def try_acquire(
        self,
        resource: str | Sequence[Need],
        need: Mapping[str, int] | None = None,
        *,
        entity: str = "*",
        wait: float = 0,
        ttl: float | None = None,
        keep_alive: bool = True,
        refund_on: Kinds = (),
        headroom: float = 0.0,
        lease_id: str | None = None,
        limits: Sequence[Limit] | None = None,
        on_lost: Callable[[], object] | None = None,
    ) -> Lease | Denied:
        """Like `acquire`, but a denial is returned: it is false, and says when to ask again."""
        ask = read_ask(
            resource,
            need,
            entity=entity,
            wait=wait,
            ttl=ttl,
            keep_alive=keep_alive,
            headroom=headroom,
            lease_id=lease_id,
            limits=limits,
        )
        check_reactions(refund_on, on_lost)
        client = self._here()
        outcome = self._run(taking.try_acquire(client, ask))
        return outcome if isinstance(outcome, Denied) else Lease(outcome, self._scope, refund_on, on_lost)

    def reserve(
        self,
        resource: str,
        need: Mapping[str, int] | None = None,
        *,
        entity: str = "*",
        within: float = 3600,
        limits: Sequence[Limit] | None = None,
    ) -> Lease:
        """Take a turn of one rate, ``within`` seconds at most, without sleeping: come back in ``lease.starts_in``.

        A pause that comes later does not move it: who must not start in one looks with ``peek`` first.
        """
        ask = read_turn(resource, need, entity=entity, within=within, limits=limits)
        client = self._here()
        return Lease(self._run(taking.acquire(client, ask)), self._scope, (), None)

    def peek(self, resource: str, *, entity: str = "*") -> Standing:
        """How the limits stand that a take counts against, the entity's own and its ancestors'. Takes nothing."""
        return self._run(survey.peek(self._here(), resource, entity))

    def pause(self, resource: str, seconds: float, *, entity: str = "*") -> None:
        """Grant nothing for so long, because the vendor said so; those who wait are shifted, not bunched."""
        self._run(survey.pause(self._here(), resource, seconds, entity))

    def repair(self, resource: str, *, entity: str = "*") -> Repairs:
        """Take back what a host whose clock was far ahead has left behind: rates and pauses that would last for hours,
        slots that would never lapse. What is in order stays as it is.
        """
        return self._run(survey.repair(self._here(), resource, entity))

    def leases(self, resource: str | None = None, *, entity: str | None = None) -> list[HeldLease]:
        """Who holds slots, and since when."""
        return self._run(survey.leases(self._here(), resource, entity))

    def usage(
        self,
        resource: str,
        *,
        entity: str = "*",
        since: float | None = None,
        until: float | None = None,
        window: str = "hour",
    ) -> list[Usage]:
        """What was used of a resource's limits, by the ``"hour"``, ``"day"`` or ``"month"`` (UTC).

        ``since`` and ``until`` are seconds since the epoch; left out, it is the last day until now. The hours that they
        fall into are counted whole.
        """
        return self._run(report.usage(self._here(), resource, entity, since=since, until=until, window=window))

    # --- limits ---

    def set_limits(
        self, resource: str | None, limits: Sequence[Limit], *, entity: str | None = None, expect: str | None = None
    ) -> None:
        """Set the limits of a level, all of them at once: a resource, an entity on it, an entity's default (``None`` as
        resource), or the system (neither). The first level that has any wins whole, in the order entity and resource,
        entity, resource, system.

        A resource's limits hold for each entity by itself. ``expect`` is the version to be replaced, ``""`` if there
        must be none yet; another one there raises `Conflict`.
        """
        self._run(self._here().configuration.set_limits(resource, limits, entity=entity, expect=expect))

    def get_limits(self, resource: str | None, *, entity: str | None = None) -> StoredLimits | None:
        """The limits set at a level, with their version; None if there are none."""
        return self._run(self._here().configuration.get_limits(resource, entity=entity))

    def delete_limits(self, resource: str | None, *, entity: str | None = None, expect: str | None = None) -> None:
        """Remove the limits of a level; the next one that has any takes over."""
        self._run(self._here().configuration.delete_limits(resource, entity=entity, expect=expect))

    def resolve_limits(self, resource: str, *, entity: str = "*") -> Resolved:
        """The limits in force for an entity on a resource, and the level that they come from."""
        return self._run(self._here().configuration.resolve_limits(resource, entity=entity))

    def resources(self) -> list[str]:
        """The resources that limits are set for, for everybody or for one entity."""
        return self._run(self._here().configuration.resources())

    # --- entities ---

    def create_entity(
        self,
        entity_id: str,
        parent: str | None = None,
        *,
        cascade: bool = False,
        metadata: Mapping[str, object] | None = None,
    ) -> Entity:
        """Make an entity known; needed only for a parent or metadata. With ``cascade`` its takes count against all of
        its ancestors too, all or nothing. ``"*"`` may be a parent: what everyone shares.
        """
        configuration = self._here().configuration
        return self._run(configuration.create_entity(entity_id, parent=parent, cascade=cascade, metadata=metadata))

    def get_entity(self, entity_id: str) -> Entity | None:
        """An entity's record; None if it has none."""
        return self._run(self._here().configuration.get_entity(entity_id))

    def entities(self, parent: str | None = None) -> list[Entity]:
        """All entities that have a record, or the children of one."""
        return self._run(self._here().configuration.entities(parent))

    def move_entity(self, entity_id: str, parent: str | None) -> Entity:
        """Give an entity another parent, or none."""
        return self._run(self._here().configuration.move_entity(entity_id, parent))

    def delete_entity(self, entity_id: str) -> None:
        """Remove an entity's record. Limits set for it, and its buckets, stay."""
        self._run(self._here().configuration.delete_entity(entity_id))

    # --- namespaces ---

    def namespaces(self) -> list[str]:
        """The names of all namespaces in the store."""
        return self._run(namespaces.namespaces(self._here()))

    def purge_namespace(self, name: str) -> None:
        """Delete everything in a namespace. Takes as long as caches may still know it, so a minute or so."""
        self._run(namespaces.purge_namespace(self._here(), name))
