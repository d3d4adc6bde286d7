"""Making the table, and looking at one that is there. For commands: it waits, and botocore retries.

A table that exists is left as it is. What makes it useless to us, another key or an index that is missing or other than
ours, is an error; what only makes it different, such as provisioned capacity, is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluice.core.errors import ConfigError, SluiceError, StoreUnavailable
from sluice.stores.dynamodb import definition
from sluice.wires.dynamodb.account import Account
from sluice.wires.dynamodb.replies import FORBIDDEN

POLL_S: Final = 1
MAX_POLLS: Final = 300


@dataclass(frozen=True, slots=True)
class Made:
    """A table that is ready: whether it was made just now, and in what it is different from one that we make."""

    new: bool
    remarks: tuple[str, ...]


def make_table(account: Account, table: str) -> Made:
    """Make a table and wait until it can be used. One that is there already is looked at instead."""
    from botocore import exceptions  # noqa: PLC0415 - it is there, since there is an account

    try:
        return _make(account.client, table)
    except exceptions.ClientError as error:
        raise _explained(error.response.get("Error", {}), account, table) from error
    except exceptions.WaiterError as error:
        raise StoreUnavailable(
            f"DynamoDB table {table!r} was made, but is not ready after {POLL_S * MAX_POLLS} s; run this again to wait "
            "on"
        ) from error
    except exceptions.BotoCoreError as error:
        raise StoreUnavailable(f"DynamoDB in {account.region} at {account.endpoint}: {error}") from error
    finally:
        account.client.close()


def _make(client: Any, table: str) -> Made:
    wanted = definition(table)
    try:
        client.create_table(**wanted)
        new = True
    except client.exceptions.ResourceInUseException:
        new = False
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": POLL_S, "MaxAttempts": MAX_POLLS})
    if new:
        return Made(new=True, remarks=())
    found = client.describe_table(TableName=table)["Table"]
    wrong = differences(wanted, found)
    if wrong:
        raise ConfigError(
            f"DynamoDB table {table!r} exists and is not what Sluice needs: {'; '.join(wrong)}; choose another name"
        )
    return Made(new=False, remarks=remarks(wanted, found))


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What makes a table useless to us."""
    types = {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]}
    wrong = _key_differences("its key", wanted["KeySchema"], found["KeySchema"])
    indexes = {each["IndexName"]: each for each in found.get("GlobalSecondaryIndexes", ())}
    for index in wanted["GlobalSecondaryIndexes"]:
        name = index["IndexName"]
        there = indexes.get(name)
        if there is None:
            wrong.append(f"index {name!r} is missing")
            continue
        wrong += _key_differences(f"the key of index {name!r}", index["KeySchema"], there["KeySchema"])
    used = {key["AttributeName"] for each in (found, *indexes.values()) for key in each["KeySchema"]}
    wrong += [
        f"attribute {each['AttributeName']!r} is of type {types[each['AttributeName']]}, not {each['AttributeType']}"
        for each in wanted["AttributeDefinitions"]
        if each["AttributeName"] in used and types.get(each["AttributeName"]) != each["AttributeType"]
    ]
    return wrong


def _key_differences(what: str, wanted: list[dict[str, str]], found: list[dict[str, str]]) -> list[str]:
    ours, theirs = _key_text(wanted), _key_text(found)
    return [] if ours == theirs else [f"{what} is {theirs}, not {ours}"]


def _key_text(schema: list[dict[str, str]]) -> str:
    return " and ".join(f"{key['AttributeName']} ({key['KeyType'].lower()})" for key in schema)


def remarks(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    """What is different and works all the same."""
    said = []
    billing = found.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
    if billing != wanted["BillingMode"]:
        said.append(
            f"it is billed as {billing}, not {wanted['BillingMode']}: takes are throttled past what it provides"
        )
    ours = {index["IndexName"]: index["Projection"]["ProjectionType"] for index in wanted["GlobalSecondaryIndexes"]}
    for index in found.get("GlobalSecondaryIndexes", ()):
        name, projection = index["IndexName"], index["Projection"]["ProjectionType"]
        if name not in ours:
            said.append(f"it has an index {name!r} of its own, which may cost a write unit a take")
        elif projection != ours[name]:
            said.append(f"index {name!r} projects {projection}, not {ours[name]}: each take costs a write unit more")
    if found.get("StreamSpecification", {}).get("StreamEnabled"):
        said.append("it has a stream, which Sluice does not need")
    return tuple(said)


def _explained(error: Mapping[str, str], account: Account, table: str) -> SluiceError:
    code, message = error.get("Code", "unknown"), error.get("Message", "")
    where = f"DynamoDB table {table!r} in {account.region} at {account.endpoint}"
    if code in FORBIDDEN:
        return ConfigError(
            f"{where}: permission is missing; `sluice dynamodb policy administering` prints what is needed ({message})"
        )
    return ConfigError(f"{where} can't be made ({code}: {message})")
