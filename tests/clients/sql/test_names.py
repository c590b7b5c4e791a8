"""Names with blanks, dots, slashes, colons, percent signs, brackets and quotes, everywhere that a
name goes: definitions, changes, COPY, the catalog, keys, psycopg's placeholders, addresses.
"""

from __future__ import annotations

import subprocess
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql as q

from kvorum.sql.dumping import dump
from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster

NAMES = (
    "a:b",
    "%s %(n)s",
    "(3) [x] {y}",
    "quote ' one",
    "a;b,c",
    "é UPPER",
    "$1 \\back",
    "select",
    "a.b",
    "public.x.",
    "a/b",
    "../7",
    'say "it"',
    '"',
    "-x",
    " both ",
    ".",
)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name_everywhere(db: psycopg.Connection, name: str) -> None:
    """Text is made of names in many places, and one of them would read it in another way; a brace
    in the column of a key stopped every question about the catalog.
    """

    def run(text: LiteralString, *names: str) -> psycopg.Cursor:
        return db.execute(q.SQL(text).format(*map(q.Identifier, names)))

    quoted = q.Identifier(name).as_string(db)
    run("CREATE TABLE {} (id serial PRIMARY KEY, {} int UNIQUE)", name, name)
    run("CREATE INDEX {} ON {} ({})", f"{name} i", name, name)
    run("CREATE VIEW {} AS SELECT {} FROM {}", f"{name} v", name, name)
    run("CREATE TYPE {} AS ENUM ('x')", f"{name} e")
    run("ALTER TABLE {} ADD {} {} DEFAULT 'x'", name, f"{name} c", f"{name} e")
    run("ALTER TABLE {} ADD CONSTRAINT {} CHECK ({} > 0)", name, f"{name} k", name)
    run("INSERT INTO {} ({}) VALUES (1), (2)", name, name)
    copying = q.SQL("COPY {} ({}) FROM STDIN").format(q.Identifier(name), q.Identifier(name))
    with db.cursor().copy(copying) as copy:
        copy.write_row((3,))
    joined = run("SELECT max(x.{}) FROM {} x JOIN {} y USING ({})", name, name, f"{name} v", name)
    assert joined.fetchone() == (3,)
    assert run("SELECT * FROM {} WHERE {} = 2", name, name).fetchone() == (2, 2, "x")
    run("UPDATE {} SET {} = 9 WHERE id = 1", name, name)
    run("DELETE FROM {} WHERE {} = 9", name, name)
    found = db.execute("SELECT relname FROM pg_class WHERE oid = %s::regclass", (quoted,))
    assert found.fetchone() == (name,)
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = %s ORDER BY 1"
    assert {row[0] for row in db.execute(columns, (name,))} == {"id", name, f"{name} c"}
    definitions = db.execute("SELECT indexdef FROM pg_indexes WHERE tablename = %s", (name,))
    assert all(quoted in row[0] for row in definitions)
    run("ALTER TABLE {} RENAME TO {}", name, f"{name}2")
    run("DROP TABLE {} CASCADE", f"{name}2")


@pytest.mark.slow
def test_a_database_of_such_names_is_dumped_and_comes_back(sql: Sql) -> None:
    """The script would name other things, or psql would read it in another way."""
    with sql.connect(autocommit=True) as db:
        for name in NAMES:
            identifiers = {"n": q.Identifier(name), "s": q.Identifier(f"{name} s")}
            for text in (
                "CREATE TABLE {n} ({n} serial PRIMARY KEY)",
                "INSERT INTO {n} DEFAULT VALUES",
                "CREATE VIEW {s} AS SELECT {n} FROM {n}",
                "COMMENT ON COLUMN {n}.{n} IS 'of it'",
            ):
                db.execute(q.SQL(text).format(**identifiers))
        written: list[bytes] = []
        assert dump(db, written.append) == len(NAMES)
        db.execute(f"CREATE DATABASE {sql.database}_copy".encode())
        where = sql.dsn.replace(sql.database, f"{sql.database}_copy")
        words = ["psql", "-qX", "-v", "ON_ERROR_STOP=1", where]
        script = b"".join(written)
        read = subprocess.run(words, input=script, capture_output=True, check=False, timeout=120)
        assert read.returncode == 0, read.stderr
        with psycopg.connect(where, autocommit=True) as other:
            asked = "SELECT relname, relkind FROM pg_class WHERE relnamespace = %s::regnamespace"
            both = [set(one.execute(asked, ("public",)).fetchall()) for one in (db, other)]
            assert both[0] == both[1]
            for name in NAMES:
                again = q.SQL("INSERT INTO {0} DEFAULT VALUES RETURNING *")
                assert other.execute(again.format(q.Identifier(name))).fetchone() == (2,)


def test_a_path_is_not_another_table(db: psycopg.Connection) -> None:
    """The table "public.t" would stand for t, with its rights and its numbers."""
    db.execute('CREATE TABLE "public.t" (a int); CREATE TABLE t (b int); CREATE SEQUENCE "x.s"')
    relation = "SELECT relname FROM pg_class WHERE oid = %s::regclass"
    assert db.execute(relation, ("public.t",)).fetchone() == ("t",)
    assert db.execute(relation, ('"public.t"',)).fetchone() == ("public.t",)
    with pytest.raises(psycopg.errors.InvalidSchemaName):
        db.execute("SELECT nextval('x.s')")
    db.execute('DROP TABLE "public.t"')
    assert db.execute("SELECT b FROM t").fetchall() == []
