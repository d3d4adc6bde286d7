"""DynamoDB without AWS: the reference engine on loopback.

LocalEngine     DynamoDB Local as a child of this process; it ends when its starter does
Service         DynamoDB Local in the background, as ``sluice sandbox`` runs it
"""

from sluice.testing.dynamodb.engine import LocalEngine
from sluice.testing.dynamodb.service import Service

__all__ = ["LocalEngine", "Service"]
