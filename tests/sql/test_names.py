"""Names with blanks, colons, percent signs, brackets, quotes and semicolons, everywhere that a name
goes: definitions, changes, COPY, the catalog, keys, psycopg's placeholders.
"""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest
from psycopg import sql as q

pytestmark = pytest.mark.cluster

NAMES = ("a:b", "%s %(n)s", "(3) [x] {y}", "quote ' one", "a;b,c", "é UPPER", "$1 \\back", "select")


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


@pytest.mark.parametrize("name", ["a.b", 'a"b', "-a", " a", "a "])
def test_a_name_that_would_be_read_as_two_is_refused(db: psycopg.Connection, name: str) -> None:
    """Addresses and the names of sequences could not tell where it ends."""
    with pytest.raises(psycopg.errors.InvalidName, match="without control characters"):
        db.execute(q.SQL("CREATE TABLE {} (id int)").format(q.Identifier(name)))
