"""Entries of an index for the rows that were there before it: one slice per transaction.

A slice is read and written in one transaction of its own, on a fresh snapshot, so nothing has to be
kept from garbage collection. Every writer is at write-only or beyond by then:

    a row that is changed before the slice       the slice holds the range of its rows: it is
    is committed, or comes between them          committed if that is as it read it, else it runs
                                                 again
    a row that is changed later, by somebody     its writer deletes the old entry, which the slice
    who began before that                        has just put: the writer conflicts
    a row that comes behind the slice            its writer adds the entry
    an entry that is there already               is that of a row with the same key; another row's
                                                 under a unique key is a duplicate

While others use the loop, a slice is a millisecond or two of work in pieces that are shorter still,
and the backfill rests as long as each took; else slices grow (`Pace`, docs/decisions/1031).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.keys import table_prefix
from kv.base.limits import (
    SQL_BACKFILL_ROWS_MIN,
    SQL_IDLE_PASS_S,
    SQL_REST_MS_MAX,
    SQL_SLICE_ROWS,
    SQL_SLICE_ROWS_MAX,
)
from kv.base.ports import Timers
from sqlproxy import rows
from sqlproxy.entries import IndexCodec, index_codec
from sqlproxy.pg.oids import by_name
from sqlproxy.pg.style import Style
from sqlproxy.pg.text import writer
from sqlproxy.refusals import refusal
from sqlproxy.schema import Column, Index, Table
from txn.waiting import sleep

_PREFIX: Final = 4  # bytes of a table's id in front of its user keys
_PASSES: Final = 4  # of the loop, to see whether it has other work


def fewer(rows: int, tries: int) -> int:
    """How many of `rows` are taken at once after so many conflicts: where rows change all the time,
    few get through.
    """
    return max(SQL_BACKFILL_ROWS_MIN, rows >> min(tries, 30))


class Pace:
    """How many rows the next slice has, and how long it waits for its turn."""

    def __init__(self, timers: Timers, tries: int) -> None:
        self._timers = timers
        self._least = fewer(SQL_SLICE_ROWS, tries)
        self._most = fewer(SQL_SLICE_ROWS_MAX, tries)
        self.rows = self._least
        self._began = timers.monotonic()

    async def rest(self) -> None:
        """After a slice: leave the loop to others as long as it took, if there are others."""
        began = self._timers.monotonic()
        for _ in range(_PASSES):
            await asyncio.sleep(0)
        if self._timers.monotonic() - began > _PASSES * SQL_IDLE_PASS_S:
            self.rows = self._least
            await sleep(self._timers, min(began - self._began, SQL_REST_MS_MAX / 1000))
        else:
            self.rows = min(2 * self.rows, self._most)
        self._began = self._timers.monotonic()


class Slice(Protocol):
    """The transaction of a slice: of a client, or of a step."""

    async def multi_get(self, keys: Sequence[bytes]) -> Sequence[tuple[bytes, int] | None]: ...

    def put(self, key: bytes, value: bytes) -> object: ...


Hold = Callable[[bytes, bytes], object]


async def fill_index(
    txn: Slice,
    table: Table,
    index: Index,
    found: Sequence[tuple[bytes, bytes, int]],
    hold: Hold = lambda _start, _end: None,
) -> None:
    """Put the entries of these rows of the table, as they are read by `txn`. `hold`: it is
    committed only if nobody wrote in this range meanwhile. Raises KvorumError (23505).
    """
    if not found:
        return
    codec, row_codec = index_codec(table, index), rows.codec(table)
    prefix = table_prefix(index.id)
    # To delete an entry that is not there yet leaves no trace to conflict with. What comes behind
    # the last row is none of this transaction's business: rows are appended all the time.
    hold(found[0][0], found[-1][0] + b"\0")
    wanted: dict[bytes, bytes] = {}
    for key, value, _ in found:
        slots = row_codec.decode_slots(key[_PREFIX:], value)
        at, entry = codec.entry_of(slots)
        if at in wanted:
            raise duplicated(codec, at)
        wanted[at] = entry
    keys = [prefix + at for at in wanted]
    if not index.unique:  # each key has its row's: an entry that is there is the same
        for key, entry in zip(keys, wanted.values(), strict=True):
            txn.put(key, entry)
        return
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
