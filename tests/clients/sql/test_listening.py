"""LISTEN and NOTIFY, by psycopg and asyncpg: what a program that waits for news depends on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster

_ENOUGH_S = 60.0  # of a machine that does much else; what is there comes at once


def heard(conn: psycopg.Connection, count: int) -> Sequence[tuple[str, str]]:
    """So many notifications, and the last of all is the word "end"."""
    found = [(n.channel, n.payload) for n in conn.notifies(timeout=_ENOUGH_S, stop_after=count + 1)]
    assert found[-1][1] == "end", found
    return found[:-1]


def test_p10_what_is_committed_is_heard_in_order(sql: Sql, db: psycopg.Connection) -> None:
    """Something would be heard that never happened, twice, or in another order."""
    with sql.connect(autocommit=True) as listener:
        db.execute("NOTIFY jobs, 'too early'")
        listener.execute('LISTEN jobs; LISTEN "Odd Channel"')
        assert listener.execute("SELECT * FROM pg_listening_channels()").fetchall() == [
            ("jobs",),
            ("Odd Channel",),
        ]
        db.execute("CREATE TABLE t (id int PRIMARY KEY)")
        db.execute("NOTIFY jobs")
        db.execute("NOTIFY nobody, 'hears this'")
        with db.transaction():
            db.execute("INSERT INTO t VALUES (1)")
            db.execute("NOTIFY jobs, 'b'; NOTIFY jobs, 'a'; NOTIFY jobs, 'b'")
            db.execute("SAVEPOINT s; SELECT pg_notify('jobs', 'taken back')")
            with pytest.raises(psycopg.errors.UniqueViolation):
                db.execute("INSERT INTO t VALUES (1)")
            db.execute("ROLLBACK TO s")
            with db.transaction():
                db.execute("SELECT pg_notify('Odd Channel', id::text) FROM t")
        with db.transaction() as undone:
            db.execute("NOTIFY jobs, 'rolled back'")
            raise psycopg.Rollback(undone)
        db.execute("INSERT INTO t SELECT i FROM generate_series(2, 4) i")
        db.execute("UPDATE t SET id = id + 10 WHERE id = 3 RETURNING pg_notify('jobs', id::text)")
        db.execute("NOTIFY jobs, 'end'")
        assert heard(listener, 5) == [
            ("jobs", ""),
            ("jobs", "b"),
            ("jobs", "a"),
            ("Odd Channel", "1"),
            ("jobs", "13"),
        ]


def test_a_session_hears_itself_before_the_answer(db: psycopg.Connection) -> None:
    """Who looks after its statement, as the manual says, would find nothing."""
    got: list[tuple[str, str, int]] = []
    db.add_notify_handler(lambda n: got.append((n.channel, n.payload, n.pid)))
    db.execute("LISTEN a")
    db.execute("NOTIFY a, 'one'")
    with db.transaction():
        db.execute("NOTIFY a, 'two'")
        db.execute("SELECT 1")
        assert [payload for _, payload, _ in got] == ["one"]
    mine = db.info.backend_pid
    assert got == [("a", "one", mine), ("a", "two", mine)]
    with db.transaction() as undone:
        db.execute("UNLISTEN a; LISTEN b")
        raise psycopg.Rollback(undone)
    with db.transaction():
        db.execute("LISTEN c; NOTIFY c, 'three'")
    assert got[2:] == [("c", "three", mine)]
    db.execute("UNLISTEN *")
    db.execute("NOTIFY a; NOTIFY c")
    db.execute("LISTEN a")
    db.execute("NOTIFY a, 'four'")
    assert got[3:] == [("a", "four", mine)]
    db.execute("DISCARD ALL")
    assert db.execute("SELECT pg_listening_channels()").fetchall() == []


def test_who_has_a_transaction_open_hears_after_it(sql: Sql, db: psycopg.Connection) -> None:
    """A program would get news in the middle of a transaction, or never."""
    with sql.connect() as listener:
        listener.execute("LISTEN a")
        listener.commit()
        got: list[str] = []
        listener.add_notify_handler(lambda n: got.append(n.payload))
        listener.execute("SELECT 1")
        db.execute("LISTEN a; NOTIFY a, 'x'")
        assert [n.payload for n in db.notifies(timeout=_ENOUGH_S, stop_after=1)] == ["x"]
        listener.execute("SELECT 2")
        assert got == []
        listener.execute("NOTIFY a, 'y'")
        listener.commit()
        assert got == ["x", "y"]


def test_databases_hear_nothing_of_each_other(sql: Sql, db: psycopg.Connection) -> None:
    """A channel of another database has the same name."""
    with sql.connect(autocommit=True) as listener:
        listener.execute("LISTEN a")
        with Sql(sql.node, "postgres").connect(autocommit=True) as other:
            other.execute("NOTIFY a, 'elsewhere'")
        db.execute("NOTIFY a, 'end'")
        assert heard(listener, 0) == []


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("SELECT pg_notify('', 'x')", "22023"),
        ("SELECT pg_notify(NULL, 'x')", "22023"),
        ("SELECT pg_notify(repeat('x', 64), 'x')", "22023"),
        ("SELECT pg_notify('a', repeat('x', 8000))", "22023"),
        ("SELECT pg_notify('a', i::text) FROM generate_series(1, 10001) i", "54000"),
        ("SELECT pg_notify('a', repeat('x', 7000) || i) FROM generate_series(1, 1000) i", "54000"),
    ],
)
def test_too_much_is_refused(db: psycopg.Connection, statement: str, state: str) -> None:
    """One transaction would fill the table that all nodes follow."""
    db.execute("LISTEN a")
    with pytest.raises(psycopg.Error) as caught:
        db.execute(statement.encode())
    assert caught.value.sqlstate == state
    db.execute("SELECT pg_notify('a', repeat('x', 7999))")


async def test_asyncpg_listeners(sql: Sql) -> None:
    """asyncpg's add_listener and remove_listener, which a web server's push depends on."""
    where = {"host": "127.0.0.1", "port": sql.port, "user": "kvorum", "database": sql.database}
    listener = await asyncpg.connect(**where)
    sender = await asyncpg.connect(**where)
    try:
        got: asyncio.Queue[tuple[int, str, str]] = asyncio.Queue()

        def put(_: object, pid: int, channel: str, payload: object) -> None:
            got.put_nowait((pid, channel, str(payload)))

        await listener.add_listener("news", put)
        await sender.execute("SELECT pg_notify($1, $2)", "news", "first")
        async with sender.transaction():
            for n in range(3):
                await sender.execute("SELECT pg_notify($1, $2)", "news", f"of one {n}")
        async with asyncio.timeout(_ENOUGH_S):
            found = [await got.get() for _ in range(4)]
        pid = sender.get_server_pid()
        assert found == [(pid, "news", t) for t in ("first", "of one 0", "of one 1", "of one 2")]
        await listener.remove_listener("news", put)
        assert await listener.fetch("SELECT * FROM pg_listening_channels()") == []
    finally:
        await listener.close()
        await sender.close()
