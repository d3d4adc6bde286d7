"""What the store makes of replies that the model of the engine never gives, and how things are keyed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sluice.core.bounds import MAX_NAME_BYTES
from sluice.core.bucket import Bucket
from sluice.core.documents import Delete, Document, DocumentKey, Kind, Mismatch, Put, Stored
from sluice.core.errors import ConfigError
from sluice.core.names import BucketKey
from sluice.core.requests import (
    Delta,
    Fold,
    Part,
    Pause,
    Peek,
    RateCharge,
    Reap,
    Release,
    Renew,
    Repair,
    Settle,
    Settled,
    SlotEntry,
    SlotsCharge,
    Take,
    Unknown,
    Unreached,
)
from sluice.core.usage import hour_key
from sluice.flow.room import GENERATION, Room
from sluice.stores.dynamodb import DynamoStore, definition
from sluice.stores.dynamodb.beliefs import Beliefs
from sluice.stores.dynamodb.table import bucket_key, bucket_listing, document_key, document_listing
from sluice.stores.dynamodb.wire import Answered, Call, ConditionFailed, Operation, Reply
from sluice.testing import ManualClock
from sluice.testing.dynamodb.model import Engine, ModelWire, decided
from sluice.wires.blocking.scope import BlockingScope

NS = "namespace-a"
KEY = BucketKey(NS, "*", "openai")


class Scripted(ModelWire):
    """A model whose replies are changed on their way back, and that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(Engine(definition("sluice")), ManualClock().now_ns)
        self.asked: list[Call] = []
        self.script: list[Callable[[Call, Reply], Reply]] = []

    async def send(self, calls: Sequence[Call], /) -> list[Reply]:
        return [self._reply(call) for call in calls]

    def _reply(self, call: Call) -> Reply:
        self.asked.append(call)
        reply = decided(self.engine, call)
        return self.script.pop(0)(call, reply) if self.script else reply


@pytest.fixture
def wire() -> Scripted:
    return Scripted()


@pytest.fixture
def ask(wire: Scripted) -> Any:
    store = DynamoStore(wire, "sluice")
    return lambda verb, *arguments, **options: BlockingScope(ManualClock()).run(
        getattr(store, verb)(*arguments, **options)
    )


def _document(name: str, version: str = "v1") -> Document:
    return Document(DocumentKey(NS, Kind.LIMITS, name), "{}", version)


def lost(call: Call, reply: Reply) -> Reply:
    return Unknown("lost")


def throttled(call: Call, reply: Reply) -> Reply:
    return Unreached("throttled")


# --- reading ----------------------------------------------------------------------------------------------------------


def test_what_a_reply_leaves_out_is_asked_for_again(wire: Scripted, ask: Any) -> None:
    documents = [_document(f"{number:03d}") for number in range(20)]
    ask("write", [Put(document) for document in documents])
    wire.asked.clear()

    def half(call: Call, reply: Reply) -> Reply:
        assert isinstance(reply, Answered)
        items = reply.body["Responses"]["sluice"]
        kept = len(items) // 2
        left_out = [{"pk": item["pk"]} for item in items[kept:]]
        asked = {"Keys": left_out, "ConsistentRead": True}
        return Answered({"Responses": {"sluice": items[:kept]}, "UnprocessedKeys": {"sluice": asked}})

    wire.script = [half, half]
    assert ask("get", [document.key for document in documents]) == documents
    assert [len(call.body["RequestItems"]["sluice"]["Keys"]) for call in wire.asked] == [20, 10, 5]


def test_what_is_always_left_out_ends_in_a_bounded_number_of_calls(wire: Scripted, ask: Any) -> None:
    def nothing(call: Call, reply: Reply) -> Reply:
        return Answered({"Responses": {}, "UnprocessedKeys": call.body["RequestItems"]})

    wire.script = [nothing] * 100
    assert isinstance(ask("get", [_document("one").key]), Unreached)
    assert isinstance(ask("peek", [Peek(KEY)])[0], Unreached)
    assert len(wire.asked) <= 20


def test_hundreds_of_keys_are_read_a_hundred_at_a_time(wire: Scripted, ask: Any) -> None:
    keys = [BucketKey(NS, f"{number}", "openai") for number in range(250)]
    assert len(ask("peek", [Peek(key) for key in (*keys, *keys)])) == 500
    assert [len(call.body["RequestItems"]["sluice"]["Keys"]) for call in wire.asked] == [100, 100, 50]
    assert all(call.body["RequestItems"]["sluice"]["ConsistentRead"] for call in wire.asked)


@pytest.mark.parametrize("fate", [lost, throttled])
def test_a_read_without_an_answer_changed_nothing(wire: Scripted, ask: Any, fate: Any) -> None:
    for verb, arguments in (
        ("get", ([_document("one").key],)),
        ("list", (NS, Kind.LIMITS)),
        ("buckets", (NS,)),
    ):
        wire.script = [fate]
        assert isinstance(ask(verb, *arguments), Unreached)
    for verb, request in (
        ("peek", Peek(KEY)),
        ("pause", Pause(KEY, 5)),
        ("repair", Repair(KEY, ())),
        ("fold", Fold(KEY)),
    ):
        wire.script = [fate]
        assert isinstance(ask(verb, [request])[0], Unreached)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_transaction_whose_reply_was_lost_is_sent_again_under_the_same_token(wire: Scripted, ask: Any) -> None:
    wire.script = [lost]
    assert ask("write", [Put(_document("a")), Put(_document("b"))]) == Stored()
    first, second = wire.asked
    assert first == second
    assert ask("write", [Delete(_document("a").key), Delete(_document("b").key)]) == Stored()
    assert wire.asked[-1].body["ClientRequestToken"] != first.body["ClientRequestToken"]


@pytest.mark.parametrize("second", [lost, throttled])
def test_a_transaction_that_stays_without_an_answer_is_in_doubt(wire: Scripted, ask: Any, second: Any) -> None:
    wire.script = [lost, second]
    assert isinstance(ask("write", [Put(_document("a")), Put(_document("b"))]), Unknown)
    assert len(wire.asked) == 2


def test_one_document_is_written_without_a_transaction_and_never_twice(wire: Scripted, ask: Any) -> None:
    wire.script = [lost]
    assert isinstance(ask("write", [Put(_document("a"))]), Unknown)
    assert [call.operation for call in wire.asked] == [Operation.UPDATE_ITEM]
    assert ask("write", [Delete(_document("a").key)]) == Stored()
    assert wire.asked[-1].operation is Operation.DELETE_ITEM


def test_a_document_is_named_once_in_a_write(ask: Any) -> None:
    with pytest.raises(ConfigError, match="must be different ones"):
        ask("write", [Put(_document("a")), Delete(_document("a").key)])


def test_a_refused_transaction_names_the_first_that_stood_in_the_way(wire: Scripted, ask: Any) -> None:
    def refused(call: Call, reply: Reply) -> Reply:
        return ConditionFailed(
            None, (("None", None), ("ConditionalCheckFailed", None), ("ConditionalCheckFailed", None))
        )

    wire.script = [refused]
    names = ("a", "b", "c")
    assert ask("write", [Put(_document(name)) for name in names]) == Mismatch(_document("b").key)


@pytest.mark.parametrize(("fate", "kind"), [(lost, Unknown), (throttled, Unreached)])
def test_each_request_of_a_batch_has_its_own_certainty(wire: Scripted, ask: Any, fate: Any, kind: Any) -> None:
    keys = [BucketKey(NS, name, "openai") for name in ("a", "b", "c")]
    slot = SlotsCharge("slots", 1, 9, 5)
    takes = [Take("lease", (Part(key, (slot,)),)) for key in keys]
    wire.script = [lambda call, reply: reply, fate, lambda call, reply: reply]
    answers = ask("take", takes)
    assert [isinstance(answer, kind) for answer in answers] == [False, True, False]
    for verb, requests in (
        ("settle", [Settle(key, (Delta("rpm", 1, 5),)) for key in keys]),
        ("renew", [Renew(key, "lease", (slot,)) for key in keys]),
        ("reap", [Reap(key, (SlotEntry("slots", "x", 0),)) for key in keys]),
        ("release", [Release(key, "lease") for key in keys]),
    ):
        wire.script = [lambda call, reply: reply, fate, lambda call, reply: reply]
        answers = ask(verb, requests)
        assert isinstance(answers[1], Unknown | Unreached), verb
        assert not isinstance(answers[0], Unknown | Unreached), verb
        assert not isinstance(answers[2], Unknown | Unreached), verb


def test_a_settlement_of_nothing_writes_nothing(wire: Scripted, ask: Any) -> None:
    assert isinstance(ask("settle", [Settle(KEY, ())])[0], Settled)
    assert wire.asked == []


def test_a_forgetting_that_was_done_in_part_is_in_doubt(wire: Scripted, ask: Any) -> None:
    keys = [BucketKey(NS, name, "openai") for name in ("a", "b")]
    wire.script = [throttled, throttled]
    assert isinstance(ask("forget", keys), Unreached)
    wire.script = [throttled]
    assert isinstance(ask("forget", keys), Unknown)
    wire.script = [lost]
    assert isinstance(ask("forget", keys), Unknown)


def test_a_take_over_several_buckets_is_refused_with_what_to_do(ask: Any) -> None:
    part = Part(KEY, (RateCharge("rpm", 1, 10, 5),))
    with pytest.raises(ConfigError, match="one at a time, so send a take for each"):
        ask("take", [Take("lease", (part, part))])


# --- keys -------------------------------------------------------------------------------------------------------------

LONGEST = "🔑" * (MAX_NAME_BYTES // 4)


def test_the_longest_names_fit_into_a_key_of_the_table_and_of_its_indexes() -> None:
    bucket = BucketKey("n" * 11, LONGEST, LONGEST, shard=9_999)
    hour = hour_key(bucket, (LONGEST, 10**9))
    for key in (bucket_key(bucket), document_key(hour)):
        assert len(key.encode()) <= 1_024
    under = {"entity": LONGEST, "resource": LONGEST}
    for listed in (bucket_listing(bucket), document_listing(hour, under)):
        assert all(len(value.encode()) <= 2_048 for value in listed.values())


def test_no_two_things_share_a_key() -> None:
    names = ["a", "#", "a#", "#a", "a#b", "b", "*", "/", "a/BUCKET", "BUCKET#a", "0", "a#0"]
    resources = ["a", "b", "/", "0", "BUCKET"]
    buckets = {BucketKey(ns, e, r, s) for ns in ("n", "m") for e in names for r in resources for s in (0, 10)}
    documents = {DocumentKey(ns, kind, name) for ns in ("n", "m") for kind in Kind for name in names}
    keys = [*map(bucket_key, buckets), *map(document_key, documents)]
    assert len(set(keys)) == len(keys)
    assert len({tuple(sorted(bucket_listing(key).items())) for key in buckets}) == 2 * len(names) * len(resources)


def test_the_table_is_on_demand_with_indexes_of_keys_alone() -> None:
    made = definition("sluice")
    assert made["BillingMode"] == "PAY_PER_REQUEST"
    assert {index["Projection"]["ProjectionType"] for index in made["GlobalSecondaryIndexes"]} == {"KEYS_ONLY"}
    indexed = {item["AttributeName"] for index in made["GlobalSecondaryIndexes"] for item in index["KeySchema"]}
    assert indexed == {item["AttributeName"] for item in made["AttributeDefinitions"]}


# --- beliefs ----------------------------------------------------------------------------------------------------------


def test_what_is_believed_is_bounded_and_the_latest_stays() -> None:
    beliefs = Beliefs(generation=10)
    keys = [BucketKey(NS, f"{number}", "openai") for number in range(95)]
    for number, key in enumerate(keys):
        beliefs.saw(key, Bucket(paused_total_ns=number))
        assert len(beliefs) <= 20
    assert [beliefs.get(key) for key in keys[-10:]] == [Bucket(paused_total_ns=n) for n in range(85, 95)]
    assert beliefs.get(keys[0]) is None
    beliefs.forget(keys[-1])
    assert beliefs.get(keys[-1]) is None


def test_what_was_seen_of_several_buckets_is_bounded(wire: Scripted) -> None:
    room = Room()
    rate = (RateCharge("rpm", 1, 10, 5),)
    parts = [Part(BucketKey(NS, f"{number}", "openai"), rate) for number in range(3 * GENERATION)]
    for part in parts:
        room.saw((part,), (Bucket(),))
    assert room.to_spare(parts[-GENERATION:], 0)
    assert not any(room.to_spare((part,), 0) for part in parts[:GENERATION])
