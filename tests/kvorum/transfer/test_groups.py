"""Parquet in pieces: what was decoded is used again, within its bounds."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvorum.transfer.formats import read_piece
from kvorum.transfer.row_group_cache import Groups

ROWS, GROUP, MOST = 10_000, 5_000, 300
TABLE = pa.table({"id": list(range(ROWS)), "t": [f"{i:0100}" for i in range(ROWS)]})


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The groups that were decoded."""
    found: list[int] = []
    read = pq.ParquetFile.read_row_group

    def counted(self: Any, group: int) -> Any:
        found.append(group)
        return read(self, group)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    return found


def data(table: Any = TABLE) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=GROUP)
    return out.getvalue()


def all_pieces(groups: Groups, file: bytes, key: object = 1) -> tuple[list[Any], list[int]]:
    """The rows, and where pieces began."""
    rows: list[Any] = []
    places: list[int] = []
    offset: Any = 0
    while offset is not None:
        places.append(offset)
        kept = groups, key
        piece = read_piece("parquet", io.BytesIO(file), [], offset, 0, MOST, kept=kept)
        rows += [cells.values for cells in piece.rows]
        offset = piece.offset
    return rows, places


def test_each_group_is_decoded_once(decoded: list[int]) -> None:
    """Each piece of 1,000 rows decodes a group of a million, a thousand times."""
    groups = Groups()
    rows, _ = all_pieces(groups, data())
    assert rows == list(zip(*TABLE.to_pydict().values(), strict=True))
    assert decoded == [0, 1]
    assert groups.bytes == 0, "nothing stays behind the end"


def test_a_large_group_is_kept_in_parts(decoded: list[int]) -> None:
    """A group of gigabytes stays in the node's memory, or is decoded for every piece again."""
    groups = Groups(200_000)
    rows, places = all_pieces(groups, data())
    assert rows == list(zip(*TABLE.to_pydict().values(), strict=True))
    assert places == all_pieces(Groups(0), data())[1], "pieces begin where they do without"
    parts = decoded[: decoded.index(1)]
    assert 2 <= len(parts) <= 5, parts
    read_piece("parquet", io.BytesIO(data()), [], 0, 0, MOST, kept=(groups, 1))
    assert 0 < groups.bytes <= 200_000


def test_all_windows_together_are_bounded(decoded: list[int]) -> None:
    """Imports that were aborted would leave their groups for ever."""
    one = TABLE.slice(0, GROUP).nbytes
    groups = Groups(int(one * 2.5))
    for key in range(5):
        read_piece("parquet", io.BytesIO(data()), [], 0, 0, MOST, kept=(groups, key))
        assert groups.bytes <= one * 2.5
    before = len(decoded)
    for key in (4, 3):
        read_piece("parquet", io.BytesIO(data()), [], MOST, 0, MOST, kept=(groups, key))
    assert len(decoded) == before, "the newest two are there"


def test_another_file_of_the_name_is_read_anew() -> None:
    """A file that was replaced by a longer one would give the rows of before."""
    groups = Groups()
    longer = pa.concat_tables([TABLE.slice(1), TABLE])
    read_piece("parquet", io.BytesIO(data()), [], 0, 0, MOST, kept=(groups, 1))
    piece = read_piece("parquet", io.BytesIO(data(longer)), [], MOST, 0, MOST, kept=(groups, 1))
    assert piece.rows[0].values[0] == MOST + 1
