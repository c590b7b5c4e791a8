"""What `import --create` makes of a source: types that lose no digit, and the ways a file may be
written.
"""

from __future__ import annotations

import gzip
import io
import json
from datetime import datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import InvalidArgument
from kvorum.transfer import formats, type_inference
from kvorum.transfer.create_table import schema_of
from kvorum.transfer.spools import Spools, Written
from sqlproxy.rows.schema import Column
from sqlproxy.values.interval import Interval


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-7", None], "int8"),
        (["01234", "5"], "text"),
        (["+49123"], "text"),
        (["00", "0"], "text"),
        (["-0"], "text"),
        (["9223372036854775807"], "int8"),
        (["12345678901234567890"], "numeric"),
        (["1", "12345678901234567890"], "numeric"),
        (["1.5", "2"], "float8"),
        (["1.5", "1234567890123456"], "numeric"),
        (["1.2345678901234567"], "numeric"),
        (["01.5"], "text"),
        ([".5"], "text"),
        (["1e3", "1"], "float8"),
        (["1e9999"], "text"),
        (["true", "False"], "bool"),
        (["true", "1"], "text"),
        (["t"], "text"),
        (["2024-02-29"], "date"),
        (["2023-02-29"], "text"),
        (["2024-02-29", "2024-02-29 10:00"], "timestamp"),
        (["2024-02-29T10:00:00Z"], "timestamptz"),
        (["2024-02-29T10:00:00Z", "2024-02-29 10:00"], "text"),
        (["20240229"], "int8"),
        (["0x10"], "text"),
        (["1_000"], "text"),
        (["1,5"], "text"),
        ([" 1"], "text"),
        ([None], "text"),
        ([], "text"),
        (["a", "1"], "text"),
        (["\u0661"], "text"),
        (["NaN"], "text"),
        (["1", "x", "1.5"], "text"),
    ],
)
def test_types_of_texts(cells: list[str | None], kind: str) -> None:
    """An id loses its zeros, its sign or its last digits."""
    assert type_inference.of_texts(cells) == kind
    assert type_inference.of_texts(reversed(cells)) == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None], "int8"),
        ([10**29], "numeric"),
        ([1, 10**29], "numeric"),
        (["01234"], "text"),
        (["123"], "text"),
        ([Decimal("1.5"), 2], "float8"),
        ([Decimal("1e400"), 2], "numeric"),
        ([Decimal("1e-400")], "numeric"),
        ([True], "bool"),
        ([True, 1], "text"),
        ([Decimal("0.1234567890123456789")], "numeric"),
        ([{"a": 1}], "jsonb"),
        ([[1, 2]], "int8[]"),
        ([[1], ["a"]], "jsonb"),
        ([[1, "a"]], "jsonb"),
        ([[]], "jsonb"),
        ([["a"]], "text[]"),
        ([{"a": 1}, "x"], "jsonb"),
        (["2024-02-29"], "date"),
        ([[[1]]], "jsonb"),
    ],
)
def test_types_of_values(values: list[Any], kind: str) -> None:
    """A number of JSON is rounded, or nested values become text."""
    assert type_inference.of_values(values) == kind


@given(
    st.lists(
        st.one_of(
            st.integers(-(10**40), 10**40).map(str),
            st.decimals(allow_nan=False, allow_infinity=False).map(str),
            st.from_regex(r"[-+]?0?[0-9]{1,25}(\\.[0-9]{1,20})?", fullmatch=True),
            st.dates().map(str),
            st.text("01a.-+", max_size=5),
            st.booleans().map(str),
        ),
        max_size=6,
    )
)
def test_what_is_guessed_holds_every_value(cells: list[str]) -> None:
    """A value of the very column that the type was guessed from does not fit it, or comes back as
    another number.
    """
    cells = [cell for cell in cells if cell]
    column = Column(1, "c", type_inference.of_texts(cells))
    read = formats.from_text(column)
    for cell in cells:
        found = read(cell)
        if column.type in ("int8", "numeric"):
            assert Decimal(str(found)) == Decimal(cell)
            assert column.type == "numeric" or str(found) == cell
        elif column.type == "float8":
            assert Decimal(cell) == Decimal(repr(found)) or abs(found) in (0.0, float("inf"))


WAYS: list[tuple[str, bytes, dict[str, str]]] = [
    ("t.csv", b"id,name\n01,\xc3\xa4\n02,b\n", {}),
    ("t.csv", b"\xef\xbb\xbfid;name\n01;\xc3\xa4\n02;b\n", {"delimiter": ";"}),
    ("t.csv", b"id\tname\n01\t\xe4\n02\tb\n", {"delimiter": "tab", "encoding": "latin-1"}),
    (
        "t.csv",
        "id|name\r\n01|ä\r\n02|b\r\n".encode("utf-16"),
        {"delimiter": "|", "encoding": "utf-16"},
    ),
    ("t.csv.gz", gzip.compress(b"id,name\n01,\xc3\xa4\n02,b\n"), {}),
    (
        "t.csv",
        gzip.compress(b"id,name\n01,\xe4\n02,b\n"),
        {"encoding": "cp1252", "compression": "gzip"},
    ),
    ("t.json", b'{"id": "01", "name": "\xc3\xa4"}\n{"id": "02", "name": "b"}\n', {}),
    ("t.json", b' [{"id": "01", "name": "\xc3\xa4"},\n{"id": "02", "name": "b"}]\n', {}),
    (
        "t.jsonl.gz",
        gzip.compress(b'[\n{"id":"01","name":"\xc3\xa4"}\n,{"id":"02","name":"b"} ]'),
        {},
    ),
]


@pytest.mark.parametrize(("name", "data", "how"), WAYS, ids=range(len(WAYS)))
@pytest.mark.parametrize("most", [1, 10])
def test_files_however_they_are_written(
    tmp_path: Path, name: str, data: bytes, how: dict[str, str], most: int
) -> None:
    """A delimiter, an encoding, gzip or an array of JSON is not read, or its pieces are not the
    same wherever they are cut.
    """
    source = tmp_path / name
    source.write_bytes(data)
    written, kind = Written.of(how), formats.format_of(name)
    assert schema_of(source.as_uri(), "", "", written) == [("id", "text"), ("name", "text")]
    spools, found = Spools(), []
    names: list[str] = []
    offset: Any = 0
    line = 0
    while offset is not None:
        with spools.opened((1, name), written, kind, lambda: source.open("rb")) as file:
            piece = formats.read_piece(
                kind, file, names, offset, line, most, delimiter=written.delimiter
            )
        names, offset, line = piece.names, piece.offset, piece.line
        found += piece.rows
    assert not any(row.broken for row in found)
    cells = [
        row.values if kind == "csv" else tuple(row.values[0][n] for n in ("id", "name"))
        for row in found
    ]
    assert cells == [("01", "ä"), ("02", "b")]
    spools.drop(1)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'[{"a": 1}', "in the middle"),
        (b'[{"a": 1} {"a": 2}]', "no array of objects"),
        (b'[{"a": 1},]', "no array of objects"),
        (b'[{"a": }]', "no array of objects"),
    ],
)
def test_arrays_that_are_none(data: bytes, why: str) -> None:
    """The rest of a damaged array is left out without a word."""
    with pytest.raises(InvalidArgument, match=why):
        formats.read_piece("json", io.BytesIO(data), [], 0, 0, 10)
    empty = formats.read_piece("json", io.BytesIO(b" [ ] "), [], 0, 0, 10)
    assert (empty.rows, empty.offset) == ([], None)
    odd = formats.read_piece("json", io.BytesIO(b'[{"a": 1},\n7]'), [], 0, 0, 10)
    assert [(row.line, row.broken) for row in odd.rows] == [(1, ""), (2, "it is no object")]


@pytest.mark.parametrize(
    "how",
    [
        {"delimiter": '"'},
        {"delimiter": "ab"},
        {"delimiter": "\n"},
        {"encoding": "klingon"},
        {"encoding": "rot13"},
        {"compression": "zip"},
    ],
)
def test_ways_that_there_are_not(how: dict[str, str]) -> None:
    """A wrong option is taken for the usual, and the file for a damaged one."""
    with pytest.raises(InvalidArgument, match=next(iter(how))):
        Written.of(how)


def test_a_file_that_is_damaged_is_told(tmp_path: Path) -> None:
    """A compressed file that ends early is imported as far as it goes."""
    source = tmp_path / "t.csv.gz"
    source.write_bytes(gzip.compress(b"id\n" + b"1\n" * 10_000)[:-20])
    with pytest.raises(InvalidArgument, match="cannot be unpacked"):
        Spools().opened((1, "t"), Written(), "csv", lambda: source.open("rb"))


@pytest.mark.parametrize("text", ['{\n  "id": 1\n}', "[1, 2]", '{"a": 1}{"a": 2}'])
def test_json_that_is_no_lines_is_told(tmp_path: Path, text: str) -> None:
    """One object over many lines is said to have no columns, and nobody knows why."""
    source = tmp_path / "t.json"
    source.write_text(text)
    with pytest.raises(InvalidArgument, match="line 1: it is no"):
        schema_of(source.as_uri(), "", "")


def test_parquet_types(tmp_path: Path) -> None:
    """A column that Parquet has and a table can have is refused, or comes as something else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sqlproxy.values.types import resolve

    columns = {
        "fixed": pa.array([b"ab"], pa.binary(2)),
        "map": pa.array(
            [[("k", {"n": b"x"})]], pa.map_(pa.string(), pa.struct([("n", pa.binary())]))
        ),
        "labels": pa.array(["a"]).dictionary_encode(),
        "big": pa.array([2**64 - 1], pa.uint64()),
        "list": pa.array([[1]], pa.list_(pa.int32(), 1)),
        "deep": pa.array([[[1]]], pa.list_(pa.list_(pa.int32()))),
        "lasts": pa.array([timedelta(days=-1, microseconds=-5)], pa.duration("us")),
        "nanos": pa.array([1_999], pa.timestamp("ns")),
        "clock": pa.array([1_999], pa.time64("ns")),
    }
    source = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), source)
    found = dict(schema_of(source.as_uri(), "", ""))
    assert found == {
        "fixed": "bytea",
        "map": "jsonb",
        "labels": "text",
        "big": "numeric(20,0)",
        "list": "int4[]",
        "deep": "jsonb",
        "lasts": "interval",
        "nanos": "timestamp",
        "clock": "time",
    }
    with source.open("rb") as file:
        piece = formats.read_piece("parquet", file, [], 0, 0, 10)
    values = dict(zip(piece.names, piece.rows[0].values, strict=True))
    read = {
        name: formats.from_value(Column(1, name, kind))(values[name])
        for name, kind in found.items()
    }
    assert (read["fixed"], read["labels"], read["list"]) == (b"ab", "a", [1])
    assert read["big"] == 2**64 - 1
    assert read["lasts"] == Interval(0, -1, -5)
    assert (read["nanos"], read["clock"]) == (datetime(1970, 1, 1, 0, 0, 0, 1), time(0, 0, 0, 1))  # noqa: DTZ001 (a timestamp has no zone)
    assert json.loads(str(read["map"])) == {"k": {"n": "eA=="}}
    for name, kind in found.items():
        resolve(kind).to_stored(read[name])
