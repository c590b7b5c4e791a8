"""Cursors and portals: they read what was there when they were made, whatever is written later;
what the session tells of them; statements that are described by others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster

QUERIES = (
    "select id, v, w from t order by id",
    "select id, v from t where id between 10 and 60 order by id desc",
    "select v, id from t where v < 5 order by v, id",
    "select id, v from t where id = 20",
    "select id, v from t where id in (1, 20, 41, 77) order by id",
    "select w, id from t order by w, id limit 30 offset 3",
    "select count(*), sum(v), min(w) from t",
    "select v % 3, count(*) from t group by 1 order by 1",
    "select a.id, b.id from t a join t b on a.v = b.v and a.id < b.id order by 1, 2",
    "select id from t where v > (select avg(v) from t) order by id",
    "with x as (select id, v from t where v > 2) select x.id, u.n from x join u on u.n = x.v "
    "order by 1, 2",
    "select n, (select count(*) from t where t.v = u.n) from u order by n",
    "select distinct v from t order by v",
    "select id, v from t union all select n, n from u order by 1, 2",
    "select id, v from t order by id for update",
)
"""Which are answered by scans, an index, points, in memory, by DuckDB; each in one order."""


@pytest.fixture
def t(sql: Sql, db: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A connection that opens blocks; t has an index, u is small."""
    db.execute("create table t (id int primary key, v int, w text)")
    db.execute("create index on t (v)")
    db.execute("create table u (n int primary key)")
    db.execute("insert into u select g from generate_series(0, 7) g")
    db.execute("insert into t select g, g % 7, 'w' || g % 11 from generate_series(1, 80) g")
    with sql.connect() as conn:
        yield conn


def _write(chance: random.Random, conn: psycopg.Connection, number: int) -> None:
    """A change of the transaction, perhaps one that is taken back."""
    key = chance.randrange(1, 100)
    change = chance.choice(
        (
            f"insert into t values ({1_000 + number}, {key % 7}, 'new')",
            f"update t set v = v + 1 where id % 5 = {key % 5}",
            f"update t set w = 'x' || {key} where id = {key}",
            f"delete from t where id between {key} and {key + 9}",
            "delete from t",
            f"insert into u values ({1_000 + number})",
        )
    )
    back = chance.random() < 0.3
    if back:
        conn.execute("savepoint w")
    conn.execute(change)
    if back:
        conn.execute("rollback to w")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_cursors_read_what_was_there(t: psycopg.Connection, seed: int) -> None:
    """A loop over a cursor met the rows that it wrote itself, or missed those that it deleted."""
    chance = random.Random(seed)
    for number, query in enumerate(QUERIES):
        for _ in range(chance.randrange(3)):  # its own writes until then are seen
            _write(chance, t, 10 * number)
            number += 100
        there = t.execute(query).fetchall()
        kind = chance.choice(("", "scroll", "no scroll", "hold"))
        held = "with hold" if kind == "hold" and "for update" not in query else ""
        scroll = kind if kind != "hold" else ""
        t.execute(f"declare c {scroll} cursor {held} for {query}")
        found: list[Any] = []
        while chance.random() < 0.8:
            _write(chance, t, number)
            number += 1_000
            found += t.execute(f"fetch {chance.randrange(1, 9)} from c").fetchall()
        if held and chance.random() < 0.7:
            t.commit()
            _write(chance, t, number)
        found += t.execute("fetch all from c").fetchall()
        assert found == there, (query, kind)
        t.rollback()
        if held:
            t.execute("close all")
            t.commit()


@pytest.mark.slow
def test_portals_of_drivers_read_what_was_there(sql: Sql, t: psycopg.Connection) -> None:
    """asyncpg's cursors and JDBC's fetch size are portals that are fetched in pieces."""

    async def main() -> None:
        conn = await asyncpg.connect(
            sql.dsn.replace("host=", "postgresql://?host=").replace(" ", "&")
        )
        for query in QUERIES:
            async with conn.transaction():
                await conn.execute("insert into t values (500, 1, 'own')")
                there = [tuple(row) for row in await conn.fetch(query)]
                found = []
                async for row in conn.cursor(query, prefetch=7):
                    found.append(tuple(row))
                    key = 2_000 + len(found)
                    await conn.execute(f"insert into t values ({key}, {key % 7}, 'more')")
                    await conn.execute(f"delete from t where id = {1_999 + len(found)}")
                    assert len(found) < 500
                assert found == there, query
                await conn.execute("delete from t where id >= 500")
        await conn.close()

    asyncio.run(main())


def test_cursors_do_not_see_what_others_commit(sql: Sql, t: psycopg.Connection) -> None:
    """A cursor is of the moment of its DECLARE, also if nothing was read before its first FETCH."""
    with sql.connect(autocommit=True) as other:
        t.execute("declare c cursor for select count(*) from t")
        t.execute("declare d cursor for select relname from pg_class where relname like 'later%'")
        other.execute("delete from t")
        other.execute("create table later (a int)")
        assert t.execute("fetch all from c").fetchall() == [(80,)]
        assert t.execute("fetch all from d").fetchall() == []
    with sql.connect() as other:
        other.execute("declare c cursor for select count(*) from t")
        other.execute("create table later2 (a int)")  # which is not of the transaction
        assert other.execute("fetch all from c").fetchall() == [(0,)]


def test_a_lock_in_a_savepoint_goes_with_it(sql: Sql, t: psycopg.Connection) -> None:
    """Rows that were locked behind a savepoint would keep others out after its ROLLBACK."""
    with sql.connect(autocommit=True) as other:
        t.execute("select v from t where id = 2 for update")
        t.execute("savepoint s")
        t.execute("select * from t where id = 1 for update")
        t.execute("select a.id from t a join u on u.n = a.v where a.id < 9 for update of a")
        t.execute("rollback to s")
        other.execute("update t set w = 'other' where id = 1")
        t.execute("update t set w = 'mine' where id = 5")
        t.commit()
        t.execute("savepoint s")
        t.execute("select * from t where id = 1 for update")
        t.execute("release s")
        other.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("update t set w = 'again' where id = 1")
        t.execute("update t set w = 'mine' where id = 5")
        t.commit()


def test_sessions_tell_of_their_cursors_and_statements(sql: Sql, t: psycopg.Connection) -> None:
    """psycopg looks whether a cursor is still there, and tests of drivers what is prepared."""
    cursors = "select name, statement, is_holdable, is_binary, is_scrollable from pg_cursors "
    with sql.connect() as other:
        t.execute("declare b binary cursor for select 1")
        t.execute("declare h scroll cursor with hold for select id from t; select 1")
        rows = t.execute(cursors + "where name <> '' order by name").fetchall()
        assert rows == [
            ("b", "declare b binary cursor for select 1", False, True, False),
            (
                "h",
                "declare h scroll cursor with hold for select id from t; select 1",
                True,
                False,
                True,
            ),
        ]
        t.commit()
        assert t.execute("select name from pg_cursors where name <> ''").fetchall() == [("h",)]
        t.execute("close h")
        t.execute("prepare p (int, text) as select $1, $2")
        t.execute("select count(*) from t where id > %s", (1,), prepare=True)
        told = t.execute(
            "select statement, parameter_types::text, from_sql, prepare_time <= clock_timestamp() "
            "from pg_prepared_statements order by from_sql"
        ).fetchall()
        assert told == [
            ("select count(*) from t where id > $1", "{smallint}", False, True),
            ("prepare p (int, text) as select $1, $2", "{integer,text}", True, True),
        ]
        assert other.execute("select * from pg_prepared_statements").fetchall() == []
        t.execute("deallocate all")
        assert t.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)


def test_what_names_another_statement_is_described_by_it(sql: Sql, t: psycopg.Connection) -> None:
    """Describe said that EXECUTE and FETCH have no rows, and then rows came."""

    async def main() -> None:
        conn = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="kvorum", database=sql.database
        )
        await conn.execute("prepare foo as select id as x, w from t where id < 3 order by id")
        rows = await conn.fetch("execute foo")
        assert [dict(row) for row in rows] == [{"x": 1, "w": "w1"}, {"x": 2, "w": "w2"}]
        await conn.execute("prepare bar as delete from t where id = 1")
        assert await conn.fetch("execute bar") == []
        async with conn.transaction():
            await conn.execute("declare c cursor for select id from t order by id")
            assert [row["id"] for row in await conn.fetch("fetch 2 from c")] == [2, 3]
            assert await conn.fetch("move 2 in c") == []
            with pytest.raises(asyncpg.InvalidCursorNameError):
                await conn.fetch("fetch 2 from nosuch")
        await conn.execute("create table more (a int)")  # what was described is bound anew
        await conn.execute("deallocate all")
        with pytest.raises(asyncpg.InvalidSQLStatementNameError):
            await conn.fetch("execute foo")
        await conn.close()

    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        asyncio.run(_canceled(sql))
    asyncio.run(main())


async def _canceled(sql: Sql) -> None:
    """A cursor whose first rows were given up for: its block has failed, so it has no end."""
    conn = await asyncpg.connect(
        host="127.0.0.1", port=sql.port, user="kvorum", database=sql.database
    )
    try:
        async with conn.transaction():
            cursor = await conn.cursor("select pg_sleep(60)")
            with pytest.raises(asyncio.TimeoutError):
                await cursor.fetchrow(timeout=0.2)
            await cursor.fetch(1)
    finally:
        await conn.close()


def test_parameters_that_are_void_are_no_arguments(t: psycopg.Connection) -> None:
    """pgjdbc's `{? = call upper(?)}` names its result as a parameter of type void."""
    void = 2278
    for text, oids, values, expected in (
        (b"select * from upper($1,$2) as result", [void, 1043], [None, b"abc"], b"ABC"),
        (b"select * from concat($1,$2,$3) as result", [void, 25, 25], [None, b"a", b"b"], b"ab"),
        (b"select * from current_setting($1,$2) as result", [void, 25], [None, b"jit"], b"off"),
        (b"select * from pg_get_userbyid($1,$2) as result", [void, 23], [None, b"10"], b"kvorum"),
        (b"select upper($2) as result", [void, 25], [None, b"abc"], b"ABC"),
    ):
        found = t.pgconn.exec_params(text, values, oids)
        assert found.get_value(0, 0) == expected, found.error_message
        assert found.fname(0) == b"result"
    found = t.pgconn.exec_params(b"select * from nosuch($1,$2)", [None, b"1"], [void, 23])
    assert b"function nosuch(integer) does not exist" in found.error_message


def test_cursors_over_the_catalog_take_parameters(t: psycopg.Connection) -> None:
    """A driver's server-side cursor over pg_class could not be given values."""
    with t.cursor(name="q") as cursor:
        cursor.execute(
            "select relname from pg_class where relname = %s and relkind = %s", ("t", "r")
        )
        assert cursor.fetchall() == [("t",)]
