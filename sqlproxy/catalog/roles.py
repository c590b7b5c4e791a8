"""Roles of SQL: who may connect, with which password, and whose privileges they have. Functions of
a transaction `t`.

    CLUSTER  "rights"     sealed [1, how often roles, tokens or grants were changed]
    ROLES    esc(name)    sealed [1, name, login, superuser, verifier | nil, connection limit,
                          createdb, createrole, [role that it is a member of, …]]; older rows end
                          after the limit

`verifier` is SCRAM-SHA-256's, as PostgreSQL stores it; no password is kept. While no role has one,
everybody on the loopback is let in under any name, and nobody else; a name that is no role may then
do everything.
The role `kvorum` exists without a row; it owns everything that has no other owner.

`RoleBook` is what a process remembers of them: at most `ttl_s` old when declarations are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from kv.base import rights, system
from kv.base.keys import escape, table_prefix, table_range
from kv.base.limits import SQL_ROLES_MAX
from kv.base.rights import OWNER, Roles
from sqlproxy.catalog import catalog, grants, relations, role_settings, tokens
from sqlproxy.catalog.catalog import Reader, Writer, scan_all
from sqlproxy.rows import records
from sqlproxy.rows.naming import PUBLIC, database_of, schema_of
from sqlproxy.rows.schema import Acl, EnumType, Relation, SqlFunction, Table
from sqlproxy.values.errors import DUPLICATE_OBJECT, LIMIT_EXCEEDED, UNDEFINED_OBJECT, SqlError

INVALID_GRANT: Final = "0LP01"


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    login: bool = True
    superuser: bool = False
    verifier: str | None = None
    connection_limit: int = -1
    create_database: bool = False
    create_role: bool = False
    member_of: tuple[str, ...] = ()


RIGHTS_KEY: Final = table_prefix(system.CLUSTER) + escape(b"rights")


async def rights_version(t: Reader) -> int:
    """How often roles, tokens or grants were changed: while it is the same, what is remembered of
    them still holds.
    """
    value, _ = await t.get(RIGHTS_KEY)
    return 0 if value is None else int(records.opened(RIGHTS_KEY, value)[1])


async def touch(t: Writer) -> None:
    """This transaction changes roles, tokens or grants; said as often as you like. Who changes
    roles by this module need not say it.
    """
    row = [records.FORMAT, await rights_version(t) + 1]
    t.put(RIGHTS_KEY, records.sealed(RIGHTS_KEY, row))


def role_key(name: str) -> bytes:
    return table_prefix(system.ROLES) + escape(name.encode())


async def find(t: Reader, name: str) -> Role | None:
    """A role of that name; the owner is always there."""
    key = role_key(name)
    value, _ = await t.get(key)
    if value is None:
        return Role(OWNER, superuser=True) if name == OWNER else None
    return _role(key, value)


async def known(t: Reader, name: str) -> Role:
    """Raises SqlError (42704)."""
    role = await find(t, name)
    if role is None:
        raise missing(name)
    return role


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
    await put(t, role)


async def put(t: Writer, role: Role) -> None:
    """Write it, whether or not it is there. Raises SqlError (55000): see `check_closing`."""
    if role.verifier is not None and not (role.superuser and role.login):
        await check_closing(t)
    before = await find(t, role.name)
    await touch(t)
    key = role_key(role.name)
    row = [
        records.FORMAT,
        role.name,
        role.login,
        role.superuser,
        role.verifier,
        role.connection_limit,
        role.create_database,
        role.create_role,
        list(role.member_of),
    ]
    t.put(key, records.sealed(key, row))
    if role.verifier is None and before is not None and before.verifier is not None:
        await check_still_closed(t)


async def remove(t: Writer, name: str) -> None:
    """Nobody is a member of it any more. Raises SqlError (42704, 2BP01, 55000)."""
    if name == OWNER:
        raise SqlError("2BP01", f'cannot drop role "{name}" because it owns everything')
    gone = await known(t, name)
    if found := await dependents(t, name):
        raise SqlError(
            "2BP01",
            f'role "{name}" cannot be dropped because some objects depend on it',
            detail="\n".join(found),
        )
    await touch(t)
    t.delete(role_key(name))
    await grants.forget(t, name)
    await role_settings.forget(t, role=name)
    had_tokens = await tokens.revoke_all(t, name)
    for role in await all_roles(t):
        if name in role.member_of:
            await put(
                t, replace(role, member_of=tuple(one for one in role.member_of if one != name))
            )
    if gone.verifier is not None or had_tokens:
        await check_still_closed(t)


async def dependents(t: Reader, name: str) -> list[str]:
    """What it owns and where it is named, in every database."""

    def about(owner: str, acl: Acl | None, what: str) -> Iterable[str]:
        if owner == name:
            yield f"owner of {what}"
        elif any(grantee == name for grantee, _ in acl or ()):
            yield f"privileges for {what}"

    found: list[str] = []
    for space in await catalog.list_namespaces(t):
        database, schema = database_of(space.name), schema_of(space.name)
        of_schema = f"schema {schema} of database {database}"
        own = f"database {database}" if schema == PUBLIC else of_schema
        found += about(space.owner, space.acl, own)
        found += about("", space.schema_acl, of_schema)
        for creator, kind, acl in space.defaults:
            what = f"default privileges on new {kind}s of role {creator} in database {space.name}"
            found += about(creator, acl, what)
        there = await relations.list_relations(t, space.name, creating=True)
        owned: list[Relation | EnumType | SqlFunction] = [*there, *there.types, *there.functions]
        for one in owned:
            shown = f"{one.kind} {database}.{schema}.{one.name}"
            found += about(one.owner, one.acl, shown)
            for column in one.columns if isinstance(one, Table) else ():
                found += about("", column.acl, f"column {column.name} of {shown}")
    return found


async def join(t: Writer, names: Iterable[str], groups: Iterable[str]) -> list[str]:
    """Each of `names` is a member of each of `groups` from now on; what was so before, as notices.
    Raises SqlError (42704, 0LP01: a circle).
    """
    notices = []
    everybody = Roles(counting(await all_roles(t)), {})
    for group in groups:
        await known(t, group)
        for name in names:
            role = await known(t, name)
            if name in everybody.roles_of(group):
                raise SqlError(INVALID_GRANT, f'role "{group}" is a member of role "{name}"')
            if group in role.member_of:
                notices.append(f'role "{name}" is already a member of role "{group}"')
                continue
            await put(t, replace(role, member_of=(*role.member_of, group)))
            everybody = Roles(counting(await all_roles(t)), {})
    return notices


async def leave(t: Writer, names: Iterable[str], groups: Iterable[str]) -> list[str]:
    """The opposite. Raises SqlError (42704)."""
    notices = []
    for group in groups:
        await known(t, group)
        for name in names:
            role = await known(t, name)
            if group not in role.member_of:
                notices.append(f'role "{name}" is not a member of role "{group}"')
                continue
            await put(
                t, replace(role, member_of=tuple(one for one in role.member_of if one != group))
            )
    return notices


def missing(name: str) -> SqlError:
    return SqlError(UNDEFINED_OBJECT, f'role "{name}" does not exist')


def _role(key: bytes, value: bytes) -> Role:
    _, name, login, superuser, verifier, limit, *more = records.opened(key, value)
    create_database, create_role, member_of = more[:3] if more else (False, False, ())
    return Role(
        name, login, superuser, verifier, limit, create_database, create_role, tuple(member_of)
    )


def counting(roles: Iterable[Role]) -> dict[str, rights.Role]:
    """What of them counts for rights, by name."""
    return {
        role.name: rights.Role(
            role.superuser, role.member_of, role.create_database, role.create_role, role.login
        )
        for role in roles
    }


async def closed(t: Reader, known: Iterable[Role]) -> bool:
    """Whether somebody of these can log in, with a password or a token: then nobody is let in
    without, from the loopback neither.
    """
    if any(role.verifier is not None for role in known):
        return True
    return bool((await t.scan(*table_range(system.TOKENS), limit=1)).items)


async def check_still_closed(t: Reader) -> None:
    """After what somebody logged in with has gone. Raises SqlError (55000): it was the last, so
    whoever is on the loopback would own the cluster again.
    """
    if not await closed(t, await all_roles(t)):
        raise SqlError(
            "55000",
            "nobody could log in any more with a password or a token",
            hint="Give an administrator another one first.",
        )


async def check_closing(t: Reader) -> None:
    """Before somebody who is no administrator is given something to log in with. Raises SqlError
    (55000) if nobody has that yet: the loopback would be trusted no more, and nobody could make
    others.
    """
    if not await closed(t, await all_roles(t)):
        raise SqlError(
            "55000",
            "the first user who can log in must be an administrator",
            hint="Run `kvorum init`, or CREATE USER … SUPERUSER PASSWORD …; then make others.",
        )


class RoleBook:
    """What this process knows of the roles. `members` is the same object until it changes."""

    def __init__(self, reader: Reader, now: Callable[[], float], ttl_s: float) -> None:
        self._reader, self._now, self._ttl_s = reader, now, ttl_s
        self._good_until = float("-inf")
        self._version = -1  # of what `members` says
        self._forgotten = 0  # how often
        self.members = Roles({}, {}, closed=False)

    async def look(self) -> Roles:
        """As they are, or were `ttl_s` ago. Raises KvorumError."""
        asked = self._now()
        if asked < self._good_until:
            return self.members
        while True:
            forgotten = self._forgotten
            await self._read()
            if forgotten == self._forgotten:
                break  # else they were changed from here meanwhile: this may be from before
        self._good_until = max(self._good_until, asked + self._ttl_s)
        return self.members

    async def _read(self) -> None:
        version = await rights_version(self._reader)
        if version <= self._version:
            return
        known = await all_roles(self._reader)
        found = Roles(
            counting(known),
            await grants.all_grants(self._reader),
            closed=await closed(self._reader, known),
        )
        if version > self._version:
            self._version, self.members = version, found

    def forget(self) -> None:
        """They were changed from here."""
        self._forgotten += 1
        self._good_until = float("-inf")
