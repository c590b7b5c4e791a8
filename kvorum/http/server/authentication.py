"""Who asks over HTTP, and whether he may.

    Authorization: Bearer TOKEN       an API token, or one of the configured OIDC issuer
    Authorization: Basic …            a user and a password (RFC 7617)
    Cookie: kvorum_session=…          a visit of the console (console_sessions.py)
    a client's certificate            its common name, which TLS has verified
    nothing                           the owner, while nobody can log in; else nobody

Before the first user whatever a request claims is passed over. What a route needs, it declares
(kvorum/http/routes/rights.py). Rights are decided on names, before anything is looked up: whoever
may not see a table gets the same answer whether there is one or not.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

from kv.base.accounts import USER, Account
from kv.base.errors import Busy, Forbidden, InvalidArgument, KvorumError, Unauthenticated
from kv.base.fair_turns import BYTES_PER_US, HTTP_US
from kv.base.limits import TENANT_WAITING_MAX
from kv.base.rights import CLUSTER, LOOPBACK, Action, Book, Identity, Kind, Resource, table
from kvorum.api.backend import Backend
from kvorum.api.submissions import is_own, needed, restated, scheduled, signalled
from kvorum.audit.audited_backend import is_asked_by
from kvorum.http.routes.rights import SELF, Right
from kvorum.http.server.connection_turns import turn_of
from kvorum.http.wire.console_sessions import Visits
from kvorum.http.wire.request import May, Request, Scope
from procedures.pools.inbox import owner_of
from sqlproxy.catalog.guard import Guard

_ALL: Final = "*"
_REMEMBERED: Final = 10_000  # answers as of one book
_TOKEN_BYTES_MAX: Final = 200  # of a header that is remembered: spaces make many of one
_LOOKED_UP: Final = ("{id}", "<token>", "{schedule}", "<paused>", "{paused}")
"""What only a look says."""
_CHANGED: Final = Right(Action.SUBMIT, Kind.PROCEDURE_TYPE, "{schedule}")
Certificate = Callable[[Scope], str]
Need = tuple[frozenset[Action], Resource]
ENDED: Final = (
    "what you logged in with does not count any more: it was revoked or has expired, or this "
    "cluster has users by now. Log in again"
)


def certificate_of(scope: Scope) -> str:
    """What http_server.py has put there."""
    return str(scope.get("extensions", {}).get("kvorum", {}).get("certificate", ""))


class Permit:
    """What somebody may, asked once for as long as the book is the same."""

    __slots__ = ("_door", "identity")

    def __init__(self, door: Door, identity: Identity) -> None:
        self._door, self.identity = door, identity

    def __call__(self, actions: frozenset[Action], resource: Resource) -> None:
        if not self._door.has_allowed(self, actions, resource):
            self._door.allow(self, actions, resource, resource)

    def on_table(self, actions: frozenset[Action], ns: str, name: str) -> None:
        if not self._door.has_allowed(self, actions, (ns, name)):
            self._door.allow(self, actions, (ns, name), table(ns, name))


class Door:
    """Of one HTTP server."""

    def __init__(
        self,
        guard: Guard,
        backend: Backend,
        visits: Visits,
        certificate: Certificate = certificate_of,
    ) -> None:
        """`certificate`: the common name that TLS has verified, "" if there is none."""
        self._guard, self._backend, self._certificate = guard, backend, certificate
        self._visits = visits
        # As of that book: the permit of each identity, and of each header with a token that was
        # found right; and what was allowed.
        self._as_of: Book | None = None
        self._permits: dict[Identity | bytes, Permit] = {}
        self._allowed: set[tuple[Permit, frozenset[Action], Resource | tuple[str, str]]] = set()
        self._under_way: set[Request] = set()
        self._strangers = Account(USER, "", lambda: 0, shown=False)
        self.trusting = guard.trusting
        self.tenants = guard.tenants

    async def enter(self, request: Request) -> None:
        """Who asks is known to the request from now on, and it counts as his; `leave` follows.
        Raises Unauthenticated, Busy, Unavailable.
        """
        permit = None
        if self._guard.book is self._as_of is not None:
            permit = self._permits.get(_said(request))
        if permit is None or not self._guard.stands(permit.identity):
            try:
                await self._look(request)
            except (Busy, Unauthenticated):
                await self.pass_stranger()
                raise
        else:
            request.identity, request.may = permit.identity, permit
            who = permit.identity
            is_asked_by(who.name, who.credential)
        use = self._guard.use(request.identity)
        use.begin()
        request.use, request.tenants = use, self.tenants
        if request.identity.credential == "password":
            request.mark = self._guard.mark(request.identity.name)
        self._under_way.add(request)
        (account,) = use.accounts
        turns, turn = self.tenants.turns, turn_of(request.scope)
        if turn is not None and turn.asked(account, _said(request), turns):
            return
        account.worked_us += HTTP_US
        if account.worked_us > account.free_us and turns.over(account):
            await turns.turn(account, TENANT_WAITING_MAX)

    async def pass_stranger(self) -> None:
        """At the turn of a request of nobody's. All of them together have the share of one user,
        and are never refused for it: whoever asks whether this node lives is one of them. A few
        have no turns, nor does anybody for them.
        """
        account, turns = self._strangers, self.tenants.turns
        account.worked_us += HTTP_US
        if account.worked_us <= account.free_us or turns.seldom(account):
            return
        if turns.over(account):
            await turns.turn(account)

    async def _look(self, request: Request) -> None:
        """Raises Unauthenticated, Busy, Unavailable."""
        if self.trusting(request.address):
            return
        request.identity = who = await self._identity(request)
        is_asked_by(who.name, who.credential)
        if who is not LOOPBACK:
            # Failed guesses make nobody wait who has a token. A password is looked at each time.
            said = _said(request) if who.token else b""
            request.may = self._permit(who, said if 0 < len(said) <= _TOKEN_BYTES_MAX else who)

    def leave(self, request: Request) -> None:
        """It has ended, whatever came of it."""
        self._under_way.discard(request)
        use, request.use = request.use, None
        if use is not None:
            use.accounts[0].worked_us += request.bytes // BYTES_PER_US
            use.spend(rows=request.rows, size=request.bytes)
            use.end()

    def check_still(self, request: Request) -> None:
        """Of one that lasts: a credential may have ended, a right been taken away, or the first
        user come. Raises Unauthenticated, Forbidden, Unavailable.
        """
        if not self.standing(request)():
            raise Unauthenticated(ENDED)
        request.check_right()

    def standing(self, request: Request) -> Callable[[], bool]:
        """Asks whether its credential counts still; for what outlives the request."""
        who = request.identity
        said = _said(request) if who.credential == "oidc" else b""
        return partial(self._stands, who, request.mark, said)

    def _stands(self, who: Identity, mark: str | None, said: bytes) -> bool:
        """`mark`: of the password, `said`: the header of an issuer's token; as they were shown."""
        guard = self._guard
        stands = guard.stands(who)
        if who.credential == "password":
            return stands and guard.mark(who.name) == mark
        if who.credential == "oidc":
            return stands and guard.lasts(said.partition(b" ")[2].strip().decode("latin-1"))
        return stands

    def review(self) -> None:
        """Whoever may not go on is told so. What changes something has the time of another look to
        answer: it may have brought that about, as who gives back the token that he comes with.
        """
        with ExitStack() as reviews:  # one that breaks keeps no other from its end
            for request in self._under_way:
                reviews.callback(self._review, request)

    def _review(self, request: Request) -> None:
        try:
            self.check_still(request)
        except (Forbidden, Unauthenticated) as error:
            if request.changes and not request.doubted:
                request.doubted = True
            elif request.lost is None:
                request.lose(error)
        except KvorumError:
            pass  # nothing can be said now

    def _follow_book(self) -> None:
        """What is remembered is as of this one."""
        if self._guard.book is not self._as_of:
            self._permits.clear()
            self._allowed.clear()
            self._as_of = self._guard.book

    def _permit(self, who: Identity, said: Identity | bytes) -> Permit:
        self._follow_book()
        permit = self._permits.get(said)
        if permit is None:
            if len(self._permits) >= _REMEMBERED:
                self._permits.clear()
            permit = self._permits[said] = Permit(self, who)
        return permit

    def has_allowed(
        self, permit: Permit, actions: frozenset[Action], what: Resource | tuple[str, str]
    ) -> bool:
        """Whether that was allowed as of this book. A table is its namespace and its name."""
        return self._guard.book is self._as_of and (permit, actions, what) in self._allowed

    def allow(
        self,
        permit: Permit,
        actions: frozenset[Action],
        what: Resource | tuple[str, str],
        resource: Resource,
    ) -> None:
        """As Guard.allow; it is remembered."""
        self._follow_book()
        self._guard.allow(permit.identity, actions, resource)
        if len(self._allowed) >= _REMEMBERED:
            self._allowed.clear()
        self._allowed.add((permit, actions, what))

    async def _identity(self, request: Request) -> Identity:
        guard, address = self._guard, request.address
        for name, value in request.headers:
            if name == b"authorization":
                scheme, _, said = value.decode("latin-1").partition(" ")
                match scheme.lower():
                    case "bearer":
                        return await guard.by_token(said.strip(), address)
                    case "basic":
                        user, password = user_of(said.strip())
                        is_asked_by(user, "none")  # so far: a log of failures says as whom
                        return await guard.by_password(user, password, address)
                    case _:
                        raise Unauthenticated(
                            "Authorization is Bearer TOKEN or Basic USER:PASSWORD"
                        )
        if (visitor := await self._visits.identity(request)) is not None:
            return visitor
        if shown := self._certificate(request.scope):
            return await guard.by_certificate(shown, address)
        return await guard.by_loopback(address)

    async def check(
        self, request: Request, right: Right, path: Mapping[str, str], body: object
    ) -> None:
        """Whether who asks has the right of a route. Raises Forbidden, Unauthenticated."""
        request.changes = request.changes and right.action is not Action.READ
        if request.may is None or right.action is None:
            return
        if right is SELF:
            request.may(frozenset(), CLUSTER)
            return
        if right.name in ("<procedure>", "{schedule}") and right.action is Action.SUBMIT:
            await self._check_schedule(request, right, path, body)
            return
        actions, resource = frozenset({right.action}), await self._resource(right, path, body)
        needs: list[Need] = [(actions, resource)]
        if right.action is Action.SUBMIT and is_own(resource.name):
            args = body if right.name == "{name}" else None  # else: of one that runs already
            needs = [*needed(resource.name, args)]
            book = self._guard.book
            if right.name == "{id}" and isinstance(body, dict):
                needs += signalled(body, {} if book is None else book.tables)
        if right.action is Action.OPERATE and right.name == "{id}" and restated(body):
            needs.append((frozenset({Action.SUBMIT}), resource))
        ask = partial(_ask, request.may, needs, right)
        ask()
        request.still = None if request.changes else ask

    async def _check_schedule(
        self, request: Request, right: Right, path: Mapping[str, str], body: object
    ) -> None:
        """That of who sets, changes, runs or removes one. Raises Forbidden, Unauthenticated."""
        assert request.may is not None, "it was asked"
        named = path.get("schedule")
        if named is None:
            args = body.get("args") if isinstance(body, dict) else None
            for actions, resource in scheduled(_field(body, "procedure"), args):
                request.may(actions, resource)
            named = _field(body, "name")
        there = await self._schedule(named)
        if not there and "schedule" not in path:
            return
        try:  # it is changed: taken from whoever has set it
            for actions, resource in scheduled(there.get("procedure"), there.get("args")):
                request.may(actions, resource)
        except Forbidden as error:
            raise _unseen(error, _CHANGED) from None

    async def _resource(self, right: Right, path: Mapping[str, str], body: object) -> Resource:
        """What a request is about. Of an id that there is not: as if it were of no known name."""
        if right.kind is Kind.CLUSTER:
            return CLUSTER
        if right.kind is Kind.TABLE:
            return table(path["ns"], path["table"])
        if not right.name:
            return Resource(right.kind, _ALL)
        if right.name == "{id}":
            return await self._of_procedure(right.kind, path["id"])
        if right.name == "<token>":
            return await self._of_token(right.kind, _field(body, "token"))
        if right.name == "{schedule}":
            return await self._of_schedule(right.kind, path["schedule"])
        if right.name == "<paused>":
            return await self._of_paused(right.kind, _field(body, "kind"), _field(body, "name"))
        if right.name == "{paused}":
            return await self._of_paused(right.kind, path["kind"], path["paused"])
        part = right.name[1:-1]
        named = path[part] if right.name[0] == "{" else _field(body, part)
        return Resource(right.kind, named)

    async def _of_procedure(self, kind: Kind, id: str) -> Resource:
        """By the type of a procedure, or by what it locks."""
        try:
            info = await self._backend.procedure(int(id), 0)
        except (KvorumError, ValueError):
            return Resource(kind)
        if kind is Kind.PROCEDURE_TYPE:
            return Resource(kind, info.name)
        named = [lock.get("resource", "") for lock in info.locks if isinstance(lock, dict)]
        return Resource(kind, named[0] if len(named) == 1 else "")

    async def _of_token(self, kind: Kind, token: str) -> Resource:
        try:
            return await self._of_procedure(kind, str(owner_of(token)))
        except InvalidArgument:
            return Resource(kind)

    async def _of_schedule(self, kind: Kind, name: str) -> Resource:
        return Resource(kind, str((await self._schedule(name)).get("procedure", "")))

    async def _schedule(self, name: str) -> Mapping[str, object]:
        """As it is known; empty: there is no such one."""
        for one in await self._backend.control("schedule.list", {"name": name}):
            if one.get("name") == name:
                return dict(one)
        return {}

    async def _of_paused(self, kind: Kind, what: str, name: str) -> Resource:
        match what:
            case "procedure":
                return await self._of_procedure(kind, name)
            case "schedule":
                return await self._of_schedule(kind, name)
            case "type":
                return Resource(kind, name)
            case "pool":
                return Resource(Kind.POOL, name)
            case _:
                return CLUSTER


def _ask(may: May, needs: list[Need], right: Right) -> None:
    """Raises Forbidden, Unauthenticated, Unavailable."""
    try:
        for actions, resource in needs:
            may(actions, resource)
    except Forbidden as error:
        if right.name not in _LOOKED_UP:
            raise
        raise _unseen(error, right) from None


def _unseen(error: Forbidden, right: Right) -> Forbidden:
    """Without the name of what was looked up, nor what that needs: it may be nothing."""
    action = Action.SUBMIT if error.details["missing"] == [Action.SUBMIT] else right.action
    return Forbidden(
        f"{error.details['user']!r} may not {action} the {right.kind} of that: an admin can grant "
        "it",
        details={
            **error.details,
            "missing": [action],
            "resource": f"the {right.kind} of {right.name[1:-1]}",
        },
    )


def owned(request: Request, owner: str, what: str) -> None:
    """Raises Forbidden if that is somebody else's."""
    if request.may is not None and request.identity.name != owner:
        raise Forbidden(
            f"{what} is not one that {request.identity.name!r} began",
            details={"user": request.identity.name, "missing": [], "resource": what},
        )


def _said(request: Request) -> bytes:
    """The header that says who it is, empty if there is none."""
    for name, value in request.headers:
        if name == b"authorization":
            return value
    return b""


def _field(body: object, name: str) -> str:
    value: object = body.get(name) if isinstance(body, dict) else None
    return value if isinstance(value, str) else ""


def user_of(encoded: str) -> tuple[str, str]:
    """Name and password of `Basic`. Raises Unauthenticated."""
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        user, colon, password = "", "", ""
    if not colon:
        raise Unauthenticated("Authorization: Basic takes base64 of USER:PASSWORD")
    return user, password
