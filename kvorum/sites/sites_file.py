"""Where other clusters are: the nodes' setting `sites_file`, TOML, read whenever a link connects.

    [berlin]
    url = "kvorums://b1:7600,b2:7600"
    ca = "/etc/kvorum/berlin-ca.crt"            # or tls_dir; who signs the nodes there
    token_file = "/etc/kvorum/berlin.token"     # of a user there who may read the tables

A link names a site, never an address: whoever makes links need not choose what a node connects to.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kv.base.credentials import NONE, Credential, from_file
from kv.base.errors import InvalidArgument, NotFound
from kv.base.limits import DEADLINE_MS_DEFAULT
from kv.base.tls import Tls
from kvorum.api.addresses import Address, parse_url, tls_for
from kvorum.native.native import NativeBackend
from kvorum.native.remote import connect_backend

SETTING: Final = "sites_file"
_FIELDS: Final = frozenset({"url", "ca", "tls_dir", "token_file"})


class Place(NamedTuple):
    """How a site is reached."""

    addresses: Sequence[Address]
    tls: Tls | None
    credential: Credential


def site_of(file: str, site: str) -> Place:
    """Blocks. Raises NotFound (SITE_NOT_FOUND), InvalidArgument; no error shows a secret."""
    if not file:
        raise NotFound(
            f"site {site!r:.80}: this node knows no sites; name a file of them in its setting "
            f"{SETTING}",
            code="SITE_NOT_FOUND",
        )
    sites = _read(file)
    given = sites.get(site)
    if not isinstance(given, Mapping):
        raise NotFound(
            f"site {site!r:.80} is not in {file}; there is {', '.join(sorted(sites)) or 'none'}",
            code="SITE_NOT_FOUND",
        )
    if unknown := sorted(set(given) - _FIELDS):
        raise InvalidArgument(f"{file}: {site} has an unknown setting {unknown[0]!r:.60}")
    texts = {name: given.get(name, "") for name in _FIELDS}
    if wrong := next((name for name, text in texts.items() if not isinstance(text, str)), None):
        raise InvalidArgument(f"{file}: {wrong} of {site} must be text")
    scheme, addresses = parse_url(texts["url"])
    if scheme == "http":
        raise InvalidArgument(f"{file}: url of {site} must be kvorum://… or kvorums://…")
    credential = NONE
    if texts["token_file"]:
        credential = Credential(token=from_file(texts["token_file"], "token_file"))
    tls = tls_for(texts["url"], texts["tls_dir"] or None, texts["ca"] or None, "")
    return Place(addresses, tls, credential)


def _read(file: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"{file} cannot be read: {error}", details={"setting": SETTING}
        ) from error


async def connected(place: Place) -> NativeBackend:
    """A backend of that cluster. Raises Unavailable, Unauthenticated."""
    return await connect_backend(place.addresses, DEADLINE_MS_DEFAULT, place.tls, place.credential)
