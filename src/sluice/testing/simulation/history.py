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
class SlotsReaped:
    """The store tidied these away, by (limit, lease)."""

    now_ns: int
    bucket: str
    slots: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A client began to ask."""

    task: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What the client was told in the end: "granted", "denied", or the name of an error."""

    task: str
    answer: str
    lease: str
    store_now_ns: int


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
    | Asked
    | Answered
    | Believed
    | Leaving
    | Left
    | NotTold
)
