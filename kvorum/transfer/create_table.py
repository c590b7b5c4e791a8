"""A table for a source that has none yet: its columns and types, as far as the source says them.

Parquet and PostgreSQL say types; of CSV and JSON they are guessed from the beginning (its first
megabytes) so that no digit is lost (type_inference.py). A value further on that does not fit is an
error of the import; who knows better makes the table by SQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

from kv.base.errors import InvalidArgument
from kv.base.limits import MiB
from kvorum.api.model import Column, TableSpec
from kvorum.local.extras import needed
from kvorum.transfer import formats, postgresql, type_inference
from kvorum.transfer.claims import is_claim
from kvorum.transfer.export import DONE
from kvorum.transfer.places import place_of
from kvorum.transfer.spools import Written, unpacked_head
from kvorum.transfer.targets import check_no_keys

if TYPE_CHECKING:
    import pyarrow as pa

    from kvorum.native.native import NativeBackend

_HEAD_BYTES: Final = 4 * MiB
_NESTED_MAX: Final = 50
_ROWS: Final = 100_000  # that a guess looks at


async def create_for(
    backend: NativeBackend,
    namespace: str,
    name: str,
    source: str,
    kind: str,
    query: str,
    keys: Sequence[str],
    written: Written = Written(),  # noqa: B008 (frozen)
) -> None:
    """Raises InvalidArgument, AlreadyExists, NotFound."""
    schema = await asyncio.to_thread(lambda: schema_of(source, kind, query, written))
    if not schema:
        raise InvalidArgument(f"{source} has no columns that a table could be made of")
    wanted = list(keys) or [schema[0][0]]
    names = [column for column, _ in schema]
    for key in wanted:
        if key not in names:
            raise InvalidArgument(f"--key {key}: the source has {', '.join(names)}")
    columns = tuple(Column(column, type_, column not in wanted) for column, type_ in schema)
    spec = TableSpec(columns=columns, primary_key=tuple(wanted))
    await backend.create_table(namespace, name, spec)


def schema_of(
    source: str,
    kind: str,
    query: str,
    written: Written = Written(),  # noqa: B008 (frozen)
) -> list[tuple[str, str]]:
    """Columns and canonical types. Blocks."""
    if postgresql.is_database(source):
        return postgresql.schema_of(source, query)
    check_no_keys(source)
    place = place_of(source)
    names = [name for name in place.names() if name != DONE and not is_claim(name)]
    if not names:
        raise InvalidArgument(f"there are no files in {place.uri}")
    kind = formats.format_of(names[0] or source, kind)
    with place.open(names[0]) as file:
        if kind == "parquet":
            return _of_parquet(file)
        head = unpacked_head(file, written, _HEAD_BYTES)
    return _of_csv(head, written) if kind == "csv" else _of_json(head)


def _of_parquet(file: BinaryIO) -> list[tuple[str, str]]:
    pa = needed("pyarrow")
    pq = needed("pyarrow.parquet")

    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(f"the source cannot be read: {error}") from error
    return [(field.name, _type(field.type)) for field in schema]


def _of_csv(head: bytes, written: Written) -> list[tuple[str, str]]:
    piece = formats.read_piece(
        "csv", io.BytesIO(head), [], 0, 0, _ROWS, delimiter=written.delimiter
    )
    rows = piece.rows[:-1] if _is_cut(head) and len(piece.rows) > 1 else piece.rows
    good = [row.values for row in rows if not row.broken]
    columns = list(zip(*good, strict=True)) if good else [()] * len(piece.names)
    found = zip(piece.names, columns, strict=True)
    return [(name, type_inference.of_texts(cells)) for name, cells in found]


def _of_json(head: bytes) -> list[tuple[str, str]]:
    found: dict[str, list[object]] = {}
    try:
        piece = formats.read_piece("json", io.BytesIO(head), [], 0, 0, _ROWS)
    except InvalidArgument:
        if not _is_cut(head):
            raise
        piece = formats.read_piece("json", io.BytesIO(_closed(head)), [], 0, 0, _ROWS)
    rows = piece.rows[:-1] if _is_cut(head) and len(piece.rows) > 1 else piece.rows
    for row in rows:
        for name, value in (row.values[0] if not row.broken else {}).items():
            found.setdefault(name, []).append(value)
    if not found and rows and rows[0].broken:
        raise InvalidArgument(f"line {rows[0].line}: {rows[0].broken}")
    return [(name, type_inference.of_values(values)) for name, values in found.items()]


def _closed(head: bytes) -> bytes:
    """The beginning of an array of objects, as far as they are whole, as an array."""
    end = len(head)
    for _ in range(_NESTED_MAX):
        end = head.rfind(b"}", 0, end)
        with contextlib.suppress(ValueError):
            json.loads(found := head[: end + 1] + b"]")
            return found
    raise InvalidArgument("the beginning of the source is no array of objects")


def _is_cut(head: bytes) -> bool:
    return len(head) >= _HEAD_BYTES


def _type(kind: pa.DataType) -> str:
    pa = needed("pyarrow")

    exact = {
        pa.bool_(): "bool",
        pa.int8(): "int2",
        pa.int16(): "int2",
        pa.int32(): "int4",
        pa.uint8(): "int2",
        pa.uint16(): "int4",
        pa.uint32(): "int8",
        pa.int64(): "int8",
        pa.float32(): "float4",
        pa.float64(): "float8",
        pa.date32(): "date",
        pa.binary(): "bytea",
        pa.large_binary(): "bytea",
        pa.uint64(): "numeric(20,0)",
        pa.float16(): "float4",
        pa.date64(): "date",
    }
    if kind in exact:
        return exact[kind]
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_duration(kind):
        return "interval"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _type(kind.value_type)
        return "jsonb" if inner.endswith("[]") else f"{inner}[]"
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    if pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return "bytea"
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "jsonb"
    return "text"
