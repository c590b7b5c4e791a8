"""Whatever a statement is at, it ends: at its statement_timeout, by a cancel request, with its
client and with its node; in a node, in its SQL process, and in a program that has opened a node.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import psycopg
import pytest

import kvorum
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]
_TIMEOUT_S: Final = 0.5
_MORE_S: Final = 15.0  # that one may go on, on a machine that other work uses
_STOP_S: Final = 30.0
_LONG: Final = "md5(repeat(v, 200000))"
PLACES: Final = ("a node", "a process", "embedded")
_LONG_A: Final = "md5(repeat(a.v, 200000))"
# Each is at it for minutes
KINDS: Final = {
    "reading a long text": "SELECT 1 WHERE " + " AND ".join(["md5('x') <> 'a'"] * 32_000),
    "reading a long list": f"SELECT 1 WHERE 1 IN ({','.join(map(str, range(2_000_000)))})",
    "expressions": "SELECT " + ", ".join(["md5(repeat('x', 10000000))"] * 1_000),
    "rows of a table": f"SELECT {_LONG} FROM words",
    "a condition": f"SELECT v FROM words WHERE {_LONG} = 'x'",
    "an order": f"SELECT v FROM words ORDER BY {_LONG}",
    "VALUES": "VALUES " + ", ".join([f"(md5(repeat('x', 10000000) || {n}))" for n in range(900)]),
    "an aggregate": f"SELECT count({_LONG}) FROM words",
    "a join": f"SELECT {_LONG} FROM words a JOIN words b USING (id, v)",
    "all with all": "SELECT count(*) FROM words a, words b, words c WHERE a.v < b.v || c.v",
    "recursion": (
        "WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x"
    ),
    "a series": "SELECT count(*) FROM generate_series(1, 100000000000) g WHERE g % 7 = 8",
    "a change": f"UPDATE words SET v = {_LONG}",
    "a change by a join": f"DELETE FROM words a USING words b WHERE b.id = 1 AND a.v = {_LONG_A}",
    "an insert": f"INSERT INTO words SELECT id + 10000, {_LONG} FROM words",
    "defaults": "INSERT INTO costly (id) SELECT g FROM generate_series(1, 1000) g",
    "COPY": f"COPY (SELECT {_LONG} FROM words) TO STDOUT",
    "a cursor": f"DECLARE c CURSOR WITH HOLD FOR SELECT {_LONG} FROM words",
    "a block": f"DO $$ BEGIN UPDATE words SET v = {_LONG}; END $$",
    "the catalog": ("SELECT md5(repeat(relname, 40000)) FROM pg_class, generate_series(1, 300)"),
    "sleeping": "SELECT pg_sleep(300)",
    "waiting for a lock": "SELECT pg_advisory_lock(1)",
}


class Place(Protocol):
    """Where SQL is served."""

    base: int

    def stop(self) -> int: ...


class _Embedded:
    """In this process."""

    def __init__(self, data: Path) -> None:
        self.base = free_port_base()
        self._db = kvorum.open(data, port=self.base)

    def stop(self) -> int:
        self._db.close()
        return 0


@contextlib.contextmanager
def _served(how: str, folder: Path) -> Iterator[Place]:
    if how == "embedded":
        yield _Embedded(folder / "data")
        return
    options = ("--sql-processes", "1") if how == "a process" else ()
    with NodeProcess(folder / "data", free_port_base(), *options) as node:
        node.start()
        yield node


@pytest.fixture(scope="module", params=PLACES)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with _served(request.param, tmp_path_factory.mktemp("ended")) as place:
        with _connect(place) as holder:
            _fill(holder)
            yield place
        assert place.stop() == 0


def _fill(conn: psycopg.Connection) -> None:
    """Tables, and a lock that the session holds."""
    conn.execute("CREATE TABLE words (id int PRIMARY KEY, v text)")
    conn.execute("INSERT INTO words SELECT g, repeat('a', 50) || g FROM generate_series(1, 2000) g")
    conn.execute(
        "CREATE TABLE costly (id int PRIMARY KEY, v text DEFAULT "
        + " || ".join([f"md5(repeat('x', 10000000) || {n})" for n in range(8)])
        + " || random())"
    )
    conn.execute("SELECT pg_advisory_lock(1)")


def _connect(place: Place) -> psycopg.Connection:
    where = f"host=127.0.0.1 port={place.base + 3} user=kvorum dbname=postgres"
    return psycopg.connect(where, autocommit=True)


def _run(conn: psycopg.Connection, kind: str) -> str | None:
    """The SQLSTATE that it ends with."""
    try:
        if kind == "COPY":
            with conn.cursor().copy(KINDS[kind].encode()) as rows:
                for _ in rows:
                    pass
        else:
            conn.execute(KINDS[kind].encode())
    except psycopg.Error as error:
        return error.sqlstate
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_at_its_timeout(place: Place, kind: str) -> None:
    """A statement goes on when it was to end."""
    with _connect(place) as conn:
        conn.execute(f"SET statement_timeout = '{_TIMEOUT_S}s'")
        began = time.perf_counter()
        assert _run(conn, kind) == "57014"
        assert time.perf_counter() - began < _TIMEOUT_S + _MORE_S
        conn.execute("ROLLBACK")
        assert conn.execute("SELECT 1").fetchall() == [(1,)], "the session goes on"


def _begun(watch: psycopg.Connection, pid: int) -> bool:
    found = watch.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
    return found is not None and found[0] == "active"


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_when_it_is_cancelled(place: Place, kind: str) -> None:
    """Ctrl-C does nothing."""
    with _connect(place) as conn, _connect(place) as watch:
        states: list[str | None] = []
        thread = threading.Thread(target=lambda: states.append(_run(conn, kind)))
        thread.start()
        try:
            poll(lambda: _begun(watch, conn.info.backend_pid))
            began = time.perf_counter()
        finally:
            conn.cancel_safe()  # which lets a node in this process go on
            thread.join()
        assert states == ["57014"]
        assert time.perf_counter() - began < _MORE_S
        conn.execute("ROLLBACK")
        assert conn.execute("SELECT 1").fetchall() == [(1,)], "the session goes on"


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_its_client(place: Place, kind: str) -> None:
    """What a client has left computes on, and holds what it has locked."""
    with _connect(place) as watch:
        conn = _connect(place)
        pid = conn.info.backend_pid
        conn.pgconn.send_query(KINDS[kind].encode())
        while conn.pgconn.flush():
            pass
        poll(lambda: _begun(watch, pid))
        conn.pgconn.finish()
        poll(lambda: not _begun(watch, pid), _TIMEOUT_S + _MORE_S)


@pytest.mark.parametrize("how", PLACES)
def test_all_end_with_their_node(how: str, tmp_path: Path) -> None:
    """A node that computes for somebody is killed in the end instead of stopping."""
    with _served(how, tmp_path) as place, _connect(place) as holder:
        _fill(holder)
        links = [_connect(place) for _ in KINDS]
        for conn, text in zip(links, KINDS.values(), strict=True):
            conn.pgconn.send_query(text.encode())
            conn.pgconn.flush()
        poll(lambda: _begun(holder, links[-1].info.backend_pid))
        began = time.perf_counter()
        assert place.stop() == 0
        assert time.perf_counter() - began < _STOP_S
        for conn in links:
            conn.close()
