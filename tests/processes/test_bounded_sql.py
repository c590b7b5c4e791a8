"""What one client asks in SQL holds nobody else, and ends at its statement_timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
_TIMEOUT_S = 1.0
_MORE_S = 1.0  # that a statement may go on
_HELD_S = 0.2  # that others may wait; …
_BUSY = 5  # … on a machine that other work uses, so many times that
_LIST = ",".join(map(str, range(50_000)))
STATEMENTS = {
    "a pattern that backtracks": "SELECT repeat('a', 40) || '!' ~ '^(a+)+$'",
    "LIKE that backtracks": "SELECT repeat('a', 1000000) LIKE '%a%a%a%a%a%b'",
    "nested comments": "SELECT " + "/*" * 20_000 + "*/" * 20_000 + " 1",
    "a large array": "SELECT array_fill(1, array[1000, 1000, 1000])",
    "exp": "SELECT exp(50000::numeric)",
    "a power": "SELECT 1.0000001::numeric ^ 1000000000.5",
    "a factorial": "SELECT factorial(32177)",
    "a long format": "SELECT to_char(1.5, repeat('9', 100000))",
    "encode": "SELECT encode(repeat('x', 200000000)::bytea, 'hex')",
    "a replacement that grows": (
        "SELECT regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000), 'g')"
    ),
    "many statements": "SELECT 1;" * 1_000_000,
    "a list of constants": f"SELECT 1 WHERE 1 IN ({_LIST})",
    "a list of keys": f"SELECT v FROM words WHERE id IN ({_LIST})",
    "many calls": "SELECT " + ",".join(["md5(repeat('x', 10000000))"] * 500),
    "a condition": "SELECT v FROM words WHERE md5(repeat(v, 200000)) = 'x'",
    "a condition in DuckDB": "SELECT count(*) FROM words WHERE md5(repeat(v, 200000)) = 'x'",
    "targets": "SELECT md5(repeat(v, 200000)) FROM words",
    "an aggregate": "SELECT sum(length(initcap(repeat(v, 10000)))) FROM words",
    "a change": "UPDATE words SET v = md5(repeat(v, 200000))",
    "defaults": "INSERT INTO costly (id) SELECT g FROM generate_series(1, 1000) g",
    "one row of defaults": "INSERT INTO costly (id) VALUES (0)",
    "documents": "SELECT jsonb_array_length(('[' || repeat('1,', 5000000) || '1]')::jsonb)",
    "COPY": "COPY (SELECT md5(repeat(v, 200000)) FROM words) TO STDOUT",
    "recursion": (
        "WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x"
    ),
    "the catalog": "SELECT relname FROM pg_class WHERE repeat('a', 40) LIKE '%a%a%a%a%a%a%a%b'",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("sql") / "data", free_port_base()) as node:
        node.start()
        with _connect(node) as conn:
            conn.execute("CREATE TABLE words (id int PRIMARY KEY, v text)")
            conn.execute(
                "INSERT INTO words SELECT g, repeat('a', 50) || g FROM generate_series(1, 2000) g"
            )
            conn.execute(
                "CREATE TABLE costly (id int PRIMARY KEY, v text DEFAULT "
                + " || ".join(["md5(repeat('x', 10000000))"] * 20)
                + ")"
            )
        yield node


def _connect(node: NodeProcess) -> psycopg.Connection:
    where = f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname=postgres"
    return psycopg.connect(where, autocommit=True)


class _Neighbour(threading.Thread):
    """Asks for a row all the time; how long it waited at most."""

    def __init__(self, conn: psycopg.Connection) -> None:
        super().__init__(daemon=True)
        self._conn, self._over, self.longest = conn, threading.Event(), 0.0
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.005):
            began = time.perf_counter()
            self._conn.execute("SELECT v FROM words WHERE id = 7", prepare=True).fetchall()
            self.longest = max(self.longest, time.perf_counter() - began)

    def end(self) -> float:
        self._over.set()
        self.join()
        return self.longest


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_holds_nobody_and_ends_in_time(node: NodeProcess, name: str) -> None:
    """One client's statement stops all the others, or goes on when it was to end."""
    with _connect(node) as conn, _connect(node) as other:
        conn.execute(f"SET statement_timeout = '{_TIMEOUT_S}s'")
        neighbour = _Neighbour(other)
        began = time.perf_counter()
        state: str | None
        try:
            if name == "COPY":
                with conn.cursor().copy(STATEMENTS[name].encode()) as rows:
                    for _ in rows:
                        pass
            else:
                conn.execute(STATEMENTS[name].encode())
            state = None
        except psycopg.Error as error:
            state = error.sqlstate
        took, held = time.perf_counter() - began, neighbour.end()
        assert state in (None, "57014", "54000", "54001", "53200")
        assert took < _TIMEOUT_S + _MORE_S * _BUSY
        assert held < _HELD_S * _BUSY
        assert conn.execute("SELECT 1").fetchall() == [(1,)], "the session goes on"
