"""COPY's quick ways against those of single rows: the same values, bytes, errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlproxy.front.closures.lengths import fitter
from sqlproxy.pg import copying, copying_out, oids
from sqlproxy.pg.answers import Columns, CopyFormat, Field
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values.errors import SqlError

KINDS = {
    "a": oids.INT2,
    "b": oids.INT4,
    "c": oids.INT8,
    "d": oids.FLOAT8,
    "e": oids.BOOL,
    "f": oids.DATE,
    "g": oids.TIMESTAMP,
    "h": oids.TEXT,
    "i": oids.NUMERIC,
    "j": oids.TIMESTAMPTZ,
}
FORMATS = {
    "text": CopyFormat(table="t"),
    "csv": CopyFormat("csv", delimiter=",", null="", table="t"),
    "nil": CopyFormat(null="NIL", delimiter="|", table="t"),
}
CELLS = st.sampled_from(
    [
        *"""1|-1|+1|0|007|32768|-32769|2147483648|9223372036854775808|1_000|0x1F|1e3|1.5|.5|5.|-|+|--1
    |1e400|1e-400|nan|inf|-Infinity|t|f|true|yes|TRUE|2026-01-31|2026-02-30|2026-1-1|20260131
    |2026-W01-1|0001-01-01|0000-01-01|10000-01-01|infinity|now|2026-01-31T12:00:00|\\N|NIL|\\|\\t
    |\\\\N|2026-01-31.5|x|ä|,|'q'|"|""|| 1 |1 |a b|\\x41|1.2345678901234567890123456789
    |2026-01-31 12:00:00|2026-01-31 12:00:00.25|2026-01-31 24:00:00|2026-01-31 12:00:00.123456
    |2026-01-31 12:00:60|2026-01-31 12:00:00+01|2026-01-31 12:00:00 BC|2026-01-31 12:00
    """.replace("\n    ", "").split("|"),
        *("|", "\r", chr(0x661)),  # a digit, for Python
    ]
)


def fed(of: CopyFormat, fields: Sequence[Field], data: bytes, *, many: bool) -> Any:
    """Rows, or what was refused; and whether columns were given out."""
    reader = copying.reader(of, fields, DEFAULT, 1 << 20)
    quick = False
    try:
        found = reader.feed_many(data) if many else reader.feed(data)
        if isinstance(found, Columns):
            quick, found = True, found.rows()
        return repr(found + reader.finish()), quick
    except SqlError as error:
        return (error.sqlstate, error.message, error.where), quick


@given(
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4),
    st.sampled_from(sorted(FORMATS)),
    st.data(),
)
def test_columns_are_what_lines_are(kinds: list[str], form: str, data: st.DataObject) -> None:
    """A cell would mean something else, or be taken, only because its neighbours were plain."""
    of = FORMATS[form]
    fields = [Field(f"{kind}{n}", KINDS[kind]) for n, kind in enumerate(kinds)]
    rows = data.draw(
        st.lists(st.lists(CELLS, min_size=len(kinds), max_size=len(kinds) + 1), max_size=8)
    )
    lines = "".join(of.delimiter.join(row[: len(kinds)]) + "\n" for row in rows).encode()
    assert fed(of, fields, lines, many=True)[0] == fed(of, fields, lines, many=False)[0]


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "a": st.integers(-(1 << 15), (1 << 15) - 1),
    "b": st.integers(-(1 << 31), (1 << 31) - 1),
    "c": st.integers(-(1 << 63), (1 << 63) - 1),
    "d": st.integers(-(10**9), 10**9).map(lambda n: n / 64),
    "e": st.booleans(),
    "f": st.dates(),
    "g": st.datetimes().map(lambda at: at.replace(fold=0)),
    "h": st.text("abc äß'(){}", min_size=1),
}


@settings(max_examples=50)
@given(st.lists(st.sampled_from(sorted(PLAIN)), min_size=2, max_size=6), st.data())
def test_plain_rows_go_the_quick_way_and_come_back(kinds: list[str], data: st.DataObject) -> None:
    """The quick way would be there and never be taken, or lose a value."""
    fields = [Field(f"{kind}{n}", KINDS[kind]) for n, kind in enumerate(kinds)]
    one = st.tuples(*(st.none() | PLAIN[kind] for kind in kinds))
    rows = data.draw(st.lists(one, min_size=1, max_size=8))
    of = FORMATS["text"]
    lines = b"".join(copying_out.batch_writer(of, fields, DEFAULT)(rows))
    found, quick = fed(of, fields, lines, many=True)
    assert quick
    assert found == repr(rows)


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-5, 5),
            st.none() | st.text(),
            st.none() | st.datetimes(),
            st.none() | st.floats(),
        )
    ),
    st.sampled_from(["text", "csv", "nil", "binary"]),
)
def test_many_rows_out_are_the_bytes_of_each(rows: list[Any], form: str) -> None:
    """A tab or a backslash in one cell of a page would break the lines of the others."""
    of = FORMATS.get(form) or CopyFormat("binary")
    fields = [Field(name, KINDS[name]) for name in "bhgd"]
    write: Callable[[Sequence[Any]], bytes] = copying_out.row_writer(of, fields, DEFAULT)
    many = copying_out.batch_writer(of, fields, DEFAULT)
    rows = [(a, None if b is None else b.replace("\x00", ""), c, d) for a, b, c, d in rows]
    assert many(rows) == [write(row) for row in rows]


@given(
    st.lists(
        st.tuples(
            st.none() | PLAIN["a"],
            st.none() | PLAIN["c"],
            st.none() | st.floats(allow_nan=False),
            st.none() | st.text("aä"),
            st.none() | st.dates(date(1, 1, 1), date(9999, 12, 31)),
        ),
        min_size=1,
    ),
    st.integers(1, 60),
    st.integers(0, 40),
)
def test_binary_rows_in_any_pieces(rows: list[Any], piece: int, cut: int) -> None:
    """Half a row, or one that is cut for good, would be lost or taken for another."""
    fields = [Field(name, KINDS[name]) for name in "acdhf"]
    of = CopyFormat("binary", table="t")
    write = copying_out.row_writer(of, fields, DEFAULT)
    data = copying.HEADER + b"".join(map(write, rows)) + copying_out.TRAILER
    reader = copying.reader(of, fields, DEFAULT, 1 << 20)
    found: list[Any] = []
    for at in range(0, len(data), piece):
        found += reader.feed(data[at : at + piece])
    assert found + reader.finish() == rows
    if cut:
        reader = copying.reader(of, fields, DEFAULT, 1 << 20)
        found = reader.feed(data[: max(len(copying.HEADER), len(data) - 2 - cut)])
        assert found == rows[: len(found)]
        assert len(found) < len(rows)


@pytest.mark.parametrize(
    ("body", "words", "line"),
    [
        (b"\x00\x01\x00\x00\x00\x01\x00", "incorrect binary data format", 2),
        (b"\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00", "row field count is 2, expected 1", 2),
        (b"\x00\x01\xff\xff\xff\xfe", "invalid field size", 2),
    ],
)
def test_what_is_wrong_behind_good_rows_names_its_line(body: bytes, words: str, line: int) -> None:
    """The line that is told would count from where the quick way ended."""
    good = b"\x00\x01\x00\x00\x00\x04\x00\x00\x00\x07"
    reader = copying.reader(CopyFormat("binary", table="t"), [Field("b", oids.INT4)], DEFAULT, 999)
    with pytest.raises(SqlError) as caught:
        reader.feed(copying.HEADER + good + body)
    assert words in caught.value.message
    assert f"line {line}" in caught.value.where


@pytest.mark.parametrize("cell", ["-0.00", "0.00", "-12.30", "00.10", "1.2", "7", "99.995", "1e1"])
def test_numerics_of_a_scale_are_what_single_lines_are(cell: str) -> None:
    """A column of prices would have other values, or other digits, where many came at once."""
    fields = [Field("a", oids.NUMERIC, (5 << 16) + 2 + 4)]
    of = CopyFormat(table="t", fits=(fitter(oids.NUMERIC, fields[0].typmod, False),))
    data = f"{cell}\n".encode() * 40
    many = copying.reader(of, fields, DEFAULT, 1 << 20).feed_many(data)
    rows = many.rows() if isinstance(many, Columns) else many
    single = copying.reader(of, fields, DEFAULT, 1 << 20).feed(data)
    assert [str(value) for (value,) in rows] == [str(value) for (value,) in single]
