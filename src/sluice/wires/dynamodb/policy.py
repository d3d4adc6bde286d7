"""The least that IAM must allow, by what somebody does with the table.

    using            take, settle, release, renew, fold: all that an application or a worker does
    administering    using, and: make the table, set and delete limits and entities, purge a namespace
    reading          peek, leases, usage, limits: nothing that writes, once the namespace exists

A transaction is allowed by the permissions of what is in it.
"""

import re
from typing import Any, Final

from sluice.core.errors import ConfigError

READING: Final = ("BatchGetItem", "GetItem", "Query")
USING: Final = (*READING, "UpdateItem")
ADMINISTERING: Final = (*USING, "CreateTable", "DeleteItem", "DescribeTable")
ACTIONS: Final = {"using": USING, "administering": ADMINISTERING, "reading": READING}

INDEXED: Final = frozenset({"Query"})
"""Actions on the indexes; all others are on the table."""

_ARN = re.compile(r"arn:[a-z-]+:dynamodb:[a-z0-9-]+:\d{12}:table/[A-Za-z0-9_.-]{3,255}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


def policy(purpose: str, table_arn: str) -> dict[str, Any]:
    """An IAM policy document."""
    actions = ACTIONS[purpose]
    on_table = sorted(f"dynamodb:{action}" for action in actions if action not in INDEXED)
    on_indexes = sorted(f"dynamodb:{action}" for action in actions if action in INDEXED)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Sid": "SluiceTable", "Effect": "Allow", "Action": on_table, "Resource": table_arn},
            {"Sid": "SluiceIndexes", "Effect": "Allow", "Action": on_indexes, "Resource": f"{table_arn}/index/*"},
        ],
    }


def table_arn(table: str, region: str | None, account: str | None) -> str:
    """The ARN of a table that is named by its ARN or its name; what is left out of a name stands for any."""
    if table.startswith("arn:"):
        if not _ARN.fullmatch(table) or region or account:
            raise ConfigError(
                f"{table!r} with --region or --account, or no ARN of a table; write for example "
                "arn:aws:dynamodb:eu-west-1:123456789012:table/sluice and nothing else"
            )
        return table
    if not _NAME.fullmatch(table):
        raise ConfigError(f"{table!r} is no name of a table: 3 to 255 letters, digits, '_', '-' and '.'")
    if account is not None and not re.fullmatch(r"\d{12}", account):
        raise ConfigError(f"an AWS account is a number of 12 digits, not {account!r}")
    return f"arn:{_partition(region)}:dynamodb:{region or '*'}:{account or '*'}:table/{table}"


def _partition(region: str | None) -> str:
    if region is None:
        return "aws"
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
