"""`sluice dynamodb`, `sluice sandbox` and `sluice repair`, on the real engine."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sluice import Limit, Sluice
from sluice.cli import main
from sluice.core.bounds import NS_PER_HOUR
from sluice.stores.dynamodb import definition
from sluice.stores.dynamodb.wire import Call, Operation, Reply
from sluice.testing.dynamodb import LocalEngine, Service
from sluice.wires.blocking.dynamodb import BlockingWire
from sluice.wires.dynamodb.account import Account
from sluice.wires.dynamodb.options import read_options
from sluice.wires.dynamodb.policy import ADMINISTERING, READING, USING
from sluice.wires.dynamodb.table import differences, remarks
from tests.dynamodb.scripted import Scripted, error

Told = pytest.CaptureFixture[str]


@pytest.fixture
def table(engine: LocalEngine, somebody: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A table that is not there yet, named by the environment."""
    monkeypatch.setenv("SLUICE_URL", f"dynamodb://{tmp_path.name}?endpoint={engine.url}&read_timeout=10s")
    return tmp_path.name


def client(table: str) -> Any:
    return Account(read_options(os.environ["SLUICE_URL"])).client


# --- create-table ---


def test_create_table_makes_one_that_works_and_is_harmless_when_it_exists(table: str, capsys: Told) -> None:
    assert main(["dynamodb", "create-table"]) == 0
    assert capsys.readouterr().out == f"table {table} in eu-west-1 is ready\n"
    with Sluice(timeout=20) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "10/min")])
        sluice.acquire("openai").release()
    assert main(["dynamodb", "create-table"]) == 0
    assert capsys.readouterr().out == f"table {table} in eu-west-1 was there already\n"
    with Sluice(timeout=20) as sluice:
        assert sluice.peek("openai").limits[0].available == 9


def test_create_table_takes_a_name_and_a_place(engine: LocalEngine, table: str, capsys: Told) -> None:
    words = ["dynamodb", "create-table", f"{table}-b", "--region", "us-east-2", "--endpoint", engine.url, "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {
        "table": f"{table}-b",
        "region": "us-east-2",
        "new": True,
        "remarks": [],
    }


def test_a_table_that_is_something_else_is_left_alone_and_said(table: str, capsys: Told) -> None:
    made = client(table)
    made.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
        BillingMode="PAY_PER_REQUEST",
    )
    before = made.describe_table(TableName=table)
    assert main(["dynamodb", "create-table"]) == 2
    told = capsys.readouterr().err
    assert (
        "exists and is not what Sluice needs: its key is id (hash), not pk (hash); index 'namespace' is missing" in told
    )
    assert made.describe_table(TableName=table)["Table"] == before["Table"]
    made.close()


def test_what_is_different_and_works_all_the_same_is_remarked(table: str, capsys: Told) -> None:
    made = client(table)
    capacity = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}
    other: dict[str, Any] = definition(table) | {"BillingMode": "PROVISIONED", "ProvisionedThroughput": capacity}
    for index in other["GlobalSecondaryIndexes"]:
        index["ProvisionedThroughput"] = capacity
    other["GlobalSecondaryIndexes"][0]["Projection"] = {"ProjectionType": "ALL"}
    other["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    made.create_table(**other)
    made.close()
    assert main(["dynamodb", "create-table"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.strip().split(":")[0] for line in lines] == [
        "it is billed as PROVISIONED, not PAY_PER_REQUEST",
        "index 'namespace' projects ALL, not KEYS_ONLY",
        "it has a stream, which Sluice does not need",
    ]


def test_an_attribute_of_another_type_is_a_difference() -> None:
    found = definition("quota")
    assert (differences(found, found), remarks(found, {**found, "BillingModeSummary": found})) == ([], ())
    wanted = definition("quota")
    found["AttributeDefinitions"][1]["AttributeType"] = "N"
    assert differences(wanted, found) == ["attribute 'n' is of type N, not S"]


@pytest.mark.usefixtures("somebody")
@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["quota", "--url", "dynamodb://quota"], 2, "by TABLE or by --url, not by both"),
        (["--region", "eu-west-1"], 2, "say where TABLE is; name it"),
        (["--url", "sqlite:///quota.db"], 2, "is no table of DynamoDB; name one"),
        (["a b"], 2, "names no table"),
        (["quota", "--endpoint", "http://127.0.0.1:1"], 1, "Could not connect"),
    ],
)
def test_what_can_not_be_made_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: Told, words: Sequence[str], status: int, says: str
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert main(["dynamodb", "create-table", *words]) == status
    assert says in capsys.readouterr().err


@pytest.mark.usefixtures("somebody")
def test_a_missing_permission_to_make_it_says_which_policy_has_it(capsys: Told) -> None:
    with Scripted(error("AccessDeniedException", "not authorized to CreateTable")) as engine:
        assert main(["dynamodb", "create-table", "quota", "--endpoint", engine.url]) == 2
    assert "`sluice dynamodb policy administering` prints what is needed (not authorized" in capsys.readouterr().err


# --- policy ---


def test_the_policy_is_the_least_that_using_needs(capsys: Told) -> None:
    assert main(["dynamodb", "policy", "--table", "quota", "--region", "eu-west-1", "--account", "123456789012"]) == 0
    arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/quota"
    actions = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:UpdateItem"]
    assert json.loads(capsys.readouterr().out) == {
        "Version": "2012-10-17",
        "Statement": [
            {"Sid": "SluiceTable", "Effect": "Allow", "Action": actions, "Resource": arn},
            {"Sid": "SluiceIndexes", "Effect": "Allow", "Action": ["dynamodb:Query"], "Resource": f"{arn}/index/*"},
        ],
    }


@pytest.mark.parametrize(
    ("words", "arn"),
    [
        ([], "arn:aws:dynamodb:*:*:table/sluice"),
        (["--table", "quota", "--region", "cn-north-1"], "arn:aws-cn:dynamodb:cn-north-1:*:table/quota"),
        (["--region", "us-gov-west-1"], "arn:aws-us-gov:dynamodb:us-gov-west-1:*:table/sluice"),
        (["--table", "arn:aws:dynamodb:x-1:123456789012:table/q-1"], "arn:aws:dynamodb:x-1:123456789012:table/q-1"),
    ],
)
def test_a_policy_is_for_one_table(capsys: Told, words: Sequence[str], arn: str) -> None:
    assert main(["dynamodb", "policy", "reading", *words]) == 0
    assert [each["Resource"] for each in json.loads(capsys.readouterr().out)["Statement"]] == [arn, f"{arn}/index/*"]


@pytest.mark.parametrize(
    "words",
    [
        ["--table", "a b"],
        ["--account", "12"],
        ["--table", "arn:aws:s3:::bucket"],
        ["--table", "arn:aws:dynamodb:x-1:123456789012:table/quota", "--region", "x-1"],
    ],
)
def test_a_policy_for_no_table_is_refused(capsys: Told, words: Sequence[str]) -> None:
    assert main(["dynamodb", "policy", *words]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert told.err.startswith("sluice: ")


class Noting(BlockingWire):
    """A wire that notes what it is asked for."""

    noted: set[str]

    async def send(self, calls: Sequence[Call], /) -> Sequence[Reply]:
        for call in calls:
            if call.operation is Operation.TRANSACT_WRITE_ITEMS:
                self.noted |= {_ACTION[kind] for item in call.body["TransactItems"] for kind in item}
            else:
                self.noted.add(call.operation.value)
        return await super().send(calls)


_ACTION = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


def test_what_is_done_is_what_the_policies_allow(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["dynamodb", "create-table"])
    noted: set[str] = set()
    monkeypatch.setattr(Noting, "noted", noted, raising=False)
    monkeypatch.setattr("sluice.wires.blocking.dynamodb.BlockingWire", Noting)

    def since() -> set[str]:
        seen = set(noted)
        assert seen
        noted.clear()
        return seen

    with Sluice(timeout=20, config_ttl=0) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "100/min"), Limit("calls", "4 slots")])
        sluice.create_entity("acme", "*", cascade=True)
        sluice.delete_entity("acme")
        sluice.create_entity("acme", "*", cascade=True)
        assert since() <= set(ADMINISTERING)
        with sluice.acquire("openai", entity="acme") as lease:
            lease.more(rpm=2)
            lease.settle(rpm=1)
            lease.renew()
        sluice.pause("openai", 0.01)
        sluice.repair("openai")
        sluice.reserve("openai#rpm").release()
        with pytest.raises(ValueError, match="opnai"):
            sluice.acquire("opnai")
        assert since() <= set(USING)
        sluice.peek("openai")
        sluice.leases("openai")
        sluice.resources()
        sluice.entities()
        sluice.get_limits("openai")
        sluice.namespaces()
        assert since() <= set(READING)
        sluice.delete_limits("openai")
        assert since() <= set(ADMINISTERING)


# --- repair ---


def test_repair_says_what_was_wrong(table: str, capsys: Told) -> None:
    main(["dynamodb", "create-table"])
    with Sluice(timeout=20) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "10/min")])
        sluice.pause("openai", NS_PER_HOUR / 1e9)
    capsys.readouterr()
    assert main(["repair", "openai"]) == 0
    assert capsys.readouterr().out == "openai: put right: a pause\n"
    assert main(["repair", "openai"]) == 0
    assert capsys.readouterr().out == "openai: nothing was wrong\n"
    assert main(["repair", "openai", "--entity", "acme", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"resource": "openai", "entity": "acme", "limits": [], "pause_ended": False}


# --- sandbox ---


def exports(told: str) -> dict[str, str]:
    """What the shell makes of what is printed."""
    words = [shlex.split(line) for line in told.splitlines()]
    assert all(word[0] == "export" and len(word) == 2 for word in words)
    return dict(word[1].split("=", 1) for word in words)


def test_the_sandbox_from_start_to_stop(
    aws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["sandbox", "status"]) == 0
    assert capsys.readouterr().out.startswith("the sandbox does not run")
    assert main(["sandbox", "env"]) == 1
    told = capsys.readouterr()
    assert (told.out, "start it with sluice sandbox start" in told.err) == ("", True)
    try:
        assert main(["sandbox", "start"]) == 0
        told = capsys.readouterr()
        environment = exports(told.out)
        assert "runs at http://127.0.0.1:" in told.err
        assert environment.keys() == {"SLUICE_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
        assert not [name for name in os.environ if name.startswith("AWS_ACCESS")], "the environment is left as it was"

        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with Sluice(timeout=20) as sluice:
            sluice.acquire("openai", {"tpm": 1_000}).release()
            assert [limit.available for limit in sluice.peek("openai").limits][1] >= 199_000
            sluice.set_limits("openai", [Limit("rpm", "7/min")])

        assert main(["sandbox", "start"]) == 0
        assert exports(capsys.readouterr().out) == environment, "it runs on, at the same place"
        with Sluice(timeout=20) as sluice:
            stored = sluice.get_limits("openai")
            assert stored is not None
            assert [str(limit.rule) for limit in stored.limits] == ["7/min"], "what was set since stays"

        assert main(["sandbox", "env"]) == 0
        assert exports(capsys.readouterr().out) == environment
        assert main(["sandbox", "status", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["url"] == environment["SLUICE_URL"]
        assert main(["sandbox", "start", "--port", "1"]) == 2
        assert "stop that one first" in capsys.readouterr().err
        assert main(["sandbox", "stop"]) == 0
        assert "is stopped" in capsys.readouterr().out
        assert main(["sandbox", "stop"]) == 0
        assert capsys.readouterr().out == "the sandbox did not run\n"
    finally:
        Service().stop()
