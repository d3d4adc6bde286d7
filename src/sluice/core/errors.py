"""Everything that Sluice raises. One root; each message says what was asked, what stands in the way, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice.core.requests import LimitStatus


class SluiceError(Exception):
    """The root of every error that Sluice raises."""


class ConfigError(SluiceError, ValueError):
    """What was asked makes no sense as it stands: an unknown limit, bad text, a bound passed, a refused permission."""


class InvalidName(ConfigError):
    """A name that can't be used. Entity names often come from strangers: catch this one and answer 400."""


class NeverAdmissible(SluiceError):
    """More was asked for than could ever be granted at once; waiting won't help."""


class RateLimited(SluiceError):
    """Refused for now. ``retry_in`` says in how many seconds to ask again, ``limits`` what stood in the way."""

    def __init__(self, message: str, retry_in: float, limits: tuple[LimitStatus, ...]) -> None:
        super().__init__(message)
        self.message = message
        self.retry_in = retry_in
        self.limits = limits

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Callable[..., RateLimited], tuple[object, ...]]:
        return type(self), (self.message, self.retry_in, self.limits)


class WaitTimeout(RateLimited, TimeoutError):
    """The wait that the caller allowed is too short, or has passed. Nothing was taken."""


class LeaseLost(SluiceError):
    """The lease has lapsed or belongs to another process: its slots are no longer ours."""


class StoreUnavailable(SluiceError):
    """The store did not answer in time. A take of rates alone may have been charged all the same."""


class Conflict(SluiceError):
    """Somebody else was first: another version, or the same lease id for another take."""
