"""What the store needs of whoever drives SQLite: run this, with the file's write lock or without."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from sluice.core.requests import Failure
from sluice.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class Wire(Protocol):
    """Runs jobs in transactions.

    A job is a plain function of a `Transaction`; it may run in another thread. Jobs that wait at the same time may
    share one transaction, in the order in which they came. One that raises `ConfigError` must have changed nothing
    yet: its caller gets the error and the others go on. Any other failure undoes the whole transaction.
    """

    async def write(self, job: Callable[[Transaction], T], /) -> T | Failure:
        """Run a job under the write lock, and commit."""
        ...

    async def read(self, job: Callable[[Transaction], T], /) -> T | Failure:
        """Run a job on one snapshot of the file, without the write lock."""
        ...

    async def close(self) -> None: ...
