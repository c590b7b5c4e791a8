"""Users, groups, tokens and grants: what changes them, whoever asks (HTTP, the command, SQL). Each
function is a body of a transaction `t`; who may call it is decided before. All of them are users of
SQL, too: `sqlproxy.catalog.roles` has their rows.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kv.base.errors import AlreadyExists, InvalidArgument, NotFound, Refused
from kv.base.ports import Rng
from kv.base.rights import CLUSTER, PUBLIC, Action, Grant, Kind
from kv.base.tls import NODE_NAME
from sqlproxy.catalog import grants, roles, tokens
from sqlproxy.catalog.catalog import Reader, Writer
from sqlproxy.catalog.roles import Role
from sqlproxy.catalog.scram import PASSWORD_CHARS_MAX, SALT_BYTES, make_verifier
from sqlproxy.catalog.tokens import Token
from sqlproxy.values.errors import SqlError

ADMIN: Final = "admin"  # whom `kvorum init` makes
PASSWORD_CHARS_MIN: Final = 8
_NAME: Final = re.compile(r"[A-Za-z_][\w.@-]{0,62}")
_RESERVED: Final = frozenset({NODE_NAME, "public", "none", ""})


@dataclass(frozen=True, slots=True)
class User:
    """As it is shown: without its verifier."""

    name: str
    login: bool
    superuser: bool
    has_password: bool
    member_of: tuple[str, ...]


async def first_admin(t: Writer, rng: Rng, now_ms: int) -> tuple[Role, str]:
    """The first user of a cluster, and the text of its token. Raises Refused."""
    if await roles.closed(t, await roles.all_roles(t)):
        raise Refused(
            "this cluster has users already: an admin makes others with `kvorum user create`",
            code="INITIALIZED",
        )
    role = await roles.find(t, ADMIN) or Role(ADMIN)
    role = replace(role, login=True, superuser=True)
    await roles.put(t, role)
    token, text = tokens.make(rng, "init", ADMIN, now_ms)
    await tokens.add(t, token)
    return role, text


async def create(
    t: Writer,
    rng: Rng,
    name: str,
    *,
    password: str | None = None,
    login: bool = True,
    superuser: bool = False,
    groups: Iterable[str] = (),
) -> None:
    """Raises InvalidArgument, AlreadyExists, NotFound (a group)."""
    if not _NAME.fullmatch(name) or name in _RESERVED or name.startswith("pg_"):
        raise InvalidArgument(
            f"{name!r} cannot be the name of a user: a letter, then at most 62 letters, digits and "
            f". _ - @; not {', '.join(sorted(_RESERVED - {''}))}, and not pg_…",
            details={"setting": "name"},
        )
    if await roles.find(t, name) is not None:
        raise AlreadyExists(f"there is a user {name!r} already")
    made = Role(name, login=login, superuser=superuser)
    if password is not None:
        made = replace(made, verifier=verifier(rng, password))
    with _plain_errors():
        await roles.create(t, made)
        await roles.join(t, [name], groups)


async def change_password(t: Writer, rng: Rng, name: str, password: str | None) -> None:
    """None: it has none from now on. Raises InvalidArgument, NotFound."""
    role = await _known(t, name)
    new = None if password is None else verifier(rng, password)
    with _plain_errors():
        await roles.put(t, replace(role, verifier=new))


async def delete(t: Writer, name: str) -> None:
    """With its tokens and grants. Raises NotFound, Refused: it owns something."""
    await _known(t, name)
    with _plain_errors():
        await roles.remove(t, name)


async def everybody(t: Reader) -> list[User]:
    """By name, the owner first."""
    return [
        User(one.name, one.login, one.superuser, one.verifier is not None, one.member_of)
        for one in await roles.all_roles(t)
    ]


async def join(t: Writer, name: str, group: str) -> None:
    """Raises NotFound, Refused: a circle."""
    with _plain_errors():
        await roles.join(t, [name], [group])


async def leave(t: Writer, name: str, group: str) -> None:
    """Raises NotFound."""
    with _plain_errors():
        await roles.leave(t, [name], [group])


async def create_token(
    t: Writer,
    rng: Rng,
    name: str,
    user: str,
    now_ms: int,
    *,
    ttl_ms: int = 0,
    limits: tuple[Grant, ...] | None = None,
) -> tuple[Token, str]:
    """Raises InvalidArgument, NotFound, AlreadyExists."""
    role = await _known(t, user)
    if not (role.superuser and role.login):
        with _plain_errors():
            await roles.check_closing(t)
    token, text = tokens.make(rng, name, user, now_ms, ttl_ms=ttl_ms, limits=limits)
    await tokens.add(t, token)
    await roles.touch(t)
    return token, text


async def revoke_token(t: Writer, user: str, name: str) -> None:
    """Raises NotFound."""
    await tokens.revoke(t, user, name)
    with _plain_errors():
        await roles.check_still_closed(t)
    await roles.touch(t)


async def give(t: Writer, role: str, granted: Grant) -> None:
    """Raises InvalidArgument, NotFound, TooLarge. Of tables: SQL's lists have them, too, and both
    count.
    """
    _check(granted)
    if role != PUBLIC:
        await _known(t, role)
    await grants.give(t, role, granted)
    await roles.touch(t)


async def take(t: Writer, role: str, granted: Grant) -> None:
    """Raises InvalidArgument, NotFound."""
    _check(granted)
    if role != PUBLIC:
        await _known(t, role)
    await grants.take(t, role, granted)
    await roles.touch(t)


def verifier(rng: Rng, password: str) -> str:
    """What is stored of a password. Raises InvalidArgument; its text never shows the password."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        raise InvalidArgument(
            f"a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters",
            details={"setting": "password", "limit": PASSWORD_CHARS_MIN},
        )
    return make_verifier(password, rng.token(SALT_BYTES)).text()


def _check(granted: Grant) -> None:
    if Action.NODE in granted.actions or not granted.actions:
        raise InvalidArgument(
            "actions that can be granted: " + ", ".join(sorted(set(Action) - {Action.NODE})),
            details={"setting": "actions"},
        )
    one = granted.resource
    named = bool(one.name) and (one.kind is Kind.TABLE) == bool(one.namespace)
    if one != CLUSTER and not named:
        raise InvalidArgument(
            f"a grant on a {one.kind} names it; a table as NAMESPACE.TABLE",
            details={"setting": "resource"},
        )


async def _known(t: Reader, name: str) -> Role:
    role = await roles.find(t, name)
    if role is None:
        raise NotFound(f"there is no user {name!r}", code="USER_NOT_FOUND")
    return role


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors of SQL as those of the other surfaces."""
    try:
        yield
    except SqlError as error:
        text = f"{error.message}: {error.detail}" if error.detail else error.message
        if error.sqlstate == "42704":
            raise NotFound(text, code="USER_NOT_FOUND") from error
        raise Refused(text) from error
