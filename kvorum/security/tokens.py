"""API tokens: named, expiring, limited, revocable. Pure.

    kvt_<id>_<secret>            16 and 43 letters of base64url: 96 and 256 bits of chance

The store keeps the SHA-256 of the secret: it has so much chance that a slow hash would add nothing,
and who reads the rows cannot log in. A token is shown once, when it is made.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from kv.base.ports import Rng
from kv.base.rights import Grant, Identity

_ID_BYTES: Final = 12
_SECRET_BYTES: Final = 32
_FORM: Final = re.compile(r"kvt_([A-Za-z0-9_-]{16})_([A-Za-z0-9_-]{43})")


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
        return Identity(self.user, f"token {self.name}", self.limits)


def make(
    rng: Rng,
    name: str,
    user: str,
    now_ms: int,
    *,
    ttl_ms: int = 0,
    limits: tuple[Grant, ...] | None = None,
) -> tuple[Token, str]:
    """A new one, and its text, which nobody can get again."""
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
