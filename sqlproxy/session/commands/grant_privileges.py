"""GRANT, REVOKE, OWNER TO, REASSIGN OWNED and COMMENT ON: each a transaction of its own, at once,
as definitions are. Who may: the owner, its members and superusers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from kv.base.rights import OWNER, PUBLIC
from sqlproxy.catalog import granting, roles
from sqlproxy.catalog.catalog import Writer
from sqlproxy.catalog.privileges import ALL, with_granted, without
from sqlproxy.declared.database import Declared
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.ddl import ddl_granting as g
from sqlproxy.rows.naming import PUBLIC as PUBLIC_SCHEMA
from sqlproxy.rows.naming import bare, database_of, namespace_of, schema_in, schema_of
from sqlproxy.rows.schema import CONSTRAINT, INDEX, Acl, Table
from sqlproxy.session.commands.change_roles import called
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import UNDEFINED_DATABASE, SqlError, unsupported


async def _commit(
    session: State, namespace: str, write: Callable[[Writer], Awaitable[None]]
) -> None:
    """In a transaction of its own; what was bound here before is asked anew. What only the session
    has is changed in the session's own.
    """
    own, database = session.temporary, database_of(namespace)
    if own is not None and namespace == own.namespace:
        await own.change(write)
        return
    try:
        await session.services.client.run(write)
    finally:
        session.services.catalogs.forget(database)


async def _there(session: State, grantees: Sequence[str]) -> list[str]:
    """The roles, by their names. Raises SqlError (42704)."""
    names = [one if one == PUBLIC else called(session, one) for one in grantees]
    for name in names:
        if name != PUBLIC:
            await roles.known(session.services.client, name)
    return names


async def grant(session: State, bound: g.Grant) -> str:
    word = "GRANT" if bound.give else "REVOKE"
    session.check_writable(word)
    names = await _there(session, bound.grantees)

    change = _change(bound, names)
    columns = {
        name: _change(replace(bound, letters=letters), names) for name, letters in bound.columns
    }
    revoked = None if bound.give or bound.letters == "" else _change(bound, names, of_columns=True)
    if bound.kind in ("database", "schema"):
        for name in bound.names or ():
            await _grant_database(session, bound.kind, name, change)
        return word
    declared = await session.declared()
    if bound.names is None:
        wanted = ("sequence",) if bound.kind == "sequence" else ("table", "view")
        there = [
            one
            for one in declared.contents.relations.values()
            if one.kind in wanted and schema_of(one.namespace) in bound.schemas
        ]
    else:
        there = [declared.named_relation(name) for name in bound.names]
    rights = session.permits.rights(declared)
    wanted_of, there = there, []
    for one in wanted_of:
        if bound.names is not None and bound.letters is not None:
            _check_letters(one.kind, bound.letters)
        if columns and not isinstance(one, Table):
            raise unsupported(
                "privileges of columns of a view", are=True, hint="Grant on another view of these."
            )
        if session.permits.grants(declared, one):
            there.append(one)
        else:
            done = "were granted" if bound.give else "could be revoked"
            words = f'no privileges {done} for "{one.name}"'
            session.notice(words, "WARNING", "01007" if bound.give else "01006")

    own = "" if session.temporary is None else session.temporary.namespace
    for private in (False, True):
        spaces = {one.namespace for one in there if (one.namespace == own) is private}

        async def write(t: Writer, spaces: Iterable[str] = tuple(sorted(spaces))) -> None:
            for space in spaces:
                names = [one.name for one in there if one.namespace == space]
                await granting.grant_relations(
                    *(t, space, names, rights.owner, change, columns, revoked)
                )

        if spaces:
            await _commit(session, own if private else session.database, write)
    return word


def _change(bound: g.Grant, names: Sequence[str], *, of_columns: bool = False) -> granting.Change:
    """One list of privileges as it is after it; `of_columns`: of what a whole table is meant by."""

    def change(kind: str, acl: Acl) -> Acl:
        letters = ALL[kind] if bound.letters is None else bound.letters
        if of_columns:
            letters = "".join(one for one in letters if one in ALL["column"])
        if bound.give:
            return with_granted(acl, kind, names, letters)
        return without(acl, names, letters)

    return change


async def grant_defaults(session: State, bound: g.GrantDefaults) -> str:
    session.check_writable("ALTER DEFAULT PRIVILEGES")
    names = await _there(session, bound.grant.grantees)
    creators = [session.permits.role or OWNER]
    if bound.creators is not None:
        creators = await _there(session, bound.creators)
        for creator in creators:
            session.permits.check_new_owner(creator)
    change = _change(bound.grant, names)

    async def write(t: Writer) -> None:
        kind = bound.grant.kind
        await granting.grant_defaults(t, session.database, creators, kind, change)

    await _commit(session, session.database, write)
    return "ALTER DEFAULT PRIVILEGES"


def _check_letters(kind: str, letters: str) -> None:
    if any(letter not in ALL[kind] for letter in letters):
        raise SqlError("0LP01", f"invalid privilege type for {kind}")


async def _grant_database(
    session: State, kind: str, name: str, change: Callable[[str, Acl], Acl]
) -> None:
    database = session.database if kind == "schema" else name
    declared = await _declared(session, database)
    if kind == "schema" and name in declared.schemas:
        session.permits.check_schema(declared, name)
    else:
        session.permits.check_database(declared)
    space = namespace_of(database, name) if kind == "schema" else database

    async def write(t: Writer) -> None:
        await granting.grant_database(t, space, change, schema=kind == "schema")

    await _commit(session, database, write)


async def _declared(session: State, database: str) -> Declared:
    """Raises SqlError (3D000)."""
    if database == session.database:
        found: Declared = await session.declared()
        return found
    cluster = await session.services.cluster()
    if database not in cluster.databases:
        raise SqlError(UNDEFINED_DATABASE, f'database "{database}" does not exist')
    return await session.services.catalogs.declared(database)


async def new_owner(session: State, name: str) -> str:
    """A role that something may be given to. Raises SqlError (42704, 42501)."""
    (owner,) = await _there(session, [name])
    session.permits.check_new_owner(owner)
    return owner


async def change_owner(session: State, bound: g.ChangeOwner) -> str:
    tag = f"ALTER {bound.kind.upper()}"
    session.check_writable(tag)
    if bound.name is None:
        session.notice("relation does not exist, skipping")
        return tag
    name = bound.name
    if bound.kind == "database":
        session.permits.check_database(await _declared(session, name))
        owner = await new_owner(session, bound.owner)
        await _commit(session, name, lambda t: granting.own_database(t, name, owner))
        return tag
    declared = await session.declared()
    own = granting.own_relation
    if bound.kind == "schema":
        session.permits.check_schema(declared, name)
        owner = await new_owner(session, bound.owner)
        space = namespace_of(session.database, name)
        await _commit(session, session.database, lambda t: granting.own_database(t, space, owner))
        return tag
    if bound.kind == "type":
        if (kind := declared.enum_type(name)) is None:
            raise SqlError("42704", f'type "{name}" does not exist')
        session.permits.check_owner(declared, kind)
        own = granting.own_type
    elif bound.kind == "function":
        if (function := declared.function(name)) is None:
            raise SqlError("42883", f"function {name} does not exist")
        session.permits.check_owner(declared, function)
        own = granting.own_function
    else:
        session.permits.check_owner(declared, declared.named_relation(name))
    owner = await new_owner(session, bound.owner)

    async def write(t: Writer) -> None:
        await own(t, space_of(session, name), bare(name), owner)

    await _commit(session, space_of(session, name), write)
    return tag


def space_of(session: State, name: str) -> str:
    """The namespace that has a name."""
    return namespace_of(session.database, schema_in(name))


async def comment(session: State, bound: d.Comment) -> str:
    session.check_writable("COMMENT")
    if bound.kind in ("database", "schema"):
        return await _comment_database(session, bound)
    declared = await session.declared()
    session.permits.check_owner(declared, declared.named_relation(bound.relation))

    async def write(t: Writer) -> None:
        space, name = space_of(session, bound.relation), bare(bound.relation)
        part = bare(bound.column)
        if bound.kind in (INDEX, CONSTRAINT):
            await granting.note(t, space, name, bound.kind, part, bound.text)
        else:
            await granting.comment(t, space, name, part, bound.text)

    await _commit(session, space_of(session, bound.relation), write)
    return "COMMENT"


async def _comment_database(session: State, bound: d.Comment) -> str:
    """Of a database, or of the schema of this one. Raises SqlError (42501)."""
    try:
        declared = await _declared(session, bound.relation)
    except SqlError as error:  # a warning, as in PostgreSQL: dumps name the database they are of
        session.notice(error.message, "WARNING", error.sqlstate)
        return "COMMENT"
    session.permits.check_database(declared)
    schema = bound.kind == "schema"

    async def write(t: Writer) -> None:
        await granting.comment_database(t, bound.relation, bound.text, schema=schema)

    await _commit(session, bound.relation, write)
    return "COMMENT"


async def reassign_owned(session: State, bound: g.ReassignOwned) -> str:
    session.check_writable("REASSIGN OWNED")
    names = await _there(session, bound.names)
    for name in names:
        session.permits.check_new_owner(name)
    owner = await new_owner(session, bound.owner)
    declared = await session.declared()

    async def write(t: Writer) -> None:
        for schema in (PUBLIC_SCHEMA, *declared.stored.schemas):
            await granting.reassign(t, namespace_of(session.database, schema), names, owner)

    await _commit(session, session.database, write)
    return "REASSIGN OWNED"
