"""Deferrable UNIQUE and PRIMARY KEY: how they are declared and shown, and where they meet other
things. What statements answer is compared with PostgreSQL in tests/sqlproxy/interleavings.
"""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests.clients.sql.conftest import Sql
from tests.clients.sql.sessions import Sessions, recorded, statements

pytestmark = pytest.mark.cluster


def shown(db: psycopg.Connection, table: str) -> list[tuple[object, ...]]:
    return db.execute(
        "SELECT conname, contype::text, condeferrable, condeferred, pg_get_constraintdef(oid) "
        f"FROM pg_constraint WHERE conrelid = '{table}'::regclass AND contype <> 'f' ORDER BY 1"
    ).fetchall()


def test_p11_deferrable_constraints_are_shown_as_in_postgresql(db: psycopg.Connection) -> None:
    """A dump would make them anew as others, or a tool would not know that they are deferrable."""
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY INITIALLY DEFERRED, n int UNIQUE DEFERRABLE, m int, "
        "UNIQUE (m), UNIQUE (n))"
    )
    db.execute("ALTER TABLE t ADD CONSTRAINT two UNIQUE (n, m) DEFERRABLE INITIALLY DEFERRED")
    db.execute("CREATE UNIQUE INDEX i ON t (m, id)")
    db.execute("ALTER TABLE t ADD CONSTRAINT three UNIQUE USING INDEX i DEFERRABLE")
    assert shown(db, "t") == [
        ("t_m_key", "u", False, False, "UNIQUE (m)"),
        ("t_n_key", "u", True, False, "UNIQUE (n) DEFERRABLE"),
        ("t_n_key1", "u", False, False, "UNIQUE (n)"),
        ("t_pkey", "p", True, True, "PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED"),
        ("three", "u", True, False, "UNIQUE (m, id) DEFERRABLE"),
        ("two", "u", True, True, "UNIQUE (n, m) DEFERRABLE INITIALLY DEFERRED"),
    ]
    found = db.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 't'::regclass "
        "AND NOT indimmediate ORDER BY 1"
    ).fetchall()
    assert found == [("t_n_key",), ("t_pkey",), ("three",), ("two",)]
    db.execute("CREATE TABLE copied (LIKE t INCLUDING INDEXES)")
    assert [row[2:4] for row in shown(db, "copied")] == [
        *((True, False), (False, False), (True, False), (False, False), (True, True), (True, True)),
    ]


def test_p11_nothing_relies_on_a_deferrable_constraint(db: psycopg.Connection) -> None:
    """A foreign key would refer to two rows for a moment."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, n int UNIQUE DEFERRABLE)")
    for target, word in (("t", "primary key"), ("t (n)", "unique constraint")):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=f"a deferrable {word} for"):
            db.execute(f"CREATE TABLE c (a int REFERENCES {target})")
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        db.execute("CREATE TABLE c (a int PRIMARY KEY INITIALLY DEFERRED, b int REFERENCES c)")
    with pytest.raises(errors.WrongObjectType):
        db.execute("ALTER TABLE t ALTER CONSTRAINT t_n_key NOT DEFERRABLE")
    db.execute("INSERT INTO t VALUES (1, 1), (2, NULL)")
    with pytest.raises(errors.UniqueViolation, match="could not create"):
        db.execute("ALTER TABLE t ADD COLUMN a int DEFAULT 5 UNIQUE INITIALLY DEFERRED")


def test_p11_children_that_follow_their_parents_may_meet(db: psycopg.Connection) -> None:
    """ON UPDATE CASCADE would be refused, or its entry be lost, where the child's key is taken."""
    db.execute("CREATE TABLE p (id int PRIMARY KEY)")
    db.execute(
        "CREATE TABLE c (id int PRIMARY KEY, p int UNIQUE DEFERRABLE, CONSTRAINT refers "
        "FOREIGN KEY (p) REFERENCES p ON UPDATE CASCADE ON DELETE SET NULL)"
    )
    db.execute("ALTER TABLE c ALTER CONSTRAINT refers DEFERRABLE INITIALLY DEFERRED")
    db.execute("INSERT INTO p VALUES (1), (2)")
    db.execute("INSERT INTO c VALUES (1, 1), (2, 2)")
    with db.transaction():
        db.execute("SET CONSTRAINTS ALL DEFERRED")
        db.execute("UPDATE c SET p = 5 WHERE id = 2")
        db.execute("UPDATE p SET id = 5 WHERE id = 1")
        assert db.execute("SELECT id FROM c WHERE p = 5 ORDER BY id").fetchall() == [(1,), (2,)]
        db.execute("UPDATE c SET p = 2 WHERE id = 2")
    assert db.execute("SELECT id FROM c WHERE p = 5").fetchall() == [(1,)]
    with pytest.raises(errors.ForeignKeyViolation), db.transaction():
        db.execute("INSERT INTO c VALUES (7, 77)")
    db.execute("DELETE FROM p")
    assert db.execute("SELECT id FROM c WHERE p IS NULL ORDER BY id").fetchall() == [(1,), (2,)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TABLE", "TEMP TABLE"])
def test_p11_many_rows_move_at_once(db: psycopg.Connection, kind: str) -> None:
    """What is more than a statement holds at once would meet its own rows, or COPY would."""
    db.execute(
        f"CREATE {kind} t (id int PRIMARY KEY, n int UNIQUE DEFERRABLE INITIALLY DEFERRED, v text)"
    )
    with db.transaction(), db.cursor() as cursor:
        with cursor.copy("COPY t FROM STDIN") as copy:
            for n in range(6000):
                copy.write_row((n, n % 3000, "x" * 300))
        cursor.execute("UPDATE t SET n = n + 3000 WHERE id >= 3000")
    db.execute("UPDATE t SET n = n + 1")
    db.execute("UPDATE t SET n = 6001 - n")
    found = db.execute("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM t").fetchall()
    assert found == [(6000, 6000, 1, 6000)]
    assert db.execute("SELECT id FROM t WHERE n = 6000").fetchall() == [(0,)]
    with pytest.raises(errors.UniqueViolation):
        db.execute("UPDATE t SET n = 7 WHERE id < 2")


def test_p11_set_constraints_means_what_it_means_in_postgresql(sql: Sql) -> None:
    """It defers a constraint of the same name in another schema, or goes on behind the ROLLBACK TO
    of the savepoint that it came after.
    """
    known, wrong = recorded("set_constraints"), []
    assert [(session, text) for session, text, _ in known] == statements("set_constraints")
    sessions = Sessions(sql.dsn)
    try:
        for session, text, said in known:
            found = sessions.ask(session, text)
            if found != said:
                wrong.append(f"{text}\n  PostgreSQL: {said}\n  here:       {found}")
    finally:
        sessions.close()
    assert not wrong, "\n".join(wrong)


def test_p11_a_deferred_foreign_key_is_checked_under_another_name(
    db: psycopg.Connection, sql: Sql
) -> None:
    """Whoever renames it while a block waits with its check lets the block commit an orphan."""
    db.execute("CREATE TABLE p (id int PRIMARY KEY)")
    db.execute("CREATE TABLE c (p int CONSTRAINT one REFERENCES p INITIALLY DEFERRED)")
    with sql.connect() as other:
        other.execute("INSERT INTO c VALUES (9)")
        db.execute("ALTER TABLE c RENAME CONSTRAINT one TO two")
        with pytest.raises((errors.ForeignKeyViolation, errors.SerializationFailure)):
            other.commit()
    assert db.execute("SELECT p FROM c").fetchall() == []
