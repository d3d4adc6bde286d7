"""What a URL says of a DynamoDB table.

    dynamodb://TABLE?region=eu-west-1&endpoint=http://localhost:8000&profile=prod
                    &connect_timeout=500ms&read_timeout=500ms&max_skew=2s&clock=engine

Everything but the table may be left out. Region, endpoint, profile and credentials then come from where every AWS
library takes them: the environment, the files in ``~/.aws``, the role of the machine.
"""

import math
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from sluice.core.bounds import NS_PER_HOUR, NS_PER_MS, NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.limit_text import parse_duration_ns

CONNECT_TIMEOUT_NS: Final = 500 * NS_PER_MS
READ_TIMEOUT_NS: Final = 500 * NS_PER_MS
MAX_TIMEOUT_NS: Final = 60 * NS_PER_SECOND

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_NAMES: Final = ("region", "endpoint", "profile", "connect_timeout", "read_timeout", "max_skew", "clock")
_EXAMPLE: Final = "write for example 'dynamodb://quota?region=eu-west-1'"


@dataclass(frozen=True, slots=True)
class Options:
    """One table and how to reach it; what is ``None`` is for botocore to find.

    ``max_skew_ns``: clients whose clocks are further off are refused. ``corrected``: whether the engine's dates correct
    this host's clock.
    """

    table: str
    region: str | None = None
    endpoint: str | None = None
    profile: str | None = None
    connect_timeout_ns: int = CONNECT_TIMEOUT_NS
    read_timeout_ns: int = READ_TIMEOUT_NS
    max_skew_ns: int | None = None
    corrected: bool = True


def read_options(url: str) -> Options:
    """Read a URL, or raise `ConfigError` saying what in it can't be read."""
    parts = urlsplit(url)
    table = parts.netloc
    if not _TABLE.fullmatch(table) or parts.path not in {"", "/"} or parts.fragment:
        raise ConfigError(
            f"store URL {url!r} names no table: 3 to 255 letters, digits, '_', '-' and '.' after dynamodb://; "
            f"{_EXAMPLE}"
        )
    given: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _NAMES:
            raise ConfigError(f"store URL {url!r}: there is no option {name!r}; there are {', '.join(_NAMES)}")
        if name in given or not value:
            raise ConfigError(f"store URL {url!r}: {name} {'is given twice' if name in given else 'has no value'}")
        given[name] = value
    endpoint = given.get("endpoint")
    if endpoint is not None and (urlsplit(endpoint).scheme not in {"http", "https"} or not urlsplit(endpoint).netloc):
        raise ConfigError(f"store URL {url!r}: endpoint is a URL such as http://localhost:8000, not {endpoint!r}")
    if given.get("clock", "engine") not in {"engine", "host"}:
        raise ConfigError(
            f"store URL {url!r}: clock is 'engine' (corrected by the engine's dates) or 'host', not {given['clock']!r}"
        )
    return Options(
        table,
        given.get("region"),
        endpoint,
        given.get("profile"),
        _duration(url, given, "connect_timeout", MAX_TIMEOUT_NS) or CONNECT_TIMEOUT_NS,
        _duration(url, given, "read_timeout", MAX_TIMEOUT_NS) or READ_TIMEOUT_NS,
        _duration(url, given, "max_skew", NS_PER_HOUR),
        given.get("clock", "engine") == "engine",
    )


def _duration(url: str, given: dict[str, str], name: str, most_ns: int) -> int | None:
    """A duration as limits write it (``500ms``), or a number of seconds (``0.5``)."""
    text = given.get(name)
    if text is None:
        return None
    try:
        seconds = float(text)
        duration_ns = round(seconds * NS_PER_SECOND) if math.isfinite(seconds) else 0
    except ValueError:
        try:
            duration_ns = parse_duration_ns(text)
        except ConfigError:
            duration_ns = 0
    if not NS_PER_MS <= duration_ns <= most_ns:
        raise ConfigError(
            f"store URL {url!r}: {name} is a time such as 500ms, 2s or 0.5 (seconds), at least 1ms and at most "
            f"{most_ns // NS_PER_SECOND}s, not {text!r}"
        )
    return duration_ns
