"""The least that can speak to the engine: one call at a time, no retries, nothing signed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any

from sluice.testing.dynamodb.engine import HOST, headers

TIMEOUT = 30.0
IDLE = 5.0
"""Seconds after which a connection is not trusted any more: the engine closes those that nobody uses."""


class Plain:
    """A connection that is kept; each call gives the status and the body as they came."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT)
        self._used = time.monotonic()

    def call(self, operation: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        if time.monotonic() - self._used > IDLE:
            self._connection.close()  # the next request opens it anew
        self._connection.request("POST", "/", json.dumps(body), headers(operation))
        reply = self._connection.getresponse()
        answer: dict[str, Any] = json.loads(reply.read())
        self._used = time.monotonic()
        return reply.status, answer

    def close(self) -> None:
        self._connection.close()
