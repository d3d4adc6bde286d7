"""Each way in which a call can end is an outcome of its own, the same on both wires."""

import socket
from pathlib import Path
from typing import Any

import pytest

from sluice.core.errors import ConfigError
from sluice.core.requests import Unknown, Unreached
from sluice.stores.dynamodb.wire import Answered, Call, ConditionFailed, Operation
from sluice.testing.dynamodb import LocalEngine
from sluice.wires.dynamodb.account import Account
from sluice.wires.dynamodb.options import read_options
from tests.dynamodb.scripted import Act, Scripted, close, error, get, hang, reply, reset, text, update, wired

ITEM = {"pk": {"S": "here"}, "f:rpm": {"N": "12"}}


def cancelled(*codes: str) -> Act:
    reasons = [{"Code": code, "Message": f"because of {code}"} for code in codes]
    return error("TransactionCanceledException", CancellationReasons=reasons)


def test_an_answer_is_the_body_of_the_reply(kind: str) -> None:
    with Scripted(reply({"Attributes": ITEM})) as engine, wired(kind, engine.url) as wire:
        assert wire.one() == Answered({"Attributes": ITEM})
        (call,) = engine.calls
        assert (call.operation, call.body) == ("UpdateItem", b'{"value":1}')


def test_a_condition_that_fails_shows_the_item(kind: str) -> None:
    script = [error("ConditionalCheckFailedException", Item=ITEM), error("ConditionalCheckFailedException")]
    with Scripted(*script) as engine, wired(kind, engine.url) as wire:
        assert wire.one() == ConditionFailed(ITEM)
        assert wire.one() == ConditionFailed(None)


def test_a_transaction_says_which_of_its_writes_stood_in_the_way(kind: str) -> None:
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": ITEM}, {"Code": "TransactionConflict"}]
    with (
        Scripted(error("TransactionCanceledException", CancellationReasons=reasons)) as engine,
        wired(kind, engine.url) as wire,
    ):
        assert wire.one() == ConditionFailed(
            reasons=(("None", None), ("ConditionalCheckFailed", ITEM), ("TransactionConflict", None))
        )


@pytest.mark.parametrize(
    "act",
    [
        error("ProvisionedThroughputExceededException"),
        error("ThrottlingException"),
        error("RequestLimitExceeded"),
        error("ThrottlingException", status=500),
        error("TransactionConflictException"),
        cancelled("None", "TransactionConflict"),
        cancelled("ThrottlingError"),
        cancelled("ProvisionedThroughputExceeded", "None"),
    ],
)
def test_what_the_engine_did_not_decide_is_certainly_not_applied(kind: str, act: Act) -> None:
    with Scripted(act) as engine, wired(kind, engine.url) as wire:
        answer = wire.one()
        assert isinstance(answer, Unreached)
        assert len(engine.calls) == 1, "the wire sends nothing twice"


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (error("InternalServerError", status=500), "InternalServerError"),
        (error("ServiceUnavailable", status=503), "ServiceUnavailable"),
        (error("TransactionInProgressException"), "TransactionInProgress"),
        (reply(raw=b"<html>bad gateway</html>", status=502), "can't be read: status 502"),
        (reply(raw=b"<html>sign in</html>"), "can't be read: status 200"),
        (reply(raw=b"[1]"), "can't be read"),
        (reply(raw=b'{"half": '), "can't be read"),
        (reply(raw=b""), "can't be read"),
        (reply({"Attributes": ITEM}, x_amz_crc32="1"), "checksum"),
        (reply(status=408), "status 408"),
        (hang, "no answer within 0.5 s"),
        (close, "closed without an answer"),
        (reset, ""),
        (text(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), ""),
        (text(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{"), "more than"),
        (text(b"220 smtp.example ESMTP\r\n\r\n"), "can't be read"),
        (text(b"\x16\x03\x01\x02"), ""),
    ],
)
def test_what_was_sent_and_not_answered_may_have_been_applied(kind: str, act: Act, why: str) -> None:
    query = "&read_timeout=500ms" if act is hang else ""
    with Scripted(act) as engine, wired(kind, engine.url, query) as wire:
        answer = wire.one()
        assert isinstance(answer, Unknown)
        assert why in answer.why
        assert wire.one() == Answered({}), "the next call gets an answer of its own"
        assert len(engine.calls) == 2


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (error("ResourceNotFoundException"), "no such table; make it with `sluice dynamodb create-table`"),
        (error("AccessDeniedException", "not authorized to UpdateItem"), "permission is missing.*not authorized"),
        (error("ExpiredTokenException"), "credentials have expired"),
        (error("UnrecognizedClientException"), "credentials are refused"),
        (error("InvalidSignatureException"), "credentials are refused"),
        (error("MissingAuthenticationToken"), "credentials are refused"),
        (error("ValidationException", "Item size"), "can't read what was asked.*Item size"),
        (error("SerializationException"), "can't read what was asked"),
        (error("IdempotentParameterMismatchException"), "can't read what was asked"),
        (cancelled("None", "ValidationError"), "can't do what was asked.*because of ValidationError"),
    ],
)
def test_what_no_retry_cures_is_a_clear_error_and_never_an_engine_that_is_down(kind: str, act: Act, says: str) -> None:
    with Scripted(act) as engine, wired(kind, engine.url) as wire:
        with pytest.raises(ConfigError, match=f"DynamoDB table 'quota' in eu-west-1 at .*{says}"):
            wire.one()
        assert wire.one() == Answered({})


def test_an_error_is_raised_once_all_of_the_calls_have_ended(kind: str) -> None:
    with Scripted(reply({"n": 1}), error("AccessDeniedException"), reply({"n": 3})) as engine:
        with wired(kind, engine.url) as wire, pytest.raises(ConfigError, match="permission"):
            wire.send(get(1), get(2), get(3))
        assert len(engine.calls) == 3


def test_nobody_there_is_certainly_not_applied(kind: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with wired(kind, f"http://127.0.0.1:{held.getsockname()[1]}") as wire:
            answer = wire.one(get())
            assert isinstance(answer, Unreached)
            assert "no connection to 127.0.0.1" in answer.why


def test_a_connection_that_is_not_accepted_in_time_is_certainly_not_applied(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        with wired(kind, f"http://127.0.0.1:{port}", "&connect_timeout=100ms") as wire:
            answer = wire.one(get())
        for each in waiting:
            each.close()
        assert isinstance(answer, Unreached)
        assert "within 0.1 s" in answer.why


def test_a_name_that_nobody_has_is_certainly_not_applied(kind: str) -> None:
    with wired(kind, "http://sluice.invalid:8000") as wire:
        assert isinstance(wire.one(get()), Unreached)


@pytest.mark.usefixtures("somebody")
def test_the_real_engine_is_understood(kind: str, engine: LocalEngine, tmp_path: Path) -> None:
    table = f"outcomes-{kind}-{tmp_path.name}"
    account = Account(read_options(f"dynamodb://{table}?endpoint={engine.url}"))
    with wired(kind, engine.url, "&read_timeout=10s", account=account) as wire:

        def call(operation: Operation, **body: Any) -> Call:
            return Call(operation, {"TableName": table, **body})

        adding = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
        absent = {"ConditionExpression": "attribute_not_exists(pk)"}
        shown = {"ReturnValues": "ALL_NEW", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        write = call(Operation.UPDATE_ITEM, Key={"pk": {"S": "a"}}, **adding, **absent, **shown)
        with pytest.raises(ConfigError, match="no such table"):
            wire.one(write)
        _make(account, table)
        item = {"pk": {"S": "a"}, "n": {"N": "1"}}
        assert wire.one(write) == Answered({"Attributes": item})
        assert wire.one(write) == ConditionFailed(item)
        both = [{"Update": {"TableName": table, "Key": {"pk": {"S": key}}, **adding, **absent}} for key in ("a", "b")]
        answer = wire.one(Call(Operation.TRANSACT_WRITE_ITEMS, {"TransactItems": both}))
        assert answer == ConditionFailed(reasons=(("ConditionalCheckFailed", None), ("None", None)))
        with pytest.raises(ConfigError, match=r"ValidationException.*UpdateExpression"):
            wire.one(call(Operation.UPDATE_ITEM, Key={"pk": {"S": "a"}}, UpdateExpression="nonsense"))
        read = call(Operation.GET_ITEM, Key={"pk": {"S": "a"}}, ConsistentRead=True)
        missing = call(Operation.GET_ITEM, Key={"pk": {"S": "b"}})
        assert wire.send(read, missing, read) == [Answered({"Item": item}), Answered({}), Answered({"Item": item})]


def _make(account: Account, table: str) -> None:
    account.client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def test_a_write_is_signed_by_who_the_environment_says(kind: str) -> None:
    with Scripted() as engine, wired(kind, engine.url) as wire:
        wire.one(update())
        headers = engine.calls[0].headers
        assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-west-1/dynamodb/aws4_request" in headers["authorization"]
