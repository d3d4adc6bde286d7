"""Every bound of the core, each with its number. Past one of them stands a clear error, never a surprise."""

from typing import Final

NS_PER_MS: Final = 1_000_000
NS_PER_SECOND: Final = 1_000_000_000
NS_PER_HOUR: Final = 3_600 * NS_PER_SECOND
NS_PER_DAY: Final = 24 * NS_PER_HOUR

MAX_WINDOW_NS: Final = 366 * NS_PER_DAY
"""The longest time an empty bucket may take to fill."""

MAX_TTL_NS: Final = 7 * NS_PER_DAY
"""The longest a lease may live without being renewed."""

MAX_WAIT_NS: Final = NS_PER_HOUR
"""The longest a caller may wait for its turn."""

MAX_TURN_NS: Final = NS_PER_DAY
"""The furthest ahead that a turn may be reserved."""

MAX_PAUSE_NS: Final = NS_PER_DAY
"""The longest single pause."""

MAX_DEBT_CAPACITIES: Final = 10
"""A settlement may owe at most so many capacities at once."""

MAX_AMOUNT: Final = 10**12
"""The largest capacity, and so the largest amount."""

MAX_NAME_CHARS: Final = 128
MAX_NAME_BYTES: Final = 256

MAX_LIMITS: Final = 32
"""Limits on one resource."""

MAX_BUCKETS: Final = 32
"""Buckets in one take, ancestors counted."""

MAX_ANCESTORS: Final = 8

MAX_METADATA_BYTES: Final = 4_096

ROUNDING_PER_MILLE: Final = 1
"""A rate may be slower than asked for by at most this much, through rounding its interval up."""

PPM: Final = 1_000_000
"""Shares, such as headroom, are counted in millionths."""
