"""Whatever interrupts a lease, and wherever: what was settled is settled, slots are free or lapse, nothing leaks.

Every step is tried in turn: each call to the store, before and after it was applied; each wait; under asyncio each
suspension, once and again. A run that comes through without having been interrupted ends the list.
"""

from __future__ import annotations

import asyncio
import gc
import linecache
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from dis import opname
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import sluice
from sluice import Limit
from tests.facade.kit import Api, opened, raises

LIMITS = [Limit("tpd", "1000 per 300day"), Limit("concurrent", "4 slots ttl 60s")]
MAX_STEPS = 400


class Interrupted(BaseException):
    """What a signal handler may raise at any time."""


@pytest.fixture(autouse=True)
def cheap_collections() -> Iterator[None]:
    """Dropped leases are collected after each of many runs, without looking at all that the other tests left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


WAYS = ["joint", "in order", "side by side"]
"""How a take of several buckets is sent: to a store that decides it at once, or bucket by bucket, or all together."""


def scene(api: Api, *entities: str, way: str = "joint") -> None:
    """Half of the limit is used up, so that what is given back too often would show."""
    api.sluice.set_limits("openai", LIMITS)
    for entity in entities:
        api.sluice.create_entity(entity, "*", cascade=True)
        if way == "side by side":  # buckets that are known to have room to spare
            api.sluice.acquire("openai", entity=entity).refund()
    api.rival.acquire("openai#tpd", {"tpd": 500})
    api.rival.refresh()
    api.store.calls.clear()


def free_later(api: Api, entity: str = "*") -> int:
    """What is left of the daily limit once everything has come home or lapsed; slots are all free by then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    api.store.heal()
    api.advance(70)
    assert api.live("openai", entity) == 0
    return api.free("openai", "tpd", entity)


class Use:
    """One use of a lease, and how far it came."""

    def __init__(self) -> None:
        self.held = False
        self.settled = False
        self.over = False


SETTLED = 40
TAKEN = 100


def check(api: Api, use: Use, *entities: str) -> None:
    """What may be left after a use that was interrupted: between what it took and what it settled, on every bucket."""
    for entity, full in (("*", 500), *((name, 1000) for name in entities)):
        left = free_later(api, entity)
        most = full - SETTLED if use.settled else full
        assert full - TAKEN <= left <= most, (entity, left, vars(use))
        if use.over:
            assert left == full - SETTLED


# --- blocking: at every call, and at every wait ---


def use_blocking(api: Api, use: Use, **options: Any) -> None:
    with api.sluice.acquire("openai", {"tpd": TAKEN}, **options) as lease:
        use.held = True
        lease.settle(tpd=SETTLED)
        use.settled = True
    use.over = True


def at_calls(applied: bool, again: bool | None) -> Iterator[Callable[[Api], None]]:
    for number in range(1, MAX_STEPS):

        def arm(api: Api, number: int = number) -> None:
            api.store.at[number] = raises(Interrupted(), applied=applied)
            if again is not None:
                api.store.at[number + 1] = raises(Interrupted(), applied=again)

        yield arm


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("again", [None, False, True])
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("entity", ["*", "acme"])
def test_an_interruption_at_any_call_keeps_what_was_settled_and_leaks_nothing(
    entity: str, applied: bool, again: bool | None, way: str
) -> None:
    entities = () if entity == "*" else (entity,)
    interrupted = 0
    for arm in at_calls(applied, again):
        with opened("blocking", joint=way == "joint") as api:
            scene(api, *entities, way=way)
            arm(api)
            use = Use()
            try:
                use_blocking(api, use, entity=entity)
            except Interrupted:
                interrupted += 1
                if again is None:
                    assert api.live("openai") == 0  # slots are given back at once: they need not lapse
                if use.settled and again is None and not applied:
                    # The end was interrupted before anything had happened: it is sent all the same.
                    assert free_later(api) == 500 - SETTLED
                check(api, use, *entities)
            else:
                check(api, use, *entities)
                assert interrupted >= 2
                return
    pytest.fail("every run was interrupted")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("resource", ["openai", "openai#tpd"])
def test_an_interruption_at_any_moment_of_a_wait_takes_nothing(resource: str, again: bool) -> None:
    for tenth in range(1, 60):
        with opened("blocking") as api:
            scene(api)
            held, wait = busy(api, resource)
            before = api.bucket("openai")

            def interrupt() -> None:
                if again:
                    for call in ("settle", "release"):
                        api.store.next[call].append(raises(Interrupted()))
                raise Interrupted

            api.clock.after(tenth / 10, interrupt)
            with pytest.raises(Interrupted):
                api.sluice.acquire(resource, {"tpd": 10}, wait=wait)
            assert api.bucket("openai").slots == before.slots
            if not again:  # a turn whose giving up was interrupted stays spent
                assert api.bucket("openai").rates == before.rates
            assert api.sluice._client.lines._lines == {}
            held.release()


def busy(api: Api, resource: str) -> tuple[Any, float]:
    """Have somebody else hold what there is of a resource, and how long to wait for it."""
    if resource == "openai":
        return api.rival.acquire("openai#concurrent", {"concurrent": 4}, keep_alive=False), 30
    api.rival.set_limits("openai", [Limit("tpd", "1000/hour"), LIMITS[1]])
    api.sluice.refresh()
    return api.rival.acquire("openai#tpd", {"tpd": 500}), 3000


def test_interruptions_of_a_take_never_leave_the_keeper_dead() -> None:
    for number in range(1, 8):
        with opened("blocking") as api:
            scene(api)
            api.store.at[number] = raises(Interrupted(), applied=True)
            with suppress(Interrupted):
                use_blocking(api, Use())
            api.store.heal()
            with api.sluice.acquire("openai") as lease:
                api.advance(600)
                assert not lease.lost
            assert api.live("openai") == 0


# --- blocking: wherever a signal can strike ---

SLUICE = Path(sluice.__file__).parent
FOREGROUND = tuple(str(SLUICE / name) for name in ("flow", "sync.py", "facade.py", "wires"))
"""What runs in the caller's thread. The keeper has one of its own, where no signal strikes."""

MAX_STRIKES = 20_000


class Strike:
    """Raises once, at the so-many-th point of Sluice's own foreground code at which Python looks for signals: a call.

    Except the call that leaves a ``with``: Python does not look between the end of its body and the release of a lock.
    """

    def __init__(self, number: int) -> None:
        self.left = number
        self._background = 0

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_name == "_turn":  # the manual clock runs background work from here
            self._background += 1
            return self._in_background
        if self._background or not frame.f_code.co_filename.startswith(FOREGROUND):
            return None
        frame.f_trace_opcodes = True
        return self._in_foreground

    def _in_background(self, _frame: FrameType, event: str, _: object) -> Any:
        self._background -= event == "return"
        return self._in_background

    def _in_foreground(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if event == "opcode" and opname[code.co_code[frame.f_lasti]].startswith("CALL"):
            line = linecache.getline(code.co_filename, frame.f_lineno).lstrip()
            if code.co_name != "__del__" and not line.startswith("with "):
                self.left -= 1
                if self.left == 0:
                    sys.settrace(None)
                    raise Interrupted
        return self._in_foreground


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("way", WAYS)
def test_an_interruption_anywhere_leaks_nothing_and_leaves_the_client_usable(way: str) -> None:
    for number in range(1, MAX_STRIKES):
        with opened("blocking", joint=way == "joint") as api:
            scene(api, "acme", way=way)
            use = Use()
            strike = Strike(number)
            with suppress(Interrupted), strike:
                use_blocking(api, use, entity="acme")
            check(api, use, "acme")
            with api.sluice.acquire("openai", entity="acme", wait=1) as lease:
                api.advance(65)
                assert not lease.lost, number
            assert api.live("openai") == 0, number
            if strike.left > 0:
                assert number > 200
                return
    pytest.fail("every run was interrupted")


# --- asyncio: at every suspension ---


class _Counted:
    """Runs a coroutine and calls ``before`` ahead of each of its steps, with the number of the step."""

    def __init__(self, work: Coroutine[Any, Any, Any], cancel_at: set[int]) -> None:
        self._work = work
        self._cancel_at = cancel_at
        self.steps = 0
        self.cancelled = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine = self._work.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = coroutine.send(sent) if error is None else coroutine.throw(error)
            except StopIteration as ended:
                return ended.value
            sent, error = None, None
            self.steps += 1
            if self.steps in self._cancel_at:
                self.cancelled += 1
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                sent = yield waits_for
            except BaseException as thrown:
                error = thrown


async def use_async(sluice: Any, use: Use, **options: Any) -> None:
    async with sluice.acquire("openai", {"tpd": TAKEN}, **options) as lease:
        use.held = True
        lease.settle(tpd=SETTLED)
        use.settled = True
    use.over = True


@pytest.mark.parametrize("again", [None, 1, 2, 5])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("entity", ["*", "acme"])
def test_cancelling_at_any_await_keeps_what_was_settled_and_leaks_nothing(
    entity: str, way: str, again: int | None
) -> None:
    entities = () if entity == "*" else (entity,)
    for step in range(1, MAX_STEPS):
        with opened("asyncio", joint=way == "joint") as api:
            scene(api, *entities, way=way)
            api.store.suspends = True
            use = Use()
            counted = _Counted(
                use_async(api.sluice._it, use, entity=entity), {step} if again is None else {step, step + again}
            )

            async def run(counted: _Counted = counted) -> bool:
                task = asyncio.ensure_future(_awaiting(counted))
                await asyncio.wait([task])
                return task.cancelled()

            was_cancelled = api.run(run())
            api.store.suspends = False
            if was_cancelled:
                assert not use.over
                if use.settled:  # its end is finished all the same, before the cancellation is raised
                    assert api.live("openai") == 0
                    assert api.free("openai", "tpd") == 500 - SETTLED
                else:
                    assert api.live("openai") == 0
                    assert free_later(api) == 500
            check(api, use, *entities)
            if counted.cancelled == 0:
                assert step > 2
                return
    pytest.fail("every run was cancelled")


async def _awaiting(counted: _Counted) -> None:
    await counted


@pytest.mark.parametrize("resource", ["openai", "openai#tpd"])
def test_cancelling_a_wait_gives_the_turn_or_the_place_back(resource: str) -> None:
    for tenth in range(1, 60):
        with opened("asyncio") as api:
            scene(api)
            held, wait = busy(api, resource)
            before = api.bucket("openai")

            async def run(tenth: int = tenth, wait: float = wait) -> None:
                task = asyncio.ensure_future(_acquire(api.sluice._it, resource, wait))
                api.clock.after(tenth / 10, task.cancel)
                with pytest.raises(asyncio.CancelledError):
                    await task

            api.run(run())
            assert (api.bucket("openai").rates, api.bucket("openai").slots) == (before.rates, before.slots)
            assert api.sluice._it._client.lines._lines == {}
            held.release()


async def _acquire(sluice: Any, resource: str, wait: float) -> None:
    await sluice.acquire(resource, {"tpd": 10}, wait=wait)
