"""Other clients: asyncpg, SQLAlchemy, Alembic, pandas, psql, pgbench."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pandas  # type: ignore[import-untyped]
import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy import orm

from tests.clients.sql.conftest import Sql

pytestmark = pytest.mark.cluster


async def test_asyncpg(sql: Sql) -> None:
    """Its own binary codecs, introspection of types, transactions, cursors and COPY."""
    conn = await asyncpg.connect(
        host="127.0.0.1", port=sql.port, user="kvorum", database=sql.database
    )
    try:
        await conn.execute(
            "CREATE TABLE a (id int PRIMARY KEY, v text, n numeric, tags text[], j jsonb)"
        )
        await conn.executemany(
            "INSERT INTO a VALUES ($1, $2, $3, $4, $5)",
            [(n, str(n), Decimal(n) / 4, ["x", str(n)], '{"a": 1}') for n in range(50)],
        )
        row = await conn.fetchrow("SELECT * FROM a WHERE id = $1", 7)
        assert dict(row) == {
            "id": 7,
            "v": "7",
            "n": Decimal("1.75"),
            "tags": ["x", "7"],
            "j": '{"a": 1}',
        }
        async with conn.transaction():
            seen = [r["id"] async for r in conn.cursor("SELECT id FROM a ORDER BY id", prefetch=7)]
        assert seen == list(range(50))
        with pytest.raises(asyncpg.UniqueViolationError):  # noqa: PT012
            async with conn.transaction():
                await conn.execute("DELETE FROM a WHERE id = 1")
                await conn.execute("INSERT INTO a (id) VALUES (2)")
        assert await conn.fetchval("SELECT v FROM a WHERE id = 1") == "1"
        told = await conn.copy_records_to_table("a", records=[(100, "c")], columns=["id", "v"])
        assert told == "COPY 1"
        assert await conn.fetch("SELECT id FROM a WHERE id = ANY($1::int[])", [3, 100, 999]) != []
        with pytest.raises(asyncio.TimeoutError):
            await conn.fetchval("SELECT pg_sleep(10)", timeout=0.2)
        assert await conn.fetchval("SELECT 1") == 1
    finally:
        await conn.close()


async def test_asyncpg_gives_connections_back_to_its_pool(sql: Sql) -> None:
    """Its reset asks for UNLISTEN * and pg_advisory_unlock_all(): refused, the first query of a web
    application is the last.
    """
    where = {"host": "127.0.0.1", "port": sql.port, "user": "kvorum", "database": sql.database}
    async with asyncpg.create_pool(min_size=1, max_size=1, **where) as pool:
        for _ in range(3):
            async with pool.acquire() as conn:
                assert await conn.fetchval("SELECT current_setting('work_mem')") == "4MB"
                await conn.execute("SET work_mem = '1MB'")


async def test_asyncpg_prepares_anew_what_a_definition_has_changed(sql: Sql) -> None:
    """It knows the refusal of an old plan by the routine's name; without it, every connection of a
    pool that has read `SELECT *` fails for good behind an ALTER TABLE.
    """
    where = {"host": "127.0.0.1", "port": sql.port, "user": "kvorum", "database": sql.database}
    conn = await asyncpg.connect(**where)
    try:
        await conn.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
        assert tuple(await conn.fetchrow("SELECT * FROM a")) == (1,)
        await conn.execute("ALTER TABLE a ADD COLUMN b int DEFAULT 5")
        assert tuple(await conn.fetchrow("SELECT * FROM a")) == (1, 5)
        async with conn.transaction():
            await conn.fetchrow("SELECT * FROM a")
        await conn.execute("ALTER TABLE a DROP COLUMN b")
        with pytest.raises(asyncpg.InvalidCachedStatementError):
            async with conn.transaction():
                await conn.fetchrow("SELECT * FROM a")
        assert tuple(await conn.fetchrow("SELECT * FROM a")) == (1,)
    finally:
        await conn.close()


async def test_asyncpg_is_told_what_no_column_can_hold(sql: Sql) -> None:
    """A name that is longer than a name, and a number beyond the stored range, have PostgreSQL's
    errors: the one was stored whole, the other was 22023.
    """
    where = {"host": "127.0.0.1", "port": sql.port, "user": "kvorum", "database": sql.database}
    conn = await asyncpg.connect(**where)
    try:
        await conn.execute("CREATE TABLE a (id int PRIMARY KEY, nm name, n numeric)")
        with pytest.raises(asyncpg.NameTooLongError):
            await conn.execute("INSERT INTO a VALUES (1, $1)", "x" * 64)
        await conn.execute("INSERT INTO a VALUES (1, $1)", "x" * 63)
        for number in ("1e16384", "-1e131071"):
            with pytest.raises(asyncpg.NumericValueOutOfRangeError, match="within 10"):
                await conn.execute("UPDATE a SET n = $1", Decimal(number))
        await conn.execute("UPDATE a SET n = $1", Decimal("1e16383"))
        assert await conn.fetchval("SELECT n = $1 FROM a", Decimal("1e16383"))
    finally:
        await conn.close()


class Base(orm.DeclarativeBase):
    pass


class Person(Base):
    __tablename__ = "people"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(40), unique=True)
    born: orm.Mapped[datetime | None]
    mails: orm.Mapped[list[Mail]] = orm.relationship(
        back_populates="person", cascade="all, delete-orphan", order_by="Mail.id"
    )


class Mail(Base):
    __tablename__ = "mails"
    __table_args__ = (sa.Index("mails_address", "address"),)
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    address: orm.Mapped[str]
    person_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("people.id", ondelete="CASCADE"))
    person: orm.Mapped[Person] = orm.relationship(back_populates="mails")


@pytest.mark.slow
def test_sqlalchemy_orm(sql: Sql) -> None:
    """create_all, relationships, bulk inserts with RETURNING, savepoints, reflection, drop_all."""
    engine = sa.create_engine(sql.url())
    _orm(engine)
    engine.dispose()


def _orm(engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)  # finds everything there
    with orm.Session(engine) as session:
        people = [
            Person(name=f"p{n}", mails=[Mail(address=f"{n}@a"), Mail(address=f"{n}@b")])
            for n in range(30)
        ]
        session.add_all(people)
        session.commit()
        assert [p.id for p in people] == sorted(p.id for p in people)
        found = session.scalars(sa.select(Person).where(Person.name == "p7")).one()
        assert [mail.address for mail in found.mails] == ["7@a", "7@b"]
        session.delete(found)
        session.flush()
        with pytest.raises(sa.exc.IntegrityError), session.begin_nested():  # noqa: PT012
            session.add(Person(name="p8"))
            session.flush()
        session.commit()
    with engine.begin() as conn:
        assert conn.scalar(sa.select(Mail.id).where(Mail.address == "7@a")) is None
        told = conn.execute(
            sa.insert(Person).returning(Person.id, Person.name),
            [{"name": f"q{n}"} for n in range(5)],
        )
        assert sorted(row.name for row in told) == [f"q{n}" for n in range(5)]
        assert conn.execute(sa.update(Person).values(born=datetime(2000, 1, 1))).rowcount == 34  # noqa: DTZ001
    seen = sa.MetaData()
    seen.reflect(engine)
    assert set(seen.tables) == {"people", "mails"}
    mails = seen.tables["mails"]
    assert [c.name for c in mails.primary_key] == ["id"]
    assert isinstance(seen.tables["people"].c.name.type, sa.VARCHAR)
    assert seen.tables["people"].c.name.type.length == 40
    (key,) = mails.foreign_keys
    assert key.target_fullname == "people.id"
    assert key.ondelete == "CASCADE"
    assert {index.name for index in mails.indexes} == {"mails_address"}
    assert sa.inspect(engine).get_unique_constraints("people")[0]["column_names"] == ["name"]
    Base.metadata.drop_all(engine)
    assert sa.inspect(engine).get_table_names() == []


_MIGRATIONS = {
    "one": (
        "None",
        "op.create_table('a', sa.Column('id', sa.Integer, primary_key=True),"
        " sa.Column('name', sa.String(20), nullable=False))\n"
        "    op.create_index('a_name', 'a', ['name'])",
        "op.drop_table('a')",
    ),
    "two": (
        "'one'",
        "op.add_column('a', sa.Column('n', sa.Integer, server_default='3'))\n"
        "    op.execute(\"INSERT INTO a (name) VALUES ('x')\")",
        "op.drop_column('a', 'n')",
    ),
}
_ENV = """
from alembic import context
from sqlalchemy import create_engine
engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""


@pytest.mark.slow
def test_alembic(sql: Sql, tmp_path: Path) -> None:
    """Migrations up and down again, as Alembic's own template runs them."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(_ENV)
    for name, (down, up, back) in _MIGRATIONS.items():
        (tmp_path / "versions" / f"{name}.py").write_text(
            f"import sqlalchemy as sa\nfrom alembic import op\nrevision = {name!r}\n"
            f"down_revision = {down}\nbranch_labels = depends_on = None\n"
            f"def upgrade():\n    {up}\ndef downgrade():\n    {back}\n"
        )
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", sql.url())
    command.upgrade(config, "head")
    with sql.connect() as conn:
        assert conn.execute("SELECT name, n FROM a").fetchall() == [("x", 3)]
        assert conn.execute("SELECT version_num FROM alembic_version").fetchall() == [("two",)]
    command.downgrade(config, "one")
    with sql.connect() as conn, pytest.raises(psycopg.errors.UndefinedColumn):
        conn.execute("SELECT n FROM a")
    command.downgrade(config, "base")
    with sql.connect() as conn, pytest.raises(psycopg.errors.UndefinedTable):
        conn.execute("SELECT * FROM a")


@pytest.mark.slow
def test_pandas(sql: Sql) -> None:
    """A data frame goes in and comes back; an existing table is replaced or appended to."""
    engine = sa.create_engine(sql.url())
    frame = pandas.DataFrame(
        {
            "i": range(1_500),
            "f": [n / 3 for n in range(1_500)],
            "s": [f"s{n}" if n % 5 else None for n in range(1_500)],
            "t": pandas.date_range("2024-01-01", periods=1_500, freq="h"),
            "b": [n % 2 == 0 for n in range(1_500)],
        }
    )
    assert frame.to_sql("frame", engine, index=False) is not None
    found = pandas.read_sql("SELECT * FROM frame ORDER BY i LIMIT 2000", engine)
    pandas.testing.assert_frame_equal(found, frame, check_dtype=False)
    frame.head(10).to_sql("frame", engine, index=False, if_exists="append", method="multi")
    frame.head(10).to_sql("frame", engine, index=False, if_exists="replace")
    assert len(pandas.read_sql_table("frame", engine)) == 10
    engine.dispose()


def psql(sql: Sql, *texts: str, stdin: str = "") -> str:
    """The output of psql, which ends at the first error."""
    address = ("-h", "127.0.0.1", "-p", str(sql.port), "-U", "kvorum", "-d", sql.database)
    commands = [word for text in texts for word in ("-c", text)]
    done = subprocess.run(
        ["psql", "-X", "-v", "ON_ERROR_STOP=1", *address, *commands],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_psql_script(sql: Sql) -> None:
    """A script with variables, COPY from its own text, a block, and output that people read."""
    script = """
\\set n 3
CREATE TABLE s (id int PRIMARY KEY, v text);
COPY s FROM STDIN;
1\tone
2\t\\N
\\.
BEGIN;
INSERT INTO s VALUES (:n, 'three');
COMMIT;
\\pset null NULL
SELECT * FROM s ORDER BY id;
SELECT v FROM s WHERE id = 1 \\gset
\\echo found :v
\\x
SELECT * FROM s WHERE id = 3;
\\copy (SELECT * FROM s WHERE id = 1) TO STDOUT
PREPARE p (int) AS SELECT v FROM s WHERE id = $1;
EXECUTE p (3);
"""
    told = psql(sql, stdin=script)
    assert " id |   v   \n----+-------\n  1 | one\n  2 | NULL\n  3 | three\n(3 rows)" in told
    assert "found one" in told
    assert "-[ RECORD 1 ]\nid | 3\nv  | three" in told
    assert "1\tone" in told


_BACKSLASH = [
    "\\l",
    "\\l+",
    "\\dn",
    "\\dn+",
    "\\d",
    "\\d+",
    "\\dt",
    "\\dt+",
    "\\di",
    "\\di+",
    "\\ds",
    "\\dv",
    "\\dv+",
    "\\df",
    "\\dT",
    "\\du",
    "\\dg",
    "\\dp",
    "\\z",
    "\\db",
    "\\dx",
    "\\dy",
    "\\dC",
    "\\dD",
    "\\do",
    "\\dO",
    "\\dc",
    "\\dF",
    "\\des",
    "\\dew",
    "\\det",
    "\\dE",
    "\\dm",
    "\\dP",
    "\\dA",
    "\\dL",
    "\\dd",
    "\\ddp",
    "\\drds",
    "\\dRp",
    "\\dRs",
    "\\dX",
    "\\dconfig",
    "\\encoding",
    "\\conninfo",
    "\\d s",
    "\\d+ s",
    "\\d s_pkey",
    "\\d s_id_seq",
    "\\d view_of_s",
    "\\d+ view_of_s",
    "\\sv view_of_s",
    "\\dt s*",
    "\\dl",
]


@pytest.mark.slow
def test_psql_backslash_commands(sql: Sql) -> None:
    """Every command that looks at the catalog answers; the usual ones with what is there."""
    psql(
        sql,
        "CREATE TABLE s (id serial PRIMARY KEY, v text NOT NULL DEFAULT 'x', n int CHECK (n > 0))",
        "CREATE INDEX s_v ON s (v DESC)",
        "CREATE TABLE child (s int REFERENCES s ON DELETE CASCADE)",
        "CREATE VIEW view_of_s AS SELECT id, v FROM s",
    )
    failed = {}
    told = {}
    for one in _BACKSLASH:
        try:
            told[one] = psql(sql, one)
        except AssertionError as error:
            failed[one] = str(error)
    assert failed == {}
    assert "s_pkey" in told["\\di"]
    assert sql.database in told["\\l"]
    for part in (
        "not null",
        "nextval('s_id_seq'::regclass)",
        '"s_pkey" PRIMARY KEY, btree (id)',
        '"s_v" btree (v DESC)',
        '"s_n_check" CHECK (n > 0)',
        'TABLE "child" CONSTRAINT "child_s_fkey" FOREIGN KEY (s) REFERENCES s(id) ON DELETE',
    ):
        assert part in told["\\d s"], part


@pytest.mark.slow
def test_pgbench(sql: Sql) -> None:
    """pgbench makes its tables and runs TPC-B-like transactions, each of which is whole."""
    address = ("-h", "127.0.0.1", "-p", str(sql.port), "-U", "kvorum")

    def pgbench(*words: str) -> str:
        done = subprocess.run(
            ["pgbench", *address, *words, sql.database],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with sql.connect(autocommit=True) as conn:
        pgbench("-i", "-I", "dtpg", "-q")
        for mode in ("simple", "prepared"):
            told = pgbench("-M", mode, "-c", "4", "-t", "5", "--max-tries=1000", "-n")
            assert "number of failed transactions: 0 (0.000%)" in told
        branch = conn.execute("SELECT bbalance FROM pgbench_branches").fetchall()
        tellers = conn.execute("SELECT tbalance FROM pgbench_tellers").fetchall()
        history = conn.execute("SELECT delta FROM pgbench_history").fetchall()
        assert len(history) == 2 * 4 * 5
        assert branch[0][0] == sum(t[0] for t in tellers) == sum(h[0] for h in history)
