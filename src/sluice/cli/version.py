"""`sluice version`."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata
from typing import Any, Final

from sluice.cli.client import add_json
from sluice.cli.output import print_json

DISTRIBUTION: Final = "sluice-quota"


def add(subjects: Any, _: argparse.ArgumentParser) -> None:
    parser = subjects.add_parser("version", help="print the version", description="Print the version.")
    add_json(parser)
    parser.set_defaults(run=version)


def version(asked: argparse.Namespace) -> int:
    """Print the version."""
    try:
        number = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        number = "unknown: not installed as a package"
    if asked.json:
        print_json({"sluice": number, "python": platform.python_version()})
    else:
        print(f"sluice {number} (Python {platform.python_version()})")
    return 0
