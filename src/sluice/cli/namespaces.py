"""`sluice namespaces` and `sluice purge`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sluice.cli.client import open_client
from sluice.cli.output import print_json
from sluice.core.errors import ConfigError


def add(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    text = "the namespaces of the store"
    listing = subjects.add_parser("namespaces", parents=[everywhere], help=text, description=f"Print {text}.")
    listing.set_defaults(run=namespaces)
    text = "delete a namespace and everything in it"
    purging = subjects.add_parser("purge", parents=[everywhere], help=text, description=f"{text.capitalize()}.")
    purging.add_argument("name", metavar="NAME")
    purging.add_argument("--yes", action="store_true", help="without it, nothing is deleted")
    purging.set_defaults(run=purge)


def namespaces(asked: argparse.Namespace) -> int:
    """Print the namespaces of the store."""
    with open_client(asked) as sluice:
        names = sluice.namespaces()
    if asked.json:
        print_json(names)
    else:
        print("\n".join(names) or "there is no namespace yet; the first take or `limits set` makes one")
    return 0


def purge(asked: argparse.Namespace) -> int:
    """Delete a namespace, if that is really meant."""
    if not asked.yes:
        raise ConfigError(
            f"purge deletes namespace {asked.name!r} and everything in it for good; add --yes if you mean it"
        )
    print("this waits until no client remembers the namespace, which takes a minute or so", file=sys.stderr)
    with open_client(asked) as sluice:
        sluice.purge_namespace(asked.name)
    if asked.json:
        print_json({"purged": asked.name})
    else:
        print(f"namespace {asked.name!r} is gone")
    return 0
