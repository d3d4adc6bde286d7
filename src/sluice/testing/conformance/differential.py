"""The store and the core, asked the same: thousands of random requests, and not one answer may differ.

The model is `sluice.core.decide` over dictionaries. After each step every bucket is looked at, so what a store keeps is
compared as well as what it says; at the end the hours that were filed are. A store may forget a bucket that is idle:
where it has, the model forgets it too.

What fails is cut down: steps are left out as long as it still fails, so what is shown is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from sluice.core.bucket import EMPTY, Bucket, idle
from sluice.core.decide import decide
from sluice.core.documents import Document, DocumentKey, Kind
from sluice.core.names import BucketKey
from sluice.core.requests import Denied, Fold, Granted, Peek, Peeked
from sluice.core.usage import file_hours
from sluice.ports import Store
from sluice.testing.clock import ManualClock
from sluice.testing.conformance.bench import Bench, Check, Harness, NotConforming, certain, plain, same
from sluice.testing.conformance.requests import KEYS, Ask, Pass, Requests, Step

T = TypeVar("T")

MAX_REPLAYS: Final = 300
"""How often a failing run is tried again with some steps left out."""


def differential(harness: Harness, seed: int, steps: int = 3_000) -> None:
    """Compare a store with the core over so many random steps; raises `NotConforming` with the shortest story found."""
    run = _Run(harness)
    error = run.random(seed, steps)
    if error is None:
        return
    error, story = _cut_down(harness, run.taken, error)
    shown = "\n".join(f"  {number:3}  {_shown(step)}" for number, step in enumerate(story, start=1))
    raise NotConforming(f"Seed {seed}, step {len(run.taken)}: {error}\nThe same with {len(story)} steps:\n{shown}")


def _shown(step: Step) -> str:
    if isinstance(step, Pass):
        return f"the wall clock jumps by {step.ns} ns" if step.steps else f"{step.ns} ns pass"
    return f"{step.verb} {', '.join(map(repr, step.requests))}"


def _cut_down(harness: Harness, story: Sequence[Step], error: str) -> tuple[str, Sequence[Step]]:
    """Leave out halves, quarters, and so on down to single steps, as long as what is left fails."""
    replays = 0
    size = max(1, len(story) // 2)
    while True:
        start = 0
        while start < len(story) and replays < MAX_REPLAYS:
            shorter = [*story[:start], *story[start + size :]]
            replays += 1
            run = _Run(harness)
            found = run.again(shorter)
            if found is None:
                start += size
            else:
                error, story = found, run.taken
        if size == 1 or replays >= MAX_REPLAYS:
            return error, story
        size //= 2


class _Run:
    """One run on an empty store. Each returns what differed, or None."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.taken: list[Step] = []

    def random(self, seed: int, steps: int) -> str | None:
        """Make up the steps on the way."""

        async def body(pair: _Pair) -> None:
            requests = Requests(seed, pair.look, joint=pair.store.traits.joint)
            for _ in range(steps):
                step = requests.step(pair.clock.now_ns())
                self.taken.append(step)
                for request, answer in await pair.apply(step):
                    requests.learn(request, answer)

        return self._run(body)

    def again(self, story: Sequence[Step]) -> str | None:
        """Take the steps of a story."""

        async def body(pair: _Pair) -> None:
            for step in story:
                self.taken.append(step)
                await pair.apply(step)

        return self._run(body)

    def _run(self, body: Any) -> str | None:
        async def check(bench: Bench) -> None:
            """Every answer is the core's."""
            pair = _Pair(bench.store, bench.clock)
            await body(pair)
            await pair.compare_hours(bench)

        try:
            Check("differential", "Every answer is the core's.", check, sets_time=True)(self._harness)
        except NotConforming as error:
            return str(error)
        return None


class _Pair:
    """The store, and the model beside it."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self._buckets: dict[BucketKey, Bucket] = {}
        self._hours: dict[DocumentKey, Document] = {}

    def look(self, key: BucketKey) -> Bucket:
        return self._buckets.get(key, EMPTY)

    async def apply(self, step: Step) -> list[tuple[Any, Any]]:
        """Take a step on both sides; the requests with their answers."""
        if isinstance(step, Pass):
            if step.steps:
                self.clock.step(ns=step.ns)
            else:
                self.clock.advance(ns=step.ns)
            return []
        answers = list(await getattr(self.store, step.verb)(step.requests))
        wanted = self._decide(step)
        same(len(answers), len(wanted), f"answers to {step.verb}")
        for request, answer, want in zip(step.requests, answers, wanted, strict=True):
            same(_comparable(certain(answer)), _comparable(want), f"answer to {request}")
        await self._compare_buckets()
        return list(zip(step.requests, wanted, strict=True))

    def _decide(self, step: Ask) -> list[object]:
        now_ns = self.clock.now_ns()
        outcomes: list[object] = []
        for request in step.requests:
            changed, past, outcome = decide(request, self.look, now_ns)
            self._buckets |= changed
            if past and isinstance(request, Fold):
                for document in file_hours(request.key, past, self._hours.get, now_ns):
                    self._hours[document.key] = document
            outcomes.append(outcome)
        return outcomes

    async def _compare_buckets(self) -> None:
        peeked = await self.store.peek([Peek(key) for key in KEYS])
        for key, answer in zip(KEYS, peeked, strict=True):
            image = plain(certain(answer).image)
            if image == EMPTY and idle(self.look(key), self.clock.now_ns()):
                self._buckets.pop(key, None)
            same(image, plain(self.look(key)), f"bucket {key.text!r} of {key.namespace}")

    async def compare_hours(self, bench: Bench) -> None:
        """The hours that were filed must be the model's; their versions are the store's own affair."""
        for namespace in sorted({key.namespace for key in KEYS}):
            filed = [(d.key, d.body, dict(d.under)) for d in await bench.listed(Kind.USAGE, namespace)]
            hours = sorted(self._hours.values(), key=lambda document: document.key.id)
            wanted = [(d.key, d.body, dict(d.under)) for d in hours if d.key.namespace == namespace]
            same(filed, wanted, f"usage filed in {namespace}")


def _comparable(answer: T) -> T:
    """An answer whose images have no empty lease maps."""
    if isinstance(answer, Granted | Denied):
        return replace(answer, images=tuple(plain(image) for image in answer.images))
    if isinstance(answer, Peeked):
        return replace(answer, image=plain(answer.image))
    return answer
