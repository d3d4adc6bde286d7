"""Sluice: many processes share rate limits and concurrency slots through a database they already run."""

from typing import TYPE_CHECKING, Any

from sluice.core.entities import Entity
from sluice.core.errors import (
    ConfigError,
    Conflict,
    InvalidName,
    LeaseLost,
    NeverAdmissible,
    RateLimited,
    SluiceError,
    StoreUnavailable,
    WaitTimeout,
)
from sluice.core.levels import Resolved
from sluice.core.limits import Limit, Rate, Slots
from sluice.core.requests import Denied, LimitStatus, Need
from sluice.flow.configure import StoredLimits
from sluice.flow.report import Usage
from sluice.flow.survey import HeldLease, Repairs, Standing
from sluice.sync import Lease, Sluice

if TYPE_CHECKING:
    from sluice.aio import AsyncLease, AsyncSluice

__all__ = [
    "AsyncLease",
    "AsyncSluice",
    "ConfigError",
    "Conflict",
    "Denied",
    "Entity",
    "HeldLease",
    "InvalidName",
    "Lease",
    "LeaseLost",
    "Limit",
    "LimitStatus",
    "Need",
    "NeverAdmissible",
    "Rate",
    "RateLimited",
    "Repairs",
    "Resolved",
    "Slots",
    "Sluice",
    "SluiceError",
    "Standing",
    "StoreUnavailable",
    "StoredLimits",
    "Usage",
    "WaitTimeout",
]


def __getattr__(name: str) -> Any:
    if name in {"AsyncLease", "AsyncSluice"}:
        from sluice import aio  # importing asyncio costs more than all the rest

        return getattr(aio, name)
    raise AttributeError(f"module 'sluice' has no attribute {name!r}")
