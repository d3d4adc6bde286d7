"""How the demo's processes talk with their parent: JSON lines, orders on stdin and notes on stdout.

A note is written whole, so that threads don't mix theirs. A process whose stdin ends leaves at once: nobody is there
any more.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

_saying = threading.Lock()


def say(note: str, **facts: object) -> None:
    """Tell the parent something."""
    with _saying:
        print(json.dumps({"note": note, **facts}), flush=True)


def told() -> dict[str, Any]:
    """The next order. Without one there is nobody to work for."""
    line = sys.stdin.readline()
    if not line:
        sys.exit("nobody is there to work for")
    order: dict[str, Any] = json.loads(line)
    return order


def leave_with_parent() -> None:
    """Wait for the end of stdin and be gone; for a thread, once no more orders are to come."""
    while os.read(sys.stdin.fileno(), 1):  # not through sys.stdin, whose lock would hold up the interpreter's end
        pass
    os._exit(1)
