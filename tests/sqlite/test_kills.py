"""Processes on one file, killed at random moments for a minute: what must hold, judged from their records alone.

Everything is by the store's clock. A kill may come between what happened and its note, so two readings are made: what
certainly was, which must never be over a limit, and what possibly was, which must account for every denial.
"""

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sluice import Sluice
from sluice.core.bounds import NS_PER_SECOND
from tests.sqlite.kit import ended, intact, start, url_of

SECONDS = 60
WORKERS = 6
SEED = 4

BURST = 30
INTERVAL_NS = -(-NS_PER_SECOND // 300)
CAPACITY = 4
TTL_NS = NS_PER_SECOND


@dataclass
class Held:
    """A lease on a slot, as its holder's record tells it."""

    killed_ns: int
    asked_ns: int = 0
    granted_ns: int | None = None
    last_ns: int = 0
    renews: bool = False
    releases_ns: int | None = None
    released_ns: int | None = None

    @property
    def certainly(self) -> tuple[int, int]:
        """From when until when it certainly was live."""
        assert self.granted_ns is not None
        end_ns = self.last_ns + TTL_NS
        return self.granted_ns, end_ns if self.releases_ns is None else min(end_ns, self.releases_ns)

    @property
    def possibly(self) -> tuple[int, int]:
        """From when until when it may have been."""
        if self.granted_ns is None:
            return self.asked_ns, self.killed_ns + TTL_NS
        if self.released_ns is not None:
            return self.granted_ns, self.released_ns
        return self.granted_ns, (self.killed_ns if self.renews else self.last_ns) + TTL_NS

    @property
    def lapsed(self) -> bool:
        return self.granted_ns is not None and self.releases_ns is None


@dataclass
class Told:
    """All records together."""

    grants_ns: list[int] = field(default_factory=list)
    denials_ns: list[int] = field(default_factory=list)
    leases: list[Held] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def read(self, path: Path, killed_ns: int) -> None:
        held: defaultdict[str, Held] = defaultdict(lambda: Held(killed_ns))
        answered: set[str] = set()
        for line in path.read_bytes().splitlines():
            self._read_note(json.loads(line), held, answered)
        self.leases += [lease for name, lease in held.items() if lease.granted_ns is not None or name not in answered]

    def _read_note(self, note: dict[str, Any], held: dict[str, Held], answered: set[str]) -> None:
        lease, at = note.get("lease", ""), note.get("at", 0)
        match note["note"]:
            case "asks":
                held[lease].asked_ns = at
                answered.discard(lease)
            case "granted" if note["slots"]:
                held[lease].granted_ns = held[lease].last_ns = at
                answered.add(lease)
            case "granted":
                self.grants_ns.append(at)
            case "denied":
                self.denials_ns.append(at)
                answered.add(lease)
            case "renews":
                held[lease].renews = True
            case "renewed":
                held[lease].last_ns, held[lease].renews = at, False
            case "releases":
                held[lease].releases_ns = held[lease].releases_ns or at
            case "released":
                held[lease].released_ns = at
            case "failed":
                self.failures.append(note["why"])


def most_at_once(spans: list[tuple[int, int]]) -> int:
    """The most spans that overlap; one that ends as another begins does not overlap it."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def worst_excess(grants_ns: list[int]) -> int:
    """By how much, in nanoseconds of refill, any interval had more than the burst and what came back in it."""
    worst = load = last = 0
    for at in sorted(grants_ns):
        load = max(0, load - (at - last)) + INTERVAL_NS
        last = at
        worst = max(worst, load - BURST * INTERVAL_NS)
    return worst


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], Told]:
    folder = tmp_path_factory.mktemp("kills")
    process = start("tests.sqlite.kills", folder=str(folder), seconds=SECONDS, workers=WORKERS, seed=SEED)
    report = json.loads(ended(process, SECONDS + 60))
    told = Told()
    for serial, killed_ns in report["killed"].items():
        record = folder / f"{serial}.jsonl"
        if record.exists():  # it may have been killed before it had one
            told.read(record, killed_ns)
    return folder, report, told


def test_kills_leave_no_limit_passed_no_slot_lost_and_the_file_whole(
    nursery: tuple[Path, dict[str, Any], Told], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, report, told = nursery
    kills, lapsed = len(report["killed"]), sum(lease.lapsed for lease in told.leases)
    granted = [lease for lease in told.leases if lease.granted_ns is not None]
    allowed = BURST + (report["ended_ns"] - report["begun_ns"]) // INTERVAL_NS
    with capsys.disabled():
        print(
            f"\n{kills} kills: {len(told.grants_ns)} of {allowed} allowed takes, {len(granted)} leases, {lapsed} "
            f"of them lapsed, {len(told.denials_ns)} denials, {len(told.leases) - len(granted)} takes cut off"
        )
    assert not told.failures
    assert kills >= 4 * SECONDS
    assert lapsed >= kills / 10, "too few died with a slot in hand for this to say anything"
    assert len(told.denials_ns) >= 1_000

    assert intact(folder / "quota.db")
    assert worst_excess(told.grants_ns) <= 0, "over the rate"
    assert len(told.grants_ns) >= 0.8 * allowed, "too little was taken for this to say anything"
    assert most_at_once([lease.certainly for lease in granted]) == CAPACITY, "over the slots, or never all of them"

    possible = [lease.possibly for lease in told.leases]
    for at in told.denials_ns:
        held = sum(begin <= at < end for begin, end in possible)
        assert held >= CAPACITY, f"denied at {at} with only {held} slots held: a dead holder's did not come back"

    time.sleep(max(0, max(end for _, end in possible) - time.time_ns()) / NS_PER_SECOND)
    with Sluice(url_of(folder / "quota.db")) as sluice:
        sluice.acquire("gpu", {"concurrent": CAPACITY}).release()  # all are back at their TTL


def test_the_judges_of_the_records_see_what_they_are_for() -> None:
    assert most_at_once([(0, 10), (10, 20), (5, 15)]) == 2
    assert worst_excess([0] * BURST) <= 0
    assert worst_excess([0] * BURST + [INTERVAL_NS - 1]) == 1
    assert worst_excess([0] * BURST + [INTERVAL_NS]) == 0
    unanswered = Held(killed_ns=50, asked_ns=40)
    assert unanswered.possibly == (40, 50 + TTL_NS)
    assert Held(killed_ns=50, asked_ns=40, granted_ns=42, last_ns=42, releases_ns=45).certainly == (42, 45)
    assert Held(killed_ns=50, granted_ns=42, last_ns=45, renews=True).possibly == (42, 50 + TTL_NS)
    assert Held(killed_ns=50, granted_ns=42, last_ns=45).possibly == (42, 45 + TTL_NS)
    assert Held(killed_ns=50, granted_ns=42, last_ns=45, released_ns=47).possibly == (42, 47)
