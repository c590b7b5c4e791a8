"""API tokens: named, expiring, limited, revocable. Their texts, and their rows.

    kvt_<id>_<secret>            16 and 43 letters of base64url: 96 and 256 bits of chance

    TOKENS    esc(id)            sealed [1, id, name, user, SHA-256 of the secret, created (ms),
                                 expires (ms) | 0, limits | nil]; a limit is as of GRANTS

The secret has so much chance that a slow hash would add nothing, and who reads the rows cannot log
in. A token is shown once, when it is made. Functions of a transaction `t`, as those of
`sqlproxy.catalog.catalog`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from kv.base import system
from kv.base.errors import AlreadyExists, InvalidArgument, NotFound, TooLarge
from kv.base.keys import escape, table_prefix
from kv.base.limits import TOKENS_MAX
from kv.base.ports import Rng
from kv.base.rights import Grant, Identity
from kv.base.wire_row import WireRow
from sqlproxy.catalog import grants
from sqlproxy.catalog.catalog import Reader, Writer, scan_all
from sqlproxy.rows import records

_ID_BYTES: Final = 12
_SECRET_BYTES: Final = 32
_FORM: Final = re.compile(r"kvt_([A-Za-z0-9_-]{16})_([A-Za-z0-9_-]{43})")
_NAME: Final = re.compile(r"[\w.@:/ -]{1,128}")


@dataclass(frozen=True, slots=True)
class Token:
    """What is stored of one. `expires_ms` 0: never. `limits` None: all that its user may."""

    id: str
    name: str
    user: str
    digest: bytes
    created_ms: int
    expires_ms: int = 0
    limits: tuple[Grant, ...] | None = None

    def identity(self, secret: str, now_ms: int) -> Identity | None:
        """Whose it is, if that is its secret and it has not expired."""
        if not hmac.compare_digest(_digest(secret), self.digest):
            return None
        if self.expires_ms and now_ms >= self.expires_ms:
            return None
        return Identity(
            self.user,
            f"token {self.name}",
            self.limits,
            token=self.id,
            expires_ms=self.expires_ms,
        )


def make(
    rng: Rng,
    name: str,
    user: str,
    now_ms: int,
    *,
    ttl_ms: int = 0,
    limits: tuple[Grant, ...] | None = None,
) -> tuple[Token, str]:
    """A new one, and its text, which nobody can get again. Raises InvalidArgument."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            "a token's name has 1 to 128 letters, digits, blanks and . _ - @ : /",
            details={"setting": "name", "limit": 128, "actual": len(name)},
        )
    if ttl_ms < 0:
        raise InvalidArgument("a token's time to live is not negative", details={"actual": ttl_ms})
    id_, secret = _text(rng.token(_ID_BYTES)), _text(rng.token(_SECRET_BYTES))
    expires_ms = now_ms + ttl_ms if ttl_ms else 0
    token = Token(id_, name, user, _digest(secret), now_ms, expires_ms, limits)
    return token, f"kvt_{id_}_{secret}"


def parse(text: str) -> tuple[str, str] | None:
    """Id and secret; None: not a token of ours."""
    found = _FORM.fullmatch(text)
    return (found[1], found[2]) if found else None


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


# -- rows


def token_key(id_: str) -> bytes:
    return table_prefix(system.TOKENS) + escape(id_.encode())


async def find(t: Reader, id_: str) -> Token | None:
    """Also one that has expired."""
    key = token_key(id_)
    value, _ = await t.get(key)
    return None if value is None else _token(key, value)


async def all_tokens(t: Reader) -> list[Token]:
    """By user, then by name."""
    rows = await scan_all(t, table_prefix(system.TOKENS))
    return sorted((_token(*row) for row in rows), key=lambda one: (one.user, one.name))


async def add(t: Writer, token: Token) -> None:
    """Raises AlreadyExists, TooLarge."""
    others = await all_tokens(t)
    if any((one.user, one.name) == (token.user, token.name) for one in others):
        raise AlreadyExists(
            f"{token.user!r} has a token {token.name!r} already: delete it or choose another name"
        )
    if len(others) >= TOKENS_MAX:
        raise TooLarge(
            f"there are {TOKENS_MAX} tokens already: delete some",
            details={"what": "tokens", "limit": TOKENS_MAX, "actual": len(others)},
        )
    key = token_key(token.id)
    limits = None if token.limits is None else [grants.to_row(one) for one in token.limits]
    row = [records.FORMAT, token.id, token.name, token.user, token.digest]
    row += [token.created_ms, token.expires_ms, limits]
    t.put(key, records.sealed(key, row))


async def revoke(t: Writer, user: str, name: str) -> Token:
    """Raises NotFound."""
    for one in await all_tokens(t):
        if (one.user, one.name) == (user, name):
            t.delete(token_key(one.id))
            return one
    raise NotFound(f"{user!r} has no token {name!r}")


async def revoke_all(t: Writer, user: str) -> bool:
    """Of a user who is dropped; whether there were any."""
    gone = [one for one in await all_tokens(t) if one.user == user]
    for one in gone:
        t.delete(token_key(one.id))
    return bool(gone)


def _token(key: bytes, value: bytes) -> Token:
    row: WireRow = records.opened(key, value)
    _, id_, name, user, digest, created_ms, expires_ms, limits = row[:8]
    kept = None if limits is None else tuple(grants.from_row(one) for one in limits)
    return Token(id_, name, user, digest, created_ms, expires_ms, kept)
