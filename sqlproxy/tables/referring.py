"""Foreign keys: rows that refer must find what they refer to, and what is referred to must not go.

Both sides hold what they read until their commit (`Transaction.hold_key`, `hold_range`): a child
holds its parent's key, a parent that goes holds the range in which its children would be. So of a
child that comes and its parent that goes at the same time only one is committed. A child therefore
also conflicts with any other change of its parent row: PostgreSQL's FOR KEY SHARE is finer.

At READ COMMITTED both lock, too: a child shares its parent's key (decision 1560), and what goes
locks it before it looks for children, at a snapshot of then; the range holds since that one. The
children that it finds are locked, and looked at again, as PostgreSQL's triggers do it.

Parents are looked for at the end of the statement, so that rows of one statement may refer to each
other; what happens to children of rows that went (NO ACTION, RESTRICT, CASCADE, SET NULL, SET
DEFAULT) is done then, too, table by table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from kv.base.keys import table_prefix, table_range
from kv.base.limits import SQL_CASCADES_MAX
from kv.base.strengths import KEY_SHARE, NO_KEY_UPDATE, UPDATE
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Const
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import NO_ACTION, PUBLIC, ForeignKey, Index, Table
from sqlproxy.tables.access import Access, Given, Stretch
from sqlproxy.tables.changing import TableWriter
from sqlproxy.tables.deferring import Deferred, Later, Noting
from sqlproxy.tables.entries import index_codec
from sqlproxy.tables.reading import Stored, TableReader, Touched, found_at
from sqlproxy.tables.row_locking import lock_changed, lock_going, share_keys
from sqlproxy.tables.rules import Row
from sqlproxy.values.errors import FOREIGN_KEY_VIOLATION, STATEMENT_TOO_COMPLEX, SqlError
from txn.transaction import Transaction


class Tables(Protocol):
    """The other tables of the database, as the statement sees them."""

    def table_by_id(self, table: int) -> Table | None: ...

    def referring_to(self, table: int) -> Sequence[tuple[Table, ForeignKey]]:
        """The foreign keys of other tables (and its own) that refer to it."""
        ...

    def writer(self, table: Table) -> TableWriter: ...


@dataclass(frozen=True, slots=True)
class Gone:
    """A row that was changed or removed (`new` None)."""

    old: Stored
    new: Row | None


def places(table: Table, columns: Iterable[int]) -> tuple[int, ...]:
    """Where columns stand in a row, by their ids."""
    at = {column.id: place for place, column in enumerate(table.columns)}
    return tuple(at[number] for number in columns)


async def check_parents(
    t: Transaction,
    tables: Tables,
    table: Table,
    rows: Sequence[Row],
    changed: frozenset[int],
    deferred: Deferred | None = None,
) -> None:
    """Every row finds what it refers to, or will at the commit (`deferred`). `changed`: ids of the
    columns that may be new; all of an inserted row. Raises SqlError (23503).
    """
    for key in table.foreign_keys:
        if changed.isdisjoint(key.columns):
            continue
        mine = places(table, key.columns)
        found = [values for row in rows if None not in (values := tuple(row[at] for at in mine))]
        if deferred is not None and deferred.defers(table.id, key):
            for values in found:
                deferred.add(table.id, key, values, gone=False)
        else:
            await _check_parents(t, tables, table, key, found)


async def _check_parents(
    t: Transaction,
    tables: Tables,
    table: Table,
    key: ForeignKey,
    rows: Sequence[tuple[object, ...]],
) -> None:
    """`rows`: the values of the foreign key's columns."""
    parent = tables.table_by_id(key.table)
    assert parent is not None, "a table cannot be dropped while one refers to it"
    wanted: dict[bytes, Sequence[object]] = {}
    for values in rows:
        wanted.setdefault(_parent_key(parent, key, values), values)
    keys = list(wanted)
    if not keys:
        return
    for at, there in (await _held(t, parent, keys)).items():
        if not there:
            raise _no_parent(tables, table, parent, key, wanted[at])


async def _held(t: Transaction, parent: Table, keys: Sequence[bytes]) -> dict[bytes, bool]:
    """Whether there is a row, or an entry, at each key, which stays until the commit then."""
    locked = await share_keys(t, parent, keys)
    # A version that is committed and still an intent: who shares its key passes it.
    if unseen := [key for key, version in locked.items() if not version]:
        for key, one in zip(unseen, await t.newest(unseen), strict=True):
            locked[key] = 0 if one is None else one[1]
    others = [key for key in keys if key not in locked]
    found = dict(zip(others, await found_at(t, others), strict=True))
    for at, one in found.items():
        if one is not None:
            _hold(t, at, one[1])
    return {key: locked[key] > 0 if key in locked else found[key] is not None for key in keys}


def _hold(t: Transaction, key: bytes, version: int) -> None:
    """The row of this version, which somebody refers to, stays until the commit."""
    if t.renews:  # its snapshot is not that of its beginning
        t.computes_from(key, version)
    else:
        t.hold_key(key)


def parents_of(
    tables: Tables, table: Table, row: Row
) -> list[tuple[bytes, Callable[[], SqlError]]]:
    """What a row refers to: storage keys that must be there, each with the error if it is not."""
    found: list[tuple[bytes, Callable[[], SqlError]]] = []
    for key in table.foreign_keys:
        values = tuple(row[at] for at in places(table, key.columns))
        if None in values:
            continue
        parent = tables.table_by_id(key.table)
        assert parent is not None, "a table cannot be dropped while one refers to it"
        error = partial(_no_parent, tables, table, parent, key, values)
        found.append((_parent_key(parent, key, values), error))
    return found


def _no_parent(
    tables: Tables, table: Table, parent: Table, key: ForeignKey, values: Sequence[object]
) -> SqlError:
    rules = tables.writer(table).rules
    words = f'Key {{}} is not present in table "{parent.name}".'
    return SqlError(
        FOREIGN_KEY_VIOLATION,
        f'insert or update on table "{table.name}" violates foreign key constraint "{key.name}"',
        detail=rules.key_detail(words, places(table, key.columns), values),
        schema=schema_of(table.namespace),
        table=table.name,
        constraint=key.name,
    )


def _still_referenced(
    tables: Tables, parent: Table, child: Table, key: ForeignKey, values: Sequence[object]
) -> SqlError:
    at = places(parent, key.referenced)
    rules = tables.writer(parent).rules
    words = f'Key {{}} is still referenced from table "{child.name}".'
    return SqlError(
        FOREIGN_KEY_VIOLATION,
        f'update or delete on table "{parent.name}" violates foreign key constraint '
        f'"{key.name}" on table "{child.name}"',
        detail=rules.key_detail(words, at, values),
        schema=schema_of(child.namespace),
        table=child.name,
        constraint=key.name,
    )


async def check_deferred(
    t: Transaction, tables: Tables, env: Env, deferred: Deferred, *, every: bool
) -> list[Noting]:
    """What was noted: there is a parent, or no child. `every`: also of what is still deferred, as
    the commit comes. Which ones were looked at; all of them stay noted. Raises SqlError (23503).
    """
    done: list[Noting] = []
    for of, noted in list(deferred.noted.items()):
        child, parent = tables.table_by_id(of.table), tables.table_by_id(of.parent)
        if child is None or parent is None:
            continue  # it was dropped meanwhile
        alike = [key for key in child.foreign_keys if Noting.of(child.id, key) == of]
        if not alike or (not every and all(deferred.defers(child.id, key) for key in alike)):
            continue
        key = alike[0]  # others of the same columns say the same
        done.append(of)
        wanted = {_parent_key(parent, key, values): (values, gone) for values, gone in noted}
        children = Children(t, tables, env, Touched())
        keys = list(wanted)
        held = await _held(t, parent, keys)
        if t.renews and not all(held.values()):
            await t.renew()
        for at, there in held.items():
            values, gone = wanted[at]
            if not there and await children.referring(child, key, values):
                raise (
                    _still_referenced(tables, parent, child, key, values)
                    if gone
                    else _no_parent(tables, child, parent, key, values)
                )
    return done


def _parent_key(parent: Table, key: ForeignKey, values: Sequence[object]) -> bytes:
    """The storage key at which the parent, or its entry in a unique index, must be."""
    by_column = dict(zip(key.referenced, values, strict=True))
    own = [column.id for column in parent.key_columns]
    if set(own) == set(key.referenced):
        return table_prefix(parent.id) + codec(parent).encode_key([by_column[n] for n in own])
    index = _unique_index(parent, key.referenced)
    found = index_codec(parent, index).unique_key([by_column[n] for n in index.column_ids])
    assert found is not None
    return table_prefix(index.id) + found


def _unique_index(parent: Table, columns: Sequence[int]) -> Index:
    return next(
        index
        for index in parent.indexes
        if index.immediate
        and index.state == PUBLIC
        and not index.where
        and set(index.column_ids) == set(columns)
    )


class Children:
    """What happens to the rows that referred to rows that went. One per statement."""

    def __init__(
        self,
        t: Transaction,
        tables: Tables,
        env: Env,
        touched: Touched,
        later: Later | None = None,
    ) -> None:
        self._t, self._tables, self._env, self._touched = t, tables, env, touched
        self._later = later
        self._deferred = None if later is None else later.deferred
        self._done = 0

    async def follow(self, table: Table, gone: Sequence[Gone]) -> None:
        """Raises SqlError (23503)."""
        for child, key in self._tables.referring_to(table.id):
            at = places(table, key.referenced)
            lost = [one for one in gone if one.new is None or _moved(one, at)]
            if lost:
                left = [values for one in lost if None not in (values := _values(one.old, at))]
                keys = [_parent_key(table, key, values) for values in left]
                await lock_going(self._t, table, keys)
                await self._follow(table, child, key, lost, at)

    async def _follow(
        self,
        table: Table,
        child: Table,
        key: ForeignKey,
        lost: Sequence[Gone],
        at: Sequence[int],
    ) -> None:
        mine, removed = places(child, key.columns), list[Gone]()
        for one in lost:
            values = _values(one.old, at)
            if None in values or await self._still_there(table, key, values):
                continue
            action = key.on_delete if one.new is None else key.on_update
            later = self._deferred
            if later is not None and action == NO_ACTION and later.defers(child.id, key):
                later.add(child.id, key, values, gone=True)
                continue
            for row in await self._locked(child, key, values, action):
                removed.append(self._act(table, child, key, one, row, mine, at))
        if removed:
            self._done += len(removed)
            if self._done > SQL_CASCADES_MAX:
                raise SqlError(
                    STATEMENT_TOO_COMPLEX,
                    f"more than {SQL_CASCADES_MAX} rows refer to what this statement removes",
                    hint="Remove the referring rows first, in parts.",
                )
            rows = [one.new for one in removed if one.new is not None]
            changed = frozenset(key.columns)
            if self._later is not None:
                moved = [one for one in removed if one.new is not None]
                writer, olds = self._tables.writer(child), [one.old for one in moved]
                await writer.place(self._t, self._later, rows, olds)
            await check_parents(self._t, self._tables, child, rows, changed, self._deferred)
            await self.follow(child, removed)

    async def _still_there(self, table: Table, key: ForeignKey, values: Sequence[object]) -> bool:
        """Whether another row of the statement has taken the place of the one that went."""
        (found,) = await self._t.multi_get([_parent_key(table, key, values)])
        return found is not None

    async def referring(
        self, child: Table, key: ForeignKey, values: tuple[object, ...]
    ) -> list[Stored]:
        """The rows with these values, none of which may come until the commit."""
        found, reader = await self._read(child, key, values)
        self._hold(reader, found=bool(found))
        return found

    async def _read(
        self, child: Table, key: ForeignKey, values: tuple[object, ...]
    ) -> tuple[list[Stored], TableReader]:
        """The rows with these values, and what has read them."""
        reader = TableReader(child, _access(child, key, values))
        mine = places(child, key.columns)
        found: list[Stored] = []
        async for rows in reader.batches(self._t, self._env, self._touched):
            found += [row for row in rows if _values(row, mine) == values]
        return found, reader

    def _hold(self, reader: TableReader, *, found: bool) -> None:
        """No row may come where it has just read. `found`: there is one, which is locked."""
        index = reader.access.index
        where = reader.table.id if index is None else index.id
        prefix = table_prefix(where)
        spans = reader.spans(self._env)
        for span in spans.ranges:
            start, last = table_range(where)
            end = prefix + span.end if span.end else last
            self._t.hold_range(prefix + span.start if span.start else start, end)
        for point in spans.points:
            if not self._t.renews:
                self._t.hold_key(prefix + point)
            elif not found:
                self._t.hold_range(prefix + point, prefix + point + b"\x00")

    async def _locked(
        self, child: Table, key: ForeignKey, values: tuple[object, ...], action: str
    ) -> list[Stored]:
        """The rows with these values; at READ COMMITTED locked, and as of a snapshot of then: what
        is waited for may change which rows these are.
        """
        mine, strength = places(child, key.columns), _STRENGTHS.get(action, KEY_SHARE)

        def meant(row: Stored) -> bool | None:
            return _values(row, mine) == values or None

        while True:
            rows, reader = await self._read(child, key, values)
            found = [(row, True) for row in rows]
            kept = [row for row, _ in await lock_changed(self._t, child, found, meant, strength)]
            if kept == rows:
                self._hold(reader, found=bool(rows))
                return rows
            await self._t.renew()

    def _act(
        self,
        table: Table,
        child: Table,
        key: ForeignKey,
        gone: Gone,
        row: Stored,
        mine: Sequence[int],
        at: Sequence[int],
    ) -> Gone:
        action = key.on_delete if gone.new is None else key.on_update
        writer = self._tables.writer(child)
        values = list(row.values)
        match action:
            case "cascade" if gone.new is None:
                self._t.computes_from(row.key, row.version)
                writer.delete(self._t, row)
                return Gone(row, None)
            case "cascade":
                assert gone.new is not None
                for place, source in zip(mine, at, strict=True):
                    values[place] = gone.new[source]
            case "set null":
                for place in mine:
                    values[place] = None
            case "set default":
                for place in mine:
                    default = writer.rules.defaults.get(place)
                    values[place] = None if default is None else default((), self._env)
            case _:
                key_values = [gone.old.values[place] for place in at]
                raise _still_referenced(self._tables, table, child, key, key_values)
        new = writer.rules.finished(values, self._env)
        self._t.computes_from(row.key, row.version)
        writer.update(self._t, row, new, late=self._later is None)
        return Gone(row, new)


_STRENGTHS: Final = {
    "cascade": UPDATE,
    "set null": NO_KEY_UPDATE,
    "set default": NO_KEY_UPDATE,
}
"""How children are locked by what happens to them."""


def _values(row: Stored, at: Sequence[int]) -> tuple[object, ...]:
    return tuple(row.values[place] for place in at)


def _moved(one: Gone, at: Sequence[int]) -> bool:
    assert one.new is not None
    return any(one.old.values[place] != one.new[place] for place in at)


def _access(child: Table, key: ForeignKey, values: Sequence[object]) -> Access:
    """The way to rows with these values: an index that begins with the columns, else all rows."""
    by_column = dict(zip(key.columns, values, strict=True))
    own = tuple(column.id for column in child.key_columns)
    ways: list[tuple[Index | None, tuple[int, ...], bool]] = [(None, own, True)]
    ways += [
        (i, i.column_ids, i.immediate) for i in child.indexes if i.state == PUBLIC and not i.where
    ]
    for index, components, unique in ways:
        head = components[: len(by_column)]
        if set(head) == set(by_column):
            given = tuple(Given(Const(oid=0, value=by_column[number])) for number in head)
            return Access(index, components, (Stretch(given),), unique)
    return Access(None, own)
