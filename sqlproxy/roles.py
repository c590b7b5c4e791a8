"""Roles of SQL: who may connect, and with which password. Functions of a transaction `t`.

    ROLES    esc(name)    sealed [1, name, login, superuser, verifier | nil, connection limit]

`verifier` is SCRAM-SHA-256's, as PostgreSQL stores it; no password is kept. While no role has one,
everybody on the loopback is let in under any name, and nobody else (DESIGN 12).
The role `kvorum` exists without a row; it owns everything.

Deliberately missing: privileges. Who is let in may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kv.base import system
from kv.base.keys import escape, table_prefix
from kv.base.limits import SQL_ROLES_MAX
from sqlproxy import records
from sqlproxy.catalog import Reader, Writer, scan_all
from sqlproxy.errors import DUPLICATE_OBJECT, LIMIT_EXCEEDED, UNDEFINED_OBJECT, SqlError

OWNER: Final = "kvorum"


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    login: bool = True
    superuser: bool = False
    verifier: str | None = None
    connection_limit: int = -1


def role_key(name: str) -> bytes:
    return table_prefix(system.ROLES) + escape(name.encode())


async def find(t: Reader, name: str) -> Role | None:
    """A role of that name; the owner is always there."""
    key = role_key(name)
    value, _ = await t.get(key)
    if value is None:
        return Role(OWNER, superuser=True) if name == OWNER else None
    return _role(key, value)


async def all_roles(t: Reader) -> list[Role]:
    """By name, the owner first."""
    found = [_role(key, value) for key, value in await scan_all(t, table_prefix(system.ROLES))]
    owner = next((role for role in found if role.name == OWNER), Role(OWNER, superuser=True))
    return [owner, *(role for role in found if role.name != OWNER)]


async def create(t: Writer, role: Role) -> None:
    """Raises SqlError (42710, 54000)."""
    if await find(t, role.name) is not None:
        raise SqlError(DUPLICATE_OBJECT, f'role "{role.name}" already exists')
    if len(await all_roles(t)) >= SQL_ROLES_MAX:
        raise SqlError(LIMIT_EXCEEDED, f"there are {SQL_ROLES_MAX} roles already")
    put(t, role)


def put(t: Writer, role: Role) -> None:
    """Write it, whether or not it is there."""
    key = role_key(role.name)
    row = [
        records.FORMAT, role.name, role.login, role.superuser, role.verifier,
        role.connection_limit,
    ]  # fmt: skip
    t.put(key, records.sealed(key, row))


async def remove(t: Writer, name: str) -> None:
    """Raises SqlError (42704)."""
    if name == OWNER:
        raise SqlError("2BP01", f'cannot drop role "{name}" because it owns everything')
    if await find(t, name) is None:
        raise missing(name)
    t.delete(role_key(name))


def missing(name: str) -> SqlError:
    return SqlError(UNDEFINED_OBJECT, f'role "{name}" does not exist')


def _role(key: bytes, value: bytes) -> Role:
    _, name, login, superuser, verifier, limit = records.opened(key, value)
    return Role(name, login, superuser, verifier, limit)
