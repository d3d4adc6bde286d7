"""All that happened in a demo, put together from the workers' notes.

Times of grants, renewals and releases are the store's; times of calls are those of the steady clock, which all
processes share. The two are never compared, only how far apart they are from one call to the next.
"""

from __future__ import annotations

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
    """A worker was killed. By the store's clock its slot lapses at ``expires_ns``; None if it held none any more."""

    worker: int
    lease: str
    killed_ns: int
    expires_ns: int | None


@dataclass(frozen=True, slots=True)
class Began:
    """A call to the vendor, as it began."""

    worker: int
    lease: str
    at_ns: int
    tokens: int


@dataclass
class History:
    """What is known so far."""

    grants: dict[str, Grant] = field(default_factory=dict)
    renewed_ns: dict[str, int] = field(default_factory=dict)
    released_ns: dict[str, int] = field(default_factory=dict)
    waited_ns: list[int] = field(default_factory=list)
    began: dict[tuple[int, int], Began] = field(default_factory=dict)
    ended_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    death: Death | None = None
    died_steady_ns: int | None = None
    failures: dict[int, str] = field(default_factory=dict)

    def read(self, worker: int, facts: Mapping[str, Any]) -> None:
        """Take in one note; those that are only to be looked at are passed over."""
        match facts["note"]:
            case "granted":
                self.grants[facts["lease"]] = Grant(facts["lease"], worker, facts["at_ns"], facts["amounts"])
            case "renewed":
                self.renewed_ns[facts["lease"]] = facts["at_ns"]
            case "released":
                self.released_ns[facts["lease"]] = facts["at_ns"]
            case "waited":
                self.waited_ns.append(facts["waited_ns"])
            case "started":
                began = Began(worker, facts["lease"], facts["at_ns"], facts["tokens"])
                self.began[worker, facts["call"]] = began
            case "ended":
                self.ended_ns[worker, facts["call"]] = facts["at_ns"]
            case "lost":
                self.lost.append(facts["lease"])

    def lease_end_ns(self, grant: Grant, ttl_ns: int) -> int:
        """When a lease's slot was free again, by the store's clock: released, or lapsed."""
        death = self.death
        if death is not None and death.lease == grant.lease and death.expires_ns is not None:
            return death.expires_ns
        lapses_ns = max(grant.at_ns, self.renewed_ns.get(grant.lease, 0)) + ttl_ns
        return min(lapses_ns, self.released_ns.get(grant.lease, lapses_ns))

    def calls(self) -> list[Call]:
        """What the vendor saw. Of a worker that was killed it saw the connection break."""
        calls = []
        for key, began in self.began.items():
            ended_ns = self.ended_ns.get(key)
            if ended_ns is None and self.death is not None and began.worker == self.death.worker:
                ended_ns = self.died_steady_ns
            calls.append(Call(began.at_ns, ended_ns, {"tokens": began.tokens}))
        return calls

    def delays_ns(self) -> list[int]:
        """How long after its grant each call began, give or take a constant: the two clocks have other zeros."""
        return [
            began.at_ns - self.grants[began.lease].at_ns for began in self.began.values() if began.lease in self.grants
        ]

    def uncounted(self) -> list[Began]:
        """Calls without a grant: there must be none."""
        return [began for began in self.began.values() if began.lease not in self.grants]


def reuse(history: History, slots: int, ttl_ns: int) -> Grant | None:
    """The grant that took the dead worker's slot: the first after its death with which the living hold all slots."""
    death = history.death
    if death is None:
        return None
    living = [grant for grant in history.grants.values() if grant.lease != death.lease]
    ends_ns = {grant.lease: history.lease_end_ns(grant, ttl_ns) for grant in living}
    for grant in sorted(living, key=lambda grant: grant.at_ns):
        held = sum(other.at_ns <= grant.at_ns < ends_ns[other.lease] for other in living)
        if grant.at_ns > death.killed_ns and held >= slots:
            return grant
    return None
