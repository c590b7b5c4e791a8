"""SQL over nodes and proxies that die, tables in partitions, and both doors to one table."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import kvorum
from tests.clients.sql.conftest import Sql
from tests.kit.commands import command, settings
from tests.kit.machine import ROOT, free_port_base
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll

pytestmark = pytest.mark.cluster


@pytest.mark.slow
def test_p1_a_killed_node_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """kill -9 under INSERTs: every acknowledged row and index entry is there, nothing twice."""
    done: list[int] = []
    stop = threading.Event()
    with NodeProcess(tmp_path / "data", free_port_base()) as node:
        node.start()
        sql = Sql(node, "postgres")
        with sql.connect(autocommit=True) as conn:
            conn.execute("CREATE TABLE k (id int PRIMARY KEY, v int, UNIQUE (v))")

        def client(number: int) -> None:
            key = number * 1_000_000
            while not stop.is_set():
                try:
                    with sql.connect(autocommit=True, connect_timeout=5) as conn:
                        while not stop.is_set():
                            key += 1
                            conn.execute("INSERT INTO k VALUES (%s, %s)", (key, -key))
                            done.append(key)
                except psycopg.Error:
                    time.sleep(0.05)

        threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            _fifty_more(done)
            node.kill()
            node.start()
        _fifty_more(done)
        stop.set()
        for thread in threads:
            thread.join()
        with sql.connect() as conn:
            rows = conn.execute("SELECT id, v FROM k").fetchall()
            assert all(key == -value for key, value in rows)
            assert set(done) <= {key for key, _ in rows}
            for key in done[:: max(1, len(done) // 50)]:
                assert conn.execute("SELECT id FROM k WHERE v = %s", (-key,)).fetchone() == (key,)


def _fifty_more(done: list[int]) -> None:
    upto = len(done) + 50
    poll(lambda: len(done) >= upto)


class ProxyProcess:
    """`kvorum proxy` in front of a node."""

    def __init__(self, node: NodeProcess, log: Path) -> None:
        self.base = free_port_base()
        env = settings()
        words = ("proxy", "--connect", node.url, "--port", str(self.base))
        with log.open("ab") as out:
            self.child = subprocess.Popen(
                command(*words), cwd=ROOT, env=env, stdout=out, stderr=out
            )

    def connect(self, database: str) -> psycopg.Connection:
        deadline = time.monotonic() + 120  # of a machine that does much else
        while True:
            try:
                return psycopg.connect(
                    f"host=127.0.0.1 port={self.base + 3} user=kvorum dbname={database}"
                )
            except psycopg.OperationalError:
                assert self.child.poll() is None, "the proxy has ended"
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def kill(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()


@pytest.fixture
def proxies(node: NodeProcess, tmp_path: Path) -> Iterator[list[ProxyProcess]]:
    found = [ProxyProcess(node, tmp_path / f"proxy{n}.log") for n in range(2)]
    yield found
    for proxy in found:
        proxy.kill()


@pytest.mark.slow
def test_p14_any_proxy_goes_on(sql: Sql, proxies: list[ProxyProcess]) -> None:
    """Proxies keep nothing: what one declared and wrote the other reads; a transaction that was
    open in one that is killed leaves nothing.
    """
    one, two = proxies
    with one.connect(sql.database) as conn:
        conn.execute("CREATE TABLE t (id serial PRIMARY KEY, v int)")
        conn.execute("INSERT INTO t (v) VALUES (1)")
        conn.commit()
        with two.connect(sql.database) as other:
            assert other.execute("SELECT v FROM t").fetchall() == [(1,)]
            conn.execute("UPDATE t SET v = 100")
            conn.execute("INSERT INTO t (v) VALUES (2)")
            one.kill()
            other.execute("UPDATE t SET v = v + 1")
            other.execute("INSERT INTO t (v) VALUES (3)")
            other.commit()
            assert sorted(other.execute("SELECT v FROM t").fetchall()) == [(2,), (3,)]
        conn.close()
    with sql.connect() as direct:
        assert len(direct.execute("SELECT DISTINCT id FROM t").fetchall()) == 2


@pytest.mark.slow
def test_p3_databases_tables_and_replicas(sql: Sql, db: psycopg.Connection) -> None:
    """database > table; a table says how many replicas it wants; databases share no names."""
    db.execute("CREATE TABLE r (id int PRIMARY KEY) WITH (replicas = 1)")
    with kvorum.connect(sql.node.url) as store:
        (table,) = [t for t in store.tables(sql.database) if t.name == "r"]
    assert table.replicas == 1
    db.execute("CREATE DATABASE other_of_it")
    with Sql(sql.node, "other_of_it").connect() as conn:
        with pytest.raises(psycopg.errors.UndefinedTable):
            conn.execute("SELECT * FROM r")
        conn.rollback()
        conn.execute("CREATE TABLE r (name text PRIMARY KEY)")
        conn.commit()
    db.execute("DROP DATABASE other_of_it")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        Sql(sql.node, "other_of_it").connect()


@pytest.mark.slow
def test_p8_lookup_touches_the_index_and_the_row_only(db: psycopg.Connection) -> None:
    """A global index has keys of its own; a lookup reads its entry and the row, nothing else."""
    db.execute("CREATE TABLE g (id int PRIMARY KEY, v text UNIQUE, w int)")
    with db.cursor() as cur:
        cur.executemany(
            "INSERT INTO g VALUES (%s, %s, %s)", [(n, f"v{n}", n % 5) for n in range(500)]
        )
    told = "\n".join(
        row[0] for row in db.execute("EXPLAIN ANALYZE SELECT * FROM g WHERE v = 'v7'").fetchall()
    )
    assert "g_v_key" in told
    assert "Read: 2 gets, 0 rows in 0 pages" in told


@pytest.mark.slow
def test_p7_nulls_in_every_column(db: psycopg.Connection) -> None:
    """NULL in any column comes back as NULL, and sorts last going up, first going down."""
    db.execute("CREATE TABLE n (id int PRIMARY KEY, a int, b text, c numeric)")
    db.execute("CREATE INDEX n_a ON n (a)")
    db.execute("INSERT INTO n VALUES (1, NULL, 'x', 1), (2, 1, NULL, 2), (3, 2, 'y', NULL)")
    assert db.execute("SELECT * FROM n WHERE a IS NULL").fetchall()[0][0] == 1
    for column in ("a", "b", "c"):
        up = [r[0] for r in db.execute(f"SELECT {column} FROM n ORDER BY {column}").fetchall()]
        down = db.execute(f"SELECT {column} FROM n ORDER BY {column} DESC").fetchall()
        assert up[-1] is None
        assert [r[0] for r in down] == up[::-1]


@pytest.mark.slow
def test_p6_tables_from_both_doors(sql: Sql, db: psycopg.Connection) -> None:
    """Plain tables are (key, value) in SQL; tables with rules are refused by the key-value API."""
    with kvorum.connect(sql.node.url) as store:
        store.create_table(sql.database, "plain")
        plain = store.table(sql.database, "plain")
        plain.put(b"k", b"v")
        time.sleep(1.2)
        assert db.execute("SELECT key, value FROM plain").fetchall() == [(b"k", b"v")]
        db.execute("CREATE TABLE ruled (id int PRIMARY KEY, v text UNIQUE)")
        with pytest.raises(kvorum.KvorumError):
            store.table(sql.database, "ruled").put(b"x", b"y")
