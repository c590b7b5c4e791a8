"""CREATE, ALTER and DROP ROLE, and membership in roles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from kv.base.rights import OWNER
from kv.base.tls import NODE_NAME
from sqlproxy.catalog import role_settings, roles
from sqlproxy.catalog.roles import Role
from sqlproxy.catalog.scram import PASSWORD_CHARS_MAX, make_verifier, read_verifier
from sqlproxy.front.bound import statements as s
from sqlproxy.front.ddl import ddl_granting as g
from sqlproxy.session.state.settings import CAUSAL_TOKEN
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import (
    CANNOT_CHANGE_NOW,
    INVALID_PARAMETER,
    UNDEFINED_DATABASE,
    SqlError,
    unsupported,
)
from txn.transaction import Transaction

SALT_BYTES = 16
_WHO = ("current_user", "current_role")
_RESERVED = frozenset({"public", "none", NODE_NAME})  # nodes' certificates are nobody's login


def called(session: State, name: str) -> str:
    """The role of that name; CURRENT_USER is who asks."""
    if name == "session_user":
        return session.user
    return session.permits.acting if name in _WHO else name


def _with_options(session: State, role: Role, options: s.RoleOptions) -> Role:
    role = replace(role, **options.given)
    if options.no_password:
        return replace(role, verifier=None)
    if options.password is not None:
        return replace(role, verifier=_verifier(session, options.password))
    return role


def _verifier(session: State, password: str) -> str:
    if password.startswith("SCRAM-SHA-256$"):  # a verifier already, as pg_dumpall writes them
        try:
            return read_verifier(password).text()
        except ValueError as error:
            raise SqlError(INVALID_PARAMETER, str(error)) from None
    if len(password) > PASSWORD_CHARS_MAX:
        raise SqlError(INVALID_PARAMETER, f"a password has at most {PASSWORD_CHARS_MAX} characters")
    if password.startswith("md5") and len(password) == 35:
        raise unsupported("an MD5 password", hint="Give the password itself; SCRAM is used.")
    return make_verifier(password, session.services.token(SALT_BYTES)).text()


async def _commit(
    session: State, write: Callable[[Transaction], Awaitable[list[str]]], severity: str
) -> None:
    try:
        result = await session.services.client.run(write)
    finally:
        session.services.catalogs.forget_roles()
    for one in result:
        session.notice(one, severity)


async def create_role(session: State, bound: s.CreateRole) -> str:
    session.check_writable("CREATE ROLE")
    if bound.name in _RESERVED or bound.name.startswith("pg_"):
        raise SqlError("42939", f'role name "{bound.name}" is reserved')

    async def write(t: Transaction) -> list[str]:
        role = Role(bound.name, login=False)
        await roles.create(t, _with_options(session, role, bound.options))
        await roles.join(t, [bound.name], bound.options.groups)
        return await roles.join(t, bound.options.members, [bound.name])

    await _commit(session, write, "NOTICE")
    return "CREATE ROLE"


async def alter_role(session: State, bound: s.AlterRole) -> str:
    session.check_writable("ALTER ROLE")
    name = called(session, bound.name)

    async def write(t: Transaction) -> list[str]:
        role = await roles.known(t, name)
        if name == OWNER and bound.options.given.get("superuser") is False:
            raise SqlError("42501", f'role "{name}" is always a superuser')
        await roles.put(t, _with_options(session, role, bound.options))
        change = roles.join if bound.adds else roles.leave
        return await change(t, bound.options.members, [name])

    await _commit(session, write, "NOTICE")
    return "ALTER ROLE"


async def change_defaults(session: State, bound: s.ChangeDefaults) -> str:
    role = None if bound.role is None else called(session, bound.role)
    word = "ALTER DATABASE" if bound.role is None and bound.database is not None else "ALTER ROLE"
    session.check_writable(word)
    await _check_defaults(session, role, bound.database)
    of = (role or "", bound.database or "")
    change, given = bound.change, dict[str, str | None]()
    match change:
        case s.SetVariable(name, values) if values is not None and name.lower() == CAUSAL_TOKEN:
            raise SqlError(
                CANNOT_CHANGE_NOW,
                f'parameter "{name}" cannot be set for all sessions of a role or database',
                hint="It says what one session has seen: SET it in the session that goes on.",
            )
        case s.SetVariable(name, values) if values is not None:
            given = {name: session.settings.checked(name.lower(), ", ".join(values))}
        case s.SetVariable(name) | s.Reset(name) if name != "all":
            given = {name: None}
        case _:
            given = dict.fromkeys(await role_settings.of(session.services.client, *of))

    async def write(t: Transaction) -> list[str]:
        if role is not None:
            await roles.known(t, role)
        await roles.touch(t)
        await role_settings.change(t, *of, given)
        return []

    await _commit(session, write, "NOTICE")
    return word


async def _check_defaults(session: State, role: str | None, database: str | None) -> None:
    """Raises SqlError (42501, 3D000)."""
    permits = session.permits
    if database is not None:
        cluster = await session.services.cluster()
        if database not in cluster.databases:
            raise SqlError(UNDEFINED_DATABASE, f'database "{database}" does not exist')
    if permits.free or role == permits.acting:
        return
    if role is None and database is not None:
        permits.check_database(await session.services.catalogs.declared(database))
    elif role is None:
        raise SqlError("42501", "must be superuser to alter settings globally")
    else:
        permits.check_alters(role)


async def drop_role(session: State, bound: s.DropRole) -> str:
    session.check_writable("DROP ROLE")

    async def write(t: Transaction) -> list[str]:
        missing = []
        for name in (called(session, one) for one in bound.names):
            if name in (session.user, session.permits.acting):
                raise SqlError("55006", "current user cannot be dropped")
            if bound.missing_ok and await roles.find(t, name) is None:
                missing.append(f'role "{name}" does not exist, skipping')
                continue
            await roles.remove(t, name)
        return missing

    await _commit(session, write, "NOTICE")
    return "DROP ROLE"


async def grant_role(session: State, bound: g.GrantRole) -> str:
    session.check_writable("GRANT ROLE" if bound.give else "REVOKE ROLE")
    names = [called(session, one) for one in bound.names]

    async def write(t: Transaction) -> list[str]:
        change = roles.join if bound.give else roles.leave
        return await change(t, names, bound.groups)

    await _commit(session, write, "NOTICE" if bound.give else "WARNING")
    return "GRANT ROLE" if bound.give else "REVOKE ROLE"
