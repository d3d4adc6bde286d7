"""All that happened in a demo, put together from the notes of the workers and of the vendor.

Times of grants, denials, renewals and releases are the store's; times of calls are the vendor's. The two are never
compared, only how far apart they are from one call to the next.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice.testing.vendor import Call

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease as the store granted it."""

    lease: str
    worker: int
    at_ns: int
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Death:
    """A worker was killed. By the store's clock its slot lapses at ``expires_ns``, or up to ``slack_ns`` later: between
    the two the store was read. None if it held no slot any more.
    """

    worker: int
    lease: str
    killed_ns: int
    expires_ns: int | None
    slack_ns: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    """A call as it reached the vendor; ``quota`` is what it was refused for."""

    lease: str
    at_ns: int
    tokens: int
    quota: str | None = None


@dataclass
class History:
    """What is known so far."""

    grants: dict[str, Grant] = field(default_factory=dict)
    full_ns: list[int] = field(default_factory=list)
    renewed_ns: dict[str, int] = field(default_factory=dict)
    released_ns: dict[str, int] = field(default_factory=dict)
    waited_ns: list[int] = field(default_factory=list)
    arrived: dict[tuple[int, int], Arrived] = field(default_factory=dict)
    ended_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    death: Death | None = None
    failures: dict[str, str] = field(default_factory=dict)

    def read(self, worker: int, facts: Mapping[str, Any]) -> None:
        """Take in one note of a worker; those that are only to be looked at are passed over."""
        match facts["note"]:
            case "granted":
                self.grants[facts["lease"]] = Grant(facts["lease"], worker, facts["at_ns"], facts["amounts"])
            case "full":
                self.full_ns.append(facts["at_ns"])
            case "renewed":
                self.renewed_ns[facts["lease"]] = facts["at_ns"]
            case "released":
                self.released_ns[facts["lease"]] = facts["at_ns"]
            case "waited":
                self.waited_ns.append(facts["waited_ns"])
            case "lost":
                self.lost.add(facts["lease"])

    def read_vendor(self, facts: Mapping[str, Any]) -> None:
        """Take in one note of the vendor."""
        match facts["note"]:
            case "called" | "refused":
                call = Arrived(facts["lease"], facts["at_ns"], facts["tokens"], facts.get("quota"))
                self.arrived[facts["worker"], facts["call"]] = call
            case "ended":
                self.ended_ns[facts["worker"], facts["call"]] = facts["at_ns"]

    def lease_end_ns(self, grant: Grant, ttl_ns: int) -> int:
        """When a lease's slot was free again, by the store's clock: released, or lapsed."""
        death = self.death
        if death is not None and death.lease == grant.lease and death.expires_ns is not None:
            return death.expires_ns
        lapses_ns = max(grant.at_ns, self.renewed_ns.get(grant.lease, 0)) + ttl_ns
        return min(lapses_ns, self.released_ns.get(grant.lease, lapses_ns))

    def calls(self) -> list[Call]:
        """All calls that the vendor saw, answered or refused."""
        return [
            Call(arrived.at_ns, self._call_end_ns(key, arrived), {"tokens": arrived.tokens})
            for key, arrived in self.arrived.items()
        ]

    def _call_end_ns(self, key: tuple[int, int], arrived: Arrived) -> int | None:
        return self.ended_ns.get(key) if arrived.quota is None else arrived.at_ns

    def unfinished(self, made: int) -> bool:
        """Whether not all of so many calls are known from beginning to end."""
        ended = len(self.ended_ns) + len(self.turned_away())
        return len(self.arrived) < made or ended < made

    def turned_away(self) -> list[str]:
        """For what calls were answered 429 while the demo ran."""
        return [arrived.quota for arrived in self.arrived.values() if arrived.quota is not None]

    def delays_ns(self) -> list[int]:
        """How long after its grant each call arrived, give or take a constant: the two clocks have other zeros."""
        return [
            arrived.at_ns - self.grants[arrived.lease].at_ns
            for arrived in self.arrived.values()
            if arrived.lease in self.grants
        ]

    def uncounted(self) -> list[Arrived]:
        """Calls without a grant: there must be none."""
        return [arrived for arrived in self.arrived.values() if arrived.lease not in self.grants]

    def reuse(self, slots: int, ttl_ns: int) -> Grant | None:
        """The grant that took the dead worker's slot: the first since its death with which the living hold them all."""
        death = self.death
        if death is None:
            return None
        living = self._living(ttl_ns)
        after = [grant for grant in self.grants.values() if grant.at_ns > death.killed_ns]
        took = (grant for grant in after if grant.lease != death.lease and living.held(grant.at_ns) >= slots)
        return min(took, key=lambda grant: grant.at_ns, default=None)

    def wrongly_full_ns(self, slots: int, ttl_ns: int) -> list[int]:
        """When somebody was told that no slot is free although the dead worker's had lapsed and the living left one."""
        if self.death is None or self.death.expires_ns is None:
            return []
        since_ns = self.death.expires_ns + self.death.slack_ns
        living = self._living(ttl_ns)
        return [at_ns for at_ns in self.full_ns if at_ns > since_ns and living.held(at_ns) < slots]

    def _living(self, ttl_ns: int) -> _Holding:
        dead = None if self.death is None else self.death.lease
        grants = [grant for grant in self.grants.values() if grant.lease != dead]
        return _Holding(
            sorted(grant.at_ns for grant in grants), sorted(self.lease_end_ns(grant, ttl_ns) for grant in grants)
        )


@dataclass(frozen=True, slots=True)
class _Holding:
    """How many leases live at a time: those that have begun, less those that have ended."""

    begun_ns: list[int]
    ended_ns: list[int]

    def held(self, at_ns: int) -> int:
        return bisect_right(self.begun_ns, at_ns) - bisect_right(self.ended_ns, at_ns)
