"""How what takes several calls is run: each piece of work says which call comes next and is told the reply.

    work      a generator: yields a call, is sent its reply, returns its outcome
    round     the next call of every work that is not done, sent side by side

Works of one batch touch different buckets, or they are one work, which takes the bucket's requests one after another.
Whatever is cut off between two rounds has done what its last call did: each call is whole by itself.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from sluice.core.bucket import Bucket
from sluice.core.names import BucketKey
from sluice.core.requests import Unknown, Unreached
from sluice.stores.dynamodb.beliefs import Beliefs
from sluice.stores.dynamodb.expressions import BucketWrite, get_call
from sluice.stores.dynamodb.images import decode_bucket
from sluice.stores.dynamodb.table import bucket_key
from sluice.stores.dynamodb.wire import Answered, Call, ConditionFailed, Reply, Wire

T = TypeVar("T")

Work = Generator[Call, Reply, T]


class Bench:
    """What works of one batch share: the time, the table, and what is believed of its buckets."""

    __slots__ = ("beliefs", "max_skew_ns", "now_ns", "table")

    def __init__(self, table: str, beliefs: Beliefs, now_ns: int, max_skew_ns: int) -> None:
        self.table = table
        self.beliefs = beliefs
        self.now_ns = now_ns
        self.max_skew_ns = max_skew_ns

    def read(self, key: BucketKey) -> Work[Bucket | Unknown | Unreached]:
        """A bucket as it stands."""
        reply = yield get_call(self.table, bucket_key(key))
        if not isinstance(reply, Answered):
            return failed(reply)
        image = decode_bucket(reply.body.get("Item"))
        self.beliefs.saw(key, image)
        return image

    def write(self, key: BucketKey, write: BucketWrite) -> Work[tuple[bool, Bucket] | Unknown | Unreached]:
        """Send a write: whether it was done, and the bucket as it stands since, or stood in its way."""
        reply = yield write.call(self.table)
        if isinstance(reply, Answered):
            image = decode_bucket(reply.body.get("Attributes"))
        elif isinstance(reply, ConditionFailed):
            image = decode_bucket(reply.item)
        else:
            return reply
        self.beliefs.saw(key, image)
        return isinstance(reply, Answered), image


def failed(reply: Reply) -> Unknown | Unreached:
    """A reply to a read that brought nothing."""
    if isinstance(reply, Unknown | Unreached):
        return Unreached(reply.why)
    raise TypeError(f"a read has no conditions to fail: {reply!r}")


async def run(wire: Wire, works: Sequence[Work[T]]) -> list[T]:
    """Run works side by side, round by round; what each has returned."""
    outcomes: list[Any] = [None] * len(works)
    calls: list[tuple[int, Call]] = []
    for number, work in enumerate(works):
        _go_on(work, None, number, calls, outcomes)
    while calls:
        replies = await wire.send([call for _, call in calls])
        numbers = [number for number, _ in calls]
        calls = []
        for number, reply in zip(numbers, replies, strict=True):
            _go_on(works[number], reply, number, calls, outcomes)
    return outcomes


def _go_on(work: Work[T], reply: Reply | None, number: int, calls: list[tuple[int, Call]], outcomes: list[Any]) -> None:
    try:
        calls.append((number, next(work) if reply is None else work.send(reply)))
    except StopIteration as ended:
        outcomes[number] = ended.value
