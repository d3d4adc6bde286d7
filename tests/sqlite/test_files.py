"""What can be wrong with a file: each its own clear error, and nothing half done."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice import AsyncSluice, ConfigError, Limit, Sluice
from sluice.stores.sqlite.statements import APPLICATION_ID, MIGRATIONS
from tests.sqlite.kit import STEP_DOWN, blocking_store, intact, python, raw, run, take, url_of

LIMITS = [Limit("rpm", "100/min")]


def refused(path: Path, says: str) -> None:
    """Reading and writing are refused alike, blocking and under asyncio."""
    import asyncio

    async def ask_async() -> None:
        async with AsyncSluice(url_of(path)) as other:
            with pytest.raises(ConfigError, match=says):
                await other.peek("openai")

    with Sluice(url_of(path)) as sluice:
        with pytest.raises(ConfigError, match=says):
            sluice.peek("openai")
        with pytest.raises(ConfigError, match=says):
            sluice.set_limits("openai", LIMITS)
    asyncio.run(ask_async())


def test_a_missing_folder_is_never_made_up(tmp_path: Path) -> None:
    refused(tmp_path / "typo" / "quota.db", "there is no folder '.*typo'; make it, or correct the URL")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    refused(tmp_path, "that is a folder; name a file in it")


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    path.write_bytes(b"These are my notes.\n" * 500)
    before = path.read_bytes()
    refused(path, "is not a SQLite database; name another file, or move this one away")
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["quota.db"]


@pytest.mark.parametrize(
    "prepare", ["CREATE TABLE mine (a)", "PRAGMA user_version = 7", "PRAGMA application_id = 1196444487"]
)
def test_a_database_of_another_application_is_left_as_it_is(tmp_path: Path, prepare: str) -> None:
    path = tmp_path / "other.db"
    with raw(path) as connection:
        connection.execute(prepare)
    before = path.read_bytes()
    refused(path, "belongs to another application; name another file")
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["other.db"]


def test_an_empty_file_becomes_ours(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    path.touch()
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", LIMITS)
    with raw(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_newer_schema_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", LIMITS)
    newer = len(MIGRATIONS) + 1
    with raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    refused(path, f"has schema version {newer}, and this Sluice knows versions up to {newer - 1}; upgrade")
    with raw(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (newer,)


def damage(path: Path, *, keep_header: int) -> None:
    body = bytearray(path.read_bytes())
    for offset in range(keep_header, len(body)):
        body[offset] ^= 0x5A
    path.write_bytes(body)


def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", LIMITS)
        sluice.acquire("openai")
    damage(path, keep_header=100)
    refused(path, "is damaged; stop all processes that use it, then restore it or move it away")


def test_a_bucket_that_reads_wrong_is_told_to_whoever_asks_for_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", LIMITS)
        sluice.acquire("openai", entity="acme")
        sluice.acquire("openai", entity="other")
        with raw(path) as connection:
            connection.execute("UPDATE bucket SET state = 'scribble' WHERE entity = 'acme'")
        with pytest.raises(ConfigError, match="'scribble', which Sluice did not write; delete that row"):
            sluice.acquire("openai", entity="acme")
        sluice.acquire("openai", entity="other")


ASK = f"""
import sys
from sluice import ConfigError, Limit, Sluice
with Sluice(sys.argv[1]) as sluice:
    {STEP_DOWN.strip().replace(chr(10), chr(10) + "    ")}
    for ask in (lambda: sluice.set_limits("openai", [Limit("rpm", "100/min")]), lambda: sluice.acquire("openai")):
        try:
            ask()
        except ConfigError as error:
            print(error)
        else:
            print("it was done")
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A file in a folder that everybody may enter and write. (The folders of pytest are its user's alone.)"""
    with tempfile.TemporaryDirectory(prefix="sluice-shared-") as top:
        folder = Path(top, "shared")
        folder.mkdir()
        path = folder / "quota.db"
        with Sluice(url_of(path)) as sluice:
            sluice.set_limits("openai", LIMITS)
            sluice.acquire("openai")
        Path(top).chmod(0o755)
        folder.chmod(0o777)
        path.chmod(0o666)
        yield path
        Path(top).chmod(0o700)
        folder.chmod(0o700)


def test_whoever_may_write_the_file_and_its_folder_is_served(shared: Path) -> None:
    assert python(ASK, url_of(shared)).splitlines() == ["it was done"] * 2


def test_a_file_that_may_only_be_read_is_refused(shared: Path) -> None:
    shared.chmod(0o444)
    before = shared.read_bytes()
    out = python(ASK, url_of(shared)).splitlines()
    assert len(out) == 2
    assert all("can't be written; let this user write it and its folder" in line for line in out), out
    assert shared.read_bytes() == before


def test_a_file_that_may_not_even_be_read_is_refused(shared: Path) -> None:
    shared.chmod(0o000)
    out = python(ASK, url_of(shared)).splitlines()
    assert all("can't be opened; let this user write it and its folder" in line for line in out), out


def test_a_folder_that_may_only_be_read_is_refused(shared: Path) -> None:
    shared.parent.chmod(0o555)
    before = shared.read_bytes()
    out = python(ASK, url_of(shared)).splitlines()
    assert len(out) == 2
    assert all("let this user write it and its folder" in line for line in out), out
    assert shared.read_bytes() == before


def test_a_new_file_in_a_folder_that_may_only_be_read_is_refused(shared: Path) -> None:
    shared.parent.chmod(0o555)
    out = python(ASK, url_of(shared.with_name("new.db"))).splitlines()
    assert all("can't be opened; let this user write it and its folder" in line for line in out), out


def test_a_folder_that_may_not_be_entered_is_refused(shared: Path) -> None:
    shared.parent.chmod(0o000)
    out = python(ASK, url_of(shared)).splitlines()
    assert len(out) == 2
    assert all("can't be opened; let this user write it and its folder" in line for line in out), out
    shared.parent.parent.chmod(0o000)
    out = python(ASK, url_of(shared)).splitlines()
    assert len(out) == 2
    assert all("its folder can't be reached: Permission denied; let this user enter it" in line for line in out), out


def test_a_migration_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.wires.sqlite import schema

    path = tmp_path / "quota.db"
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, ("CREATE TABLE later (a)", "CREATE nonsense")))
    with pytest.raises(ConfigError):
        run(blocking_store(path).take([take("a")]))
    with raw(path) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
        assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    monkeypatch.undo()
    run(blocking_store(path).take([take("a")]))
    assert intact(path)


def test_a_later_migration_finds_what_the_earlier_ones_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.wires.sqlite import database, schema

    path = tmp_path / "quota.db"
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", LIMITS)
    later = (*MIGRATIONS, ("CREATE TABLE later (a)",))
    monkeypatch.setattr(schema, "MIGRATIONS", later)
    monkeypatch.setattr(database, "MIGRATIONS", later)
    with Sluice(url_of(path)) as sluice:
        assert [limit.name for limit in sluice.resolve_limits("openai").limits] == ["rpm"]
    with raw(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(later),)
        assert connection.execute("SELECT count(*) FROM later").fetchone() == (0,)


def test_a_copy_of_a_file_is_a_file(tmp_path: Path) -> None:
    """After everybody has closed it, one file is all there is to copy."""
    path, copy = tmp_path / "quota.db", tmp_path / "copy.db"
    with Sluice(url_of(path)) as sluice:
        sluice.set_limits("openai", LIMITS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["quota.db"]
    shutil.copy(path, copy)
    with Sluice(url_of(copy)) as sluice:
        assert sluice.resources() == ["openai"]


def test_sqlite_is_built_for_threads() -> None:
    """The wires hand a connection from thread to thread, one at a time."""
    assert sqlite3.threadsafety >= 1


def test_a_file_that_is_removed_under_a_running_process_splits_no_limits_once_the_cache_is_over(tmp_path: Path) -> None:
    path = tmp_path / "quota.db"
    with Sluice(url_of(path)) as running, Sluice(url_of(path)) as starting:
        running.set_limits("openai", [Limit("slots", "2 slots ttl 60s")])
        running.acquire("openai").release()
        for file in tmp_path.glob("quota.db*"):
            file.unlink()
        starting.set_limits("openai", [Limit("slots", "2 slots ttl 60s")])
        running.refresh()
        with running.acquire("openai"), starting.acquire("openai"):
            for sluice in (running, starting):
                (slots,) = sluice.peek("openai").limits
                assert slots.available == 0
    assert intact(path)
