"""The SQL beside this module, by name.

A statement starts with ``-- name:``; a comment after it says what it is for. A migration is a file whose number is the
schema version that it leads to. Versions only grow, and each must leave the statements of the version before it
working, because processes of both run while an upgrade is on its way.
"""

from importlib.resources import files
from typing import Final

_FOLDER: Final = files(__package__)
_NAME: Final = "-- name:"


def _without_comments(lines: list[str]) -> str:
    return "\n".join(line for line in lines if not line.startswith("--")).strip().removesuffix(";")


def _named(file: str) -> dict[str, str]:
    statements = {}
    for block in _FOLDER.joinpath(file).read_text("utf-8").split(_NAME)[1:]:
        name, *lines = block.splitlines()
        statements[name.strip()] = _without_comments(lines)
    return statements


def _migration(file: str) -> tuple[str, ...]:
    script = _without_comments(_FOLDER.joinpath(file).read_text("utf-8").splitlines())
    return tuple(statement.strip() for statement in script.split(";"))


BUCKETS: Final = _named("buckets.sql")
DOCUMENTS: Final = _named("documents.sql")

MIGRATIONS: Final = (_migration("001_buckets_and_documents.sql"),)
"""What leads from each schema version to the next; an empty file has version 0."""

APPLICATION_ID: Final = 0x536C6365
"""Stands in the header of every file that is Sluice's: "Slce"."""
