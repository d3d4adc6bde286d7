"""For tests: a clock that moves when told, a vendor that counts, fixtures, and the suite that makes a store a store.

ManualClock                     time that moves only when told; waiting is switched off
FakeVendor                      enforces limits as a vendor would, and counts what went past them
sluice.testing.fixtures         pytest fixtures: ``pytest_plugins = ["sluice.testing.fixtures"]``
sluice.testing.conformance      the checks that any store passes, or it is not a store
"""

from typing import TYPE_CHECKING, Any

from sluice.testing.clock import ManualClock

if TYPE_CHECKING:
    from sluice.testing.vendor import FakeVendor

__all__ = ["FakeVendor", "ManualClock"]


def __getattr__(name: str) -> Any:
    if name == "FakeVendor":
        from sluice.testing.vendor import FakeVendor

        return FakeVendor
    raise AttributeError(f"module 'sluice.testing' has no attribute {name!r}")
