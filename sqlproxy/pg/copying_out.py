"""Rows as COPY TO writes them: text, csv, binary (the formats: `copying.py`). Pure."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlproxy.pg import binary, oids, text
from sqlproxy.pg.answers import CopyFormat, Field
from sqlproxy.pg.copying import HEADER
from sqlproxy.pg.style import Style

TRAILER: Final = b"\xff\xff"  # ends a binary stream
_I2, _I4 = struct.Struct(">h"), struct.Struct(">i")
_TEXT_ESCAPES: Final = {
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}

WriteRow = Callable[[Sequence[object]], bytes]


def header(of: CopyFormat, fields: Sequence[Field]) -> bytes:
    """What comes before the first row: of binary it is sent together with it."""
    if of.kind == "binary":
        return HEADER
    if not (of.header or of.header_match):
        return b""
    if of.kind == "text":
        names = [_escaped_text(field.name, of.delimiter) for field in fields]
    else:
        names = [_quoted_csv(field.name, of, force=False) for field in fields]
    return of.delimiter.join(names).encode() + b"\n"


def row_writer(of: CopyFormat, fields: Sequence[Field], style: Style) -> WriteRow:
    """One row's bytes, with the newline."""
    if of.kind == "binary":
        return _binary_row(fields)
    writers = [text.writer(field.oid, style) for field in fields]
    if of.kind == "text":
        return _text_row(of, writers)
    force = [of.force_quote_all or field.name in of.force_quote for field in fields]
    return _csv_row(of, writers, force)


def batch_writer(
    of: CopyFormat, fields: Sequence[Field], style: Style
) -> Callable[[Sequence[Sequence[object]]], list[bytes]]:
    """The bytes of many rows, each with its newline."""
    write = row_writer(of, fields, style)
    if of.kind != "text" or not fields:
        return lambda rows: [write(row) for row in rows]
    writers = [_cells(field.oid, style) for field in fields]
    null, delimiter = of.null, of.delimiter
    special = re.compile(f"[\\\\\b\f\n\r\t\v{re.escape(delimiter)}]")

    def column(
        values: Sequence[object], cells_of: Callable[[Sequence[object]], list[str]]
    ) -> list[str]:
        if None in values:
            found = iter(column([v for v in values if v is not None], cells_of))
            return [null if v is None else next(found) for v in values]
        cells = cells_of(values)
        if special.search("".join(cells)):
            return [_escaped_text(c, delimiter) if special.search(c) else c for c in cells]
        return cells

    def write_all(rows: Sequence[Sequence[object]]) -> list[bytes]:
        if not rows:
            return []
        columns = [
            column(values, cells)
            for values, cells in zip(zip(*rows, strict=True), writers, strict=True)
        ]
        return [line.encode() + b"\n" for line in map(delimiter.join, zip(*columns, strict=True))]

    return write_all


def _cells(oid: int, style: Style) -> Callable[[Sequence[Any]], list[str]]:
    """The texts of values of one column, none of them NULL."""
    if oid in (oids.INT2, oids.INT4, oids.INT8):
        return lambda values: list(map(str, values))
    if oid in (oids.TEXT, oids.VARCHAR):
        return list
    write = text.writer(oid, style)
    return lambda values: list(map(write, values))


def _text_row(of: CopyFormat, writers: Sequence[Callable[[object], str]]) -> WriteRow:
    null, delimiter = of.null, of.delimiter
    special = re.compile(f"[\\\\\b\f\n\r\t\v{re.escape(delimiter)}]")

    def write(row: Sequence[object]) -> bytes:
        cells = []
        for value, text_of in zip(row, writers, strict=True):
            if value is None:
                cells.append(null)
                continue
            cell = text_of(value)
            cells.append(_escaped_text(cell, delimiter) if special.search(cell) else cell)
        return (delimiter.join(cells) + "\n").encode()

    return write


def _escaped_text(cell: str, delimiter: str) -> str:
    out = [_TEXT_ESCAPES.get(c) or (f"\\{c}" if c == delimiter else c) for c in cell]
    return "".join(out)


def _csv_row(
    of: CopyFormat, writers: Sequence[Callable[[object], str]], force: Sequence[bool]
) -> WriteRow:
    single = len(writers) == 1

    def write(row: Sequence[object]) -> bytes:
        cells = []
        for value, text_of, forced in zip(row, writers, force, strict=True):
            if value is None:
                cells.append(of.null)
            else:
                cells.append(_quoted_csv(text_of(value), of, force=forced, single=single))
        return (of.delimiter.join(cells) + "\n").encode()

    return write


def _quoted_csv(cell: str, of: CopyFormat, *, force: bool, single: bool = False) -> str:
    needs = (
        force
        or cell == of.null
        or (single and cell == "\\.")
        or any(c in cell for c in (of.delimiter, of.quote, "\n", "\r"))
    )
    if not needs:
        return cell
    escaped = cell.replace(of.escape, of.escape * 2) if of.escape != of.quote else cell
    return of.quote + escaped.replace(of.quote, of.escape + of.quote) + of.quote


def _binary_row(fields: Sequence[Field]) -> WriteRow:
    writers = [binary.writer(field.oid) for field in fields]
    count = _I2.pack(len(fields))

    def write(row: Sequence[object]) -> bytes:
        out = [count]
        for value, raw_of in zip(row, writers, strict=True):
            if value is None:
                out.append(b"\xff\xff\xff\xff")
            else:
                raw = raw_of(value)
                out += (_I4.pack(len(raw)), raw)
        return b"".join(out)

    return write
