"""From a URL to a file: what is read, what is refused, and when the file is touched."""

import sys
from pathlib import Path

import pytest

from sluice import AsyncSluice, ConfigError, Limit, Sluice
from sluice.wires import opening
from sluice.wires.sqlite import forks
from sluice.wires.sqlite.place import read_url
from tests.sqlite.kit import url_of

KINDS = pytest.mark.parametrize("kind", [Sluice, AsyncSluice])


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/app/quota.db", "/var/lib/app/quota.db"),
        ("sqlite:///quota.db", "here/quota.db"),
        ("sqlite:///data/../quota.db", "here/quota.db"),
        ("sqlite:////tmp/100%25%3F.db", "/tmp/100%?.db"),
        ("sqlite:////tmp/a b [1]:ü.db", "/tmp/a b [1]:ü.db"),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(
    url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert read_url(url).path == tmp_path / path


def test_a_relative_path_means_the_folder_in_which_the_client_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    with Sluice("sqlite:///quota.db") as sluice:
        monkeypatch.chdir(tmp_path / "second")
        sluice.set_limits("openai", [Limit("rpm", "5/min")])
    assert (tmp_path / "first" / "quota.db").exists()
    assert not list((tmp_path / "second").iterdir())


@pytest.mark.parametrize(
    ("query", "synchronous"),
    [("", "normal"), ("?synchronous=full", "full"), ("?synchronous=FULL", "full"), ("?synchronous=normal", "normal")],
)
def test_the_one_option_is_synchronous(query: str, synchronous: str) -> None:
    assert read_url(f"sqlite:///quota.db{query}").synchronous == synchronous


@KINDS
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///quota.db?synchronous=off", "synchronous is 'normal' \\(the default\\) or 'full', not 'off'"),
        ("sqlite:///quota.db?synchronous", "or 'full', not ''"),
        ("sqlite:///quota.db?timeout=3", "there is no option 'timeout'; the one option is synchronous=full"),
        ("sqlite:///quota.db#a", "'#' starts a part that means nothing here"),
        ("sqlite://quota.db", "three slashes come first"),
        ("sqlite://host/quota.db", "three slashes come first"),
        ("sqlite://[quota.db", "can't be read"),
        ("sqlite://", "names no file that processes could share; .*'memory://'"),
        ("sqlite:///", "names no file that processes could share"),
        ("sqlite:///:memory:", "names no file that processes could share"),
        ("sqlite:///a%00b", "null character"),
        ("quota.db", "starts with none of .*memory://.*sqlite://"),
        ("mysql:///quota.db", "starts with none of .*memory://.*sqlite://"),
    ],
)
def test_a_url_that_names_no_file_is_refused_when_the_client_is_made(kind: type[Sluice], url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kind(url)


@KINDS
def test_making_a_client_does_no_io(kind: type[Sluice], tmp_path: Path) -> None:
    kind(url_of(tmp_path / "missing" / "quota.db"))
    kind(url_of(tmp_path / "quota.db"))
    assert not list(tmp_path.iterdir())


def test_the_default_is_what_the_environment_names_else_a_file_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_URL", "memory://")
    assert opening.default_url() == "memory://"
    monkeypatch.delenv("SLUICE_URL")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_DATA_HOME", "/data/of me")
    assert opening.default_url() == "sqlite:////data/of%20me/sluice/sluice.db"
    assert str(read_url(opening.default_url()).path) == "/data/of me/sluice/sluice.db"
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert opening.default_url() == "sqlite:////home/me/.local/share/sluice/sluice.db"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert opening.default_url() == "sqlite:////home/me/Library/Application%20Support/sluice/sluice.db"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/C:/me/Local")
    assert opening.default_url() == "sqlite:////C:/me/Local/sluice/sluice.db"


def test_the_users_own_file_gets_its_folder_on_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICE_URL", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Sluice() as sluice:
        assert not list(tmp_path.iterdir())
        sluice.set_limits("openai", [Limit("rpm", "5/min")])
    folder = tmp_path / "data" / "sluice"
    assert [entry.name for entry in folder.iterdir()] == ["sluice.db"]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_the_users_that_cant_be_made_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_text("a file is in the way")
    monkeypatch.delenv("SLUICE_URL", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(ConfigError, match=r"can't be made: Not a directory; name a store, or set \$SLUICE_URL"):
        Sluice().peek("openai")


def test_a_user_without_a_home_needs_to_name_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLUICE_URL", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigError, match="has no home folder"):
        Sluice()
    with Sluice(url_of(tmp_path / "quota.db")) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "5/min")])


def test_clients_of_one_opener_share_one_connection(tmp_path: Path) -> None:
    """A client for each of many tenants must not cost a connection each."""
    with Sluice(url_of(tmp_path / "quota.db")) as sluice:
        sluice.set_limits("openai", [Limit("rpm", "5/min")])
        for number in range(50):
            sluice.namespace(f"tenant {number}").set_limits("openai", [Limit("rpm", "5/min")])
        assert [opened.path for opened in forks._opened].count(tmp_path / "quota.db") == 1
