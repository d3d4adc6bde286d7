"""Who we are to AWS and where the table is: all of it as botocore resolves it, so what works with boto3 works here.

Regions, endpoints, profiles, proxies and certificate bundles are read once, when the first call is sent. Credentials
are asked of botocore again every second at most, and botocore refreshes those that expire, 15 minutes before they do.
Resolving and refreshing read files, start programs and speak to other services: they block. `Account.at_hand` never
does; an event loop asks it first, and leaves `Account.keys` to a thread.
"""

import logging
import time
from typing import Any, Final
from urllib.parse import urlsplit

from sluice.core.bounds import NS_PER_SECOND
from sluice.core.errors import ConfigError
from sluice.core.requests import Unreached
from sluice.wires.dynamodb.options import Options
from sluice.wires.dynamodb.signing import Keys

REUSED_NS: Final = NS_PER_SECOND
"""For how long credentials are used without asking botocore whether they must be refreshed."""

logger = logging.getLogger("sluice")


INSTALL: Final = "pip install 'sluice-quota[dynamodb]'"


class NotResolved(Exception):
    """Credentials could not be had just now. Nothing was sent."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.failure = Unreached(why)


class Account:
    """A region, an endpoint and credentials."""

    def __init__(self, options: Options) -> None:
        """Resolve it all. Raises `ConfigError` for what is wrong, `NotResolved` for what may pass."""
        try:  # here, so that only who uses DynamoDB pays for it
            from botocore import exceptions, httpsession, session, utils  # noqa: PLC0415
        except ImportError as error:
            raise missing_extra("botocore") from error
        self._errors: Any = exceptions
        try:
            found = session.Session(profile=options.profile)
            # Making a client does no I/O but for the credentials; it is what knows every rule about endpoints.
            client = found.create_client("dynamodb", region_name=options.region, endpoint_url=options.endpoint)
            self._credentials: Any = found.get_credentials()
            self.ca_bundle: str = found.get_config_variable("ca_bundle") or httpsession.get_cert_path(True)
        except Exception as error:  # botocore raises what its plugins raise
            raise self._explained(error) from error
        if self._credentials is None:
            raise ConfigError(
                "no AWS credentials were found in the environment, in ~/.aws or as a role of this machine; set "
                "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (anything will do for a local engine)"
            )
        self.client = client
        self.region: str = client.meta.region_name
        self.endpoint: str = client.meta.endpoint_url
        parts = urlsplit(self.endpoint)
        self.proxy: str | None = utils.get_environ_proxies(self.endpoint).get(parts.scheme)
        self._known: tuple[int, Keys] | None = None

    def at_hand(self) -> tuple[Keys | None, bool]:
        """Credentials that can be used without blocking, if there are any, and whether to ask for newer ones."""
        known = self._known
        if known is None:
            return None, True
        asked_ns, keys = known
        if time.monotonic_ns() - asked_ns < REUSED_NS:
            return keys, False
        refresh_needed = getattr(self._credentials, "refresh_needed", None)
        if refresh_needed is None or not refresh_needed():
            return self._freeze(), False
        return (None if refresh_needed(0) else keys), True

    def keys(self) -> Keys:
        """Credentials, refreshed if need be. May block."""
        keys, stale = self.at_hand()
        if keys is not None and not stale:
            return keys
        return self._freeze()

    def forget(self) -> None:
        """Ask botocore at the next call: the engine has refused these."""
        self._known = None

    def _freeze(self) -> Keys:
        try:
            frozen = self._credentials.get_frozen_credentials()
        except Exception as error:  # whatever a credential provider raises
            raise self._explained(error) from error
        keys = Keys(frozen.access_key, frozen.secret_key, frozen.token or None)
        self._known = (time.monotonic_ns(), keys)
        return keys

    def _explained(self, error: Exception) -> Exception:
        """An error of botocore's as one of ours: what may pass by itself, and what won't."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, self._errors.NoRegionError):
            return ConfigError("no AWS region is set; add ?region=... to the store URL, or set AWS_DEFAULT_REGION")
        if isinstance(error, self._errors.ClientError):
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = error.response.get("Error", {}).get("Code", "")
            if status >= 500 or "Throttl" in code:
                return NotResolved(f"AWS credentials could not be fetched ({text})")
        elif self._may_pass(error):
            return NotResolved(f"AWS credentials could not be fetched ({text})")
        return ConfigError(f"AWS access is not set up as it should be ({text}); try `aws sts get-caller-identity`")

    def _may_pass(self, error: Exception) -> bool:
        if isinstance(error, self._errors.CredentialRetrievalError):
            provider: str = error.kwargs.get("provider", "")
            return provider == "container-role"  # a service beside the container hands them out
        passing: tuple[type[Exception], ...] = (
            self._errors.HTTPClientError,
            self._errors.ConnectionError,
            self._errors.MetadataRetrievalError,
        )
        return isinstance(error, passing)


def missing_extra(package: str) -> ConfigError:
    return ConfigError(f"a dynamodb:// store needs {package}, which is not installed: {INSTALL}")
