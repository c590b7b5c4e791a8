"""Enum types as clients meet them: made, stored, compared, changed and dropped. What is expected is
what PostgreSQL 15 says.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


def _told(db: psycopg.Connection, statement: str) -> tuple[str | None, str | None, str | None]:
    """SQLSTATE, message and DETAIL of what is refused."""
    with pytest.raises(psycopg.Error) as caught:
        db.execute(statement)
    return (
        caught.value.sqlstate,
        caught.value.diag.message_primary,
        caught.value.diag.message_detail,
    )


def _all(db: psycopg.Connection, query: str, *args: Any) -> list[Any]:
    return db.execute(query, args or None).fetchall()


def _column(db: psycopg.Connection, query: str, *args: Any) -> list[Any]:
    return [row[0] for row in _all(db, query, *args)]


@pytest.fixture
def moods(db: psycopg.Connection) -> psycopg.Connection:
    """Four people; the labels' order is not that of their letters."""
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    db.execute("CREATE TABLE p (id int PRIMARY KEY, m mood, d mood NOT NULL DEFAULT 'ok')")
    db.execute("INSERT INTO p VALUES (1, 'happy'), (2, 'sad'), (3, NULL)")
    db.execute("INSERT INTO p VALUES (4, 'ok', 'sad')")
    return db


def test_p6_an_enum_is_stored_and_told_as_its_label(moods: psycopg.Connection) -> None:
    """Text and binary: a driver without the type would not know what the bytes mean."""
    wanted = [(1, "happy", "ok"), (2, "sad", "ok"), (3, None, "ok"), (4, "ok", "sad")]
    for binary in (False, True):
        with moods.cursor(binary=binary) as cur:
            cur.execute("SELECT * FROM p ORDER BY id")
            found = [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in cur]
        assert found == wanted, binary
    moods.execute("INSERT INTO p VALUES (%s, %s)", (5, "sad"))
    moods.execute("INSERT INTO p VALUES (%b, %b::mood)", (6, "happy"))
    assert _column(moods, "SELECT m FROM p WHERE id > 4 ORDER BY id") == ["sad", "happy"]
    assert moods.execute("UPDATE p SET m = 'ok' WHERE id = 5 RETURNING m").fetchone() == ("ok",)


@pytest.mark.slow
def test_p6_values_compare_in_the_order_of_declaration(moods: psycopg.Connection) -> None:
    """By their letters happy < ok < sad: every range and every sort would be wrong."""
    assert _column(moods, "SELECT id FROM p ORDER BY m") == [2, 4, 1, 3]
    assert _column(moods, "SELECT id FROM p ORDER BY m DESC NULLS LAST LIMIT 2") == [1, 4]
    assert _column(moods, "SELECT id FROM p WHERE m > 'sad' ORDER BY id") == [1, 4]
    assert _column(moods, "SELECT id FROM p WHERE m IN ('happy', 'sad') ORDER BY id") == [1, 2]
    assert _column(moods, "SELECT id FROM p WHERE m BETWEEN 'sad' AND 'ok' ORDER BY id") == [2, 4]
    assert _all(moods, "SELECT greatest(m, d), least(m, d) FROM p WHERE id = 4") == [("ok", "sad")]
    assert _all(moods, "SELECT 'sad'::text::mood < 'ok'::mood, 'ok'::mood::text") == [(True, "ok")]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["", "CREATE INDEX ON p (m)", "CREATE INDEX ON p (m DESC, d)"])
def test_p6_indexes_have_the_order_of_the_labels(moods: psycopg.Connection, key: str) -> None:
    """An index in another order would lose rows of a range."""
    if key:
        moods.execute(key)
    assert _column(moods, "SELECT id FROM p WHERE m >= 'ok' ORDER BY m, id") == [4, 1]
    assert _column(moods, "SELECT id FROM p WHERE m < 'happy' ORDER BY m DESC, id") == [4, 2]
    assert _column(moods, "SELECT id FROM p WHERE m = 'sad'") == [2]
    assert _column(moods, "SELECT id FROM p WHERE m IS NULL") == [3]


@pytest.mark.slow
def test_p6_enums_in_primary_and_foreign_keys(db: psycopg.Connection) -> None:
    """A key of an enum is looked up by what a foreign key's column stores."""
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    db.execute("CREATE TABLE k (m mood PRIMARY KEY, x int)")
    db.execute("INSERT INTO k VALUES ('happy', 1), ('sad', 2), ('ok', 3)")
    assert _column(db, "SELECT x FROM k") == [2, 3, 1]
    assert _all(db, "SELECT * FROM k WHERE m = 'ok'") == [("ok", 3)]
    db.execute("CREATE TABLE f (id int PRIMARY KEY, m mood REFERENCES k)")
    db.execute("INSERT INTO f VALUES (1, 'ok')")
    told = _told(db, "DELETE FROM k WHERE m = 'ok'")
    assert told[2] == 'Key (m)=(ok) is still referenced from table "f".'
    assert _told(db, "INSERT INTO k VALUES ('ok')")[2] == "Key (m)=(ok) already exists."
    db.execute("CREATE TYPE other AS ENUM ('ok')")
    assert _told(db, "CREATE TABLE g (m other REFERENCES k)") == (
        "42804",
        'foreign key constraint "g_m_fkey" cannot be implemented',
        'Key columns "m" and "m" are of incompatible types: other and mood.',
    )


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO p VALUES (9, 'bad')",
        "SELECT * FROM p WHERE m = 'bad'",
        "SELECT 'bad'::mood",
        "SELECT ('b' || 'ad')::text::mood",
        "UPDATE p SET m = 'bad'",
        "SELECT count(*) FROM p a JOIN p b USING (m) WHERE m = 'bad'",
        "ALTER TABLE p ADD COLUMN e mood DEFAULT 'bad'",
    ],
)
def test_p6_what_is_no_label_is_22p02(moods: psycopg.Connection, statement: str) -> None:
    """Clients tell a wrong value from a wrong statement by it."""
    assert _told(moods, statement)[:2] == ("22P02", 'invalid input value for enum mood: "bad"')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "state", "words"),
    [
        ("SELECT m = 'ok'::text FROM p", "42883", "operator does not exist: mood = text"),
        ("SELECT m LIKE 'o%' FROM p", "42883", "operator does not exist: mood ~~ unknown"),
        ("SELECT m = d::text FROM p", "42883", "operator does not exist: mood = text"),
        (
            "UPDATE p SET m = 'ok'::text",
            "42804",
            'column "m" is of type mood but expression is of type text',
        ),
        ("SELECT m::int FROM p", "42846", "cannot cast type mood to integer"),
        ("SELECT sum(m) FROM p", "42883", "function sum(mood) does not exist"),
        ("CREATE TYPE mood AS ENUM ('x')", "42710", 'type "mood" already exists'),
        ("CREATE TYPE p AS ENUM ('x')", "42710", 'type "p" already exists'),
        ("CREATE TABLE mood (a int)", "42710", 'type "mood" already exists'),
        ("ALTER TYPE mood ADD VALUE 'ok'", "42710", 'enum label "ok" already exists'),
        (
            "ALTER TYPE mood ADD VALUE 'x' AFTER 'y'",
            "22023",
            '"y" is not an existing enum label',
        ),
        (
            "ALTER TYPE mood RENAME VALUE 'y' TO 'x'",
            "22023",
            '"y" is not an existing enum label',
        ),
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'ok'", "42710", 'enum label "ok" already exists'),
        ("ALTER TYPE mood RENAME TO p", "42710", 'type "p" already exists'),
        (
            "DROP TYPE mood",
            "2BP01",
            "cannot drop type mood because other objects depend on it",
        ),
    ],
)
def test_p4_mistakes_with_enums(
    moods: psycopg.Connection, statement: str, state: str, words: str
) -> None:
    """Tools act upon SQLSTATEs; a column of another type must not be compared by its text."""
    assert _told(moods, statement)[:2] == (state, words)


def test_p8_aggregates_and_joins_of_enums(moods: psycopg.Connection) -> None:
    """DuckDB sees positions: labels by their letters would give another minimum."""
    assert _all(moods, "SELECT min(m), max(m), count(DISTINCT m) FROM p") == [("sad", "happy", 3)]
    groups = _all(moods, "SELECT m, count(*) FROM p GROUP BY m ORDER BY m DESC")
    assert groups == [(None, 1), ("happy", 1), ("ok", 1), ("sad", 1)]
    joined = "SELECT a.id, b.id FROM p a JOIN p b ON a.m = b.d WHERE a.m < 'happy' ORDER BY 1, 2"
    assert _all(moods, joined) == [(2, 4), (4, 1), (4, 2), (4, 3)]
    assert _column(moods, "SELECT rank() OVER (ORDER BY m) FROM p ORDER BY id") == [3, 1, 4, 2]
    assert _column(moods, "SELECT DISTINCT d FROM p ORDER BY d") == ["sad", "ok"]
    assert _column(moods, "SELECT array_agg(m ORDER BY m DESC)::text FROM p") == [
        "{NULL,happy,ok,sad}"
    ]
    assert _column(moods, "SELECT m FROM p UNION SELECT d FROM p ORDER BY 1") == [
        "sad",
        "ok",
        "happy",
        None,
    ]
    assert _column(moods, "SELECT max(m::text) FROM p") == ["sad"]
    assert _column(moods, "SELECT id FROM p WHERE m = (SELECT min(d) FROM p)") == [2]


def test_p4_labels_come_between_others(moods: psycopg.Connection) -> None:
    """Rows that are there keep their order; the new label stands where it was put."""
    moods.execute("ALTER TYPE mood ADD VALUE 'great'")
    moods.execute("ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok'")
    moods.execute("ALTER TYPE mood ADD VALUE 'awful' BEFORE 'sad'")
    moods.execute("ALTER TYPE mood ADD VALUE IF NOT EXISTS 'meh' AFTER 'great'")
    moods.execute("INSERT INTO p VALUES (5, 'great'), (6, 'meh'), (7, 'awful')")
    labels = ["awful", "sad", "meh", "ok", "happy", "great"]
    assert _column(moods, "SELECT m FROM p ORDER BY m") == [*labels, None]
    assert _column(moods, "SELECT unnest(enum_range(NULL::mood))") == labels
    assert _column(moods, "SELECT max(m) FROM p WHERE m < 'ok'") == ["meh"]


def test_p4_labels_and_types_are_renamed(moods: psycopg.Connection) -> None:
    """A position keeps its rows; a text that says the old name would not compile any more."""
    moods.execute("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'")
    assert _column(moods, "SELECT m FROM p ORDER BY m") == ["sad", "fine", "happy", None]
    moods.execute("INSERT INTO p VALUES (9, 'happy')")
    assert _column(moods, "SELECT d FROM p WHERE id = 9") == ["fine"]
    moods.execute("ALTER TYPE mood RENAME TO feeling")
    assert _told(moods, "SELECT 'sad'::mood")[:2] == ("42704", 'type "mood" does not exist')
    assert _column(moods, "SELECT m::feeling FROM p WHERE id = 9") == ["happy"]
    moods.execute("CREATE TABLE c (m feeling CHECK (m <> 'sad'::feeling))")
    assert _told(moods, "ALTER TYPE feeling RENAME TO mood")[0] == "0A000"
    assert _told(moods, "ALTER TYPE feeling RENAME VALUE 'sad' TO 'low'")[0] == "0A000"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "asked"),
    [
        (
            "CREATE TABLE c (m mood CHECK (m = ANY ('{sad,ok}'::mood[])))",
            "INSERT INTO c VALUES ('sad')",
        ),
        ("CREATE TABLE c (id int, a mood[] DEFAULT '{sad,ok}')", "INSERT INTO c VALUES (1)"),
        (
            'CREATE VIEW c AS SELECT m FROM p WHERE m = ANY ($${sad,"ok"}$$::mood[])',
            "SELECT * FROM c",
        ),
        ("CREATE VIEW c AS SELECT m FROM p WHERE m = $$ok$$", "SELECT * FROM c"),
        ("CREATE VIEW c AS SELECT m AS \"it's\" FROM p WHERE m = 'ok'", "SELECT * FROM c"),
    ],
)
def test_p4_a_label_in_an_array_is_not_renamed_away(
    moods: psycopg.Connection, made: str, asked: str
) -> None:
    """A table would take no rows any more, a view give none: its text says a label that is gone."""
    moods.execute(made)
    assert _told(moods, "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'")[0] == "0A000"
    moods.execute("ALTER TYPE mood RENAME VALUE 'happy' TO 'glad'")
    moods.execute(asked)


@pytest.mark.slow
def test_p4_a_type_goes_when_nothing_has_it(moods: psycopg.Connection) -> None:
    """A table whose type is gone could not be read."""
    moods.execute("CREATE VIEW v AS SELECT m FROM p")
    state, _, detail = _told(moods, "DROP TYPE mood")
    assert (state, detail) == (
        "2BP01",
        "column m of table p depends on type mood\ncolumn d of table p depends on type mood\n"
        "view v depends on type mood",
    )
    moods.execute("DROP VIEW v")
    moods.execute("DROP TABLE p")
    assert moods.execute("DROP TYPE mood").statusmessage
    assert _told(moods, "DROP TYPE mood")[:2] == ("42704", 'type "mood" does not exist')
    moods.execute("CREATE TYPE mood AS ENUM ()")
    assert _told(moods, "SELECT ''::mood")[0] == "22P02"
    moods.execute("CREATE TABLE mood2 (m mood)")
    moods.execute("INSERT INTO mood2 VALUES (NULL)")


@pytest.mark.slow
def test_p4_enums_in_checks_and_defaults(db: psycopg.Connection) -> None:
    """They are kept as SQL, and bound again by other sessions."""
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    db.execute(
        "CREATE TABLE c (id int PRIMARY KEY, m mood DEFAULT 'happy'::mood CHECK (m >= 'ok'),"
        " t text GENERATED ALWAYS AS (CASE WHEN m > 'ok' THEN 'up' ELSE 'down' END) STORED)"
    )
    db.execute("INSERT INTO c (id, m) VALUES (1, DEFAULT), (2, 'ok')")
    assert _all(db, "SELECT m, t FROM c ORDER BY id") == [("happy", "up"), ("ok", "down")]
    assert _told(db, "INSERT INTO c VALUES (3, 'sad')")[0] == "23514"
    db.execute("ALTER TABLE c ALTER COLUMN m SET DEFAULT 'ok', ADD COLUMN n mood DEFAULT 'sad'")
    db.execute("INSERT INTO c (id) VALUES (4)")
    assert _all(db, "SELECT m, n FROM c WHERE id = 4") == [("ok", "sad")]
    assert _column(db, "SELECT n FROM c WHERE id = 1") == ["sad"]


@pytest.mark.slow
def test_p4_columns_change_between_enum_and_text(moods: psycopg.Connection) -> None:
    """A migration that gives a text column its type, and the way back."""
    moods.execute("ALTER TABLE p ALTER COLUMN m TYPE text")
    assert _column(moods, "SELECT m FROM p ORDER BY m") == ["happy", "ok", "sad", None]
    moods.execute("ALTER TABLE p ALTER COLUMN m TYPE mood USING m::mood")
    assert _column(moods, "SELECT m FROM p ORDER BY m") == ["sad", "ok", "happy", None]
    assert _told(moods, "ALTER TABLE p ALTER COLUMN id TYPE mood")[0] == "42804"
    moods.execute("CREATE TYPE two AS ENUM ('sad', 'happy')")
    told = _told(moods, "ALTER TABLE p ALTER COLUMN m TYPE two USING m::text::two")
    assert told[1] is not None
    assert 'invalid input value for enum two: "ok"' in told[1]


@pytest.mark.slow
def test_p6_arrays_of_enums(db: psycopg.Connection) -> None:
    """Elements are positions as a column's values are."""
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    db.execute("CREATE TABLE a (id int PRIMARY KEY, ms mood[])")
    db.execute("INSERT INTO a VALUES (1, '{sad,ok}'), (2, ARRAY['happy', NULL]::mood[]), (3, '{}')")
    assert _column(db, "SELECT ms::text FROM a ORDER BY id") == ["{sad,ok}", "{happy,NULL}", "{}"]
    assert _column(db, "SELECT id FROM a WHERE 'ok' = ANY (ms)") == [1]
    assert _column(db, "SELECT id FROM a ORDER BY ms") == [3, 1, 2]
    assert _column(db, "SELECT unnest(ms) u FROM a ORDER BY u") == ["sad", "ok", "happy", None]
    assert _told(db, "INSERT INTO a VALUES (4, '{bad}')")[0] == "22P02"
    assert _column(db, "SELECT count(*) FROM a WHERE ms[1] < 'happy'") == [1]
    db.execute("ALTER TYPE mood ADD VALUE 'great'")
    db.execute("UPDATE a SET ms = '{great}' WHERE id = 3")
    assert _column(db, "SELECT ms[1] FROM a WHERE id = 3") == ["great"]


@pytest.mark.slow
def test_p4_another_session_takes_a_new_label_at_once(sql: Sql, moods: psycopg.Connection) -> None:
    """What one session declared, a prepared statement of another must follow."""
    with sql.connect(autocommit=True) as other:
        for _ in range(7):  # psycopg prepares it
            found = other.execute("SELECT m FROM p WHERE id = %s", (1,)).fetchone()
            assert found == ("happy",)
        moods.execute("ALTER TYPE mood ADD VALUE 'great'")
        other.execute("UPDATE p SET m = 'great' WHERE id = %s", (1,))
        assert other.execute("SELECT m FROM p WHERE id = %s", (1,)).fetchone() == ("great",)
        moods.execute("ALTER TYPE mood RENAME VALUE 'great' TO 'grand'")
        assert other.execute("SELECT m FROM p WHERE id = %s", (1,)).fetchone() == ("grand",)


@pytest.mark.slow
def test_p4_a_type_takes_the_place_of_another(moods: psycopg.Connection) -> None:
    """How migrations take a label away: rename, make anew, change the columns, drop."""
    moods.execute("ALTER TABLE p ALTER COLUMN d SET DEFAULT 'ok'::mood")
    moods.execute("CREATE INDEX pm ON p (m)")
    moods.execute("DELETE FROM p WHERE m = 'happy'")
    moods.execute("ALTER TYPE mood RENAME TO mood_old")
    moods.execute("CREATE TYPE mood AS ENUM ('ok', 'sad')")
    for column in ("m", "d"):
        moods.execute(f"ALTER TABLE p ALTER COLUMN {column} TYPE mood USING {column}::text::mood")
    moods.execute("DROP TYPE mood_old")
    moods.execute("INSERT INTO p VALUES (9, 'sad')")
    found = _all(moods, "SELECT id, m, d FROM p WHERE m >= 'ok' ORDER BY m, id")
    assert found == [(4, "ok", "sad"), (2, "sad", "ok"), (9, "sad", "ok")]


@pytest.mark.slow
def test_p4_types_have_owners(moods: psycopg.Connection) -> None:
    """Dumps say ALTER TYPE … OWNER TO; a role that owns one is not dropped from under it."""
    name = f"ann_{moods.info.dbname}"
    moods.execute(f"CREATE ROLE {name} LOGIN")
    moods.execute(f"ALTER TYPE public.mood OWNER TO {name}")
    owner = "SELECT typowner::regrole::text FROM pg_type WHERE typname = 'mood'"
    assert _column(moods, owner) == [name]
    told = _told(moods, f"DROP ROLE {name}")
    assert told[2] == f"owner of type {moods.info.dbname}.public.mood"
    moods.execute("CREATE TYPE other AS ENUM ('x')")
    moods.execute(f"GRANT CREATE ON SCHEMA public TO {name}")
    moods.execute(f"SET ROLE {name}")
    assert _told(moods, "DROP TYPE other")[:2] == ("42501", "must be owner of type other")
    assert _told(moods, "ALTER TYPE other ADD VALUE 'y'")[0] == "42501"
    moods.execute("ALTER TYPE mood ADD VALUE 'y'")
    moods.execute("RESET ROLE")
    moods.execute(f"REASSIGN OWNED BY {name} TO kvorum")
    moods.execute(f"REVOKE CREATE ON SCHEMA public FROM {name}")
    moods.execute(f"DROP ROLE {name}")


@pytest.mark.slow
def test_p4_a_partial_index_keeps_what_it_says(moods: psycopg.Connection) -> None:
    """Its condition is kept as SQL: under another name of the label it would mean nothing."""
    moods.execute("CREATE INDEX part ON p (id) WHERE m = 'ok'")
    assert _column(moods, "SELECT id FROM p WHERE m = 'ok' ORDER BY id") == [4]
    told = _told(moods, "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'")
    assert told[0] == "0A000"
    moods.execute("ALTER TYPE mood ADD VALUE 'great'")
    moods.execute("INSERT INTO p VALUES (5, 'great'), (6, 'ok')")
    assert _column(moods, "SELECT id FROM p WHERE m = 'ok' ORDER BY id") == [4, 6]
