"""Enum types through the clients that make and read them by themselves: SQLAlchemy, Alembic,
asyncpg, psycopg, psql; COPY in every format.
"""

from __future__ import annotations

import enum
import subprocess

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from psycopg.types.enum import EnumInfo, register_enum
from sqlalchemy.dialects import postgresql as pg

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


class Color(enum.Enum):
    red = 1
    green = 2


def _colors() -> sa.MetaData:
    """As models have them: by a class, by labels, in an array, with a default, in an index."""
    metadata = sa.MetaData()
    sa.Table(
        "t",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("c", sa.Enum(Color), index=True),
        sa.Column("d", sa.Enum("x", "y", name="xy"), nullable=False, server_default="y"),
        sa.Column("many", pg.ARRAY(sa.Enum(Color))),
    )
    return metadata


def test_p2_sqlalchemy_s_native_enums(sql: Sql) -> None:
    """`Enum` is native unless it is told otherwise: most models would not be made at all."""
    engine = sa.create_engine(sql.url())
    metadata = _colors()
    table = metadata.tables["t"]
    metadata.create_all(engine)
    metadata.create_all(engine)  # checkfirst finds the types
    with engine.begin() as conn:
        conn.execute(
            table.insert(),
            [
                {"id": 1, "c": Color.red, "d": "x", "many": [Color.green, Color.red]},
                {"id": 2, "c": None, "d": "y", "many": None},
            ],
        )
        conn.execute(table.insert().values(id=3, c=Color.green))
        found = conn.execute(sa.select(table).where(table.c.c >= Color.red).order_by(table.c.c))
        assert [tuple(row) for row in found] == [
            (1, Color.red, "x", [Color.green, Color.red]),
            (3, Color.green, "y", None),
        ]
    wrong = pytest.raises(sa.exc.DataError, match="invalid input value for enum xy")
    with wrong, engine.begin() as conn:
        conn.execute(sa.text("INSERT INTO t (id, d) VALUES (4, 'q')"))
    told = sa.inspect(engine)
    assert [(one["name"], one["labels"]) for one in told.get_enums()] == [  # type: ignore[attr-defined]
        ("color", ["red", "green"]),
        ("xy", ["x", "y"]),
    ]
    columns = {one["name"]: one["type"] for one in told.get_columns("t")}
    assert isinstance(columns["c"], pg.ENUM)
    assert columns["c"].enums == ["red", "green"]
    assert isinstance(columns["many"], pg.ARRAY)
    metadata.drop_all(engine)
    assert sa.inspect(engine).get_enums() == []  # type: ignore[attr-defined]
    engine.dispose()


@pytest.mark.slow
def test_p2_alembic_finds_nothing_to_do_behind_native_enums(sql: Sql) -> None:
    """Each migration would change the column again."""
    engine = sa.create_engine(sql.url())
    metadata = _colors()
    metadata.create_all(engine)
    with engine.connect() as conn:
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(conn, opts=options), metadata) == []
    engine.dispose()


@pytest.mark.slow
async def test_p1_asyncpg_reads_and_writes_enums(sql: Sql) -> None:
    """It asks the catalog what a type is before its first value, and prepares everything."""
    conn = await asyncpg.connect(
        host="127.0.0.1", port=sql.port, user="kvorum", database=sql.database
    )
    await conn.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    await conn.execute("CREATE TABLE p (id int PRIMARY KEY, m mood, a mood[])")
    insert = "INSERT INTO p VALUES ($1, $2, $3)"
    await conn.execute(insert, 1, "happy", ["ok", None])
    records = [(2, "sad", ["ok"]), (3, None, None)]
    await conn.copy_records_to_table("p", records=records)
    found = await conn.fetch("SELECT m, a FROM p ORDER BY m")
    assert [tuple(row) for row in found] == [("sad", ["ok"]), ("happy", ["ok", None]), (None, None)]
    assert await conn.fetchval("SELECT id FROM p WHERE m = ANY ($1::mood[])", ["sad"]) == 2
    with pytest.raises(asyncpg.InvalidTextRepresentationError, match='enum mood: "bad"'):
        await conn.execute(insert, 4, "bad", None)
    # A statement that was prepared before takes the label that came behind it.
    await conn.execute("ALTER TYPE mood ADD VALUE 'great'")
    await conn.execute(insert, 5, "great", ["great"])
    assert await conn.fetchval("SELECT max(m) FROM p") == "great"
    await conn.close()


@pytest.mark.slow
def test_p1_psycopg_s_enums(db: psycopg.Connection) -> None:
    """EnumInfo reads the labels from the catalog; parameters are cast to the type then."""
    db.execute("CREATE TYPE color AS ENUM ('red', 'green')")
    db.execute("CREATE TABLE t (c color, many color[])")
    info = EnumInfo.fetch(db, "color")
    assert info is not None
    assert list(info.labels) == ["red", "green"]
    register_enum(info, db, Color)
    db.execute("INSERT INTO t VALUES (%s, %s)", (Color.green, [Color.red, Color.green]))
    db.execute("INSERT INTO t VALUES (%b, %b)", (Color.red, [Color.red]))
    found = db.execute("SELECT c, many FROM t ORDER BY c", binary=True).fetchall()
    assert found == [(Color.red, [Color.red]), (Color.green, [Color.red, Color.green])]


def test_p16_the_catalog_tells_of_enums(sql: Sql, db: psycopg.Connection) -> None:
    """psql, information_schema, and the rows that tools read themselves."""
    db.execute("CREATE TYPE \"Mood\" AS ENUM ('sad', 'ok')")
    db.execute("ALTER TYPE \"Mood\" ADD VALUE 'so-so' BEFORE 'ok'")
    db.execute('CREATE TABLE p (m "Mood" DEFAULT \'ok\', a "Mood"[])')
    run = ["psql", sql.dsn, "-X", "-A", "-t", "-c", "\\dT+", "-c", "\\d p"]
    told = subprocess.run(run, capture_output=True, text=True, check=True, timeout=30).stdout
    assert 'public|"Mood"|Mood|4|sad\nso-so\nok|kvorum||' in told
    assert 'm|"Mood"||not null' not in told
    assert 'm|"Mood"|||\'ok\'::"Mood"' in told
    assert 'a|"Mood"[]|||' in told
    labels = (
        "SELECT enumlabel FROM pg_enum WHERE enumtypid = '\"Mood\"'::regtype ORDER BY enumsortorder"
    )
    assert [row[0] for row in db.execute(labels)] == ["sad", "so-so", "ok"]
    types = (
        "SELECT typtype, typcategory, typlen, typarray::regtype::text, pg_type.oid = a.atttypid"
        " FROM pg_type JOIN pg_attribute a ON a.attrelid = 'p'::regclass AND attname = 'm'"
        " WHERE typname = 'Mood'"
    )
    assert db.execute(types).fetchall() == [("e", "E", 4, '"Mood"[]', True)]
    columns = (
        "SELECT data_type, udt_name FROM information_schema.columns WHERE table_name = 'p'"
        " ORDER BY ordinal_position"
    )
    assert db.execute(columns).fetchall() == [("USER-DEFINED", "Mood"), ("ARRAY", "_Mood")]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["", "(FORMAT csv, HEADER)", "(FORMAT binary)"])
def test_p10_copy_of_enums(db: psycopg.Connection, way: str) -> None:
    """What COPY TO writes COPY FROM reads, of many rows; a wrong label names its line."""
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    db.execute("CREATE TABLE p (id int PRIMARY KEY, m mood, a mood[])")
    db.execute(
        "INSERT INTO p SELECT n, (ARRAY['sad', 'ok', 'happy', NULL])[n % 4 + 1]::mood,"
        " ARRAY['happy', NULL]::mood[] FROM generate_series(1, 3000) n"
    )
    before = db.execute("SELECT * FROM p ORDER BY id").fetchall()
    with db.cursor().copy(f"COPY p TO STDOUT {way}") as out:
        data = b"".join(bytes(block) for block in out)
    db.execute("TRUNCATE p")
    with db.cursor().copy(f"COPY p FROM STDIN {way}") as into:
        into.write(data)
    assert db.execute("SELECT * FROM p ORDER BY id").fetchall() == before
    if not way:
        wrong = pytest.raises(psycopg.errors.InvalidTextRepresentation)
        with wrong as caught, db.cursor().copy("COPY p FROM STDIN") as into:
            into.write("9001\tsad\t\\N\n9002\tbad\t\\N\n")
        assert caught.value.diag.message_primary == 'invalid input value for enum mood: "bad"'
        assert caught.value.diag.context == 'COPY p, line 2, column m: "bad"'
