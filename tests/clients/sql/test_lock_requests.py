"""What statements that lock rows send: at READ COMMITTED a row by its key is one request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import kvorum
from kv.base.verbs import VERBS
from kv.client.client import KvClient
from tests.kit.machine import free_port_base

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[psycopg.Connection]:
    """A node in this process."""
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("requests") / "data", port=base):
        address = f"host=127.0.0.1 port={base + 3} user=kvorum dbname=postgres"
        with psycopg.connect(address, autocommit=True, prepare_threshold=0) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
            connection.execute("INSERT INTO t SELECT n, 0 FROM generate_series(1, 20) n")
            connection.execute("SELECT * FROM t WHERE id = 1")
            yield connection


@contextmanager
def sent() -> Iterator[Counter[str]]:
    """The requests about rows that this process sends meanwhile."""
    found: Counter[str] = Counter()
    call, start = KvClient.call, KvClient.start

    def count(method: int) -> None:
        name = VERBS[method].name.upper()
        if name in ("GET", "MGET", "READ_NOW", "SCAN", "PREWRITE", "WRITE", "COMMIT", "TSO"):
            found[name] += 1

    async def calling(self: Any, method: int, key: bytes, *args: Any, **more: Any) -> Any:
        count(method)
        return await call(self, method, key, *args, **more)

    def starting(self: Any, method: int, *args: Any) -> Any:
        begun = start(self, method, *args)
        if begun is not None:
            count(method)
        return begun

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KvClient, "call", calling)
        patched.setattr(KvClient, "start", starting)
        yield found


def test_five_updates_by_key_are_five_requests_and_the_commit(link: psycopg.Connection) -> None:
    """A transaction would pay each row twice: to lock it, and to read it."""
    with sent() as found:
        link.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        for n in range(1, 6):
            done = link.execute("UPDATE t SET v = v + 1 WHERE id = %s", [n])
            assert done.rowcount == 1
        assert found == {"PREWRITE": 5}
        link.execute("UPDATE t SET v = v + 1 WHERE id = 5")  # it is this block's own
        assert found == {"PREWRITE": 5}
        link.execute("COMMIT")
    assert found["PREWRITE"] <= 6
    assert link.execute("SELECT sum(v) FROM t").fetchall() == [(6,)]
    link.execute("UPDATE t SET v = 0")


def test_one_request_locks_reads_and_deletes(link: psycopg.Connection) -> None:
    """SELECT FOR UPDATE and DELETE would each read what their lock could have brought."""
    with sent() as found:
        link.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        assert link.execute("SELECT v FROM t WHERE id = 7 FOR UPDATE").fetchall() == [(0,)]
        assert link.execute("DELETE FROM t WHERE id = 8").rowcount == 1
        assert link.execute("DELETE FROM t WHERE id = 800").rowcount == 0
        assert link.execute("SELECT v FROM t WHERE id = 801 FOR UPDATE").fetchall() == []
        assert found == {"PREWRITE": 4}
        assert link.execute("UPDATE t SET v = 9 WHERE id = 7 RETURNING v").fetchall() == [(9,)]
        link.execute("ROLLBACK")
    assert link.execute("SELECT v FROM t WHERE id IN (7, 8)").fetchall() == [(0,), (0,)]


def test_other_conditions_are_looked_at_before_a_row_is_locked(link: psycopg.Connection) -> None:
    """A statement that means no row would hold others up."""
    with sent() as found:
        link.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        assert link.execute("UPDATE t SET v = 1 WHERE id = 9 AND v = 5").rowcount == 0
        assert "PREWRITE" not in found
        assert link.execute("UPDATE t SET v = 1 WHERE id = 9 AND v = 0").rowcount == 1
        link.execute("ROLLBACK")


def test_what_is_locked_is_the_newest(link: psycopg.Connection) -> None:
    """A statement that reads nothing but what it locks would compute from an older snapshot."""
    with psycopg.connect(link.info.dsn, autocommit=True) as other:
        link.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        assert link.execute("SELECT v FROM t WHERE id = 10").fetchall() == [(0,)]
        other.execute("UPDATE t SET v = 40 WHERE id = 10")
        link.execute("UPDATE t SET v = v + 2 WHERE id = 10")
        assert link.execute("SELECT v FROM t WHERE id = 10").fetchall() == [(42,)]
        link.execute("COMMIT")
    assert link.execute("SELECT v FROM t WHERE id = 10").fetchall() == [(42,)]
