"""From a place to a store. Clients that share an opener, one for each namespace, share one connection a process."""

import os
from typing import Protocol

from sluice.ports import Clock, Scope
from sluice.stores.sqlite import SqliteStore, Wire
from sluice.wires.sqlite.place import Place


class MakeWire(Protocol):
    """One of the two wires."""

    def __call__(self, place: Place, clock: Clock, timeout_ns: int, /) -> Wire: ...


class SqliteOpener:
    """Makes stores on one file. No I/O is done before a store is asked something."""

    def __init__(self, place: Place, make_wire: MakeWire) -> None:
        self.place = place
        self._make_wire = make_wire
        self._made: tuple[int, Clock, int, Wire] | None = None

    def __call__(self, clock: Clock, scope: Scope, timeout_ns: int, /) -> SqliteStore:
        made, pid = self._made, os.getpid()
        if made is None or made[0] != pid or made[1] is not clock or made[2] != timeout_ns:
            made = self._made = (pid, clock, timeout_ns, self._make_wire(self.place, clock, timeout_ns))
        return SqliteStore(made[3])
