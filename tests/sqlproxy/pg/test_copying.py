"""The formats of COPY against PostgreSQL 15 (golden.json), in one piece and byte by byte."""

from __future__ import annotations

import contextlib
import json
import pathlib
import struct
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlproxy.front.closures.lengths import fitter
from sqlproxy.pg import copying, copying_out, oids
from sqlproxy.pg.answers import Columns, CopyFormat, Field
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values.errors import SqlError
from tests.kit.each import each

GOLDEN: dict[str, Any] = json.loads(pathlib.Path(__file__).with_name("golden.json").read_text())
FIELDS = (Field("a", oids.INT4), Field("b", oids.TEXT))
LIMIT = 1 << 20
ROWS: list[tuple[Any, ...]] = [
    (1, "plain"),
    (2, None),
    (3, ""),
    (4, "tab\tnew\nline\\back"),
    (5, "a,b;c|d"),
    (6, "q\"uo'te"),
    (7, "\\."),
    (8, "NULL"),
    (9, "\r\b\fv"),
    (None, "ä€"),
    (10, " x "),
]
CSV = {"kind": "csv", "delimiter": ",", "null": ""}
OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "(header)": {"header": True},
    "(header match)": {"header_match": True},
    "(delimiter '|')": {"delimiter": "|"},
    "(null 'NIL')": {"null": "NIL"},
    "(format binary)": {"kind": "binary"},
    "(format csv)": CSV,
    "(format csv, header)": CSV | {"header": True},
    "(format csv, force_quote (b))": CSV | {"force_quote": frozenset({"b"})},
    "(format csv, force_quote *)": CSV | {"force_quote_all": True},
    "(format csv, quote '''', escape '\\')": CSV | {"quote": "'", "escape": "\\"},
    "(format csv, delimiter ';')": CSV | {"delimiter": ";"},
    "(format csv, delimiter ';', null 'NULL')": CSV | {"delimiter": ";", "null": "NULL"},
    "(format csv, null 'NULL')": CSV | {"null": "NULL"},
    "(format csv, force_null (b))": CSV | {"force_null": frozenset({"b"})},
    "(format csv, force_not_null (b))": CSV | {"force_not_null": frozenset({"b"})},
}


def of_options(options: str) -> CopyFormat:
    return CopyFormat(table="t", **OPTIONS[options])


def written(of: CopyFormat, rows: list[tuple[Any, ...]]) -> bytes:
    write = copying_out.row_writer(of, FIELDS, DEFAULT)
    data = copying_out.header(of, FIELDS) + b"".join(map(write, rows))
    return data + copying_out.TRAILER if of.kind == "binary" else data


def read(of: CopyFormat, data: bytes, piece: int) -> list[tuple[Any, ...]]:
    reader = copying.reader(of, FIELDS, DEFAULT, LIMIT)
    rows = []
    for at in range(0, len(data), piece):
        rows += reader.feed(data[at : at + piece])
    return rows + reader.finish()


@each(("options", "wanted"), GOLDEN["copy_out"])
def test_rows_out_are_postgresqls_bytes(options: str, wanted: str) -> None:
    """A file made by COPY TO could not be read by others, or held other values."""
    assert written(of_options(options), ROWS).decode("latin-1") == wanted


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@each(("options", "data", "wanted"), GOLDEN["copy_in"])
def test_rows_in_are_postgresqls_rows(options: str, data: str, wanted: Any, piece: int) -> None:
    """A file was read differently from PostgreSQL, or depending on how the network cut it."""
    if isinstance(wanted, list):
        assert read(of_options(options), data.encode(), piece) == [tuple(r) for r in wanted]
        return
    with pytest.raises(SqlError) as caught:
        read(of_options(options), data.encode(), piece)
    found = caught.value
    assert (found.sqlstate, found.message) == (wanted["sqlstate"], wanted["message"])
    if "unterminated" not in found.message:  # there PostgreSQL counts lines in its own way
        assert found.where == wanted["where"]


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
            st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
        ),
        max_size=20,
    ),
    st.sampled_from([o for o in OPTIONS if "force_null" not in o and "force_not" not in o]),
    st.integers(1, 50),
)
def test_what_is_copied_out_comes_in_again(
    rows: list[tuple[Any, ...]], options: str, piece: int
) -> None:
    """A dump and its restore made other rows."""
    of = of_options(options)
    if of.kind == "csv":  # a carriage return outside of quotes would say what all newlines are
        rows = [(a, None if b is None else b.replace("\r", "")) for a, b in rows]
    assert read(of, written(of, rows), piece) == rows


@given(st.binary(max_size=80), st.sampled_from(sorted(OPTIONS)), st.integers(1, 30))
def test_garbage_is_read_or_refused(data: bytes, options: str, piece: int) -> None:
    """Bytes of a COPY crashed its reader: the client would see an internal error."""
    prefix = copying.SIGNATURE + bytes(8) if "binary" in options else b""
    with contextlib.suppress(SqlError):
        for row in read(of_options(options), prefix + data, piece):
            assert len(row) == 2


@pytest.mark.parametrize("piece", [1, 3, 1000])
@each(
    ("options", "data", "wanted"),
    [
        ("", b"1\tb\\", [(1, "b")]),
        ("", b"1\ta\n2\tb\\", [(1, "a"), (2, "b")]),
        ("", b"1\ta\\\nb\\", [(1, "a\nb")]),
        ("", b"1\ta\\\n", [(1, "a\n")]),
        ("", b"1\ta\\\r\n2\tb\n", [(1, "a\r"), (2, "b")]),
        ("", b"1\tb\n2\tc\r\n", "literal carriage return found in data, line 2"),
        ("", b"1\tb\n2\r\tc\n", "literal carriage return found in data, line 2"),
        ("", b"1\tb\r\n2\tc\n", "literal newline found in data, line 2"),
        ("", b"1\tb\r\n2\tc\r", "literal carriage return found in data, line 2"),
        ("", b"1\tb\r2\tc\n", "literal newline found in data, line 2"),
        ("(format csv)", b"1,b\n2,c\r\n", "unquoted carriage return found in data, line 2"),
        ("(format csv)", b'1,b\n2,"c\n"\r\n', "unquoted carriage return found in data, line 3"),
        ("(format csv)", b"1,b\r\n2,c\n,d\r\n", "unquoted newline found in data, line 2"),
        ("(format csv)", b'1,b\n2,"c\r"\n', [(1, "b"), (2, "c\r")]),
    ],
)
def test_line_ends_and_backslashes_are_postgresqls(
    options: str, data: bytes, wanted: Any, piece: int
) -> None:
    """A last row would be lost, or have a carriage return more, and nobody be told."""
    if isinstance(wanted, str):
        with pytest.raises(SqlError) as refused:
            read(of_options(options), data, piece)
        assert refused.value.sqlstate == "22P04"
        assert f"{refused.value.message}, {refused.value.where[8:]}" == wanted
    else:
        assert read(of_options(options), data, piece) == wanted


@pytest.mark.parametrize("piece", [1, 3, 100])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("inner", ["\n", "\r\n", "\r"])
def test_a_line_ends_as_the_first_one_outside_of_quotes(end: str, inner: str, piece: int) -> None:
    """A line's end in the first quoted cell was taken for that of all lines: rows were one."""
    data = end.join((f'1,"a{inner}""b{inner}"', f'2,"{inner}"', "3,c", "")).encode()
    wanted = [(1, f'a{inner}"b{inner}'), (2, inner), (3, "c")]
    assert read(of_options("(format csv)"), data, piece) == wanted


@pytest.mark.parametrize(
    ("options", "first", "rest"),
    [("", b"1", b"x"), ("(format csv)", b"1", b"x"), ("(format csv)", b'1,"\n', b"x\n")],
)
def test_rows_have_a_bound(options: str, first: bytes, rest: bytes) -> None:
    """A COPY without newlines, or with an open quote, filled the memory."""
    reader = copying.reader(of_options(options), FIELDS, DEFAULT, 1_000)
    assert reader.feed(first) == []
    with pytest.raises(SqlError) as caught:
        feed_all(reader, rest * 2_000)
    assert caught.value.sqlstate == "54000"


def feed_all(reader: copying.Reader, data: bytes) -> None:
    for at in range(0, len(data), 100):
        reader.feed(data[at : at + 100])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PGCOPX", "signature not recognized"),
        (b"", "signature not recognized"),
        (copying.SIGNATURE + struct.pack(">II", 1 << 16, 0), "WITH OIDS"),
        (copying.SIGNATURE + struct.pack(">II", 1 << 20, 0), "critical flags"),
        (copying.SIGNATURE + bytes(8) + b"\x00\x03", "field count is 3, expected 2"),
        (copying.SIGNATURE + bytes(8) + b"\x00\x02\xff\xff\xff\xfe", "invalid field size"),
        (copying.SIGNATURE + bytes(8) + b"\x00\x02\x00\x00\x00\x04\x00", "unexpected EOF"),
    ],
)
def test_binary_that_is_none_is_refused(data: bytes, words: str) -> None:
    """A file of another format was taken for rows."""
    with pytest.raises(SqlError, match=words) as caught:
        read(of_options("(format binary)"), data, 3)
    assert caught.value.sqlstate == "22P04"


LENGTHS = [
    Field("id", oids.INT4),
    Field("a", oids.VARCHAR, 4 + 4),
    Field("b", oids.BPCHAR, 3 + 4),
    Field("n", oids.NUMERIC, (4 << 16) + 1 + 4),
]


def with_lengths(**options: Any) -> CopyFormat:
    fits = tuple(None if f.typmod < 0 else fitter(f.oid, f.typmod, False) for f in LENGTHS)
    return CopyFormat(table="t", fits=fits, **options)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("line", "state", "message", "where"),
    [
        (
            "7\tabcdef\tx\t1",
            "22001",
            "value too long for type character varying(4)",
            'column a: "abcdef"',
        ),
        ("7\tabcd\twxyz\t1", "22001", "value too long for type character(3)", 'column b: "wxyz"'),
        ("7\tabcd\txyz\t1234.5", "22003", "numeric field overflow", 'column n: "1234.5"'),
        (
            "7\t" + "y" * 101 + "\tx\t1",
            "22001",
            "value too long for type character varying(4)",
            'column a: "' + "y" * 100 + '..."',
        ),
    ],
)
def test_what_is_too_long_for_its_column_is_told_by_line(
    line: str, state: str, message: str, where: str, many: bool
) -> None:
    """Who loads a file of a million lines would not learn which one is wrong; and how."""
    good = "".join(f"{k}\tabcd  \tx\t1.25\n" for k in range(6))
    data = (good + line + "\n" + good).encode()
    reader = copying.reader(with_lengths(), LENGTHS, DEFAULT, LIMIT)
    with pytest.raises(SqlError) as caught:
        reader.feed_many(data) if many else reader.feed(data)
    error = caught.value
    assert (error.sqlstate, error.message) == (state, message)
    assert error.where == f"COPY t, line 7, {where}"


@pytest.mark.parametrize("size", [1, 50])
def test_what_fits_is_cut_and_filled_as_by_insert(size: int) -> None:
    """COPY would store other values than INSERT of the same text."""
    wanted = (1, "abcd", "x  ", Decimal("1.3"))
    reader = copying.reader(with_lengths(), LENGTHS, DEFAULT, LIMIT)
    found = reader.feed_many(b"1\tabcd  \tx\t1.25\n" * size)
    assert (found.rows() if isinstance(found, Columns) else found) == [wanted] * size
    reader = copying.reader(with_lengths(), LENGTHS, DEFAULT, LIMIT)
    found = reader.feed_many(b"1\tabcd\tx\t1.3\n" * size)
    assert (found.rows() if isinstance(found, Columns) else found) == [wanted] * size


def test_what_is_too_long_in_a_binary_copy_is_told_by_line() -> None:
    """The line would be unknown, or the value be cut."""
    fields = LENGTHS[:2]
    of = with_lengths(kind="binary")
    of = replace(of, fits=of.fits[:2])
    write = copying_out.row_writer(of, fields, DEFAULT)
    data = copying.HEADER + write((1, "abcd")) + write((2, "abc    ")) + write((3, "abcde"))
    reader = copying.reader(of, fields, DEFAULT, LIMIT)
    with pytest.raises(SqlError) as caught:
        reader.feed(data)
    assert caught.value.where == "COPY t, line 3, column a"
    reader = copying.reader(of, fields, DEFAULT, LIMIT)
    assert reader.feed(data[: -len(write((3, "abcde")))]) == [(1, "abcd"), (2, "abc ")]
