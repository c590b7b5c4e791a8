"""Rows of one table in and out of a transaction: the row, its index entries, what must be unique.

    insert   row absent (condition 0), entries of unique indexes absent too, other entries
    update   the row in place; if its key moved, the old row goes and the new one must be absent
    delete   the row and its entries
    place    of changed rows the entries of deferrable constraints

Uniqueness is a condition of the write itself (P9, P11): at the commit the key must be absent, so
two inserts that race have one winner. `seek` also asks now, so that a transaction learns of a
duplicate at its statement and not at its commit; what asks nothing (one statement that is a
transaction by itself) gets the same error from `violated` when the commit was refused.

A deferrable constraint is checked when a statement has ended, or at the commit; until then rows of
one transaction may share a key. Its index is an ordinary unique one all the same. The entry of the
second row lies beside that of the first, under the same key with the row's own key after it, only
in the transaction's buffer: `deferring.Spots` notes it, and before anything is committed `settle`
moves it to where it belongs, or finds that there are two (decision 1700). Whoever says nothing of
that (`late` True) writes such an entry at its place at once, as those of other unique indexes.

Indexes that are being made or dropped (F1; sqlproxy/ddl/change): a `delete_only` one gets no new
entries but loses old ones, a `write_only` one is maintained and not read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kv.base.errors import ConditionFailed
from kv.base.keys import table_prefix
from kv.base.limits import SQL_COPY_BATCH_ROWS
from kv.base.strengths import SHARE
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.rows import RowCodec, codec
from sqlproxy.rows.schema import DELETE_ONLY, PUBLIC, Table, stands_by
from sqlproxy.tables.deferring import Later
from sqlproxy.tables.entries import IndexCodec, index_codec
from sqlproxy.tables.reading import KeysSeen, Stored, found_at
from sqlproxy.tables.row_locking import Wait, has_room
from sqlproxy.tables.rules import Row, Rules
from sqlproxy.values.errors import (
    SERIALIZATION_FAILURE,
    UNIQUE_VIOLATION,
    SqlError,
    from_store,
)
from txn.transaction import Transaction


class Seen(Protocol):
    """What a transaction has written: `txn.Transaction`."""

    def has_put(self, key: bytes) -> bool: ...


class Writes(Protocol):
    """Where changes of rows go: `txn.Transaction`, or what collects them."""

    def put(self, key: bytes, value: bytes, *, cond: int | None = None) -> None:
        """Raises ConditionFailed: to be absent, and written before."""
        ...

    def delete(self, key: bytes, *, tombstone: bool = False) -> None:
        """`tombstone`: leave one even where nothing is."""
        ...


class Changes(Writes, Seen, Protocol):
    """Where rows go that the transaction may have written itself."""


class ManyWrites(Seen, Protocol):
    """Where changes of many rows go: `txn.Transaction`."""

    def put_rows(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None: ...

    def delete_rows(self, keys: Sequence[bytes], *, tombstone: bool = False) -> None: ...

    def change_rows(
        self, keys: Sequence[bytes], versions: Sequence[int], values: Sequence[bytes] | None
    ) -> None:
        """`values` None: they go."""
        ...


@dataclass(frozen=True, slots=True)
class _Index:
    """One index and how its entries are written."""

    codec: IndexCodec
    prefix: bytes
    places: tuple[int, ...]  # of its columns in the row
    unique: bool
    adds: bool  # not while it is delete-only
    partial: bool
    used: tuple[int, ...]  # places of all that its entries are made of, but for the row's key
    filled: bool  # else what is deleted may come later, from a snapshot of before (kv.mvcc.ingest)
    late: bool  # it is checked later than each row is written

    def entry(self, row: Row) -> tuple[bytes, bytes, bool] | None:
        """Storage key, value, and whether nobody else may have the key; None: a partial index has
        no entry of the row. Raises SqlError of its predicate.
        """
        if self.partial and not self.codec.has(row):
            return None
        return self._made(row)

    def stored(self, row: Row) -> tuple[bytes, bytes, bool] | None:
        """The same of a row that is there, perhaps from before the index."""
        if self.partial and not self.codec.had(row):
            return None
        return self._made(row)

    def entries(self, rows: Sequence[Row]) -> tuple[list[bytes], list[bytes]]:
        """Storage keys and values of the entries of rows that have one."""
        keys, values = self.codec.entries(rows)
        prefix = self.prefix
        return [prefix + key for key in keys], values

    def had(self, rows: Sequence[Row]) -> dict[bytes, bytes]:
        """The entries of rows that are there, perhaps from before the index."""
        some = [row for row in rows if self.codec.had(row)] if self.partial else rows
        return dict(zip(*self.entries(some), strict=True))

    def place(self, t: Seen, key: bytes, row_key: bytes) -> bytes:
        """Where the entry of a row is that has this key; `row_key`: the row's storage key."""
        return beside if self.late and t.has_put(beside := beside_key(key, row_key)) else key

    def _made(self, row: Row) -> tuple[bytes, bytes, bool]:
        key, value = self.codec.entry(row)
        alone = self.unique and not any(row[place] is None for place in self.places)
        return self.prefix + key, value, alone


def beside_key(key: bytes, row_key: bytes) -> bytes:
    """Where an entry lies for as long as another row has its key."""
    return key + row_key[4:]


class Part(NamedTuple):
    """Rows, or entries of one index: storage keys, values, and whether the keys must be new."""

    keys: list[bytes]
    values: list[bytes]
    absent: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """A row that stands in the way of another: `row_key` is its storage key, `constraint` the name
    of what it would break, `at` the storage key that both want.
    """

    constraint: str
    row_key: bytes
    at: bytes


def being_changed(table: Table) -> SqlError:
    """Nobody writes: for a moment, as a column is being replaced (sqlproxy/ddl/change/retyping.py),
    or for as long as another cluster's link writes to it (kvorum/sites).
    """
    if table.standby:
        return from_store(stands_by(table))
    return SqlError(
        SERIALIZATION_FAILURE,
        f'the type of a column of table "{table.name}" is being changed',
        hint="Run the transaction again.",
    )


class TableWriter:
    """See the module. Made once per version of a descriptor."""

    def __init__(self, table: Table, rules: Rules) -> None:
        self.table, self.rules = table, rules
        self._frozen = table.frozen or table.standby
        self._codec = codec(table)
        self.prefix = table_prefix(table.id)
        place = {column.id: at for at, column in enumerate(table.columns)}
        self.key_places = tuple(place[column.id] for column in table.key_columns)
        self._indexes = tuple(
            _Index(
                index_codec(table, index),
                table_prefix(index.id),
                tuple(place[number] for number in index.column_ids),
                index.unique,
                index.state != DELETE_ONLY,
                bool(index.where),
                tuple(place[number] for number in index.used_ids),
                index.state == PUBLIC,
                index.deferrable,
            )
            for index in table.indexes
        )
        self._late = [
            (one, index)
            for one, index in zip(self._indexes, table.indexes, strict=True)
            if one.late
        ]

    def key_of(self, row: Row) -> bytes:
        """The storage key of a row."""
        return self.prefix + self._codec.encode_key([row[at] for at in self.key_places])

    def insert(self, t: Writes, row: Row, *, late: bool = True) -> bytes:
        """Write a row that must be new; its storage key. `late` False: `place` writes what
        deferrable constraints have of it. Raises SqlError (23505) if this transaction wrote its
        key, or one of its unique entries', before.
        """
        if self._frozen:
            raise being_changed(self.table)
        key, value = self._codec.encode_row(row)
        key = self.prefix + key
        self._put_new(t, key, value, row)
        for index in self._indexes:
            if index.late and not late:
                continue
            if index.adds and (made := index.entry(row)) is not None:
                at, entry, alone = made
                if alone:
                    self._put_new(t, at, entry, row)
                else:
                    t.put(at, entry)
        return key

    @property
    def keys_unique(self) -> int:
        """How many keys of a row nobody else may have."""
        return 1 + sum(index.unique and not index.late for index in self._indexes)

    @property
    def late(self) -> bool:
        """Whether `place` has anything to do."""
        return bool(self._late)

    @property
    def codec(self) -> RowCodec:
        """Of its rows."""
        return self._codec

    def new(self, slots: list[object]) -> tuple[bytes, bytes]:
        """Storage key and value of a row that is given in stored form (`RowCodec.encode_slots`), of
        a table without indexes. Raises SqlError (40001), TooLarge.
        """
        if self._frozen:
            raise being_changed(self.table)
        key, value = self._codec.encode_slots(slots)
        return self.prefix + key, value

    def check_open(self) -> None:
        """Raises SqlError (40001) while nobody may write."""
        if self._frozen:
            raise being_changed(self.table)

    def replaced(self, row: Row) -> bytes:
        """The value of a row that keeps its key and all entries of indexes. Raises SqlError
        (40001), InvalidArgument, TooLarge.
        """
        self.check_open()
        return self._codec.encode_value(row)

    def encoded(self, columns: Sequence[Sequence[object]]) -> list[Part]:
        """What `insert` would write of many rows, given column by column: key space by key
        space. Raises SqlError (40001).
        """
        self.check_open()
        keys, values = self._codec.encode_columns(columns)
        prefix = self.prefix
        parts = [Part([prefix + key for key in keys], values, True)]
        rows = list(zip(*columns, strict=True)) if self._indexes else []
        for index in self._indexes:
            if not index.adds:
                continue
            has = [row for row in rows if index.codec.has(row)] if index.partial else rows
            alone: list[Row] = []
            if index.unique:
                alone = [row for row in has if not any(row[at] is None for at in index.places)]
                has = [row for row in has if any(row[at] is None for at in index.places)]
            parts += [
                Part(*index.entries(some), new)
                for some, new in ((alone, True), (has, False))
                if some
            ]
        return parts

    def update_many(
        self, t: ManyWrites, olds: Sequence[Stored], rows: Sequence[Row], changed: Collection[int]
    ) -> None:
        """`update` of many rows, column by column. Only the columns at these places may differ,
        none of which is of the primary key or of a unique index. Raises SqlError (40001),
        InvalidArgument, TooLarge.
        """
        self.check_open()
        values = self._codec.encode_values(list(zip(*rows, strict=True)))
        t.change_rows([old.key for old in olds], [old.version for old in olds], values)
        before = [old.values for old in olds]
        for index in self._indexes:
            if index.adds and not any(at in changed for at in index.used):
                continue  # the same entries
            had = index.had(before)
            gone = set(had)
            if index.adds:
                has = [row for row in rows if index.codec.has(row)] if index.partial else rows
                made = dict(zip(*index.entries(has), strict=True))
                new = [key for key, value in made.items() if had.get(key) != value]
                t.put_rows(new, [made[key] for key in new])
                gone -= made.keys()
            t.delete_rows([key for key in had if key in gone], tombstone=not index.filled)

    def delete_many(self, t: ManyWrites, olds: Sequence[Stored]) -> None:
        """`delete` of many rows, column by column. Raises SqlError (40001)."""
        self.check_open()
        t.change_rows([old.key for old in olds], [old.version for old in olds], None)
        before = [old.values for old in olds]
        for index in self._indexes:
            keys = list(index.had(before))
            if index.late:
                made = [(index.stored(old.values), old.key) for old in olds]
                keys = [index.place(t, one[0], row_key) for one, row_key in made if one is not None]
            t.delete_rows(keys, tombstone=not index.filled)

    def update(self, t: Writes, old: Stored, row: Row, *, late: bool = True) -> bytes:
        """Write a changed row; its storage key, which may be another one. `late`: see `insert`."""
        if self._frozen:
            raise being_changed(self.table)
        key, value = self._codec.encode_row(row)
        key = self.prefix + key
        if key == old.key:
            t.put(key, value)
        else:
            t.delete(old.key)
            self._put_new(t, key, value, row)
        values, moved = old.values, key != old.key
        for index in self._indexes:
            if index.late and not late:
                continue
            if index.adds and not moved and all(values[at] is row[at] for at in index.used):
                continue  # the same entry
            # An index that only loses entries asks its predicate nothing of the new row.
            had, made = index.stored(old.values), index.entry(row) if index.adds else None
            before, old_entry = (None, None) if had is None else had[:2]
            if before is not None and (made is None or made[0] != before):
                t.delete(before, tombstone=not index.filled)
            if made is None:
                continue
            at, entry, alone = made
            if before != at and alone:
                self._put_new(t, at, entry, row)
            elif before != at or old_entry != entry:
                t.put(at, entry)
        return key

    def delete(self, t: Changes, old: Stored) -> None:
        """Remove a row and what points to it."""
        if self._frozen:
            raise being_changed(self.table)
        t.delete(old.key)
        for index in self._indexes:
            self._remove(t, index, old)

    @staticmethod
    def _remove(t: Changes, index: _Index, old: Stored) -> None:
        """The entry of a row that is there."""
        if (had := index.stored(old.values)) is not None:
            t.delete(index.place(t, had[0], old.key), tombstone=not index.filled)

    def _put_new(self, t: Writes, key: bytes, value: bytes, row: Row) -> None:
        try:
            t.put(key, value, cond=0)
        except ConditionFailed:
            raise self._duplicate(key, row) from None

    # -- what is unique later

    async def place(
        self,
        t: Transaction,
        later: Later,
        rows: Sequence[Row],
        olds: Sequence[Stored] = (),
    ) -> None:
        """The entries that deferrable constraints have of rows that are written; `olds`: the rows
        that they replace. All old ones go before a new one comes, so it is no matter in which order
        rows of one statement move.
        """
        for one, index in self._late:
            wanted: list[tuple[bytes, bytes, bytes]] = []  # key, value, the row's key
            for n, row in enumerate(rows):
                made = one.entry(row) if one.adds else None
                if olds and not self._goes(t, one, olds[n], row, made):
                    continue
                if made is None:
                    continue
                if made[2]:
                    wanted.append((made[0], made[1], self.key_of(row)))
                else:
                    t.put(made[0], made[1])
            waits = later.deferred is None or not later.deferred.defers(self.table.id, index)
            free = await self._free(t, [key for key, _, _ in wanted], waits=waits)
            for key, value, row_key in wanted:
                if key in free:
                    t.put(key, value, cond=0)
                    free.remove(key)
                else:
                    t.put(beside := beside_key(key, row_key), value)
                    later.spots.add(self.table.id, index, key, beside)

    def _goes(
        self,
        t: Transaction,
        index: _Index,
        old: Stored,
        row: Row,
        made: tuple[bytes, bytes, bool] | None,
    ) -> bool:
        """Whether a changed row has another entry; then the old one is gone."""
        had = index.stored(old.values)
        if had is None:
            return True
        at = index.place(t, had[0], old.key)
        if made is not None and made[0] == had[0] and (at == had[0] or old.key == self.key_of(row)):
            if made[1] != had[1]:
                t.put(at, made[1])
            return False
        t.delete(at, tombstone=not index.filled)
        return True

    async def _free(self, t: Transaction, keys: Sequence[bytes], *, waits: bool) -> set[bytes]:
        """Which of these keys no other row has, or may have: at READ COMMITTED they are locked. Who
        does not wait finds out later.
        """
        unique = sorted(set(keys))
        if waits:
            found = await self.found(t, unique)
            return {key for key, one in zip(unique, found, strict=True) if one is None}
        known = zip(unique, await found_at(t, unique), strict=True)
        free = {key for key, one in known if one is None}
        others = [key for key in unique if key in free and not t.wrote(key)]
        if t.renews and has_room(t, len(others)):
            came = await Wait(self.table.name, "skip").lock(t, others)
            free -= {key for key in others if came.get(key, 1)}
        return free

    async def settle(self, t: Transaction, spots: Mapping[bytes, Collection[bytes]]) -> None:
        """Of a deferrable constraint what lies beside a key that is free by now goes there.
        `spots`: for each key what may lie beside it. Raises SqlError (23505).
        """
        keys = [key for key, beside in sorted(spots.items()) if any(map(t.has_put, beside))]
        for n in range(0, len(keys), SQL_COPY_BATCH_ROWS):
            some = keys[n : n + SQL_COPY_BATCH_ROWS]
            for key, there in zip(some, await self.found(t, some), strict=True):
                beside = [at for at in spots[key] if t.has_put(at)]
                if len(beside) + (there is not None) > 1:
                    error = self.violated(key)
                    assert error is not None
                    raise error
                value, _ = await t.get(beside[0])
                assert value is not None
                t.delete(beside[0])
                t.put(key, value, cond=0)

    # -- what is unique

    async def seek(
        self,
        t: Transaction,
        rows: Sequence[Row],
        old: Sequence[Stored | None] = (),
        first: Collection[str] = (),
        strength: int | None = None,
        only: Collection[str] = (),
        *,
        late: bool = True,
    ) -> list[Taken | None]:
        """For each row what stands in its way in the store, or written by this transaction; None if
        nothing does. `old`: the rows that they replace, which are not in their own way. `first`:
        the constraints that are reported when others are in the way, too. `strength`: see `found`.
        `only`: the constraints that are looked at; none: all. `late`: see `insert`.
        """
        wanted = self._wanted(rows, old, late=late)
        if only:
            wanted = [one for one in wanted if self._named(one[2]) in only]
        unique = sorted({at for _, at, _ in wanted})
        found = dict(zip(unique, await self.found(t, unique, strength), strict=True))
        if first:
            wanted.sort(key=lambda one: self._named(one[2]) not in first)
        return self._taken(len(rows), wanted, found)

    async def look(
        self, seen: KeysSeen, rows: Sequence[Row], old: Sequence[Stored | None]
    ) -> list[Taken | None]:
        """`seek` in one snapshot: nobody is waited for, and nothing is locked."""
        wanted = self._wanted(rows, old)
        unique = sorted({at for _, at, _ in wanted})
        found = dict(zip(unique, await found_at(seen, unique), strict=True))
        return self._taken(len(rows), wanted, found)

    def _taken(
        self,
        count: int,
        wanted: Sequence[tuple[int, bytes, _Index | None]],
        found: Mapping[bytes, tuple[bytes, int] | None],
    ) -> list[Taken | None]:
        """For each of so many rows what it found first of all that it wants."""
        taken: list[Taken | None] = [None] * count
        for n, at, of in wanted:
            there = found[at]
            if there is None or taken[n] is not None:
                continue
            if of is None:
                taken[n] = Taken(self.table.primary_key_name, at, at)
            else:
                row_key = self.prefix + of.codec.row_key(at[4:], there[0])
                taken[n] = Taken(of.codec.index.name, row_key, at)
        return taken

    def apart(self, rows: Sequence[Row]) -> bool:
        """Whether no two of them want what only one may have."""
        wanted = [at for _, at, _ in self._wanted(rows, (), late=False)]
        return len(set(wanted)) == len(wanted)

    async def free(self, t: Transaction, rows: Sequence[Row], old: Sequence[Stored]) -> bool:
        """Whether nothing is in the way of rows that replace these, in whatever order they do."""
        wanted = [at for _, at, _ in self._wanted(rows, old, late=False)]
        unique = sorted(set(wanted))
        return len(unique) == len(wanted) and not any(await self.found(t, unique))

    def _wanted(
        self, rows: Sequence[Row], old: Sequence[Stored | None], *, late: bool = True
    ) -> list[tuple[int, bytes, _Index | None]]:
        """What is to be new: the number of the row, the storage key, and the index that has it."""
        wanted: list[tuple[int, bytes, _Index | None]] = []
        for n, row in enumerate(rows):
            before = old[n] if old else None
            key = self.key_of(row)
            if before is None or before.key != key:
                wanted.append((n, key, None))
            for index in self._indexes:
                looks = index.adds and index.unique and (late or not index.late)
                made = index.entry(row) if looks else None
                if made is None or not made[2]:
                    continue
                had = None if before is None else index.stored(before.values)
                if had is None or had[0] != made[0]:
                    wanted.append((n, made[0], index))
        return wanted

    async def found(
        self, t: Transaction, keys: Sequence[bytes], strength: int | None = None
    ) -> list[tuple[bytes, int] | None]:
        """What is at storage keys that are to be new. At READ COMMITTED a key that is absent is
        locked, and of one that is there the row that has it, so strongly; None: only until it is
        known that it stays. Whoever gives a key up has locked its row, too, and is waited for.
        """
        known = dict(zip(keys, await found_at(t, keys), strict=True))
        waited: list[bytes] = []
        left = list(known) if t.renews and has_room(t, 2 * len(keys)) else []
        while left:
            others = [key for key in left if not t.wrote(key)]
            absent = [key for key in others if known[key] is None]
            rows = {key: self._row_of(key, one[0]) for key in others if (one := known[key])}
            came = await Wait(self.table.name).lock(t, absent)
            wait = Wait(self.table.name, strength=SHARE if strength is None else strength)
            if strength is None:
                waited += [row for row in rows.values() if not t.has_locked(row)]
            versions = await wait.lock(t, list(dict.fromkeys(rows.values())))
            again = [key for key in absent if came[key]]  # somebody was faster
            for key, row in rows.items():
                one = known[key]
                if one is None or row != key or versions[row] != one[1]:
                    again.append(key)
            if rows or again:
                await t.renew()
            left = []
            for key, one in zip(again, await found_at(t, again), strict=True):
                if known[key] != one:
                    known[key] = one
                    left.append(key)
        if waited:  # only who renews has waited
            await t.unlock(waited)
        return [known[key] for key in keys]

    def _row_of(self, key: bytes, value: bytes) -> bytes:
        """The key of the row that has a unique key."""
        if key.startswith(self.prefix):
            return key
        index = next(one for one in self._indexes if key.startswith(one.prefix))
        return self.prefix + index.codec.row_key(key[4:], value)

    def _named(self, index: _Index | None) -> str:
        return self.table.primary_key_name if index is None else index.codec.index.name

    def refused(self, taken: Taken, row: Row) -> SqlError:
        """The error for a row that something is in the way of."""
        return self._duplicate(taken.at, row)

    def violated(self, key: bytes) -> SqlError | None:
        """The error after a refused condition on this storage key; None: it is another table's."""
        if key.startswith(self.prefix):
            values = self._codec.decode_key(key[4:])
            return self._unique(self.table.primary_key_name, self.key_places, values)
        for index in self._indexes:
            if key.startswith(index.prefix):
                values = index.codec.indexed_values(key[4:])
                return self._unique(index.codec.index.name, index.places, values)
        return None

    def _duplicate(self, key: bytes, row: Row) -> SqlError:
        for index in self._indexes:
            if key.startswith(index.prefix):
                places = index.places
                name = index.codec.index.name
                break
        else:
            places, name = self.key_places, self.table.primary_key_name
        return self._unique(name, places, [row[at] for at in places])

    def _unique(self, name: str, places: Sequence[int], values: Sequence[object]) -> SqlError:
        return SqlError(
            UNIQUE_VIOLATION,
            f'duplicate key value violates unique constraint "{name}"',
            detail=self.rules.key_detail("Key {} already exists.", places, values),
            schema=schema_of(self.table.namespace),
            table=self.table.name,
            constraint=name,
        )
