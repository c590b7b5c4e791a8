"""A task's record batches as what is staged: keys, values (None deletes), orders.

What Spark's schema has and the table has not is made here: structs, maps and arrays for JSON
columns, text for times and intervals, the operation of each row, and the order among rows of one
key (`dedupeBy`): bytes that compare as the column's values do, NULL below all.

Generated columns are staged as NULL: who commits computes them (sqlproxy/sinking.py).
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kv.base.errors import InvalidArgument
from pyspark_kvorum.options import DELETE, Options
from pyspark_kvorum.packing import Rows, merged
from pyspark_kvorum.types import matched
from sqlproxy.pg.intervals import read_interval
from sqlproxy.rows import keys as key_codec
from sqlproxy.rows.arrow_rows import arrow_type, encode_columns
from sqlproxy.rows.schema import Table
from sqlproxy.values.errors import SqlError

_UPSERTS: Final = frozenset({"I", "U", "INSERT", "UPDATE", "UPSERT"})
_DELETES: Final = frozenset({"D", "DELETE"})
_JSON: Final = frozenset({"json", "jsonb"})
_SIGN: Final = np.uint64(1 << 63)


class Encoded(NamedTuple):
    """Rows in the batch's order. `orders` is None unless rows of one key are compared."""

    rows: Rows
    orders: list[bytes] | None


class Encoder:
    """Of one task, for one table."""

    def __init__(self, table: Table, options: Options) -> None:
        self._options = options
        self._staged = staged_table(table)
        self._keyed = key_table(self._staged)
        self._known = {"key", "value"} if table.plain else {c.name for c in table.visible}
        self._key_names = ["key"] if table.plain else list(table.primary_key)
        self._path = table.path

    def __call__(self, batch: pa.RecordBatch) -> Encoded:
        """Raises InvalidArgument, TooLarge."""
        options = self._options
        orders = None
        if options.dedupe_by:
            orders = order_of(_column_of(batch, options.dedupe_by))
        if options.op == DELETE:
            return Encoded(self._deleted(batch), orders)
        if not options.op_column:
            return Encoded(self._rows(batch), orders)
        ops = _column_of(batch, options.op_column)
        goes = np.array(deletions(ops, options.op_column), np.bool_)
        if not goes.any():
            return Encoded(self._rows(batch), orders)
        mask = pa.array(goes)
        rows = merged(
            [self._rows(batch.filter(pc.invert(mask))), self._deleted(batch.filter(mask))]
        )
        kept = len(goes) - int(goes.sum())  # where those that are deleted begin
        place = np.where(goes, kept + np.cumsum(goes) - 1, np.cumsum(~goes) - 1)
        return Encoded(rows.taken(pa.array(place)), orders)

    def _rows(self, batch: pa.RecordBatch) -> Rows:
        return Rows(*encode_columns(self._staged, self._fitting(batch, self._known)))

    def _deleted(self, batch: pa.RecordBatch) -> Rows:
        named = self._fitting(batch, set(self._key_names))
        if self._staged.plain:
            keys = named.column(0).cast(pa.binary())
            if keys.null_count:
                raise InvalidArgument(f"column key of {self._path} is not nullable; a row has none")
        else:
            keys, _ = encode_columns(self._keyed, named)
        return Rows(keys, pa.nulls(len(keys), pa.binary()))

    def _fitting(self, batch: pa.RecordBatch, names: set[str]) -> pa.RecordBatch:
        """Only these columns, in types that the table's convert from."""
        known = matched(batch.schema.names, self._known)
        found = {known[n]: n for n in batch.schema.names if known.get(n) in names}
        arrays = [self._column(name, batch.column(given)) for name, given in found.items()]
        return pa.RecordBatch.from_arrays(arrays, names=list(found))

    def _column(self, name: str, array: pa.Array) -> pa.Array:
        if self._staged.plain:
            return array
        kind = self._staged.column(name).resolved
        try:
            if kind.base in _JSON and pa.types.is_nested(array.type):
                return pa.array(_json_texts(array), pa.string())
            if kind.base == "time" and pa.types.is_string(array.type):
                return pa.array(
                    [None if t is None else time.fromisoformat(t) for t in array.to_pylist()],
                    arrow_type(kind),
                )
            if kind.base == "interval" and pa.types.is_string(array.type):
                return pa.array([_interval(t) for t in array.to_pylist()], arrow_type(kind))
        except (ValueError, OverflowError, SqlError) as error:
            raise InvalidArgument(
                f"column {name} ({kind.name}) of {self._path}: {error}", details={"column": name}
            ) from error
        return array


def _column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column that an option names, as Spark resolves names."""
    return batch.column(matched([name], batch.schema.names).get(name, name))


def staged_table(table: Table) -> Table:
    """The descriptor that rows are staged by: generated columns may be left out."""
    if not any(c.generated is not None for c in table.columns):
        return table
    columns = tuple(
        c if c.generated is None else replace(c, generated=None, nullable=True)
        for c in table.columns
    )
    return replace(table, columns=columns)


def key_table(table: Table) -> Table:
    """Of the primary key's columns alone: to encode keys."""
    if table.plain:
        return table
    return replace(table, columns=table.key_columns)


def deletions(ops: pa.Array, name: str) -> list[bool]:
    """Which rows are deleted, by the operation column. Raises InvalidArgument."""
    known: dict[object, bool] = {}
    for op in pc.unique(ops).to_pylist():
        word = op.strip().upper() if isinstance(op, str) else op
        if word not in _UPSERTS and word not in _DELETES:
            raise InvalidArgument(
                f"opColumn {name} has the value {op!r}; it must be I or U (insert, update: the row"
                " is put) or D (delete: the row of this key goes)"
            )
        known[op] = word in _DELETES
    return [known[op] for op in ops.to_pylist()]


def order_of(array: pa.Array) -> list[bytes]:
    """Bytes that compare as the values do; NULL is below all. Raises InvalidArgument."""
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    if pa.types.is_integer(array.type) or pa.types.is_date32(kind):
        if pa.types.is_date32(kind):
            array = array.view(pa.int32())
        return _ordered_ints(array.cast(pa.int64()))
    if pa.types.is_timestamp(kind):
        return _ordered_ints(array.cast(pa.timestamp("us", kind.tz)).view(pa.int64()))
    if pa.types.is_floating(kind):
        encode = key_codec.encoder("float8")
    elif pa.types.is_decimal(kind):
        decimal = key_codec.encoder("numeric")
        return [b"" if v is None else decimal(str(v)) for v in array.to_pylist()]
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        array, encode = array.cast(pa.binary()), key_codec.encoder("bytea")
    else:
        raise InvalidArgument(
            f"option dedupeBy: a column of type {kind} has no order; use a number, time or text"
        )
    return [b"" if value is None else encode(value) for value in array.to_pylist()]


def _ordered_ints(array: pa.Array) -> list[bytes]:
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64) ^ _SIGN
    matrix = numbers.astype(">u8").view("V8").tolist()
    missing = array.is_null().to_pylist() if array.null_count else ()
    found: list[bytes] = matrix
    for at, null in enumerate(missing):
        if null:
            found[at] = b""
    return found


def _interval(text: str | None) -> object:
    if text is None:
        return None
    value = read_interval(text)
    return pa.MonthDayNano([value.months, value.days, value.us * 1_000])


def _json_texts(array: pa.Array) -> list[str | None]:
    """Structs and maps become objects, arrays arrays; binaries base64, times ISO 8601, decimals
    numbers.
    """
    plain = _plain_of(array.type)
    return [
        None
        if value is None
        else json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        for value in array.to_pylist()
    ]


def _plain_of(kind: pa.DataType) -> Any:
    """A function from a value of this type to what json writes."""
    if pa.types.is_map(kind):
        of = _plain_of(kind.item_type)
        return lambda v: None if v is None else {_name(key): of(item) for key, item in v}
    if pa.types.is_struct(kind):
        fields = [(field.name, _plain_of(field.type)) for field in kind]
        return lambda v: None if v is None else {name: of(v[name]) for name, of in fields}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _plain_of(kind.value_type)
        return lambda v: None if v is None else [item(one) for one in v]
    return _scalar


def _name(key: object) -> str:
    return key if isinstance(key, str) else str(_scalar(key))


def _scalar(value: object) -> object:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            whole = value == value.to_integral_value()
            return int(value) if whole else float(value)
        case _:
            return value
