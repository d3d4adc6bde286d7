"""Whose file it is, and which schema it has: read from its header, brought up to date by numbered migrations.

    application id 0, version 0, no tables     a new file: it becomes ours
    our application id, version 0 to ours      migrated under the write lock: one process does it, the others see it
    our application id, a newer version        refused: a newer Sluice has made it what it is
    anything else                              refused, and nothing of it is touched

A migration and the version that it leads to are one transaction, so a process that dies in it has changed nothing.
"""

import sqlite3

from sluice.core.errors import ConfigError
from sluice.stores.sqlite.statements import APPLICATION_ID, MIGRATIONS
from sluice.wires.sqlite.place import Place


def version_of(connection: sqlite3.Connection, place: Place) -> int:
    """The file's schema version, read within a transaction; raises `ConfigError` if the file is not for us."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    path = str(place.path)
    if application == APPLICATION_ID:
        if version > len(MIGRATIONS):
            raise ConfigError(
                f"SQLite file {path!r} has schema version {version}, and this Sluice knows versions up to "
                f"{len(MIGRATIONS)}; upgrade sluice-quota here, or name another file"
            )
        return int(version)
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application or version or tables:
        raise ConfigError(f"SQLite file {path!r} belongs to another application; name another file")
    return 0


def migrate(connection: sqlite3.Connection, place: Place) -> None:
    """Bring the file up to date, within a transaction that has the write lock."""
    version = version_of(connection, place)
    if version == len(MIGRATIONS):
        return
    for migration in MIGRATIONS[version:]:
        for statement in migration:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
