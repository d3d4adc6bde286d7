"""A made-up demo in which everything holds, for tests to break one thing of."""

from dataclasses import replace

from sluice.cli.demo.history import Arrived, Death, Grant, History
from sluice.cli.demo.scenario import Scenario

MS = 1_000_000
T0 = 1_700_000_000_000 * MS
"""When it begins, by the store's clock; the vendor's clock began with the demo."""

SCENARIO = Scenario(15, 6, seed=1)
SLOTS, TTL_NS = SCENARIO.slots.capacity, SCENARIO.slots.ttl_ns
HELD_NS = 390 * MS
CALL_NS = 380 * MS
GAP_NS = 100 * MS
KILLED_NS = T0 + 4_900 * MS
EXPIRES_NS = T0 + 7_500 * MS


def good() -> History:
    """A grant each 100 ms; with a slot missing, one each 130 ms. Worker 6 is killed; all slots are held most times."""
    history = History()
    free_ns = [T0] * SLOTS
    at_ns = T0
    for number in range(140):
        slot = min(range(SLOTS), key=lambda index: free_ns[index])
        at_ns = max(at_ns + GAP_NS, free_ns[slot])
        dies = history.death is None and at_ns > T0 + 4_400 * MS
        lease = f"lease {number}"
        worker = 6 if dies else 1 + number % 5
        history.grants[lease] = Grant(lease, worker, at_ns, {"requests": 1, "tokens": 600, "slots": 1})
        history.arrived[worker, number] = Arrived(lease, at_ns - T0 + 1 * MS, 600)
        history.waited_ns.append(number % 10 * MS)
        if dies:
            history.death = Death(worker, lease, KILLED_NS, EXPIRES_NS, slack_ns=MS)
            history.ended_ns[worker, number] = KILLED_NS - T0
            free_ns[slot] = EXPIRES_NS
        else:
            history.ended_ns[worker, number] = at_ns - T0 + CALL_NS
            history.released_ns[lease] = free_ns[slot] = at_ns + HELD_NS
    return history


def need_few_slots_after_the_kill(history: History) -> None:
    """Make what comes after the kill so short that nobody needs the dead worker's slot again."""
    for grant in history.grants.values():
        if grant.at_ns > KILLED_NS:
            history.released_ns[grant.lease] = grant.at_ns + 100 * MS


def the_dead(history: History) -> Death:
    assert history.death is not None
    return history.death


def change_death(history: History, **facts: int | None) -> None:
    history.death = replace(the_dead(history), **facts)  # type: ignore[arg-type]
