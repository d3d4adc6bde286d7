"""The model of the engine answers as DynamoDB Local does, and stores what it stores, on random requests.

Requests are of the kinds that the store makes, and of those near them: placeholders for every name and value, counters
and maps at the top level, conditions over them joined in every way, updates of several attributes, transactions. Some
are refused by the engine as they stand; the model must refuse the same ones.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import pytest

from sluice.stores.dynamodb.table import definition
from sluice.stores.dynamodb.wire import Answered, Call, ConditionFailed, Operation
from sluice.testing.dynamodb import LocalEngine
from sluice.testing.dynamodb.model import Engine
from sluice.testing.dynamodb.tree import Invalid, Unmodelled
from tests.dynamodb.plain import Plain

CASES = 3_000
"""Random requests of each seed."""

KEYS = ("ns/BUCKET#*#api#0", "ns/BUCKET#ann#api#0", "ns/LIMITS#api")
NUMBERS = ("f:rpm", "i:rpm", "f:tpm", "u:1:rpm", "p", "q", "number")
MAPS = ("s:held", "s:more")
TEXTS = ("b", "v", "size")
SETS = ("k", "names")
LISTED = ("n", "e", "r")
ENTRIES = ("a@h:1", "a@h:1#1", "b@h:2", "c")

Draw = random.Random


class Request:
    """One write while it is made up: its placeholders, and what they stand for."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def name(self, text: str) -> str:
        for placeholder, known in self.names.items():
            if known == text:
                return placeholder
        self.names[f"#{len(self.names)}"] = text
        return f"#{len(self.names) - 1}"

    def value(self, value: dict[str, Any]) -> str:
        self.values[f":{len(self.values)}"] = value
        return f":{len(self.values) - 1}"

    def number(self) -> str:
        number = self.draw.choice((0, 1, 2, 3, 5, 8, -1, 10**18 + 7, 17 * 10**17, 10**38 - 1, -(10**37)))
        return self.value({"N": str(number)})

    def text(self) -> str:
        return self.value({"S": self.draw.choice(("", "a", "ab", "ü", "b" * 300))})

    def a_set(self) -> str:
        return self.value({"SS": self.draw.sample(("x", "y", "z", "ü"), self.draw.randrange(1, 4))})

    def a_map(self) -> str:
        entries = self.draw.sample(ENTRIES, self.draw.randrange(4))
        return self.value({"M": {entry: {"N": str(self.draw.randrange(9))} for entry in entries}})

    def any_value(self) -> str:
        return self.draw.choices((self.number, self.text, self.a_set, self.a_map), (8, 2, 1, 2))[0]()

    # --- paths ---

    def a_number(self) -> str:
        if self.draw.random() < 0.3:
            return self.entry()
        return self.name(self.draw.choice(NUMBERS))

    def entry(self) -> str:
        return f"{self.name(self.draw.choice(MAPS))}.{self.name(self.draw.choice(ENTRIES))}"

    def path(self, *kinds: tuple[str, ...]) -> str:
        kinds = (NUMBERS, MAPS, TEXTS, SETS, ("nowhere",), *kinds)
        return self.entry() if self.draw.random() < 0.3 else self.name(self.draw.choice(self.draw.choice(kinds)))

    def any_path(self) -> str:
        return self.path(LISTED, ("pk",))

    # --- conditions ---

    def condition(self, depth: int = 0) -> str:
        shape = self.draw.randrange(10 if depth < 3 else 4)
        if shape < 4:
            return self.comparison()
        if shape == 4:
            return f"NOT {self.comparison()}"
        if shape == 5:
            return f"NOT ({self.condition(depth + 1)})"
        if shape == 6:
            return f"({self.condition(depth + 1)})"
        joined = self.draw.choice((" AND ", " OR "))
        return joined.join(self.condition(depth + 1) for _ in range(self.draw.randrange(2, 4)))

    def comparison(self) -> str:
        draw = self.draw
        order = draw.choice(("=", "<>", "<", "<=", ">", ">="))
        match draw.randrange(12):
            case 0 | 1:
                return f"attribute_exists({self.any_path()})"
            case 2 | 3:
                return f"attribute_not_exists({self.any_path()})"
            case 4 | 5:
                return f"{self.a_number()} {order} {self.number()}"
            case 6:
                return f"size({self.name(draw.choice(MAPS))}) {order} {self.value({'N': str(draw.randrange(4))})}"
            case 7:
                return f"size({self.any_path()}) {order} {self.number()}"
            case 8:
                return f"{self.any_path()} {order} {self.any_value()}"
            case 9:
                return f"{self.any_path()} {order} {self.any_path()}"
            case 10:
                return f"{self.a_number()} BETWEEN {self.number()} AND {self.number()}"
        return f"{self.any_path()} IN ({', '.join(self.any_value() for _ in range(draw.randrange(1, 4)))})"

    # --- updates ---

    def update(self) -> str:
        sets = [self.assignment() for _ in range(self.draw.choice((0, 1, 1, 2, 3)))]
        removes = [self.removed() for _ in range(self.draw.choice((0, 0, 0, 1, 2)))]
        adds = [self.addition() for _ in range(self.draw.choice((0, 0, 1)))]
        sections = [("SET ", sets), ("REMOVE ", removes), ("ADD ", adds)]
        self.draw.shuffle(sections)
        return " ".join(verb + ",".join(parts) for verb, parts in sections if parts)

    def assignment(self) -> str:
        draw = self.draw
        match draw.randrange(10):
            case 0:
                return f"{self.entry()}={self.number()}"
            case 1 | 2:
                return f"{self.name(draw.choice(MAPS))}={self.a_map()}"
            case 3:
                return f"{self.name(draw.choice(TEXTS))}={self.text()}"
            case 4:
                return f"{self.name(draw.choice(LISTED))}={self.value({'S': draw.choice(('ns/A', 'ns/B', 'ns/C'))})}"
            case 5:
                return f"{self.path()}={self.any_value()}"
            case 6:
                return f"{self.name(draw.choice(NUMBERS))}={self.term()}"
        return f"{self.name(draw.choice(NUMBERS))}={self.term()}{draw.choice('+-')}{self.term()}"

    def term(self) -> str:
        match self.draw.randrange(8):
            case 0:
                return self.a_number()
            case 1 | 2 | 3:
                return f"if_not_exists({self.a_number()},{self.number()})"
        return self.number()

    def removed(self) -> str:
        return self.entry() if self.draw.random() < 0.6 else self.path(LISTED)

    def addition(self) -> str:
        if self.draw.random() < 0.3:
            return f"{self.name(self.draw.choice(SETS))} {self.a_set()}"
        return f"{self.a_number()} {self.number()}"

    # --- whole requests ---

    def body(self, table: str, expressions: dict[str, str], **more: Any) -> dict[str, Any]:
        body = {"TableName": table, **expressions, **more}
        if self.names:
            body["ExpressionAttributeNames"] = self.names
        if self.values:
            body["ExpressionAttributeValues"] = self.values
        if self.draw.random() < 0.7:
            body["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return body

    def expressions(self, *, update: bool) -> dict[str, str]:
        found: dict[str, str] = {}
        text = self.update() if update else ""
        if text:
            found["UpdateExpression"] = text
        if self.draw.random() < 0.6:
            found["ConditionExpression"] = self.condition()
        return found


def _key(draw: Draw) -> dict[str, Any]:
    return {"pk": {"S": draw.choice(KEYS)}}


def _update(draw: Draw, table: str) -> Call:
    request = Request(draw)
    body = request.body(table, request.expressions(update=True), Key=_key(draw))
    body["ReturnValues"] = draw.choice(("ALL_NEW", "ALL_NEW", "ALL_OLD", "NONE"))
    return Call(Operation.UPDATE_ITEM, body | {"ReturnConsumedCapacity": "INDEXES"})


def _delete(draw: Draw, table: str) -> Call:
    request = Request(draw)
    body = request.body(table, request.expressions(update=False), Key=_key(draw))
    return Call(Operation.DELETE_ITEM, body | {"ReturnValues": "ALL_OLD", "ReturnConsumedCapacity": "INDEXES"})


def _transaction(draw: Draw, table: str) -> Call:
    items = [_part(draw, table, key) for key in draw.sample(KEYS, draw.randrange(1, 4))]
    body: dict[str, Any] = {"TransactItems": items}
    if draw.random() < 0.2:
        body["ClientRequestToken"] = f"{table[-12:]}-{draw.getrandbits(64)}"
    return Call(Operation.TRANSACT_WRITE_ITEMS, body)


def _part(draw: Draw, table: str, key: str) -> dict[str, Any]:
    request = Request(draw)
    where: dict[str, Any] = {"Key": {"pk": {"S": key}}}
    match draw.randrange(4):
        case 0:
            item = {"pk": {"S": key}, "f:rpm": {"N": str(draw.randrange(9))}, "s:held": {"M": {}}}
            item |= {name: {"S": draw.choice(("ns/A", "ns/B"))} for name in LISTED if draw.random() < 0.5}
            return {"Put": request.body(table, request.expressions(update=False), Item=item)}
        case 1:
            return {"Delete": request.body(table, request.expressions(update=False), **where)}
        case 2:
            return {"ConditionCheck": request.body(table, {"ConditionExpression": request.condition()}, **where)}
    update = {"UpdateExpression": request.update() or f"REMOVE {request.name('nowhere')}"}
    return {"Update": request.body(table, update | request.expressions(update=False), **where)}


def _read(draw: Draw, table: str) -> Call:
    if draw.random() < 0.5:
        return Call(Operation.GET_ITEM, {"TableName": table, "Key": _key(draw), "ConsistentRead": True})
    keys = [{"pk": {"S": key}} for key in draw.choices((*KEYS, "nobody"), k=draw.randrange(1, 4))]
    return Call(Operation.BATCH_GET_ITEM, {"RequestItems": {table: {"Keys": keys, "ConsistentRead": True}}})


def _query(draw: Draw, table: str) -> Call:
    index, attribute = draw.choice((("namespace", "n"), ("entity", "e"), ("resource", "r")))
    body: dict[str, Any] = {"TableName": table, "IndexName": index}
    body["KeyConditionExpression"] = "#0 = :0"
    body["ExpressionAttributeNames"] = {"#0": attribute}
    body["ExpressionAttributeValues"] = {":0": {"S": draw.choice(("ns/A", "ns/B"))}}
    if draw.random() < 0.5:
        prefixed, value = draw.choice((("begins_with(pk, :1)", "ns/BUCKET"), ("pk > :1", KEYS[1])))
        body["KeyConditionExpression"] += f" AND {prefixed}"
        body["ExpressionAttributeValues"][":1"] = {"S": value}
    if draw.random() < 0.5:
        body["Limit"] = draw.randrange(1, 4)
    return Call(Operation.QUERY, body)


KINDS: dict[Callable[[Draw, str], Call], int] = {_update: 12, _delete: 1, _transaction: 4, _read: 1, _query: 2}


class Pair:
    """The same table, on DynamoDB Local and in the model."""

    def __init__(self, engine: LocalEngine) -> None:
        self.table = f"model-{uuid.uuid4()}"
        self.local = Plain(engine.port)
        made = definition(self.table)
        assert self.local.call("CreateTable", made)[0] == 200
        self.model = Engine(made)

    def both(self, call: Call) -> tuple[Any, Any]:
        return self._by_local(call), self._by_model(call)

    def _by_local(self, call: Call) -> Any:
        status, body = self.local.call(call.operation, call.body)
        if status == 200:
            return "answered", _plain(body)
        kind = body["__type"].rpartition("#")[2]
        match kind:
            case "ConditionalCheckFailedException":
                return "refused", body.get("Item"), ()
            case "TransactionCanceledException":
                reasons = [(reason["Code"], reason.get("Item")) for reason in body["CancellationReasons"]]
                return "refused", None, tuple(reasons)
            case "ValidationException" | "IdempotentParameterMismatchException":
                return ("invalid",)
        raise AssertionError(f"{status}: {body} to {call}")

    def _by_model(self, call: Call) -> Any:
        try:
            reply = self.model.decide(call)
        except Invalid:
            return ("invalid",)
        except Unmodelled as error:
            return "unmodelled", str(error)
        if isinstance(reply, ConditionFailed):
            return "refused", reply.item, reply.reasons
        assert isinstance(reply, Answered)
        return "answered", _plain(reply.body)

    def stored(self) -> tuple[Any, Any]:
        keys = [{"pk": {"S": key}} for key in KEYS]
        body = {"RequestItems": {self.table: {"Keys": keys, "ConsistentRead": True}}}
        return self.both(Call(Operation.BATCH_GET_ITEM, body))


def _plain(body: Any) -> dict[str, Any]:
    """A reply without what is not promised: the order of a batch, the units of a read."""
    told = dict(body)
    if "Responses" in told:
        told["Responses"] = {
            table: sorted(items, key=lambda item: str(item["pk"])) for table, items in told["Responses"].items()
        }
    return told


@pytest.fixture
def pair(engine: LocalEngine) -> Generator[Pair]:
    made = Pair(engine)
    yield made
    made.local.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_model_answers_and_stores_as_the_engine_does(pair: Pair, seed: int) -> None:
    draw = random.Random(seed)
    met: Counter[str] = Counter()
    for number in range(CASES):
        call = draw.choices(list(KINDS), list(KINDS.values()))[0](draw, pair.table)
        by_local, by_model = pair.both(call)
        assert by_model == by_local, f"case {number}: {call}"
        met[f"{call.operation} {by_local[0]}"] += 1
        if number % 50 == 0:
            stored = pair.stored()
            assert stored[1] == stored[0], f"after case {number}"
    for kind in ("UpdateItem answered", "UpdateItem refused", "UpdateItem invalid"):
        assert met[kind] >= CASES // 20, met
    for kind in ("TransactWriteItems answered", "TransactWriteItems refused", "DeleteItem answered", "Query answered"):
        assert met[kind] >= CASES // 100, met


WHOLE = "ns/BUCKET#*#whole#0"
AT: dict[str, Any] = {"Key": {"pk": {"S": WHOLE}}}


def _asked(update: str, condition: str = "", **values: Any) -> dict[str, Any]:
    body: dict[str, Any] = {**AT, "UpdateExpression": update, "ReturnConsumedCapacity": "INDEXES"}
    if condition:
        body["ConditionExpression"] = condition
    if values:
        body["ExpressionAttributeValues"] = {f":{name}": value for name, value in values.items()}
    return body


def _n(number: int | str) -> dict[str, str]:
    return {"N": str(number)}


def _many(text: str, count: int, joined: str) -> str:
    return joined.join([text] * count)


def _entries(count: int) -> dict[str, Any]:
    return {"M": {f"entry-{number}": {"N": str(10**18 + number)} for number in range(count)}}


BOUNDS: dict[str, dict[str, Any]] = {
    "a whole map of many entries": _asked("SET s=:s", s=_entries(2_000)),
    "300 operators": _asked("SET p=:p", _many("p=:p", 150, " OR "), p=_n(1)),
    "301 operators": _asked("SET p=:p", _many("p=:p", 151, " OR "), p=_n(1)),
    "100 options": _asked("SET p=:p", f"p IN ({_many(':p', 100, ',')})", p=_n(1)),
    "101 options": _asked("SET p=:p", f"p IN ({_many(':p', 101, ',')})", p=_n(1)),
    "4,096 bytes of text": _asked(f"SET p=:p{' ' * 4_088}", p=_n(1)),
    "4,097 bytes of text": _asked(f"SET p=:p{' ' * 4_089}", p=_n(1)),
    "38 digits": _asked("SET q=:q", q=_n(10**38 - 1)),
    "39 digits": _asked("SET q=:q", q=_n(10**38 + 1)),
    "a sum of 39 digits": _asked("SET q=q+:q", q=_n(2)),
    "a sum that ends in zeros": _asked("SET q=q+:q", q=_n(1)),
    "an item of 400 KB": _asked("SET b=:b", b={"S": "b" * (400 * 1024 - 40_000)}),
    "an item past 400 KB": _asked("SET b=:b", b={"S": "b" * 400 * 1024}),
    "a placeholder that is not used": _asked("SET p=:p", p=_n(1), q=_n(1)),
    "a placeholder that is not there": _asked("SET p=:q", p=_n(1)),
    "parentheses that say nothing": _asked("SET p=:p", "((p = :p))", p=_n(1)),
    "parentheses around all": _asked("SET p=:p", "(p = :p OR attribute_exists(pk))", p=_n(1)),
    "parentheses side by side": _asked("SET p=:p", "((p = :p) OR (attribute_exists(pk)))", p=_n(1)),
    "a section twice": _asked("REMOVE a REMOVE b"),
    "the same twice": _asked("SET p=:p REMOVE p", p=_n(1)),
    "a map and an entry of it": _asked("SET s=:s REMOVE s.a", s={"M": {}}),
    "an entry of a map that is not there": _asked("SET t.a=:p", p=_n(1)),
    "a refusal comes before such an entry": _asked("SET t.a=:p", "attribute_exists(t)", p=_n(1)),
    "a map in order": _asked("SET p=:p", "p < :s", p=_n(1), s={"M": {}}),
    "compared with itself": _asked("SET p=:p", "p = p", p=_n(1)),
    "a lower bound above": _asked("SET p=:p", "p BETWEEN :q AND :p", p=_n(1), q=_n(2)),
    "an empty set": _asked("ADD k :k", k={"SS": []}),
    "the same text twice in a set": _asked("ADD k :k", k={"SS": ["a", "a"]}),
    "NOT binds before AND": _asked("SET p=:p", "NOT p = :p AND p = :p", p=_n(1)),
    "AND binds before OR": _asked("SET p=:p", "p = :p OR p = :p AND p <> :p", p=_n(1)),
    "the key": _asked("SET pk=:p", p={"S": "x"}),
    "listed under a number": _asked("SET n=:n", n=_n(1)),
    "listed under a text": _asked("SET n=:n, e=:n", n={"S": "ns/A"}),
    "listed elsewhere": _asked("SET n=:n REMOVE e", n={"S": "ns/B"}),
    "no longer listed": _asked("REMOVE n"),
}


def test_the_model_has_the_bounds_of_the_engine_and_charges_what_it_charges(pair: Pair) -> None:
    met = Counter[str]()
    for what, body in BOUNDS.items():
        call = Call(Operation.UPDATE_ITEM, {"TableName": pair.table, **body})
        by_local, by_model = pair.both(call)
        assert by_model == by_local, what
        met[by_local[0]] += 1
    assert min(met[kind] for kind in ("answered", "refused", "invalid")) >= 3, met


WEIGHED: tuple[dict[str, Any], ...] = (
    *({"N": number} for number in ("0", "-12", "1700000000123456789", "170000", "1001")),
    *({"BOOL": True}, {"NULL": True}, {"S": "ü"}, {"SS": ["abc", "d"]}, {"L": [{"S": "abc"}]}),
    *({"M": {}}, {"M": {"ab": {"M": {"q": {"S": "abc"}}}}}),
)


@pytest.mark.parametrize("value", WEIGHED, ids=str)
def test_the_model_weighs_a_value_as_the_engine_does(pair: Pair, value: dict[str, Any]) -> None:
    size = 1_024 - len("pk" + WHOLE) - len("b")
    for text in range(size - 20, size + 1):
        body = _asked("SET b=:b, v=:v", b={"S": "b" * text}, v=value)
        by_local, by_model = pair.both(Call(Operation.UPDATE_ITEM, {"TableName": pair.table, **body}))
        assert by_model == by_local, text
    assert by_local[1]["ConsumedCapacity"]["CapacityUnits"] == 2.0


def _in_transaction(pair: Pair, *parts: dict[str, Any], token: str = "") -> tuple[Any, Any]:
    items = [{verb: {"TableName": pair.table, **body}} for part in parts for verb, body in part.items()]
    more = {"ClientRequestToken": token} if token else {}
    call = Call(Operation.TRANSACT_WRITE_ITEMS, {"TransactItems": items, "ReturnConsumedCapacity": "INDEXES", **more})
    return pair.both(call)


def test_a_transaction_in_the_model_is_one_of_the_engine(pair: Pair) -> None:
    put = {"Put": {"Item": {"pk": {"S": "a"}, "n": {"S": "ns/A"}, "p": _n(1)}}}
    once = {"Put": {**put["Put"], "ConditionExpression": "attribute_not_exists(pk)"}}
    count = {
        "Update": {
            "Key": {"pk": {"S": "b"}},
            "UpdateExpression": "ADD q :q",
            "ExpressionAttributeValues": {":q": _n(1)},
        }
    }
    check = {"ConditionCheck": {"Key": {"pk": {"S": "a"}}, "ConditionExpression": "attribute_exists(pk)"}}
    token = str(uuid.uuid4())
    for what, parts, given, tells_units in (
        ("two units each, and two for the index", (put, count), "", True),
        ("with a token", (put, count), token, False),  # it tells too few once something is there
        ("with the same token", (put, count), token, False),
        ("with the same token for another", (put,), token, False),
        ("a check beside", (check, count), "", False),
        ("one is refused", (once, count), "", False),
        ("one item twice", (check, put), "", False),
        ("nothing", (), "", False),
    ):
        by_local, by_model = _in_transaction(pair, *parts, token=given)
        for answer in (by_local, by_model):
            if answer[0] == "answered" and not tells_units:
                answer[1].pop("ConsumedCapacity", None)
        assert by_model == by_local, what
        stored = pair.both(Call(Operation.GET_ITEM, {"TableName": pair.table, "Key": {"pk": {"S": "b"}}}))
        assert stored[1] == stored[0], what


def test_an_index_lags_as_long_as_it_is_told_and_never_out_of_order() -> None:
    now_ns = 0
    lag_ns = 100
    engine = Engine(definition("lagging"), lambda: now_ns, lambda: lag_ns)

    def put(text: str) -> None:
        body = {"TableName": "lagging", "Key": {"pk": {"S": "a"}}, "UpdateExpression": "SET n=:n"}
        engine.decide(Call(Operation.UPDATE_ITEM, body | {"ExpressionAttributeValues": {":n": {"S": text}}}))

    def listed(text: str) -> int:
        body = {"TableName": "lagging", "IndexName": "namespace", "KeyConditionExpression": "n = :n"}
        reply = engine.decide(Call(Operation.QUERY, body | {"ExpressionAttributeValues": {":n": {"S": text}}}))
        assert isinstance(reply, Answered)
        return int(reply.body["Count"])

    put("A")
    lag_ns = 10
    put("B")
    now_ns = 99
    assert (listed("A"), listed("B")) == (0, 0)
    now_ns = 100
    assert (listed("A"), listed("B")) == (0, 1)


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (Operation.UPDATE_ITEM, _asked("SET name=:p", p=_n(1))),
        (Operation.UPDATE_ITEM, _asked("SET p=:p", p=_n("1.5"))),
        (Operation.UPDATE_ITEM, _asked("SET p=:p", p=_n("007"))),
        (Operation.UPDATE_ITEM, _asked("SET p=:p", p={"B": "YWJj"})),
        (Operation.UPDATE_ITEM, _asked("DELETE k :k", k={"SS": ["a"]})),
        (Operation.UPDATE_ITEM, _asked("SET p=:p", "contains(k, :p)", p=_n(1))),
        (Operation.UPDATE_ITEM, _asked("REMOVE l[0]")),
        (Operation.UPDATE_ITEM, {**_asked("REMOVE l"), "ReturnValues": "UPDATED_NEW"}),
        (Operation.UPDATE_ITEM, {**_asked("REMOVE l"), "TableName": "another"}),
        (Operation.UPDATE_ITEM, {**AT, "AttributeUpdates": {}}),
        (Operation.QUERY, {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "a"}}}),
    ],
)
def test_what_the_model_does_not_know_it_says(operation: Operation, body: dict[str, Any]) -> None:
    engine = Engine(definition("table"))
    with pytest.raises(Unmodelled):
        engine.decide(Call(operation, {"TableName": "table", **body}))
