"""psycopg 3 as people use it: parameters, prepared statements, COPY, cursors, pipelines."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster

VALUES: dict[str, Any] = {
    "bool": True,
    "int2": -7,
    "int4": 1 << 30,
    "int8": -(1 << 62),
    "float4": 1.5,
    "float8": 1e300,
    "numeric(12,4)": Decimal("-12345.6789"),
    "text": "žluťoučký 'kůň' \\ \n",
    "varchar(10)": "ten",
    "bytea": b"\x00\xff\\x",
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "date": date(1999, 12, 31),
    "time": time(23, 59, 58, 999_999),
    "timestamp": datetime(2020, 2, 29, 1, 2, 3, 4),  # noqa: DTZ001
    "timestamptz": datetime(2020, 2, 29, 1, 2, 3, 4, UTC),
    "interval": timedelta(days=3, seconds=7),
    "jsonb": None,
    "int4[]": [1, None, 3],
    "text[]": ["a", 'b"c', None],
}


@pytest.mark.parametrize("binary", [False, True])
def test_p1_values_of_every_type_round_trip(db: psycopg.Connection, binary: bool) -> None:
    """A value that comes back different, or of another Python type, is a lie about the data."""
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(VALUES))
    db.execute(f"CREATE TABLE v (id int PRIMARY KEY, {columns})")
    with db.cursor(binary=binary) as cur:
        marks = ", ".join(["%s"] * len(VALUES))
        cur.execute(f"INSERT INTO v VALUES (1, {marks})", list(VALUES.values()))
        cur.execute("INSERT INTO v (id) VALUES (2)")
        cur.execute("SELECT * FROM v WHERE id = %s", (1,))
        found = cur.fetchone()
        assert found is not None
        assert found[1:] == tuple(VALUES.values())
        cur.execute("SELECT * FROM v WHERE id = %s", (2,))
        assert cur.fetchone() == (2,) + (None,) * len(VALUES)


def test_p1_prepared_statements_meet_a_changed_table(db: psycopg.Connection) -> None:
    """A plan that outlives the schema that it was made for reads columns that are not there."""
    db.execute("CREATE TABLE p (id int PRIMARY KEY, v text)")
    for n in range(20):
        db.execute("INSERT INTO p VALUES (%s, %s)", (n, str(n)), prepare=True)
    for n in range(20):
        assert db.execute("SELECT v FROM p WHERE id = %s", (n,), prepare=True).fetchone() == (
            str(n),
        )
    db.execute("ALTER TABLE p ADD COLUMN w int DEFAULT 7")
    assert db.execute("SELECT v FROM p WHERE id = %s", (3,), prepare=True).fetchone() == ("3",)
    assert db.execute("SELECT * FROM p WHERE id = 3").fetchone() == (3, "3", 7)


def test_p1_prepared_statements_meet_an_emptied_table(db: psycopg.Connection) -> None:
    """TRUNCATE gives a table another OID: each prepared statement that reads it was refused."""
    db.execute("CREATE TABLE emptied (id int PRIMARY KEY, b text)")
    db.execute("INSERT INTO emptied VALUES (1, 'a')")
    asked = ("SELECT id, b FROM emptied WHERE id = 1", "SELECT b, id + 0 FROM emptied")
    for query in asked:
        assert len(db.execute(query, prepare=True).fetchall()) == 1
    db.execute("TRUNCATE emptied")
    for query in asked:
        assert db.execute(query, prepare=True).fetchall() == []


def test_p1_copy_in_and_out(db: psycopg.Connection) -> None:
    """COPY is how data is loaded: what goes in must come out, in text, CSV and binary."""
    db.execute("CREATE TABLE c (id int PRIMARY KEY, v text, n numeric)")
    rows = [(n, None if n % 7 == 0 else f"v\t{n}\\", Decimal(n) / 8) for n in range(2_500)]
    with db.cursor() as cur:
        with cur.copy("COPY c FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        assert cur.rowcount == len(rows)
        with cur.copy("COPY c TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "numeric"])
            assert list(copy.rows()) == rows
        with cur.copy("COPY (SELECT id, v FROM c WHERE id < 3) TO STDOUT (FORMAT csv)") as copy:
            assert b"".join(copy) == b"0,\n1,v\t1\\\n2,v\t2\\\n"
        with (
            pytest.raises(psycopg.errors.UniqueViolation),
            cur.copy("COPY c FROM STDIN (FORMAT csv)") as copy,
        ):
            copy.write("5000,new,1\n3,old,1\n")
    assert db.execute("SELECT v FROM c WHERE id = 5000").fetchone() is None


def test_p1_server_cursors(sql: Sql) -> None:
    """A result that does not fit the client is read through a cursor, forward and in pieces."""
    with sql.connect() as conn:
        conn.execute("CREATE TABLE k (id int PRIMARY KEY)")
        conn.execute("INSERT INTO k SELECT * FROM (VALUES (1), (2), (3), (4), (5), (6), (7)) v(a)")
        conn.commit()
        with conn.cursor(name="c") as cur:
            cur.itersize = 3
            cur.execute("SELECT id FROM k WHERE id > %s ORDER BY id", (1,))
            assert cur.fetchmany(2) == [(2,), (3,)]
            assert [row[0] for row in cur] == [4, 5, 6, 7]
        with conn.cursor(name="h", withhold=True) as cur:
            cur.execute("SELECT id FROM k ORDER BY id DESC")
            assert cur.fetchone() == (7,)
            conn.commit()
            assert cur.fetchmany(2) == [(6,), (5,)]


def test_p1_pipeline_mode(sql: Sql) -> None:
    """Statements without waiting for answers: an error skips what follows up to the sync."""
    with sql.connect(autocommit=True) as conn:
        conn.execute("CREATE TABLE q (id int PRIMARY KEY, v int)")
        with conn.pipeline() as pipeline:
            for n in range(50):
                conn.execute("INSERT INTO q VALUES (%s, %s)", (n, n * n))
            pipeline.sync()
            found = conn.execute("SELECT v FROM q WHERE id = 7")
            assert found.fetchone() == (49,)
        with pytest.raises(psycopg.errors.UniqueViolation), conn.pipeline() as pipeline:  # noqa: PT012
            conn.execute("INSERT INTO q VALUES (100, 1)")
            conn.execute("INSERT INTO q VALUES (1, 1)")
            conn.execute("INSERT INTO q VALUES (101, 1)")
            pipeline.sync()
        rows = conn.execute("SELECT id FROM q WHERE id >= 100").fetchall()
        assert rows == []


def test_p1_executemany_with_returning(db: psycopg.Connection) -> None:
    """Many rows through one statement, each with its generated number."""
    db.execute("CREATE TABLE m (id serial PRIMARY KEY, v text UNIQUE)")
    with db.cursor(row_factory=dict_row) as cur:
        cur.executemany(
            "INSERT INTO m (v) VALUES (%s) RETURNING id, v",
            [(f"v{n}",) for n in range(100)],
            returning=True,
        )
        found = []
        while True:
            found.append(cur.fetchone())
            if not cur.nextset():
                break
    assert [row["v"] for row in found if row] == [f"v{n}" for n in range(100)]
    assert len({row["id"] for row in found if row}) == 100


async def test_p1_many_async_connections(sql: Sql) -> None:
    """Clients at the same time on one loop: every answer is its own question's."""
    async with await psycopg.AsyncConnection.connect(sql.dsn, autocommit=True) as conn:
        await conn.execute("CREATE TABLE a (id int PRIMARY KEY, v int)")

    async def client(number: int) -> int:
        async with await psycopg.AsyncConnection.connect(sql.dsn, autocommit=True) as conn:
            total = 0
            for n in range(20):
                key = number * 100 + n
                await conn.execute("INSERT INTO a VALUES (%s, %s)", (key, key))
                cur = await conn.execute("SELECT v FROM a WHERE id = %s", (key,))
                row = await cur.fetchone()
                assert row == (key,)
                total += 1
            return total

    assert sum(await asyncio.gather(*(client(n) for n in range(16)))) == 320


def test_p1_errors_say_where(db: psycopg.Connection) -> None:
    """A client shows the caret where the position says."""
    db.execute("CREATE TABLE e (id int PRIMARY KEY, n int)")
    for text, state, position in (
        ("SELEC 1", "42601", "1"),
        ("SELECT nothing FROM e", "42703", "8"),
        ("SELECT * FROM nowhere", "42P01", "15"),
        ("INSERT INTO e VALUES (1, 'x')", "22P02", "26"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            db.execute(text)
        assert (caught.value.sqlstate, caught.value.diag.statement_position) == (state, position)
    for text, state in (
        ("INSERT INTO e VALUES (99999999999, 1)", "22003"),
        ("SELECT 1/0", "22012"),
        ("CREATE TEMP TABLE public.x (id int)", "42P16"),
        ("CREATE TABLE e (id int)", "42P07"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            db.execute(text)
        assert caught.value.sqlstate == state, text
    assert db.execute("SELECT 1").fetchone() == (1,)
