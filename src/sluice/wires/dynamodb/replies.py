"""From a status, headers and a body to one certainty.

    200, readable                                      answered
    a condition that does not hold                     condition failed, with the items as they were
    throttled, in conflict, a signature out of time    unreached: certainly not applied, ask again
    5xx, unreadable, a checksum that does not match    unknown: sent, and no answer that can be believed
    table, permission, credentials, request wrong      `ConfigError`: no retry cures it

A denial of permission is never taken for an engine that is down: ``on_unavailable="open"`` must not open the gate to
whoever breaks a policy.
"""

import json
import zlib
from typing import Any, Final

from sluice.core.errors import ConfigError
from sluice.core.requests import Unknown, Unreached
from sluice.stores.dynamodb.wire import Answered, Body, ConditionFailed, Reply

THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
    }
)
CONFLICTED: Final = frozenset(
    {"TransactionConflictException", "TransactionConflict", "ReplicatedWriteConflictException"}
)
UNPROVEN: Final = frozenset(
    {
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)
FORBIDDEN: Final = frozenset({"AccessDeniedException", "OptInRequired", "KMSAccessDeniedException"})
MISSING: Final = frozenset({"ResourceNotFoundException", "TableNotFoundException"})
CONDITION: Final = "ConditionalCheckFailed"
MAX_WHY_CHARS: Final = 300


class CredentialsRefused(ConfigError):
    """The engine does not believe who we say we are."""


def read_reply(status: int, crc32: str | None, body: bytes, where: str) -> Reply | ConfigError:
    """Read a reply. ``where`` says which table this was about, for errors."""
    if crc32 is not None and crc32 != str(zlib.crc32(body)):
        return Unknown("the reply's checksum does not match its body")
    try:
        read = json.loads(body) if body or status == 200 else {}
    except ValueError:
        read = None
    if not isinstance(read, dict):
        return Unknown(f"the reply can't be read: status {status}, {body[:60]!r}")
    if status == 200:
        return Answered(read)
    return _read_error(status, read, where)


def _read_error(status: int, body: Body, where: str) -> Reply | ConfigError:
    code = str(body.get("__type", "")).rpartition("#")[2].partition(":")[0]
    message = str(body.get("message") or body.get("Message") or "")[:MAX_WHY_CHARS]
    why = f"{code or 'no error code'}, status {status}: {message}" if message else f"{code or 'error'}, status {status}"
    if code == f"{CONDITION}Exception":
        return ConditionFailed(body.get("Item"))
    if code == "TransactionCanceledException":
        return _cancelled(body.get("CancellationReasons") or (), why, where)
    if code in THROTTLED or code in CONFLICTED:
        return Unreached(why)
    if status >= 500 or not code or code == "TransactionInProgressException":
        return Unknown(why)
    return _incurable(code, why, where)


def _cancelled(reasons: Any, why: str, where: str) -> Reply | ConfigError:
    """A transaction of which nothing was applied. A condition that failed is the answer, whatever else stood by."""
    codes = {str(reason.get("Code")) for reason in reasons}
    if CONDITION in codes:
        return ConditionFailed(reasons=tuple((str(each.get("Code")), each.get("Item")) for each in reasons))
    if codes & THROTTLED or codes & CONFLICTED or codes <= {"None"}:
        return Unreached(why)
    texts = "; ".join(f"{each.get('Code')}: {each.get('Message')}" for each in reasons if each.get("Code") != "None")
    return ConfigError(f"{where}: the engine can't do what was asked ({texts[:MAX_WHY_CHARS]})")


def _incurable(code: str, why: str, where: str) -> ConfigError:
    if code in MISSING:
        return ConfigError(f"{where}: there is no such table; make it with `sluice dynamodb create-table` ({why})")
    if code in FORBIDDEN:
        return ConfigError(f"{where}: permission is missing; `sluice dynamodb policy` prints what is needed ({why})")
    if code == "ExpiredTokenException":
        return CredentialsRefused(f"{where}: the AWS credentials have expired; sign in again, or use a role ({why})")
    if code in UNPROVEN:
        return CredentialsRefused(
            f"{where}: the AWS credentials are refused; try `aws sts get-caller-identity` ({why})"
        )
    return ConfigError(f"{where}: the engine can't read what was asked ({why})")
