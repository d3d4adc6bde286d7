"""The sequential model that histories are held against: `sluice.core.decide`, and a clock that never goes back.

The store says in its answer at what time it decided; the model decides the same request at that time, on the buckets
as they stand, and must answer the same, images and all. Since a store reads the time while it holds the lock, and the
clock that it was given never goes back, the times of the calls that write stand in their order too.

A call without an answer was decided at one of the times that its process read meanwhile, if it was decided at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sluice.core.bucket import EMPTY, Bucket
from sluice.core.decide import decide
from sluice.core.names import BucketKey
from sluice.core.requests import BucketOutcome, BucketRequest, Clash, GaveUp, Gone, Peek, Peeked, Reaped, keys_of
from tests.histories.linearize import NEVER_NS


@dataclass(frozen=True)
class Recorded:
    """One request to a store: when it was made and over, what came of it, and the times that were read meanwhile."""

    request: BucketRequest
    made_ns: int
    over_ns: int = NEVER_NS
    outcome: BucketOutcome | None = None
    read_ns: tuple[int, ...] = ()

    @property
    def known(self) -> bool:
        return self.outcome is not None

    @property
    def changes_nothing(self) -> bool:
        match self.outcome:
            case Peeked() | Gone() | Clash() | GaveUp(returned=False) | Reaped(removed=()):
                return True
        return False

    @property
    def keys(self) -> tuple[BucketKey, ...]:
        return keys_of(self.request)

    @property
    def decided_ns(self) -> tuple[int, ...]:
        """When it may have been decided."""
        if self.outcome is None or isinstance(self.outcome, Clash):
            return self.read_ns
        return (self.outcome.now_ns,)


@dataclass(frozen=True)
class State:
    """Buckets, and the time of the last call that may have changed them."""

    buckets: dict[BucketKey, Bucket] = field(default_factory=dict)
    now_ns: int = 0


NOTHING_YET = State()


def step(state: State, call: Recorded) -> Iterator[State]:
    """The states that a call leads to if it was decided in this one, with the answer that it had."""
    for now_ns in call.decided_ns:
        # A peek takes no lock: it may read the time, and then see what was decided a little later.
        if now_ns < state.now_ns and not isinstance(call.request, Peek):
            continue
        changes, _, outcome = decide(call.request, lambda key: state.buckets.get(key, EMPTY), now_ns)
        if call.outcome is None:
            if changes:
                yield State(state.buckets | changes, now_ns)
        elif outcome == call.outcome:
            yield state if call.changes_nothing else State(state.buckets | changes, now_ns)
