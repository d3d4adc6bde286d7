"""What happened in a run, in plain values: the only thing that the promises are checked from.

Nothing here or in `promises` uses `sluice.core`; the network writes down what it saw pass in these terms.
"""

from dataclasses import dataclass

GHOST = "~"
"""Ends the name of a task in whose name the network applied something late or twice."""

Tokens = tuple[str, str, int, int]
"""A correction: bucket, limit, tokens (above 0 owed, below given back), and the interval that the client knows."""


@dataclass(frozen=True, slots=True)
class Charged:
    """What a take asks of one limit. ``interval_ns`` for rates, ``ttl_ns`` for slots; the other is 0."""

    bucket: str
    limit: str
    amount: int
    capacity: int
    leave: int
    interval_ns: int = 0
    ttl_ns: int = 0


@dataclass(frozen=True, slots=True)
class Took:
    """The store granted a take at its time ``now_ns``."""

    now_ns: int
    task: str
    lease: str
    charges: tuple[Charged, ...]
    wait_ns: int
    turn_ns: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The store refused a take; ``blocking`` names the limits that stood in the way, as (bucket, limit)."""

    now_ns: int
    task: str
    lease: str
    charges: tuple[Charged, ...]
    wait_ns: int
    retry_in_ns: int
    blocking: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Corrected:
    """The store applied a settlement: tokens owed (above 0) or given back, by (bucket, limit)."""

    now_ns: int
    task: str
    tokens: tuple[Tokens, ...]


@dataclass(frozen=True, slots=True)
class TurnGivenUp:
    """A turn that nobody will use went back, or stayed spent."""

    now_ns: int
    task: str
    bucket: str
    limit: str
    lease: str
    amount: int
    returned: bool


@dataclass(frozen=True, slots=True)
class SlotsReturned:
    """The store released a lease's slots in a bucket, with corrections; ``found`` is false if it had none."""

    now_ns: int
    task: str
    bucket: str
    lease: str
    found: bool
    tokens: tuple[Tokens, ...]


@dataclass(frozen=True, slots=True)
class SlotsRenewed:
    now_ns: int
    bucket: str
    lease: str
    limits: tuple[tuple[str, int, int], ...]  # limit, amount, ttl
    renewed: bool


@dataclass(frozen=True, slots=True)
class BucketPaused:
    now_ns: int
    bucket: str
    until_ns: int


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A call was lost, or its answer was: whoever sent it doesn't know."""

    task: str
    call: str


@dataclass(frozen=True, slots=True)
class NotReached:
    """A call was turned away before anything was decided."""

    task: str
    call: str


@dataclass(frozen=True, slots=True)
class SlotsReaped:
    """The store tidied these away, by (limit, lease)."""

    now_ns: int
    bucket: str
    slots: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A client began to ask, at this moment; what it asks for, by (bucket without namespace, limit)."""

    task: str
    true_ns: int
    store_now_ns: int
    needs: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """What the client was told in the end: "granted", "denied", "degraded", "cancelled", or the name of an error.

    ``starts``: it acts on a grant from now on, and not first when its turn comes.
    """

    task: str
    answer: str
    lease: str
    store_now_ns: int
    starts: bool = True


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """A resource's limits were set; asks that begin from ``in_force_ns`` of true time on must go by them."""

    resource: str
    limits: tuple[tuple[str, int, int], ...]  # limit, capacity, interval (0 for slots)
    in_force_ns: int


@dataclass(frozen=True, slots=True)
class Believed:
    """A client acted on holding these slots, by (bucket, limit, lease)."""

    task: str
    store_now_ns: int
    slots: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Leaving:
    """A client begins to leave its block, having said last that this is what it cost, by limit."""

    task: str
    lease: str
    settled: tuple[tuple[str, int], ...]
    refund: bool


@dataclass(frozen=True, slots=True)
class Left:
    """A client has left its block, alive."""

    task: str
    lease: str


@dataclass(frozen=True, slots=True)
class NotTold:
    """The keeper gave up on an end: so much was never settled."""

    lease: str


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A client learnt that it has lost a lease that it holds. ``kept``: its keeper was to renew it."""

    task: str
    lease: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds in the end of one bucket, by limit.

    ``rates``: when full again, and the interval; ``slots``: for each lease, how many and until when; ``used``: tokens
    and slots counted as used; and the end of the pause.
    """

    now_ns: int
    bucket: str
    rates: tuple[tuple[str, int, int], ...]
    slots: tuple[tuple[str, str, int, int], ...]  # limit, lease, slots, expires
    used: tuple[tuple[str, int], ...]
    paused_until_ns: int


Record = (
    Took
    | Refused
    | Corrected
    | TurnGivenUp
    | SlotsReturned
    | SlotsRenewed
    | SlotsReaped
    | BucketPaused
    | InDoubt
    | NotReached
    | Asked
    | Answered
    | LimitsChanged
    | Believed
    | Leaving
    | Left
    | NotTold
    | Lapsed
    | Stored
)
