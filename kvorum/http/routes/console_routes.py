"""Logging in to the console: what its page asks first (kvorum/http/wire/console_sessions.py)."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from pydantic import Field

from kv.base.errors import InvalidArgument, KvorumError, Unauthenticated
from kv.base.rights import CLUSTER, Action, Identity, Kind, Resource, may
from kvorum.audit.audited_backend import is_asked_by
from kvorum.http.routes.declaring import Asked, Body, Here, Nothing, Routes, Services, TextOrNone
from kvorum.http.routes.rights import OPEN, OPERATE_CLUSTER, READ_CLUSTER, SELF, Right
from kvorum.http.wire.codec import Reply, encode
from kvorum.http.wire.console_sessions import cookie
from kvorum.http.wire.request import Request
from kvorum.security.oidc_login import Logins
from procedures.engine.plain_data import Plain
from sqlproxy.catalog.guard import NOT_INITIALIZED

ROUTES: Final = Routes("cluster")
_PAGES: Final = {
    "cluster": READ_CLUSTER,
    "overview": READ_CLUSTER,
    "data": SELF,
    "procedures": SELF,
    "schedules": READ_CLUSTER,
    "queues": READ_CLUSTER,
    "workers": READ_CLUSTER,
    "sinks": SELF,
    "locks": OPERATE_CLUSTER,
    "nodes": SELF,
    "partitions": SELF,
}
"""What pages of the console ask for, by the rights of the routes that they ask."""
_OPERATE: Final = Right(Action.OPERATE, Kind.PROCEDURE_TYPE)
_SUBMIT: Final = Right(Action.SUBMIT, Kind.PROCEDURE_TYPE)


class Login(Body):
    token: TextOrNone = Field(None, description="An API token …")
    user: TextOrNone = Field(None, description="… or a user …")
    password: TextOrNone = Field(None, description="… and its password.")


@ROUTES.on("GET", "/console/session", OPEN, shown=False)
async def session(asked: Asked, here: Here, of: str = "") -> object:
    """Who is logged in, and what he may do to that type of procedure"""
    try:
        return _session(await here.guard.by_loopback(asked.address), here, "", of)
    except Unauthenticated as error:
        if error.code == NOT_INITIALIZED:
            return {"user": None, "why": error.message}
    nobody = {"user": None, **_issuer(here.logins)}
    visit = here.visits.find(asked)
    if visit is None:
        return nobody
    try:
        return _session(await here.visits.who(visit, asked), here, visit.csrf, of)
    except KvorumError as error:
        return {**nobody, "why": error.message}


@ROUTES.on("POST", "/console/login", OPEN, shown=False)
async def login(asked: Asked, here: Here, body: Login) -> Reply:
    """Log in"""
    if body.token is not None:
        secret = await here.visits.by_token(body.token, asked.address)
    elif body.user is not None and body.password is not None:
        is_asked_by(body.user, "none")  # so far: a log of failures says as whom
        secret = await here.visits.by_password(body.user, body.password, asked.address)
        is_asked_by(body.user, "password")
    else:
        raise InvalidArgument("log in with a token, or with user and password")
    here.visits.end(asked)  # the one before, if there was one
    return _with_cookie(asked, secret)


@ROUTES.on("POST", "/console/logout", OPEN, shown=False)
async def logout(asked: Asked, here: Here, body: Nothing) -> Reply:
    """Sign out"""
    visitor = await here.visits.identity(asked)  # another site does not sign people out
    if visitor is not None:
        is_asked_by(visitor.name, visitor.credential)
    visit = here.visits.find(asked)
    here.visits.end(asked)
    return _with_cookie(asked, "", {"goodbye": visit.goodbye} if visit and visit.goodbye else {})


def _issuer(logins: Logins | None) -> dict[str, object]:
    """Where else one can log in."""
    if logins is None:
        return {}
    return {"issuer": {"name": urlsplit(logins.issuer).hostname, "begin": logins.begins_at}}


def _session(identity: Identity, here: Services, csrf: str, of: str) -> Plain:
    """What the page shows, and what it offers: pages whose requests the identity may send, and
    whether it may do something to a procedure `of` that type.
    """
    book = here.guard.book
    assert book is not None

    def allowed(right: Right, name: str = "*") -> bool:
        assert right.action is not None
        resource = CLUSTER if right.kind is Kind.CLUSTER else Resource(right.kind, name)
        return may(identity, frozenset({right.action}), resource, book) is None

    return {
        "user": identity.name,
        "credential": identity.credential,
        "pages": [page for page, right in _PAGES.items() if allowed(right)],
        "operates": allowed(_OPERATE, of or "*"),
        "submits": allowed(_SUBMIT, of or "*"),
        "csrf": csrf,
        "notice": here.notice,
    }


def _with_cookie(asked: Request, secret: str, answer: dict[str, str] | None = None) -> Reply:
    headers = (cookie(asked, secret), (b"cache-control", b"no-store"))
    return Reply(200, encode(answer or {}, packed=False), headers=headers)
