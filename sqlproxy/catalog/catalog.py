"""Namespaces and tables in the system tables: reading and writing their descriptors.
 Functions of a transaction `t` (`txn.transaction.Transaction`; for reading also
`txn.client.TxnClient`, then each call is its own snapshot). They check, read and put; committing
is the caller's. What may be created or dropped is decided inside the transaction, so that two
creates of one name conflict.

    await bootstrap(t)                              namespaces `default` and `postgres`; idempotent
    await create_namespace(t, name, **placing)      -> Namespace     AlreadyExists
    await modify_namespace(t, ns, change)           -> Namespace
    await switch_namespace(t, ns, state)            -> Namespace     `public` ⇄ `disabled`
    await drop_namespace(t, name)                                    NotFound, Refused (has tables)
    await schema_version(t, name)                   -> int           rises with every change in it
    await lookup_namespace(t, name)                 -> Namespace     NotFound
    await list_namespaces(t)                        -> list[Namespace]
    await next_table_id(t)                          -> TableId
    await create_table_record(t, spec, table_id)    -> Table         state `creating`; AlreadyExists
    await publish(t, table)                         -> Table         `creating` → `public`
    await modify(t, table, change, columns)         -> Table         InvalidArgument, AlreadyExists
    await switch(t, table, state)                   -> Table         `public` ⇄ `disabled`
    await lookup_any(t, ns, name)                   -> Table         public or disabled; NotFound
    await start_drop(t, ns, name)                   -> Table         any state → `dropping`
    await finish_drop(t, table)                                      the record is gone
    await lookup(t, ns, name)                       -> Table         public ones only; NotFound,
                                                                     Refused (TABLE_DISABLED)
    await find(t, ns, name)                         -> Table | None  whatever its state
    await find_by_id(t, table_id)                   -> Table | None
    await list_tables(t, ns)                        -> list[Table]   whatever their state
    await next_id(t, counter, count=1, first=1)     -> int           the first of `count` new ids
    CatalogCache(t, timers, ttl_s)                  .lookup(ns, name), .invalidate(ns, name)
Stored under the table prefixes of kv.base.system; the rows themselves are in
`sqlproxy.rows.records`.

Deliberately missing: DDL itself (procedures in `sqlproxy.ddl.ddl`: partitions must be made and
removed), schema versions on commits (docs/decisions/1013).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from kv.base import system
from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.errors import AlreadyExists, NotFound, Refused, TooLarge
from kv.base.ids import FIRST_USER_TABLE, TableId
from kv.base.keys import escape, from_u64, successor, table_prefix, u32, u64, unescape
from kv.base.limits import NAMESPACES_MAX, SCAN_ROWS_MAX, TABLES_MAX
from kv.base.ports import Timers
from sqlproxy.rows import records
from sqlproxy.rows.naming import check_name, database_of, schema_of, shown_name, shown_space
from sqlproxy.rows.records import (
    FORMAT,
    corrupt,
    decode_namespace,
    decode_table,
    encode_table,
    opened,
)
from sqlproxy.rows.schema import (
    CREATING,
    DEFAULT_NAMESPACE,
    DISABLED,
    DROPPING,
    POSTGRES_NAMESPACE,
    PUBLIC,
    USABLE,
    Column,
    ColumnLike,
    EnumType,
    Namespace,
    Table,
    placed,
    stands_by,
    with_columns,
)
from sqlproxy.values import enums
from sqlproxy.values.refusals import refusal
from sqlproxy.values.types import resolve

T = TypeVar("T")

COUNTER_TABLE: Final = "table"  # the next table id; others use names of their own
CATALOG_TTL_S: Final = 5.0
"""For so long what was looked up may be used without looking again: everywhere, as what switches a
table off waits for it.
"""
_CACHE_MAX: Final = 10_000


class Page(Protocol):
    """txn.results.ScanPage: rows are (storage key, value, version); `resume` is None at the end."""

    @property
    def items(self) -> Sequence[tuple[bytes, bytes, int]]: ...
    @property
    def resume(self) -> bytes | None: ...


class Reader(Protocol):
    async def get(self, key: bytes) -> tuple[bytes | None, int]: ...
    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Page: ...


class Writer(Reader, Protocol):
    @property
    def start_ts(self) -> int: ...
    def put(self, key: bytes, value: bytes) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def check(self, key: bytes, version: int) -> None:
        """Commit only if `key` still has `version` then."""
        ...


Claims = Callable[[str, str], Awaitable[Table]]
"""`claim` in a transaction of its own, by namespace and name."""


class Run(Protocol):
    """Runs a body in a transaction and commits, again on a conflict (`TxnClient.run`)."""

    def __call__(self, body: Callable[[Writer], Awaitable[T]], /) -> Awaitable[T]: ...


# -- keys


def namespace_key(name: str) -> bytes:
    return table_prefix(system.NAMESPACES) + escape(name.encode())


def table_key(namespace: str, name: str) -> bytes:
    return table_prefix(system.TABLES) + escape(namespace.encode()) + escape(name.encode())


def table_id_key(table: TableId) -> bytes:
    return table_prefix(system.TABLES_BY_ID) + u32(table)


HEADS_OF_STATISTICS: Final = table_prefix(system.STATISTICS) + b"\x00"
STATISTICS_END: Final = table_prefix(system.STATISTICS) + b"\x01"
"""Of the heads; what statistics say of columns comes behind."""


def statistics_keys(table: int) -> tuple[bytes, bytes]:
    """Of a table: its size, and the rest (sqlproxy/session/shared/statistics.py)."""
    return HEADS_OF_STATISTICS + u32(table), STATISTICS_END + u32(table)


def counter_key(name: str) -> bytes:
    return table_prefix(system.COUNTERS) + escape(name.encode())


# -- namespaces


async def bootstrap(t: Writer) -> None:
    """The namespaces that exist from the start. Does nothing where they are there."""
    for name in (DEFAULT_NAMESPACE, POSTGRES_NAMESPACE):
        if (await t.get(namespace_key(name)))[0] is None:
            _put(t, namespace_key(name), records.encode_namespace(Namespace(name, t.start_ts)))


async def create_namespace(
    t: Writer, name: str, *, owner: str = "", **placing: object
) -> Namespace:
    """`placing`: see `sqlproxy.rows.schema.placed`. Raises InvalidArgument (name), AlreadyExists,
    TooLarge (too many).
    """
    check_name("namespace", name)
    made = placed(Namespace(name, t.start_ts, owner=owner), placing)
    database = database_of(name)
    await _check_new(t, name)
    _check_count("databases and schemas", len(await list_namespaces(t)), NAMESPACES_MAX)
    if name != database:  # it is not dropped meanwhile, and whoever uses it learns of this one
        await hold_namespace(t, database)
        await touch(t, name)
    return _write_namespace(t, made)


async def _check_new(t: Reader, name: str) -> None:
    """Raises AlreadyExists."""
    if (await t.get(namespace_key(name)))[0] is None:
        return
    raise AlreadyExists(
        f"namespace {name} exists",
        details={"namespace": name, **_as_sql(name, "42P04", "42P06", "already exists")},
    )


def _as_sql(name: str, of_database: str, of_schema: str, words: str) -> dict[str, object]:
    """What a refusal says of a namespace to who knows databases and schemas."""
    state = of_database if name == database_of(name) else of_schema
    return {"sqlstate": state, "sql_message": f"{shown_space(name)} {words}"}


async def rename_namespace(t: Writer, name: str, to: str) -> None:
    """Its row alone; what is in it is the caller's. Raises NotFound, AlreadyExists, Refused (a
    disabled one).
    """
    space = await lookup_namespace(t, name)
    check_enabled(space)
    await _check_new(t, to)
    t.delete(namespace_key(name))
    _write_namespace(t, replace(space, name=to))
    await touch(t, name)


async def modify_namespace(
    t: Writer, namespace: Namespace, change: Mapping[str, object]
) -> Namespace:
    """What its tables have that do not say otherwise (`sqlproxy.rows.schema.placed`). The rows of
    the partition map are the caller's. Raises InvalidArgument, TooLarge.
    """
    return _write_namespace(t, placed(namespace, change))


async def put_namespace(t: Writer, namespace: Namespace) -> None:
    """With another owner or other privileges, which is a change of its schema."""
    _write_namespace(t, namespace)
    await touch(t, namespace.name)


async def switch_namespace(t: Writer, namespace: Namespace, state: str) -> Namespace:
    """`public` or `disabled`; its tables are the caller's."""
    return _write_namespace(t, replace(namespace, state=state))


async def drop_namespace(t: Writer, name: str) -> None:
    """Raises NotFound, and Refused while it has tables or is one that always exists."""
    await lookup_namespace(t, name)
    if name in (DEFAULT_NAMESPACE, POSTGRES_NAMESPACE):
        raise Refused(
            f"namespace {name} always exists",
            code="NAMESPACE_IS_BUILT_IN",
            details=_as_sql(name, "55006", "55006", "always exists"),
        )
    schemas = [] if database_of(name) != name else (await list_schemas(t, name))[1:]
    if schemas:
        raise Refused(
            f"namespace {name} has the schema {schemas[0].name}; drop it first",
            code="NAMESPACE_NOT_EMPTY",
            details={
                "namespace": name,
                "schemas": [one.name for one in schemas[:10]],
                **_as_sql(name, "2BP01", "2BP01", f"has the schema {schema_of(schemas[0].name)}"),
            },
        )
    if tables := await list_tables(t, name):
        one = len(tables) == 1
        having = (
            f"1 table ({tables[0].name})" if one else f"{len(tables)} tables ({tables[0].name}, …)"
        )
        raise Refused(
            f"namespace {name} has {having}; drop {'it' if one else 'them'} first",
            code="NAMESPACE_NOT_EMPTY",
            details={
                "namespace": name,
                "tables": [table.name for table in tables[:10]],
                **_as_sql(name, "2BP01", "2BP01", f"has {having}"),
            },
        )
    # A table created meanwhile checks the version of this row, and one of the two cannot commit.
    t.delete(namespace_key(name))
    await touch(t, name)  # its versions go on rising if it is made again


async def lookup_namespace(t: Reader, name: str) -> Namespace:
    """Raises NotFound."""
    namespace, _ = await _namespace(t, name)
    return namespace


async def list_namespaces(t: Reader) -> list[Namespace]:
    """All of them in order of their names."""
    rows = await scan_all(t, table_prefix(system.NAMESPACES))
    return [decode_namespace(key, value) for key, value in rows]


async def list_schemas(t: Reader, namespace: str) -> list[Namespace]:
    """The namespaces of the database that has this one, its own first."""
    database = database_of(namespace)
    rows = await scan_all(t, table_prefix(system.NAMESPACES) + database.encode())
    found = [decode_namespace(key, value) for key, value in rows]
    return [one for one in found if database_of(one.name) == database]


async def _namespace(t: Reader, name: str) -> tuple[Namespace, int]:
    key = namespace_key(name)
    value, version = await t.get(key)
    if value is None:
        raise NotFound(
            f"there is no namespace {name!r}",
            code="NAMESPACE_NOT_FOUND",
            details={"namespace": name, **_as_sql(name, "3D000", "3F000", "does not exist")},
        )
    return decode_namespace(key, value), version


def _hold(t: Writer, name: str, version: int) -> None:
    if version:  # 0: the namespace is of this very transaction
        t.check(namespace_key(name), version)


async def hold_namespace(t: Writer, name: str) -> Namespace:
    """Whoever takes a name in it, or drops it, conflicts with this transaction. Raises NotFound,
    Refused (NAMESPACE_DISABLED).
    """
    namespace, version = await _namespace(t, name)
    check_enabled(namespace)
    _hold(t, name, version)
    return namespace


def schema_key(namespace: str) -> bytes:
    """All schemas of a database have one: what is declared in them is used together."""
    return table_prefix(system.SCHEMAS) + escape(database_of(namespace).encode())


async def schema_version(t: Reader, namespace: str) -> int:
    """How often anything in the namespace's database was changed: while it is the same, what is
    remembered of it still holds.
    """
    key = schema_key(namespace)
    return schema_row(key, (await t.get(key))[0])[0]


def schema_row(key: bytes, value: bytes | None) -> tuple[int, int]:
    """The version, and the one that a schema change waits for everybody to use
    (sqlproxy.ddl.change). Raises Corruption.
    """
    if value is None:
        return 0, 0
    _, version, *more = opened(key, value)
    return version, more[0] if more else 0


async def touch(t: Writer, namespace: str, *, awaited: bool = False) -> None:
    """This transaction changes something in the namespace; said as often as you like. `awaited`: a
    schema change goes on when everybody uses this version.
    """
    key = schema_key(namespace)
    version, before = schema_row(key, (await t.get(key))[0])
    _put(t, key, [FORMAT, version + 1, version + 1 if awaited else before])


# -- tables that are written without SQL


def claim_key(table: TableId) -> bytes:
    return table_prefix(system.NATIVE_WRITERS) + u32(table)


def claims_in(run: Run) -> Claims:
    """By transactions of one's own."""

    async def claims(namespace: str, name: str) -> Table:
        return await run(lambda t: claim(t, namespace, name))

    return claims


async def claim(t: Writer, namespace: str, name: str) -> Table:
    """Somebody is about to write rows of this table without SQL: a schema change that gives it
    rules waits for such writers, and only then (`sqlproxy.ddl.change.version_waits`). The table; it
    is not claimed if it has rules by now. Raises NotFound, Refused.
    """
    table = await lookup(t, namespace, name)
    if not table.plain and not table.ruled:
        key = table_key(namespace, name)
        t.check(key, (await t.get(key))[1])  # it has no rules when this is committed
        _put(t, claim_key(table.id), [FORMAT])
    return table


# -- tables that are linked with another cluster (kvorum/sites)


def check_unlinked(tables: Iterable[Table], what: str) -> None:
    """`what`: what cannot be done to one that is linked, as the other cluster would not hear of it.
    Raises Refused.
    """
    for table in tables:
        if table.standby:
            raise stands_by(table)
        if table.link:
            raise _linked(table, what)


def _linked(table: Table, what: str) -> Refused:
    return Refused(
        f"table {table.path} is linked with another cluster, so it cannot {what}; end the link "
        "first (`kvorum site list`, `kvorum site remove SITE`)",
        code="SITE_LINKED",
        details={"namespace": table.namespace, "table": table.name, "sqlstate": "55000"},
    )


# -- tables


async def create_table_record(t: Writer, spec: Table, table_id: TableId) -> Table:
    """The record of a new table in state `creating`, from `Table.declare` and an id of
    `next_table_id`.

    Raises NotFound (namespace), AlreadyExists (in whatever state), TooLarge (too many tables).
    """
    namespace, version = await _namespace(t, spec.namespace)
    check_enabled(namespace)
    other = await find(t, spec.namespace, spec.name)
    if other is not None:
        being = "exists" if other.state == PUBLIC else f"exists in the state {other.state}"
        raise AlreadyExists(
            f"table {spec.path} {being}",
            details={
                "table": spec.path,
                "state": other.state,
                "sqlstate": "42P07",
                "sql_message": f'relation "{spec.name}" already exists',
            },
        )
    where = shown_space(spec.namespace)
    _check_count(f"tables in {where}", len(await list_tables(t, spec.namespace)), TABLES_MAX)
    _hold(t, spec.namespace, version)
    table = replace(spec, id=table_id, state=CREATING, created=t.start_ts)
    put_id(t, table_id, table)
    await write(t, table)
    return table


async def publish(t: Writer, table: Table, *, frozen: bool = False) -> Table:
    """`creating` → `public`: from this commit on the table may be used; `frozen`: be read, and it
    is waited until everybody knows. Doing it again changes nothing.
    """
    stored = await _same(t, table)
    if stored.state == PUBLIC:
        return stored
    if stored.state == DROPPING:
        raise Refused(f"table {table.path} is being dropped", code="TABLE_IS_DROPPING")
    changed = replace(stored, state=PUBLIC, frozen=frozen, version=stored.version + 1)
    await write(t, changed, awaited=frozen)
    return changed


async def modify(
    t: Writer, table: Table, change: Mapping[str, object], columns: Sequence[ColumnLike] = ()
) -> Table:
    """Placed otherwise (`sqlproxy.rows.schema.placed`), and with `columns` after those that there
    are. Raises InvalidArgument, TooLarge, AlreadyExists (a column), NotFound.
    """
    same = await _same(t, table)
    wider = with_columns(same, columns) if columns else same
    changed = replace(placed(wider, change), version=same.version + 1)
    await write(t, changed)
    return changed


async def switch(t: Writer, table: Table, state: str) -> Table:
    """`public` or `disabled`; no change if it is that already. Raises NotFound, Refused."""
    stored = await _same(t, table)
    if stored.state not in USABLE:
        raise _no_table(table.namespace, table.name, stored)
    return stored if stored.state == state else await _changed(t, stored, state)


async def start_drop(t: Writer, namespace: str, name: str) -> Table:
    """`dropping`: nobody finds it any more, its name stays taken. Raises NotFound. Again: no
    change.
    """
    stored = await find(t, namespace, name)
    if stored is None:
        raise _no_table(namespace, name)
    return stored if stored.state == DROPPING else await _changed(t, stored, DROPPING)


async def finish_drop(t: Writer, table: Table) -> None:
    """Forget a table whose rows are gone. Doing it again changes nothing."""
    stored = await find(t, table.namespace, table.name)
    if stored is None or stored.id != table.id:
        return
    if stored.state != DROPPING:
        raise Refused(f"table {table.path} is {stored.state}, not dropping", code="TABLE_IN_USE")
    await remove(t, table)
    t.delete(table_id_key(table.id))
    for key in statistics_keys(table.id):
        t.delete(key)


async def remove(t: Writer, table: Table) -> None:
    """The name stands for nothing any more."""
    await touch(t, table.namespace)
    t.delete(table_key(table.namespace, table.name))


def put_id(t: Writer, number: TableId, table: Table) -> None:
    """The id of a table, or of one of its indexes, leads to the table."""
    _put(t, table_id_key(number), [FORMAT, table.namespace, table.name])


async def lookup(t: Reader, namespace: str, name: str) -> Table:
    """The table that users may use. Raises NotFound (namespace, table, or not public: the code
    says which), Refused (TABLE_DISABLED).
    """
    table = await lookup_any(t, namespace, name)
    if table.state == DISABLED:
        raise Refused(
            f"table {table.path} is disabled: its rows are kept, but nobody reads or writes it "
            "until it is enabled",
            code="TABLE_DISABLED",
            details={"namespace": namespace, "table": name},
        )
    return table


async def lookup_any(t: Reader, namespace: str, name: str) -> Table:
    """The table that is there for users, disabled or not. Raises NotFound as `lookup` does."""
    table = await find(t, namespace, name)
    if table is not None and table.state in USABLE:
        return table
    if table is None:
        await lookup_namespace(t, namespace)
    raise _no_table(namespace, name, table)


async def find(t: Reader, namespace: str, name: str) -> Table | None:
    """The table in whatever state, None if there is none."""
    key = table_key(namespace, name)
    value, _ = await t.get(key)
    return None if value is None else decode_table(key, value)


async def find_by_id(t: Reader, table_id: TableId) -> Table | None:
    """The table in whatever state, None if there is none. Of an index: `find_owner`."""
    table = await find_owner(t, table_id)
    return table if table is not None and table.id == table_id else None


async def find_owner(t: Reader, number: TableId) -> Table | None:
    """The table, in whatever state, whose keys or whose index's keys begin with this id."""
    key = table_id_key(number)
    value, _ = await t.get(key)
    if value is None:
        return None
    _, namespace, name = opened(key, value)
    table = await find(t, namespace, name)
    return table if table is not None and number in table.storage_ids else None


async def is_used(t: Reader, number: TableId) -> bool:
    """Whether rows under this id count: of a table that is there, or of an index that is read; not
    of what is only being made, or was given up.
    """
    table = await find_owner(t, number)
    if table is None or table.state == CREATING:
        return False
    return number == table.id or any(
        index.id == number and index.state == PUBLIC for index in table.indexes
    )


async def list_tables(t: Reader, namespace: str) -> list[Table]:
    """All tables of a namespace in order of their names, in whatever state."""
    prefix = table_prefix(system.TABLES) + escape(namespace.encode())
    return [decode_table(key, value) for key, value in await scan_all(t, prefix)]


async def next_table_id(t: Writer) -> TableId:
    """A table id that was never given out before, if this transaction commits."""
    return TableId(await next_id(t, COUNTER_TABLE, first=FIRST_USER_TABLE))


async def next_id(t: Writer, counter: str, *, count: int = 1, first: int = 1) -> int:
    """The first of `count` new numbers of a named counter that begins at `first`."""
    key = counter_key(counter)
    value, _ = await t.get(key)
    if value is not None and (len(value) != 8 + CRC_BYTES or not intact(key, value)):
        raise corrupt(key, "checksum")
    number = first if value is None else from_u64(value)
    t.put(key, seal(key, u64(number + count)))
    return number


class CatalogCache:
    """`lookup` with a memory: an answer is at most `ttl_s` older than the catalog, less after
    `invalidate`.

    What is not found is never remembered: a table is usable as soon as it is created. Not for
    decisions inside a transaction; those read the catalog in it.
    """

    def __init__(
        self, reader: Reader, timers: Timers, ttl_s: float, claims: Claims | None = None
    ) -> None:
        """`claims`: for those who write rows without SQL (`claim`)."""
        self._reader = reader
        self._claims = claims
        self._now = timers.monotonic
        self._ttl_s = ttl_s
        self._known: dict[tuple[str, str], tuple[float, Table]] = {}

    def known(self, namespace: str, name: str) -> Table | None:
        """What `lookup` would answer from memory."""
        known = self._known.get((namespace, name))
        return known[1] if known is not None and known[0] > self._now() else None

    async def lookup(self, namespace: str, name: str) -> Table:
        """Raises NotFound as `lookup` does."""
        known = self.known(namespace, name)
        if known is not None:
            return known
        now = self._now()
        # Its age counts from before the read: what changed during it must not live longer.
        try:
            table = await lookup(self._reader, namespace, name)
        except (NotFound, Refused):
            self.invalidate(namespace, name)
            raise
        if len(self._known) >= _CACHE_MAX:
            self._known.clear()
        self._known[namespace, name] = (now + self._ttl_s, table)
        return table

    async def claim(self, namespace: str, name: str) -> Table:
        """`claim` in a transaction of its own: the table as it is now. Raises as it does."""
        assert self._claims is not None, "who writes was given a way to"
        table = await self._claims(namespace, name)
        self.invalidate(namespace, name)
        return table

    def invalidate(self, namespace: str | None = None, name: str | None = None) -> None:
        """Forget a table, all tables of a namespace, or everything."""
        if namespace is not None and name is not None:
            self._known.pop((namespace, name), None)
            return
        for key in [key for key in self._known if namespace is None or key[0] == namespace]:
            del self._known[key]


def check_enabled(namespace: Namespace) -> None:
    """Raises Refused: no table is made or enabled in a disabled namespace."""
    if namespace.state == DISABLED:
        raise Refused(
            f"namespace {namespace.name} is disabled; enable it first",
            code="NAMESPACE_DISABLED",
            details={
                "namespace": namespace.name,
                **_as_sql(namespace.name, "55000", "55000", "is disabled; enable it first"),
            },
        )


def _write_namespace(t: Writer, namespace: Namespace) -> Namespace:
    _put(t, namespace_key(namespace.name), records.encode_namespace(namespace))
    return namespace


def _put(t: Writer, key: bytes, row: list[object]) -> None:
    t.put(key, records.sealed(key, row))


async def relation_rows(t: Reader, namespace: str) -> list[tuple[str, list[object]]]:
    """Names besides those of tables, and what they stand for (opened rows), in their order."""
    prefix = table_prefix(system.RELATIONS) + escape(namespace.encode())
    found = []
    for key, value in await scan_all(t, prefix):
        name, _ = unescape(key, len(prefix))
        found.append((name.decode(), opened(key, value, records.RELATION_FORMATS)))
    return found


async def list_types(t: Reader, namespace: str) -> dict[int, EnumType]:
    """The enums of a namespace by their OIDs."""
    rows = await relation_rows(t, namespace)
    found = [records.decode_type(namespace, name, row) for name, row in rows if row[1] == "enum"]
    return {one.enum.oid: one for one in found}


async def _with_types(t: Reader, table: Table) -> Table:
    """Each column that is an enum says what its type is now: so whoever writes a descriptor need
    not know what was done to the type meanwhile. Raises NotFound (42704): it was dropped.
    """
    if table.state == DROPPING or not any(enums.oid_in(c.type) for c in table.columns):
        return table
    wanted = {oid for column in table.columns if (oid := enums.oid_in(column.type))}
    types = await list_types(t, table.namespace)
    if not wanted <= types.keys():
        for space in await list_schemas(t, table.namespace):  # public, which most share, first
            types |= await list_types(t, space.name)
            if wanted <= types.keys():
                break
    columns = []
    for column in table.columns:
        oid = enums.oid_in(column.type)
        if oid and not (table.private and oid not in types):  # of others it is as it was
            if oid not in types:
                name = enums.shown(column.type).removesuffix("[]")
                raise refusal("42704", f'type "{name}" does not exist', kind=NotFound)
            text = enums.text_of(types[oid].enum) + ("[]" if column.type.endswith("[]") else "")
            if text != column.type:
                column = _with_comment(column, text)
        columns.append(column)
    return replace(table, columns=tuple(columns))


def _with_comment(column: Column, text: str) -> Column:
    """With another version of its type: the constants that it keeps are the same positions, whose
    labels may be others.
    """
    before, now = column.resolved, resolve(text)
    assert now.from_stored is not None
    again = now.from_stored

    def label(value: object) -> Any:
        return None if value is None else again(before.to_stored(value))

    initial = None if column.initial is None else (label(column.initial[0]),)
    return replace(column, type=text, default=label(column.default), initial=initial)


async def write(t: Writer, table: Table, *, awaited: bool = False) -> None:
    """The descriptor as it is now. `awaited`: see `touch`. Raises NotFound (a type), Refused (it is
    linked with another cluster, and would have what only SQL keeps).
    """
    if table.link and table.kept:
        raise _linked(table, "have indexes, constraints, computed columns or types that change")
    table = await _with_types(t, table)
    await touch(t, table.namespace, awaited=awaited)
    _put(t, table_key(table.namespace, table.name), encode_table(table))


def put_moved(t: Writer, before: Table, table: Table) -> None:
    """The descriptor in another namespace, and where its ids lead; its types are the same ones."""
    t.delete(table_key(before.namespace, before.name))
    _put(t, table_key(table.namespace, table.name), encode_table(table))
    for number in table.storage_ids:
        put_id(t, number, table)


async def _changed(t: Writer, table: Table, state: str) -> Table:
    changed = replace(table, state=state, version=table.version + 1)
    await write(t, changed)
    return changed


async def _same(t: Reader, table: Table) -> Table:
    """The stored descriptor of exactly this table, not of a later one with its name."""
    stored = await find(t, table.namespace, table.name)
    if stored is None or stored.id != table.id:
        raise _no_table(table.namespace, table.name)
    return stored


async def scan_all(t: Reader, prefix: bytes) -> list[tuple[bytes, bytes]]:
    rows: list[tuple[bytes, bytes]] = []
    start: bytes | None = prefix
    end = successor(prefix)
    while start is not None:
        page = await t.scan(start, end, limit=SCAN_ROWS_MAX)
        rows += [(key, value) for key, value, _ in page.items]
        start = page.resume
    return rows


def _check_count(what: str, have: int, limit: int) -> None:
    if have >= limit:
        raise TooLarge(
            f"there are {have} {what}; the limit is {limit}",
            details={"what": what, "limit": limit, "actual": have},
        )


def _no_table(namespace: str, name: str, table: Table | None = None) -> NotFound:
    state = f" (it is in the state {table.state})" if table is not None else ""
    return NotFound(
        f"there is no table {namespace}.{name}{state}",
        code="TABLE_NOT_FOUND",
        details={
            "namespace": namespace,
            "table": name,
            "sqlstate": "42P01",
            "sql_message": f'relation "{shown_name(namespace, name)}" does not exist',
        },
    )
