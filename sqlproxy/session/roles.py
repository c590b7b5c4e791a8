"""CREATE, ALTER and DROP ROLE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlproxy import roles
from sqlproxy.errors import SqlError, unsupported
from sqlproxy.front import statements as s
from sqlproxy.roles import Role
from sqlproxy.wire.scram import make_verifier
from txn.transaction import Transaction

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession

SALT_BYTES = 16


def _with_options(session: SqlSession, role: Role, bound: s.CreateRole | s.AlterRole) -> Role:
    options: Mapping[str, Any] = bound.options
    refused = {"replication", "bypassrls"} & {name for name, on in options.items() if on}
    if refused:
        raise unsupported(f"{', '.join(sorted(refused)).upper()} of roles")
    if "login" in options:
        role = replace(role, login=bool(options["login"]))
    if "superuser" in options:
        role = replace(role, superuser=bool(options["superuser"]))
    if "connectionlimit" in options:
        role = replace(role, connection_limit=int(options["connectionlimit"]))
    if bound.no_password:
        return replace(role, verifier=None)
    if bound.password is not None:
        return replace(role, verifier=_verifier(session, bound.password))
    return role


def _verifier(session: SqlSession, password: str) -> str:
    if password.startswith("SCRAM-SHA-256$"):
        return password  # a verifier already, as pg_dumpall writes them
    if password.startswith("md5") and len(password) == 35:
        raise unsupported("an MD5 password", hint="Give the password itself; SCRAM is used.")
    return make_verifier(password, session.services.token(SALT_BYTES)).text()


async def create_role(session: SqlSession, bound: s.CreateRole) -> str:
    async def write(t: Transaction) -> None:
        role = Role(bound.name, login=bool(bound.options.get("login")))
        await roles.create(t, _with_options(session, role, bound))

    await session.services.client.run(write)
    return "CREATE ROLE"


async def alter_role(session: SqlSession, bound: s.AlterRole) -> str:
    name = session.user if bound.name in ("current_user", "session_user") else bound.name

    async def write(t: Transaction) -> None:
        role = await roles.find(t, name)
        if role is None:
            raise roles.missing(name)
        roles.put(t, _with_options(session, role, bound))

    await session.services.client.run(write)
    return "ALTER ROLE"


async def drop_role(session: SqlSession, bound: s.DropRole) -> str:
    missing: list[str] = []

    async def write(t: Transaction) -> None:
        missing.clear()
        for name in bound.names:
            if name == session.user:
                raise SqlError("55006", "current user cannot be dropped")
            if bound.missing_ok and await roles.find(t, name) is None:
                missing.append(name)
                continue
            await roles.remove(t, name)

    await session.services.client.run(write)
    for name in missing:
        session.notice(f'role "{name}" does not exist, skipping')
    return "DROP ROLE"
