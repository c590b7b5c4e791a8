"""A type that grows while another process reads and writes rows of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.clients.sql.test_nodes import ProxyProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
LABELS = 8


def _connected(proxy: ProxyProcess, database: str) -> psycopg.Connection:
    until = time.monotonic() + 30
    while True:
        try:
            conn = proxy.connect(database)
        except psycopg.Error:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            conn.autocommit = True
            return conn


def test_p13_nobody_meets_a_label_that_he_cannot_read(sql: Sql, tmp_path: Path) -> None:
    """A process that knows the older type would find a position without a label, or write a label
    that others cannot read. Two processes are needed: one knows all versions at once.
    """
    failed: list[str] = []
    done = threading.Event()
    rounds = [0, 0, 0]

    def client(proxy: ProxyProcess, place: int, statement: str) -> None:
        with _connected(proxy, sql.database) as conn:
            while not done.is_set():
                rounds[place] += 1
                try:
                    conn.execute(statement)
                except psycopg.errors.SerializationFailure:
                    pass  # beside a change of the schema it may be told to run again
                except psycopg.Error as error:
                    failed.append(repr(error))

    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TYPE grade AS ENUM ('g')")
        db.execute("CREATE TABLE p (id bigserial PRIMARY KEY, g grade)")
        db.execute("CREATE INDEX ON p (g)")
        db.execute("INSERT INTO p (g) VALUES ('g')")
        proxy = ProxyProcess(sql.node, tmp_path / "log")
        statements = (
            "SELECT g FROM p ORDER BY g LIMIT 50",
            "SELECT g, count(*) FROM p GROUP BY g",
            "INSERT INTO p (g) SELECT max(g) FROM p",
        )
        threads = [
            threading.Thread(target=client, args=(proxy, place, one))
            for place, one in enumerate(statements)
        ]
        try:
            _connected(proxy, sql.database).close()
            for thread in threads:
                thread.start()
            for number in range(LABELS):
                where = "BEFORE 'g'" if number % 2 else ""
                db.execute(f"ALTER TYPE grade ADD VALUE 'g{number}' {where}")
                db.execute(f"INSERT INTO p (g) VALUES ('g{number}')")
                time.sleep(0.1)  # they run on meanwhile
        finally:
            done.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            proxy.child.terminate()
            proxy.child.wait()
        assert failed == []
        assert min(rounds) > 0
        found = db.execute("SELECT min(g), max(g) FROM p").fetchone()
        assert found == ("g1", f"g{LABELS - 2}")


def test_p4_a_label_that_took_anothers_name_is_written_as_itself(sql: Sql, tmp_path: Path) -> None:
    """Behind two labels that changed their names another process wrote the position that the name
    had before.
    """
    proxy = ProxyProcess(sql.node, tmp_path / "log")
    try:
        with sql.connect(autocommit=True) as db, _connected(proxy, sql.database) as other:
            db.execute("CREATE TYPE side AS ENUM ('a', 'b')")
            db.execute("CREATE TABLE s (id int PRIMARY KEY, v side)")
            for number in range(20):
                other.execute("SELECT count(*) FROM s WHERE v = 'a'")  # it knows them as they are
                for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
                    db.execute(f"ALTER TYPE side RENAME VALUE '{old}' TO '{new}'")
                other.execute("INSERT INTO s VALUES (%s, 'a')", (number,))
                found = db.execute("SELECT v FROM s WHERE id = %s", (number,)).fetchone()
                assert found == ("a",)
    finally:
        proxy.kill()
