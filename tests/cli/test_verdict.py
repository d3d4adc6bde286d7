import pytest

from sluice.cli.demo.history import Arrived, Grant, History
from sluice.cli.demo.verdict import Verdict, judge
from tests.cli.histories import (
    EXPIRES_NS,
    KILLED_NS,
    MS,
    SCENARIO,
    SLOTS,
    T0,
    TTL_NS,
    change_death,
    good,
    need_few_slots_after_the_kill,
    the_dead,
)


def verdict_on(history: History) -> Verdict:
    return judge(SCENARIO, history)


def broken(history: History) -> list[str]:
    """What is held against a history, in a word or two each."""
    verdict = verdict_on(history)
    texts = [promise.text for promise in verdict.promises if not promise.kept]
    assert verdict.kept == (not texts)
    assert all(text in verdict.sentence for text in texts)
    return texts


RATES = "grants never exceed capacity + rate x time"
LEASES = f"leases never hold more than {SLOTS} slots"
VENDOR = "the vendor counts no violation"
DEAD = "the dead worker's slot is free at its TTL of 3 s"
USED = "what is allowed is granted"
OTHERS = "the other processes work to the end"


def test_a_demo_in_which_everything_holds_is_kept() -> None:
    verdict = verdict_on(good())
    assert verdict.kept, verdict.sentence
    assert verdict.sentence == "Everything that must hold did."
    assert [promise.text for promise in verdict.promises] == [RATES, LEASES, VENDOR, DEAD, USED, OTHERS]


def test_the_table_has_what_was_granted_and_allowed() -> None:
    requests, tokens, slots = verdict_on(good()).rows
    assert (requests.granted, requests.allowed, requests.share) == ("140", "170", 140 / 170)
    assert (tokens.granted, tokens.allowed) == ("84,000", "118,999")
    assert 0.85 < slots.share < 1
    assert [row.violations for row in (requests, tokens, slots)] == [0, 0, 0]


def test_the_facts_have_the_waits_the_jitter_and_the_time_of_reuse() -> None:
    facts = dict(verdict_on(good()).facts)
    assert facts["calls"] == "140, of which 0 were answered 429"
    assert facts["waits"] == "p50 4.0 ms, p99 9.0 ms"
    assert facts["start jitter"] == "0.0 ms: how unevenly calls reached the vendor"
    history = good()
    taken = history.reuse(SLOTS, TTL_NS)
    assert taken is not None
    since_kill, since_lapse = ((taken.at_ns - at_ns) // MS for at_ns in (KILLED_NS, EXPIRES_NS))
    assert facts["dead worker's slot"].startswith(f"reused {since_kill:,} ms after the kill, {since_lapse}")


def test_one_grant_too_many_of_a_rate_is_broken() -> None:
    history = good()
    for number in range(40):  # 20 fit at once, and the others leave room for a few more
        at_ns = T0 + 14_900 * MS + number
        history.grants[f"extra {number}"] = Grant(f"extra {number}", 1, at_ns, {"requests": 1, "tokens": 0, "slots": 0})
        history.released_ns[f"extra {number}"] = at_ns
    assert broken(history) == [RATES]
    row = next(promise for promise in verdict_on(history).promises if promise.text == RATES)
    assert "of 180 grants over, the worst by" in row.detail


def test_a_lease_too_many_at_once_is_broken() -> None:
    history = good()
    history.released_ns["lease 10"] += 500 * MS
    assert broken(history) == [LEASES]


def test_a_lease_that_was_never_released_holds_its_slot_until_it_lapses() -> None:
    history = good()
    del history.released_ns["lease 139"]
    assert broken(history) == []
    del history.released_ns["lease 100"]
    assert broken(history) == [LEASES]


def test_a_lease_lapses_a_ttl_after_its_last_renewal() -> None:
    history = good()
    grant = history.grants["lease 139"]
    assert history.lease_end_ns(grant, TTL_NS) == history.released_ns.pop(grant.lease)
    assert history.lease_end_ns(grant, TTL_NS) == grant.at_ns + TTL_NS
    history.read(1, {"note": "renewed", "lease": grant.lease, "at_ns": grant.at_ns + 5 * MS})
    assert history.lease_end_ns(grant, TTL_NS) == grant.at_ns + 5 * MS + TTL_NS


def test_calls_that_arrive_too_densely_are_violations() -> None:
    history = good()
    for number in range(40):
        history.arrived[2, 1_000 + number] = Arrived("lease 139", 14_900 * MS + number, 1)
        history.ended_ns[2, 1_000 + number] = 14_900 * MS + number
    verdict = verdict_on(history)
    assert broken(history) == [VENDOR]
    assert verdict.rows[0].violations > 0


def test_what_the_jitter_explains_is_no_violation() -> None:
    history = good()
    late = [key for key, arrived in history.arrived.items() if arrived.at_ns < 3_000 * MS]
    for key in late:
        arrived = history.arrived[key]
        history.arrived[key] = Arrived(arrived.lease, 3_000 * MS, arrived.tokens)
        history.ended_ns[key] = 3_000 * MS
    assert len(late) > 25
    assert broken(history) == []
    assert dict(verdict_on(history).facts)["start jitter"].startswith("2,899 ms")


def test_too_many_calls_at_once_are_a_violation() -> None:
    history = good()
    history.ended_ns[1, 10] += 1_000 * MS
    assert broken(history) == [VENDOR]
    assert verdict_on(history).rows[2].violations > 0


def test_a_machine_that_stood_still_is_told_of_and_not_held_against_sluice() -> None:
    history = good()
    history.ended_ns[1, 10] += 1_000 * MS
    history.lost.add("lease 10")
    assert broken(history) == []
    assert "1 leases lapsed in use" in next(p.detail for p in verdict_on(history).promises if p.text == VENDOR)


def test_a_call_without_a_grant_is_broken() -> None:
    history = good()
    history.arrived[1, 999] = Arrived("nobody's", 14_999 * MS, 1)
    history.ended_ns[1, 999] = 14_999 * MS
    assert broken(history) == [VENDOR]


def test_calls_answered_429_count_as_arrived_and_are_told_of() -> None:
    history = good()
    arrived = history.arrived[1, 5]
    history.arrived[1, 5] = Arrived(arrived.lease, arrived.at_ns, arrived.tokens, quota="requests")
    del history.ended_ns[1, 5]
    assert broken(history) == []
    assert dict(verdict_on(history).facts)["calls"] == "140, of which 1 were answered 429"


def test_a_dead_workers_slot_that_is_taken_too_early_is_broken() -> None:
    history = good()
    taken = history.reuse(SLOTS, TTL_NS)
    assert taken is not None
    change_death(history, expires_ns=taken.at_ns + 1)
    assert broken(history) == [LEASES, DEAD]
    change_death(history, expires_ns=taken.at_ns)
    assert broken(history) == []


def test_a_dead_workers_slot_that_the_store_keeps_past_its_ttl_is_broken() -> None:
    history = good()
    need_few_slots_after_the_kill(history)
    change_death(history, expires_ns=KILLED_NS + TTL_NS)
    assert broken(history) == []
    change_death(history, expires_ns=KILLED_NS + TTL_NS + 1)
    assert broken(history) == [DEAD]


def test_a_refusal_after_the_slot_lapsed_and_before_it_was_taken_is_broken() -> None:
    history = good()
    taken = history.reuse(SLOTS, TTL_NS)
    assert taken is not None
    assert taken.at_ns > EXPIRES_NS + 2 * MS
    history.full_ns.append(EXPIRES_NS + 2 * MS)
    assert broken(history) == [DEAD]


@pytest.mark.parametrize("since_ns", [-MS, 0, MS])
def test_a_refusal_before_it_had_lapsed_for_certain_is_none_of_that(since_ns: int) -> None:
    history = good()
    history.full_ns.append(EXPIRES_NS + since_ns)
    assert broken(history) == []


def test_a_refusal_while_the_living_hold_all_slots_is_none_of_that() -> None:
    history = good()
    taken = history.reuse(SLOTS, TTL_NS)
    assert taken is not None
    history.full_ns.append(taken.at_ns)
    assert broken(history) == []


def test_a_slot_that_nobody_needed_again_is_not_broken() -> None:
    history = good()
    need_few_slots_after_the_kill(history)
    assert history.reuse(SLOTS, TTL_NS) is None
    assert broken(history) == []
    assert dict(verdict_on(history).facts)["dead worker's slot"].endswith("nobody needed it")


def test_nobody_killed_or_nothing_held_is_broken() -> None:
    history = good()
    change_death(history, expires_ns=None)
    assert broken(history) == [DEAD]
    history.death = None
    assert DEAD in broken(history)


def test_far_too_little_granted_is_broken() -> None:
    history = good()
    for number in range(80):
        lease = f"lease {number}"
        if lease != the_dead(history).lease:
            del history.grants[lease]
            key = next(key for key, arrived in history.arrived.items() if arrived.lease == lease)
            del history.arrived[key]
    assert broken(history) == [USED]


def test_a_demo_without_a_single_grant_is_broken() -> None:
    assert broken(History()) == [DEAD, USED]


def test_a_process_that_failed_is_broken_with_its_last_words() -> None:
    history = good()
    history.failures["worker 3"] = "StoreUnavailable: taking vendor"
    assert broken(history) == [OTHERS]
    assert "worker 3: StoreUnavailable: taking vendor" in verdict_on(history).sentence
