"""SQLite: one file that many processes of a host share."""

from sluice.stores.sqlite.store import SqliteStore
from sluice.stores.sqlite.transaction import Rows, Transaction
from sluice.stores.sqlite.wire import Wire

__all__ = ["Rows", "SqliteStore", "Transaction", "Wire"]
