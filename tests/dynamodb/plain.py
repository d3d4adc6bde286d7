"""The least that can speak to the engine: one call at a time, no retries, nothing signed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from sluice.testing.dynamodb.engine import HOST, headers

TIMEOUT = 30.0


class Plain:
    """A connection that is kept; each call gives the status and the body as they came."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT)

    def call(self, operation: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        self._connection.request("POST", "/", json.dumps(body), headers(operation))
        reply = self._connection.getresponse()
        return reply.status, json.loads(reply.read())

    def close(self) -> None:
        self._connection.close()
