"""A disk that runs full: clear errors, nothing granted that is not stored, and back to work once there is room."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice import Limit, Sluice, StoreUnavailable
from sluice.core.requests import Unreached
from tests.sqlite.kit import blocking_store, buckets, intact, run, take, url_of

LIMITS = [Limit("rpm", "100/hour")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.fail(f"a small disk can't be mounted here, which these tests need (run them as root): {mounted.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return filler


def test_takes_on_a_full_disk_are_certainly_not_applied_and_work_again_with_room(disk: Path) -> None:
    path = disk / "quota.db"
    granted: set[str] = set()
    refused: dict[str, str] = {}
    with Sluice(url_of(path), timeout=0.1) as sluice:
        sluice.set_limits("openai", LIMITS)
        filler = fill(disk)
        for number in range(2_000):
            entity = f"entity {number} {'x' * 100}"
            try:
                sluice.acquire("openai", {"rpm": 7}, entity=entity)
                granted.add(entity)
            except StoreUnavailable as error:
                refused[entity] = str(error)
                if len(refused) == 5:
                    break
        assert len(refused) == 5, f"{len(granted)} takes and the disk is not full"
        assert all("was not applied" in why and "is full; make room" in why for why in refused.values()), refused
        available = {
            entity: sluice.peek("openai", entity=entity).limits[0].available for entity in granted | set(refused)
        }
        assert {entity for entity, left in available.items() if left <= 93} == granted
        assert {entity for entity, left in available.items() if left == 100} == set(refused)
        filler.unlink()
        for entity in refused:
            sluice.acquire("openai", {"rpm": 7}, entity=entity)
            assert sluice.peek("openai", entity=entity).limits[0].available == 93
    assert intact(path)


def test_on_a_full_disk_a_store_answers_unreached_and_goes_on_reading(disk: Path) -> None:
    path = disk / "quota.db"
    store = blocking_store(path)
    run(store.take([take("first")]))
    fill(disk)
    answers = []
    for number in range(2_000):
        (answer,) = run(store.take([take(f"lease {number}")]))
        answers.append(answer)
        if isinstance(answer, Unreached):
            break
    assert isinstance(answers[-1], Unreached), "the write-ahead log never filled the disk"
    assert "is full" in answers[-1].why
    assert buckets(store)
    run(store.close())


def test_a_file_cant_be_made_on_a_full_disk_but_can_once_there_is_room(disk: Path) -> None:
    filler = fill(disk)
    with Sluice(url_of(disk / "quota.db"), timeout=0.1) as sluice:
        with pytest.raises(StoreUnavailable, match="was not applied"):
            sluice.set_limits("openai", LIMITS)
        filler.unlink()
        sluice.set_limits("openai", LIMITS)
        assert sluice.try_acquire("openai")
    assert intact(disk / "quota.db")


def test_a_disk_that_turns_read_only_is_an_error_that_says_so(disk: Path) -> None:
    from sluice import ConfigError

    with Sluice(url_of(disk / "quota.db")) as sluice:
        sluice.set_limits("openai", LIMITS)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with Sluice(url_of(disk / "quota.db")) as sluice, pytest.raises(ConfigError, match="let this user write it"):
        sluice.acquire("openai")
