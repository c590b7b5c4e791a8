"""Logging in to the console by an issuer of OpenID Connect: the authorization code flow with PKCE
(RFC 6749, 7636, 9207; OpenID Connect Core 3.1).

    browser                          node                             issuer
    GET …/console/oidc/begin ──────▶ a cookie
            ◀── 303 to the issuer ── state, nonce, challenge
    … the user logs in there … ───────────────────────────────────▶
            ◀──────────────────────────────── 303 to …/console/oidc ── code, state
    GET …/console/oidc ────────────▶ cookie and state fit?
                                     code, verifier ───────────────▶
                                     its signature, nonce, … ◀───── an ID token
            ◀── 303 to …/console ─── a visit's cookie

Nothing is kept for who begins: state, nonce and verifier are made of the cookie by a key of this
process, so nobody fills a table, and another browser's answer does not fit. A login ends after
LOGIN_S, and counts once. Where people are sent is said by settings and by the issuer's description.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from kv.base.credentials import from_file
from kv.base.errors import InvalidArgument, Unauthenticated, Unavailable
from kv.base.ports import Rng
from kvorum.security.bounded_http import ask
from kvorum.security.discovery import Discovery, Provider

log = logging.getLogger(__name__)

LOGIN_S: Final = 10 * 60
PATIENCE_S: Final = 30.0  # of one call of the issuer, threads and all
CODE_CHARS_MAX: Final = 4_096
USED_MAX: Final = 10_000
_SAID_CHARS_MAX: Final = 300
_RANDOM_BYTES: Final = 32
BEGIN: Final = "/begin"  # below the address that the issuer sends people back to

InThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs what may block for long; raises what it raises."""


T = TypeVar("T")


class Verifier(Protocol):
    """kvorum.security.oidc.Issuer."""

    async def of_login(self, token: str, client: str, nonce: str, /) -> str:
        """Raises Unauthenticated, Unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Client:
    """What this cluster is to the issuer."""

    issuer: str
    id: str
    secret_file: str  # "" = none: a public client
    scopes: Sequence[str]
    redirect: str  # the address of …/console/oidc, as browsers and the issuer know it


class Proved(NamedTuple):
    """Who it is to the issuer."""

    name: str
    goodbye: str  # where signing out ends the issuer's own session, "" = nowhere


class Logins:
    """Of one process."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        verifier: Verifier,
        *,
        rng: Rng,
        monotonic: Callable[[], float],
        in_thread: InThread,
    ) -> None:
        self._client, self._discovery, self._verifier = client, discovery, verifier
        self._rng, self._monotonic, self._in_thread = rng, monotonic, in_thread
        self._key = rng.token(_RANDOM_BYTES)
        self._used: OrderedDict[str, None] = OrderedDict()
        self.issuer = client.issuer
        self.begins_at = client.redirect + BEGIN
        self.secure = client.redirect.startswith("https:")

    async def begin(self) -> tuple[str, str]:
        """The cookie, and where the browser goes. Raises Unavailable."""
        provider = await self._provider()
        cookie = f"{int(self._monotonic()):x}.{self._rng.token(_RANDOM_BYTES).hex()}"
        challenge = _base64(hashlib.sha256(self._made("verifier", cookie).encode()).digest())
        asked = {
            "response_type": "code",
            "client_id": self._client.id,
            "redirect_uri": self._client.redirect,
            "scope": " ".join(self._client.scopes),
            "state": self._made("state", cookie),
            "nonce": self._made("nonce", cookie),
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(provider.authorization).query else "?"
        return cookie, f"{provider.authorization}{joint}{urlencode(asked)}"

    def admit(self, cookie: str, said: Mapping[str, str]) -> str:
        """The code of the issuer's answer to this browser's login, which counts now and never
        again. Raises Unauthenticated.
        """
        if not self._fits(cookie, said.get("state", "")):
            raise Unauthenticated(
                "this is no answer to a login that this browser has begun in the last "
                f"{LOGIN_S // 60} minutes: log in again"
            )
        if cookie in self._used:
            raise Unauthenticated("this login was answered before: log in again")
        self._used[cookie] = None
        if len(self._used) > USED_MAX:
            self._used.popitem(last=False)
        if said.get("iss", self.issuer) != self.issuer:
            raise Unauthenticated("the answer is from another issuer: log in again")
        if error := said.get("error"):
            about = said.get("error_description", "")
            raise Unauthenticated(_shown(f"the issuer says {error}{': ' if about else ''}{about}"))
        code = said.get("code", "")
        if not code or len(code) > CODE_CHARS_MAX:
            raise Unauthenticated("the issuer's answer has no code: log in again")
        return code

    async def prove(self, cookie: str, code: str, iss: str | None) -> Proved:
        """Who has logged in, by an admitted code. Raises Unauthenticated, Unavailable."""
        provider = await self._provider()
        if provider.says_iss and iss is None:
            raise Unauthenticated("the answer does not say from which issuer it is: log in again")
        token = await self._exchanged(provider, code, self._made("verifier", cookie))
        nonce = self._made("nonce", cookie)
        name = await self._verifier.of_login(token, self._client.id, nonce)
        if not provider.end_session:
            return Proved(name, "")
        joint = "&" if urlsplit(provider.end_session).query else "?"
        hint = urlencode({"id_token_hint": token, "client_id": self._client.id})
        return Proved(name, f"{provider.end_session}{joint}{hint}")

    # -- the browser's part

    def _made(self, what: str, cookie: str) -> str:
        return hmac.digest(self._key, f"{what}:{cookie}".encode(), "sha256").hex()

    def _fits(self, cookie: str, state: str) -> bool:
        """Whether this process has made both of them together, not long ago."""
        if not hmac.compare_digest(self._made("state", cookie).encode(), state.encode()):
            return False
        return self._monotonic() - int(cookie.partition(".")[0], 16) <= LOGIN_S

    # -- the issuer's part

    async def _provider(self) -> Provider:
        found = self._discovery.known()
        return found if found is not None else await self._asked(self._discovery.provider)

    async def _exchanged(self, provider: Provider, code: str, verifier: str) -> str:
        """The ID token for a code."""
        client = self._client
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": client.redirect,
            "code_verifier": verifier,
        }
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
        }

        def exchange() -> tuple[int, Any]:
            secret = client.secret_file and from_file(client.secret_file, "oidc_client_secret_file")
            if secret and not provider.posts_secret:  # RFC 6749 2.3.1
                pair = f"{quote(client.id, safe='')}:{quote(secret, safe='')}".encode()
                headers["authorization"] = "Basic " + base64.b64encode(pair).decode()
            else:
                form["client_id"] = client.id
                if secret:
                    form["client_secret"] = secret
            answer = ask(provider.token, urlencode(form).encode(), headers)
            return answer.status, _object(answer.body)

        status, fields = await self._asked(exchange)
        if status != 200:
            error, about = (
                fields.get("error", "no error"),
                fields.get("error_description", ""),
            )
            log.warning("the issuer refuses a code: %s %s", status, _shown(f"{error} {about}"))
            raise Unauthenticated(_shown(f"the issuer refuses the login: {error} ({status})"))
        token = fields.get("id_token")
        if not isinstance(token, str):
            raise Unauthenticated(
                "the issuer has sent no ID token: an administrator has to see that oidc_scopes has "
                "openid"
            )
        return token

    async def _asked(self, call: Callable[[], T]) -> T:
        found: list[T] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._in_thread(lambda: found.append(call()))
        except (OSError, ValueError, InvalidArgument) as error:
            said = str(error) or "it is too slow"
            log.warning("the issuer %s cannot be asked: %s", self.issuer, said)
            why = "the node's log says why" if isinstance(error, InvalidArgument) else said
            raise Unavailable(
                f"the issuer of your login cannot be asked now ({why}): log in again in a moment, "
                "or with a token or a password"
            ) from error
        return found[0]


def _object(body: bytes) -> dict[str, object]:
    """Of an answer, whatever its status. Raises ValueError."""
    try:
        fields = json.loads(body)
    except RecursionError as error:
        raise ValueError("its answer is no JSON that can be read") from error
    except ValueError:
        fields = {}
    return fields if isinstance(fields, dict) else {}


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _shown(said: str) -> str:
    """What a server says, for people: cut, and without what is no text."""
    return "".join(c if c.isprintable() else " " for c in said[:_SAID_CHARS_MAX])
