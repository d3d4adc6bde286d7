"""One engine for the whole run, shared by its workers; each test has a table of its own."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from sluice.testing.dynamodb import LocalEngine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Generator[LocalEngine]:
    """DynamoDB Local, started by the first worker that needs it, ended with the last."""
    base = tmp_path_factory.getbasetemp()
    folder: Path = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with LocalEngine.shared(folder / "dynamodb-local") as running:
        yield running


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which wire: each thing that is true of one is true of the other."""
    return str(request.param)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment in which AWS knows nobody but whom the test says; the folder of its configuration files."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "SLUICE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


@pytest.fixture
def somebody(aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and a region, as good as any for an engine that believes everybody."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
