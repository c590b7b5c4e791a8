"""Entries of indexes as user keys and values, and back. An index's entries lie after the prefix of
its own id, in partitions of its own (P6, P8).

    unique, no NULL among the indexed columns   (UNIQUE → PK)
        key      the indexed columns
        value    [1, primary key columns …, included columns …]

    otherwise: not unique, or with a NULL       (KEY + PK → ∅; two NULLs are never equal)
        key      the indexed columns, then the user key of the row
        value    [1, included columns …]

A partial index has entries only of rows of which its predicate is true (`IndexCodec.has`): whoever
makes entries asks first.

Components of keys are those of `sqlproxy.rows.keys`, with the direction and the place of NULLs that
the index has for each; the row's user key is its primary key, ascending. Values are msgpack arrays
of stored forms; 1 is the format, another one is refused.

A row whose indexed columns do not change keeps its entry; `IndexCodec.entry` is a function of the
row alone, so that the entry to be removed is computed from the old row. A codec is made once for
an index (`index_codec`) and put together from the encoders of its columns; whether it is used for
reading, writing or only removing is the state of the index, and the caller's business.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import msgspec

from kv.base.errors import Corruption, InvalidArgument, TooLarge
from kv.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from sqlproxy.rows import keys, rows
from sqlproxy.rows.schema import Column, Index, Table
from sqlproxy.values.conversions import refusal

ENTRY_FORMAT: Final = 1
_CODECS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry tells. `row_key`: the user key of its row. `values`: the indexed columns in
    user form, as exact as keys are (`keys.EXACT`); `included`: those of INCLUDE, exactly.
    """

    row_key: bytes
    values: tuple[object, ...]
    included: tuple[object, ...]


class IndexCodec:
    """Encoder and decoder of one index of one table version."""

    def __init__(self, table: Table, index: Index) -> None:
        self.table = table
        self.index = index
        at = self._at = {column.id: place for place, column in enumerate(table.columns)}
        self._rows = rows.codec(table)
        self.columns: tuple[Column, ...] = tuple(table.by_id(n) for n in index.column_ids)
        self.included: tuple[Column, ...] = tuple(table.by_id(n) for n in index.include)
        self.unique = index.unique
        self._holds: Callable[[Sequence[object]], bool] | None = None
        if index.where:
            from sqlproxy.tables.predicates import (
                holds,  # reads SQL: not for tables without such indexes
            )

            self._holds = holds(table, index)
        self._used = [(at[number], table.by_id(number)) for number in index.where_columns]
        self.positions = [at[number] for number in index.column_ids]
        self._ids = list(index.column_ids)
        self._include_ids = list(index.include)
        self._encoders: list[keys.EncodeNull] = []
        self._bare: list[keys.Encode | None] = []  # of columns without a NULL
        self._decoders: list[keys.Decode] = []
        for part, column in zip(index.columns, self.columns, strict=True):
            kind, way = column.resolved, (part.descending, part.nulls_first)
            self._encoders.append(keys.component(kind, descending=way[0], nulls_first=way[1]))
            self._bare.append(None if part.descending else keys.encoder_of(kind))
            self._decoders.append(keys.component_out(kind, descending=way[0], nulls_first=way[1]))
        key = table.key_columns
        self._places = [at[column.id] for column in (*self.columns, *key, *self.included)]
        inside = [one.id for one in (*self.columns, *key) if one.resolved.base in keys.EXACT]
        self.exact = frozenset((*inside, *index.include))  # columns that entries have as rows do
        self._key_ids = [column.id for column in key]
        self._key_encoders = [keys.encoder_of(column.resolved) for column in key]

    # -- writing

    def has(self, row: Sequence[object]) -> bool:
        """Whether a row in user form has an entry. Raises SqlError: what a predicate computes may
        fail.
        """
        return self._holds is None or self._holds(row)

    def had(self, row: Sequence[object]) -> bool:
        """The same of a row that is stored: one of which the predicate fails never got an entry."""
        if self._holds is None:
            return True
        from sqlproxy.values.errors import SqlError

        try:
            return self._holds(row)
        except SqlError:
            return False

    def has_slots(self, slots: Sequence[object]) -> bool:
        """`has` of a row in stored form."""
        if self._holds is None:
            return True
        row: list[object] = [None] * len(self.table.columns)
        for place, column in self._used:
            row[place] = _user(column, slots[column.id])
        return self._holds(row)

    def entry(self, row: Sequence[object]) -> tuple[bytes, bytes]:
        """`(user key, value)` for a row in user form, in declared order. Raises InvalidArgument,
        TooLarge.
        """
        slots: list[object] = [None] * self._rows.slots
        for column, value in zip(self.table.columns, row, strict=True):
            if value is not None:
                slots[column.id] = self._stored(column, value)
        return self.entry_of(slots)

    def entry_of(self, slots: Sequence[object] | Mapping[int, object]) -> tuple[bytes, bytes]:
        """The same for a row in stored form: `RowCodec.decode_slots`, by column id."""
        values = [slots[number] for number in self._ids]
        head = b"".join([encode(v) for encode, v in zip(self._encoders, values, strict=True)])
        body: list[object] = [ENTRY_FORMAT]
        if self.unique and None not in values:
            body += [slots[number] for number in self._key_ids]
        else:
            head += b"".join(
                [
                    encode(slots[number])
                    for number, encode in zip(self._key_ids, self._key_encoders, strict=True)
                ]
            )
        body += [slots[number] for number in self._include_ids]
        return self._checked(head, rows.encode_msgpack(body))

    def entries_of(self, many: Sequence[Sequence[object]]) -> tuple[list[bytes], list[bytes]]:
        """`entry_of` of many rows: keys and values. Raises TooLarge."""
        columns: list[tuple[object, ...]] = list(zip(*many, strict=True))
        return self._entries(columns.__getitem__) if columns else ([], [])

    def entries(self, many: Sequence[Sequence[object]]) -> tuple[list[bytes], list[bytes]]:
        """`entry` of many rows: keys and values. Raises InvalidArgument, TooLarge."""
        columns: dict[int, list[object]] = {}

        def stored(number: int) -> list[object]:
            if number not in columns:
                at, column = self._at[number], self.table.by_id(number)
                convert = column.resolved.to_stored
                try:
                    made = [None if (v := row[at]) is None else convert(v) for row in many]
                except (ValueError, TypeError):
                    made = [
                        None if row[at] is None else self._stored(column, row[at]) for row in many
                    ]
                columns[number] = made
            return columns[number]

        return self._entries(stored) if many else ([], [])

    def _entries(
        self, stored: Callable[[int], Sequence[object]]
    ) -> tuple[list[bytes], list[bytes]]:
        """Of one row at least; `stored`: a column of all of them, by its id, in stored form."""
        indexed = [stored(number) for number in self._ids]
        kept = [stored(number) for number in self._include_ids]
        key = [stored(number) for number in self._key_ids]
        with_null = [None in values for values in indexed]
        if self.unique and any(with_null):
            numbers = (*self._ids, *self._include_ids, *self._key_ids)
            each = zip(*indexed, *kept, *key, strict=True)
            found = [self.entry_of(dict(zip(numbers, values, strict=True))) for values in each]
            return [key for key, _ in found], [value for _, value in found]
        parts = [
            list(map(encode if null or bare is None else bare, values))
            for encode, bare, values, null in zip(
                self._encoders, self._bare, indexed, with_null, strict=True
            )
        ]
        if self.unique:
            kept = key + kept
        else:
            parts += [
                list(map(encode, values))
                for encode, values in zip(self._key_encoders, key, strict=True)
            ]
        keys_ = parts[0] if len(parts) == 1 else list(map(b"".join, zip(*parts, strict=True)))
        if kept:
            rows_ = zip(repeat(ENTRY_FORMAT), *kept, strict=False)
            values_ = list(map(rows.encode_msgpack, rows_))
        else:
            values_ = [rows.encode_msgpack([ENTRY_FORMAT])] * len(keys_)
        if max(map(len, keys_)) > KEY_BYTES_MAX or max(map(len, values_)) > VALUE_BYTES_MAX:
            for entry in zip(keys_, values_, strict=True):
                self._checked(*entry)
        return keys_, values_

    def prefix(self, values: Sequence[object]) -> bytes:
        """What every entry begins with whose first indexed columns are `values` (user form; None
        for NULL): with all columns of a unique index and no NULL, the whole key.
        """
        if len(values) > len(self.columns):
            raise InvalidArgument(
                f"index {self.index.name} of {self.table.path} has {len(self.columns)} columns; "
                f"got {len(values)} values"
            )
        parts = [
            encode(None if value is None else self._stored(column, value))
            for column, encode, value in zip(self.columns, self._encoders, values, strict=False)
        ]
        return b"".join(parts)

    def unique_key(self, values: Sequence[object]) -> bytes | None:
        """The key at which another row with these values would be; None where several may be: the
        index is not unique, or one of them is NULL.
        """
        if not self.unique or any(value is None for value in values):
            return None
        assert len(values) == len(self.columns)
        return self.prefix(values)

    # -- reading

    def row_key(self, key: bytes, value: bytes) -> bytes:
        """The user key of the row that this entry is of. Raises Corruption."""
        _, at, null = self._components(key)
        if self.unique and not null:
            stored = self._opened(key, value)[1 : 1 + len(self._key_ids)]
            parts = [encode(v) for encode, v in zip(self._key_encoders, stored, strict=True)]
            return b"".join(parts)
        return key[at:]

    def indexed_values(self, key: bytes) -> tuple[object, ...]:
        """The indexed columns in an entry's key, in user form. Raises Corruption."""
        found = self._components(key)[0]
        return tuple(_user(c, v) for c, v in zip(self.columns, found, strict=True))

    def decode(self, key: bytes, value: bytes) -> Entry:
        """Everything in an entry. Raises Corruption."""
        body = self._opened(key, value)
        found, at, null = self._components(key)
        whole = self.unique and not null
        skipped = 1 + (len(self._key_ids) if whole else 0)
        return Entry(
            self.row_key(key, value) if whole else key[at:],
            tuple(_user(c, v) for c, v in zip(self.columns, found, strict=True)),
            tuple(_user(c, v) for c, v in zip(self.included, body[skipped:], strict=True)),
        )

    def row(self, key: bytes, value: bytes) -> tuple[bytes, tuple[object, ...]]:
        """The user key of the row that this entry is of, and what it has of the row, in the table's
        order: of the columns that are `exact`; others are there or None. Raises Corruption.
        """
        entry = self.decode(key, value)
        own = self._rows.decode_key(entry.row_key)
        found: list[object] = [None] * len(self.table.columns)
        for at, one in zip(self._places, (*entry.values, *own, *entry.included), strict=True):
            found[at] = one
        return entry.row_key, tuple(found)

    def head(self, key: bytes, count: int) -> bytes:
        """The bytes of the first so many columns, of the index and then of the row's key. Raises
        Corruption.
        """
        _, at, _ = self._components(key, count)
        if (left := count - len(self._decoders)) > 0:
            at += len(self._rows.head(key[at:], left))
        return key[:at]

    # -- helpers

    def _stored(self, column: Column, value: object) -> object:
        try:
            return column.resolved.to_stored(value)
        except (ValueError, TypeError) as error:
            raise InvalidArgument(
                f"column {column.name} ({column.shown_type}) of {self.table.path}: {error}",
                details={"column": column.name, "type": column.type} | refusal(error),
            ) from error

    def _components(self, key: bytes, count: int | None = None) -> tuple[list[object], int, bool]:
        """The indexed columns, or the first so many, in stored form, where they end, and whether
        one is NULL.
        """
        found: list[object] = []
        at = 0
        try:
            for decode in self._decoders[:count]:
                value, at = decode(key, at)
                found.append(value)
            if at > len(key):
                raise ValueError("it ends too early")
        except (ValueError, IndexError, struct.error) as error:
            raise self._corrupt(key, str(error)) from error
        return found, at, None in found

    def _opened(self, key: bytes, value: bytes) -> list[object]:
        try:
            body = rows.decode_msgpack(value)
        except msgspec.DecodeError as error:
            raise self._corrupt(key, str(error)) from error
        if not body or body[0] != ENTRY_FORMAT:
            raise self._corrupt(key, f"its format is {body[:1]}, this program reads {ENTRY_FORMAT}")
        return body

    def _corrupt(self, key: bytes, why: str) -> Corruption:
        return Corruption(
            f"the entry {key[:64]!r} of index {self.index.name} of {self.table.path} cannot be "
            f"read: {why}",
            details={"key": key, "table": self.table.path, "index": self.index.name},
        )

    def _checked(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        for what, size, limit in (
            ("key", len(key), KEY_BYTES_MAX),
            ("value", len(value), VALUE_BYTES_MAX),
        ):
            if size > limit:
                raise TooLarge(
                    f"an entry of index {self.index.name} of {self.table.path} has a {what} of "
                    f"{size} bytes; the limit is {limit}: index a shorter column, or a digest of "
                    "it",
                    details={"what": f"{what}_bytes", "limit": limit, "actual": size},
                )
        return key, value


def _user(column: Column, stored: object) -> object:
    convert = column.resolved.from_stored
    return stored if stored is None or convert is None else convert(stored)


_codecs: dict[tuple[int, int], IndexCodec] = {}


def index_codec(table: Table, index: Index) -> IndexCodec:
    """The codec of an index, remembered by the objects, as `rows.codec` is."""
    key = id(table), id(index)
    found = _codecs.get(key)
    if found is None or found.table is not table or found.index is not index:
        if len(_codecs) >= _CODECS_MAX:
            _codecs.clear()
        found = _codecs[key] = IndexCodec(table, index)
    return found
