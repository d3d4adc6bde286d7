"""dynamodb:// URLs, the environment that stands in for one, and what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluice import AsyncSluice, ConfigError, Limit, Sluice
from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.wires.dynamodb.options import Options, read_options
from sluice.wires.opening import default_url, dynamodb_url

MS, S = NS_PER_MS, NS_PER_SECOND


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("dynamodb://quota", Options("quota")),
        ("dynamodb://Team-A.quota_1/", Options("Team-A.quota_1")),
        ("dynamodb://quota?region=eu-west-1&profile=prod", Options("quota", "eu-west-1", profile="prod")),
        ("dynamodb://quota?endpoint=http://localhost:8000", Options("quota", endpoint="http://localhost:8000")),
        ("dynamodb://quota?endpoint=https%3A%2F%2Fx%2Fy", Options("quota", endpoint="https://x/y")),
        (
            "dynamodb://quota?connect_timeout=250ms&read_timeout=1.5s",
            Options("quota", connect_timeout_ns=250 * MS, read_timeout_ns=1_500 * MS),
        ),
        (
            "dynamodb://quota?read_timeout=0.25&max_skew=2",
            Options("quota", read_timeout_ns=250 * MS, max_skew_ns=2 * S),
        ),
        ("dynamodb://quota?clock=host", Options("quota", corrected=False)),
        ("dynamodb://quota?clock=engine", Options("quota")),
    ],
)
def test_a_url_says_which_table_and_how_to_reach_it(url: str, options: Options) -> None:
    assert read_options(url) == options


def test_time_outs_are_a_few_hundred_milliseconds_unless_the_url_says_otherwise() -> None:
    options = read_options("dynamodb://quota")
    assert (options.connect_timeout_ns, options.read_timeout_ns) == (500 * MS, 500 * MS)


@pytest.mark.parametrize("facade", [Sluice, AsyncSluice])
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("dynamodb://", "names no table"),
        ("dynamodb://ab", "names no table"),
        ("dynamodb:quota", "names no table"),
        ("dynamodb:///quota", "names no table"),
        ("dynamodb://quota/more", "names no table"),
        ("dynamodb://quota#part", "names no table"),
        ("dynamodb://quota:8000", "names no table"),
        ("dynamodb://me@quota", "names no table"),
        ("dynamodb://quota?regoin=x", "no option 'regoin'; there are region, endpoint"),
        ("dynamodb://quota?region=", "region has no value"),
        ("dynamodb://quota?region=a&region=b", "region is given twice"),
        ("dynamodb://quota?endpoint=localhost:8000", "endpoint is a URL such as"),
        ("dynamodb://quota?read_timeout=soon", "read_timeout is a time such as"),
        ("dynamodb://quota?read_timeout=0", "read_timeout is a time such as"),
        ("dynamodb://quota?read_timeout=nan", "read_timeout is a time such as"),
        ("dynamodb://quota?connect_timeout=61s", "at most 60s"),
        ("dynamodb://quota?max_skew=2hour", "at most 3600s"),
        ("dynamodb://quota?clock=mine", "clock is 'engine'"),
    ],
)
def test_what_can_not_be_read_is_said_when_the_client_is_made(
    facade: type[Sluice | AsyncSluice], url: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        facade(url)


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"SLUICE_TABLE_NAME": "quota"}, "dynamodb://quota"),
        (
            {"SLUICE_TABLE_NAME": "quota", "SLUICE_ENDPOINT_URL": "http://localhost:8000"},
            "dynamodb://quota?endpoint=http://localhost:8000",
        ),
        ({"SLUICE_TABLE_NAME": "quota", "SLUICE_URL": "memory://"}, "memory://"),
        ({"SLUICE_TABLE_NAME": "quota", "SLUICE_URL": ""}, "dynamodb://quota"),
    ],
)
def test_the_environment_stands_in_for_a_url(
    aws: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert default_url() == url


@pytest.mark.usefixtures("aws")
def test_an_endpoint_alone_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_ENDPOINT_URL", "http://localhost:8000")
    assert default_url().startswith("sqlite://")


def test_a_url_that_is_made_is_read_back() -> None:
    endpoint = "http://[::1]:8000/a?b=c&d=e%20f"
    assert read_options(dynamodb_url("quota", region="eu-west-1", endpoint=endpoint)) == Options(
        "quota", "eu-west-1", endpoint
    )


@pytest.mark.parametrize(("text", "ttl"), [("90", 90), ("1.5", 1.5), ("90s", 90), ("2min", 120)])
def test_slots_live_as_long_as_the_environment_says_unless_the_take_does(
    monkeypatch: pytest.MonkeyPatch, text: str, ttl: float
) -> None:
    monkeypatch.setenv("SLUICE_LEASE_TTL", text)
    sluice = Sluice("memory://")
    sluice.set_limits("gpu", [Limit("calls", "4 slots ttl 30s")])
    with sluice.acquire("gpu"):
        assert ttl - 1 < sluice.leases("gpu")[0].expires_in <= ttl
    with sluice.acquire("gpu", ttl=10):
        assert 9 < sluice.leases("gpu")[0].expires_in <= 10


def test_slots_live_as_long_as_their_limit_says_and_a_minute_if_nothing_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICE_LEASE_TTL", raising=False)
    sluice = Sluice("memory://")
    sluice.set_limits("gpu", [Limit("a", "4 slots ttl 30s")])
    sluice.set_limits("cpu", [Limit("a", "4 slots")])
    with sluice.acquire("gpu"), sluice.acquire("cpu"):
        assert 29 < sluice.leases("gpu")[0].expires_in <= 30
        assert 59 < sluice.leases("cpu")[0].expires_in <= 60


@pytest.mark.parametrize("text", ["0", "soon", "-5", "8day", "nan", "1e3"])
def test_a_ttl_that_is_none_is_said_when_the_client_is_made(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SLUICE_LEASE_TTL", text)
    with pytest.raises(ConfigError, match="SLUICE_LEASE_TTL is a time such as 60s"):
        Sluice("memory://")


# --- what is imported, and what if it is not there ---

WITHOUT = """
import importlib.abc, sys
class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}.split():
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
from importlib import util
found = util.find_spec
util.find_spec = lambda name, package=None: None if name in {missing!r}.split() else found(name, package)
"""


def python(program: str, missing: str = "") -> str:
    """What a program prints, in a Python that lacks some packages."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing) + program],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))},
    )
    return done.stdout.strip()


CONSTRUCTED = """
import sys
from sluice import Sluice
Sluice("dynamodb://quota")
print([name for name in ("botocore", "aiohttp", "asyncio") if name in sys.modules])
from sluice import AsyncSluice
AsyncSluice("dynamodb://quota")
print([name for name in ("botocore",) if name in sys.modules])
"""


def test_making_a_client_imports_no_botocore_and_the_blocking_one_no_event_loop() -> None:
    assert python(CONSTRUCTED).splitlines() == ["[]", "[]"]


FAILING = """
import sluice
for facade in (sluice.Sluice, sluice.AsyncSluice):
    try:
        facade("dynamodb://quota")
        print("made")
    except sluice.ConfigError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("missing", "blocking", "asynchronous"),
    [("botocore", "botocore", "botocore"), ("aiohttp", None, "aiohttp"), ("botocore aiohttp", "botocore", "aiohttp")],
)
def test_a_missing_extra_is_named_when_the_client_is_made(
    missing: str, blocking: str | None, asynchronous: str
) -> None:
    sentence = "a dynamodb:// store needs {}, which is not installed: pip install 'sluice-quota[dynamodb]'"
    assert python(FAILING, missing).splitlines() == [
        "made" if blocking is None else sentence.format(blocking),
        sentence.format(asynchronous),
    ]
