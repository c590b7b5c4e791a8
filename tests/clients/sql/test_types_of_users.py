"""Names of types that are not there, or stay, answer as PostgreSQL, so that migrations which clean
up behind themselves go on. Enums have tests of their own (test_enums.py).
"""

from __future__ import annotations

import psycopg
import pytest

pytestmark = pytest.mark.cluster


def test_p4_types_that_are_not_there_are_dropped_if_they_exist(db: psycopg.Connection) -> None:
    """A migration that drops a type behind its table would stop there, and be run by half."""
    told: list[str] = []
    db.add_notice_handler(lambda d: told.append(d.message_primary or ""))
    tag = db.execute("DROP TYPE IF EXISTS mood, public.weather CASCADE").statusmessage
    assert tag == "DROP TYPE"
    assert db.execute("DROP TYPE IF EXISTS nosuch.mood").statusmessage == "DROP TYPE"
    assert db.execute("DROP DOMAIN IF EXISTS email").statusmessage == "DROP DOMAIN"
    assert told == [
        'type "mood" does not exist, skipping',
        'type "public.weather" does not exist, skipping',
        'schema "nosuch" does not exist, skipping',
        'type "email" does not exist, skipping',
    ]


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("statement", "state", "words"),
    [
        ("DROP TYPE mood", "42704", 'type "mood" does not exist'),
        ("DROP TYPE nosuch.mood", "3F000", 'schema "nosuch" does not exist'),
        ("DROP TYPE IF EXISTS t", "2BP01", "cannot drop type t because table t requires it"),
        ("DROP TYPE v", "2BP01", "cannot drop type v because view v requires it"),
        (
            "DROP TYPE IF EXISTS int4",
            "2BP01",
            "cannot drop type integer because it is required by the database system",
        ),
        ("DROP DOMAIN t", "42809", '"t" is not a domain'),
        ("ALTER TYPE mood ADD VALUE 'x'", "42704", 'type "mood" does not exist'),
        ("ALTER TYPE mood RENAME VALUE 'x' TO 'y'", "42704", 'type "mood" does not exist'),
        ("ALTER TYPE t ADD VALUE 'x'", "42809", "t is not an enum"),
        ("ALTER TYPE mood RENAME TO m", "42704", 'type "mood" does not exist'),
        ("CREATE TABLE u (a mood)", "42704", 'type "mood" does not exist'),
    ],
)
def test_p4_what_names_a_type_is_told_as_in_postgresql(
    db: psycopg.Connection, statement: str, state: str, words: str
) -> None:
    """A tool that asks by trying would take 0A000 for a type that is there."""
    db.execute("CREATE TABLE t (a int PRIMARY KEY)")
    db.execute("CREATE VIEW v AS SELECT a FROM t")
    with pytest.raises(psycopg.Error) as caught:
        db.execute(statement)
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (state, words)
