"""One of the processes whose calls make a history.

Its threads send random requests to the store behind the `Store` port, one after another, and write down each. They
share a few small buckets with all other processes, so most calls meet others half-way. It says "ready", and begins at
"go". If it is doomed, it kills itself in one of its calls: right before it is decided, or right after it was applied.
"""

import os
import random
import signal
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.core.bucket import lapsed
from sluice.core.names import BucketKey, entry_owner
from sluice.core.requests import (
    BucketRequest,
    Charge,
    Delta,
    GiveUp,
    Granted,
    Part,
    Pause,
    Peek,
    Peeked,
    RateCharge,
    Reap,
    Release,
    Released,
    Renew,
    Settle,
    Settled,
    SlotsCharge,
    Take,
)
from sluice.ports import Store
from sluice.wires.blocking.scope import BlockingScope
from tests.histories.journal import Journal
from tests.histories.stores import open_store

THREADS: Final = 2
PAIRS: Final = 3
TTL_NS: Final = 15 * NS_PER_MS
REMEMBERED: Final = 8
DOOMED_CALLS: Final = (10, 60)
TIMEOUT_NS: Final = 30 * NS_PER_SECOND


class Player:
    """Sends random requests that make sense: it remembers a little of what it took and saw."""

    def __init__(self, name: str, seed: str) -> None:
        self._name = name
        self._rng = random.Random(seed)
        self._takes: deque[Take] = deque(maxlen=REMEMBERED)
        self._turns: deque[GiveUp] = deque(maxlen=REMEMBERED)
        self._seen: deque[tuple[BucketKey, Peeked]] = deque(maxlen=REMEMBERED)
        self._strangers: deque[Take] = deque(maxlen=REMEMBERED)
        self._count = 0

    def request(self) -> BucketRequest:
        rng = self._rng
        kind = rng.choices(
            ("take", "again", "release", "renew", "settle", "give up", "peek", "reap", "pause"),
            (40, 5, 22, 12, 6, 5, 6, 3, 1),
        )[0]
        known = self._strangers if self._strangers and rng.random() < 0.1 else self._takes
        if kind == "again" and known:
            return self._again(rng.choice(known))
        if kind == "release" and known:
            take = rng.choice(known)
            return Release(rng.choice(take.parts).key, take.lease_id, self._deltas())
        if kind == "renew" and known:
            take = rng.choice(known)
            part = rng.choice(take.parts)
            return Renew(part.key, take.lease_id, part.slots) if part.slots else Peek(part.key)
        if kind == "settle":
            return Settle(self._key(), self._deltas() or (Delta("tpm", -1, NS_PER_MS // 50),))
        if kind == "give up" and self._turns:
            return self._turns.pop()
        if kind == "reap" and self._seen:
            key, seen = self._seen.pop()
            return Reap(key, lapsed(seen.image, seen.now_ns))
        if kind == "pause":
            return Pause(self._key(), rng.randrange(NS_PER_MS))
        return self._take() if kind != "peek" else Peek(self._key())

    def note(self, request: BucketRequest, outcome: Any) -> None:
        """Remember what may be of use."""
        if isinstance(request, Take) and isinstance(outcome, Granted):
            self._takes.append(request)
            charge = request.parts[0].charges[0]
            if request.wait_ns and isinstance(charge, RateCharge):
                left_ns = outcome.images[0].rates[charge.name].full_at_ns
                key = request.parts[0].key
                self._turns.append(GiveUp(key, charge.name, charge.amount, charge.interval_ns, left_ns))
        if isinstance(request, Peek) and isinstance(outcome, Peeked):
            self._seen.append((request.key, outcome))
            for entry in outcome.image.slots.get("lanes", {}):
                part = Part(request.key, (SlotsCharge("lanes", 1, 4, TTL_NS),))
                self._strangers.append(Take(entry_owner(entry), (part,)))

    def _key(self) -> BucketKey:
        return BucketKey("n", self._rng.choice("ab"), f"r{self._rng.randrange(PAIRS)}")

    def _deltas(self) -> tuple[Delta, ...]:
        return tuple(
            Delta(name, self._rng.choice((-2, 1, 3)), interval_ns)
            for name, interval_ns in (("rpm", 2 * NS_PER_MS), ("tpm", NS_PER_MS // 50))
            if self._rng.random() < 0.3
        )

    def _again(self, take: Take) -> Take:
        if self._rng.random() < 0.7:
            return take
        return Take(take.lease_id, tuple(Part(part.key, self._charges()) for part in take.parts))

    def _charges(self) -> tuple[Charge, ...]:
        rng = self._rng
        rpm = RateCharge("rpm", 1, 10, 2 * NS_PER_MS, leave=rng.choice((0, 0, 2)))
        tpm = RateCharge("tpm", rng.randrange(1, 200), 1_000, NS_PER_MS // 50)
        lanes = SlotsCharge("lanes", rng.choice((1, 1, 2)), 4, TTL_NS)
        return rng.choice(((lanes,), (rpm, lanes), (rpm, tpm, lanes), (rpm, tpm)))

    def _take(self) -> Take:
        self._count += 1
        lease_id, key = f"{self._name}.{self._count}", self._key()
        if self._rng.random() < 0.2:
            wait_ns = self._rng.choice((0, 5 * NS_PER_MS, 20 * NS_PER_MS))
            return Take(lease_id, (Part(key, (RateCharge("rpm", 1, 10, 2 * NS_PER_MS),)),), wait_ns)
        if self._rng.random() < 0.2:
            other = BucketKey(key.namespace, "b" if key.entity == "a" else "a", key.resource)
            return Take(lease_id, (Part(key, self._charges()), Part(other, self._charges())))
        return Take(lease_id, (Part(key, self._charges()),))


async def send(store: Store, request: BucketRequest) -> Any:
    """One request to the method that takes it."""
    outcomes: Sequence[Any]
    match request:
        case Take():
            outcomes = await store.take([request])
        case Settle() | GiveUp():
            outcomes = await store.settle([request])
        case Release():
            outcomes = await store.release([request])
        case Renew():
            outcomes = await store.renew([request])
        case Reap():
            outcomes = await store.reap([request])
        case Peek():
            outcomes = await store.peek([request])
        case Pause():
            outcomes = await store.pause([request])
        case _:
            raise TypeError(request)
    return outcomes[0]


class Doom:
    """Where a process kills itself, if it does, after some calls."""

    def __init__(self, where: str, seed: str) -> None:
        self._where = where
        self._left = random.Random(seed).randrange(*DOOMED_CALLS)

    def undecided(self) -> None:
        self._comes_near("undecided")

    def applied(self, outcome: Any) -> None:
        if isinstance(outcome, Granted | Settled | Released):
            self._comes_near("applied")

    def _comes_near(self, where: str) -> None:
        self._left -= where == self._where
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def play(store: Store, journal: Journal, player: Player, doom: Doom, calls: int) -> None:
    scope = BlockingScope(journal)
    for _ in range(calls):
        request = player.request()
        number = journal.made(request)
        outcome = scope.run(send(store, request))
        doom.applied(outcome)
        journal.over(number, outcome)
        player.note(request, outcome)


def main(file: str, journal_file: str, seed: str, calls: str, store_name: str, where_doomed: str) -> None:
    doom = Doom(where_doomed, seed)
    journal = Journal(Path(journal_file), doom.undecided)
    store = open_store(store_name, file, journal, TIMEOUT_NS)
    print("ready", flush=True)
    if sys.stdin.readline() != "go\n":
        return
    with ThreadPoolExecutor(THREADS) as threads:
        names = [f"{seed}.{number}" for number in range(THREADS)]
        playing = [threads.submit(play, store, journal, Player(name, name), doom, int(calls)) for name in names]
    for player in playing:
        player.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
