"""The files of exports and imports: csv, json (a line per row), parquet.

    csv      PostgreSQL's CSV with a header: values as its text, NULL an empty field without quotes;
             of an import with another delimiter, too
    json     one object per line; what JSON has no form for is PostgreSQL's text. An import takes
             one array of objects as well
    parquet  typed; read and written by pyarrow

In csv and json the bytes of a plain table's key and value are text where they are UTF-8 that does
not begin with `\\x`, else `\\x` and hex digits.

Readers give pieces: rows of cells with where each came from, and where to go on; a piece is read
again from the same place with the same outcome, so that is all that an import has to remember.
"""

from __future__ import annotations

import base64
import codecs
import io
import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from kv.base.errors import InvalidArgument
from kv.base.limits import MiB
from kvorum.local.extras import needed
from kvorum.transfer.row_group_cache import Groups
from kvorum.transfer.tables import Row, Shape
from sqlproxy.rows.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlproxy.values.types import Type

FORMATS: Final = ("parquet", "csv", "json")
_SUFFIXES: Final = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_READ_BYTES: Final = 4 * MiB
_RECORD_BYTES_MAX: Final = 64 * MiB
_ENDS: Final = rb"|\r\n|\n|\r|\Z)"
_BOM: Final = b"\xef\xbb\xbf"
_BEGINNING: Final = 4096
_OPEN = re.compile(rb'"(?:[^"]|"")*"?')  # a quoted field whose end is not known yet
_ELEMENT: Final = re.compile(r"\s*([\[,\]])\s*")
_DAY_US: Final = 86_400_000_000
_NUMBERS: Final = frozenset({"int2", "int4", "int8", "oid", "float4", "float8", "numeric"})
_TEXTS: Final = frozenset({"text", "varchar", "char", "name"})


def format_of(name: str, said: str = "") -> str:
    """By the end of a name or URI. Raises InvalidArgument."""
    if said:
        if said not in FORMATS:
            raise InvalidArgument(f"--format {said}: there are {', '.join(FORMATS)}")
        return said
    if "://" in name:
        name = name.partition("?")[0]  # options of an object store
    for suffix, found in _SUFFIXES.items():
        if name.lower().removesuffix(".gz").endswith(suffix):
            return found
    raise InvalidArgument(
        f"{name!r}: its name does not say what it is; give --format {'|'.join(FORMATS)}"
    )


def suffix_of(kind: str) -> str:
    return f".{kind}"


# -- out


def bytes_shown(data: bytes) -> str:
    """Bytes of a plain table as text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"\\x{data.hex()}"
    return f"\\x{data.hex()}" if text.startswith("\\x") else text


def bytes_read(text: str) -> bytes:
    """Raises ValueError."""
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()


def encode(kind: str, shapes: Sequence[Shape], plain: bool, rows: Sequence[Row]) -> bytes:
    """One file. Raises InvalidArgument (EXPORT_VALUE)."""
    if kind == "parquet":
        return _parquet(shapes, plain, rows)
    writers = _writers(shapes, plain)
    out = io.StringIO()
    if kind == "csv":
        out.write(",".join(_quoted(shape.name) for shape in shapes) + "\n")
        for row in rows:
            cells = zip(row, writers, strict=True)
            out.write(",".join("" if v is None else _quoted(w(v)) for v, w in cells) + "\n")
    else:
        as_json = [_to_json(shape, write) for shape, write in zip(shapes, writers, strict=True)]
        names = [shape.name for shape in shapes]
        for row in rows:
            named = {n: f(v) for n, v, f in zip(names, row, as_json, strict=True)}
            out.write(json.dumps(named, ensure_ascii=False) + "\n")
    return out.getvalue().encode()


def _writers(shapes: Sequence[Shape], plain: bool) -> list[Callable[[Any], str]]:
    from sqlproxy.pg.text import writer

    return [bytes_shown if plain else writer(shape.oid) for shape in shapes]


def _quoted(cell: str) -> str:
    if cell and not any(c in cell for c in ',"\n\r'):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _to_json(shape: Shape, write: Callable[[object], str]) -> Callable[[object], object]:
    if shape.type in ("bool", "int2", "int4", "int8", "oid"):
        return lambda value: value
    if shape.type in ("float4", "float8"):
        finite = frozenset({"NaN", "Infinity", "-Infinity"})
        return lambda v: v if v is None else (t if (t := write(v)) in finite else float(t))
    return lambda value: None if value is None else write(value)


def _parquet(shapes: Sequence[Shape], plain: bool, rows: Sequence[Row]) -> bytes:
    pa = needed("pyarrow")
    pq = needed("pyarrow.parquet")

    from sqlproxy.rows.arrow_rows import arrow_type
    from sqlproxy.values.types import resolve

    kinds = [pa.binary() if plain else arrow_type(resolve(shape.type)) for shape in shapes]
    # Parquet has no form for PostgreSQL's intervals.
    kinds = [pa.string() if "month_day_nano" in str(kind) else kind for kind in kinds]
    writers = _writers(shapes, plain)
    arrays = []
    columns = zip(*rows, strict=True) if rows else ((),) * len(shapes)
    for shape, values, kind, write in zip(shapes, columns, kinds, writers, strict=True):
        form = write if pa.types.is_string(kind) else _element_texts(shape, kind)
        try:
            given: list[object] = [None if v is None else form(v) if form else v for v in values]
            arrays.append(pa.array(given, kind))
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            raise _no_form(shape.name, values, kind, form, write) from error
    table = pa.Table.from_arrays(arrays, names=[shape.name for shape in shapes])
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _element_texts(shape: Shape, kind: pa.DataType) -> Callable[[Any], object] | None:
    """Of arrays whose elements are kept as text: the array as Arrow takes it."""
    pa = needed("pyarrow")

    from sqlproxy.pg.oids import by_name
    from sqlproxy.pg.text import writer
    from sqlproxy.values.types import resolve

    if not pa.types.is_list(kind) or not pa.types.is_string(kind.value_type):
        return None
    element = resolve(shape.type).element
    assert element is not None, shape
    write = writer(by_name(element.name)[0].oid)

    def texts(values: list[object]) -> list[str | None]:
        if any(isinstance(value, list) for value in values):
            raise TypeError("of two dimensions")
        return [None if v is None else write(v) for v in values]

    return texts


def _no_form(
    name: str,
    given: Sequence[object],
    kind: object,
    form: Callable[[object], object] | None,
    write: Callable[[object], str],
) -> Exception:
    """Of a column that Parquet cannot keep: which of its values it is."""
    pa = needed("pyarrow")

    for value in given:
        if value is None:
            continue
        try:
            pa.array([form(value) if form else value], kind)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
            return InvalidArgument(
                f"column {name}: {write(value):.80} has no form in Parquet, where the column is"
                f" {kind}: export it as csv or json, or without this column or row (--columns,"
                " --where)",
                code="EXPORT_VALUE",
            )
    raise AssertionError("none of them is refused alone")


# -- in


class Cells(NamedTuple):
    """One row of a file: its line (of parquet and SQL: its number), and its values; text of csv,
    Python's of others. `broken`: why it is none.
    """

    line: int
    values: tuple[Any, ...]
    broken: str = ""


@dataclass(slots=True)
class Piece:
    """Rows, and the place after them; `offset` None: the file has no more."""

    names: list[str]
    rows: list[Cells] = field(default_factory=list)
    offset: Any = None
    line: int = 0


def read_piece(
    kind: str,
    file: BinaryIO,
    names: list[str],
    offset: int,
    line: int,
    most: int,
    *,
    kept: tuple[Groups, Hashable] | None = None,
    delimiter: str = ",",
) -> Piece:
    """At most `most` rows from `offset` on, which is 0 or what the piece before said; so are
    `names` (of the columns; [] at the beginning) and `line`. `kept`: where decoded rows of this
    file stay until the next piece, and its name there. Raises InvalidArgument.
    """
    match kind:
        case "csv":
            return _read_csv(file, names, offset, line, most, delimiter)
        case "json":
            if _is_array(file):
                return _read_array(file, offset, line, most)
            return _read_json(file, offset, line, most)
        case _:
            return _read_parquet(file, offset, most, kept or (Groups(), ""))


def _chunks(file: BinaryIO, offset: int) -> Iterator[tuple[bytes, bool]]:
    """More and more of the file from a place on, and whether that is all."""
    file.seek(offset)
    data = b""
    while True:
        more = file.read(_READ_BYTES)
        data += more
        yield data, len(more) < _READ_BYTES
        if len(data) > _RECORD_BYTES_MAX:
            raise InvalidArgument(f"a row has more than {_RECORD_BYTES_MAX} bytes")


@cache
def _cell(delimiter: str) -> re.Pattern[bytes]:
    mark = re.escape(delimiter.encode())
    return re.compile(rb'(?:"((?:[^"]|"")*)"|([^"\r\n' + mark + rb"]*))(" + mark + _ENDS)


def _read_csv(
    file: BinaryIO, names: list[str], offset: int, line: int, most: int, delimiter: str
) -> Piece:
    for data, whole in _chunks(file, offset):
        start = len(_BOM) if not offset and data.startswith(_BOM) else 0
        rows, used, lines = csv_rows(data, start, most + (not names), whole, line, delimiter)
        if rows or whole:
            break
    piece = Piece(names, rows, None if whole and used >= len(data) else offset + used, lines)
    if not names:
        if not rows:
            raise InvalidArgument("the file is empty: its first line must name the columns")
        piece.names = [cell or "" for cell in rows[0].values]
        del rows[0]
    width = len(piece.names)
    piece.rows = [
        row
        if row.broken or len(row.values) == width
        else row._replace(broken=f"it has {len(row.values)} fields, the header {width}")
        for row in rows
    ]
    return piece


def csv_rows(
    data: bytes, at: int, most: int, whole: bool, line: int, delimiter: str = ","
) -> tuple[list[Cells], int, int]:
    """At most `most` rows that are complete, from `at` on: they, the place after them, and the
    number of lines up to there. `whole`: nothing follows the data. An empty line is no row.
    """
    rows: list[Cells] = []
    cell, mark = _cell(delimiter), delimiter.encode()
    while at < len(data) and len(rows) < most:
        found = _record(data, at, whole, cell, mark)
        if found is None:
            break
        cells, broken, after = found
        number = line + 1
        line += data.count(b"\n", at, after) or 1
        at = after
        if broken or cells != [None]:
            rows.append(Cells(number, tuple(cells), broken))
    return rows, at, line


def _record(
    data: bytes, at: int, whole: bool, cell: re.Pattern[bytes], mark: bytes
) -> tuple[list[str | None], str, int] | None:
    """The cells of the record at this place, why it is none, and the place after it; None: more
    data is needed to know.
    """
    cells: list[str | None] = []
    broken = ""
    while True:
        found = cell.match(data, at)
        if found is None:
            if not whole and _OPEN.fullmatch(data, at):
                return None
            stop = data.find(b"\n", at)
            if stop < 0 and not whole:
                return None
            why = "a quote is not where a field begins, or is not closed"
            return cells, why, len(data) if stop < 0 else stop + 1
        quoted, bare, delimiter = found.groups()
        try:
            if quoted is not None:
                cells.append(quoted.replace(b'""', b'"').decode())
            else:
                cells.append(bare.decode() if bare else None)
        except UnicodeDecodeError as error:
            broken = f"it is not UTF-8: {error.reason}"
            cells.append(None)
        at = found.end()
        # After the last byte that is there, anything may follow: \n after \r, too.
        if not whole and at == len(data) and delimiter != b"\n" and delimiter != b"\r\n":
            return None
        if delimiter != mark:
            return cells, broken, at


def _is_array(file: BinaryIO) -> bool:
    file.seek(0)
    return file.read(_BEGINNING).removeprefix(_BOM).lstrip()[:1] == b"["


def _read_array(file: BinaryIO, offset: int, line: int, most: int) -> Piece:
    """Of one array of objects."""
    for data, whole in _chunks(file, offset):
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=whole)
        piece, at, ended = _elements(text, line, most, first=not offset, whole=whole)
        if piece.rows or ended or whole:
            break
    if not ended:
        if whole and len(piece.rows) < most:
            raise InvalidArgument("the file ends in the middle of its array")
        piece.offset = offset + len(text[:at].encode())
    return piece


def _elements(
    text: str, line: int, most: int, *, first: bool, whole: bool
) -> tuple[Piece, int, bool]:
    """Elements that are whole, the place after them, and whether the array ends there."""
    decode = json.JSONDecoder(parse_float=_exact).raw_decode
    piece, at = Piece([], [], None, line), int(first and text.startswith("\ufeff"))
    mark = "[" if first else ","
    while len(piece.rows) < most:
        found = _ELEMENT.match(text, at)
        if found is None and not text[at:].strip():
            return piece, at, False
        if found is not None and (
            found[1] == "]" or (found[1] == "[" and text.startswith("]", found.end()))
        ):
            return piece, at, True
        if found is None or found[1] != mark:
            raise InvalidArgument(f"line {piece.line + 1}: it is no array of objects")
        mark = ","
        try:
            value, after = decode(text, found.end())
        except ValueError as error:
            if not whole:
                return piece, at, False
            raise InvalidArgument(f"it is no array of objects: {error}") from error
        piece.line += text.count("\n", at, after)
        why = "" if isinstance(value, dict) else "it is no object"
        piece.rows.append(Cells(piece.line + 1, () if why else (value,), why))
        at = after
    return piece, at, False


def _read_json(file: BinaryIO, offset: int, line: int, most: int) -> Piece:
    for data, whole in _chunks(file, offset):
        if data.count(b"\n") or whole:
            break
    piece = Piece([], [], None, line)
    at = len(_BOM) if not offset and data.startswith(_BOM) else 0
    while at < len(data) and len(piece.rows) < most:
        stop = data.find(b"\n", at)
        if stop < 0 and not whole:
            break
        raw, at = (data[at:], len(data)) if stop < 0 else (data[at:stop], stop + 1)
        piece.line += 1
        if not raw.strip():
            continue
        try:
            value = json.loads(raw, parse_float=_exact)
            if not isinstance(value, dict):
                raise ValueError("it is no object")
            piece.rows.append(Cells(piece.line, (value,)))
        except ValueError as error:
            piece.rows.append(Cells(piece.line, (), f"it is no JSON object: {error}"))
    if not (whole and at >= len(data)):
        piece.offset = offset + at
    return piece


def _exact(text: str) -> object:
    from decimal import Decimal

    return Decimal(text)


def _read_parquet(file: BinaryIO, offset: int, most: int, kept: tuple[Groups, Hashable]) -> Piece:
    pa = needed("pyarrow")
    pq = needed("pyarrow.parquet")

    try:
        parquet = pq.ParquetFile(file)
        names = list(parquet.schema_arrow.names)
        groups, key = kept
        key = key, parquet.metadata.serialized_size, parquet.metadata.num_rows
        first = 0
        for group in range(parquet.num_row_groups):
            count = parquet.metadata.row_group(group).num_rows
            if offset < first + count:
                decode = partial(parquet.read_row_group, group)
                table = groups.rows(key, offset, most, first, decode)
                break
            first += count
        else:
            return Piece(names)
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(f"it is no Parquet file: {error}") from error
    columns = [
        list(map(plain_of(column.type), column.to_pylist()))
        if pa.types.is_nested(column.type)
        else _in_microseconds(column).to_pylist()
        for column in table.columns
    ]
    rows = [Cells(offset + at + 1, values) for at, values in enumerate(zip(*columns, strict=True))]
    after = offset + table.num_rows
    total = parquet.metadata.num_rows
    return Piece(names, rows, after if after < total else None)


def _in_microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times that Python has no form for: what is finer than SQL's microseconds is cut off."""
    pa = needed("pyarrow")

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_time(kind) and kind.unit == "ns":
        return column.cast(pa.time64("us"), safe=False)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return column.cast(pa.duration("us"), safe=False)
    return column


def plain_of(kind: pa.DataType) -> Callable[[Any], object]:
    """From a nested Parquet value to what JSON writes: a map is an object, not a list of pairs."""
    pa = needed("pyarrow")

    if pa.types.is_map(kind):
        item = plain_of(kind.item_type)
        return lambda v: None if v is None else {str(key): item(one) for key, one in v}
    if pa.types.is_struct(kind):
        fields = [(field.name, plain_of(field.type)) for field in kind]
        return lambda v: None if v is None else {name: of(v[name]) for name, of in fields}
    if any(is_list(kind) for is_list in _lists()):
        inner = plain_of(kind.value_type)
        return lambda v: None if v is None else [inner(one) for one in v]
    return lambda v: v


def _lists() -> tuple[Callable[[object], bool], ...]:
    pa = needed("pyarrow")

    return pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list


def _shown(value: object) -> object:
    """In JSON, of what it has no form for: bytes are base64, times ISO 8601."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# -- cells into values


def from_text(column: Column | None) -> Callable[[Any], object]:
    """Of csv: text → the user form of the column (None: a plain table's bytes)."""
    if column is None:
        return bytes_read
    from sqlproxy.pg.oids import by_name
    from sqlproxy.pg.text import reader

    of, typmod = by_name(column.type)
    return reader(of.oid, typmod=typmod)


def from_value(column: Column | None) -> Callable[[object], object]:
    """Of json, parquet and other databases: a Python value → the user form of the column."""
    read = from_text(column)
    if column is None:
        return lambda v: v if isinstance(v, bytes) else read(v)
    kind = column.resolved
    return lambda value: _value(kind, read, value)


def _value(kind: Type, read: Callable[[str], object], value: Any) -> object:
    from decimal import Decimal

    if isinstance(value, str):
        return value if kind.base in _TEXTS else read(value)
    if kind.element is not None and isinstance(value, list | tuple):
        from sqlproxy.pg.oids import by_name
        from sqlproxy.pg.text import reader

        of, typmod = by_name(kind.element.name)
        inner = reader(of.oid, typmod=typmod)
        return [None if v is None else _value(kind.element, inner, v) for v in value]
    if kind.base in ("json", "jsonb"):
        return read(json.dumps(value, default=_shown))
    if isinstance(value, bool):
        return value if kind.base == "bool" else read(str(value).lower())
    if kind.base in _NUMBERS and isinstance(value, int | float | Decimal):
        if kind.base == "numeric":
            return Decimal(str(value))
        return read(str(value)) if not isinstance(value, float) else read(repr(value))
    if kind.base in _TEXTS and not isinstance(value, bytes):
        return str(value)
    if kind.base == "interval" and hasattr(value, "nanoseconds"):
        from sqlproxy.values.interval import Interval

        return Interval(value.months, value.days, value.nanoseconds // 1000)
    if kind.base == "interval" and isinstance(value, timedelta):
        from sqlproxy.values.interval import Interval

        whole = value // timedelta(microseconds=1)
        days, rest = divmod(abs(whole), _DAY_US)
        return Interval(0, days, rest) if whole >= 0 else Interval(0, -days, -rest)
    if kind.base == "timestamptz" and getattr(value, "tzinfo", 0) is None:
        raise ValueError("a time with a zone is wanted, and it has none")
    return value
