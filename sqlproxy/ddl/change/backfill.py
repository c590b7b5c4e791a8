"""Entries of an index for the rows that were there before it, slice by slice.

A slice is read on a fresh snapshot. Every writer is at write-only or beyond by then. Its entries
are written as of that snapshot, and nothing holds the rows meanwhile (`kv.mvcc.ingest` says why:
whoever changes a row leaves a version of its entry, or a tombstone, which is newer and stays).

Under a unique key two rows may want one entry, of which the newer version may hide the other row.
Where a key says anything else than the entry, the slice is read and written in one transaction:

    a row that is changed before it is           it holds the range of its rows: it is committed if
    committed, or comes between them             that is as it read it, else it runs again
    a row that is changed later, by somebody     its writer deletes the old entry, which has just
    who began before that                        been put: the writer conflicts
    a row that comes after the slice            its writer adds the entry
    an entry that is there already               is that of a row with the same key; another row's
                                                 is a duplicate

After that a unique index is looked at as of one time (`sqlproxy.ddl.change.indexes`): `lacking`.

How many rows a slice has, and how many slices are under way: `sqlproxy.ddl.change.slices`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from kv.base.errors import KvorumError
from kv.base.keys import table_prefix
from kv.base.limits import SQL_BACKFILL_ROWS_MIN
from sqlproxy.pg.oids import by_name
from sqlproxy.pg.style import Style
from sqlproxy.pg.text import writer
from sqlproxy.rows import rows
from sqlproxy.rows.schema import Column, Index, Table
from sqlproxy.tables.entries import IndexCodec, index_codec
from sqlproxy.values.refusals import invalid

_PREFIX: Final = 4  # bytes of a table's id in front of its user keys


def fewer(rows: int, tries: int) -> int:
    """How many of `rows` are taken at once after so many conflicts: where rows change all the time,
    few get through.
    """
    return max(SQL_BACKFILL_ROWS_MIN, rows >> min(tries, 30))


class Slice(Protocol):
    """The transaction of a slice: of a client, or of a step."""

    async def multi_get(self, keys: Sequence[bytes]) -> Sequence[tuple[bytes, int] | None]: ...

    def put(self, key: bytes, value: bytes, *, cond: int | None = None) -> object: ...


class Holder(Protocol):
    """A transaction that can be held to what it read."""

    def hold_range(self, start: bytes, end: bytes) -> object: ...


Found = Sequence[tuple[bytes, bytes, int]]


async def fill_index(txn: Slice, table: Table, index: Index, found: Found) -> None:
    """Put the entries of these rows of the table, as they are read by `txn`. Raises KvorumError
    (23505).
    """
    await put_entries(txn, table, index, entries(table, index, found))


def hold(txn: Holder, found: Found) -> None:
    """It is committed only if nobody wrote in the range of these rows meanwhile. (To delete an
    entry that is not there yet leaves no trace to conflict with.) What comes after the last row is
    none of its business: rows are appended all the time.
    """
    txn.hold_range(found[0][0], found[-1][0] + b"\0")


def entries(table: Table, index: Index, found: Found) -> dict[bytes, bytes]:
    """What the index says of these rows, by storage key. Raises KvorumError (23505)."""
    keys = [key[_PREFIX:] for key, _, _ in found]
    return entries_of(table, index, [value for _, value, _ in found], keys)


def entries_of(
    table: Table, index: Index, values: Sequence[bytes], keys: Sequence[bytes] = ()
) -> dict[bytes, bytes]:
    """The same of values of rows; their user keys, if they are given, are what errors name. Raises
    KvorumError (23505), Corruption.
    """
    codec, row_codec = index_codec(table, index), rows.codec(table)
    many = row_codec.decode_many(values)
    if many is None:
        named = keys or [b""] * len(values)
        many = list(map(row_codec.decode_slots, named, values))
    if index.where:
        many = [slots for slots in many if _holds(codec, slots)]
    prefix = table_prefix(index.id)
    at, made = codec.entries_of(many)
    wanted = dict(zip(map(prefix.__add__, at), made, strict=True))
    if len(wanted) < len(at):
        seen: set[bytes] = set()
        for key in at:
            if key in seen:
                raise duplicated(codec, key)
            seen.add(key)
    return wanted


def _holds(codec: IndexCodec, slots: Sequence[object]) -> bool:
    """Of a partial index. Raises KvorumError: what the predicate fails with."""
    from sqlproxy.values.errors import SqlError

    try:
        return codec.has_slots(slots)
    except SqlError as error:
        raise invalid(error.sqlstate, error.message, detail=error.detail) from error


async def put_entries(
    txn: Slice, table: Table, index: Index, wanted: Mapping[bytes, bytes]
) -> None:
    """Put `entries`. A unique key that is free must be so at the commit, too: a slice beside this
    one writes as of a snapshot before this one's, which is no conflict (`kv.mvcc.ingest`). Raises
    KvorumError (23505).
    """
    if not index.unique:  # each key has its row's: an entry that is there is the same
        for key, entry in wanted.items():
            txn.put(key, entry)
        return
    there = await txn.multi_get(list(wanted))
    for key in lacking(table, index, wanted, there):
        txn.put(key, wanted[key], cond=0)


def lacking(
    table: Table,
    index: Index,
    wanted: Mapping[bytes, bytes],
    there: Sequence[tuple[bytes, int] | None],
) -> list[bytes]:
    """The keys of `entries` at which nothing is. Raises KvorumError (23505): another row's is."""
    codec = index_codec(table, index)
    found: list[bytes] = []
    for (key, entry), row in zip(wanted.items(), there, strict=True):
        if row is None:
            found.append(key)
        elif codec.row_key(key[_PREFIX:], row[0]) != codec.row_key(key[_PREFIX:], entry):
            raise duplicated(codec, key[_PREFIX:])
    return found


def duplicated(codec: IndexCodec, key: bytes) -> KvorumError:
    """23505, in PostgreSQL's words."""
    shown = shown_values(codec.columns, codec.indexed_values(key))
    return invalid(
        "23505",
        f'could not create unique index "{codec.index.name}"',
        detail=f"Key {shown} is duplicated.",
        code="DUPLICATE_KEY",
        constraint=codec.index.name,
    )


def shown_values(columns: Sequence[Column], values: Sequence[object]) -> str:
    """`(a, b)=(1, x)`, as errors about keys tell them."""
    shown = [
        "null" if value is None else str(writer(by_name(column.type)[0].oid, Style())(value))
        for column, value in zip(columns, values, strict=True)
    ]
    return f"({', '.join(column.name for column in columns)})=({', '.join(shown)})"
