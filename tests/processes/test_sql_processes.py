"""A node whose SQL is served by processes of its own (`--sql-processes`), as a user starts it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.processes.test_stores import gone

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
COUNT = 2


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with _node(tmp_path_factory.mktemp("sql")) as node:
        _start(node)
        yield node


def _node(folder: Path) -> NodeProcess:
    return NodeProcess(folder / "data", free_port_base(), "--sql-processes", str(COUNT))


def _start(node: NodeProcess) -> None:
    """It is ready when both processes are, each of which loads what serves SQL."""
    node.spawn()
    _patiently(lambda: node.exit_code_now() is not None or node.ready())
    assert node.exit_code_now() is None, node.tail()


def _connect(node: NodeProcess, **more: Any) -> psycopg.Connection:
    where = f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname=postgres"
    return psycopg.connect(where, autocommit=True, **more)


@pytest.fixture
def pair(machine: NodeProcess) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Two sessions in two processes."""
    _patiently(lambda: _served(machine) == (COUNT, 0))
    with _connect(machine) as one, _connect(machine) as other:
        assert _place(one) != _place(other)
        yield one, other


def _place(conn: psycopg.Connection) -> int:
    """Which process serves it."""
    return (conn.info.backend_pid - 1) % COUNT


def _children(node: NodeProcess) -> list[int]:
    return [child.pid for child in psutil.Process(node.spawned).children()]


def _patiently(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _figures(node: NodeProcess) -> dict[str, float]:
    url = f"http://127.0.0.1:{node.base + 2}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("kvorum_sql_"))
    return {name: float(value) for name, value in pairs}


def _served(node: NodeProcess) -> tuple[float, float]:
    """Processes that serve, and their clients."""
    found = _figures(node)
    return found["kvorum_sql_processes"], found["kvorum_sql_clients"]


def _broken(conn: psycopg.Connection) -> bool:
    try:
        conn.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False


class _Sleeper(threading.Thread):
    """A statement that only another session ends; with what it ended."""

    def __init__(self, conn: psycopg.Connection) -> None:
        super().__init__(daemon=True)
        self._conn = conn
        self.error: psycopg.Error | None = None
        self.start()

    def run(self) -> None:
        try:
            self._conn.execute("SELECT pg_sleep(60)")
        except psycopg.Error as error:
            self.error = error

    def ended(self) -> str | None:
        self.join(30)
        assert not self.is_alive()
        return None if self.error is None else self.error.sqlstate


@pytest.mark.slow
def test_p14_clients_are_shared_out_and_numbered_apart(machine: NodeProcess) -> None:
    """All clients in one process would be what there was without processes, and two sessions of
    one number could not be told apart.
    """
    _patiently(lambda: _served(machine) == (COUNT, 0))
    clients = [_connect(machine) for _ in range(3 * COUNT)]
    try:
        places = [_place(one) for one in clients]
        assert {places.count(place) for place in range(COUNT)} == {3}
        numbers = [one.info.backend_pid for one in clients]
        assert len(set(numbers)) == len(numbers)
        told = [one.execute("SELECT pg_backend_pid()").fetchall() for one in clients]
        assert told == [[(number,)] for number in numbers]
        assert _served(machine) == (COUNT, 3 * COUNT)
    finally:
        for one in clients:
            one.close()
    _patiently(lambda: _served(machine) == (COUNT, 0))


@pytest.mark.slow
def test_p14_definitions_are_seen_at_once_by_the_other_process(
    pair: tuple[psycopg.Connection, psycopg.Connection],
) -> None:
    """A session of another process would not find a table that was just made, or write a row of
    before a change.
    """
    one, other = pair
    for n in range(5):
        one.execute(f"CREATE TABLE seen_{n} (id int PRIMARY KEY)")
        other.execute(f"INSERT INTO seen_{n} VALUES (1)")
        one.execute(f"ALTER TABLE seen_{n} ADD COLUMN v text NOT NULL DEFAULT 'x'")
        assert other.execute(f"SELECT * FROM seen_{n}").fetchall() == [(1, "x")]
        other.execute(f"DROP TABLE seen_{n}")
        with pytest.raises(psycopg.errors.UndefinedTable):
            one.execute(f"SELECT * FROM seen_{n}")
    began = time.monotonic()
    one.execute("CREATE ROLE visitor LOGIN")
    other.execute("GRANT visitor TO kvorum")
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_p9_transactions_of_two_processes_that_conflict_are_told(
    pair: tuple[psycopg.Connection, psycopg.Connection],
) -> None:
    """Both would be told that they had changed the row."""
    one, other = pair
    one.execute("CREATE TABLE counted (id int PRIMARY KEY, n int)")
    one.execute("INSERT INTO counted VALUES (1, 0)")
    for conn in pair:
        conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert conn.execute("SELECT n FROM counted").fetchall() == [(0,)]
    one.execute("UPDATE counted SET n = n + 1")
    one.execute("COMMIT")
    with pytest.raises(psycopg.errors.SerializationFailure):
        other.execute("UPDATE counted SET n = n + 1; COMMIT")
    other.execute("ROLLBACK")
    for _ in range(50):
        for conn in pair:
            conn.execute("UPDATE counted SET n = n + 1 WHERE id = 1")
    assert one.execute("SELECT n FROM counted").fetchall() == [(101,)]


@pytest.mark.slow
def test_p10_a_cancel_request_finds_its_session(
    pair: tuple[psycopg.Connection, psycopg.Connection], machine: NodeProcess
) -> None:
    """It comes over a connection of its own, which any process may get: Ctrl-C would do nothing."""
    running = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'"
    busy = running + " AND state = 'active'"
    with _connect(machine) as watcher:
        for extra in range(COUNT):  # so that the next connection goes to either process
            held = [_connect(machine) for _ in range(extra)]
            for conn in pair:
                sleeper = _Sleeper(conn)
                _patiently(lambda: watcher.execute(busy).fetchall() == [(1,)])
                conn.cancel()
                assert sleeper.ended() == "57014"
            for more in held:
                more.close()


@pytest.mark.slow
def test_p10_sessions_of_other_processes_are_listed_and_ended(
    pair: tuple[psycopg.Connection, psycopg.Connection], machine: NodeProcess
) -> None:
    """An operator would see, and be able to end, half of the sessions of the node."""
    one, other = pair
    listed = "SELECT pid, state FROM pg_stat_activity WHERE pid = ANY(%s) ORDER BY pid"
    numbers = [one.info.backend_pid, other.info.backend_pid]
    for conn in pair:
        rows: dict[int, str] = dict(conn.execute(listed, [numbers]).fetchall())
        assert rows == dict.fromkeys(numbers, "idle") | {conn.info.backend_pid: "active"}
    sleeper = _Sleeper(other)
    running = "SELECT query FROM pg_stat_activity WHERE pid = %s AND state = 'active'"
    _patiently(lambda: one.execute(running, [numbers[1]]).fetchall() == [("SELECT pg_sleep(60)",)])
    assert one.execute("SELECT pg_cancel_backend(%s)", [numbers[1]]).fetchall() == [(True,)]
    assert sleeper.ended() == "57014"
    assert one.execute("SELECT pg_terminate_backend(%s)", [numbers[1]]).fetchall() == [(True,)]
    _patiently(lambda: _broken(other))
    _patiently(lambda: len(one.execute(listed, [numbers]).fetchall()) == 1)
    _patiently(lambda: _served(machine) == (COUNT, 1))
    one.execute("CREATE ROLE nobody LOGIN")
    where = f"host=127.0.0.1 port={machine.base + 3} user=nobody dbname=postgres"
    with psycopg.connect(where, autocommit=True) as conn:
        assert _place(conn) != _place(one)
        hidden = conn.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [numbers[0]])
        assert hidden.fetchall() == [("<insufficient privilege>",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("SELECT pg_terminate_backend(%s)", [numbers[0]])
    assert not _broken(one)


def test_p14_a_killed_process_takes_its_own_sessions_along(
    pair: tuple[psycopg.Connection, psycopg.Connection], machine: NodeProcess
) -> None:
    """The others would end, too; or nobody would be served, or no table changed, from then on."""
    one, other = pair
    restarted = _figures(machine)["kvorum_sql_processes_restarted_total"]
    one.execute("CREATE TABLE kept (id int PRIMARY KEY)")
    other.execute("BEGIN")
    other.execute("INSERT INTO kept VALUES (1)")
    psutil.Process(_serving(machine, other)).send_signal(signal.SIGKILL)
    _patiently(lambda: _broken(other))
    one.execute("INSERT INTO kept VALUES (2)")
    one.execute("ALTER TABLE kept ADD COLUMN v int")
    assert one.execute("SELECT * FROM kept").fetchall() == [(2, None)]
    with _connect(machine) as third:
        third.execute("INSERT INTO kept VALUES (3, 3)")
    _patiently(lambda: _served(machine) == (COUNT, 1))
    assert _figures(machine)["kvorum_sql_processes_restarted_total"] == restarted + 1
    with _connect(machine) as fourth:
        assert _place(fourth) != _place(one), "the new one serves"
        assert fourth.execute("SELECT count(*) FROM kept").fetchall() == [(2,)]


@pytest.mark.slow
def test_p14_a_process_that_is_told_to_end_gets_no_more_clients(
    pair: tuple[psycopg.Connection, psycopg.Connection], machine: NodeProcess
) -> None:
    """It has fewer clients from then on, so all that come would be turned away until it is gone."""
    one, other = pair
    sleeper = _Sleeper(other)
    psutil.Process(_serving(machine, other)).terminate()
    _patiently(lambda: _served(machine)[0] == COUNT - 1)
    clients = [_connect(machine) for _ in range(4)]
    assert {_place(conn) for conn in clients} == {_place(one)}
    assert sleeper.is_alive(), "what runs has its time"
    for conn in clients:
        conn.close()
    assert sleeper.ended() is not None
    _patiently(lambda: _served(machine) == (COUNT, 1))


def _serving(node: NodeProcess, conn: psycopg.Connection) -> int:
    """The process that has the connection of this client."""
    with socket.socket(fileno=os.dup(conn.pgconn.socket)) as sock:
        port = sock.getsockname()[1]
    for pid in _children(node):
        for found in psutil.Process(pid).net_connections("tcp"):
            if found.raddr[1:] == (port,):
                return pid
    raise AssertionError(f"nobody serves {port}")


@pytest.mark.slow
def test_p14_processes_end_with_the_node(tmp_path: Path) -> None:
    """Orphans would hold the locks of their places, and serve what nobody answers."""
    for how in (NodeProcess.kill, NodeProcess.stop):
        with _node(tmp_path) as node:
            _start(node)
            children = _children(node)
            assert len(children) == COUNT
            with _connect(node) as conn:
                conn.execute("SELECT 1")
                how(node)
                assert gone(children)
                with pytest.raises(psycopg.OperationalError):
                    conn.execute("SELECT 1")


@pytest.mark.slow
def test_p13_two_processes_never_take_the_same_number(
    pair: tuple[psycopg.Connection, psycopg.Connection],
) -> None:
    """Each reserves numbers for the rows of a query, and gives back what it did not use."""
    one, other = pair
    one.execute("CREATE SEQUENCE numbers_of_two")
    one.execute("CREATE TABLE of_two (n int PRIMARY KEY)")
    one.execute("INSERT INTO of_two SELECT generate_series(1, 50)")
    found: list[int] = []
    for round in range(8):
        for conn in pair:
            rows = conn.execute(
                "SELECT CASE WHEN n > %s THEN nextval('numbers_of_two') END FROM of_two ORDER BY n",
                (5 * round,),
            ).fetchall()
            found += [n for (n,) in rows if n is not None]
            last = conn.execute("SELECT lastval()").fetchone()
            assert last == (found[-1],)
    assert len(found) == len(set(found)) == 2 * sum(50 - 5 * round for round in range(8))
    other.execute("SELECT setval('numbers_of_two', 100000), nextval('numbers_of_two')")
    assert other.execute("SELECT nextval('numbers_of_two') FROM of_two LIMIT 2").fetchall() == [
        (100002,),
        (100003,),
    ]
