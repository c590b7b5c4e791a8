"""Entries of an index for the rows that were there before it: one chunk per transaction.

A chunk is read and written in one transaction of its own, on a fresh snapshot, so nothing has to be
kept from garbage collection. Every writer is at write-only or beyond by then:

    a row that is changed before the chunk       the chunk holds its rows: it is committed if they
    is committed                                 are as it read them, else it runs again
    a row that is changed later, by somebody     its writer deletes the old entry, which the chunk
    who began before that                        has just put: the writer conflicts
    a row that comes behind the cursor           its writer adds the entry
    an entry that is there already               is that of a row with the same key; another row's
                                                 under a unique key is a duplicate
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.keys import table_prefix
from kv.base.limits import SQL_BACKFILL_ROWS, SQL_BACKFILL_ROWS_MIN
from sqlproxy import rows
from sqlproxy.entries import IndexCodec, index_codec
from sqlproxy.pg.oids import by_name
from sqlproxy.pg.style import Style
from sqlproxy.pg.text import writer
from sqlproxy.refusals import refusal
from sqlproxy.schema import Column, Index, Table

_PREFIX: Final = 4  # bytes of a table's id in front of its user keys


def chunk_rows(tries: int) -> int:
    """How many rows a chunk has that met so many conflicts: where rows change all the time, a small
    one gets through.
    """
    return max(SQL_BACKFILL_ROWS_MIN, SQL_BACKFILL_ROWS >> min(tries, 30))


class Chunk(Protocol):
    """The transaction of a chunk: of a client, or of a step."""

    async def multi_get(self, keys: Sequence[bytes]) -> Sequence[tuple[bytes, int] | None]: ...

    def put(self, key: bytes, value: bytes) -> object: ...


Hold = Callable[[bytes], object]


async def fill_index(
    txn: Chunk,
    table: Table,
    index: Index,
    found: Sequence[tuple[bytes, bytes, int]],
    hold: Hold = lambda _key: None,
) -> None:
    """Put the entries of these rows of the table, as they are read by `txn`. `hold`: it is
    committed only if nobody wrote this key meanwhile. Raises KvorumError (23505).
    """
    codec, row_codec = index_codec(table, index), rows.codec(table)
    prefix = table_prefix(index.id)
    wanted: dict[bytes, bytes] = {}
    for key, value, _ in found:
        hold(key)  # to delete an entry that is not there yet leaves no trace to conflict with
        slots = row_codec.decode_slots(key[_PREFIX:], value)
        at, entry = codec.entry_of(slots)
        if at in wanted:
            raise duplicated(codec, at)
        wanted[at] = entry
    keys = [prefix + at for at in wanted]
    there = await txn.multi_get(keys)
    for key, entry, row in zip(keys, wanted.values(), there, strict=True):
        if row is None:
            txn.put(key, entry)
        elif codec.row_key(key[_PREFIX:], row[0]) != codec.row_key(key[_PREFIX:], entry):
            raise duplicated(codec, key[_PREFIX:])


def duplicated(codec: IndexCodec, key: bytes) -> KvorumError:
    """23505, in PostgreSQL's words."""
    shown = shown_values(codec.columns, codec.indexed_values(key))
    return refusal(
        "23505", f'could not create unique index "{codec.index.name}"',
        detail=f"Key {shown} is duplicated.",
        kind=InvalidArgument, code="DUPLICATE_KEY", constraint=codec.index.name,
    )  # fmt: skip


def shown_values(columns: Sequence[Column], values: Sequence[Any]) -> str:
    """`(a, b)=(1, x)`, as errors about keys tell them."""
    shown = [
        "null" if value is None else str(writer(by_name(column.type)[0].oid, Style())(value))
        for column, value in zip(columns, values, strict=True)
    ]
    return f"({', '.join(column.name for column in columns)})=({', '.join(shown)})"
