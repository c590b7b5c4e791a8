"""Logging in to the console: what its page asks first (kvorum/http/wire/console_sessions.py)."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from kv.base.errors import InvalidArgument, KvorumError, Unauthenticated
from kv.base.rights import Identity
from kvorum.http.routes.declaring import Asked, Body, Here, Nothing, Routes, Services, TextOrNone
from kvorum.http.routes.rights import OPEN
from kvorum.http.wire.codec import Reply, encode
from kvorum.http.wire.console_sessions import cookie
from kvorum.http.wire.request import Request
from sqlproxy.catalog.guard import NOT_INITIALIZED

ROUTES: Final = Routes("cluster")


class Login(Body):
    token: TextOrNone = Field(None, description="An API token …")
    user: TextOrNone = Field(None, description="… or a user …")
    password: TextOrNone = Field(None, description="… and its password.")


@ROUTES.on("GET", "/console/session", OPEN, shown=False)
async def session(asked: Asked, here: Here) -> object:
    """Who is logged in"""
    try:
        return _session(await here.guard.by_loopback(asked.address), here, "")
    except Unauthenticated as error:
        if error.code == NOT_INITIALIZED:
            return {"user": None, "why": error.message}
    visit = here.visits.find(asked)
    if visit is None:
        return {"user": None}
    try:
        return _session(await here.visits.who(visit, asked), here, visit.csrf)
    except KvorumError as error:
        return {"user": None, "why": error.message}


@ROUTES.on("POST", "/console/login", OPEN, shown=False)
async def login(asked: Asked, here: Here, body: Login) -> Reply:
    """Log in"""
    if body.token is not None:
        secret = await here.visits.by_token(body.token, asked.address)
    elif body.user is not None and body.password is not None:
        secret = await here.visits.by_password(body.user, body.password, asked.address)
    else:
        raise InvalidArgument("log in with a token, or with user and password")
    here.visits.end(asked)  # the one before, if there was one
    return _with_cookie(asked, secret)


@ROUTES.on("POST", "/console/logout", OPEN, shown=False)
async def logout(asked: Asked, here: Here, body: Nothing) -> Reply:
    """Sign out"""
    await here.visits.identity(asked)  # another site does not sign people out
    here.visits.end(asked)
    return _with_cookie(asked, "")


def _session(identity: Identity, here: Services, csrf: str) -> dict[str, Any]:
    """What the page shows, and what it offers: actions that the identity has anywhere."""
    book = here.guard.book
    assert book is not None
    actions = sorted(book.anywhere(identity))
    return {
        "user": identity.name,
        "credential": identity.credential,
        "actions": actions,
        "csrf": csrf,
        "notice": here.notice,
    }


def _with_cookie(asked: Request, secret: str) -> Reply:
    headers = (cookie(asked, secret), (b"cache-control", b"no-store"))
    return Reply(200, encode({}, packed=False), headers=headers)
