"""The DynamoDB store: many processes on many hosts, one table, one write a take."""

from sluice.stores.dynamodb.store import MAX_SKEW_NS, DynamoStore
from sluice.stores.dynamodb.table import definition
from sluice.stores.dynamodb.wire import Wire

__all__ = ["MAX_SKEW_NS", "DynamoStore", "Wire", "definition"]
