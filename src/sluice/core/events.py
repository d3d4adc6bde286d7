"""What an observer is told. One small value for each thing worth counting or logging."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TakeGranted:
    """A take was granted; ``waited_ns`` from the first ask to the turn."""

    resource: str
    entity: str
    lease_id: str
    amounts: Mapping[str, int]
    waited_ns: int
    tries: int


@dataclass(frozen=True, slots=True)
class TakeDenied:
    """A take was refused for good: nothing was taken."""

    resource: str
    entity: str
    limits: tuple[str, ...]
    retry_in_ns: int


@dataclass(frozen=True, slots=True)
class TakeDegraded:
    """The store was unavailable and the take was let through uncounted, as ``on_unavailable="open"`` asks."""

    resource: str
    entity: str
    why: str


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """A lease came to its end, and the store knows."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class LeaseLapsed:
    """A lease was lost while somebody held it: not renewed in time."""

    lease_id: str
    why: str


@dataclass(frozen=True, slots=True)
class EndFailed:
    """A lease's end never reached the store; its slots lapse, ``unsettled`` says which corrections were lost."""

    lease_id: str
    unsettled: Mapping[str, int]
    why: str


@dataclass(frozen=True, slots=True)
class SettleCapped:
    """A settlement past ten capacities was cut down to ten."""

    lease_id: str
    limit: str
    asked: int
    counted: int


@dataclass(frozen=True, slots=True)
class RateClamped:
    """A rate lay further ahead than any history can leave it, through a clock that was ahead; it was pulled back."""

    resource: str
    entity: str
    limit: str


@dataclass(frozen=True, slots=True)
class ClockCorrected:
    """This host's clock is more than a second off the engine's: ``offset_ns`` is added to it from now on, ``by_ns``
    more than before. Below 0 the clock is ahead.
    """

    offset_ns: int
    by_ns: int


Event = (
    TakeGranted
    | TakeDenied
    | TakeDegraded
    | LeaseEnded
    | LeaseLapsed
    | EndFailed
    | SettleCapped
    | RateClamped
    | ClockCorrected
)
