"""A declared table, brought into the catalog: names as PostgreSQL chooses them, ids, sequences, and
what foreign keys refer to. Functions of a transaction `t`, as `sqlproxy.catalog.catalog`'s are.

A table that another one's foreign key refers to knows it (`referenced_by`): nobody writes to it
without SQL from then on. That alone keeps nobody out who looked before, nor does it tell SQL of the
key, which is found in the table that has it. Whoever declares one waits for both (CreateTable,
AddConstraint) before there are rows that rely on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kv.base.errors import AlreadyExists, NotFound
from kv.base.ids import TableId
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.catalog import Writer
from sqlproxy.catalog.sequences import sequence_key, sequence_of
from sqlproxy.ddl.declaring import Draft, WantedKey
from sqlproxy.rows.naming import (
    check_sql_name,
    first_free,
    joined_columns,
    located,
    nextval_of,
    schema_of,
    shown_name,
)
from sqlproxy.rows.schema import PUBLIC, Check, Column, ForeignKey, Index, Sequence, Table
from sqlproxy.values import enums
from sqlproxy.values.refusals import invalid, refusal

_FAMILIES: Final = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), "integer"),
    **dict.fromkeys(("float4", "float8"), "float"),
    **dict.fromkeys(("text", "varchar", "name"), "text"),
}
"""Types whose values have the same bytes in keys: a foreign key looks up by them."""


async def settled(t: Writer, draft: Draft, table_id: TableId) -> tuple[Table, list[Sequence]]:
    """The table with ids and names, and the sequences that it owns; nothing is written but
    counters, and what tables and sequences that are there now know. Raises NotFound, AlreadyExists,
    InvalidArgument, Refused in PostgreSQL's words.
    """
    names = await relations.taken(t, draft.table.namespace)
    if names.get(draft.table.name, relations.TABLE) != relations.TABLE:
        raise relations.already(
            draft.table.name, what=names[draft.table.name], namespace=draft.table.namespace
        )
    table = replace(draft.table, id=table_id)
    names[table.name] = relations.TABLE
    table, sequences = await with_sequences(t, table, draft, names)
    table = _with_key_name(table, names)
    table = await _with_indexes(t, table, names)
    table = with_check_names(table)
    return await with_foreign_keys(t, table, draft.foreign_keys), sequences


def _with_key_name(table: Table, names: dict[str, str]) -> Table:
    if not table.primary_key:
        return table
    name = table.primary_key_name or first_free(
        table.name, "", "pkey", {**names, **_named_checks(table)}
    )
    if table.hidden_key:
        return replace(table, primary_key_name="")
    if name in names:
        raise relations.already(name, what=names[name], namespace=table.namespace)
    names[name] = relations.KEY
    return replace(table, primary_key_name=name)


async def with_sequences(
    t: Writer, table: Table, draft: Draft, names: dict[str, str]
) -> tuple[Table, list[Sequence]]:
    """Its columns that are numbered know their sequences; those that are to be made."""
    made: list[Sequence] = []
    columns = {column.name: column for column in table.columns}
    for name, wanted in draft.sequences:
        column = columns[name]
        if not isinstance(wanted, Mapping):
            space, title = located(table.namespace, wanted)
            there = await relations.find_relation(t, space, title)
            if not isinstance(there, Sequence):
                words = f'relation "{shown_name(space, title)}" does not exist'
                raise refusal("42P01", words, kind=NotFound, name=title)
            columns[name] = replace(column, sequence=there.id)
            continue
        own = sequence_of(
            table.namespace,
            first_free(table.name, name, "seq", names),
            {"type": column.type, **wanted},
        )
        names[own.name] = relations.SEQUENCE
        number = await catalog.next_table_id(t)
        made.append(replace(own, id=number, owned_by=(table.id, column.id)))
        sql = (
            column.default_sql
            if column.identity
            else nextval_of(own.name, schema_of(own.namespace))
        )
        columns[name] = replace(column, sequence=number, default_sql=sql, nullable=False)
    return replace(table, columns=tuple(columns.values())), made


async def _with_indexes(t: Writer, table: Table, names: dict[str, str]) -> Table:
    """Names and ids. A unique constraint that says what the primary key, or another one, says
    already is left out, as PostgreSQL does.
    """
    found: list[Index] = []
    seen = {(table.primary_key, False, False)}
    for index in table.indexes:
        columns = tuple(table.by_id(number).name for number in index.column_ids)
        if index.constraint and not index.name and not index.include:
            said = (columns, index.deferrable, index.deferred)
            if said in seen:
                continue
            seen.add(said)
        name = index.name
        if not name:
            of = [table.by_id(number).name for number in (*index.column_ids, *index.include)]
            label = "key" if index.constraint else "idx"
            of, label = ([], "pkey") if index.primary else (of, label)
            taken = {**names, **_named_checks(table)} if index.constraint else names
            name = first_free(table.name, joined_columns(of), label, taken)
        if name in names:
            raise relations.already(name, what=names[name], namespace=table.namespace)
        names[name] = relations.INDEX
        found.append(replace(index, id=await catalog.next_table_id(t), name=name))
    return replace(table, indexes=tuple(found))


def with_check_names(table: Table) -> Table:
    """Every check has a name. Raises AlreadyExists."""
    names = dict.fromkeys((check.name for check in table.checks if check.name), "")
    keys = _keys_of(table)
    names.update(dict.fromkeys(sorted(keys), ""))
    found: list[Check] = []
    for check in table.checks:
        name = check.name
        if not name:
            one = table.by_id(check.columns[0]).name if len(check.columns) == 1 else ""
            name = first_free(table.name, one, "check", names)
            names[name] = ""
        if name in keys or any(name == other.name for other in found):
            raise constraint_exists(table, name)
        check_sql_name("constraint", name)
        found.append(replace(check, name=name))
    return replace(table, checks=tuple(found))


def _named_checks(table: Table) -> dict[str, str]:
    """Names that its keys, named by us, leave to them."""
    return dict.fromkeys((check.name for check in table.checks if check.name), "")


def _keys_of(table: Table) -> set[str]:
    """The names of its primary key and unique constraints."""
    found = {index.name for index in table.indexes if index.constraint and index.name}
    return found | ({table.primary_key_name} if table.primary_key_name else set())


def constraint_exists(table: Table, name: str) -> Exception:
    return refusal(
        "42710",
        f'constraint "{name}" for relation "{table.name}" already exists',
        kind=AlreadyExists,
        constraint=name,
    )


async def with_foreign_keys(t: Writer, table: Table, wanted: Iterable[WantedKey]) -> Table:
    """The table with these after its own; the tables that they refer to know it."""
    names = {key.name for key in table.foreign_keys} | {check.name for check in table.checks}
    names |= _keys_of(table)
    for one in wanted:
        columns = [table.by_id(number) for number in one.columns]
        name = one.name or first_free(
            table.name, joined_columns(c.name for c in columns), "fkey", names
        )
        if name in names:
            raise constraint_exists(table, name)
        check_sql_name("constraint", name)
        names.add(name)
        own = one.table == (table.namespace, table.name)
        target = table if own else await _target(t, *one.table)
        referenced = _referenced(target, one)
        _check_types(name, columns, referenced)
        key = ForeignKey(
            name,
            one.columns,
            target.id,
            tuple(c.id for c in referenced),
            one.on_delete,
            one.on_update,
            deferrable=one.deferrable,
            deferred=one.deferred,
        )
        table = replace(table, foreign_keys=(*table.foreign_keys, key))
        if target.id != table.id and table.id not in target.referenced_by:
            referring = (*target.referenced_by, table.id)
            await catalog.write(
                t, replace(target, referenced_by=referring, version=target.version + 2)
            )
    return table


async def _target(t: Writer, namespace: str, name: str) -> Table:
    there = await relations.find_relation(t, namespace, name)
    if there is None or (isinstance(there, Table) and there.state != PUBLIC):
        words = f'relation "{shown_name(namespace, name)}" does not exist'
        raise refusal("42P01", words, kind=NotFound, name=name)
    if not isinstance(there, Table) or there.plain:
        raise invalid("42809", f'referenced relation "{name}" is not a table')
    return there


def _referenced(target: Table, wanted: WantedKey) -> list[Column]:
    """Raises InvalidArgument (42830) unless they are a primary key or a unique index."""
    if not wanted.referenced:
        found = [target.by_id(number) for number in target.declared_key]
        if not found:
            raise invalid("42704", f'there is no primary key for referenced table "{target.name}"')
        if len(found) != len(wanted.columns):
            raise invalid(
                "42830", "number of referencing and referenced columns for foreign key disagree"
            )
        if target.key_index is not None and target.key_index.deferrable:
            raise _deferrable(target, "primary key")
        return found
    found = []
    for name in wanted.referenced:
        column = next((c for c in target.visible if c.name == name), None)
        if column is None:
            raise invalid(
                "42703",
                f'column "{name!s:.100}" referenced in foreign key constraint does not exist',
            )
        found.append(column)
    ids = [column.id for column in found]
    if len(set(ids)) != len(ids) or not any(
        sorted(ids) == sorted(columns) for _, columns in target.unique_sets()
    ):
        if any(
            index.deferrable and index.state == PUBLIC and sorted(ids) == sorted(index.column_ids)
            for index in target.indexes
        ):
            raise _deferrable(target, "unique constraint")
        raise invalid(
            "42830",
            "there is no unique constraint matching given keys for referenced table "
            f'"{target.name}"',
        )
    return found


def _deferrable(target: Table, what: str) -> Exception:
    words = f'cannot use a deferrable {what} for referenced table "{target.name}"'
    return refusal("55000", words)


def _check_types(name: str, columns: list[Column], referenced: list[Column]) -> None:
    for mine, theirs in zip(columns, referenced, strict=True):
        a, b = mine.resolved, theirs.resolved
        if _FAMILIES.get(a.base, a.base) != _FAMILIES.get(b.base, b.base) or (
            (a.element is not None or a.base == enums.BASE) and not enums.same_type(a.name, b.name)
        ):
            raise invalid(
                "42804",
                f'foreign key constraint "{name}" cannot be implemented',
                detail=f'Key columns "{mine.name}" and "{theirs.name}" are of incompatible types: '
                f"{enums.shown(mine.type)} and {enums.shown(theirs.type)}.",
            )


# -- and out of it


async def forget_parts(t: Writer, table: Table) -> None:
    """Names of its indexes, the sequences that it owns, and what it referred to: all but the table
    itself. Doing it again changes nothing.
    """
    await relations.drop_index_names(t, table)
    there = await relations.list_relations(t, table.namespace)
    for sequence in there.sequences:
        if sequence.owned_by is not None and sequence.owned_by[0] == table.id:
            await drop_sequence(t, sequence)
    for target in {key.table for key in table.foreign_keys}:
        await unrefer(t, table, target)
    t.delete(sequence_key(table.id))  # the numbers of a hidden key


async def unrefer(t: Writer, table: Table, target: TableId) -> None:
    """No foreign key of `table` refers to `target` any more."""
    other = None if target == table.id else await catalog.find_by_id(t, target)
    if other is not None and table.id in other.referenced_by:
        left = tuple(number for number in other.referenced_by if number != table.id)
        await catalog.write(t, replace(other, referenced_by=left, version=other.version + 1))


async def drop_sequence(t: Writer, sequence: Sequence) -> None:
    """The name, and where it stood."""
    await relations.drop_name(t, sequence.namespace, sequence.name)
    t.delete(sequence_key(sequence.id))
