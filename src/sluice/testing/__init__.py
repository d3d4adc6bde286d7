"""For tests: a clock that moves when told, a vendor that counts, fixtures, and the suite that makes a store a store.

ManualClock                     time that moves only when told; waiting is switched off
FakeVendor, Quota               enforces limits as a vendor would, and counts what went past them
NeverOver                       holds what clients were granted against their limits
lose                            takes the slots of a lease away
sluice.testing.fixtures         all of these as pytest fixtures: ``pytest_plugins = ["sluice.testing.fixtures"]``
sluice.testing.vendor           more of the vendor: `Call`, `Violation`, and `audit` for calls that many processes made
sluice.testing.conformance      the checks that any store passes, or it is not a store
sluice.testing.simulate         whole systems in virtual time, with everything going wrong
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sluice.testing.clock import ManualClock

if TYPE_CHECKING:
    from sluice.testing.losing import lose
    from sluice.testing.never_over import NeverOver
    from sluice.testing.vendor import FakeVendor, Quota

__all__ = ["FakeVendor", "ManualClock", "NeverOver", "Quota", "lose"]

_HOMES: Final = {"FakeVendor": "vendor", "NeverOver": "never_over", "Quota": "vendor", "lose": "losing"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"sluice.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'sluice.testing' has no attribute {name!r}")
