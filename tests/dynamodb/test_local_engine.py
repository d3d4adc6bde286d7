"""DynamoDB Local is started, shared and stopped for sure; what it lacks is said clearly."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sluice.core.errors import ConfigError, StoreUnavailable
from sluice.testing.dynamodb import LocalEngine, Service, install
from sluice.testing.dynamodb.engine import answers

GONE_WITHIN = 10.0

HOLDER = """
import sys, time
from pathlib import Path
from sluice.testing.dynamodb import LocalEngine
engine = LocalEngine.shared(Path(sys.argv[1]))
print(engine.port, flush=True)
time.sleep(60)
"""


def _is_gone(port: int) -> bool:
    until = time.monotonic() + GONE_WITHIN
    while answers(port):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_an_engine_of_ones_own_ends_with_its_block() -> None:
    with LocalEngine.start() as engine:
        assert answers(engine.port)
    assert not answers(engine.port)


def test_a_shared_engine_ends_with_the_last_who_holds_it_even_when_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    holders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        ports = {int(holder.stdout.readline()) for holder in holders if holder.stdout}
        (port,) = ports
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        assert answers(port)
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
    assert _is_gone(port)


def test_it_listens_on_loopback_only() -> None:
    with LocalEngine.start() as engine:
        port = f":{engine.port:04X}"
        listening = [
            line.split()[1]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            if line.split()[1].endswith(port) and line.split()[3] == "0A"
        ]
    (address,) = listening
    assert address.partition(":")[0] in {"0100007F", "0000000000000000FFFF00000100007F"}


def test_a_service_outlives_who_started_it_and_is_found_again(tmp_path: Path) -> None:
    service = Service(tmp_path)
    running = service.start()
    try:
        assert service.start() == running
        assert Service(tmp_path).status() == running
        assert answers(running.port)
        with pytest.raises(ConfigError, match=f"runs at {running.port}; stop that one first"):
            service.start(running.port + 1)
    finally:
        assert Service(tmp_path).stop() == running
    assert not answers(running.port)
    assert service.status() is None
    assert service.stop() is None


def test_a_process_that_only_has_the_number_of_a_service_is_left_alone(tmp_path: Path) -> None:
    note = tmp_path / "dynamodb-local.json"
    note.write_text(f'{{"pid": {os.getpid()}, "port": 1, "log": ""}}')
    assert Service(tmp_path).status() is None
    assert Service(tmp_path).stop() is None
    note.write_text("[")
    with pytest.raises(ConfigError, match=r"can't be read.*remove it"):
        Service(tmp_path).status()


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with LocalEngine.start() as engine, pytest.raises(StoreUnavailable, match="ended with exit status"):
        Service(tmp_path).start(engine.port)


@pytest.mark.parametrize("missing", ["java", "mvn"])
def test_a_missing_program_is_named_with_what_to_install(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = {"java": "mvn", "mvn": "java"}[missing]
    found = shutil.which(present)
    assert found
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / present).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if missing == "mvn":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ConfigError, match=rf"'{missing}'.*not on PATH; run tools/install-java, .*maven"):
        LocalEngine.start()
    leftover = [path for path in (tmp_path / "cache").rglob("*") if path.name != "lock" and path.is_file()]
    assert not leftover


def test_an_engine_that_is_not_the_recorded_one_is_never_run(tmp_path: Path) -> None:
    ready = install.installed()
    copy = tmp_path / f"dynamodb-local-{install.VERSION}"
    (copy / "libs").mkdir(parents=True)
    shutil.copytree(ready.classes, copy / "classes" / ready.classes.name)
    (copy / "libs" / install.MAIN_JAR).write_bytes(b"something else")
    with pytest.raises(ConfigError, match="is not the engine that was recorded"):
        install.installed(tmp_path)
