"""Scans for DuckDB: pages of records as they lie, values where they are not simple, one order."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from struct import pack
from typing import Any, cast

import psycopg
import pytest

from kv.base.errors import Unavailable
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.mvcc.records import cur_row
from sqlproxy.analytic.engine import Engine
from sqlproxy.analytic.forms import held
from sqlproxy.analytic.selects import Source
from sqlproxy.analytic.sources import Loader, load
from sqlproxy.front.binding.fromitems import item_columns
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.statements import TableItem
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Column, Table
from sqlproxy.tables.reading import Counted, Reads, Touched
from txn.results import Tally

READ_TS = 100
TABLE = Table(
    id=TableId(77),
    namespace="n",
    name="t",
    state="public",
    primary_key=("id",),
    columns=(Column(1, "id", "int8", nullable=False), Column(2, "b", "text")),
    next_column_id=3,
)


class _Store:
    """Rows of a snapshot, of which some were changed since; `locked`: rows with an intent."""

    read_ts = READ_TS

    def __init__(self, count: int, newer: set[int], locked: set[int], page: int) -> None:
        self._page, self._locked = page, locked
        self.fails_at = -1
        self.sealed_pages = self.values_pages = 0
        encode = codec(TABLE).encode_row
        self.rows = [(i, f"text {i}" if i % 7 else None) for i in range(count)]
        self._keys, self._values, self._records = [], [], []
        for i, row in enumerate(self.rows):
            key, value = encode(row)
            key = table_prefix(TABLE.id) + key
            now = encode((i, "newer"))[1] if i in newer else value
            record = cur_row(key, now, READ_TS + 1 if i in newer else READ_TS, None)[1]
            self._keys.append(key)
            self._values.append(value)
            self._records.append(record or b"")

    def _range(self, start: bytes, end: bytes) -> tuple[range, bytes | None]:
        low, high = bisect_left(self._keys, start), bisect_left(self._keys, end)
        upto = min(high, low + self._page)
        return range(low, upto), self._keys[upto] if upto < high else None

    async def scan_sealed(
        self, start: bytes, end: bytes, *, limit: int
    ) -> tuple[bytes, bytes, bytes | None] | None:
        places, resume = self._range(start, end)
        if self.fails_at in places:
            raise Unavailable("the node is gone")
        if self._locked.intersection(places):
            return None
        self.sealed_pages += 1
        flat = list(chain.from_iterable((self._keys[i], self._records[i]) for i in places))
        return pack(f"<{len(flat)}I", *map(len, flat)), b"".join(flat), resume

    async def scan_values(
        self, start: bytes, end: bytes, *, limit: int, tally: Tally | None = None
    ) -> tuple[list[bytes], bytes | None]:
        places, resume = self._range(start, end)
        self.values_pages += 1
        if tally is not None:
            tally.versions += len(places)
        return [self._values[i] for i in places], resume


async def _in_thread(call: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(call, *args)


def _loader(used: set[int], directory: Path) -> Loader:
    columns = item_columns(TABLE)
    item = TableItem(alias="t", columns=columns, offset=0, table=TABLE)
    kinds = tuple(held(column.oid, column.typmod) for column in columns)
    return Loader(Source("s1", item, kinds, (), used), Engine(directory / "duck"))


async def _loaded(store: _Store, used: set[int], directory: Path, touched: Touched) -> Any:
    env = cast("Env", None)  # no condition is computed
    return await load(_loader(used, directory), cast("Reads", store), env, touched, _in_thread)


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(12))
async def test_p1_a_scan_is_the_snapshot_in_its_order(seed: int, tmp_path: Path) -> None:
    """Rows that were changed since, or have an intent, come as they are now, twice, out of order or
    not at all.
    """
    rng = random.Random(seed)
    count = rng.choice([0, 1, 40, 400])
    newer, locked = (
        set(rng.sample(range(count), min(count, rng.choice([0, 0, 1, 3])))) for _ in range(2)
    )
    store = _Store(count, newer, locked, page=rng.choice([1, 7, 50]))
    for used, touched in (({0, 1}, Touched()), ({1}, Touched()), (set(), Counted(lambda: 0.0))):
        found = await _loaded(store, used, tmp_path, touched)
        assert found.num_rows == count == touched.scanned
        assert touched.tally is None or touched.tally.versions == count
        for i in used:
            assert found.column(f"c{i}").to_pylist() == [row[i] for row in store.rows]


async def test_p1_simple_pages_come_as_they_lie(tmp_path: Path) -> None:
    """Every page of a table at rest is read row by row, or read twice."""
    store = _Store(100, set(), set(), page=10)
    await _loaded(store, {0, 1}, tmp_path, Touched())
    assert (store.sealed_pages, store.values_pages) == (10, 0)


async def test_n4_a_scan_that_fails_leaves_no_thread_at_work(tmp_path: Path) -> None:
    """The failure of a read is told while a page is still added to what is closed next."""
    store = _Store(100, set(), set(), page=10)
    store.fails_at = 35
    running = 0

    async def slow(call: Callable[..., Any], *args: Any) -> Any:
        nonlocal running
        running += 1
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return call(*args)

    env = cast("Env", None)
    with pytest.raises(Unavailable):
        await load(_loader({0, 1}, tmp_path), cast("Reads", store), env, Touched(), slow)
    assert running == 0


def test_p1_rows_that_change_below_a_snapshot_stay(filled: psycopg.Connection) -> None:
    """An aggregate of an open transaction sees updates and deletions of others."""
    query = "select count(*), sum(n), min(v), max(d) from scanned where id >= 0"
    columns = "id int primary key, n int8, v text, d numeric(10,2)"
    filled.execute(f"create table scanned ({columns})")
    try:
        filled.execute(
            "insert into scanned select g, g, 'v' || g, g * 0.25 from generate_series(1, 5000) g"
        )
        with (
            psycopg.connect(filled.info.dsn, autocommit=True) as other,
            filled.transaction(),
        ):
            filled.execute("set transaction isolation level repeatable read")
            before = filled.execute(query).fetchone()
            assert before is not None
            assert before[:2] == (5000, 5000 * 5001 // 2)
            other.execute("update scanned set n = 0, v = '' where id % 1000 = 7")
            other.execute("delete from scanned where id % 1000 = 500")
            assert filled.execute(query).fetchone() == before
            now = other.execute(query).fetchone()
            assert now is not None
            assert now[0] == 4995
            assert now[2] == ""
    finally:
        filled.execute("drop table scanned")
