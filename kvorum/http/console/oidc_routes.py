"""Logging in to the console by the issuer of the node's settings (kvorum/security/oidc_login.py).

Both are pages that a browser goes to, so that what goes wrong is told as a page. The issuer's
answer comes from another site: the cookie that binds it to this browser is Lax, lives for the login
alone and opens nothing. The visit's cookie, which is Strict, is not sent with the redirect to the
console either; the console needs none to be shown, and asks with it by itself.
"""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from kv.base.errors import InvalidArgument, KvorumError, NotFound
from kvorum.audit.audited_backend import is_asked_by, is_refused
from kvorum.http.routes.declaring import Asked, Here, Routes
from kvorum.http.routes.rights import OPEN
from kvorum.http.wire.codec import Reply
from kvorum.http.wire.console_sessions import cookie, sent
from kvorum.security.oidc_login import LOGIN_S, Logins

ROUTES: Final = Routes("cluster")
LOGIN_COOKIE: Final = "kvorum_login"
_HTML: Final = b"text/html; charset=utf-8"
_FIELDS_MAX: Final = 20
_KNOWN: Final = ("code", "state", "iss", "error", "error_description")
_POLICY: Final = b"default-src 'none'; style-src 'self'; img-src data:; frame-ancestors 'none'"
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),  # the address has a code
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", _POLICY + b"; base-uri 'none'; form-action 'none'"),
)


@ROUTES.on("GET", "/console/oidc/begin", OPEN, shown=False)
async def begin(here: Here) -> Reply:
    """Go to the issuer"""
    try:
        logins = _logins(here.logins)
        kept, url = await logins.begin()
    except KvorumError as error:
        return _refused(error, "../../console", "../console.css")
    return _moved(url, _login_cookie(logins, kept, LOGIN_S))


@ROUTES.on("GET", "/console/oidc", OPEN, shown=False)
async def answered(asked: Asked, here: Here) -> Reply:
    """Come back from the issuer"""
    goodbye = ""
    try:
        logins = _logins(here.logins)
        said = _said(asked.query_string)
        kept = sent(asked, LOGIN_COOKIE)
        code = logins.admit(kept, said)

        async def prove() -> str:
            nonlocal goodbye
            name, goodbye = await logins.prove(kept, code, said.get("iss"))
            is_asked_by(name, f"oidc {logins.issuer}")  # nobody here, perhaps
            return name

        identity = await here.guard.by_issuer(prove, asked.address)
        secret = here.visits.by_issuer(identity, logins.issuer, goodbye)
    except KvorumError as error:
        return _refused(error, "../console", "console.css")
    return _moved("../console", cookie(asked, secret), _login_cookie(logins, "", 0))


def _logins(logins: Logins | None) -> Logins:
    if logins is None:
        raise NotFound("this node has no issuer of logins: oidc_client_id is not set")
    return logins


def _said(query: bytes) -> dict[str, str]:
    """The fields of the issuer's answer. Raises InvalidArgument."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise InvalidArgument("this is no answer of an issuer: log in again") from error
    found = {name: value for name, value in pairs if name in _KNOWN}
    if len(found) < sum(name in _KNOWN for name, _ in pairs):  # RFC 6749 3.1
        raise InvalidArgument("the issuer's answer says something twice: log in again")
    return found


def _login_cookie(logins: Logins, kept: str, age_s: int) -> tuple[bytes, bytes]:
    secure = "; Secure" if logins.secure else ""
    text = f"{LOGIN_COOKIE}={kept}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", text.encode()


def _moved(url: str, *cookies: tuple[bytes, bytes]) -> Reply:
    return Reply(303, b"", _HTML, (*_HEADERS, (b"location", url.encode()), *cookies))


def _refused(error: KvorumError, console: str, style: str) -> Reply:
    is_refused(error)
    text = _page().format(why=html.escape(error.message), console=console, style=style)
    return Reply(error.status, text.encode(), _HTML, _HEADERS)


@cache
def _page() -> str:
    return (Path(__file__).parent / "refused.html").read_text("utf-8")
