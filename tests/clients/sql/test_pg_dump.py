"""pg_dump of PostgreSQL 15: what it asks, and that its dumps come back the same."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import psycopg
import pytest

from sqlproxy.pgcatalog.definitions import operand
from tests.clients.sql.conftest import started
from tests.kit.processes import NodeProcess

node = pytest.fixture(scope="module", name="node")(started)

HERE = Path(__file__).parent
BIN = Path("/usr/lib/postgresql/15/bin")
ASKED: list[str] = json.loads((HERE / "pg_dump.json").read_text("utf-8"))
"""Recorded of a dump of the tables of pg_dump.sql at a PostgreSQL 15, as it asks by itself."""


def _made(node: NodeProcess, name: str, *, tables: str = "pg_dump.sql") -> str:
    """The address of a new database, with the tables of a script."""
    address = f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname="
    with psycopg.connect(address + "postgres", autocommit=True) as link:
        link.execute(f"create database {name}".encode())
    if tables:
        with psycopg.connect(address + name, autocommit=True) as link:
            for text in (HERE / tables).read_text("utf-8").splitlines():
                link.pgconn.exec_(text.encode())
                failed = link.pgconn.transaction_status == psycopg.pq.TransactionStatus.INERROR
                assert not failed, text
    return address + name


@pytest.mark.slow
def test_c14_what_pg_dump_asks_is_answered(node: NodeProcess) -> None:
    """A statement of pg_dump fails, so no database can be dumped."""
    with psycopg.connect(_made(node, "asked"), autocommit=True) as link:
        for text in ASKED:
            if text.startswith("COPY "):
                with link.cursor().copy(text.encode()) as copy:
                    assert sum(map(len, copy))
            else:
                link.pgconn.exec_(text.encode())
                assert link.pgconn.transaction_status != psycopg.pq.TransactionStatus.INERROR, text


@pytest.mark.slow
def test_c14_what_a_dump_orders_by_is_known(node: NodeProcess) -> None:
    """A default that names a sequence comes before it, or the kvorum views are dumped."""
    with psycopg.connect(_made(node, "ordered"), autocommit=True) as link:
        (named,) = link.execute(
            "select count(*) from pg_depend where classid = 'pg_attrdef'::regclass "
            "and refobjid = 'p_id_seq'::regclass and deptype = 'n'"
        ).fetchone() or (0,)
        assert named == 1
        loose = link.execute(
            "select relname from pg_class c where relnamespace >= 16383 and not exists (select 1 "
            "from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid "
            "and d.deptype = 'e')"
        ).fetchall()
        assert loose == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("'names.public.p'::regclass::text", "p"),
        ("'public.p'::regclass::text", "p"),
        ("to_regclass('other.public.p')::text", None),
        ("(select typname[0] from pg_type where typname = '_int4')", "_"),
        ("(select typname[3] from pg_type where typname = '_int4')", "t"),
        ("(select typname[-1] from pg_type where typname = '_int4')", None),
    ],
)
def test_c14_names_in_the_catalog(node: NodeProcess, text: str, answer: str | None) -> None:
    """A name of three parts is unknown (TypeORM asks so), or a letter of a name."""
    address = f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname="
    with psycopg.connect(address + "postgres", autocommit=True) as link:
        there = link.execute("select 1 from pg_database where datname = 'names'").fetchone()
    if there is None:
        _made(node, "names")
    with psycopg.connect(address + "names", autocommit=True) as link:
        assert link.execute(f"select {text}".encode()).fetchone() == (answer,)


@pytest.mark.slow
def test_c14_definitions_are_read_again_as_they_are_told(node: NodeProcess) -> None:
    """A default loses the parentheses that its grammar asks for, a text of char(3) is cut at one
    letter, or a view the names of its columns: a dump is refused, or is another database.
    """
    with psycopg.connect(_made(node, "told", tables="pg_dump_odd.sql"), autocommit=True) as link:

        def rows(text: str) -> list[tuple[str, ...]]:
            return link.execute(text.encode()).fetchall()

        defaults = (
            "select attname, format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid) "
            "from pg_attrdef join pg_attribute on attrelid = adrelid and attnum = adnum "
            "where adrelid = '{}'::regclass and attgenerated = '' order by attnum"
        )
        for table in ("d1", "d2", "defaults"):
            found = rows(defaults.format(table))
            assert len(found) > 15
            columns = ", ".join(f'"{name}" {kind} default {text}' for name, kind, text in found)
            link.execute(f"create table again_{table} ({columns})".encode())
            assert rows(defaults.format(f"again_{table}")) == found
            link.execute(f"insert into again_{table} default values".encode())
            moving = re.compile("now|nextval|uuid|local|current_")
            same = [f'"{name}"' for name, _, text in found if not moving.search(text.lower())]
            listed = ", ".join(same)
            again = rows(f"select {listed} from again_{table}")
            assert str(rows(f"select {listed} from {table}")) == str(again)  # NaN is itself
        columns_of = (
            "select attname, format_type(atttypid, atttypmod) from pg_attribute "
            "where attrelid = '\"{}\"'::regclass and attnum > 0 order by attnum"
        )
        views = rows(
            "select relname, pg_get_viewdef(oid) from pg_class "
            "where relkind = 'v' and relnamespace = 'public'::regnamespace"
        )
        assert len(views) > 12
        for name, text in views:
            link.execute(f'create view "again {name}" as {text}'.encode())
            assert rows(columns_of.format(f"again {name}")) == rows(columns_of.format(name)), name
            again_text = rows(f"select pg_get_viewdef('\"again {name}\"'::regclass)")
            assert again_text == [(text,)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("now()", "now()"),
        ("'a'::text", "'a'::text"),
        ("array[1, 2]::int[]", "array[1, 2]::int[]"),
        ("x.f('(')::timestamp(3) with time zone", "x.f('(')::timestamp(3) with time zone"),
        ("(1 + 2)::numeric(5, 2)", "(1 + 2)::numeric(5, 2)"),
        ("CURRENT_USER", "CURRENT_USER"),
        ("upper('x') || lower('y')", "(upper('x') || lower('y'))"),
        ("(1 = 2) OR (3 = 4)", "((1 = 2) OR (3 = 4))"),
        ("now() AT TIME ZONE 'utc'", "(now() AT TIME ZONE 'utc')"),
        ("'('::text IN (')')", "('('::text IN (')'))"),
        ("NOT true", "(NOT true)"),
        ("E'\\'' = '", "(E'\\'' = ')"),
    ],
)
def test_c14_what_stands_behind_default(text: str, shown: str) -> None:
    """An operator that DEFAULT takes in parentheses only is shown without them."""
    assert operand(text) == shown


def test_c14_what_pg_dumpall_writes_is_read(node: NodeProcess) -> None:
    """The roles that pg_dumpall writes, or the database of pg_dump -C, are refused."""
    with psycopg.connect(_made(node, "whole", tables=""), autocommit=True) as link:
        more = "NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB NOLOGIN NOREPLICATION NOBYPASSRLS"
        link.execute("create role dumped_role")
        link.execute(f"alter role dumped_role with {more}".encode())
        link.execute(f"alter role kvorum with {more.replace('NO', '')}".encode())
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            link.execute("alter role dumped_role with replication")
        link.execute(
            "create database whole_again with template = template0 encoding = 'UTF8' "
            "locale_provider = libc locale = 'C'"
        )
        link.execute("drop database whole_again")
        link.execute("drop role dumped_role")


@pytest.mark.slow
def test_columns_are_numbered_without_gaps(node: NodeProcess) -> None:
    """A table that lost a column, or changed its type, cannot be dumped: pg_dump counts."""
    with psycopg.connect(_made(node, "gaps", tables="pg_dump_odd.sql"), autocommit=True) as link:
        numbered = link.execute(
            "select attname, attisdropped from pg_attribute "
            "where attrelid = 'gone'::regclass and attnum > 0 order by attnum"
        ).fetchall()
        gaps = link.execute(
            "select attrelid::regclass from pg_attribute where attnum > 0 group by attrelid "
            "having count(*) <> max(attnum)"
        ).fetchall()
    assert gaps == []
    assert numbered[0] == ("........pg.dropped.1........", True)
    assert [name for name, dropped in numbered if not dropped] == ["b", "c", "d"]


@pytest.mark.slow
@pytest.mark.skipif(not BIN.exists(), reason="there is no PostgreSQL 15")
@pytest.mark.parametrize("tables", ["pg_dump.sql", "pg_dump_odd.sql"])
def test_c14_a_dump_comes_back_the_same(node: NodeProcess, tables: str) -> None:
    """A dump leaves something out, or is refused when it is read again."""
    name = tables.removesuffix(".sql")
    first, second = _made(node, name, tables=tables), _made(node, f"{name}_2", tables="")
    third = _made(node, f"{name}_3", tables="")

    def run(*words: str, given: bytes = b"") -> bytes:
        done = subprocess.run(words, input=given, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def dumped(address: str, *words: str) -> bytes:
        found = run(str(BIN / "pg_dump"), *words, address)
        return b"\n".join(line for line in found.splitlines() if b"restrict" not in line)

    whole = run(str(BIN / "pg_dump"), "--quote-all-identifiers", first)
    assert b'CREATE TABLE "public"."' in whole
    whole = run(str(BIN / "pg_dump"), first)
    assert b"kvorum.jobs" not in whole
    run(str(BIN / "psql"), "-v", "ON_ERROR_STOP=1", second, given=whole)
    packed = run(str(BIN / "pg_dump"), "-Fc", first)
    run(str(BIN / "pg_restore"), "--exit-on-error", "-d", third, given=packed)
    for words in ((), ("--schema-only",), ("--data-only",)):
        expected = dumped(first, *words)
        assert len(expected) > 1_000
        assert dumped(second, *words) == dumped(third, *words) == expected
