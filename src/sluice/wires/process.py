"""Which process this is."""

import os
import socket
from functools import cache

MAX_HOST_CHARS = 48


@cache
def _host() -> str:
    name = "".join(char if char.isprintable() and char not in "#@:" else "-" for char in socket.gethostname())
    return name[:MAX_HOST_CHARS] or "host"


def process_name() -> str:
    """``host:pid``. A forked child has another one than its parent."""
    return f"{_host()}:{os.getpid()}"
