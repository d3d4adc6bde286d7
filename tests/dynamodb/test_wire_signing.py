"""Our signature is the one that botocore writes, whatever is signed."""

from datetime import UTC, datetime

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from sluice.wires.dynamodb.signing import CONTENT_TYPE, Keys, Signer

PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
KEYS = st.builds(Keys, PRINTABLE, PRINTABLE, st.none() | PRINTABLE)
LETTERS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)
HOSTS = st.builds(
    lambda name, port: f"{name}.example{'' if port is None else f':{port}'}",
    st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True),
    st.none() | st.integers(1, 65_535).filter(lambda port: port != 443),
)
PATHS = st.sampled_from(["/", "/dynamodb", "/a b/ü~x", "/a%20b"])


@given(KEYS, HOSTS, PATHS, LETTERS, LETTERS, st.binary(max_size=200))
def test_it_signs_as_botocore_does(keys: Keys, host: str, path: str, region: str, target: str, body: bytes) -> None:
    request = AWSRequest("POST", f"https://{host}{path}", data=body)
    request.headers["Content-Type"] = CONTENT_TYPE
    request.headers["X-Amz-Target"] = target
    SigV4Auth(Credentials(*keys), "dynamodb", region).add_auth(request)
    signed_at = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    ours = Signer(host, path, region).headers(keys, target, body, int(signed_at.timestamp()))
    assert ours["Authorization"] == request.headers["Authorization"]
    assert ours["X-Amz-Date"] == request.headers["X-Amz-Date"]
    assert ours.get("X-Amz-Security-Token") == keys.token


def test_what_is_kept_between_signatures_never_outlives_its_day_or_its_secret() -> None:
    used = Signer("host", "/", "eu-west-1")
    moments = [1_700_000_000, 1_700_000_001, 1_700_100_000, 1_700_000_000]
    for now_s in moments:
        for keys in (Keys("a", "secret", None), Keys("b", "other", "token"), Keys("b", "other", "renewed")):
            fresh = Signer("host", "/", "eu-west-1")
            assert used.headers(keys, "t", b"{}", now_s) == fresh.headers(keys, "t", b"{}", now_s)
