"""The node method ACCESS: what administrators do with users, tokens and grants.

    what             arguments                                       → result
    init                                                             {"user", "token"}
    user.list                                                        [user, …]
    user.create      name, password?, login?, superuser?, groups?    {"name"}
    user.password    name, password | nil: none from now on          {"name"}
    user.delete      name                                            {"name"}
    role.grant       user, role                                      {"user", "role"}
    role.revoke      user, role                                      {"user", "role"}
    token.list       user?                                           [token, …]
    token.create     user, name, ttl_ms?, limits?: [grant, …]        {"user", "name", "token", …}
    token.revoke     user, name                                      {"user", "name"}
    grant.list       role?                                           [{"role", …grant}, …]
    grant.give       role, …grant                                    {"role", …grant}
    grant.take       role, …grant                                    {"role", …grant}

    a grant          actions, kind, name?, namespace?

Role "public" is everybody. A token's text is in one answer and nowhere else. Who may ask is decided
before: whoever may, may also give himself every other right.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from kv.base.errors import Forbidden, InvalidArgument
from kv.base.limits import TOKEN_TTL_MS_MAX
from kv.base.ports import Clock, Rng
from kv.base.rights import PUBLIC, Action, Grant, Kind, Resource
from kv.base.wire_row import WireRow
from kv.server.dispatcher import Context
from kvorum.api.credentials import UNTIL, under
from procedures.engine import plain_data
from procedures.engine.plain_data import Plain
from sqlproxy.catalog import grants, tokens, users
from sqlproxy.catalog.catalog import Reader, Writer
from sqlproxy.catalog.tokens import Token

T = TypeVar("T")
Args = Plain
_EVERYBODY: Final = "public"


class Transactions(Protocol):
    """txn.client.TxnClient."""

    async def run(self, fn: Callable[[object], Awaitable[T]]) -> T: ...


class Access:
    """Of one node. `changed` is called after each change: it counts here at once."""

    def __init__(
        self, txn: Transactions, rng: Rng, clock: Clock, changed: Callable[[], Awaitable[None]]
    ) -> None:
        self._txn, self._rng, self._clock, self._changed = txn, rng, clock, changed
        self._actions: dict[str, Callable[[Any, Args], Awaitable[Any]]] = {
            "init": self._init,
            "user.list": self._users,
            "user.create": self._create,
            "user.password": self._password,
            "user.delete": self._delete,
            "role.grant": self._join,
            "role.revoke": self._leave,
            "token.list": self._tokens,
            "token.create": self._create_token,
            "token.revoke": self._revoke,
            "grant.list": self._grants,
            "grant.give": self._give,
            "grant.take": self._take,
        }

    async def handle(self, context: Context, args: WireRow) -> list[object]:
        """The node method ACCESS."""
        what, packed = args
        given = plain_data.read(packed, "arguments")
        if context.rights is not None and isinstance(given, dict):
            given = under(context.rights.identity, what, given)
        return [plain_data.pack(await self.do(what, given))]

    async def do(self, what: str, args: Args) -> Any:
        """Raises InvalidArgument, NotFound, AlreadyExists, Refused, TooLarge."""
        action = self._actions.get(what)
        if action is None:
            raise InvalidArgument(
                f"unknown action {what!r:.40}; there are {', '.join(self._actions)}"
            )
        found = await self._txn.run(lambda t: action(t, args))
        if not what.endswith(".list"):
            await self._changed()
        return found

    async def _init(self, t: Writer, _args: Args) -> object:
        role, text = await users.first_admin(t, self._rng, self._clock.now_ms())
        return {"user": role.name, "token": text}

    # -- users and groups

    async def _users(self, t: Reader, _args: Args) -> object:
        return [
            {
                "name": one.name,
                "login": one.login,
                "superuser": one.superuser,
                "has_password": one.has_password,
                "member_of": list(one.member_of),
            }
            for one in await users.everybody(t)
        ]

    async def _create(self, t: Writer, args: Args) -> object:
        name = _text(args, "name")
        await users.create(
            t,
            self._rng,
            name,
            password=_maybe(args, "password"),
            login=args.get("login") is not False,
            superuser=args.get("superuser") is True,
            groups=_texts(args, "groups"),
        )
        return {"name": name}

    async def _password(self, t: Writer, args: Args) -> object:
        name = _text(args, "name")
        await users.change_password(t, self._rng, name, _maybe(args, "password"))
        return {"name": name}

    async def _delete(self, t: Writer, args: Args) -> object:
        await users.delete(t, _text(args, "name"))
        return {"name": args["name"]}

    async def _join(self, t: Writer, args: Args) -> object:
        await users.join(t, _text(args, "user"), _text(args, "role"))
        return {"user": args["user"], "role": args["role"]}

    async def _leave(self, t: Writer, args: Args) -> object:
        await users.leave(t, _text(args, "user"), _text(args, "role"))
        return {"user": args["user"], "role": args["role"]}

    # -- tokens

    async def _tokens(self, t: Reader, args: Args) -> object:
        user = _maybe(args, "user")
        return [
            _shown(one) for one in await tokens.all_tokens(t) if user is None or one.user == user
        ]

    async def _create_token(self, t: Writer, args: Args) -> object:
        ttl_ms = args.get("ttl_ms") or 0
        if type(ttl_ms) is not int or not 0 <= ttl_ms <= TOKEN_TTL_MS_MAX:
            raise InvalidArgument(
                f"ttl_ms is 1 to {TOKEN_TTL_MS_MAX} ms, or 0 for one that never expires",
                details={"setting": "ttl_ms", "limit": TOKEN_TTL_MS_MAX},
            )
        now_ms = self._clock.now_ms()
        if (until_ms := args.get(UNTIL) or 0) and ttl_ms > until_ms - now_ms:
            raise Forbidden(
                f"a token made by one that expires ends no later: ttl_ms is {ttl_ms}, and at most "
                f"{max(0, until_ms - now_ms)} is left",
                details={"user": args.get("user"), "missing": [], "resource": "ttl_ms"},
            )
        limits = args.get("limits")
        if limits is not None and type(limits) is not list:
            raise InvalidArgument("limits is a list of grants", details={"setting": "limits"})
        token, text = await users.create_token(
            t,
            self._rng,
            _text(args, "name"),
            _text(args, "user"),
            now_ms,
            ttl_ms=ttl_ms or (until_ms and max(1, until_ms - now_ms)),
            limits=None if limits is None else tuple(granted(one) for one in limits),
        )
        return {**_shown(token), "token": text}

    async def _revoke(self, t: Writer, args: Args) -> object:
        await users.revoke_token(t, _text(args, "user"), _text(args, "name"))
        return {"user": args["user"], "name": args["name"]}

    # -- grants

    async def _grants(self, t: Reader, args: Args) -> object:
        role = _maybe(args, "role")
        found = await grants.all_grants(t)
        return [
            {"role": name or _EVERYBODY, **grants.shown(one)}
            for name, held in sorted(found.items())
            if role is None or role == (name or _EVERYBODY)
            for one in held
        ]

    async def _give(self, t: Writer, args: Args) -> object:
        one = granted(args)
        await users.give(t, _role(args), one)
        return {"role": args["role"], **grants.shown(one)}

    async def _take(self, t: Writer, args: Args) -> object:
        one = granted(args)
        await users.take(t, _role(args), one)
        return {"role": args["role"], **grants.shown(one)}


def granted(said: object) -> Grant:
    """A grant from plain data. Raises InvalidArgument."""
    if not isinstance(said, dict):
        raise InvalidArgument("a grant is a map of actions, kind, name and namespace")
    try:
        actions = frozenset(map(Action, _texts(said, "actions")))
        kind = Kind(_text(said, "kind"))
    except ValueError as error:
        raise InvalidArgument(
            f"{error}; actions are {', '.join(sorted(set(Action) - {Action.NODE}))}; kinds are "
            + ", ".join(Kind),
            details={"setting": "actions"},
        ) from None
    name, namespace = _maybe(said, "name") or "", _maybe(said, "namespace") or ""
    return Grant(actions, Resource(kind, name, namespace))


def _shown(one: Token) -> dict[str, object]:
    return {
        "user": one.user,
        "name": one.name,
        "created_ms": one.created_ms,
        "expires_ms": one.expires_ms,
        "limits": None if one.limits is None else [grants.shown(limit) for limit in one.limits],
    }


def _role(args: Args) -> str:
    role = _text(args, "role")
    return PUBLIC if role == _EVERYBODY else role


def _text(args: Args, name: str) -> str:
    value = args.get(name)
    if type(value) is not str or not value:
        raise InvalidArgument(f"{name} is a text that is not empty", details={"setting": name})
    return value


def _maybe(args: Args, name: str) -> str | None:
    return None if args.get(name) is None else _text(args, name)


def _texts(args: Args, name: str) -> list[str]:
    value = args.get(name) or []
    if type(value) is not list or not all(type(one) is str for one in value):
        raise InvalidArgument(f"{name} is a list of texts", details={"setting": name})
    return value
