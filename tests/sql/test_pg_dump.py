"""pg_dump of PostgreSQL 15: what it asks, and that its dumps come back the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.integration.processes import NodeProcess
from tests.sql.conftest import node

__all__ = ["node"]

HERE = Path(__file__).parent
BIN = Path("/usr/lib/postgresql/15/bin")
ASKED: list[str] = json.loads((HERE / "pg_dump.json").read_text("utf-8"))
"""Recorded of a dump of the tables of pg_dump.sql at a PostgreSQL 15, as it asks by itself."""


def _made(node: NodeProcess, name: str, *, tables: bool = True) -> str:
    """The address of a new database, with the tables of pg_dump.sql."""
    address = f"host=127.0.0.1 port={node.base + 3} user=kvorum dbname="
    with psycopg.connect(address + "postgres", autocommit=True) as link:
        link.execute(f"create database {name}".encode())
    if tables:
        with psycopg.connect(address + name, autocommit=True) as link:
            link.execute((HERE / "pg_dump.sql").read_bytes())
    return address + name


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
@pytest.mark.skipif(not BIN.exists(), reason="there is no PostgreSQL 15")
def test_c14_a_dump_comes_back_the_same(node: NodeProcess) -> None:
    """A dump leaves something out, or is refused when it is read again."""
    first, second = _made(node, "dumped"), _made(node, "restored", tables=False)
    third = _made(node, "unpacked", tables=False)

    def run(*words: str, given: bytes = b"") -> bytes:
        done = subprocess.run(words, input=given, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def dumped(address: str, *words: str) -> bytes:
        found = run(str(BIN / "pg_dump"), *words, address)
        return b"\n".join(line for line in found.splitlines() if b"restrict" not in line)

    whole = run(str(BIN / "pg_dump"), first)
    assert b"kvorum.jobs" not in whole
    run(str(BIN / "psql"), "-v", "ON_ERROR_STOP=1", second, given=whole)
    packed = run(str(BIN / "pg_dump"), "-Fc", first)
    run(str(BIN / "pg_restore"), "--exit-on-error", "-d", third, given=packed)
    for words in ((), ("--schema-only",), ("--data-only",)):
        expected = dumped(first, *words)
        assert len(expected) > 1_000
        assert dumped(second, *words) == dumped(third, *words) == expected
