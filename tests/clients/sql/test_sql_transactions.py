"""Transactions over the PostgreSQL protocol: blocks, savepoints, conflicts, reads of the past,
limits of time, and clients that go away.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from kv.base.limits import TXN_TTL_MS_DEFAULT
from tests.clients.sql.conftest import REPEATABLE_READ, Sql

pytestmark = pytest.mark.cluster


@pytest.fixture
def t(db: psycopg.Connection) -> psycopg.Connection:
    """A table t(id, v) with rows 1 and 2."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    db.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    return db


def status(conn: psycopg.Connection) -> TransactionStatus:
    return conn.info.transaction_status


def values(conn: psycopg.Connection) -> dict[int, int]:
    return dict(conn.execute("SELECT id, v FROM t ORDER BY id").fetchall())


def test_p10_block_reads_its_own_writes_and_one_snapshot(sql: Sql, t: psycopg.Connection) -> None:
    """Inside a block: its own rows, nobody else's; outside: nothing before COMMIT."""
    with sql.connect(options=REPEATABLE_READ) as one:
        assert values(one) == {1: 10, 2: 20}
        one.execute("UPDATE t SET v = v + 1 WHERE id = 1")
        one.execute("INSERT INTO t VALUES (3, 30)")
        one.execute("DELETE FROM t WHERE id = 2")
        assert values(one) == {1: 11, 3: 30}
        t.execute("INSERT INTO t VALUES (9, 90)")
        assert values(one) == {1: 11, 3: 30}
        assert values(t) == {1: 10, 2: 20, 9: 90}
        one.commit()
        assert values(one) == values(t) == {1: 11, 3: 30, 9: 90}
        one.execute("DELETE FROM t")
        one.rollback()
        assert values(t) == {1: 11, 3: 30, 9: 90}


def test_p10_savepoints(sql: Sql, t: psycopg.Connection) -> None:
    """ROLLBACK TO takes back what came after the savepoint, and nothing else."""
    with sql.connect() as one:
        one.execute("INSERT INTO t VALUES (3, 30)")
        with one.transaction():
            one.execute("INSERT INTO t VALUES (4, 40)")
            with pytest.raises(psycopg.errors.UniqueViolation), one.transaction():  # noqa: PT012
                one.execute("UPDATE t SET v = 0 WHERE id = 1")
                one.execute("INSERT INTO t VALUES (2, 0)")
            assert one.info.transaction_status == TransactionStatus.INTRANS
            assert values(one) == {1: 10, 2: 20, 3: 30, 4: 40}
        one.execute("SAVEPOINT s")
        one.execute("DELETE FROM t")
        one.execute("ROLLBACK TO s")
        one.execute("UPDATE t SET v = 21 WHERE id = 2")
        one.execute("ROLLBACK TO s")
        one.execute("RELEASE s")
        with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
            one.execute("ROLLBACK TO s")
        one.rollback()
        one.execute("INSERT INTO t VALUES (5, 50)")
        one.commit()
    assert values(t) == {1: 10, 2: 20, 5: 50}


def test_p10_failed_block_takes_nothing_but_its_end(sql: Sql, t: psycopg.Connection) -> None:
    """After an error nothing runs until ROLLBACK, and COMMIT says ROLLBACK."""
    with sql.connect(autocommit=True) as one:
        one.execute("BEGIN")
        one.execute("INSERT INTO t VALUES (3, 30)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            one.execute("SELECT 1/0")
        for text in ("SELECT 1", "INSERT INTO t VALUES (4, 40)", "SAVEPOINT a", "SHOW timezone"):
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                one.execute(text)
        assert status(one) == TransactionStatus.INERROR
        assert one.execute("COMMIT").statusmessage == "ROLLBACK"
        assert status(one) == TransactionStatus.IDLE
    assert values(t) == {1: 10, 2: 20}


def test_p11_lost_update_is_impossible(sql: Sql, t: psycopg.Connection) -> None:
    """Two blocks that read and write one row: the second is refused with 40001 and a detail."""
    options = REPEATABLE_READ
    with sql.connect(options=options) as one, sql.connect(options=options) as two:
        for conn in (one, two):
            conn.execute("SELECT v FROM t WHERE id = 1")
        one.execute("UPDATE t SET v = v + 1 WHERE id = 1")
        two.execute("UPDATE t SET v = v + 5 WHERE id = 1")
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure) as caught:
            two.commit()
        assert caught.value.diag.message_detail
        assert two.info.transaction_status == TransactionStatus.IDLE
    assert values(t) == {1: 11, 2: 20}


@pytest.mark.slow
def test_p11_increments_of_single_statements_all_count(sql: Sql, t: psycopg.Connection) -> None:
    """`SET v = v + 1` outside blocks is repeated by the server; no client sees a conflict."""

    def client(_: int) -> None:
        with sql.connect(autocommit=True) as conn:
            for _ in range(25):
                conn.execute("UPDATE t SET v = v + 1 WHERE id = 2")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(client, range(6)))
    assert values(t) == {1: 10, 2: 170}


@pytest.mark.slow
def test_p9_race_for_a_unique_key_has_one_winner(sql: Sql, t: psycopg.Connection) -> None:
    """Global uniqueness: exactly one insert wins, every other is told 23505; also in blocks."""
    t.execute("CREATE TABLE u (id serial PRIMARY KEY, name text UNIQUE)")
    gate = threading.Barrier(8)

    def client(number: int) -> list[str]:
        told = []
        with sql.connect(autocommit=True) as conn:
            for n in range(10):
                gate.wait()
                try:
                    if number % 2:
                        conn.execute("BEGIN")
                    conn.execute("INSERT INTO u (name) VALUES (%s)", (f"n{n}",))
                    if number % 2:
                        conn.execute("COMMIT")
                    told.append("won")
                except psycopg.Error as error:
                    told.append(error.sqlstate or "?")
                    if number % 2:
                        conn.execute("ROLLBACK")
        return told

    with ThreadPoolExecutor(8) as pool:
        rounds = list(zip(*pool.map(client, range(8)), strict=True))
    for told in rounds:
        assert sorted(told) == ["23505"] * 7 + ["won"], told
    assert len(t.execute("SELECT name FROM u").fetchall()) == 10


def test_p10_serializable_refuses_write_skew(sql: Sql, t: psycopg.Connection) -> None:
    """Two blocks that each read what the other writes: both fit a snapshot, not a serial order."""

    def skewed(level: str) -> list[bool]:
        committed = []
        with sql.connect(autocommit=True) as one, sql.connect(autocommit=True) as two:
            for conn, key in ((one, 1), (two, 2)):
                conn.execute(f"BEGIN ISOLATION LEVEL {level}")
                conn.execute("SELECT id, v FROM t ORDER BY id").fetchall()
                conn.execute("UPDATE t SET v = 0 WHERE id = %s", (key,))
            for conn in (one, two):
                try:
                    conn.execute("COMMIT")
                    committed.append(True)
                except psycopg.errors.SerializationFailure:
                    committed.append(False)
        return committed

    assert skewed("REPEATABLE READ") == [True, True]
    assert skewed("SERIALIZABLE") == [True, False]


LOCKING = (
    "SELECT v FROM t WHERE id = 1 FOR UPDATE",
    "SELECT v FROM t WHERE v = 10 FOR NO KEY UPDATE",
    "SELECT v FROM t ORDER BY v LIMIT 1 FOR SHARE",
    "SELECT a.v FROM t a JOIN t b ON a.id = b.id WHERE a.id = 1 FOR SHARE OF a",
)


@pytest.mark.parametrize("query", LOCKING)
def test_p10_for_update_keeps_others_out(sql: Sql, t: psycopg.Connection, query: str) -> None:
    """Whoever locks a row learns only at COMMIT that another has changed it."""
    with sql.connect() as one, sql.connect() as two, ThreadPoolExecutor(1) as pool:
        assert one.execute(query).fetchall() == [(10,)]
        changing = pool.submit(t.execute, "UPDATE t SET v = v + 1 WHERE id = 1")
        t_sees = two.execute("SELECT v FROM t WHERE id = 1").fetchall()
        assert t_sees == [(10,)], "readers pass"
        for again in LOCKING:
            with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
                two.execute(again + " NOWAIT")
            assert "could not obtain lock on row in relation" in str(caught.value)
            two.rollback()
        assert not changing.done()
        one.execute("UPDATE t SET v = v * 2 WHERE id = 1")
        one.commit()
        changing.result()
    assert values(t) == {1: 21, 2: 20}


def test_p10_for_update_of_a_newer_row_is_a_conflict_at_once(
    sql: Sql, t: psycopg.Connection
) -> None:
    """A block with one snapshot would compute from a row that is no more."""
    for change in ("UPDATE t SET v = v + 1", "DELETE FROM t"):
        for query in LOCKING[:2]:
            with sql.connect(options=REPEATABLE_READ) as one:
                one.execute("SELECT 1 FROM t")
                t.execute(change + " WHERE id = 1")
                with pytest.raises(psycopg.errors.SerializationFailure):
                    one.execute(query)
                t.execute("INSERT INTO t VALUES (1, 10) ON CONFLICT (id) DO UPDATE SET v = 10")


def test_p10_lock_timeout(sql: Sql, t: psycopg.Connection) -> None:
    """A statement would wait for ever though its session says for how long."""
    with sql.connect() as one, sql.connect() as two:
        one.execute("SELECT v FROM t WHERE id = 1 FOR UPDATE")
        two.execute("SET lock_timeout = '300ms'")
        two.commit()
        began = time.monotonic()
        with pytest.raises(psycopg.errors.LockNotAvailable, match="due to lock timeout"):
            two.execute("SELECT v FROM t FOR UPDATE")
        assert 0.3 <= time.monotonic() - began < 3


@pytest.mark.parametrize("order", ["", " ORDER BY v, id", " ORDER BY id DESC"])
def test_p10_skip_locked_shares_a_queue(sql: Sql, t: psycopg.Connection, order: str) -> None:
    """Two workers of a queue would get one job, or wait for each other."""
    t.execute("INSERT INTO t SELECT g, g % 3 FROM generate_series(3, 12) g")
    taken: list[int] = []

    def worker() -> None:
        with sql.connect() as conn:
            while True:
                query = f"SELECT id FROM t WHERE v >= 0{order} LIMIT 2 FOR UPDATE SKIP LOCKED"
                try:
                    jobs = [job for (job,) in conn.execute(query)]
                    for job in jobs:
                        conn.execute("UPDATE t SET v = -1 WHERE id = %s", (job,))
                    conn.commit()
                except psycopg.errors.SerializationFailure:
                    conn.rollback()
                    continue
                taken.extend(jobs)
                if not jobs:
                    return

    with sql.connect() as first:
        locked = first.execute("SELECT id FROM t LIMIT 1 FOR UPDATE").fetchall()
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(worker) for _ in range(4)]:
                done.result()
    assert sorted([*taken, *(one for (one,) in locked)]) == list(range(1, 13))


def test_p10_read_only_blocks_write_nothing(sql: Sql, t: psycopg.Connection) -> None:
    """READ ONLY is a promise of the server, for blocks and for whole sessions."""
    with sql.connect(autocommit=True) as one:
        one.execute("BEGIN READ ONLY")
        for text in (
            *("INSERT INTO t VALUES (3, 3)", "UPDATE t SET v = 1", "CREATE TABLE n (a int)"),
            *("CREATE ROLE r", "ALTER ROLE r LOGIN", "GRANT r TO r2", "DROP ROLE IF EXISTS r"),
        ):
            one.execute("SAVEPOINT s")
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                one.execute(text)
            one.execute("ROLLBACK TO s")
        assert values(one) == {1: 10, 2: 20}
        one.execute("COMMIT")
        one.execute("SET default_transaction_read_only = on")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            one.execute("DELETE FROM t")


def test_p10_the_past_can_be_read(sql: Sql, t: psycopg.Connection) -> None:
    """AS OF SYSTEM TIME per statement, and kvorum.as_of for a session."""
    time.sleep(0.05)
    (moment,) = t.execute("SELECT clock_timestamp()").fetchone() or (None,)
    time.sleep(0.05)
    t.execute("UPDATE t SET v = 0")
    t.execute("DELETE FROM t WHERE id = 2")
    found = t.execute(f"SELECT id, v FROM t AS OF SYSTEM TIME '{moment}' ORDER BY id").fetchall()
    assert found == [(1, 10), (2, 20)]
    time.sleep(0.02)
    assert t.execute("SELECT v FROM t AS OF SYSTEM TIME '-1ms' WHERE id = 1").fetchall() == [(0,)]
    bounded = "AS OF SYSTEM TIME with_max_staleness('1ms')"
    assert t.execute(f"SELECT v FROM t {bounded} WHERE id = 1").fetchall() == [(0,)]
    before = t.execute("SELECT v FROM t AS OF SYSTEM TIME follower_read_timestamp()").fetchall()
    assert (0,) not in before, "three seconds ago"
    t.execute(f"SET kvorum.as_of = '{moment}'")
    assert values(t) == {1: 10, 2: 20}
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        t.execute("DELETE FROM t")
    t.execute("RESET kvorum.as_of")
    assert values(t) == {1: 0}


def test_p10_a_statement_that_takes_too_long_is_stopped(sql: Sql, t: psycopg.Connection) -> None:
    """statement_timeout and a cancel request end a statement with 57014; the session lives on."""
    with sql.connect(autocommit=True) as one:
        one.execute("SET statement_timeout = '200ms'")
        began = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            one.execute("SELECT pg_sleep(20)")
        assert time.monotonic() - began < 5
        one.execute("RESET statement_timeout")
        timer = threading.Timer(0.3, one.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            one.execute("SELECT pg_sleep(20)")
        timer.join()
        assert values(one) == {1: 10, 2: 20}


@pytest.mark.slow
def test_p10_a_long_answer_is_stopped_though_each_piece_is_in_time(sql: Sql) -> None:
    """Each piece of an answer had the time of the whole: one that never ended was never stopped."""
    with sql.connect(autocommit=True) as one:
        one.execute("CREATE TABLE many AS SELECT g, 'text' AS v FROM generate_series(1, 150000) g")
        one.execute("SET statement_timeout = '150ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            one.execute("SELECT * FROM many")
        cursor = one.cursor()
        with pytest.raises(psycopg.errors.QueryCanceled), cursor.copy("COPY many TO STDOUT") as out:
            for _ in out:
                pass
        one.execute("RESET statement_timeout")
        assert one.execute("SELECT count(*) FROM many").fetchone() == (150_000,)


@pytest.mark.slow
def test_p10_idle_sessions_end(sql: Sql, t: psycopg.Connection) -> None:
    """idle_in_transaction_session_timeout: whoever sleeps in a block loses it, and is told."""
    with sql.connect(autocommit=True) as one:
        one.execute("SET idle_in_transaction_session_timeout = '200ms'")
        one.execute("BEGIN")
        one.execute("UPDATE t SET v = 0 WHERE id = 1")
        time.sleep(3)  # connections are looked at once in a second
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            one.execute("COMMIT")
    assert values(t) == {1: 10, 2: 20}


_VICTIM = """
import sys, time, psycopg
conn = psycopg.connect(sys.argv[1])
conn.execute("UPDATE t SET v = 0")
conn.execute("INSERT INTO t VALUES (7, 7)")
conn.execute("SELECT v FROM t WHERE id = 1 FOR UPDATE")
print("ready", flush=True)
time.sleep(60)
"""


def test_p14_a_killed_client_leaves_nothing(sql: Sql, t: psycopg.Connection) -> None:
    """kill -9 of a client in a block: its changes are gone and hold nobody up."""
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, sql.dsn], stdout=subprocess.PIPE, text=True
    )
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
    finally:
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
    began = time.monotonic()
    t.execute("UPDATE t SET v = v + 1")
    # Its last heartbeat is a third of its time to live old at most: who waits for it waits longer.
    assert time.monotonic() - began < TXN_TTL_MS_DEFAULT * 0.6 / 1000
    assert values(t) == {1: 11, 2: 21}


async def test_p14_clients_that_leave_in_the_middle(sql: Sql, t: psycopg.Connection) -> None:
    """Connections cut at any byte of a conversation leave the node whole for the others."""
    start = b"\x00\x03\x00\x00user\x00kvorum\x00database\x00%s\x00\x00" % sql.database.encode()
    whole = b"".join(
        [
            (
                start := b"\x00\x03\x00\x00user\x00kvorum\x00database\x00"
                + sql.database.encode()
                + b"\x00\x00"
            )
            and (len(start) + 4).to_bytes(4, "big") + start,
            b"Q\x00\x00\x00\x0aBEGIN\x00",
            b"Q" + (4 + 28).to_bytes(4, "big") + b"UPDATE t SET v=0 WHERE id=1\x00",
        ]
    )
    for cut in range(0, len(whole) + 1, 3):
        _, writer = await asyncio.open_connection("127.0.0.1", sql.port)
        writer.write(whole[:cut])
        await writer.drain()
        writer.transport.abort()
    await asyncio.to_thread(t.execute, "UPDATE t SET v = v + 1 WHERE id = 1")
    assert await asyncio.to_thread(values, t) == {1: 11, 2: 20}


def test_p10_definitions_inside_blocks(sql: Sql, t: psycopg.Connection) -> None:
    """BEGIN; CREATE TABLE; INSERT; COMMIT is what migrations are made of."""
    with sql.connect() as one:
        one.execute("CREATE TABLE n (id int PRIMARY KEY)")
        one.execute("INSERT INTO n VALUES (1)")
        one.execute("CREATE TABLE m (id int PRIMARY KEY REFERENCES n)")
        one.execute("INSERT INTO m VALUES (1)")
        one.commit()
    assert t.execute("SELECT id FROM m").fetchall() == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["INSERT INTO n VALUES (2)", "DELETE FROM n WHERE id = 1"])
def test_a_block_of_definitions_may_take_long(sql: Sql, t: psycopg.Connection, change: str) -> None:
    """On a busy machine a migration was refused because of its own definitions. A row that it
    removes may be one that what it defines would refer to: then it is.
    """
    t.execute("CREATE TABLE n (id int PRIMARY KEY)")
    t.execute("INSERT INTO n VALUES (1)")
    with sql.connect() as one:
        one.execute(change)
        one.execute("CREATE TABLE m (id int PRIMARY KEY REFERENCES n)")
        one.execute("SELECT pg_sleep(2.2)")  # longer than SQL_FENCE_MS
        one.execute("CREATE TABLE o (id int PRIMARY KEY)")
        one.execute("SELECT pg_sleep(2.2)")
        if change.startswith("INSERT"):
            one.execute("INSERT INTO m VALUES (2)")
            one.commit()
            assert t.execute("SELECT id FROM m").fetchall() == [(2,)]
        else:
            with pytest.raises(psycopg.errors.SerializationFailure):
                one.commit()
    t.execute("DROP TABLE m, n, o")


@pytest.mark.slow
def test_others_may_not_define_meanwhile(sql: Sql, t: psycopg.Connection) -> None:
    """What a block adds would lack what somebody else has declared for it."""
    t.execute("CREATE TABLE n (id int PRIMARY KEY, v int)")
    with sql.connect() as one:
        one.execute("INSERT INTO n VALUES (1, 1)")
        one.execute("CREATE TABLE m (id int)")
        one.execute("SELECT pg_sleep(2.2)")
        t.execute("ALTER TABLE n ADD COLUMN w int DEFAULT 7")
        with pytest.raises(psycopg.errors.SerializationFailure):
            one.commit()
    t.execute("DROP TABLE m, n")


def test_a_client_may_call_itself_anything_and_wait_long(sql: Sql, t: psycopg.Connection) -> None:
    """Tools send long names; their transactions would all be refused, and so would long waits."""
    with sql.connect() as one:
        one.execute("SET application_name = 'DBeaver 24.1 - SQLEditor <a rather long name>'")
        one.execute("SET lock_timeout = '1d'")
        one.commit()
        one.execute("UPDATE t SET v = 11 WHERE id = 1")
        one.commit()
    assert values(t)[1] == 11


def test_fillfactor_is_not_taken_silently(db: psycopg.Connection) -> None:
    """Who sets it expects something of it."""
    told: list[str] = []
    db.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    db.execute("CREATE TABLE heaped (id int PRIMARY KEY) WITH (fillfactor = 90)")
    assert told == ["fillfactor has no effect: rows do not lie in a heap"]


def executed(conn: psycopg.Connection, text: bytes) -> PGresult:
    """The answer of a statement behind which no Sync was sent: it is not committed yet."""
    pg = conn.pgconn
    pg.send_query_params(text, None)
    pg.send_flush_request()
    pg.flush()
    done = pg.get_result()
    assert done is not None
    assert pg.get_result() is None
    return done


def synced(conn: psycopg.Connection) -> str:
    """The SQLSTATE of the commit that Sync asks for, "" if it was done."""
    pg, told = conn.pgconn, ""
    pg.pipeline_sync()
    while (left := pg.get_result()) is None or left.status != ExecStatus.PIPELINE_SYNC:
        if left is not None and left.status == ExecStatus.FATAL_ERROR:
            told = (left.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    return told


def test_p10_a_statement_that_fails_when_it_runs_again_leaves_nothing(
    sql: Sql, db: psycopg.Connection
) -> None:
    """A statement by itself met a conflict at its commit, ran again and was refused then (23503,
    23514): its rows were committed with the next statement of the session.
    """
    db.execute("CREATE TABLE p (id int PRIMARY KEY)")
    db.execute("CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES p (id))")
    db.execute("CREATE TABLE n (id int PRIMARY KEY, v int CHECK (v >= 0))")
    db.execute("INSERT INTO p VALUES (1), (2)")
    db.execute("INSERT INTO n VALUES (1, 1), (2, 1)")
    with sql.connect(autocommit=True, options=REPEATABLE_READ) as one:
        for text, meanwhile, state in (
            (b"INSERT INTO child VALUES (1, 1)", "DELETE FROM p WHERE id = 1", "23503"),
            (b"UPDATE n SET v = v - 1", "UPDATE n SET v = 0 WHERE id = 2", "23514"),
        ):
            one.pgconn.enter_pipeline_mode()
            assert executed(one, text).status == ExecStatus.COMMAND_OK
            db.execute(meanwhile)
            assert synced(one) == state
            one.pgconn.exit_pipeline_mode()
            one.execute("INSERT INTO child VALUES (2, 2) ON CONFLICT DO NOTHING")
        assert one.execute("SELECT id FROM child").fetchall() == [(2,)]
        assert one.execute("SELECT id, v FROM n ORDER BY id").fetchall() == [(1, 1), (2, 0)]


def test_p10_what_was_read_behind_a_statement_holds_when_it_is_committed(
    sql: Sql, t: psycopg.Connection
) -> None:
    """UPDATE and SELECT before one Sync are one transaction: behind a conflict the UPDATE alone ran
    again, and the SELECT had told what never was.
    """
    with sql.connect(autocommit=True, options=REPEATABLE_READ) as one:
        one.pgconn.enter_pipeline_mode()
        assert executed(one, b"UPDATE t SET v = v + 1 WHERE id = 1").status == ExecStatus.COMMAND_OK
        assert executed(one, b"SELECT v FROM t WHERE id = 1").get_value(0, 0) == b"11"
        t.execute("UPDATE t SET v = 100 WHERE id = 1")
        assert synced(one) == "40001"
        one.pgconn.exit_pipeline_mode()
        assert values(one) == {1: 100, 2: 20}


def test_p10_reads_before_one_sync_are_of_one_snapshot(sql: Sql, t: psycopg.Connection) -> None:
    """Statements of a pipeline are one transaction: two SELECTs by key told two moments, and what
    an UPDATE behind one was decided on could have changed.
    """
    with sql.connect(autocommit=True, options=REPEATABLE_READ) as one:
        one.pgconn.enter_pipeline_mode()
        assert executed(one, b"SELECT v FROM t WHERE id = 1").get_value(0, 0) == b"10"
        t.execute("UPDATE t SET v = 100 WHERE id = 1")
        assert executed(one, b"SELECT v FROM t WHERE id = 1").get_value(0, 0) == b"10"
        executed(one, b"UPDATE t SET v = 11 WHERE id = 1")
        assert synced(one) == "40001"
        one.pgconn.exit_pipeline_mode()
        assert values(one) == {1: 100, 2: 20}


def test_q1_a_definition_that_is_cancelled_says_that_it_goes_on(
    sql: Sql, t: psycopg.Connection
) -> None:
    """57014 would mean that nothing was done; a definition is a job that nobody stops."""
    told: list[str] = []
    # When a definition becomes a job, and when it is over, depends on the machine: every time is
    # tried until one falls between the two.
    for number in range(64):
        with sql.connect(autocommit=True) as one:
            one.execute(f"SET statement_timeout = {2 << number % 8}")
            try:
                one.execute(f"CREATE INDEX i{number} ON t (v)")
            except psycopg.errors.QueryCanceled as error:
                told.append(error.diag.message_detail or "")
        if told and "SHOW JOBS" in told[-1]:
            break
    assert any("SHOW JOBS" in detail for detail in told), told


def test_p10_what_was_set_behind_a_savepoint_goes_back_with_it(
    sql: Sql, db: psycopg.Connection
) -> None:
    """ROLLBACK TO kept a SET, or the role of a SET ROLE; RELEASE or COMMIT forgot one."""
    role = f"saved_{sql.database}"
    db.execute(f"CREATE ROLE {role}")
    with sql.connect(application_name="first") as conn:

        def shown() -> tuple[object, ...]:
            found = conn.execute(
                "SELECT current_user, current_setting('application_name'), "
                "current_setting('work_mem'), current_setting('my.own', true)"
            ).fetchone()
            assert found is not None
            return (*found, conn.info.parameter_status("application_name"))

        memory = shown()[2]
        conn.execute("SET application_name = 'second'")
        conn.execute("SAVEPOINT a")
        conn.execute(f"SET ROLE {role}")
        conn.execute("SET application_name = 'third'")
        conn.execute("SET LOCAL work_mem = '123MB'")
        conn.execute("SET my.own = 'x'")
        conn.execute("SAVEPOINT b")
        conn.execute("RESET ROLE")
        assert shown() == ("kvorum", "third", "123MB", "x", "third")
        conn.execute("ROLLBACK TO b")
        assert shown() == (role, "third", "123MB", "x", "third")
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1 / 0")
        conn.execute("ROLLBACK TO a")
        assert shown() == ("kvorum", "second", memory, None, "second")
        conn.execute("SET my.own = 'y'")
        conn.execute("RELEASE a")
        conn.commit()
        assert shown() == ("kvorum", "second", memory, "y", "second")
        conn.rollback()
        assert shown()[1] == "second"


def test_p10_a_held_cursor_outlives_transactions_that_fail(sql: Sql, t: psycopg.Connection) -> None:
    """A cursor WITH HOLD was closed by the failure of a later transaction; or one of the failed
    transaction stayed."""
    with sql.connect(autocommit=True) as conn:
        conn.execute("DECLARE kept CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id")
        conn.execute("BEGIN")
        conn.execute("DECLARE gone CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id")
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1 / 0")
        conn.execute("ROLLBACK")
        with pytest.raises(psycopg.errors.InvalidCursorName):
            conn.execute("FETCH gone")
        assert conn.execute("FETCH kept").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1 / 0")
        with pytest.raises(psycopg.errors.DivisionByZero):  # its rows cannot be kept
            conn.execute("DECLARE bad CURSOR WITH HOLD FOR SELECT 1 / (id - 1) FROM t")
        with pytest.raises(psycopg.errors.InvalidCursorName):
            conn.execute("FETCH bad")
        t.execute("DELETE FROM t")
        assert conn.execute("FETCH ALL kept").fetchall() == [(2,)]


def test_p1_explain_says_how_execute_declare_and_create_table_as_read(
    t: psycopg.Connection,
) -> None:
    """EXPLAIN of a statement that names another one failed, or told something else."""
    t.execute("PREPARE one(int) AS SELECT v FROM t WHERE id = $1")
    t.execute("PREPARE more(int) AS UPDATE t SET v = v + 1 WHERE id = $1")

    def first(text: str) -> str:
        rows = t.execute(text).fetchall()
        return str(rows[0][0]).partition("  (cost=")[0]

    assert first("EXPLAIN EXECUTE one(1)") == "Index Scan using t_pkey on t"
    assert first("EXPLAIN EXECUTE more(1)") == "Update on t"
    assert values(t)[1] == 10
    assert first("EXPLAIN ANALYZE EXECUTE more(1)") == "Update on t"
    assert values(t)[1] == 11
    assert first("EXPLAIN DECLARE c CURSOR FOR SELECT * FROM t") == "Seq Scan on t"
    assert first("EXPLAIN CREATE TABLE n AS SELECT v FROM t WHERE id = 2").startswith("Index Scan")
    for text, error in (
        ("FETCH c", psycopg.errors.InvalidCursorName),
        ("SELECT * FROM n", psycopg.errors.UndefinedTable),
        ("EXPLAIN EXECUTE gone(1)", psycopg.errors.InvalidSqlStatementName),
        ("EXPLAIN EXECUTE one", psycopg.errors.SyntaxError),
        ("EXPLAIN ANALYZE CREATE TABLE n AS SELECT 1 AS x", psycopg.errors.FeatureNotSupported),
    ):
        with pytest.raises(error):
            t.execute(text)


def test_p10_a_lower_isolation_level_is_taken_and_shown(sql: Sql) -> None:
    """Pools that set READ COMMITTED and ask whether it is set gave up."""
    with sql.connect() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        assert conn.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert conn.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
        conn.execute("CREATE TABLE t (a int)")
        conn.execute("SELECT * FROM t")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            conn.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")


def test_p10_a_default_isolation_level_is_shown(db: psycopg.Connection) -> None:
    """JDBC asks outside of a block for the level that it has just set for the session."""
    db.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
    for text in ("SHOW transaction_isolation", "SELECT current_setting('transaction_isolation')"):
        assert db.execute(text).fetchone() == ("read committed",)
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert db.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
    assert db.execute("SHOW transaction_isolation").fetchone() == ("read committed",)


def test_p10_a_second_database_of_one_name_is_a_duplicate_database(db: psycopg.Connection) -> None:
    """Tools that make a database unless it is there look for 42P04."""
    name = db.info.dbname
    with pytest.raises(psycopg.errors.DuplicateDatabase, match=f'database "{name}" already exists'):
        db.execute(f"CREATE DATABASE {name}")
