"""From a command's options to a client, and the options that commands share."""

from __future__ import annotations

import argparse

from sluice.sync import Sluice


def open_client(asked: argparse.Namespace) -> Sluice:
    """The client for a command's options."""
    return Sluice(asked.url, namespace=asked.namespace)


def everywhere_options() -> argparse.ArgumentParser:
    """The options of every command that opens a store."""
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("store")
    group.add_argument("--url", help="the store, as in sqlite:///quota.db (default: $SLUICE_URL, else your own file)")
    group.add_argument("--namespace", default="default", metavar="NAME", help="the namespace (default: default)")
    add_json(common)
    return common


def add_json(parser: argparse.ArgumentParser) -> None:
    """Let a command print JSON."""
    parser.add_argument("--json", action="store_true", help="print one JSON value instead of text")


def add_for_whom(parser: argparse.ArgumentParser) -> None:
    """Let a command be about one entity's bucket."""
    parser.add_argument("--entity", default="*", metavar="NAME", help="for whom (default: *, whom all share)")
