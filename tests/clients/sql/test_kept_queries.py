"""Queries whose plans and texts are kept answer as ones that were never asked before, whatever is
declared, granted and set meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

Query = tuple[str, tuple[object, ...]]

QUERIES: tuple[Query, ...] = (
    (
        "SELECT relname, relkind FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
        "WHERE nspname IN ('public', 's') ORDER BY 1, 2",
        (),
    ),
    (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute a JOIN pg_class c "
        "ON attrelid = c.oid WHERE relname = %s AND attnum > 0 ORDER BY attnum",
        ("a",),
    ),
    (
        "SELECT relname, pg_table_is_visible(oid), has_table_privilege(oid, 'select'), "
        "pg_get_userbyid(relowner) FROM pg_class WHERE relname IN ('a', 'b') "
        "ORDER BY oid::text LIMIT 10",
        (),
    ),
    ("SELECT count(*), 'a'::regclass::oid::int8 FROM pg_class c, pg_namespace", ()),
    ("SELECT attname FROM pg_attribute WHERE attrelid = 'a'::regclass AND attnum > 0", ()),
    ("SELECT table_schema, table_name FROM information_schema.tables ORDER BY 1, 2", ()),
    ("SELECT count(*), current_user, current_schema(), current_setting('a.b', true) FROM a", ()),
    ("SELECT n, max(id), to_char(max(t), 'HH24') FROM a GROUP BY n ORDER BY n", ()),
    ("SELECT x.n, c.relname FROM a x JOIN pg_class c ON c.relname = 'a' ORDER BY x.id", ()),
    ("SELECT n, count(*), %s::text FROM a GROUP BY n ORDER BY n", ("1",)),
    ("SELECT obj_description('a'::regclass), count(*) FROM pg_class x, pg_am", ()),
    ("SELECT rolname, pg_has_role(rolname, 'member') FROM pg_roles WHERE rolname ~ '^kept'", ()),
)
CHANGES = (
    "CREATE TABLE b (id int PRIMARY KEY)",
    "DROP TABLE IF EXISTS b",
    "ALTER TABLE a ADD COLUMN IF NOT EXISTS z text",
    "ALTER TABLE a DROP COLUMN IF EXISTS z",
    "ALTER TABLE a RENAME TO a2",
    "ALTER TABLE a2 RENAME TO a",
    "INSERT INTO a SELECT coalesce(max(id), 0) + 1, 7, now() FROM a",
    "UPDATE a SET n = n + 1",
    "COMMENT ON TABLE a IS 'one'",
    "COMMENT ON TABLE a IS NULL",
    "CREATE SCHEMA IF NOT EXISTS s",
    "CREATE TABLE IF NOT EXISTS s.a (id int PRIMARY KEY, n text, t timestamptz)",
    "DROP TABLE IF EXISTS s.a",
    "GRANT SELECT ON a TO {role}",
    "REVOKE SELECT ON a FROM {role}",
    "ALTER TABLE a OWNER TO {role}",
    "ALTER TABLE a OWNER TO kvorum",
)
SETTINGS = (
    "SET search_path = s, public",
    "SET search_path = public",
    "SET TIME ZONE 'Asia/Tokyo'",
    "SET TIME ZONE 'UTC'",
    "SET a.b = 'x'",
    "RESET a.b",
    "SET ROLE {role}",
    "RESET ROLE",
)
_numbers = count(1)


def _answer(connection: psycopg.Connection, query: Query) -> Any:
    try:
        return connection.execute(*query).fetchall()
    except psycopg.Error as error:
        return type(error), error.diag.message_primary


@pytest.fixture
def role(sql: Sql) -> Iterator[str]:
    name = f"kept{next(_numbers)}"
    with sql.connect(autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {name}")
        yield name
        conn.execute(f"REASSIGN OWNED BY {name} TO kvorum")
        conn.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name}")
        conn.execute(f"DROP ROLE {name}")


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_p1_what_is_kept_answers_as_what_is_new(sql: Sql, role: str, seed: int) -> None:
    """A plan that is kept too long shows what was, to whom it may have been shown then."""
    chance = random.Random(seed)
    with (
        sql.connect(autocommit=True) as admin,
        sql.connect(autocommit=True) as one,
        sql.connect(autocommit=True) as other,
    ):
        admin.execute("CREATE TABLE a (id int PRIMARY KEY, n int, t timestamptz)")
        rows = "SELECT i, i % 3, '2020-01-01 12:00Z' FROM generate_series(1, 9) i"
        admin.execute(f"INSERT INTO a {rows}")
        for session in (one, other):
            session.prepare_threshold = None
        for step in range(24):
            if chance.random() < 0.6:
                with suppress(psycopg.Error):  # it is there, or gone
                    admin.execute(chance.choice(CHANGES).format(role=role))
            else:
                chance.choice((one, other)).execute(chance.choice(SETTINGS).format(role=role))
            for number, query in enumerate(chance.sample(QUERIES, 6)):
                for session in (one, other):
                    text, values = query
                    new = f"/* {seed} {step} {number} {id(session)} */ {text}", values
                    known, fresh = _answer(session, query), _answer(session, new)
                    assert known == fresh, (step, query)
