"""Queries in DuckDB as a client runs them: own writes, the same rows as without DuckDB, cursors,
cancels, tables that do not stay in memory.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kv.base.ids import TableId
from kv.base.limits import SQL_TRIM_BYTES
from sqlproxy.analytic import sources
from sqlproxy.analytic.engine import Engine
from sqlproxy.analytic.forms import held
from sqlproxy.analytic.functions import Functions
from sqlproxy.analytic.selects import Source
from sqlproxy.analytic.sources import Loader
from sqlproxy.front.binding.fromitems import item_columns
from sqlproxy.front.bound.statements import TableItem
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Column, Table
from sqlproxy.values.errors import DISK_FULL, SqlError
from sqlproxy.values.memory import Share

ATOMS = (
    "n > 4",
    "n = 7",
    "cid = 2",
    "cid is null",
    "id < 12",
    "id between 5 and 20",
    "id in (1, 5, 100)",
    "f < 3.5",
    "f = 'NaN'",
    "raw > 1.05",
    "raw = 1.00",
    "amount = n",
    "n = f",
    "at > '2024-01-10'",
    "z < '2024-03-05 00:00+00'",
    "tags is null",
    "'a' = any (tags)",
    "u is not null",
    "s <> 1",
    "span > '1 day'",
    "b < '\\x05'",
    "t >= '03:00'",
    "n is distinct from 3",
    "raw * 2 > amount",
    "g > -1",
    "n % 3 = 1",
    "coalesce(n, 0) < 5",
    "(n, s) < (5, 1)",
    "tags = '{x,null}'",
)
TARGETS = (
    "id",
    "n + s",
    "amount * n",
    "raw + 1",
    "f * 2",
    "upper(tags[1])",
    "at::date",
    "n::text || 'x'",
    "case when n > 3 then raw else amount end",
    "greatest(n, s)",
    "nullif(n, 7)",
    "-id",
    "z",
    "span",
    "round(amount, 1)",
    "id / 7",
    "id % 7",
    "length(u::text)",
    "g",
    "b",
    "t",
    "j",
    "n is null",
)


def _condition(rng: random.Random, depth: int = 2) -> str:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(ATOMS)
    left, right = _condition(rng, depth - 1), _condition(rng, depth - 1)
    word = rng.choice(("and", "or"))
    return f"{'not ' if rng.random() < 0.2 else ''}({left} {word} {right})"


@pytest.mark.few(21)
@pytest.mark.parametrize("seed", range(60))
def test_p1_one_table_has_the_same_rows_with_and_without_duckdb(
    filled: psycopg.Connection, seed: int
) -> None:
    """A condition or an expression means one thing for closures and another for DuckDB."""
    rng = random.Random(seed)
    targets = ", ".join(rng.sample(TARGETS, 4))
    where = _condition(rng)
    plain = filled.execute(f"select {targets} from o where {where}").fetchall()
    joined = filled.execute(f"select {targets} from o, (select 1) q where {where}").fetchall()
    assert sorted(map(repr, plain)) == sorted(map(repr, joined))


def test_p1_a_join_sees_what_its_transaction_wrote_and_no_other(filled: psycopg.Connection) -> None:
    """A query in DuckDB misses writes of its own transaction, or sees those of others."""
    query = "select count(*), sum(a.id) from c a join c b on a.id = b.id"
    before = filled.execute(query).fetchone()
    assert before is not None
    with (
        psycopg.connect(filled.info.dsn, autocommit=True) as other,
        filled.transaction(force_rollback=True),
    ):
        filled.execute("insert into c (id, name) values (1000, 'new')")
        filled.execute("delete from c where id = 1")
        assert filled.execute(query).fetchone() == (before[0], before[1] + 999)
        assert other.execute(query).fetchone() == before
    assert filled.execute(query).fetchone() == before


def test_p10_a_cursor_over_a_join_gives_its_rows_in_pieces(filled: psycopg.Connection) -> None:
    """FETCH waits for all rows, or loses some between two pieces."""
    text = "select a.id * 100000 + g from c a, generate_series(1, 20000) g order by 1"
    with filled.transaction(), filled.cursor(name="pieces") as cursor:
        cursor.itersize = 7_001
        cursor.execute(text)
        first = cursor.fetchmany(10)
        rest = cursor.fetchmany(200_000)
    assert len(first) == 10
    assert len(rest) == 5 * 20_000 - 10
    assert sorted({*first, *rest}) == [*first, *rest]


def test_p10_cancel_ends_a_query_in_duckdb(filled: psycopg.Connection) -> None:
    """A query that takes for ever cannot be stopped, and keeps a thread."""
    timer = threading.Timer(1.0, filled.cancel)
    timer.start()
    began = time.monotonic()
    with pytest.raises(psycopg.errors.QueryCanceled):
        filled.execute(
            "select count(*) from generate_series(1, 3000000) a, generate_series(1, 3000000) b"
        )
    assert time.monotonic() - began < 20
    assert filled.execute("select count(*) from c").fetchone() == (5,)


async def test_a_query_that_is_cancelled_as_it_starts_ends(tmp_path: Path) -> None:
    """It runs for ever, and nobody counts what it took, so that nobody gives its pages back."""
    share = Share(256 << 20)
    engine = Engine(tmp_path / "duck", share)
    text = "SELECT count(*) FROM range(10000000000000)"
    for turns in range(6):
        share.worn = 0
        running = engine.run(text, {}, Functions())
        starting = asyncio.ensure_future(running.next(lambda batch: batch.to_pylist()))
        for _ in range(2 + turns):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await running.close()
    assert share.worn > SQL_TRIM_BYTES
    engine.close()


def test_p1_explain_names_tables_and_ranges(filled: psycopg.Connection) -> None:
    """EXPLAIN of a join does not say that a table is read by an index, or whole."""
    text = "explain (costs off) select count(*) from o join c on o.cid = c.id where o.cid = 2"
    lines = [row[0] for row in filled.execute(text)]
    assert lines[0] == "DuckDB (Select)"
    assert "  Index Only Scan using o_cid on o" in lines
    assert "  Index Scan using c_pkey on c" in lines
    assert "    Keys: of o" in lines


def test_p1_explain_analyze_counts_what_duckdb_reads(filled: psycopg.Connection) -> None:
    """It said that an aggregate over a table reads nothing, and from nowhere."""
    rows = filled.execute("select count(*) from o").fetchone()
    lines = [row[0] for row in filled.execute("explain analyze select count(*) from o")]
    assert any(f"Read: 0 gets, {rows[0]} rows in " in line for line in lines)  # type: ignore[index]
    (told,) = [line for line in lines if line.startswith("Partitions: ")]
    assert re.fullmatch(r"Partitions: [0-9]+ of o", told)
    text = "explain (analyze, format json) select count(*) from o join c on o.cid = c.id"
    plan = filled.execute(text).fetchone()[0][0]["Plan"]  # type: ignore[index]
    assert [line.partition(" of ")[2] for line in plan["Partitions"]] == ["o", "c"]


def test_n4_a_large_table_goes_to_a_file_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table above the bound stays in memory, loses rows on its way, or leaves its file behind."""
    monkeypatch.setattr(sources, "SQL_ANALYTIC_SOURCE_BYTES", 10_000)
    table = Table(
        id=TableId(77),
        namespace="n",
        name="t",
        state="public",
        primary_key=("id",),
        columns=(Column(1, "id", "int8", nullable=False), Column(2, "b", "text")),
        next_column_id=3,
    )
    columns = item_columns(table)
    item = TableItem(alias="t", columns=columns, offset=0, table=table)
    kinds = tuple(held(column.oid, column.typmod) for column in columns)
    engine = Engine(tmp_path / "duck")
    loader = Loader(Source("s1", item, kinds, (), {0, 1}), engine)
    rows = [(i, f"text {i}") for i in range(5_000)]
    stored: list[tuple[bytes, bytes, int]] = []
    for row in rows:
        key, value = codec(table).encode_row(row)
        stored.append((b"\0\0\0M" + key, value, 1))
    for at in range(0, len(stored), 500):
        loader.decoded(stored[at : at + 500])
    found: Any = loader.done()
    assert [tuple(row.values()) for row in found.to_pylist()] == rows
    assert list(engine.directory.iterdir())
    loader.close()
    assert not list(engine.directory.iterdir())
    monkeypatch.setattr(engine, "spill_room", lambda _written=0: 5_000)
    loader = Loader(Source("s1", item, kinds, (), {0, 1}), engine)
    with pytest.raises(SqlError, match="no space") as refused:
        loader.decoded(stored)
    assert refused.value.sqlstate == DISK_FULL
    loader.close()
    assert not list(engine.directory.iterdir())


def test_n4_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """Files that a killed process wrote for large queries stay in its folder for ever, or are
    written elsewhere.
    """
    home = tmp_path / "sql-temporary"
    home.mkdir()
    (home / "left").write_text("by a killed process")
    engine = Engine(home)
    assert engine.directory == home
    assert not list(home.iterdir())
    engine.close()
    assert not home.exists()


def test_p1_a_value_that_is_too_deep_is_said_to_be_wherever_it_is_compared(
    filled: psycopg.Connection,
) -> None:
    """In DuckDB it was an internal error, and on the loop it was not."""
    deep = "[" * 900 + "]" * 900
    told = (
        "SELECT %s::jsonb = %s::jsonb",
        "SELECT count(*) FROM (SELECT %s::jsonb v FROM generate_series(1, 9)) WHERE v = %s::jsonb",
    )
    for text in told:
        with pytest.raises(psycopg.errors.StatementTooComplex, match="stack depth limit exceeded"):
            filled.execute(text, (deep, deep))
