"""`sluice dynamodb`: the table, and who may do what with it."""

from __future__ import annotations

import argparse
from typing import Any, Final

from sluice.cli.client import add_json
from sluice.cli.output import print_json
from sluice.core.errors import ConfigError
from sluice.wires.dynamodb.options import Options, read_options
from sluice.wires.dynamodb.policy import ACTIONS, policy, table_arn
from sluice.wires.opening import default_url, dynamodb_url

TABLE: Final = "sluice"


def add(subjects: Any, _: argparse.ArgumentParser) -> None:
    parser = subjects.add_parser(
        "dynamodb",
        help="make the table; print the IAM policy",
        description="Make the table that limits are kept in, and print what IAM must allow.",
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    making = verbs.add_parser(
        "create-table",
        help="make the table",
        description="Make the table and wait until it can be used. One that exists is left as it is; what is different "
        "about it is said.",
    )
    making.add_argument(
        "table", nargs="?", metavar="TABLE", help="its name (default: the one that the store URL names)"
    )
    making.add_argument("--region", metavar="NAME", help="where (default: as AWS tools find it)")
    making.add_argument("--endpoint", metavar="URL", help="another endpoint than AWS's, such as http://localhost:8000")
    making.add_argument("--url", help="the store, in place of all that (default: $SLUICE_URL)")
    add_json(making)
    making.set_defaults(run=create_table)
    printing = verbs.add_parser(
        "policy",
        help="print the IAM policy",
        description="Print the least IAM policy for using limits, administering them, or reading how they stand.",
    )
    printing.add_argument("purpose", nargs="?", choices=sorted(ACTIONS), default="using", help="(default: using)")
    printing.add_argument("--table", default=TABLE, metavar="ARN|NAME", help=f"the table (default: {TABLE})")
    printing.add_argument("--region", metavar="NAME", help="its region (default: any)")
    printing.add_argument("--account", metavar="NUMBER", help="its account (default: any)")
    printing.set_defaults(run=print_policy)


def create_table(asked: argparse.Namespace) -> int:
    """Make the table."""
    from sluice.wires.dynamodb.account import Account
    from sluice.wires.dynamodb.table import make_table

    options = _options(asked)
    account = Account(options)
    made = make_table(account, options.table)
    if asked.json:
        print_json({"table": options.table, "region": account.region, "new": made.new, "remarks": made.remarks})
        return 0
    print(f"table {options.table} in {account.region} {'is ready' if made.new else 'was there already'}")
    for remark in made.remarks:
        print(f"  {remark}")
    return 0


def _options(asked: argparse.Namespace) -> Options:
    if asked.table is not None:
        if asked.url is not None:
            raise ConfigError("name the table by TABLE or by --url, not by both")
        return read_options(dynamodb_url(asked.table, region=asked.region, endpoint=asked.endpoint))
    if asked.region is not None or asked.endpoint is not None:
        raise ConfigError("--region and --endpoint say where TABLE is; name it")
    url = asked.url or default_url()
    if not url.startswith("dynamodb://"):
        raise ConfigError(f"{url!r} is no table of DynamoDB; name one: sluice dynamodb create-table {TABLE}")
    return read_options(url)


def print_policy(asked: argparse.Namespace) -> int:
    """Print an IAM policy."""
    print_json(policy(asked.purpose, table_arn(asked.table, asked.region, asked.account)))
    return 0
