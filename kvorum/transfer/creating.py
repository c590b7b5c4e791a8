"""A table for a source that has none yet: its columns and types, as far as the source says them.

Parquet and PostgreSQL say types; of CSV and JSON they are guessed from the beginning (its first
megabytes): bool, int8, float8, date, timestamp, else text. A value further on that does not fit is
an error of the import; who knows better makes the table by SQL.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kv.base.errors import InvalidArgument
from kv.base.limits import MiB
from kvorum.model import Column, TableSpec
from kvorum.transfer import formats, jdbc
from kvorum.transfer.claims import is_claim
from kvorum.transfer.export import DONE
from kvorum.transfer.places import check_no_keys, place_of

if TYPE_CHECKING:
    from kvorum.native import NativeBackend

_HEAD_BYTES: Final = 4 * MiB


async def create_for(
    backend: NativeBackend,
    namespace: str,
    name: str,
    source: str,
    kind: str,
    query: str,
    keys: Sequence[str],
) -> None:
    """Raises InvalidArgument, AlreadyExists, NotFound."""
    schema = await asyncio.to_thread(lambda: schema_of(source, kind, query))
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


def schema_of(source: str, kind: str, query: str) -> list[tuple[str, str]]:
    """Columns and canonical types. Blocks."""
    if jdbc.is_database(source):
        return jdbc.schema_of(source, query)
    check_no_keys(source)
    place = place_of(source)
    names = [name for name in place.names() if name != DONE and not is_claim(name)]
    if not names:
        raise InvalidArgument(f"there are no files in {place.uri}")
    kind = formats.format_of(names[0] or source, kind)
    with place.open(names[0]) as file:
        schema = _arrow_schema(kind, file)
    return [(field.name, _type(field.type)) for field in schema]


def _arrow_schema(kind: str, file: Any) -> Any:
    import pyarrow as pa

    try:
        if kind == "parquet":
            import pyarrow.parquet as pq

            return pq.read_schema(file)
        head = file.read(_HEAD_BYTES)
        if len(head) == _HEAD_BYTES:
            head = head[: head.rfind(b"\n") + 1]
        if kind == "csv":
            from pyarrow import csv

            return csv.read_csv(io.BytesIO(head)).schema
        from pyarrow import json

        return json.read_json(io.BytesIO(head)).schema
    except (pa.ArrowException, ValueError) as error:
        raise InvalidArgument(f"the beginning of the source cannot be read: {error}") from error


def _type(kind: Any) -> str:
    import pyarrow as pa

    exact = {
        pa.bool_(): "bool", pa.int8(): "int2", pa.int16(): "int2", pa.int32(): "int4",
        pa.uint8(): "int2", pa.uint16(): "int4", pa.uint32(): "int8", pa.int64(): "int8",
        pa.float32(): "float4", pa.float64(): "float8", pa.date32(): "date",
        pa.binary(): "bytea", pa.large_binary(): "bytea",
    }  # fmt: skip
    if kind in exact:
        return exact[kind]
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{_type(kind.value_type)}[]"
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "jsonb"
    return "text"
