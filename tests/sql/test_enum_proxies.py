"""A type that grows while another process reads and writes rows of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psycopg
import pytest

from tests.sql.conftest import Sql
from tests.sql.test_nodes import ProxyProcess

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
