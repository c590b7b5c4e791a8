"""What concurrent blocks see of each other, at three levels: Hermitage's tests of PostgreSQL
(github.com/ept/hermitage), and what READ COMMITTED says of each statement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psycopg
import pytest

from kv.base.config import NodeConfig
from sqlproxy.session.state.settings import Settings
from tests.clients.sql.conftest import Sql
from tests.kit.waiting import poll

RC: Final = "READ COMMITTED"
RR: Final = "REPEATABLE READ"
SER: Final = "SERIALIZABLE"
LEVELS: Final = pytest.mark.parametrize("level", [RC, RR, SER])
WAITING: Final = "SELECT count(*) FROM kvorum.locks WHERE waiting AND table_name = 'test'"
REFUSED: Final = psycopg.errors.SerializationFailure


class Block:
    """A block of a connection of its own, whose statements may wait beside the test."""

    def __init__(self, sql: Sql, level: str, stack: ExitStack) -> None:
        self._conn = stack.enter_context(sql.connect(autocommit=True))
        self._pool = stack.enter_context(ThreadPoolExecutor(1))
        self._watch = stack.enter_context(sql.connect(autocommit=True))
        self._conn.execute("SET lock_timeout = '20s'")
        self._conn.execute(f"BEGIN ISOLATION LEVEL {level}")

    def run(self, text: str) -> Any:
        """Its rows; without any, how many it changed."""
        found = self._conn.execute(text)
        return found.fetchall() if found.description else found.rowcount

    def start(self, text: str) -> Future[Any]:
        """The same, when it waits for a lock, or is done."""
        doing = self._pool.submit(self.run, text)
        poll(lambda: doing.done() or self._watch.execute(WAITING).fetchall() != [(0,)])
        return doing

    def ends(self, how: str = "COMMIT") -> bool:
        """Whether that was not refused."""
        try:
            self._conn.execute(how)
        except REFUSED:
            return False
        return self._conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


Begin = Callable[[str], Block]


@pytest.fixture
def begin(sql: Sql, db: psycopg.Connection) -> Iterator[Begin]:
    """Opens a block; the table is Hermitage's."""
    db.execute("CREATE TABLE test (id int PRIMARY KEY, value int)")
    db.execute("INSERT INTO test VALUES (1, 10), (2, 20)")
    with ExitStack() as stack:
        yield lambda level: Block(sql, level, stack)


def rows(db: psycopg.Connection) -> dict[int, int]:
    return dict(db.execute("SELECT id, value FROM test").fetchall())


def got(doing: Future[Any]) -> Any:
    """What came of it; REFUSED."""
    try:
        return doing.result(30)
    except REFUSED:
        return REFUSED


def value(block: Block, key: int) -> int:
    ((found,),) = block.run(f"SELECT value FROM test WHERE id = {key}")
    return int(found)


@contextmanager
def refused(when: bool) -> Iterator[None]:
    """Somewhere in here is a 40001, if `when`."""
    if not when:
        yield
        return
    with pytest.raises(REFUSED):
        yield


@LEVELS
def test_p10_g0_writes_do_not_mix(begin: Begin, db: psycopg.Connection, level: str) -> None:
    """G0: of two blocks that write two rows each, one would win one row each."""
    one, two = begin(level), begin(level)
    one.run("UPDATE test SET value = 11 WHERE id = 1")
    second = two.start("UPDATE test SET value = 12 WHERE id = 1")
    one.run("UPDATE test SET value = 21 WHERE id = 2")
    assert one.ends()
    assert rows(db) == {1: 11, 2: 21}
    second.result()
    two.run("UPDATE test SET value = 22 WHERE id = 2")
    assert two.ends() is (level == RC)
    assert rows(db) == ({1: 12, 2: 22} if level == RC else {1: 11, 2: 21})


@LEVELS
def test_p10_g1a_what_is_rolled_back_is_not_read(begin: Begin, level: str) -> None:
    """G1a: a block would compute from what never was."""
    one, two = begin(level), begin(level)
    one.run("UPDATE test SET value = 101 WHERE id = 1")
    assert value(two, 1) == 10
    assert one.ends("ROLLBACK")
    assert value(two, 1) == 10
    assert two.ends()


@LEVELS
def test_p10_g1b_what_is_on_the_way_is_not_read(begin: Begin, level: str) -> None:
    """G1b: a block would see a value that another one has replaced itself."""
    one, two = begin(level), begin(level)
    one.run("UPDATE test SET value = 101 WHERE id = 1")
    assert value(two, 1) == 10
    one.run("UPDATE test SET value = 11 WHERE id = 1")
    assert one.ends()
    assert value(two, 1) == (11 if level == RC else 10)
    assert two.ends()


@LEVELS
def test_p10_g1c_nobody_sees_the_other(begin: Begin, level: str) -> None:
    """G1c: two blocks would each have seen what the other wrote."""
    one, two = begin(level), begin(level)
    one.run("UPDATE test SET value = 11 WHERE id = 1")
    two.run("UPDATE test SET value = 22 WHERE id = 2")
    assert (value(one, 2), value(two, 1)) == (20, 10)
    assert one.ends()
    assert two.ends() is (level != SER)


@LEVELS
def test_p10_otv_a_transaction_does_not_vanish(begin: Begin, level: str) -> None:
    """OTV: of a block that was seen one row would be seen, and then one of before it."""
    one, two, three = begin(level), begin(level), begin(level)
    one.run("UPDATE test SET value = 11 WHERE id = 1")
    one.run("UPDATE test SET value = 19 WHERE id = 2")
    second = two.start("UPDATE test SET value = 12 WHERE id = 1")
    assert one.ends()
    assert value(three, 1) == 11
    second.result()
    two.run("UPDATE test SET value = 18 WHERE id = 2")
    assert value(three, 2) == 19
    assert two.ends() is (level == RC)
    assert (value(three, 2), value(three, 1)) == ((18, 12) if level == RC else (19, 11))
    assert three.ends()


@LEVELS
def test_p10_pmp_rows_that_come_meanwhile(begin: Begin, level: str) -> None:
    """PMP: a block with one snapshot would meet rows that were not there."""
    one, two = begin(level), begin(level)
    assert one.run("SELECT * FROM test WHERE value = 30") == []
    two.run("INSERT INTO test VALUES (3, 30)")
    assert two.ends()
    found = one.run("SELECT * FROM test WHERE value % 3 = 0")
    assert found == ([(3, 30)] if level == RC else [])
    assert one.ends()


@LEVELS
def test_p10_pmp_of_a_write(begin: Begin, db: psycopg.Connection, level: str) -> None:
    """PMP for writes: what was found is checked again when it is locked, and nothing else found."""
    one, two = begin(level), begin(level)
    one.run("UPDATE test SET value = value + 10")
    assert two.run("SELECT * FROM test WHERE value = 20") == [(2, 20)]
    deleted = two.start("DELETE FROM test WHERE value = 20")
    assert one.ends()
    if level == RC:
        assert deleted.result() == 0
        assert two.run("SELECT * FROM test WHERE value = 20") == [(1, 20)]
        assert two.ends()
    else:
        assert got(deleted) is REFUSED or not two.ends()
    assert rows(db) == {1: 20, 2: 30}


@LEVELS
def test_p10_p4_lost_updates(begin: Begin, db: psycopg.Connection, level: str) -> None:
    """P4: at READ COMMITTED whoever reads first and writes then may lose an update, as in
    PostgreSQL; above it nobody does.
    """
    one, two = begin(level), begin(level)
    assert value(one, 1) == value(two, 1) == 10
    one.run("UPDATE test SET value = 11 WHERE id = 1")
    second = two.start("UPDATE test SET value = 12 WHERE id = 1")
    assert one.ends()
    assert got(second) in (1, REFUSED)
    assert two.ends() is (level == RC)
    assert rows(db)[1] == (12 if level == RC else 11)


@LEVELS
def test_p10_g_single_read_skew(begin: Begin, db: psycopg.Connection, level: str) -> None:
    """G-single: one snapshot would show half of another block."""
    one, two = begin(level), begin(level)
    assert value(one, 1) == 10
    two.run("UPDATE test SET value = 12 WHERE id = 1")
    two.run("UPDATE test SET value = 18 WHERE id = 2")
    assert two.ends()
    assert value(one, 2) == (18 if level == RC else 20)
    changed = one.run("DELETE FROM test WHERE value = 20")
    assert changed == (0 if level == RC else 1)
    assert one.ends() is (level == RC)
    assert rows(db) == {1: 12, 2: 18}


@LEVELS
def test_p10_g2_item_write_skew(begin: Begin, db: psycopg.Connection, level: str) -> None:
    """G2-item: serializable blocks that read each other's rows before they write would both
    commit.
    """
    one, two = begin(level), begin(level)
    for block in (one, two):
        block.run("SELECT * FROM test WHERE id IN (1, 2)")
    one.run("UPDATE test SET value = 11 WHERE id = 1")
    two.run("UPDATE test SET value = 21 WHERE id = 2")
    assert one.ends()
    assert two.ends() is (level != SER)
    assert rows(db) == {1: 11, 2: 20 if level == SER else 21}


@LEVELS
def test_p10_g2_anti_dependency_cycles(begin: Begin, db: psycopg.Connection, level: str) -> None:
    """G2: the same of rows that are not there yet."""
    one, two = begin(level), begin(level)
    for block in (one, two):
        assert block.run("SELECT * FROM test WHERE value % 3 = 0") == []
    one.run("INSERT INTO test VALUES (3, 30)")
    two.run("INSERT INTO test VALUES (4, 42)")
    assert one.ends()
    assert two.ends() is (level != SER)
    assert (4 in rows(db)) is (level != SER)


# ------------------------------------------------------------- READ COMMITTED, by statement

CHANGES: Final = (
    ("UPDATE test SET value = value + 1 WHERE id = 1", 1, {1: 111, 2: 20}),
    ("UPDATE test SET value = value + 1 WHERE value = 10", 0, {1: 110, 2: 20}),
    ("UPDATE test SET value = value + 1", 2, {1: 111, 2: 21}),
    ("UPDATE test SET id = 5 WHERE id = 1", 1, {5: 110, 2: 20}),
    ("DELETE FROM test WHERE id = 1", 1, {2: 20}),
    ("DELETE FROM test WHERE value = 10", 0, {1: 110, 2: 20}),
    (
        "UPDATE test t SET value = t.value + o.value FROM test o WHERE t.id = 1 AND o.id = 2",
        1,
        {1: 130, 2: 20},
    ),
    (
        "UPDATE test SET value = (SELECT max(id) FROM test) + value WHERE id = 1",
        1,
        {1: 112, 2: 20},
    ),
    (
        "INSERT INTO test VALUES (1, 7) ON CONFLICT (id) DO UPDATE SET value = test.value + 7",
        1,
        {1: 117, 2: 20},
    ),
    ("INSERT INTO test VALUES (1, 7) ON CONFLICT DO NOTHING", 0, {1: 110, 2: 20}),
    (
        "MERGE INTO test t USING (VALUES (1)) s (id) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET value = t.value + 1",
        1,
        {1: 111, 2: 20},
    ),
    ("SELECT value FROM test WHERE id = 1 FOR UPDATE", [(110,)], {1: 110, 2: 20}),
    ("SELECT value FROM test WHERE value = 10 FOR UPDATE", [], {1: 110, 2: 20}),
    ("SELECT value FROM test ORDER BY id LIMIT 1 FOR UPDATE", [(110,)], {1: 110, 2: 20}),
    (
        "SELECT a.value FROM test a JOIN test b ON a.id + 1 = b.id WHERE b.id = 2 FOR UPDATE OF a",
        [(110,)],
        {1: 110, 2: 20},
    ),
)


@pytest.mark.few(7)
@pytest.mark.parametrize(("text", "done", "after"), CHANGES)
@pytest.mark.parametrize("committed", [True, False])
def test_p10_a_change_waits_and_sees_the_newest(
    begin: Begin,
    db: psycopg.Connection,
    text: str,
    done: object,
    after: dict[int, int],
    *,
    committed: bool,
) -> None:
    """A statement would compute from the row of before the other block, or be refused (40001)."""
    one, two = begin(RC), begin(RC)
    one.run("UPDATE test SET value = value + 100 WHERE id = 1")
    doing = two.start(text)
    assert not doing.done(), "it has to wait"
    assert one.ends("COMMIT" if committed else "ROLLBACK")
    found = doing.result(30)
    assert two.ends()
    if committed:
        assert found == done
        assert rows(db) == after


@pytest.mark.parametrize("order", ["", " ORDER BY value"])
def test_p10_a_lock_by_itself_waits_and_sees_the_newest(
    sql: Sql, begin: Begin, db: psycopg.Connection, order: str
) -> None:
    """Outside a block nobody repeats a query for the client."""
    one = begin(RR)
    one.run("SELECT * FROM test FOR UPDATE")
    one.run("UPDATE test SET value = value + 100 WHERE id = 1")
    with sql.connect(autocommit=True) as conn, ThreadPoolExecutor(1) as pool:
        query = f"SELECT value FROM test WHERE value > 9{order} LIMIT 1 FOR UPDATE"
        doing = pool.submit(conn.execute, query)
        poll(lambda: db.execute(WAITING).fetchall() != [(0,)])
        assert one.ends()
        assert doing.result(30).fetchall() == [(110,)]
    db.execute("UPDATE test SET value = 0")


@pytest.mark.parametrize("committed", [True, False])
def test_p10_an_insert_waits_for_the_key(begin: Begin, *, committed: bool) -> None:
    """Of two inserts of a key the second would learn of it at its commit, or be refused for what
    was rolled back.
    """
    one, two = begin(RC), begin(RC)
    one.run("INSERT INTO test VALUES (7, 1)")
    doing = two.start("INSERT INTO test VALUES (7, 2)")
    assert not doing.done()
    one.ends("COMMIT" if committed else "ROLLBACK")
    if committed:
        with pytest.raises(psycopg.errors.UniqueViolation):
            doing.result(30)
    else:
        assert doing.result(30) == 1
        assert two.ends()


def test_p10_a_deleted_row_is_not_changed(begin: Begin, db: psycopg.Connection) -> None:
    """An update would bring a row back that another block has deleted."""
    one, two = begin(RC), begin(RC)
    one.run("DELETE FROM test WHERE id = 1")
    doing = two.start("UPDATE test SET value = 0")
    assert one.ends()
    assert doing.result(30) == 1
    assert two.ends()
    assert rows(db) == {2: 0}


def test_p10_children_wait_for_their_parent(begin: Begin, db: psycopg.Connection) -> None:
    """A child would come to a parent that goes, or be refused for a parent that only changes."""
    db.execute("CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES test)")
    one, two = begin(RC), begin(RC)
    one.run("UPDATE test SET value = 0 WHERE id = 1")
    doing = two.start("INSERT INTO child VALUES (1, 1)")
    assert one.ends()
    assert doing.result(30) == 1
    assert two.ends()
    one, two = begin(RC), begin(RC)
    one.run("DELETE FROM test WHERE id = 2")
    doing = two.start("INSERT INTO child VALUES (2, 2)")
    assert one.ends()
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        doing.result(30)


def test_p10_counters_never_repeat(sql: Sql, db: psycopg.Connection) -> None:
    """Programs that repeat nothing lose a block here and there. Rows in any order: only deadlocks
    are told.
    """
    db.execute("CREATE TABLE test (id int PRIMARY KEY, value int)")
    db.execute("CREATE INDEX ON test (value)")
    db.execute("INSERT INTO test SELECT g, 0 FROM generate_series(1, 4) g")
    lock = threading.Lock()
    done = dict.fromkeys(range(1, 5), 0)

    def work(number: int) -> None:
        with sql.connect() as conn:
            conn.execute("SET default_transaction_isolation = 'read committed'")
            conn.commit()
            for turn in range(10):
                keys = sorted({1 + (number + turn) % 4, 1 + (number * turn) % 4})
                for key in keys:
                    conn.execute("UPDATE test SET value = value + 1 WHERE id = %s", (key,))
                conn.commit()
                with lock:
                    for key in keys:
                        done[key] += 1

    with ThreadPoolExecutor(6) as pool:
        for one in [pool.submit(work, number) for number in range(6)]:
            one.result()
    assert rows(db) == done
    for key, count in done.items():
        assert db.execute("SELECT count(*) FROM test WHERE value = %s", (count,)).fetchone() != (
            0,
        ), key


@pytest.mark.slow
def test_p10_a_block_changes_more_rows_than_it_locks(begin: Begin, db: psycopg.Connection) -> None:
    """A load at READ COMMITTED would end where the locks of a transaction end."""
    one = begin(RC)
    for low in (1_000, 20_000):
        made = one.run(f"INSERT INTO test SELECT g, 0 FROM generate_series({low}, {low} + 15000) g")
        assert made == 15_001
    assert one.run("UPDATE test SET value = 1 WHERE id > 10") == 30_002
    assert one.ends()
    assert db.execute("SELECT sum(value) FROM test WHERE id > 10").fetchone() == (30_002,)


def test_p10_a_deadlock_has_one_victim(begin: Begin, db: psycopg.Connection) -> None:
    """Two blocks that lock in different orders would wait for each other until somebody gives
    up.
    """
    one, two = begin(RC), begin(RC)
    one.run("UPDATE test SET value = 11 WHERE id = 1")
    two.run("UPDATE test SET value = 22 WHERE id = 2")
    first = one.start("UPDATE test SET value = 21 WHERE id = 2")
    second = two.start("UPDATE test SET value = 12 WHERE id = 1")
    with pytest.raises(psycopg.errors.DeadlockDetected):
        second.result(30)
    assert two.ends("ROLLBACK")
    assert first.result(30) == 1
    assert one.ends()
    assert rows(db) == {1: 11, 2: 21}


def test_p10_what_a_savepoint_locked_is_free_behind_it(
    begin: Begin, db: psycopg.Connection
) -> None:
    """A statement that was taken back would keep others out until the end of the block."""
    one, two = begin(RC), begin(RC)
    one.run("UPDATE test SET value = 0 WHERE id = 2")
    one.run("SAVEPOINT s")
    one.run("UPDATE test SET value = 1 WHERE id = 1")
    doing = two.start("UPDATE test SET value = value + 5 WHERE id = 1")
    one.run("ROLLBACK TO s")
    assert doing.result(30) == 1
    assert two.ends()
    assert one.run("UPDATE test SET value = value + 1 WHERE id = 1") == 1
    assert one.ends()
    assert rows(db) == {1: 16, 2: 0}


def test_p10_a_lock_timeout_that_is_set_in_a_block_counts(sql: Sql, begin: Begin) -> None:
    """A migration that says SET LOCAL lock_timeout would wait for ever."""
    one = begin(RC)
    one.run("UPDATE test SET value = 1 WHERE id = 1")
    with sql.connect(autocommit=True) as other:
        for text in (
            "UPDATE test SET value = 2 WHERE id = 1",
            "INSERT INTO test VALUES (1, 1)",
            "DELETE FROM test",
        ):
            other.execute("BEGIN")
            other.execute("SELECT 1")
            other.execute("SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable, match="due to lock timeout"):
                other.execute(text.encode())
            other.execute("ROLLBACK")
    assert one.ends()


def test_p10_what_is_locked_stays_so_behind_a_definition(sql: Sql, begin: Begin) -> None:
    """A block that makes a table would lose its locks, and nobody would tell it."""
    one = begin(RC)
    one.run("SELECT value FROM test WHERE id = 1 FOR UPDATE")
    one.run("CREATE TABLE made (id int PRIMARY KEY)")
    with sql.connect(autocommit=True) as other:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SELECT value FROM test WHERE id = 1 FOR UPDATE NOWAIT")
        assert one.ends()
        assert other.execute("SELECT value FROM test WHERE id = 1 FOR UPDATE NOWAIT").fetchall()


def test_p10_many_rows_that_are_new_lock_nothing(sql: Sql, begin: Begin) -> None:
    """A load in a block would need memory for all of its rows; but of twins one is refused."""
    one, two = begin(RC), begin(RC)
    one.run("INSERT INTO test SELECT g, g FROM generate_series(1001, 3000) g")
    two.run("INSERT INTO test SELECT g, g FROM generate_series(1501, 2500) g")
    with sql.connect(autocommit=True) as other:
        held = "SELECT count(*) FROM kvorum.locks WHERE table_name = 'test'"
        assert other.execute(held).fetchall() == [(0,)]
        assert one.ends()
        with pytest.raises(psycopg.errors.UniqueViolation):
            two.run("COMMIT")
        assert other.execute("SELECT count(*) FROM test").fetchall() == [(2002,)]


def test_p10_a_session_begins_as_its_node_says(sql: Sql) -> None:
    """READ COMMITTED is what programs for PostgreSQL count on."""
    with sql.connect(autocommit=True) as conn:
        assert conn.execute("SHOW default_transaction_isolation").fetchone() == (RC.lower(),)
    defaults = NodeConfig(sql_isolation="repeatable_read").session_defaults
    settings = Settings({"application_name": "x"}, defaults)
    assert settings.get("default_transaction_isolation") == RR.lower()
    assert settings.get("statement_memory_bytes") == defaults["statement_memory_bytes"]
