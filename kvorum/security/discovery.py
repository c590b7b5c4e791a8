"""What an issuer says of itself (OpenID Connect Discovery 1.0): where logins begin, where codes are
exchanged, where its keys are.

Its word counts for its own hosts alone, and those that the operator has added: whoever could change
what it says would else have nodes ask any server, and send people and their codes anywhere.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kvorum.security.bounded_http import read

REFRESH_S: Final = 3_600
AGAIN_S: Final = 10
_URL_CHARS_MAX: Final = 2_000
_WHERE: Final = "/.well-known/openid-configuration"


class Provider(NamedTuple):
    """Addresses of the issuer."""

    authorization: str
    token: str
    keys: str
    end_session: str = ""  # none: it has no logout
    says_iss: bool = False  # RFC 9207: its answers name it
    posts_secret: bool = False  # it takes the client's secret in the form alone


class Discovery:
    """Of one issuer; `provider` blocks."""

    def __init__(self, issuer: str, hosts: Iterable[str], now_s: Callable[[], float]) -> None:
        self._issuer, self._now_s = issuer, now_s
        self._hosts = frozenset({urlsplit(issuer).hostname or "", *hosts})
        self._known: tuple[Provider | None, float] = (None, float("-inf"))
        self._tried_s = float("-inf")
        self._why = ""
        self._asking = threading.Lock()

    def known(self) -> Provider | None:
        """What is known and new enough: nobody has to be asked."""
        found, at_s = self._known
        return found if self._now_s() - at_s <= REFRESH_S else None

    def provider(self) -> Provider:
        """Read again every REFRESH_S; while it cannot be, the last one counts. Raises OSError,
        ValueError.
        """
        with self._asking:
            now = self._now_s()
            if self.known() is not None or now - self._tried_s < AGAIN_S:
                return self._last()
            self._tried_s = now
            try:
                text = read(self._issuer.rstrip("/") + _WHERE)
                self._known = (provider_of(text, self._issuer, self._hosts), now)
            except (OSError, ValueError) as error:
                self._why = str(error)
            return self._last()

    def _last(self) -> Provider:
        found, _ = self._known
        if found is None:
            raise OSError(self._why)
        return found


def provider_of(text: bytes, issuer: str, hosts: frozenset[str]) -> Provider:
    """Raises ValueError."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("its description is no JSON that can be read") from error
    if not isinstance(document, dict):
        raise ValueError("its description is no JSON object")
    if document.get("issuer") != issuer:
        raise ValueError(f"its description is of the issuer {str(document.get('issuer'))[:200]!r}")

    def address(name: str) -> str:
        return _address(name, document.get(name), issuer, hosts)

    ways = document.get("token_endpoint_auth_methods_supported")
    return Provider(
        address("authorization_endpoint"),
        address("token_endpoint"),
        address("jwks_uri"),
        address("end_session_endpoint") if document.get("end_session_endpoint") else "",
        document.get("authorization_response_iss_parameter_supported") is True,
        isinstance(ways, list) and "client_secret_basic" not in ways,
    )


def _address(name: str, url: object, issuer: str, hosts: frozenset[str]) -> str:
    if not isinstance(url, str) or len(url) > _URL_CHARS_MAX or not url.isascii():
        raise ValueError(f"its description has no {name}")
    parts = urlsplit(url)
    secure = parts.scheme == "https" or (parts.scheme == "http" and issuer.startswith("http://"))
    plain = "@" not in parts.netloc and not parts.fragment and url.isprintable() and " " not in url
    if not secure or not plain or parts.hostname not in hosts:
        raise ValueError(
            f"its {name} is at {parts.scheme}://{parts.netloc}: only https at its own host counts; "
            "oidc_hosts names more"
        )
    return url
