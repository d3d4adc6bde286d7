"""Scenes: what the schedules of a run are like, and what goes wrong in them.

``usual`` is all kinds of everything. The others are the situations in which rate limiters are known to let too much
through, with as many waiters as it takes: who gives up in the middle of a line, a pause over those who wait, a
settlement that gives back while others wait, and takes that must leave room beside a hundred that wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sluice.core.limits import Limit
from sluice.testing.simulation.engines import Engine
from sluice.testing.simulation.faults import Fault, Faults
from sluice.testing.simulation.setting import SECOND, Habits, Setting


@dataclass(frozen=True)
class Scene:
    """A kind of schedule, by name: its setting, drawn, and how often which fault strikes."""

    name: str
    drawn: Callable[[random.Random, Sequence[Engine]], Setting]
    faults: Callable[[], Faults] = Faults.usual


def _waiting(asks: int, habits: Habits) -> Callable[[random.Random, Sequence[Engine]], Setting]:
    """Three processes that wait for one rate in turn, so many asks each, all within a second."""

    def drawn(draw: random.Random, engines: Sequence[Engine]) -> Setting:
        rate = Limit("fast", f"{draw.choice((8, 20, 40))} per 1s burst {draw.choice((1, 2, 8, 20))}")
        engine = draw.choices(engines, [engine.share for engine in engines])[0]
        return Setting({"api": (rate,)}, asks=asks, engine=engine, asking_ns=SECOND, habits=habits)

    return drawn


_LINE: Final = Habits(waits=1000, reserves=0, headroom=0, settles=0, mores=0, adjusts=0, pauses=0, reaps=0, fails=0)
_PATIENT: Final = 10 * SECOND


def _habits(**changed: int) -> Habits:
    return Habits(**{**vars(_LINE), "longest_wait_ns": _PATIENT, "longest_hold_ns": SECOND // 5, **changed})


def _much_cancelled() -> Faults:
    usual = Faults.usual()
    return Faults(usual.per_mille | {Fault.CANCELLED: 400})


_ALL: Final = (
    Scene("usual", Setting.drawn),
    Scene("given up in a line", _waiting(12, _habits()), _much_cancelled),
    Scene("pause over waiters", _waiting(22, _habits(pauses=40))),
    Scene("settled back in a line", _waiting(12, _habits(settles=900))),
    Scene("headroom beside waiters", _waiting(36, _habits(headroom=80))),
)

SCENES: Final = {scene.name: scene for scene in _ALL}
USUAL: Final = SCENES["usual"]
