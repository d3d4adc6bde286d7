import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sluice import Limit, Sluice
from sluice.cli import main
from sluice.testing import ManualClock


class Cli:
    """The command line over one store and a clock that stands still."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.sluice = Sluice("memory://", clock=ManualClock())

    def open(self, url: str | None, *, namespace: str) -> Sluice:
        assert url is None
        return self.sluice.namespace(namespace)

    def __call__(self, *words: str) -> str:
        """What a command that goes well prints."""
        assert main(words) == 0
        told = self._capsys.readouterr()
        assert not told.err or "a minute or so" in told.err
        return told.out

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def lines(self, *words: str) -> list[str]:
        return self(*words).splitlines()

    def refused(self, status: int, *words: str) -> str:
        """What a command that goes wrong says: one line on stderr, nothing on stdout."""
        assert main(words) == status
        told = self._capsys.readouterr()
        assert not told.out
        assert told.err.startswith("sluice: ")
        assert told.err.count("\n") == 1
        return told.err

    def misread(self, *words: str) -> str:
        """What is said about words that are no command line at all."""
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        return self._capsys.readouterr().err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    made = Cli(capsys)
    monkeypatch.setattr("sluice.cli.client.Sluice", made.open)
    return made


# --- limits ---


def test_limits_that_are_set_are_read_back(cli: Cli) -> None:
    told = cli("limits", "set", "openai", "rpm=500/min", "tpm=200k/min burst 400k", "calls=32 slots ttl 60s")
    assert told == "openai: rpm 500/min, tpm 200k/min burst 400k, calls 32 slots ttl 1min\n"
    lines = cli.lines("limits", "get", "openai")
    assert lines[:2] == ["limit  rule                 cost", "rpm    500/min                 1"]
    assert lines[-1].startswith("version ")
    cli.sluice.refresh()
    assert cli.sluice.resolve_limits("openai").limits[1] == Limit("tpm", "200k/min burst 400k")


def test_costs_are_given_beside_the_limits(cli: Cli) -> None:
    cli("limits", "set", "openai", "rpm=500/min", "tpm=200k/min", "--cost", "tpm=0", "--cost", "rpm=2")
    assert [limit["cost"] for limit in cli.json("limits", "get", "openai")["limits"]] == [2, 0]


def test_a_name_may_contain_an_equals_sign_and_a_resource_anything(cli: Cli) -> None:
    cli("limits", "set", "POST /search?a=b", "a=b=5/s", "--cost", "a=b=2")
    assert cli.json("limits", "get", "POST /search?a=b")["limits"] == [{"name": "a=b", "rule": "5/s", "cost": 2}]


def test_each_level_has_its_own_limits_and_the_strongest_wins(cli: Cli) -> None:
    cli("limits", "set", "--any-resource", "rpm=1/min")
    cli("limits", "set", "openai", "rpm=2/min")
    cli("limits", "set", "--any-resource", "rpm=3/min", "--entity", "acme")
    cli("limits", "set", "openai", "rpm=4/min", "--entity", "acme")
    rules = [
        cli.json("limits", "get", *level)["limits"][0]["rule"]
        for level in (
            ["--any-resource"],
            ["openai"],
            ["--any-resource", "--entity", "acme"],
            ["openai", "--entity", "acme"],
        )
    ]
    assert rules == ["1/min", "2/min", "3/min", "4/min"]
    assert cli.lines("limits", "resolve", "openai", "--entity", "acme")[1].split() == ["rpm", "4/min", "1"]
    assert cli.lines("limits", "resolve", "gpt-4")[-1] == "set at: system"
    assert cli.json("limits", "resolve", "gpt-4", "--entity", "acme")["level"] == {"entity": "acme", "resource": None}


def test_limits_are_listed_by_resource(cli: Cli) -> None:
    assert cli("limits", "list") == "no resource has limits; set some with limits set\n"
    cli("limits", "set", "openai", "rpm=500/min")
    cli("limits", "set", "gpt-4", "tpm=1k/min", "calls=2 slots ttl 5s")
    assert [line.split()[:2] for line in cli.lines("limits", "list")[1:]] == [
        ["gpt-4", "tpm"],
        ["gpt-4", "calls"],
        ["openai", "rpm"],
    ]
    assert set(cli.json("limits", "list")) == {"gpt-4", "openai"}


def test_limits_that_are_deleted_are_gone(cli: Cli) -> None:
    cli("limits", "set", "openai", "rpm=500/min")
    assert cli("limits", "delete", "openai") == "openai: no limits are set any more\n"
    assert cli("limits", "get", "openai") == "openai: no limits are set\n"
    assert cli.json("limits", "get", "openai") is None
    assert cli("limits", "resolve", "openai") == "no limits are set at any level\n"


def test_a_version_that_is_expected_must_stand_there(cli: Cli) -> None:
    cli("limits", "set", "openai", "rpm=500/min", "--expect", "")
    assert "somebody else changed it first" in cli.refused(1, "limits", "set", "openai", "rpm=1/min", "--expect", "")
    version = cli.json("limits", "get", "openai")["version"]
    cli("limits", "set", "openai", "rpm=1/min", "--expect", version)
    assert "somebody else changed it first" in cli.refused(1, "limits", "delete", "openai", "--expect", version)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["set", "openai", "rpm"], "'rpm' is not NAME=RULE"),
        (["set", "openai", "rpm=500/fortnight"], "breaks at character 5 ('fortnight')"),
        (["set", "openai", "rpm=5/s", "rpm=6/s"], "limit 'rpm' stands twice"),
        (["set", "openai"], "'openai' is given no limits"),
        (["set", "--any-resource", "openai", "rpm=5/s"], "'openai' is not NAME=RULE"),
        (["set", "openai", "rpm=5/s", "--cost", "tpm=1"], "--cost names 'tpm'"),
        (["set", "openai", "rpm=5/s", "--cost", "rpm=-1"], "write NAME=N"),
        (["set", "openai", "rpm=5/s", "--cost", "rpm"], "write NAME=N"),
        (["set", "open#ai", "rpm=5/s"], "'open#ai'"),
        (["get"], "name a RESOURCE, or say --any-resource"),
        (["get", "openai", "--any-resource"], "not both"),
        (["delete"], "name a RESOURCE, or say --any-resource"),
    ],
)
def test_limits_that_make_no_sense_are_bad_input(cli: Cli, words: list[str], said: str) -> None:
    assert said in cli.refused(2, "limits", *words)


# --- looking ---


def test_peek_shows_what_is_free_and_when_more_comes(cli: Cli) -> None:
    cli("limits", "set", "openai", "rpm=2/min", "calls=3 slots ttl 60s")
    with cli.sluice.acquire("openai", {"rpm": 2}):
        lines = cli.lines("peek", "openai")
    assert lines == [
        "entity  limit  available  of  next in",
        "*       rpm            0   2  30.00 s",
        "*       calls          2   3  0",
    ]
    assert cli.json("peek", "openai", "--entity", "acme")["limits"][0]["available"] == 2
    assert "no limits are set for resource 'gpt-4'" in cli.refused(2, "peek", "gpt-4")


def test_usage_shows_what_was_used_by_the_hour_day_or_month(cli: Cli) -> None:
    cli("limits", "set", "openai", "rpm=20/min")
    assert cli("usage", "openai") == "nothing was used\n"
    with cli.sluice.acquire("openai", {"rpm": 7}):
        pass
    head, row = cli.lines("usage", "openai", "--window", "month", "--since", "2023-11-14")
    assert head.split() == ["month", "limit", "used"]
    assert row.split() == ["2023-11", "rpm", "7"]
    (hour,) = cli.json("usage", "openai")
    assert (hour["limit"], hour["amount"]) == ("rpm", 7)
    assert cli.json("usage", "openai", "--until", "2001-02-03T04:00+02:00") == []
    assert "--since is a time such as 2025-01-31" in cli.refused(2, "usage", "openai", "--since", "yesterday")
    assert "is after until=" in cli.refused(2, "usage", "openai", "--since", "2999-01-01")


def test_leases_show_who_holds_slots(cli: Cli) -> None:
    cli("limits", "set", "openai", "calls=3 slots ttl 60s")
    assert cli("leases") == "nobody holds slots\n"
    with (
        cli.sluice.acquire("openai", {"calls": 2}, entity="acme") as lease,
        cli.sluice.acquire("openai", lease_id="my own"),
    ):
        rows = [line.split() for line in cli.lines("leases", "openai")[1:]]
        of_acme = cli.json("leases", "--entity", "acme")
    acme = next(row for row in rows if row[1] == "acme")
    assert (acme[0], acme[2], acme[3], acme[-1]) == ("openai", "calls", "2", lease.id)
    assert acme[4].endswith(f":{os.getpid()}")
    assert next(row for row in rows if row[1] == "*")[4:6] == ["-", "-"]
    assert [(held["slots"], held["expires_in"]) for held in of_acme] == [(2, 60.0)]


def test_a_pause_closes_a_resource_for_a_while(cli: Cli) -> None:
    cli("limits", "set", "openai", "rpm=500/min")
    assert cli("pause", "openai", "2.5") == "openai: paused for 2.50 s\n"
    assert not cli.sluice.try_acquire("openai")
    assert cli.lines("peek", "openai")[-1] == "paused for 2.50 s"
    assert cli.json("pause", "openai", "90", "--entity", "acme")["paused_for"] == 90.0
    assert cli.lines("peek", "openai", "--entity", "acme")[-1] == "paused for 2 min"
    assert cli.lines("peek", "openai")[-1] == "paused for 2.50 s"


@pytest.mark.parametrize("seconds", ["0", "nan", "inf", "1e9"])
def test_a_pause_of_no_sensible_time_is_bad_input(cli: Cli, seconds: str) -> None:
    cli("limits", "set", "openai", "rpm=500/min")
    assert "seconds" in cli.refused(2, "pause", "openai", seconds)
    assert "invalid float value" in cli.misread("pause", "openai", "soon")


# --- entities ---


def test_entities_are_made_read_moved_and_removed(cli: Cli) -> None:
    cli("entities", "create", "acme", "--parent", "*", "--cascade", "--metadata", '{"plan": "gold"}')
    cli("entities", "create", "key-1", "--parent", "acme")
    assert cli.lines("entities", "list") == [
        "entity  parent  cascade  metadata",
        'acme    *       yes      {"plan": "gold"}',
        "key-1   acme    no       {}",
    ]
    assert [entity["entity"] for entity in cli.json("entities", "list", "--parent", "acme")] == ["key-1"]
    assert cli.json("entities", "move", "key-1")["parent"] is None
    assert cli.json("entities", "get", "key-1")["metadata"] == {}
    assert cli("entities", "delete", "key-1") == "'key-1' has no record any more\n"
    assert cli("entities", "get", "key-1") == "'key-1' has no record\n"
    assert cli.json("entities", "get", "key-1") is None


def test_entities_that_make_no_sense_are_bad_input(cli: Cli) -> None:
    cli("entities", "create", "acme", "--parent", "*")
    assert "is not JSON" in cli.refused(2, "entities", "create", "b", "--metadata", "{")
    assert "is not a JSON object" in cli.refused(2, "entities", "create", "b", "--metadata", "[]")
    assert main(["entities", "move", "acme", "acme"]) == 2


# --- namespaces ---


def test_nothing_crosses_from_one_namespace_to_another(cli: Cli) -> None:
    assert "no namespace yet" in cli("namespaces")
    cli("limits", "set", "openai", "rpm=500/min", "--namespace", "prod")
    cli("limits", "set", "openai", "rpm=1/min", "--namespace", "test")
    assert cli.lines("namespaces") == ["prod", "test"]
    assert cli.json("limits", "get", "openai", "--namespace", "prod")["limits"][0]["rule"] == "500/min"


def test_a_purge_needs_a_yes_and_deletes_everything_of_one_namespace(cli: Cli) -> None:
    cli("limits", "set", "openai", "rpm=500/min", "--namespace", "prod")
    cli("limits", "set", "openai", "rpm=1/min", "--namespace", "test")
    assert "add --yes" in cli.refused(2, "purge", "test")
    assert cli.lines("namespaces") == ["prod", "test"]
    assert cli("purge", "test", "--yes") == "namespace 'test' is gone\n"
    assert cli.json("namespaces") == ["prod"]


# --- the command line itself ---


def test_the_help_names_every_command_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    for command in ("demo", "limits", "peek", "leases", "pause", "entities", "namespaces", "purge", "version"):
        (line,) = [line for line in told.splitlines() if line.split()[:1] == [command]]
        assert len(line.split()) > 2, line
    assert "sluice demo" in told


@pytest.mark.parametrize(
    "words", [["limits"], ["limits", "set"], ["entities"], ["entities", "create"], ["demo"], ["peek"], ["purge"]]
)
def test_every_command_has_a_help_of_its_own(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: sluice {' '.join(words)}")
    assert max(map(len, told.splitlines())) <= 100


def test_what_is_no_command_is_bad_input(cli: Cli) -> None:
    assert "the following arguments are required: COMMAND" in cli.misread()
    assert "invalid choice: 'demon'" in cli.misread("demon")
    assert "unrecognized arguments: --ent" in cli.misread("peek", "openai", "--ent", "acme")


def test_the_version_is_that_of_the_distribution(cli: Cli) -> None:
    assert cli("version").startswith("sluice 0.")
    assert set(cli.json("version")) == {"sluice", "python"}


def test_ctrl_c_ends_a_command_with_130_and_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sluice, "namespaces", interrupted)
    assert main(["namespaces"]) == 130


# --- through a process and a file ---


def run(*words: str, url: str | None = None, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SLUICE_URL"}
    if url is not None:
        environment["SLUICE_URL"] = url
    command = [sys.executable, "-m", "sluice", *words]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def test_one_process_reads_what_another_has_set(tmp_path: Path) -> None:
    setting = run("limits", "set", "openai", "rpm=500/min", "--url", "sqlite:///quota.db", cwd=tmp_path)
    assert (setting.returncode, setting.stdout, setting.stderr) == (0, "openai: rpm 500/min\n", "")
    reading = run("limits", "get", "openai", "--json", url=f"sqlite:///{tmp_path / 'quota.db'}", cwd=tmp_path)
    assert json.loads(reading.stdout)["limits"] == [{"name": "rpm", "rule": "500/min", "cost": 1}]


def test_a_url_that_names_no_store_is_bad_input(tmp_path: Path) -> None:
    done = run("namespaces", "--url", "mongodb://x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sluice: store URL 'mongodb://x'")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_gone_makes_no_noise(tmp_path: Path) -> None:
    command = f"{sys.executable} -m sluice version --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}
    assert done.stderr == ""


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "suche😀"), ("ascii", r"suche\U0001f600")])
def test_a_terminal_without_a_name_s_letters_shows_them_escaped(encoding: str, shown: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'quota.db'}"
    environment = {**os.environ, "SLUICE_URL": url, "PYTHONIOENCODING": encoding}
    for words in (["limits", "set", "suche😀", "rpm=5/min"], ["limits", "list"], ["peek", "such"]):
        command = [sys.executable, "-m", "sluice", *words]
        done = subprocess.run(command, env=environment, capture_output=True, encoding=encoding, check=False)
        assert shown in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_command_whose_output_is_closed_makes_no_noise(tmp_path: Path) -> None:
    command = f"{sys.executable} -m sluice namespaces --url memory:// >&-"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
