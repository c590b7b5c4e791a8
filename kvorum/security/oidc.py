"""Users of an issuer of OpenID Connect: whose a signed token (JWT, RFC 7519) is, by keys that the
operator has named.

    signature    RS256 or ES256, by a key of the configured set, found by `kid`
    iss, aud     exactly the configured issuer; the configured audience is among the audiences
    exp, nbf     by this node's clock, within LEEWAY_S; exp must be there
    the claim    `oidc_claim` is the user's name; "email" counts only with email_verified

Nothing is fetched from where a token says. The set is read again for a kid that it does not have,
at most once in AGAIN_S, and every REFRESH_S; while it cannot be read the last one counts. Only what
joserfc has verified is remembered, until it expires. Logins to the console (oidc_login.py) end in
an ID token, which is verified in the same way, for that client and that login.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, RSAKey

from kv.base.errors import Unauthenticated, Unavailable
from kvorum.security import bounded_http
from kvorum.security.discovery import Discovery
from procedures.engine.plain_data import Plain

log = logging.getLogger(__name__)

ALGORITHMS: Final = ("RS256", "ES256")
LEEWAY_S: Final = 60
AGAIN_S: Final = 10
REFRESH_S: Final = 3_600
TOKEN_BYTES_MAX: Final = 8 * 1024
KEYS_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 100
_REMEMBERED: Final = 1_000
_WRONG: Final = "who you are could not be verified: the issuer's token is wrong or has expired"

InThread = Callable[[Callable[[], None]], Awaitable[None]]
Fetch = Callable[[], bytes]
"""The JSON of the key set; blocks, raises OSError or ValueError."""


class Issuer:
    """One issuer, as one audience."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        claim: str,
        fetch: Fetch,
        *,
        now_s: Callable[[], float],
        in_thread: InThread,
    ) -> None:
        self._issuer, self._audience, self._claim = issuer, audience, claim
        self._fetch, self._now_s, self._in_thread = fetch, now_s, in_thread
        self._keys: dict[str | None, RSAKey | ECKey] = {}
        self._fetched_s = self._tried_s = float("-inf")
        self._fetching = asyncio.Lock()
        self._verified: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    async def subject(self, token: str) -> str:
        """The user whose token it is. Raises Unauthenticated, Unavailable (no keys yet)."""
        if len(token) > TOKEN_BYTES_MAX:
            raise Unauthenticated(_WRONG)
        digest, now = hashlib.sha256(token.encode()).digest(), self._now_s()
        user, ends = self._verified.get(digest, ("", 0.0))
        if now < ends:
            return user
        try:
            claims = await self._claims(token, self._audience)
            user = self._user(claims)
        except ValueError as error:
            raise Unauthenticated(_WRONG) from error
        if len(self._verified) >= _REMEMBERED:
            self._verified.popitem(last=False)
        self._verified[digest] = (user, float(claims["exp"]))
        return user

    def lasts(self, token: str) -> bool:
        """Whether one that was verified has not expired since."""
        ends = _part(token, 1).get("exp")
        return isinstance(ends, int | float) and self._now_s() < ends + LEEWAY_S

    async def of_login(self, token: str, client: str, nonce: str) -> str:
        """The user whose ID token it is, issued to that client for the login of that nonce. Raises
        Unauthenticated, Unavailable (no keys yet).
        """
        try:
            if len(token) > TOKEN_BYTES_MAX:
                raise ValueError(f"it is longer than {TOKEN_BYTES_MAX} bytes")
            claims = await self._claims(token, client)
            said = claims.get("nonce")
            if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
                raise ValueError("it is of another login")
            if claims.get("azp", client) != client:
                raise ValueError("it is for another client")
            return self._user(claims)
        except ValueError as error:
            log.warning("an ID token of %s is refused: %s", self._issuer, error)
            raise Unauthenticated(f"the issuer's ID token is refused: {error}") from error

    async def _claims(self, token: str, audience: str) -> Plain:
        """Of a token for that audience, verified. Raises ValueError, Unavailable."""
        key = await self._key(_kid(token))
        if key is None:
            raise ValueError("the issuer has no such key")
        try:
            claims = jwt.decode(token, key, algorithms=ALGORITHMS).claims
            self._check(claims, audience)
        except (JoseError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError("it is none that the issuer has signed") from error
        return claims

    def _check(self, claims: dict[str, object], audience: str) -> None:
        """Raises ValueError."""
        now = self._now_s()
        if claims.get("iss") != self._issuer:
            raise ValueError("it is of another issuer")
        audiences = claims.get("aud")
        if audience not in (audiences if isinstance(audiences, list) else [audiences]):
            raise ValueError("it is for another audience")
        expires, begins = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(expires, int | float) or not isinstance(begins, int | float):
            raise ValueError("it does not say when it ends")
        if not math.isfinite(expires):  # JSON's 1e999: it would never end
            raise ValueError("it has no end")
        if now >= expires + LEEWAY_S or now < begins - LEEWAY_S:
            raise ValueError("it has expired, or the clocks differ")

    def _user(self, claims: dict[str, object]) -> str:
        """Raises ValueError."""
        user = claims.get(self._claim)
        if not isinstance(user, str) or not user:
            raise ValueError(f"it has no claim {self._claim}")
        if self._claim == "email" and claims.get("email_verified") is not True:
            raise ValueError("the issuer has not verified the address")
        return user

    # -- keys

    async def _key(self, kid: str | None) -> RSAKey | ECKey | None:
        found = self._find(kid)
        fresh = self._now_s() - self._fetched_s <= REFRESH_S
        if found is not None and (fresh or self._fetching.locked()):
            return found  # whoever sends other ids of keys makes nobody else wait
        async with self._fetching:
            now = self._now_s()
            wanted = self._find(kid) is None or now - self._fetched_s > REFRESH_S
            if wanted and now - self._tried_s >= AGAIN_S:
                self._tried_s = now
                await self._read()
        if not self._keys:
            raise Unavailable("the issuer's keys cannot be read now: ask again in a moment")
        return self._find(kid)

    def _find(self, kid: str | None) -> RSAKey | ECKey | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return None if kid is None else self._keys.get(kid)

    async def _read(self) -> None:
        found: list[bytes] = []
        failed: list[Exception] = []

        def fetch() -> None:
            try:
                found.append(self._fetch())
            except (OSError, ValueError) as error:
                failed.append(error)

        await self._in_thread(fetch)
        try:
            if failed:
                raise failed[0]
            keys = _keys(found[0])
        except (OSError, ValueError) as error:
            log.warning("the keys of %s cannot be read: %s", self._issuer, error)
            return
        self._keys, self._fetched_s = keys, self._now_s()
        self._verified.clear()  # a key that is gone signs for nobody any more


def _part(token: str, number: int) -> Plain:
    """What its header (0) or its claims (1) say, verified or not. Raises ValueError."""
    text = token.split(".", 2)[number]
    try:
        said = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except RecursionError as error:
        raise ValueError("it is no JSON that can be read") from error
    return said if isinstance(said, dict) else {}


def _kid(token: str) -> str | None:
    """Which key the token names; it only chooses among those that are configured. Raises
    ValueError.
    """
    kid = _part(token, 0).get("kid")
    return kid if isinstance(kid, str) else None


def _keys(text: bytes) -> dict[str | None, RSAKey | ECKey]:
    """Keys for signatures by id; what cannot be used is passed over (RFC 7517, 5). Raises
    ValueError.
    """
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    rows = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list) or len(rows) > KEYS_MAX:
        raise ValueError(f"no JSON Web Key Set of at most {KEYS_MAX} keys")
    usable = [row for row in rows if isinstance(row, dict) and row.get("kty") in ("RSA", "EC")]
    usable = [row for row in usable if row.get("use", "sig") == "sig"]
    keys: dict[str | None, RSAKey | ECKey] = {}
    for row in usable:
        # joserfc tells an unknown curve by a KeyError.
        with contextlib.suppress(JoseError, ValueError, TypeError, KeyError):
            for key in KeySet.import_key_set({"keys": [row]}).keys:
                if isinstance(key, RSAKey | ECKey):
                    keys[key.kid] = key
    if not keys:
        raise ValueError("it has no key for RS256 or ES256")
    return keys


def fetching(place: str, discovery: Discovery) -> Fetch:
    """From a file, or from a URL that the operator has named, or the issuer itself."""

    def read_file() -> bytes:
        with Path(place).open("rb") as file:
            return file.read(KEYS_BYTES_MAX)

    def read_url() -> bytes:
        return bounded_http.read(place or discovery.provider().keys)

    return read_file if place and "://" not in place else read_url
