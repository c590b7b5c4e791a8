"""Roles and privileges, as clients meet them: PostgreSQL 15 answers the same to these steps."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.waiting import poll


@contextmanager
def _as(sql: Sql, role: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(sql.dsn.replace("user=kvorum", f"user={role}"), autocommit=True) as conn:
        yield conn


def _refused(conn: psycopg.Connection, statement: str, words: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
        conn.execute(statement)
    assert words in str(caught.value), (statement, str(caught.value))


@pytest.fixture
def roles(db: psycopg.Connection, sql: Sql) -> tuple[str, str]:
    """An owner and a reader of the test's own; a table of the owner's."""
    owner, reader = f"owner_{sql.database}", f"reader_{sql.database}"
    db.execute(f"CREATE USER {owner}")
    db.execute(f"CREATE USER {reader}")
    db.execute(f"GRANT CREATE ON SCHEMA public TO {owner}")
    with _as(sql, owner) as conn:
        conn.execute("CREATE TABLE t (a serial PRIMARY KEY, b int)")
        conn.execute("CREATE VIEW v AS SELECT b FROM t")
        conn.execute("INSERT INTO t (b) VALUES (10), (20)")
    return owner, reader


def test_p10_who_was_granted_nothing_can_do_nothing(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """Every way to a table's rows has to ask: one that does not is a hole."""
    _, reader = roles
    denied = "permission denied for table t"
    with _as(sql, reader) as conn:
        for statement in (
            "SELECT * FROM t",
            "SELECT b FROM t WHERE a = 1",
            "SELECT count(*) FROM t",
            "SELECT 1 FROM t x JOIN t y USING (a)",
            "SELECT (SELECT max(b) FROM t)",
            "WITH w AS (SELECT * FROM t) SELECT * FROM w",
            "INSERT INTO t VALUES (5, 5)",
            "UPDATE t SET b = 1",
            "UPDATE t SET b = 1 WHERE a = 1",
            "DELETE FROM t",
            "DELETE FROM t WHERE a = 1",
            "TRUNCATE t",
            "COPY t TO STDOUT",
            "COPY t FROM STDIN",
            "COPY (SELECT * FROM t) TO STDOUT",
            "EXPLAIN SELECT * FROM t",
            "EXPLAIN DECLARE c CURSOR FOR SELECT * FROM t",
            "EXPLAIN CREATE TABLE n AS SELECT * FROM t",
            "LOCK TABLE t IN ACCESS SHARE MODE",
            "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t",
            "SELECT * FROM t FOR UPDATE",
            "MERGE INTO t USING (SELECT 1 k) s ON a = k WHEN MATCHED THEN DELETE",
            "SELECT a FROM t AS OF SYSTEM TIME '-1ms'",
        ):
            if statement.startswith("LOCK"):
                with conn.transaction(), pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(statement)
                continue
            _refused(conn, statement, denied)
        _refused(conn, "SELECT * FROM v", "permission denied for view v")
        _refused(conn, "SELECT nextval('t_a_seq')", "permission denied for sequence t_a_seq")
        _refused(conn, "SELECT setval('t_a_seq', 1)", "permission denied for sequence t_a_seq")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("SELECT b FROM t WHERE a = %s", (1,), prepare=True)
    assert db.execute("SELECT count(*), sum(b) FROM t").fetchone() == (2, 30)


def test_p10_definitions_belong_to_owners(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """Who may read a table could drop it."""
    owner, reader = roles
    db.execute(f"GRANT ALL ON t, v TO {reader}")
    with _as(sql, reader) as conn:
        for statement, words in (
            ("DROP TABLE t", "must be owner of table t"),
            ("ALTER TABLE t ADD c int", "must be owner of table t"),
            ("ALTER TABLE t RENAME TO u", "must be owner of table t"),
            ("ALTER TABLE t OWNER TO CURRENT_USER", "must be owner of table t"),
            ("CREATE INDEX ON t (b)", "must be owner of table t"),
            ("DROP VIEW v", "must be owner of view v"),
            ("DROP SEQUENCE t_a_seq", "must be owner of sequence t_a_seq"),
            ("CREATE TABLE u (a int)", "permission denied for schema public"),
            ("CREATE VIEW w AS SELECT 1 AS a", "permission denied for schema public"),
            ("CREATE SEQUENCE s", "permission denied for schema public"),
            ("CREATE TABLE u AS SELECT 1 AS a", "permission denied for schema public"),
            ("CREATE DATABASE other_one", "permission denied to create database"),
            (f"DROP DATABASE {sql.database}_x", "must be owner of database"),
            ("CREATE ROLE x", "permission denied to create role"),
            (f"ALTER ROLE {owner} SUPERUSER", "must be superuser to alter superuser roles"),
            (f"ALTER ROLE {owner} NOLOGIN", "permission denied"),
            (f"DROP ROLE {owner}", "permission denied to drop role"),
            (f"GRANT {owner} TO {reader}", "must have admin option"),
        ):
            if "_x" in statement:
                db.execute(f"CREATE DATABASE {sql.database}_x")
            _refused(conn, statement, words)
        conn.execute(f"ALTER ROLE {reader} PASSWORD NULL")  # the own one
    db.execute(f"GRANT CREATE ON SCHEMA public TO {reader}")
    with _as(sql, reader) as conn:
        conn.execute("CREATE TABLE child (a int REFERENCES t)")  # ALL has REFERENCES
        db.execute(f"REVOKE REFERENCES ON t FROM {reader}")
        _refused(conn, "CREATE TABLE child2 (a int REFERENCES t)", "permission denied for table t")
        conn.execute("DROP TABLE child")
        conn.execute("GRANT SELECT ON t TO PUBLIC")  # a warning: it is not the owner
        db.execute(f"REVOKE ALL ON t FROM {reader}")
        _refused(conn, "SELECT * FROM t", "permission denied for table t")
        _refused(conn, "GRANT SELECT ON t TO PUBLIC", "permission denied for table t")
    assert db.execute("SELECT tableowner FROM pg_tables WHERE tablename = 't'").fetchone() == (
        owner,
    )


def test_p10_each_privilege_allows_what_it_says(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """One that allows more is a hole, one that allows less stops an application."""
    _, reader = roles
    denied = "permission denied for table t"
    with _as(sql, reader) as conn:
        db.execute(f"GRANT UPDATE ON t TO {reader}")
        assert conn.execute("UPDATE t SET b = 7").rowcount == 2
        _refused(conn, "UPDATE t SET b = 7 WHERE a = 1", denied)
        _refused(conn, "UPDATE t SET b = b + 1", denied)
        _refused(conn, "UPDATE t SET b = 7 RETURNING a", denied)
        db.execute(f"GRANT INSERT ON t TO {reader}")
        conn.execute("INSERT INTO t VALUES (50, 1)")
        _refused(conn, "INSERT INTO t (b) VALUES (1)", "permission denied for sequence t_a_seq")
        _refused(conn, "UPDATE t SET a = DEFAULT", "permission denied for sequence t_a_seq")
        with_default = (
            "UPDATE t SET a = DEFAULT WHERE a = 99",
            "INSERT INTO t VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET a = DEFAULT",
            "MERGE INTO t USING (SELECT 99 k) s ON a = k WHEN MATCHED THEN UPDATE SET a = DEFAULT",
        )
        for statement in with_default:
            _refused(conn, statement, denied)
        db.execute(f"GRANT SELECT ON t TO {reader}")
        for statement in with_default:
            _refused(conn, statement, "permission denied for sequence t_a_seq")
        db.execute(f"REVOKE SELECT ON t FROM {reader}")
        _refused(conn, "INSERT INTO t VALUES (51, 1) RETURNING a", denied)
        _refused(conn, "INSERT INTO t VALUES (50, 1) ON CONFLICT (a) DO NOTHING", denied)
        conn.execute("INSERT INTO t VALUES (50, 1) ON CONFLICT DO NOTHING")
        db.execute(f"GRANT USAGE ON SEQUENCE t_a_seq TO {reader}")
        conn.execute("INSERT INTO t (b) VALUES (1)")
        db.execute(f"GRANT SELECT ON v TO {reader}")
        assert conn.execute("SELECT count(*) FROM v").fetchone() == (4,)  # as its owner
        _refused(conn, "SELECT count(*) FROM t", denied)
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}")
        assert conn.execute("SELECT b FROM t WHERE a = %s", (50,)).fetchone() == (1,)
        assert conn.execute("UPDATE t SET b = b + 1 WHERE a = 50 RETURNING b").fetchone() == (2,)
        db.execute(f"REVOKE SELECT, UPDATE ON t FROM {reader}")
        _refused(conn, "SELECT b FROM t WHERE a = 50", denied)
        _refused(conn, "UPDATE t SET b = 1", denied)
        assert conn.execute("SELECT count(*) FROM v").fetchone() == (4,)
        db.execute(f"REVOKE ALL ON t FROM {reader}")
        db.execute("GRANT SELECT ON t TO PUBLIC")
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (4,)
        db.execute("REVOKE USAGE ON SCHEMA public FROM PUBLIC")
        _refused(conn, "SELECT count(*) FROM public.t", "permission denied for schema public")


def test_p10_members_have_what_their_groups_have(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """Teams grant to a group, and put people into it."""
    owner, reader = roles
    group = f"group_{sql.database}"
    db.execute(f"CREATE ROLE {group}")
    db.execute(f"GRANT SELECT ON t TO {group}")
    with _as(sql, reader) as conn:
        _refused(conn, "SELECT * FROM t", "permission denied for table t")
        db.execute(f"GRANT {group} TO {reader}")
        conn.execute("SELECT * FROM t")
        _refused(conn, "DROP TABLE t", "must be owner of table t")
        db.execute(f"REVOKE {group} FROM {reader}")
        _refused(conn, "SELECT * FROM t", "permission denied for table t")
        db.execute(f"GRANT {owner} TO {reader}")
        conn.execute("ALTER TABLE t ADD c int")  # a member of the owner
        with pytest.raises(psycopg.Error) as caught:
            db.execute(f"GRANT {reader} TO {owner}")
        assert caught.value.sqlstate == "0LP01"
    with pytest.raises(psycopg.Error) as caught:
        db.execute(f"DROP ROLE {group}")
    assert caught.value.sqlstate == "2BP01"
    db.execute(f"REVOKE ALL ON t FROM {group}")
    db.execute(f"DROP ROLE {group}")
    with pytest.raises(psycopg.Error) as caught:
        db.execute(f"DROP ROLE {owner}")
    assert caught.value.sqlstate == "2BP01"
    db.execute(f"REASSIGN OWNED BY {owner} TO kvorum")
    db.execute(f"REVOKE ALL ON SCHEMA public FROM {owner}")
    db.execute(f"DROP ROLE {owner}")


def test_p10_who_is_a_member_may_act_as_the_group(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """Migrations act as the owner of the tables; a way around the check would make anybody so."""
    owner, reader = roles
    take = "SELECT set_config('role', '{}', false)"
    with _as(sql, reader) as conn:
        for statement in (f"SET ROLE {owner}", "SET ROLE kvorum", take.format("kvorum")):
            _refused(conn, statement, "permission denied to set role")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            conn.execute("SET ROLE nobody_there")
    with pytest.raises(psycopg.OperationalError, match="permission denied to set role"):
        psycopg.connect(sql.dsn.replace("user=kvorum", f"user={reader}"), options="-c role=kvorum")
    db.execute(f"GRANT {owner} TO {reader}")
    with _as(sql, reader) as conn:
        conn.execute(f"SET ROLE {owner}")
        assert conn.execute("SELECT current_user, session_user").fetchone() == (owner, reader)
        conn.execute("CREATE TABLE made (a int)")
        conn.execute("RESET ALL")
        assert conn.execute("SHOW role").fetchone() == (owner,)
        conn.execute("RESET ROLE")
        assert conn.execute("SELECT current_user").fetchone() == (reader,)
        conn.execute("SET SESSION AUTHORIZATION DEFAULT")
    ask = "SELECT tableowner FROM pg_tables WHERE tablename = 'made'"
    assert db.execute(ask).fetchone() == (owner,)
    db.execute(f"SET ROLE {reader}")  # a superuser may act as anybody, with no more than that
    assert db.execute("SELECT count(*) FROM t").fetchone() == (2,)
    _refused(db, "CREATE ROLE x", "permission denied to create role")
    db.execute("RESET ROLE")


def test_p10_names_in_other_cases_and_kinds_are_no_way_round(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """set_config('ROLE', …) made anybody a superuser, ALTER INDEX renamed anybody's table."""
    _, reader = roles
    db.execute(f"GRANT CREATE ON SCHEMA public TO {reader}")
    with _as(sql, reader) as conn:
        for statement in (
            "SELECT set_config('ROLE', 'kvorum', false)",
            "SELECT set_config('role', 'kvorum', true)",
            'SET "ROLE" TO kvorum',
        ):
            _refused(conn, statement, 'permission denied to set role "kvorum"')
        assert conn.execute("SELECT current_user").fetchone() == (reader,)
        _refused(conn, "ALTER INDEX t RENAME TO mine", "must be owner of table t")
        _refused(conn, "ALTER TABLE t_pkey RENAME TO mine", "must be owner of index t_pkey")


def test_p10_what_a_role_loses_it_loses_in_every_database(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """Clients of other databases of the node went on for a second with what was taken from them."""
    owner, reader = roles
    with _as(sql, reader) as conn, sql.connect(autocommit=True, dbname="postgres") as other:
        for _ in range(3):
            other.execute(f"GRANT {owner} TO {reader}")
            assert conn.execute("SELECT b FROM t WHERE a = 1").fetchone() == (10,)
            other.execute(f"REVOKE {owner} FROM {reader}")
            _refused(conn, "SELECT b FROM t WHERE a = 1", "permission denied for table t")


def test_p10_a_definition_that_runs_late_is_asked_again(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """DROP TABLE IF EXISTS, bound while there was no such table, took somebody else's later."""
    _, reader = roles
    with socket.create_connection(("127.0.0.1", sql.port), timeout=5) as line:
        wire = line.makefile("rb")

        def send(kind: bytes, body: bytes) -> None:
            line.sendall(kind + struct.pack("!i", len(body) + 4) + body)

        def until(kind: bytes) -> list[tuple[bytes, bytes]]:
            found: list[tuple[bytes, bytes]] = []
            while not found or found[-1][0] != kind:
                head, length = struct.unpack("!ci", wire.read(5))
                found.append((head, wire.read(length - 4)))
            return found

        wishes = f"user\0{reader}\0database\0{sql.database}\0\0".encode()
        send(b"", struct.pack("!i", 3 << 16) + wishes)
        until(b"Z")
        send(b"P", b"\0DROP TABLE IF EXISTS later\0\0\0")
        send(b"B", b"\0\0" + b"\0" * 6)
        send(b"H", b"")
        until(b"2")
        db.execute("CREATE TABLE later (a int)")
        send(b"E", b"\0" + b"\0" * 4)
        send(b"S", b"")
        (told,) = [body for kind, body in until(b"Z") if kind == b"E"]
        assert b"C42501\0" in told
        send(b"X", b"")
    assert db.execute("SELECT count(*) FROM later").fetchone() == (0,)


def test_p10_databases_have_privileges_and_owners(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """A database for one team could be opened by another."""
    owner, reader = roles
    db.execute(f"REVOKE CONNECT ON DATABASE {sql.database} FROM PUBLIC")
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(sql.dsn.replace("user=kvorum", f"user={reader}"))
    db.execute(f"ALTER DATABASE {sql.database} OWNER TO {owner}")
    with _as(sql, owner) as conn:
        conn.execute(f"GRANT CONNECT ON DATABASE {sql.database} TO {reader}")
    with _as(sql, reader) as conn:
        assert conn.info.parameter_status("is_superuser") == "off"
    db.execute(f"ALTER ROLE {reader} CREATEDB")
    with _as(sql, reader) as conn:
        conn.execute(f"CREATE DATABASE {sql.database}_own")
        conn.execute(f"DROP DATABASE {sql.database}_own")


@pytest.mark.slow
def test_p10_the_catalog_tells_of_privileges(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """Administrators' tools read them there; information_schema hides what is not the user's."""
    owner, reader = roles
    db.execute(f"GRANT SELECT, INSERT ON t TO {reader}")
    ask = "SELECT has_table_privilege(%s, 't', %s)"
    assert db.execute(ask, (reader, "SELECT")).fetchone() == (True,)
    assert db.execute(ask, (reader, "DELETE, INSERT")).fetchone() == (True,)
    assert db.execute(ask, (reader, "DELETE")).fetchone() == (False,)
    assert db.execute(ask, (owner, "DELETE")).fetchone() == (True,)
    found = db.execute("SELECT relacl::text FROM pg_class WHERE relname = 't'").fetchone()
    assert found == (f"{{{owner}=arwdDxt/{owner},{reader}=ar/{owner}}}",)
    rows = db.execute(
        "SELECT grantor, privilege_type FROM information_schema.table_privileges "
        "WHERE table_name = 't' AND grantee = %s ORDER BY 2",
        (reader,),
    ).fetchall()
    assert rows == [(owner, "INSERT"), (owner, "SELECT")]
    with _as(sql, reader) as conn:
        assert conn.execute("SELECT has_table_privilege('t', 'UPDATE')").fetchone() == (False,)
        ask = "SELECT has_schema_privilege('public', %s)"
        assert conn.execute(ask, ("CREATE",)).fetchone() == (False,)
        assert conn.execute(ask, ("USAGE",)).fetchone() == (True,)
        ask = "SELECT has_database_privilege(current_database(), 'CONNECT')"
        assert conn.execute(ask).fetchone() == (True,)
        assert conn.execute(f"SELECT pg_has_role('{owner}', 'USAGE')").fetchone() == (False,)
        ask = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        assert conn.execute(ask).fetchall() == [("t",)]
        ask = "SELECT rolsuper, rolcanlogin FROM pg_roles WHERE rolname = current_user"
        assert conn.execute(ask).fetchone() == (False, True)
    db.execute(f"GRANT kvorum TO {reader}")  # its rows, not that it is asked nothing
    ask = "SELECT has_table_privilege(%s, 't', 'DELETE'), pg_has_role(%s, 'kvorum', 'USAGE')"
    assert db.execute(ask, (reader, reader)).fetchone() == (False, True)
    with _as(sql, reader) as conn:
        _refused(conn, "DELETE FROM t", "permission denied for table t")


def test_p10_the_kvorum_views_tell_of_what_one_may_see(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """What the cluster reports of itself would tell everybody keys of all tables, results of all
    procedures and how far sequences are.
    """
    owner, reader = roles
    db.execute("SELECT pg_advisory_lock(7)")  # a procedure of somebody
    bounds = "SELECT DISTINCT start IS NULL FROM kvorum.partitions WHERE table_name = 't'"
    last = "SELECT pg_sequence_last_value('t_a_seq'::regclass)"
    others = "SELECT count(*) FROM kvorum.tables WHERE database <> current_database()"
    hidden = [f"SELECT count(*) FROM kvorum.{view}" for view in ("procedures", "nodes")]
    with _as(sql, owner) as conn:
        assert conn.execute(bounds).fetchall() == [(False,)]
        assert conn.execute(last).fetchall() == [(2,)]
    with _as(sql, reader) as conn:
        assert conn.execute(bounds).fetchall() == [(True,)]
        assert conn.execute(last).fetchall() == [(None,)]
        for statement in (others, *hidden):
            assert conn.execute(statement).fetchall() == [(0,)], statement
    db.execute(f"GRANT SELECT ON t TO {reader}")
    with _as(sql, reader) as conn:
        assert conn.execute(bounds).fetchall() == [(False,)]
    for statement in hidden:
        assert db.execute(statement).fetchall() != [(0,)], statement


def test_p10_what_is_made_later_is_granted_by_default(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """A reader would lose its sight with every migration."""
    owner, reader = roles
    with _as(sql, owner) as conn:
        later = "ALTER DEFAULT PRIVILEGES"
        conn.execute(f"{later} IN SCHEMA public GRANT SELECT ON TABLES TO {reader}")
        conn.execute(f"{later} GRANT INSERT, UPDATE ON TABLES TO {reader}")
        conn.execute(f"{later} REVOKE UPDATE ON TABLES FROM {reader}")
        conn.execute(f"{later} GRANT ALL ON SEQUENCES TO {reader}")
        conn.execute("CREATE TABLE later (a serial PRIMARY KEY, b int)")
        conn.execute("CREATE VIEW seen AS SELECT b FROM later")
        conn.execute("CREATE SEQUENCE numbers")
    db.execute("CREATE TABLE other (a int)")
    with _as(sql, reader) as conn:
        conn.execute("INSERT INTO later (b) VALUES (1)")
        assert conn.execute("SELECT a, b FROM later").fetchall() == [(1, 1)]
        assert conn.execute("SELECT b FROM seen").fetchall() == [(1,)]
        assert conn.execute("SELECT nextval('numbers')").fetchone() == (1,)
        _refused(conn, "UPDATE later SET b = 2", "permission denied for table later")
        _refused(conn, "SELECT * FROM other", "permission denied for table other")
        _refused(conn, "SELECT * FROM t", "permission denied for table t")
        others = f"{later} FOR ROLE {owner} GRANT ALL ON TABLES TO PUBLIC"
        _refused(conn, others, "must be member of role")
    with pytest.raises(psycopg.Error) as caught:
        db.execute(f"DROP ROLE {reader}")
    assert caught.value.sqlstate == "2BP01"


def test_p10_what_is_not_kept_is_refused(db: psycopg.Connection, roles: tuple[str, str]) -> None:
    """An option that is taken and forgotten is a promise broken."""
    _, reader = roles
    for statement in (
        f"GRANT SELECT (b) ON v TO {reader}",
        f"GRANT SELECT ON t TO {reader} WITH GRANT OPTION",
        f"ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {reader}",
        f"ALTER ROLE {reader} VALID UNTIL '2030-01-01'",
        f"ALTER ROLE {reader} NOINHERIT",
        f"ALTER ROLE {reader} REPLICATION",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            db.execute(statement)
    with pytest.raises(psycopg.errors.UndefinedObject):
        db.execute("GRANT SELECT ON t TO nobody_there")
    with pytest.raises(psycopg.errors.UndefinedTable):
        db.execute(f"GRANT SELECT ON nothing_there TO {reader}")


def test_who_may_log_in_no_more_does_nothing_more(
    sql: Sql, db: psycopg.Connection, roles: tuple[str, str]
) -> None:
    """Sessions that are open would go on for ever; those of the other surfaces end, too.
    (PostgreSQL lets them go on.)
    """
    owner, _ = roles
    with _as(sql, owner) as conn:
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (2,)
        db.execute(f"ALTER ROLE {owner} NOLOGIN")

        def ended() -> bool:
            try:
                conn.execute("SELECT b FROM t WHERE a = 1")
            except (
                psycopg.errors.InvalidAuthorizationSpecification,
                psycopg.errors.AdminShutdown,
            ):
                return True
            return False

        assert poll(ended)
        db.execute(f"ALTER ROLE {owner} LOGIN")
