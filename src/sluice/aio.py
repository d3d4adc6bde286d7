"""The asyncio facade: every method awaits a flow. Names, parameters and docstrings are those of `sluice.sync`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from sluice.core.entities import Entity
from sluice.core.errors import ConfigError
from sluice.core.levels import Resolved
from sluice.core.limits import Limit
from sluice.core.requests import Denied, Need
from sluice.facade import Facade, Kinds, LeaseView, check_reactions, together
from sluice.flow import acquire as taking
from sluice.flow import namespaces, report, survey
from sluice.flow.ask import Ask, read_ask, read_turn
from sluice.flow.client import Client
from sluice.flow.configure import StoredLimits
from sluice.flow.report import Usage
from sluice.flow.survey import HeldLease, Repairs, Standing
from sluice.ports import Clock, Scope
from sluice.sync import Lease, Sluice
from sluice.wires.aio.scope import AioScope
from sluice.wires.opening import asynchronous

M = TypeVar("M")


class DrainingScope(Scope, Protocol):
    """A scope that can be waited for."""

    async def drain(self) -> None: ...


@runtime_checkable
class AsyncClock(Protocol):
    """A clock that brings its own way of waiting, such as the manual clock of `sluice.testing`."""

    def async_scope(self) -> DrainingScope: ...


def _as(blocking: object) -> Callable[[M], M]:
    """Give a method the docstring of its blocking twin."""

    def mark(method: M) -> M:
        method.__doc__ = blocking.__doc__
        return method

    return mark


class AsyncLease(LeaseView):
    """What a granted take returns: use it with ``async with``, or await `release` yourself."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._state.end(refund=self._refunds(error))

    @_as(Lease.adjust)
    async def adjust(self, amounts: Mapping[str, int] | None = None, /, **deltas: int) -> None:
        await self._state.adjust(together(amounts, deltas))

    @_as(Lease.more)
    async def more(self, needs: Mapping[str, int] | None = None, /, **amounts: int) -> None:
        await taking.more(self._state, together(needs, amounts))

    @_as(Lease.renew)
    async def renew(self) -> None:
        await self._state.renew()

    @_as(Lease.release)
    async def release(self) -> None:
        await self._state.end_by_hand(refund=False)

    @_as(Lease.refund)
    async def refund(self) -> None:
        await self._state.end_by_hand(refund=True)


class Acquiring(Coroutine[Any, Any, AsyncLease]):
    """A take that has not been sent yet: await it for the lease, use it with ``async with``, or make a task of it.

    Once, as any coroutine; and as of any other, Python warns of one that nobody awaited and that took nothing.
    """

    def __init__(self, taking: Coroutine[Any, Any, AsyncLease]) -> None:
        self._taking = taking
        self._lease: AsyncLease | None = None

    def send(self, value: Any, /) -> Any:
        return self._taking.send(value)

    def throw(self, *error: Any) -> Any:
        return self._taking.throw(*error)

    def close(self) -> None:
        self._taking.close()

    def __await__(self) -> Generator[Any, Any, AsyncLease]:
        return self._taking.__await__()

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._taking
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            await self._lease.__aexit__(kind, error, trace)


class AsyncSluice(Facade[DrainingScope]):
    """`Sluice` for asyncio: the same methods, awaited.

    ``await sluice.acquire(...)`` gives a lease, ``async with sluice.acquire(...) as lease`` gives and ends one. Making
    one binds no loop; it belongs to the loop in which it is used until that is closed, and then to the next. One made
    at import serves every ``asyncio.run``; two loops at once are refused. Close it with `aclose`, or ``async with``:
    an event loop that is torn down cancels what is being sent, and what is pending then waits for the next loop.
    """

    _read_url = staticmethod(asynchronous)
    _loop: asyncio.AbstractEventLoop | None = None

    def _make_scope(self, clock: Clock) -> DrainingScope:
        return clock.async_scope() if isinstance(clock, AsyncClock) else AioScope(clock)

    def _belongs(self, client: Client) -> bool:
        return super()._belongs(client) and self._loop is asyncio.get_running_loop()

    def _make(self, before: Client | None) -> Client:
        loop = asyncio.get_running_loop()
        if before is None or not super()._belongs(before):
            client = super()._make(before)
        elif self._loop is not None and not self._loop.is_closed():
            raise ConfigError(
                f"{self!r} is in use in another event loop, which is still open; await its aclose() there first, or "
                "make one for each loop"
            )
        else:
            client = before
            self._scope = self._make_scope(self._clock)
            client.move_to(self._opener(self._clock, self._scope, self._settings.timeout_ns), self._scope)
        self._loop = loop
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish what is pending, within seconds, and let go of the store. It can be used again afterwards."""
        if self._client is None or not super()._belongs(self._client):
            return
        client, scope = self._here(), self._scope
        self._client = None
        await client.keeper.close()
        await scope.drain()  # what was cancelled is still being finished and undone
        await client.close()
        await scope.drain()

    # --- asking ---

    @_as(Sluice.acquire)
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
    ) -> Acquiring:
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
        return Acquiring(self._acquire(ask, refund_on, on_lost))

    async def _acquire(self, ask: Ask, refund_on: Kinds, on_lost: Callable[[], object] | None) -> AsyncLease:
        return AsyncLease(await taking.acquire(self._here(), ask), refund_on, on_lost)

    @_as(Sluice.try_acquire)
    async def try_acquire(
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
    ) -> AsyncLease | Denied:
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
        outcome = await taking.try_acquire(self._here(), ask)
        return outcome if isinstance(outcome, Denied) else AsyncLease(outcome, refund_on, on_lost)

    @_as(Sluice.reserve)
    async def reserve(
        self,
        resource: str,
        need: Mapping[str, int] | None = None,
        *,
        entity: str = "*",
        within: float = 3600,
        limits: Sequence[Limit] | None = None,
    ) -> AsyncLease:
        ask = read_turn(resource, need, entity=entity, within=within, limits=limits)
        return AsyncLease(await taking.acquire(self._here(), ask), (), None)

    @_as(Sluice.peek)
    async def peek(self, resource: str, *, entity: str = "*") -> Standing:
        return await survey.peek(self._here(), resource, entity)

    @_as(Sluice.pause)
    async def pause(self, resource: str, seconds: float, *, entity: str = "*") -> None:
        await survey.pause(self._here(), resource, seconds, entity)

    @_as(Sluice.repair)
    async def repair(self, resource: str, *, entity: str = "*") -> Repairs:
        return await survey.repair(self._here(), resource, entity)

    @_as(Sluice.leases)
    async def leases(self, resource: str | None = None, *, entity: str | None = None) -> list[HeldLease]:
        return await survey.leases(self._here(), resource, entity)

    @_as(Sluice.usage)
    async def usage(
        self,
        resource: str,
        *,
        entity: str = "*",
        since: float | None = None,
        until: float | None = None,
        window: str = "hour",
    ) -> list[Usage]:
        return await report.usage(self._here(), resource, entity, since=since, until=until, window=window)

    # --- limits ---

    @_as(Sluice.set_limits)
    async def set_limits(
        self, resource: str | None, limits: Sequence[Limit], *, entity: str | None = None, expect: str | None = None
    ) -> None:
        await self._here().configuration.set_limits(resource, limits, entity=entity, expect=expect)

    @_as(Sluice.get_limits)
    async def get_limits(self, resource: str | None, *, entity: str | None = None) -> StoredLimits | None:
        return await self._here().configuration.get_limits(resource, entity=entity)

    @_as(Sluice.delete_limits)
    async def delete_limits(
        self, resource: str | None, *, entity: str | None = None, expect: str | None = None
    ) -> None:
        await self._here().configuration.delete_limits(resource, entity=entity, expect=expect)

    @_as(Sluice.resolve_limits)
    async def resolve_limits(self, resource: str, *, entity: str = "*") -> Resolved:
        return await self._here().configuration.resolve_limits(resource, entity=entity)

    @_as(Sluice.resources)
    async def resources(self) -> list[str]:
        return await self._here().configuration.resources()

    # --- entities ---

    @_as(Sluice.create_entity)
    async def create_entity(
        self,
        entity_id: str,
        parent: str | None = None,
        *,
        cascade: bool = False,
        metadata: Mapping[str, object] | None = None,
    ) -> Entity:
        configuration = self._here().configuration
        return await configuration.create_entity(entity_id, parent=parent, cascade=cascade, metadata=metadata)

    @_as(Sluice.get_entity)
    async def get_entity(self, entity_id: str) -> Entity | None:
        return await self._here().configuration.get_entity(entity_id)

    @_as(Sluice.entities)
    async def entities(self, parent: str | None = None) -> list[Entity]:
        return await self._here().configuration.entities(parent)

    @_as(Sluice.move_entity)
    async def move_entity(self, entity_id: str, parent: str | None) -> Entity:
        return await self._here().configuration.move_entity(entity_id, parent)

    @_as(Sluice.delete_entity)
    async def delete_entity(self, entity_id: str) -> None:
        await self._here().configuration.delete_entity(entity_id)

    # --- namespaces ---

    @_as(Sluice.namespaces)
    async def namespaces(self) -> list[str]:
        return await namespaces.namespaces(self._here())

    @_as(Sluice.purge_namespace)
    async def purge_namespace(self, name: str) -> None:
        await namespaces.purge_namespace(self._here(), name)
