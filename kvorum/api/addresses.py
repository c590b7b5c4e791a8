"""URLs of a cluster, as users give them: which surface, and at which addresses."""

from __future__ import annotations

from urllib.parse import urlsplit

from kv.base.config import HTTP_OFFSET, PORT_DEFAULT
from kv.base.errors import InvalidArgument

Address = tuple[str, int]


def parse_url(url: str) -> tuple[str, list[Address]]:
    """Scheme and addresses. A bare HOST:PORT[,…] is native. Raises InvalidArgument."""
    scheme, sep, rest = url.partition("://")
    if not sep:
        scheme, rest = "kvorum", url
    rest = rest.rstrip("/")
    default = {"kvorum": PORT_DEFAULT, "http": PORT_DEFAULT + HTTP_OFFSET}.get(scheme)
    if default is None or not rest or "/" in rest:
        raise InvalidArgument(
            f"{url!r} is no address: use kvorum://HOST:PORT[,HOST:PORT…] or http://HOST:PORT"
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
