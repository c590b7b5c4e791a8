"""Constraints that are NOT VALID: they bind who writes, and are told as what they are."""

from __future__ import annotations

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

ASKED = (
    b"select conname, contype::text, convalidated, pg_get_constraintdef(oid), "
    b"pg_get_constraintdef(oid, true) from pg_constraint where conrelid = 'nv'::regclass "
    b"and contype in ('c', 'f') order by 1"
)


@pytest.mark.slow
def test_b10_a_constraint_that_is_not_valid_is_seen(sql: Sql) -> None:
    """It is enforced, but neither pg_constraint nor psql's \\d know of it."""
    with sql.connect(autocommit=True) as link:
        link.execute("create table other (id int primary key)")
        link.execute("create table nv (a int, o int)")
        link.execute("insert into nv values (-1, 7)")
        link.execute("alter table nv add constraint cc check (a > 0) not valid")
        link.execute("alter table nv add constraint ff foreign key (o) references other not valid")
        assert link.execute(ASKED).fetchall() == [
            ("cc", "c", False, "CHECK ((a > 0)) NOT VALID", "CHECK (a > 0) NOT VALID"),
            ("ff", "f", False, *["FOREIGN KEY (o) REFERENCES other(id) NOT VALID"] * 2),
        ]
        counts = link.execute("select relchecks, relhastriggers from pg_class where relname = 'nv'")
        assert counts.fetchone() == (1, True)
        for row, state in ((b"(-2, null)", "23514"), (b"(1, 8)", "23503")):
            with pytest.raises(psycopg.Error) as told:
                link.execute(b"insert into nv values " + row)
            assert told.value.sqlstate == state
        for name, state in (("cc", "23514"), ("ff", "23503")):
            with pytest.raises(psycopg.Error) as told:
                link.execute(f"alter table nv validate constraint {name}".encode())
            assert told.value.sqlstate == state
        assert {row[2] for row in link.execute(ASKED)} == {False}
        link.execute("insert into other values (7)")
        link.execute("update nv set a = 1")
        for name in ("cc", "ff"):
            link.execute(f"alter table nv validate constraint {name}".encode())
        assert link.execute(ASKED).fetchall() == [
            ("cc", "c", True, "CHECK ((a > 0))", "CHECK (a > 0)"),
            ("ff", "f", True, *["FOREIGN KEY (o) REFERENCES other(id)"] * 2),
        ]
