"""The core and the oracle are driven side by side and must say the same, to the nanosecond, after every step.

Time stands still, creeps from one boundary to the next with a tick to either side, jumps far ahead and steps back.
Limits change under the buckets' feet; turns are given up late; leases are released twice and reaped by half.
"""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.core import bucket as core
from sluice.core.bucket import EMPTY, Bucket
from sluice.core.decide import decide
from sluice.core.names import BucketKey
from sluice.core.requests import (
    BucketOutcome,
    BucketRequest,
    Charge,
    Clash,
    Delta,
    Denied,
    Fold,
    Folded,
    GaveUp,
    GiveUp,
    Gone,
    Granted,
    LimitStatus,
    Part,
    Pause,
    Paused,
    Peek,
    Peeked,
    RateCharge,
    Reap,
    Reaped,
    Release,
    Released,
    Renew,
    Renewed,
    Settle,
    Settled,
    SlotsCharge,
    Take,
)
from tests.core import oracle
from tests.core.oracle import Answer, OracleBucket

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
START_NS = 490_000 * oracle.HOUR_NS - 50

KEYS = (BucketKey("ns", "acme", "openai"), BucketKey("ns", "*", "openai"))
RATES: dict[str, tuple[tuple[int, int], ...]] = {  # capacity, interval; all that this limit has been or may become
    "rpm": ((5, 3), (5, 7), (2, 7), (12, 1)),
    "day": ((3, 17 * SECOND_NS), (40, DAY_NS)),
}
SLOTS = ((3, 10), (3, 40), (4, 40), (6, 2 * SECOND_NS))  # capacity, ttl
LEASES = ("a", "b", "c", "d")


@st.composite
def rate_charges(draw: st.DrawFn, name: str) -> RateCharge:
    capacity, interval_ns = draw(st.sampled_from(RATES[name]))
    leave = draw(st.sampled_from((0, 0, 0, 1)))
    amount = draw(st.integers(1, capacity - leave))
    return RateCharge(name, amount, capacity, interval_ns, leave)


@st.composite
def slots_charges(draw: st.DrawFn) -> SlotsCharge:
    capacity, ttl_ns = draw(st.sampled_from(SLOTS))
    leave = draw(st.sampled_from((0, 0, 0, capacity // 3)))
    amount = draw(st.integers(1, capacity - leave))
    return SlotsCharge("conc", amount, capacity, ttl_ns, leave)


@st.composite
def parts(draw: st.DrawFn, key: BucketKey) -> Part:
    kinds: dict[str, st.SearchStrategy[Charge]] = {
        "rpm": rate_charges("rpm"),
        "day": rate_charges("day"),
        "conc": slots_charges(),
    }
    names = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=3, unique=True))
    return Part(key, tuple(draw(kinds[name]) for name in names))


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    name = draw(st.sampled_from(sorted(RATES)))
    _, interval_ns = draw(st.sampled_from(RATES[name]))
    return Delta(name, draw(st.one_of(st.integers(-12, 12), st.sampled_from((0, 400)))), interval_ns)


BUCKETS = st.sampled_from(KEYS)
TAKEN_KEYS = st.lists(BUCKETS, min_size=1, max_size=2, unique=True)
SOME_DELTAS = st.lists(deltas(), max_size=2).map(tuple)


def told(outcome: BucketOutcome) -> Answer:
    """An outcome of the core in the words of the oracle."""
    match outcome:
        case Granted(repeated=True):
            return ("repeated",)
        case Granted():
            return ("granted", outcome.turn_ns, outcome.clamped)
        case Denied():
            return ("denied", outcome.retry_in_ns, tuple(map(plain, outcome.limits)), outcome.clamped)
        case GaveUp():
            return ("gave up", outcome.returned)
        case Reaped():
            return ("reaped", {(slot.limit, slot.entry, slot.expires_ns) for slot in outcome.removed})
        case Paused():
            return ("paused", outcome.until_ns)
    words = {Clash: "clash", Settled: "settled", Released: "released", Gone: "gone", Renewed: "renewed"}
    return (words[type(outcome)],)


def plain(status: LimitStatus) -> Answer:
    return (status.resource, status.name, status.entity, status.capacity, status.available, status.retry_in)


def image(bucket: Bucket) -> Answer:
    rates = {name: (state.full_at_ns, state.interval_ns) for name, state in bucket.rates.items()}
    slots = {(name, entry, at_ns) for name, entries in bucket.slots.items() for entry, at_ns in entries.items()}
    return (rates, slots, bucket.paused_until_ns, bucket.paused_total_ns, dict(bucket.usage))


class CoreAndOracle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ns = START_NS
        self.core: dict[BucketKey, Bucket] = {}
        self.oracle = {key: OracleBucket() for key in KEYS}
        self.turns: list[GiveUp] = []
        self.asked: Take | None = None

    def same(self, request: BucketRequest, expected: Answer) -> BucketOutcome:
        changed, _, outcome = decide(request, lambda key: self.core.get(key, EMPTY), self.now_ns)
        self.core |= changed
        assert told(outcome) == expected
        return outcome

    # --- time ---

    @initialize(offset_ns=st.integers(0, 60))
    def start_near_the_hour(self, offset_ns: int) -> None:
        self.now_ns += offset_ns

    @rule(step_ns=st.integers(1, 30))
    def time_passes(self, step_ns: int) -> None:
        self.now_ns += step_ns

    @rule(jump_ns=st.sampled_from((-1, -5, -30, SECOND_NS, -SECOND_NS, 20 * SECOND_NS, -20 * SECOND_NS)))
    def the_clock_jumps(self, jump_ns: int) -> None:
        self.now_ns += jump_ns

    @rule(
        jump_ns=st.sampled_from((oracle.HOUR_NS, DAY_NS, -DAY_NS, 3 * DAY_NS, 800 * DAY_NS, -800 * DAY_NS)),
        sure=st.integers(0, 3),
    )
    def the_clock_jumps_out_of_all_reach(self, jump_ns: int, sure: int) -> None:
        """One time in four, or nothing would ever be held for long."""
        if sure == 3:
            self.now_ns += jump_ns

    @rule(data=st.data(), tick=st.sampled_from((-1, 0, 1)))
    def time_comes_to_a_boundary(self, data: st.DataObject, tick: int) -> None:
        ahead = sorted(moment for moment in self.boundaries() if moment >= self.now_ns)
        self.now_ns = data.draw(st.sampled_from(ahead), label="boundary") + tick

    def boundaries(self) -> set[int]:
        moments = {(self.now_ns // oracle.HOUR_NS + 1) * oracle.HOUR_NS}
        for bucket in self.oracle.values():
            moments |= {slot.expires_ns for slot in bucket.held}
            moments |= {backlog.empty_at_ns for backlog in bucket.backlogs.values()}
            moments |= {bucket.paused_until_ns, bucket.clock_ns(self.now_ns)}
        if self.asked is not None:
            moments |= {
                self.now_ns + self.oracle[part.key].wait_ns(charge, self.now_ns)
                for part in self.asked.parts
                for charge in part.charges
            }
        return moments

    # --- taking ---

    @rule(lease_id=st.sampled_from(LEASES), keys=TAKEN_KEYS, data=st.data())
    def take(self, lease_id: str, keys: list[BucketKey], data: st.DataObject) -> None:
        self.asked = Take(lease_id, tuple(data.draw(parts(key)) for key in keys))
        self.same(self.asked, oracle.take(self.oracle, self.asked, self.now_ns))

    @precondition(lambda self: self.asked is not None)
    @rule()
    def ask_again(self) -> None:
        assert self.asked is not None
        self.same(self.asked, oracle.take(self.oracle, self.asked, self.now_ns))

    @rule(
        key=BUCKETS, name=st.sampled_from(sorted(RATES)), wait_ns=st.sampled_from((1, 12, 30, DAY_NS)), data=st.data()
    )
    def reserve_a_turn(self, key: BucketKey, name: str, wait_ns: int, data: st.DataObject) -> None:
        charge = data.draw(rate_charges(name))
        self.asked = Take("turn", (Part(key, (charge,)),), wait_ns)
        outcome = self.same(self.asked, oracle.take(self.oracle, self.asked, self.now_ns))
        if isinstance(outcome, Granted):
            left_ns = outcome.images[0].rates[name].full_at_ns
            self.turns.append(GiveUp(key, name, charge.amount, charge.interval_ns, left_ns))

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def give_a_turn_up(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from(self.turns[-3:]))
        self.same(turn, self.oracle[turn.key].give_up(turn, self.now_ns))

    @rule(lease_id=st.sampled_from(LEASES), key=BUCKETS, charge=slots_charges())
    def hold_slots(self, lease_id: str, key: BucketKey, charge: SlotsCharge) -> None:
        self.asked = Take(lease_id, (Part(key, (charge,)),))
        self.same(self.asked, oracle.take(self.oracle, self.asked, self.now_ns))

    # --- correcting ---

    @rule(key=BUCKETS, corrections=SOME_DELTAS)
    def settle(self, key: BucketKey, corrections: tuple[Delta, ...]) -> None:
        self.same(Settle(key, corrections), self.oracle[key].settle(corrections, self.now_ns))

    def some_lease(self, data: st.DataObject) -> tuple[BucketKey, str]:
        """A lease that stands in a bucket, or else any."""
        standing = sorted({(n, slot.lease_id) for n, key in enumerate(KEYS) for slot in self.oracle[key].held})
        number, lease_id = data.draw(st.sampled_from(standing or [(0, "a"), (1, "b")]), label="lease")
        return KEYS[number], lease_id

    @rule(data=st.data(), corrections=SOME_DELTAS)
    def release(self, data: st.DataObject, corrections: tuple[Delta, ...]) -> None:
        key, lease_id = self.some_lease(data)
        request = Release(key, lease_id, corrections)
        self.same(request, self.oracle[key].release(request, self.now_ns))

    @rule(data=st.data(), shape=st.sampled_from(SLOTS), other_amount=st.integers(0, 9))
    def renew(self, data: st.DataObject, shape: tuple[int, int], other_amount: int) -> None:
        key, lease_id = self.some_lease(data)
        held = len(self.oracle[key].held_by(lease_id, "conc", self.now_ns))
        amount = 1 if other_amount == 9 else held or 1
        request = Renew(key, lease_id, (SlotsCharge("conc", amount, *shape),))
        self.same(request, self.oracle[key].renew(request, self.now_ns))

    @rule(key=BUCKETS, for_ns=st.sampled_from((1, 8, 40, SECOND_NS, DAY_NS)))
    def pause(self, key: BucketKey, for_ns: int) -> None:
        self.same(Pause(key, for_ns), self.oracle[key].pause(for_ns, self.now_ns))

    # --- tidying ---

    @rule(key=BUCKETS, page=st.integers(1, 3), late_ns=st.integers(0, 15))
    def reap(self, key: BucketKey, page: int, late_ns: int) -> None:
        """A page of what had lapsed, seen some time before it is reaped."""
        seen = core.lapsed(self.core.get(key, EMPTY), self.now_ns + late_ns)[:page]
        self.same(Reap(key, seen), self.oracle[key].reap(seen, self.now_ns))

    @rule(key=BUCKETS)
    def fold(self, key: BucketKey) -> None:
        expected = self.oracle[key].fold(self.now_ns)
        changed, filed, outcome = decide(Fold(key), lambda key: self.core.get(key, EMPTY), self.now_ns)
        self.core |= changed
        assert ("folded", filed) == expected
        assert outcome == Folded(self.now_ns, len(filed))

    # --- what must be the same after every step ---

    @invariant()
    def the_images_are_the_same(self) -> None:
        for key in KEYS:
            bucket = self.core.get(key, EMPTY)
            assert image(bucket) == self.oracle[key].image()
            assert {(s.limit, s.entry, s.expires_ns) for s in core.lapsed(bucket, self.now_ns)} == self.oracle[
                key
            ].lapsed(self.now_ns)
            assert core.idle(bucket, self.now_ns) == self.oracle[key].idle(self.now_ns)
            changed, _, peeked = decide(Peek(key), lambda key: self.core.get(key, EMPTY), self.now_ns)
            assert not changed
            assert peeked == Peeked(self.now_ns, bucket)

    @invariant()
    def every_limit_stands_the_same(self) -> None:
        charges: list[Charge] = [
            RateCharge(name, 1, capacity, interval_ns)
            for name, shapes in RATES.items()
            for capacity, interval_ns in shapes
        ]
        charges += [SlotsCharge("conc", capacity, capacity, ttl_ns) for capacity, ttl_ns in SLOTS]
        for key in KEYS:
            bucket = self.core.get(key, EMPTY)
            for charge in charges:
                expected = self.oracle[key].status(key, charge, self.now_ns)
                assert plain(core.status(bucket, key, charge, self.now_ns)) == expected


CoreAndOracle.TestCase.settings = settings(max_examples=500, stateful_step_count=40, deadline=None)
TestTheCoreSaysWhatTheOracleSays: Callable[..., object] = CoreAndOracle.TestCase
