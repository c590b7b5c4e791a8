"""Who is logged in to the console of this node: what a browser's cookie stands for.

A visit is begun with a token, with a password or by an issuer of logins (OIDC), lives in this
process alone, and ends at sign-out, after IDLE_S without a request or DAY_S in all, when its token
is revoked or expires, when its user's password changes, and when its user may not log in any more.
There are VISITS_MAX at once, and VISITS_OF_USER_MAX of one user, who else could sign out all.
The cookie holds nothing but chance; scripts cannot read it, other sites do not get it sent. A
request that changes something says the visit's CSRF token besides, which other sites cannot read.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kv.base.errors import Forbidden, Unauthenticated
from kv.base.ports import Rng
from kv.base.rights import Identity
from kvorum.audit.audited_backend import is_asked_by
from kvorum.http.wire.request import READING, Request
from sqlproxy.catalog.guard import Guard

COOKIE: Final = "kvorum_session"
CSRF_HEADER: Final = b"x-kvorum-csrf"
IDLE_S: Final = 30 * 60
DAY_S: Final = 12 * 3_600
VISITS_MAX: Final = 1_000  # the one that was silent for longest ends
VISITS_OF_USER_MAX: Final = 100
_SECRET_BYTES: Final = 32
Who = Callable[[], Awaitable[Identity]]


@dataclass(slots=True)
class Visit:
    """`who`: still the same, and raises Unauthenticated if not. `goodbye`: where signing out goes
    on, "" = nowhere.
    """

    user: str
    who: Who
    csrf: str
    began_s: float
    seen_s: float
    goodbye: str


class Visits:
    """Of one HTTP server."""

    def __init__(self, guard: Guard, rng: Rng, monotonic: Callable[[], float]) -> None:
        self._guard, self._rng, self._monotonic = guard, rng, monotonic
        self._open: OrderedDict[str, Visit] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    async def by_token(self, token: str, address: str) -> str:
        """The cookie's value. Raises Unauthenticated, Busy."""
        identity = await self._guard.by_token(token, address)
        return self._begin(identity, lambda: self._guard.by_token(token, address))

    async def by_password(self, user: str, password: str, address: str) -> str:
        """The cookie's value. Raises Unauthenticated, Busy."""
        identity = await self._guard.by_password(user, password, address)
        mark = self._guard.mark(user)

        async def who() -> Identity:
            if mark is None or self._guard.mark(user) != mark:
                raise Unauthenticated("the password has changed: log in again")
            return identity

        return self._begin(identity, who)

    def by_issuer(self, identity: Identity, issuer: str, goodbye: str) -> str:
        """The cookie's value of one whom the issuer has named."""

        async def who() -> Identity:
            if not self._guard.stands(identity):
                raise Unauthenticated("your user may not log in any more")
            return identity

        secret = self._begin(identity, who, goodbye)
        is_asked_by(identity.name, f"{identity.credential} {issuer}")
        return secret

    def _begin(self, identity: Identity, who: Who, goodbye: str = "") -> str:
        is_asked_by(identity.name, identity.credential)
        now = self._monotonic()
        secret, csrf = (self._rng.token(_SECRET_BYTES).hex() for _ in range(2))
        own = [key for key, visit in self._open.items() if visit.user == identity.name]
        if len(own) >= VISITS_OF_USER_MAX:
            del self._open[own[0]]
        self._open[secret] = Visit(identity.name, who, csrf, now, now, goodbye)
        if len(self._open) > VISITS_MAX:
            self._open.popitem(last=False)
        return secret

    def find(self, request: Request) -> Visit | None:
        """That of its cookie, if it has not ended."""
        secret = sent(request, COOKIE)
        visit = self._open.get(secret)
        if visit is None:
            return None
        now = self._monotonic()
        if now - visit.seen_s > IDLE_S or now - visit.began_s > DAY_S:
            del self._open[secret]
            return None
        visit.seen_s = now
        self._open.move_to_end(secret)
        return visit

    async def identity(self, request: Request) -> Identity | None:
        """Whose visit it is; None: the request has no cookie of an open one. Raises Forbidden
        (CSRF), Unauthenticated.
        """
        visit = self.find(request)
        if visit is None:
            return None
        if request.method not in READING:
            said = next((value for name, value in request.headers if name == CSRF_HEADER), b"")
            if not hmac.compare_digest(said, visit.csrf.encode()):
                raise Forbidden(
                    "a request with the console's cookie says X-Kvorum-Csrf, too, as "
                    "/console/session has it",
                    code="CSRF",
                )
        return await self.who(visit, request)

    async def who(self, visit: Visit, request: Request) -> Identity:
        """Whose it is; one that is over is asked for once. Raises Unauthenticated."""
        try:
            return await visit.who()
        except Unauthenticated:
            self.end(request)
            raise

    def end(self, request: Request) -> None:
        self._open.pop(sent(request, COOKIE), None)


def sent(request: Request, wanted: str) -> str:
    """A cookie's value, "" if there is none."""
    for name, value in request.headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, said = part.strip().partition("=")
                if key == wanted:
                    return said
    return ""


def cookie(request: Request, secret: str) -> tuple[bytes, bytes]:
    """The header that gives it to the browser; "" takes it away."""
    age = DAY_S if secret else 0
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    text = f"{COOKIE}={secret}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode()
