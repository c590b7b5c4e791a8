"""What a sink's batch does to a declared table: rows with their index entries, checked against the
table's constraints. `procedures.sink.sink_ports.Tables`, over the catalog.

    A  replacing: the rows of the range that the condition means go
    B  the rows that the batch's keys have now are read; those that change go, with their entries
    C  the batch's rows are inserted; generated columns are computed, NOT NULL, CHECK and what must
       be unique are looked at (as INSERT does: sqlproxy/tables)
    D  rows that refer find what they refer to; what referred to rows that went is followed

Going first and coming second lets values that must be unique change places among the rows of one
batch. A row that stays as it is, is not written. All of it is one transaction, which commits only
if the table's record is the one that was read here: so no index is missed, however long a batch
was staged before.

Deliberately missing: numbers of sequences (identity, serial, tables without a primary key). Who
writes a batch gives every key, or a replay would look like new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kv.base import limits
from kv.base.errors import KvorumError, WriteConflict
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.ports import Clock
from procedures.sink.careful_batch import PlainTables, delete_range, put_rows, user_range
from procedures.sink.format.sink_parts import Part
from procedures.sink.sink_ports import Facts, Get, Pieces, SinkRefused, pages
from sqlproxy.catalog import catalog, relations
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import DISABLED, PUBLIC, Column, Table, stands_by
from sqlproxy.values import enums

if TYPE_CHECKING:
    from sqlproxy.declared.database import Declared
    from sqlproxy.front.bound.env import Env
    from sqlproxy.tables.changing import TableWriter
    from sqlproxy.tables.predicates import Holds
    from sqlproxy.tables.reading import Stored
    from txn.transaction import Transaction

_REMEMBERED: Final = 1_000  # names of tables


class _Reader:
    """`catalog.Reader` over a function that gets."""

    def __init__(self, get: Get) -> None:
        self._get = get

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        return await self._get(key)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        raise AssertionError("one table is looked up by gets")


class SinkTables:
    """See the module. SQL's machinery is imported when the first table needs it: 60 MB."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._names: dict[int, tuple[str, str]] = {}
        self._declared: dict[str, Declared] = {}

    async def facts(self, get: Get, table: int, path: str = "") -> Facts:
        found, version = await self._find(get, table, path)
        key = catalog.table_key(found.namespace, found.name)
        return Facts(found.path, found.ruled, key, version, partial(_check_shape, found))

    async def shown(self, get: Get, table: int, key: bytes) -> str:
        with suppress(KvorumError):
            found, _ = await self._find(get, table)
            if not found.plain:
                names = ", ".join(found.primary_key)
                values = ", ".join(map(str, codec(found).decode_key(key)))
                return f"({names})=({values}) of table {found.path}"
        return repr(key)[1:]

    async def write(self, t: Transaction, part: Part, pieces: Pieces) -> int:
        """See `Tables.write`."""
        table, version = await self._find(t.get, part.table, part.path)
        t.check(catalog.table_key(table.namespace, table.name), version)
        _check_shape(table, part)
        if part.replace is not None:
            await _within(table, part.replace, pieces)
        where = "" if part.replace is None else part.replace[2]
        if table.plain and where:
            return await _replace_plain(t, table, part, pieces)
        if not table.ruled and not where and not part.given:
            return await PlainTables().write(t, part, pieces)
        from sqlproxy.values.errors import SERIALIZATION_FAILURE, SqlError

        declared = await self._declarations(t, table)
        try:
            return await _Ruled(t, table, declared, self._env(table)).write(part, pieces)
        except SqlError as error:
            if error.sqlstate == SERIALIZATION_FAILURE:  # its type is being changed: in a moment
                raise WriteConflict(f"table {table.path}: {error.message}") from error
            detail = f" ({error.detail})" if error.detail else ""
            raise SinkRefused(
                f"table {table.path}: {error.message}{detail}", code="SINK_VIOLATION"
            ) from error

    async def _find(self, get: Get, number: int, path: str = "") -> tuple[Table, int]:
        """The table and the version of its record. Raises SinkRefused."""
        found: Table | None = None
        if known := self._names.get(number):
            found = await catalog.find(_Reader(get), *known)
        if found is None or found.id != number:
            found = await catalog.find_by_id(_Reader(get), TableId(number))
        if found is None or found.state not in (PUBLIC, DISABLED):
            raise SinkRefused(
                f"table {path or f'of id {number}'} was dropped, or emptied by TRUNCATE, since this"
                " write began; write again",
                code="TABLE_GONE",
            )
        if found.state == DISABLED:
            raise SinkRefused(
                f"table {found.path} is disabled; enable it first", code="TABLE_DISABLED"
            )
        if found.standby:
            raise SinkRefused(stands_by(found).message, code="SITE_STANDBY")
        if len(self._names) >= _REMEMBERED:
            self._names.clear()
        self._names[number] = (found.namespace, found.name)
        _, version = await get(catalog.table_key(found.namespace, found.name))
        return found, version

    async def _declarations(self, t: Transaction, table: Table) -> Declared:
        """What the table's database declares, in the transaction's snapshot."""
        from sqlproxy.declared.database import Declared

        version = await catalog.schema_version(t, table.namespace)
        if table.referenced_by:  # rows of other tables may change: as their records are now
            key = catalog.schema_key(table.namespace)
            t.check(key, (await t.get(key))[1])
        known = self._declared.get(table.namespace)
        if known is None or known.version != version:
            if len(self._declared) >= _REMEMBERED:
                self._declared.clear()
            found = await relations.list_database(t, table.namespace)
            known = self._declared[table.namespace] = Declared(found, version)
        return known

    def _env(self, table: Table) -> Env:
        from sqlproxy.front.bound.env import Env

        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        session = {"user": "spark", "session_user": "spark", "database": table.namespace}
        return Env(now=now, statement_now=now, session=session, clock=lambda: now)


def _check_shape(table: Table, part: Part) -> None:
    """The staged rows mean now what they meant when they were encoded. Where a column has got
    a type that is stored in another form, what they have would be NULL; NOT NULL and new columns
    without a default are looked at row by row only where the table has other rules. Columns that
    were dropped are left out. Raises SinkRefused.
    """
    staged = {id: (kind, nullable) for id, _, kind, nullable in part.shape}
    names = {name: (kind, nullable) for _, name, kind, nullable in part.shape}
    if not staged:
        return
    for column in table.columns:
        if column.generated is not None or column.hidden:
            continue
        known = staged.get(column.id)
        if known is None:
            bad = column.name in names or not (
                table.ruled or column.nullable or column.missing is not None
            )
        else:
            bad = (known[1] and not column.nullable and not table.ruled) or (
                known[0] != column.type and not _same_form(known[0], column)
            )
        if bad:
            null = "" if column.nullable else " NOT NULL"
            raise SinkRefused(
                f"column {column.name} of table {table.path} is {column.shown_type}{null} now"
                f" {_as_it_was(known or names.get(column.name))}; nothing was written. Run the"
                " write again: it reads the table as it is now",
                code="SINK_ALTERED",
            )


def _as_it_was(known: tuple[str, bool] | None) -> str:
    if known is None:
        return "and was not there when these rows were staged"
    kind, nullable = known
    return (
        f"and was {enums.shown(kind)}{'' if nullable else ' NOT NULL'} when these rows were staged"
    )


def _same_form(staged: str, column: Column) -> bool:
    """Whether values of the type that they were staged with are stored the same way as the
    column's.
    """
    from sqlproxy.ddl.change.altering import same_form
    from sqlproxy.values.types import resolve

    return same_form(resolve(staged), column.resolved)


async def _within(table: Table, replace: Sequence[Any], pieces: Pieces) -> None:
    """Every key is in the range that is replaced. Raises SinkRefused."""
    start, end, _ = replace
    if not start and not end:
        return
    async for keys, _ in pieces():
        for key in (keys[0], keys[-1]):
            if key < start or (end and key >= end):
                shown = key if table.plain else codec(table).decode_key(key)
                raise SinkRefused(
                    f"the row with the key {shown!r} is not in the range of keys that this write"
                    f" replaces in table {table.path} (keyFrom, keyTo)",
                    code="SINK_OUTSIDE",
                )


async def _replace_plain(t: Transaction, table: Table, part: Part, pieces: Pieces) -> int:
    """The rows of a key-value table that a condition on key and value means. Raises SinkRefused."""
    from sqlproxy.tables import conditions
    from sqlproxy.values.errors import SqlError

    assert part.replace is not None
    start, end, text = part.replace
    try:
        holds = conditions.holds(conditions.bound(table, text))
        gone = await delete_range(t, table.id, start, end, lambda k, v: holds((k, v)))
        async for keys, values in pieces():
            for key, value in zip(keys, values, strict=True):
                if value is not None and not holds((key, value)):
                    raise _not_replaced(table, key)
            for at in range(0, len(keys), limits.SINK_READ_ROWS):
                some = keys[at : at + limits.SINK_READ_ROWS]
                left = await t.multi_get([table_prefix(table.id) + key for key in some])
                for key, there in zip(some, left, strict=True):
                    if there is not None:
                        raise _in_the_way(table, key)
    except SqlError as error:
        raise SinkRefused(f"table {table.path}: {error.message}", code="SINK_VIOLATION") from error
    await put_rows(t, table.id, pieces)
    return gone


def _not_replaced(table: Table, shown: object) -> SinkRefused:
    return SinkRefused(
        f"the row with the key {shown!r} is not one of those that this write replaces in table"
        f" {table.path} (replaceWhere)",
        code="SINK_OUTSIDE",
    )


def _in_the_way(table: Table, shown: object) -> SinkRefused:
    return SinkRefused(
        f"the table {table.path} has a row with the key {shown!r} that this write does not replace"
        " (replaceWhere): it would be lost though no read under this condition shows it",
        code="SINK_OUTSIDE",
    )


class _Ruled:
    """One part of one batch. A row here is all columns of the descriptor, in user form."""

    def __init__(self, t: Transaction, table: Table, declared: Declared, env: Env) -> None:
        self.t, self.declared, self.env = t, declared, env
        found = declared.table_by_id(table.id)
        assert found is not None, "both are of one snapshot"
        self.table = found
        self.codec = codec(found)
        self.writer: TableWriter = declared.writer(found)
        self.prefix = table_prefix(found.id)
        self.follows = bool(found.referenced_by)
        self.gone: dict[bytes, Stored] = {}  # of rows that others refer to
        self.came: dict[bytes, Any] = {}
        self.given: frozenset[int] = frozenset()  # columns; of rows that are there the others stay
        self.merged: dict[bytes, list[object]] = {}  # by user key: such rows as they shall be

    async def write(self, part: Part, pieces: Pieces) -> int:
        """How many rows went or were replaced."""
        count = 0
        self.given = frozenset(part.given)
        where: Holds | None = None
        if part.replace is not None:
            where = self._condition(part.replace[2])
            count += await self._clear(part.replace, where)
        async for keys, values in pieces():
            for at in range(0, len(keys), limits.SINK_READ_ROWS):
                high = at + limits.SINK_READ_ROWS
                count += await self._go(keys[at:high], values[at:high], replaced=where is not None)
        async for keys, values in pieces():
            for at in range(0, len(keys), limits.SINK_READ_ROWS):
                high = at + limits.SINK_READ_ROWS
                await self._come(keys[at:high], values[at:high], where)
        await self._refer(pieces)
        return count

    def _condition(self, sql: str) -> Holds | None:
        from sqlproxy.tables import conditions

        return conditions.holds(conditions.bound(self.table, sql)) if sql else None

    async def _clear(self, replace: Sequence[Any], where: Holds | None) -> int:
        """A."""
        start, end, _ = replace
        count = 0
        range_ = user_range(self.table.id, start, end)
        async for rows in pages(self.t, *range_, limits.SINK_READ_ROWS):
            for key, value, version in rows:
                row = self._stored(key, value, version)
                if where is None or where(row.values):
                    self._delete(row)
                    count += 1
        return count

    async def _go(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], *, replaced: bool = False
    ) -> int:
        """B. `replaced`: the rows that a condition means are gone already, and no others may go."""
        count = 0
        found = await self.t.multi_get([self.prefix + key for key in keys])
        for key, value, there in zip(keys, values, found, strict=True):
            if there is not None and replaced:
                raise _in_the_way(self.table, self.codec.decode_key(key))
            if there is None or there[0] == value:
                continue
            row = self._stored(self.prefix + key, *there)
            if self.given and value is not None:
                merged = self._merged(row.values, self.codec.decode_row(key, value))
                if merged == list(row.values):
                    continue
                self.merged[key] = merged
            self._delete(row)
            count += 1
        return count

    def _merged(self, old: Sequence[object], new: Sequence[object]) -> list[object]:
        """What an upsert of some columns makes of a row."""
        columns = self.table.columns
        both = zip(columns, old, new, strict=True)
        return [there if c.id not in self.given else came for c, there, came in both]

    def _row(self, key: bytes, value: bytes) -> tuple[object, ...]:
        """A row of the batch, whole. Raises SqlError."""
        row = self.merged.get(key) or self.codec.decode_row(key, value)
        return self.writer.rules.finished(list(row), self.env)

    async def _come(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], where: Holds | None
    ) -> None:
        """C. Raises SqlError, SinkRefused."""
        found = await self.t.multi_get([self.prefix + key for key in keys])
        rows = []
        for key, value, there in zip(keys, values, found, strict=True):
            if value is None or there is not None:  # deleted, or as it was
                continue
            row = self._row(key, value)
            if where is not None and not where(row):
                raise _not_replaced(self.table, self.codec.decode_key(key))
            rows.append(row)
        for row, taken in zip(rows, await self.writer.seek(self.t, rows), strict=True):
            if taken is not None:
                raise self.writer.refused(taken, row)
        for row in rows:
            written = self.writer.insert(self.t, row)
            if self.follows:
                self.came[written] = row

    async def _refer(self, pieces: Pieces) -> None:
        """D. Raises SqlError."""
        from sqlproxy.tables.reading import Touched
        from sqlproxy.tables.referring import Children, Gone, check_parents

        if self.table.foreign_keys:
            every = frozenset(column.id for column in self.table.columns)
            async for keys, values in pieces():
                rows = [self._row(k, v) for k, v in zip(keys, values, strict=True) if v is not None]
                await check_parents(self.t, self.declared, self.table, rows, every)
        if self.gone:
            children = Children(self.t, self.declared, self.env, Touched())
            gone = [Gone(old, self.came.get(key)) for key, old in self.gone.items()]
            await children.follow(self.table, gone)

    def _delete(self, row: Stored) -> None:
        self.writer.delete(self.t, row)
        if self.follows:
            self.gone[row.key] = row

    def _stored(self, key: bytes, value: bytes, version: int) -> Stored:
        from sqlproxy.tables.reading import Stored

        return Stored(key, self.codec.decode_row(key[len(self.prefix) :], value), version)
