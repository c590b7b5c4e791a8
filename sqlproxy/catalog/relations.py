"""What has a name in a namespace besides tables: views, sequences, indexes, types.
Functions of a transaction, as `sqlproxy.catalog.catalog`'s are.

    await taken(t, ns)                  -> {name: what it is}    everything that has a name
    await find_relation(t, ns, name)    -> Table | View | Sequence | IndexName | None
    await create_view(t, view)          -> View         AlreadyExists; `replace_view` changes it
    await create_sequence(t, sequence)  -> Sequence     AlreadyExists
    await put_name(t, ns, name, row)                    the name of an index or of a primary key
    await drop_name(t, ns, name)
    await list_relations(t, ns)         -> Relations    all tables, views and sequences
    await list_database(t, ns)          -> Relations    … of all schemas of its database: what
                                                        depends on something may be in any

One name stands for one thing in a namespace, as in PostgreSQL's schemas. Tables are in a table of
their own (older programs know it alone); whoever takes a name looks into both and writes the
namespace's row, so that two who take one name conflict.

A table that was renamed leaves its old name as `gone` until no cache can remember it: who then
makes another one of this name waits so long (`gone_until`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kv.base import system
from kv.base.errors import AlreadyExists
from kv.base.ids import TableId
from kv.base.keys import escape, table_prefix, u32
from kv.base.wire_row import WireRow
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import Reader, Writer
from sqlproxy.rows import records
from sqlproxy.rows.naming import database_of
from sqlproxy.rows.schema import (
    CREATING,
    DROPPING,
    EnumType,
    Namespace,
    Relation,
    Sequence,
    SqlFunction,
    Table,
    View,
)
from sqlproxy.values.refusals import refusal

TABLE: Final = "table"
VIEW: Final = "view"
SEQUENCE: Final = "sequence"
TYPE: Final = "enum"
INDEX: Final = "index"
KEY: Final = "key"  # of a primary key: PostgreSQL calls it an index, too
GONE: Final = "gone"
FUNCTION: Final = "function"


@dataclass(frozen=True, slots=True)
class IndexName:
    """What the name of an index, or of a primary key (`id` 0), stands for."""

    namespace: str
    name: str
    table: TableId
    id: TableId
    kind: str = INDEX


@dataclass(frozen=True)
class Relations:
    """Everything in a namespace, or in all of a database, at one snapshot."""

    namespace: str
    tables: tuple[Table, ...]
    views: tuple[View, ...]
    sequences: tuple[Sequence, ...]
    types: tuple[EnumType, ...] = ()  # they have names, but nobody reads from them
    functions: tuple[SqlFunction, ...] = ()
    spaces: tuple[Namespace, ...] = ()  # of a database: its own namespace, and those of its schemas

    def __iter__(self) -> Iterator[Relation]:
        yield from self.tables
        yield from self.views
        yield from self.sequences

    def by_id(self, number: int) -> Relation | None:
        return next((relation for relation in self if relation.id == number), None)

    def of(self, namespace: str, *, others: bool = False) -> Relations:
        """What is in one of the namespaces, or in the `others`."""
        return Relations(
            self.namespace if others else namespace,
            tuple(one for one in self.tables if (one.namespace == namespace) != others),
            tuple(one for one in self.views if (one.namespace == namespace) != others),
            tuple(one for one in self.sequences if (one.namespace == namespace) != others),
            tuple(one for one in self.types if (one.namespace == namespace) != others),
            tuple(one for one in self.functions if (one.namespace == namespace) != others),
        )


def relation_key(namespace: str, name: str) -> bytes:
    return table_prefix(system.RELATIONS) + escape(namespace.encode()) + escape(name.encode())


async def _rows(t: Reader, namespace: str) -> list[tuple[str, WireRow]]:
    return await catalog.relation_rows(t, namespace)


async def taken(t: Reader, namespace: str) -> dict[str, str]:
    """Every name that stands for something, and for what. A `gone` one is free."""
    found = {table.name: TABLE for table in await catalog.list_tables(t, namespace)}
    found.update((name, row[1]) for name, row in await _rows(t, namespace) if row[1] != GONE)
    return found


async def gone_until(t: Reader, namespace: str, name: str) -> int:
    """Until when (ms) a name must not be given to a table; 0: it may be now."""
    key = relation_key(namespace, name)
    value, _ = await t.get(key)
    if value is None:
        return 0
    row = records.opened(key, value, records.RELATION_FORMATS)
    return int(row[2]) if row[1] == GONE else 0


async def space_gone_until(t: Reader, namespace: str) -> int:
    """The same of a namespace, which has its mark under the empty name."""
    return await gone_until(t, namespace, "")


async def find_relation(
    t: Reader, namespace: str, name: str
) -> Table | View | Sequence | EnumType | IndexName | None:
    """Whatever has this name. A table in whatever state."""
    table = await catalog.find(t, namespace, name)
    if table is not None:
        return table
    key = relation_key(namespace, name)
    value, _ = await t.get(key)
    if value is None:
        return None
    return _relation(namespace, name, records.opened(key, value, records.RELATION_FORMATS))


def _relation(
    namespace: str, name: str, row: WireRow
) -> View | Sequence | EnumType | IndexName | None:
    match row[1]:
        case "view":
            return records.decode_view(namespace, name, row)
        case "sequence":
            return records.decode_sequence(namespace, name, row)
        case "enum":
            return records.decode_type(namespace, name, row)
        case "index":
            return IndexName(namespace, name, TableId(row[2]), TableId(row[3]))
        case "key":
            return IndexName(namespace, name, TableId(row[2]), TableId(0), KEY)
        case _:
            return None


async def list_relations(t: Reader, namespace: str, *, creating: bool = False) -> Relations:
    """All that users see; of tables those that are not being dropped, nor (unless `creating`)
    made.
    """
    hidden = (DROPPING,) if creating else (CREATING, DROPPING)
    tables = [
        table for table in await catalog.list_tables(t, namespace) if table.state not in hidden
    ]
    views: list[View] = []
    sequences: list[Sequence] = []
    types: list[EnumType] = []
    functions: list[SqlFunction] = []
    for name, row in await _rows(t, namespace):
        if row[1] == FUNCTION:
            functions.append(records.decode_function(namespace, row))
            continue
        match _relation(namespace, name, row):
            case View() as view:
                views.append(view)
            case Sequence() as sequence:
                sequences.append(sequence)
            case EnumType() as kind:
                types.append(kind)
            case _:
                pass  # a name of a part of a table
    return Relations(
        namespace,
        tuple(tables),
        tuple(views),
        tuple(sequences),
        tuple(types),
        tuple(functions),
    )


async def list_database(t: Reader, namespace: str, *, creating: bool = False) -> Relations:
    """The same of all schemas of the database that a namespace is of."""
    spaces = await catalog.list_schemas(t, namespace)
    found = [await list_relations(t, one.name, creating=creating) for one in spaces]
    return Relations(
        database_of(namespace),
        tuple(one for every in found for one in every.tables),
        tuple(one for every in found for one in every.views),
        tuple(one for every in found for one in every.sequences),
        tuple(one for every in found for one in every.types),
        tuple(one for every in found for one in every.functions),
        tuple(spaces),
    )


# -- changes; each is one of the namespace, too


async def check_free(t: Writer, namespace: str, name: str) -> None:
    """Raises AlreadyExists (42P07), NotFound (namespace), Refused (a disabled one)."""
    await catalog.hold_namespace(t, namespace)
    there = await find_relation(t, namespace, name)
    if there is not None:
        raise already(name, what=there.kind, namespace=namespace)


async def check_free_type(t: Writer, namespace: str, name: str) -> None:
    """Raises AlreadyExists (42710): a table has a type of its name, too. NotFound, Refused."""
    await catalog.hold_namespace(t, namespace)
    if await find_relation(t, namespace, name) is not None:
        raise refusal(
            "42710",
            f'type "{name}" already exists',
            kind=AlreadyExists,
            namespace=namespace,
            name=name,
        )


async def enum_oids(t: Reader) -> set[int]:
    """Of all databases."""
    found = set[int]()
    for namespace in await catalog.list_namespaces(t):
        found |= set(await catalog.list_types(t, namespace.name))
    return found


def already(name: str, *, what: str, namespace: str) -> Exception:
    """The refusal in PostgreSQL's words."""
    if what in (TYPE, "type"):
        return refusal(
            "42710",
            f'type "{name}" already exists',
            kind=AlreadyExists,
            hint="A relation has an associated type of the same name, so you must use a name that "
            "doesn't conflict with any existing type.",
            namespace=namespace,
            name=name,
            being="type",
        )
    return refusal(
        "42P07",
        f'relation "{name}" already exists',
        kind=AlreadyExists,
        namespace=namespace,
        name=name,
        being=what,
    )


async def create_view(t: Writer, view: View) -> View:
    """Raises AlreadyExists."""
    await check_free(t, view.namespace, view.name)
    return await put_view(t, view)


async def put_view(t: Writer, view: View) -> View:
    """Write it, whether or not it is there."""
    await put_name(t, view.namespace, view.name, records.encode_view(view))
    return view


async def create_sequence(t: Writer, sequence: Sequence) -> Sequence:
    """Raises AlreadyExists."""
    await check_free(t, sequence.namespace, sequence.name)
    return await put_sequence(t, sequence)


async def put_sequence(t: Writer, sequence: Sequence) -> Sequence:
    """Write it, whether or not it is there."""
    await put_name(t, sequence.namespace, sequence.name, records.encode_sequence(sequence))
    return sequence


async def put_type(t: Writer, one: EnumType) -> EnumType:
    """Write it, whether or not it is there; the tables that have it are the caller's."""
    await put_name(t, one.namespace, one.name, records.encode_type(one))
    return one


async def find_function(t: Reader, namespace: str, name: str) -> SqlFunction | None:
    """`name`: with the types of its arguments (`SqlFunction.name`)."""
    key = relation_key(namespace, name)
    value, _ = await t.get(key)
    row = None if value is None else records.opened(key, value, records.RELATION_FORMATS)
    if row is None or row[1] != FUNCTION:
        return None
    return records.decode_function(namespace, row)


async def put_function(t: Writer, one: SqlFunction) -> SqlFunction:
    """Write it, whether or not it is there."""
    await put_name(t, one.namespace, one.name, records.encode_function(one))
    return one


async def put_name(t: Writer, namespace: str, name: str, row: list[object]) -> None:
    """What a name stands for from now on."""
    key = relation_key(namespace, name)
    t.put(key, records.sealed(key, row))
    await catalog.touch(t, namespace)


async def drop_name(t: Writer, namespace: str, name: str) -> None:
    t.delete(relation_key(namespace, name))
    await catalog.touch(t, namespace)


async def move_names(t: Writer, namespace: str, to: str, *, until_ms: int = 0) -> None:
    """All of a namespace that is renamed, but its tables. Its own name is kept until then (0: not),
    and as long as a name that was kept in it.
    """
    for name, row in await _rows(t, namespace):
        t.delete(relation_key(namespace, name))
        if row[1] == GONE:
            until_ms = max(until_ms, int(row[2]))
        else:
            key = relation_key(to, name)
            t.put(key, records.sealed(key, row))
    await _keep_space(t, namespace, until_ms)


async def forget_all(t: Writer, namespace: str) -> None:
    """Of a namespace that is dropped: views, sequences; while names are kept, its own is."""
    until_ms = 0
    for name, row in await _rows(t, namespace):
        t.delete(relation_key(namespace, name))
        if row[1] == SEQUENCE:
            t.delete(table_prefix(system.SEQUENCES) + u32(row[2]))
        if row[1] == GONE:
            until_ms = max(until_ms, int(row[2]))
    await _keep_space(t, namespace, until_ms)


async def _keep_space(t: Writer, namespace: str, until_ms: int) -> None:
    if until_ms:
        await put_name(t, namespace, "", [records.FORMAT, GONE, until_ms])


async def put_index_names(t: Writer, table: Table) -> None:
    """The names of a table's indexes and of its primary key, and where their ids lead."""
    for index in table.indexes:
        row = [records.FORMAT, INDEX, table.id, index.id]
        await put_name(t, table.namespace, index.name, row)
        catalog.put_id(t, index.id, table)
    if table.primary_key_name and not table.hidden_key:
        row = [records.FORMAT, KEY, table.id]
        await put_name(t, table.namespace, table.primary_key_name, row)


async def drop_index_names(t: Writer, table: Table) -> None:
    """What `put_index_names` wrote, if it is still this table's."""
    for name in (*(index.name for index in table.indexes), table.primary_key_name):
        there = await find_relation(t, table.namespace, name) if name else None
        if isinstance(there, IndexName) and there.table == table.id:
            await drop_name(t, table.namespace, name)
    for index in table.indexes:
        t.delete(catalog.table_id_key(index.id))
