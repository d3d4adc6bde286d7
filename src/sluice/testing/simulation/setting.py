"""What a simulated run is like before anything goes wrong: limits, entities, processes, and what its clients do."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.core.limits import Limit
from sluice.core.names import EVERYONE
from sluice.testing.simulation.engines import ENGINES, Engine

MS = 1_000_000
SECOND = 1_000 * MS

CALM_PER_MILLE = 100
"""In so many of a thousand runs nothing goes wrong at all: then nothing may be lost, late or refused for no reason."""


@dataclass(frozen=True)
class Habits:
    """What the asks of a run look like, in thousandths: how often each thing is done."""

    several: int = 100
    one_limit: int = 350
    waits: int = 600
    reserves: int = 150
    requeues: int = 500
    headroom: int = 100
    settles: int = 500
    fails: int = 150
    mores: int = 120
    adjusts: int = 120
    renews: int = 60
    unkept: int = 100
    pauses: int = 40
    reaps: int = 120
    longest_hold_ns: int = 2 * SECOND
    longest_wait_ns: int = 3 * SECOND


@dataclass(frozen=True)
class Setting:
    """What a run is like, before anything goes wrong. ``calm``: nothing does."""

    limits: Mapping[str, Sequence[Limit]]
    entities: Sequence[str] = (EVERYONE,)
    parents: Mapping[str, str] = field(default_factory=dict)
    namespaces: Sequence[str] = ("default",)
    processes: int = 3
    asks: int = 8
    engine: Engine = ENGINES["memory"]
    asking_ns: int = 3 * SECOND
    config_ttl_ns: int = SECOND
    timeout_ns: int = 2 * SECOND
    latency_ns: tuple[int, int] = (MS // 10, 20 * MS)
    fail_open: bool = False
    calm: bool = False
    habits: Habits = field(default_factory=Habits)

    @classmethod
    def drawn(cls, draw: random.Random, engines: Iterable[Engine] = tuple(ENGINES.values())) -> Setting:
        """Any setting: small limits, so that they bind, on one of these engines."""
        ttl = draw.choice(("600ms", "1500ms", "20s"))
        slots = Limit("held", f"{draw.randrange(1, 4)} slots ttl {ttl}", cost=draw.choice((0, 1, 1)))
        fast = Limit("fast", f"{draw.choice((1, 3, 7, 20))} per {draw.choice(('1s', '300ms'))}")
        slow = Limit("slow", f"{draw.choice((2, 5))} per {draw.choice(('700ms', '3s'))} burst {draw.choice((2, 8))}")
        shapes: tuple[tuple[Limit, ...], ...] = ((fast,), (slots,), (fast, slow), (fast, slots), (fast, slow, slots))
        limits: dict[str, Sequence[Limit]] = {"api": draw.choice(shapes)}
        if draw.random() < 0.3:
            limits["db"] = draw.choice(shapes[2:])
        entities: Sequence[str] = (EVERYONE,)
        parents: dict[str, str] = {}
        if draw.random() < 0.4:
            entities, parents = ("ann", "bob"), {"ann": "org", "bob": "org"}
            if draw.random() < 0.3:
                parents["org"] = EVERYONE
        among = list(engines)
        return cls(
            limits,
            entities,
            parents,
            namespaces=("default", "other") if draw.random() < 0.1 else ("default",),
            processes=draw.randrange(1, 4),
            asks=draw.randrange(3, 8),
            engine=draw.choices(among, [engine.share for engine in among])[0],
            timeout_ns=draw.choice((200 * MS, 500 * MS, 2 * SECOND)),
            fail_open=draw.random() < 0.1,
            calm=draw.randrange(1000) < CALM_PER_MILLE,
        )

    def lineage(self, entity: str) -> Iterator[str]:
        """An entity and its ancestors: all those whose buckets a take of its counts against."""
        yield entity
        while entity in self.parents:
            entity = self.parents[entity]
            yield entity
