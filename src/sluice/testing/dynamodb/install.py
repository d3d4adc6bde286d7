"""Where DynamoDB Local lives on this machine: a folder per version in the user's cache, filled once by Maven.

    $XDG_CACHE_HOME/sluice/dynamodb-local-3.3.1/libs        the engine and what it needs
    $XDG_CACHE_HOME/sluice/dynamodb-local-3.3.1/classes     our launcher, compiled, in a folder named by its source

Several processes may ask at once: one of them fetches, under a lock, into a folder beside, and renames it when it is
whole. A process that dies half-way leaves no folder of that name, and the next one begins anew. The engine's own jar
is held to a recorded checksum each time it is started, so a damaged or exchanged one is never run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from sluice.core.errors import ConfigError

VERSION: Final = "3.3.1"
MAIN_JAR: Final = f"DynamoDBLocal-{VERSION}.jar"
MAIN_JAR_SHA256: Final = "41a32e0a840a1fa375d7b3955e60d4b1db94c423ef9e14a43ee9b4cf9c2fb536"

FETCH_TIMEOUT: Final = 600
"""Seconds that fetching 50 MB may take."""

COMPILE_TIMEOUT: Final = 120
LAST_LINES: Final = 12
"""Lines of a failed command's output that an error shows."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An engine that is ready to be started."""

    libs: Path
    classes: Path

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs our launcher with these arguments."""
        return [
            _program("java"),
            "-XX:+UseSerialGC",
            "-Xmx512m",
            f"-Djava.library.path={self.libs}",
            "-cp",
            f"{self.classes}{os.pathsep}{self.libs}/*",
            "Launcher",
            *arguments,
        ]


def cache_folder() -> Path:
    """Where this user's engines are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "sluice"


def installed(folder: Path | None = None) -> Installed:
    """The engine, fetched and compiled if that was not done before."""
    home = (folder or cache_folder()) / f"dynamodb-local-{VERSION}"
    libs, classes = home / "libs", home / "classes" / _fingerprint("Launcher.java")
    if not (libs.is_dir() and classes.is_dir()):
        with _alone(home):
            if not libs.is_dir():
                _made_whole(libs, _fetch)
            _verify(libs)
            if not classes.is_dir():
                _made_whole(classes, lambda target: _compile(libs, target))
    _verify(libs)
    return Installed(libs, classes)


@contextmanager
def _alone(home: Path) -> Generator[None]:
    """Hold this user's lock on an installation; it goes with the process that holds it."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except PermissionError as error:
        raise ConfigError(f"DynamoDB Local can't be kept in {home}: {error}; set XDG_CACHE_HOME") from error


def _made_whole(target: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder beside ``target`` and give it its name once it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(beside)
        beside.chmod(0o755)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _fetch(target: Path) -> None:
    pom = target.parent / f"{target.name}.pom.xml"
    pom.write_bytes(_data("pom.xml"))
    try:
        _run(
            [
                *(_program("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
                *(f"-DoutputDirectory={target}", "-DincludeScope=runtime"),
            ],
            "fetch DynamoDB Local with Maven",
            FETCH_TIMEOUT,
        )
    finally:
        pom.unlink()


def _compile(libs: Path, target: Path) -> None:
    source = target.parent / f"{target.name}-source"
    source.mkdir()
    try:
        (source / "Launcher.java").write_bytes(_data("Launcher.java"))
        command = [_program("javac"), "-cp", f"{libs}/*", "-d", str(target), str(source / "Launcher.java")]
        _run(command, "compile the launcher of DynamoDB Local", COMPILE_TIMEOUT)
    finally:
        shutil.rmtree(source)


def _verify(libs: Path) -> None:
    """Hold the engine's own jar to what is recorded of it."""
    jar = libs / MAIN_JAR
    try:
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{jar} can't be read: {error}; remove {libs.parent}, it is fetched again") from error
    if found != MAIN_JAR_SHA256:
        raise ConfigError(
            f"{jar} is not the engine that was recorded: its sha256 is {found}, not {MAIN_JAR_SHA256}; "
            f"remove {libs.parent}, it is fetched again"
        )


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ConfigError(
            f"DynamoDB Local needs the program '{name}', and it is not on PATH; run tools/install-java, or install "
            "the packages openjdk-17-jdk-headless and maven (any Java from 17 on will do)"
        )
    return found


def _run(command: Sequence[str], purpose: str, timeout: float) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - a program found on PATH, with arguments of our own
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"could not {purpose} in {timeout:g} s; is the network there?") from error
    if done.returncode:
        last = "\n".join(done.stdout.decode(errors="replace").splitlines()[-LAST_LINES:])
        raise ConfigError(f"could not {purpose}: exit status {done.returncode}\n{last}")


def _data(name: str) -> bytes:
    return resources.files("sluice.testing.dynamodb").joinpath(name).read_bytes()


def _fingerprint(name: str) -> str:
    return hashlib.sha256(_data(name)).hexdigest()[:16]
