"""GRANT, REVOKE, OWNER TO and COMMENT ON in the catalog. Functions of a transaction `t`, as those
of `sqlproxy.catalog.catalog` are; who may call them is `sqlproxy.catalog.privileges`'s matter.

    await grant_relations(t, ns, names, change)     `change`: the list of one relation → the new one
    await grant_database(t, ns, change, schema=…)
    await grant_defaults(t, ns, creators, kind, change)
    await own_type(t, ns, name, owner)
    await own_relation(t, ns, name, owner)          its own sequences and their lists go along
    await own_database(t, ns, owner)
    await reassign(t, ns, names, owner)             everything that these roles own in it
    await comment(t, ns, name, column, text)        COMMENT ON a relation, or on a column of it
    await note(t, ns, table, kind, name, text)      COMMENT ON an index or a constraint of a table
    await comment_database(t, ns, text, schema=…)

Each is a change of the schema (`catalog.touch`): statements that are bound later are asked anew,
at another node after SQL_SCHEMA_TTL_MS at the latest. Nothing waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kv.base.rights import OWNER
from sqlproxy.catalog import catalog, relations, roles
from sqlproxy.catalog.catalog import Writer
from sqlproxy.catalog.privileges import default, with_owner
from sqlproxy.catalog.relations import IndexName
from sqlproxy.rows.naming import database_of
from sqlproxy.rows.schema import Acl, Column, EnumType, Relation, Sequence, Table, View
from sqlproxy.values.refusals import refusal

Change = Callable[[str, Acl], Acl]  # (kind, list) → list


async def grant_relations(
    t: Writer,
    namespace: str,
    names: Iterable[str],
    owner: Callable[[Relation], str],
    change: Change,
    columns: Mapping[str, Change] = MappingProxyType({}),
    all_columns: Change | None = None,
) -> None:
    """`columns`: how the lists of these change; `all_columns`: those of all, as what is revoked
    from a table is from its columns. Raises KvorumError (42P01, 42703).
    """
    for name in names:
        one = await _relation(t, namespace, name)
        before = default(one.kind, owner(one)) if one.acl is None else one.acl
        after = change(one.kind, before)
        changed = one if after == before else replace(one, acl=after)
        if isinstance(changed, Table) and (columns or all_columns is not None):
            changed = _with_column_lists(changed, columns, all_columns)
        if changed != one:
            await _put(t, changed)


def _with_column_lists(
    table: Table, changes: Mapping[str, Change], all_columns: Change | None
) -> Table:
    """Raises KvorumError (42703)."""
    visible = {column.name for column in table.visible}
    for name in changes:
        if name not in visible:
            raise refusal(
                "42703", f'column "{name}" of relation "{table.name}" does not exist', column=name
            )

    def changed(column: Column) -> Column:
        change = changes.get(column.name, all_columns)
        if change is None or column.name not in visible:
            return column
        return replace(column, acl=change("column", column.acl or ()) or None)

    return replace(table, columns=tuple(map(changed, table.columns)))


async def grant_database(t: Writer, name: str, change: Change, *, schema: bool = False) -> None:
    """Of the database, or of the schema that a namespace is. Raises KvorumError (there is none)."""
    space = await catalog.lookup_namespace(t, name)
    kind = "schema" if schema else "database"
    if schema and database_of(name) != name:
        kind = "own schema"
    acl = space.schema_acl if schema else space.acl
    after = change(kind, default(kind, space.owner or OWNER) if acl is None else acl)
    new = replace(space, schema_acl=after) if schema else replace(space, acl=after)
    await catalog.put_namespace(t, new)


async def grant_defaults(
    t: Writer, name: str, creators: Iterable[str], kind: str, change: Change
) -> None:
    """Of what these roles will make in the database; `kind`: table (and view) or sequence. Raises
    KvorumError, SqlError (42704).
    """
    space = await catalog.lookup_namespace(t, name)
    kept = {(creator, what): acl for creator, what, acl in space.defaults}
    for creator in creators:
        await roles.known(t, creator)
        kept[creator, kind] = change(kind, kept.get((creator, kind), ()))
    defaults = tuple((creator, what, acl) for (creator, what), acl in kept.items() if acl)
    await catalog.put_namespace(t, replace(space, defaults=defaults))


async def own_relation(t: Writer, namespace: str, name: str, owner: str) -> None:
    """Raises KvorumError (42P01), SqlError (42704: the role)."""
    await roles.known(t, owner)
    one = await _relation(t, namespace, name)
    if isinstance(one, Sequence) and one.owned_by is not None:
        raise refusal(
            "0A000",
            "cannot change owner of sequence with an owner",
            detail=f'Sequence "{name}" is linked to a table.',
        )
    await _own(t, namespace, one, owner)


async def own_type(t: Writer, namespace: str, name: str, owner: str) -> None:
    """Raises KvorumError (42704), SqlError (42704: the role)."""
    await roles.known(t, owner)
    one = await relations.find_relation(t, namespace, name)
    if not isinstance(one, EnumType):
        raise refusal("42704", f'type "{name}" does not exist')
    await relations.put_type(t, replace(one, owner=owner))


async def own_function(t: Writer, namespace: str, name: str, owner: str) -> None:
    """`name`: in the catalog. Raises KvorumError (42883), SqlError (42704: the role)."""
    await roles.known(t, owner)
    one = await relations.find_function(t, namespace, name)
    if one is None:
        raise refusal("42883", f"function {name} does not exist")
    await relations.put_function(t, replace(one, owner=owner))


async def _own(t: Writer, namespace: str, one: Relation, owner: str) -> None:
    old = one.owner or OWNER
    owned: list[Sequence] = []
    if isinstance(one, Table):
        there = (await relations.list_relations(t, namespace, creating=True)).sequences
        owned = [s for s in there if s.owned_by is not None and s.owned_by[0] == one.id]
    if isinstance(one, Table):
        columns = tuple(replace(c, acl=with_owner(c.acl, old, owner)) for c in one.columns)
        one = replace(one, columns=columns)
    await _put(t, replace(one, owner=owner, acl=with_owner(one.acl, old, owner)))
    for sequence in owned:
        if sequence.acl is not None:
            await _put(t, replace(sequence, acl=with_owner(sequence.acl, old, owner)))


async def own_database(t: Writer, name: str, owner: str) -> None:
    """Raises KvorumError (there is none), SqlError (42704: the role)."""
    await roles.known(t, owner)
    space = await catalog.lookup_namespace(t, name)
    old = space.owner or OWNER
    changed = replace(
        space,
        owner=owner,
        acl=with_owner(space.acl, old, owner),
        schema_acl=with_owner(space.schema_acl, old, owner),
    )
    await catalog.put_namespace(t, changed)


async def reassign(t: Writer, namespace: str, names: Iterable[str], owner: str) -> None:
    """Raises SqlError (42704)."""
    await roles.known(t, owner)
    wanted = set(names)
    for name in sorted(wanted):
        await roles.known(t, name)
    if ((await catalog.lookup_namespace(t, namespace)).owner or OWNER) in wanted:
        await own_database(t, namespace, owner)
    there = await relations.list_relations(t, namespace)
    for kind in there.types:
        if (kind.owner or OWNER) in wanted:
            await relations.put_type(t, replace(kind, owner=owner))
    for function in there.functions:
        if (function.owner or OWNER) in wanted:
            await relations.put_function(t, replace(function, owner=owner))
    for one in there:
        dependent = isinstance(one, Sequence) and one.owned_by is not None
        if (one.owner or OWNER) in wanted and not dependent:
            await _own(t, namespace, one, owner)


async def comment(t: Writer, namespace: str, name: str, column: str, text: str) -> None:
    """Without a text it goes. Raises KvorumError (42P01, the column)."""
    one = await _relation(t, namespace, name)
    if isinstance(one, Table):
        if not column:
            await _put(t, replace(one, comment=text))
            return
        number = one.column(column).id
        columns = tuple(replace(c, comment=text) if c.id == number else c for c in one.columns)
        await _put(t, replace(one, columns=columns))
        return
    names = [named for named, _ in one.columns] if isinstance(one, View) else []
    place = names.index(column) + 1 if column in names else 0
    others = [pair for pair in one.comments if pair[0] != place]
    added = ((place, text),) if text else ()
    await _put(t, replace(one, comments=(*others, *added)))


async def note(t: Writer, namespace: str, table: str, kind: str, name: str, text: str) -> None:
    """Of INDEX or CONSTRAINT; without a text it goes. Raises KvorumError (42P01, 42704)."""
    one = await _relation(t, namespace, table)
    if not isinstance(one, Table) or name not in one.named_parts(kind):
        raise refusal("42704", f'{kind} "{name}" of table "{table}" does not exist')
    await _put(t, replace(one, notes=one.noted(kind, name, text)))


async def comment_database(t: Writer, name: str, text: str, *, schema: bool = False) -> None:
    """Of the database, or of its schema public. Raises KvorumError (there is none)."""
    space = await catalog.lookup_namespace(t, name)
    new = replace(space, schema_comment=text) if schema else replace(space, comment=text)
    await catalog.put_namespace(t, new)


async def _relation(t: Writer, namespace: str, name: str) -> Relation:
    one = await relations.find_relation(t, namespace, name)
    if one is None or isinstance(one, IndexName | EnumType):
        raise refusal("42P01", f'relation "{name}" does not exist')
    return one


async def _put(t: Writer, one: Relation) -> None:
    match one:
        case Table():
            await catalog.write(t, one)
        case View():
            await relations.put_view(t, one)
        case Sequence():
            await relations.put_sequence(t, one)
