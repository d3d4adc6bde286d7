"""One engine for the whole run, shared by its workers; each test has a table of its own."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from sluice.testing.dynamodb import LocalEngine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Generator[LocalEngine]:
    """DynamoDB Local, started by the first worker that needs it, ended with the last."""
    base = tmp_path_factory.getbasetemp()
    folder: Path = base if worker_id == "master" else base.parent
    with LocalEngine.shared(folder / "dynamodb-local") as running:
        yield running
