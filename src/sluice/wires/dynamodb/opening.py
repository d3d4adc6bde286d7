"""From a ``dynamodb://`` URL to a store: what the blocking and the asyncio opener share.

Opening does no I/O and resolves nothing; botocore is imported when the first call is sent. What was resolved then is
kept for all stores that the opener makes in this process, one for each namespace, say. After a fork nothing is kept.
"""

import os
import threading
from collections.abc import Callable
from importlib.util import find_spec

from sluice.ports import Clock, Observer, Reporting, Scope
from sluice.stores.dynamodb import MAX_SKEW_NS, DynamoStore, Wire
from sluice.wires.clock import SystemClock
from sluice.wires.dynamodb.account import Account, missing_extra
from sluice.wires.dynamodb.options import Options, read_options
from sluice.wires.dynamodb.skew import EngineClock, HostClock, Timepiece


class Resolution:
    """An account, resolved when it is first asked for, once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._account: Account | None = None
        self.pid = os.getpid()

    def account(self) -> Account:
        """The account. Blocks while it is resolved."""
        with self._lock:
            if self._account is None:
                self._account = Account(self._options)
            return self._account


MakeWire = Callable[[Options, Timepiece, Callable[[], Account]], Wire]


class OpenTable(DynamoStore, Reporting):
    """The store behind a URL. It also tells when its clock was corrected."""

    def __init__(self, wire: Wire, options: Options, timepiece: Timepiece) -> None:
        skew_ns = MAX_SKEW_NS if options.max_skew_ns is None else options.max_skew_ns
        super().__init__(wire, options.table, max_skew_ns=skew_ns)
        self._timepiece = timepiece

    def report_to(self, tell: Observer, /) -> None:
        self._timepiece.report_to(tell)


class DynamoOpener:
    """Makes stores on one table."""

    def __init__(self, options: Options, make_wire: MakeWire) -> None:
        self.options = options
        self._make_wire = make_wire
        self._resolution = Resolution(options)

    def __call__(self, clock: Clock, scope: Scope, timeout_ns: int, /) -> OpenTable:
        resolution = self._resolution
        if resolution.pid != os.getpid():
            resolution = self._resolution = Resolution(self.options)
        timepiece = timepiece_for(self.options, clock)
        return OpenTable(self._make_wire(self.options, timepiece, resolution.account), self.options, timepiece)


def timepiece_for(options: Options, clock: Clock) -> Timepiece:
    """The clock that decides. One that was given to the client, as tests do, is believed as it is."""
    if options.corrected and isinstance(clock, SystemClock):
        return EngineClock(clock, options.max_skew_ns)
    return HostClock(clock)


def read_opener(url: str, make_wire: MakeWire) -> DynamoOpener:
    """Read a URL."""
    options = read_options(url)
    if find_spec("botocore") is None:
        raise missing_extra("botocore")
    return DynamoOpener(options, make_wire)
