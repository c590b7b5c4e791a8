"""Plain lines of a COPY column by column: many cells are split, looked at and converted by one call
of C each. Pure.

Only what is plain goes this way: lines with the right number of cells, no quote, no backslash but
that of NULL, numbers and times written as everybody writes them. `columns_of` gives None for
anything else, and the reader of single lines (`copying.py`) takes the same lines: it knows every
other spelling, and which line and column is wrong. So the values are the same either way; a pattern
here is narrower than what Python's own functions take (`1_000`, digits of other scripts), and than
PostgreSQL's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from sqlproxy.pg import oids
from sqlproxy.pg.answers import Columns
from sqlproxy.values.errors import SqlError

Convert = Callable[[list[str]], Sequence[object]]  # raises ValueError: not plain

_INTEGERS: Final = re.compile(r"[-+0-9\n]*")
_FLOATS: Final = re.compile(r"[-+.0-9\n]*")
_DATES: Final = re.compile(r"(?:\d{4}-\d\d-\d\d\n)*", re.ASCII)
_TIMESTAMPS: Final = re.compile(r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?\n)*", re.ASCII)
_INT_CHARS_MAX: Final = 20
_FLOAT_CHARS_MAX: Final = 25  # without an exponent: nothing overflows or vanishes
_TRUTH: Final = {"t": True, "f": False}


def _integers(bits: int) -> Convert:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(cells: list[str]) -> Sequence[object]:
        if not _INTEGERS.fullmatch("\n".join(cells)) or max(map(len, cells)) > _INT_CHARS_MAX:
            raise ValueError
        found = list(map(int, cells))
        if min(found) < low or max(found) > high:
            raise ValueError
        return found

    return convert


def _floats(cells: list[str]) -> Sequence[object]:
    if not _FLOATS.fullmatch("\n".join(cells)) or max(map(len, cells)) > _FLOAT_CHARS_MAX:
        raise ValueError
    return list(map(float, cells))


def _times(pattern: re.Pattern[str], read: Callable[[str], object]) -> Convert:
    def convert(cells: list[str]) -> Sequence[object]:
        if not pattern.fullmatch("\n".join([*cells, ""])):
            raise ValueError
        return list(map(read, cells))

    return convert


def _truths(cells: list[str]) -> Sequence[object]:
    try:
        return [_TRUTH[cell] for cell in cells]
    except KeyError:
        raise ValueError from None


_CONVERT: Final[dict[int, Convert]] = {
    oids.INT2: _integers(16),
    oids.INT4: _integers(32),
    oids.INT8: _integers(64),
    oids.FLOAT8: _floats,
    oids.BOOL: _truths,
    oids.DATE: _times(_DATES, date.fromisoformat),
    oids.TIMESTAMP: _times(_TIMESTAMPS, datetime.fromisoformat),
    oids.TEXT: list,
    oids.VARCHAR: list,
}


def _short(chars: int) -> Convert:
    def convert(cells: list[str]) -> Sequence[object]:
        if max(map(len, cells)) > chars:
            raise ValueError
        return cells

    return convert


def _exact(typmod: int, read: Callable[[str], object]) -> Convert:
    """numeric(p, s) with all s digits after the point: as it is read it is of its type; not -0."""
    precision, scale = (typmod - 4) >> 16, (typmod - 4) & 0x7FF
    if not 0 < scale < precision:
        return lambda cells: list(map(read, cells))
    pattern = re.compile(
        rf"(?:(?:-(?=[0.]*[1-9]))?\d{{1,{precision - scale}}}\.\d{{{scale}}}\n)*", re.ASCII
    )

    def convert(cells: list[str]) -> Sequence[object]:
        if pattern.fullmatch("\n".join([*cells, ""])):
            return list(map(Decimal, cells))
        return list(map(read, cells))

    return convert


def converters(
    types: Sequence[tuple[int, int]], readers: Sequence[Callable[[str], object]]
) -> list[Convert]:
    """By OID and modifier of the columns; `readers` are for all that has no fast way."""

    def one(oid: int, typmod: int, read: Callable[[str], object]) -> Convert:
        if oid == oids.VARCHAR and typmod >= 0:
            return _short(typmod - 4)
        if oid == oids.NUMERIC and typmod >= 0:
            return _exact(typmod, read)
        return _CONVERT.get(oid) or (lambda cells: list(map(read, cells)))

    return [one(*of, read) for of, read in zip(types, readers, strict=True)]


def columns_of(
    lines: Sequence[str], delimiter: str, null: str, escape: str, convert: Sequence[Convert]
) -> Columns | None:
    """The values of plain lines; None if they are not. `escape`: what no cell but a NULL has in
    it.
    """
    width = len(convert)
    if not width or {line.count(delimiter) for line in lines} != {width - 1}:
        return None
    joined = delimiter.join(lines)
    cells = joined.split(delimiter)
    columns: list[Sequence[object]] = []
    nulls = 0
    try:
        for at, to in enumerate(convert):
            mine = cells[at::width]
            if null not in mine:
                columns.append(to(mine))
                continue
            there = [cell for cell in mine if cell != null]
            nulls += len(mine) - len(there)
            values = iter(to(there) if there else ())
            columns.append([None if cell == null else next(values) for cell in mine])
    except (ValueError, SqlError):
        return None
    if joined.count(escape) != nulls * null.count(escape):
        return None
    return Columns(columns, len(lines))
