"""Signature Version 4 for the one form of request that is made here: POST, no query, a body of JSON.

The signature is over the body's digest, the host, the target, the time and the session token, so nothing that the
engine acts upon can be changed under way. The engine refuses a signature some minutes old: the time comes from the
corrected clock. What costs the most, the key of the day, is kept until the day, the secret or its owner changes.
"""

import hashlib
import hmac
import time
from typing import Final, NamedTuple
from urllib.parse import quote

CONTENT_TYPE: Final = "application/x-amz-json-1.0"
SERVICE: Final = "dynamodb"
ALGORITHM: Final = "AWS4-HMAC-SHA256"


class Keys(NamedTuple):
    """Credentials as of one moment."""

    access: str
    secret: str
    token: str | None


class Signer:
    """Signs requests to one host in one region."""

    def __init__(self, host: str, path: str, region: str) -> None:
        self._host = host
        self._path = quote(path, safe="/~")
        self._region = region
        self._stamp: tuple[int, str] = (-1, "")
        self._day_key: tuple[str, str, bytes] = ("", "", b"")

    def headers(self, keys: Keys, target: str, body: bytes, now_s: int) -> dict[str, str]:
        """The headers that make ``body`` a request for ``target``, signed at ``now_s`` seconds since the epoch."""
        stamp = self._stamped(now_s)
        scope = f"{stamp[:8]}/{self._region}/{SERVICE}/aws4_request"
        token_line = token_name = ""
        if keys.token is not None:
            token_line, token_name = f"x-amz-security-token:{keys.token}\n", "x-amz-security-token;"
        signed = f"content-type;host;x-amz-date;{token_name}x-amz-target"
        request = (
            f"POST\n{self._path}\n\ncontent-type:{CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:{stamp}\n{token_line}"
            f"x-amz-target:{target}\n\n{signed}\n{hashlib.sha256(body).hexdigest()}"
        )
        to_sign = f"{ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._key(keys.secret, stamp[:8]), to_sign.encode(), "sha256").hex()
        headers = {
            "Host": self._host,
            "Content-Type": CONTENT_TYPE,
            "X-Amz-Date": stamp,
            "X-Amz-Target": target,
            "Authorization": f"{ALGORITHM} Credential={keys.access}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}",
        }
        if keys.token is not None:
            headers["X-Amz-Security-Token"] = keys.token
        return headers

    def _stamped(self, now_s: int) -> str:
        second, stamp = self._stamp
        if second != now_s:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
            self._stamp = (now_s, stamp)
        return stamp

    def _key(self, secret: str, day: str) -> bytes:
        known_secret, known_day, key = self._day_key
        if known_secret != secret or known_day != day:
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day_key = (secret, day, key)
        return key
