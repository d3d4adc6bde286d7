"""The vocabulary between flows and stores: what can be asked of a bucket, and what a store can answer.

Requests carry everything that decides them (the limits travel with the take), so a store knows no limits of its own.
Every answer is one of three certainties: *applied* or *refused*, each with the image that decided it, or *unknown*:
sent, and no answer came. `Unreached` is the fourth that is none: certainly not applied, because nothing was decided.
Unknown is never treated as refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.core.names import EVERYONE, BucketKey

if TYPE_CHECKING:
    from sluice.core.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Need:
    """What one resource is asked for, when a take names several.

    >>> Need("gpt-4", {"tpm": 1_200}, entity="acme").resource
    'gpt-4'
    """

    resource: str
    amounts: Mapping[str, int] | None = None
    entity: str = EVERYONE


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """How one limit of one bucket stands; ``retry_in`` is in seconds, 0 if it could be had now: what was asked of the
    limit, or where nothing was asked, as in ``peek``, its default cost.
    """

    resource: str
    name: str
    entity: str
    capacity: int
    available: int
    retry_in: float


@dataclass(frozen=True, slots=True)
class RateCharge:
    """Take ``amount`` tokens of a rate, leaving ``leave`` to others."""

    name: str
    amount: int
    capacity: int
    interval_ns: int
    leave: int = 0


@dataclass(frozen=True, slots=True)
class SlotsCharge:
    """Hold ``amount`` slots for ``ttl_ns``, leaving ``leave`` to others."""

    name: str
    amount: int
    capacity: int
    ttl_ns: int
    leave: int = 0


Charge = RateCharge | SlotsCharge


@dataclass(frozen=True, slots=True)
class Part:
    """What a take charges to one bucket."""

    key: BucketKey
    charges: tuple[Charge, ...]

    @property
    def slots(self) -> tuple[SlotsCharge, ...]:
        return tuple(charge for charge in self.charges if isinstance(charge, SlotsCharge))

    @property
    def rates(self) -> tuple[RateCharge, ...]:
        return tuple(charge for charge in self.charges if isinstance(charge, RateCharge))


@dataclass(frozen=True, slots=True)
class Take:
    """All of the parts or nothing. With ``wait_ns``, for one rate of one bucket only, a turn that far ahead will do."""

    lease_id: str
    parts: tuple[Part, ...]
    wait_ns: int = 0


@dataclass(frozen=True, slots=True)
class Granted:
    """Taken. The turn comes at ``turn_ns``; ``repeated`` says that this lease id had been granted before."""

    now_ns: int
    turn_ns: int
    images: tuple[Bucket, ...]
    clamped: tuple[str, ...] = ()
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    """Nothing was taken: falsy, and says what stood in the way and when to ask again.

    For rates ``retry_in_ns`` is exact as long as nobody else takes; for slots it is a hint, the expiry that would make
    room. ``contended`` means that others were faster several times in a row: ask again.
    """

    now_ns: int
    retry_in_ns: int
    limits: tuple[LimitStatus, ...]
    images: tuple[Bucket, ...] = field(default=(), repr=False)
    clamped: tuple[str, ...] = ()
    contended: bool = False

    def __bool__(self) -> bool:
        return False

    @property
    def retry_in(self) -> float:
        """Seconds until it is worth asking again, rounded up."""
        return seconds_up(self.retry_in_ns)


@dataclass(frozen=True, slots=True)
class Clash:
    """This lease id holds slots already, but for another take."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class Delta:
    """A correction to a rate: tokens above 0 are owed, below 0 given back."""

    name: str
    tokens: int
    interval_ns: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Correct a bucket once the true cost is known."""

    key: BucketKey
    deltas: tuple[Delta, ...]

    @property
    def only_owes(self) -> bool:
        """Whether it gives nothing back; then a second time errs towards the limit."""
        return all(delta.tokens > 0 for delta in self.deltas)


@dataclass(frozen=True, slots=True)
class Settled:
    now_ns: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Give a reserved turn up: the tokens go back only if ``left_full_at_ns`` still stands, so nobody came behind."""

    key: BucketKey
    name: str
    amount: int
    interval_ns: int
    left_full_at_ns: int


@dataclass(frozen=True, slots=True)
class GaveUp:
    now_ns: int
    returned: bool


@dataclass(frozen=True, slots=True)
class Release:
    """Give back all slots of a lease in a bucket and correct its rates, in one write, if it still has any there."""

    key: BucketKey
    lease_id: str
    deltas: tuple[Delta, ...] = ()


@dataclass(frozen=True, slots=True)
class Released:
    now_ns: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The lease has nothing in this bucket: released before, or lapsed and replaced. Nothing was changed."""

    now_ns: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Raise the expiry of a live lease's slots, all of them or none."""

    key: BucketKey
    lease_id: str
    slots: tuple[SlotsCharge, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    now_ns: int


@dataclass(frozen=True, slots=True)
class SlotEntry:
    """One slot as it was seen in a bucket."""

    limit: str
    entry: str
    expires_ns: int


@dataclass(frozen=True, slots=True)
class Reap:
    """Tidy lapsed slots away, each only if it still is as it was seen."""

    key: BucketKey
    seen: tuple[SlotEntry, ...]


@dataclass(frozen=True, slots=True)
class Reaped:
    now_ns: int
    removed: tuple[SlotEntry, ...]


@dataclass(frozen=True, slots=True)
class Peek:
    key: BucketKey


@dataclass(frozen=True, slots=True)
class Peeked:
    now_ns: int
    image: Bucket


@dataclass(frozen=True, slots=True)
class Pause:
    """Grant nothing from this bucket for ``for_ns`` from now."""

    key: BucketKey
    for_ns: int


@dataclass(frozen=True, slots=True)
class Paused:
    now_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Fold:
    """Move the usage of past hours out of the bucket into hour documents."""

    key: BucketKey


@dataclass(frozen=True, slots=True)
class Folded:
    now_ns: int
    hours: int


@dataclass(frozen=True, slots=True)
class Repair:
    """Put a bucket right that a clock far ahead has frozen. ``charges`` names its limits as they are in force."""

    key: BucketKey
    charges: tuple[Charge, ...]


@dataclass(frozen=True, slots=True)
class Repaired:
    """The bucket as it stands now, and the limits that were put right; ``pause_ended`` says that it was paused."""

    now_ns: int
    image: Bucket
    limits: tuple[str, ...]
    pause_ended: bool


@dataclass(frozen=True, slots=True)
class Unknown:
    """Sent, and no answer came: it may or may not have been applied."""

    why: str


@dataclass(frozen=True, slots=True)
class Unreached:
    """Certainly not applied: the store could not be asked, or could not decide."""

    why: str


Failure = Unknown | Unreached

BucketRequest = Take | Settle | GiveUp | Release | Renew | Reap | Peek | Pause | Fold | Repair
BucketOutcome = (
    Granted
    | Denied
    | Clash
    | Settled
    | GaveUp
    | Released
    | Gone
    | Renewed
    | Reaped
    | Peeked
    | Paused
    | Folded
    | Repaired
)


def keys_of(request: BucketRequest) -> tuple[BucketKey, ...]:
    """The buckets that a request touches."""
    if isinstance(request, Take):
        return tuple(part.key for part in request.parts)
    return (request.key,)


def seconds_up(duration_ns: int) -> float:
    """Nanoseconds as seconds, rounded up to the microsecond, so that nobody comes back too early."""
    return -(-duration_ns // 1000) / 1_000_000
