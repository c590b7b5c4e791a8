"""URLs of a cluster, as users give them: which surface, at which addresses, and with whose TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kv.base.config import HTTP_OFFSET, PORT_DEFAULT
from kv.base.errors import InvalidArgument
from kv.base.tls import Tls, tls_of

Address = tuple[str, int]
_PLAIN: Final = {"kvorums": "kvorum", "https": "http"}


def tls_for(
    url: str,
    tls_dir: str | Path | None = None,
    ca: str | Path | None = None,
    user: str = "",
) -> Tls | None:
    """How to speak with what is behind a URL: in the clear unless its scheme is kvorums or https,
    or somebody has said where certificates are. Raises InvalidArgument.
    """
    told = tls_of(tls_dir, ca, user)
    return told or (Tls(None) if url.partition("://")[0] in _PLAIN else None)


def parse_url(url: str) -> tuple[str, list[Address]]:
    """Scheme, kvorum or http, and addresses. A bare HOST:PORT[,…] is native. `tls_for` says whether
    with TLS. Raises InvalidArgument.
    """
    scheme, sep, rest = url.partition("://")
    if not sep:
        scheme, rest = "kvorum", url
    scheme = _PLAIN.get(scheme, scheme)
    rest = rest.rstrip("/")
    default = {"kvorum": PORT_DEFAULT, "http": PORT_DEFAULT + HTTP_OFFSET}.get(scheme)
    if default is None or not rest or "/" in rest:
        raise InvalidArgument(
            f"{url!r} is no address: use kvorum://HOST:PORT[,HOST:PORT…] or http://HOST:PORT, "
            "with TLS kvorums:// or https://"
        )
    addresses = [_address(part, default) for part in rest.split(",")]
    if scheme == "http" and len(addresses) != 1:
        raise InvalidArgument(f"{url!r}: an http:// address names one node")
    return scheme, addresses


def _address(text: str, default_port: int) -> Address:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise InvalidArgument(f"{text!r} is no HOST:PORT")
    return host, default_port if port is None else port
