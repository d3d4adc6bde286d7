"""Who we are and where the table is: as botocore resolves it, refreshed in time, and never at the event loop's cost."""

import asyncio
import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sluice.core.errors import ConfigError
from sluice.core.requests import Unreached
from sluice.stores.dynamodb.wire import Answered
from sluice.wires.aio.dynamodb import AioWire
from sluice.wires.clock import SystemClock
from sluice.wires.dynamodb import account as accounts
from sluice.wires.dynamodb.account import Account, NotResolved
from sluice.wires.dynamodb.options import Options, read_options
from sluice.wires.dynamodb.skew import HostClock
from tests.dynamodb.scripted import Act, Scripted, error, get, reply, wired

ROLE = "arn:aws:iam::123456789012:role/quota"


def resolved(query: str = "") -> Account:
    return Account(read_options(f"dynamodb://quota{query}"))


def config(folder: Path, text: str) -> None:
    (folder / "config").write_text(textwrap.dedent(text))


# --- where ---


@pytest.mark.usefixtures("somebody")
@pytest.mark.parametrize(
    ("environment", "query", "endpoint", "region"),
    [
        ({}, "", "https://dynamodb.eu-west-1.amazonaws.com", "eu-west-1"),
        ({}, "?region=us-east-2", "https://dynamodb.us-east-2.amazonaws.com", "us-east-2"),
        ({}, "?region=cn-north-1", "https://dynamodb.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "?region=us-east-1", "https://dynamodb-fips.us-east-1.amazonaws.com", None),
        ({"AWS_ENDPOINT_URL": "http://all:1"}, "", "http://all:1", None),
        ({"AWS_ENDPOINT_URL": "http://all:1", "AWS_ENDPOINT_URL_DYNAMODB": "http://one:2"}, "", "http://one:2", None),
        ({"AWS_ENDPOINT_URL_DYNAMODB": "http://one:2"}, "?endpoint=http://url:3", "http://url:3", None),
        ({"AWS_PROFILE": "near"}, "", "http://near:8000", None),
        ({"AWS_PROFILE": "near"}, "?profile=far", "https://dynamodb.ap-south-1.amazonaws.com", "ap-south-1"),
    ],
)
def test_region_and_endpoint_are_found_where_aws_tools_find_them(
    aws: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    query: str,
    endpoint: str,
    region: str | None,
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    config(
        aws,
        """
        [default]
        region = eu-west-1
        [profile near]
        region = eu-west-3
        services = here
        [services here]
        dynamodb =
          endpoint_url = http://near:8000
        [profile far]
        region = ap-south-1
        aws_access_key_id = far
        aws_secret_access_key = far
        """,
    )
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    account = resolved(query)
    assert account.endpoint == endpoint
    if region is not None:
        assert account.region == region


@pytest.mark.usefixtures("somebody")
def test_proxies_and_certificates_are_found_where_aws_tools_find_them(
    aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(aws / "bundle.pem"))
    account = resolved()
    assert (account.proxy, account.ca_bundle) == ("http://proxy:3128", str(aws / "bundle.pem"))
    monkeypatch.setenv("NO_PROXY", "amazonaws.com")
    assert resolved().proxy is None


# --- what is missing ---


def _no_credentials(aws: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")


def _half_credentials(aws: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    environment.setenv("AWS_ACCESS_KEY_ID", "alone")


def _no_region(aws: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ACCESS_KEY_ID", "id")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def _no_profile(aws: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_PROFILE", "nobody")


def _broken_config(aws: Path, environment: pytest.MonkeyPatch) -> None:
    config(aws, "region = nowhere, before any section")


def _process_that_fails(aws: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    config(aws, f"[default]\ncredential_process = {sys.executable} -c 'raise SystemExit(3)'")


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (_no_credentials, "no AWS credentials were found"),
        (_half_credentials, "PartialCredentials"),
        (_no_region, r"no AWS region is set; add \?region="),
        (_no_profile, "ProfileNotFound.*nobody"),
        (_broken_config, "not set up as it should be"),
        (_process_that_fails, "not set up as it should be.*custom-process"),
    ],
)
def test_what_is_missing_is_a_clear_error(
    aws: Path, monkeypatch: pytest.MonkeyPatch, missing: Callable[[Path, pytest.MonkeyPatch], None], says: str
) -> None:
    missing(aws, monkeypatch)
    with pytest.raises(ConfigError, match=says):
        resolved().keys()


def test_it_is_raised_by_the_first_call_and_sends_nothing(
    kind: str, aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_credentials(aws, monkeypatch)
    with Scripted() as engine, wired(kind, engine.url, resolve=lambda: resolved(f"?endpoint={engine.url}")) as wire:
        for _ in range(2):
            with pytest.raises(ConfigError, match="no AWS credentials were found"):
                wire.one(get())
        assert not engine.requests
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        assert wire.one(get()) == Answered({}), "what was put right works without a restart"


# --- credentials that expire ---


class Process:
    """A program that hands out credentials, as ``credential_process`` names one."""

    def __init__(self, folder: Path, *minutes: float, takes: float = 0) -> None:
        self._log = folder / "asked"
        self._log.write_text("")
        answers = [
            {
                "Version": 1,
                "AccessKeyId": f"key{number}",
                "SecretAccessKey": "secret",
                "SessionToken": f"token{number}",
                "Expiration": (datetime.now(UTC) + timedelta(minutes=each)).isoformat(),
            }
            for number, each in enumerate(minutes)
        ]
        program = folder / "credentials.py"
        program.write_text(
            f"import json, time\n"
            f"log = open({str(self._log)!r}, 'a+')\nlog.seek(0)\nasked = len(log.read())\nlog.write('x')\n"
            f"time.sleep({takes})\nanswers = {json.dumps(answers)}\n"
            f"print(json.dumps(answers[min(asked, len(answers) - 1)]))\n"
        )
        config(folder, f"[default]\nregion = eu-west-1\ncredential_process = {sys.executable} {program}\n")

    @property
    def asked(self) -> int:
        return len(self._log.read_text())


def access_key(engine: Scripted, call: int = -1) -> str:
    return engine.calls[call].headers["authorization"].partition("Credential=")[2].partition("/")[0]


def expires_in(account: Account, minutes: float) -> None:
    account._credentials._expiry_time = datetime.now(UTC) + timedelta(minutes=minutes)


def test_credentials_that_expire_soon_are_refreshed_before_they_do(
    kind: str, aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(aws, 60, 60)
    with Scripted() as engine:
        account = resolved(f"?endpoint={engine.url}")
        with wired(kind, engine.url, account=account) as wire:
            wire.one(get())
            expires_in(account, 12)
            for _ in range(20):
                wire.one(get())
            assert {access_key(engine, call) for call in range(20)} == {"key0"}, "botocore is asked once a second"
            monkeypatch.setattr(accounts, "REUSED_NS", 0)
            wire.one(get())
            assert access_key(engine) == ("key1" if kind == "blocking" else "key0"), "a task waits for no refresh"
            until = time.monotonic() + 5
            while access_key(engine) != "key1" and time.monotonic() < until:
                wire.one(get())
            assert engine.calls[-1].headers["x-amz-security-token"] == "token1"
            assert process.asked == 2


def test_expired_credentials_are_never_used(kind: str, aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Process(aws, 60, 60)
    monkeypatch.setattr(accounts, "REUSED_NS", 0)
    with Scripted() as engine:
        account = resolved(f"?endpoint={engine.url}")
        with wired(kind, engine.url, account=account) as wire:
            wire.one(get())
            expires_in(account, -1)
            wire.one(get())
            assert [access_key(engine, call) for call in range(2)] == ["key0", "key1"]


def test_credentials_that_the_engine_refuses_are_asked_for_anew(kind: str, aws: Path) -> None:
    Process(aws, 60, 60)
    with Scripted(error("ExpiredTokenException")) as engine:
        account = resolved(f"?endpoint={engine.url}")
        with wired(kind, engine.url, account=account) as wire:
            with pytest.raises(ConfigError, match="have expired"):
                wire.one(get())
            expires_in(account, 5)
            assert wire.one(get()) == Answered({})
            assert [access_key(engine, call) for call in range(2)] == ["key0", "key1"]


async def ticks_during(work: Coroutine[object, object, object]) -> int:
    """How often the loop has turned while something was awaited."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await work
    ticking.cancel()
    return ticks


def test_the_event_loop_goes_on_while_credentials_are_fetched_and_while_they_are_refreshed(
    aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(aws, 60, 60, takes=0.3)
    made: list[Account] = []

    def resolve(options: Options) -> Account:
        made.append(Account(options))
        return made[0]

    async def main() -> list[int]:
        options = read_options(f"dynamodb://quota?endpoint={engine.url}&read_timeout=10s")
        wire = AioWire(options, HostClock(SystemClock()), lambda: resolve(options))

        async def five() -> None:
            await asyncio.gather(*[wire.send([get()]) for _ in range(5)])

        fetching = await ticks_during(five())
        assert process.asked == 1, "once, for all tasks"
        expires_in(made[0], -1)
        monkeypatch.setattr(accounts, "REUSED_NS", 0)
        refreshing = await ticks_during(five())
        assert process.asked == 2
        await wire.close()
        return [fetching, refreshing]

    with Scripted() as engine:
        assert all(ticks > 10 for ticks in asyncio.run(main()))
    assert {access_key(engine, call) for call in range(5, 10)} == {"key1"}


# --- roles ---


def sts(access: str) -> Act:
    expiration = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return reply(
        raw=f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
        <AccessKeyId>{access}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken>
        <Expiration>{expiration}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>""".encode(),
        Content_Type="text/xml",
        x_amz_crc32="",
    )


def refused(status: int, code: str) -> Act:
    raw = f"<ErrorResponse><Error><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>".encode()
    return reply(raw=raw, status=status, x_amz_crc32="")


@pytest.fixture
def role(aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile whose credentials are those of a role."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    config(
        aws,
        f"""
        [profile base]
        aws_access_key_id = base
        aws_secret_access_key = secret
        [profile quota]
        region = eu-west-1
        role_arn = {ROLE}
        source_profile = base
        """,
    )


@pytest.mark.usefixtures("role")
def test_a_role_is_assumed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Scripted(sts("ASSUMED")) as service, Scripted() as engine:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.url)
        account = resolved(f"?profile=quota&endpoint={engine.url}")
        with wired(kind, engine.url, account=account) as wire:
            wire.one(get())
            wire.one(get())
        assert access_key(engine) == "ASSUMED"
        assert len(service.calls) == 1


@pytest.mark.usefixtures("role")
def test_a_role_that_may_not_be_assumed_is_an_error_and_a_service_that_is_down_is_not(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scripted(refused(403, "AccessDenied"), refused(503, "Busy"), sts("ASSUMED")) as service, Scripted() as engine:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.url)
        account = resolved(f"?profile=quota&endpoint={engine.url}")
        with wired(kind, engine.url, account=account) as wire:
            with pytest.raises(ConfigError, match="AccessDenied"):
                wire.one(get())
            answer = wire.one(get())
            assert isinstance(answer, Unreached)
            assert "credentials could not be fetched" in answer.why
            assert not engine.requests
            assert wire.one(get()) == Answered({})


@pytest.mark.usefixtures("role")
def test_a_service_that_can_not_be_reached_is_certainly_not_applied(aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Scripted() as gone:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", gone.url)
    account = resolved("?profile=quota")
    with pytest.raises(NotResolved, match="credentials could not be fetched"):
        account.keys()
    assert os.environ["AWS_MAX_ATTEMPTS"] == "1"
