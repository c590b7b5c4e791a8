"""Storage shards from every surface: chosen when a table or its namespace is made, and seen."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

import kvorum
from kvorum.cli.main import app
from tests.kvorum.surfaces.conftest import Served


def placed(db: kvorum.Database, number: int) -> list[dict[str, Any]]:
    """The partitions of a table."""
    prefix = number.to_bytes(4, "big")
    return [row for row in db.partitions() if bytes(row["start"])[:4] == prefix]


@pytest.mark.slow
def test_g10_a_table_lies_in_the_shard_that_it_was_made_with(
    db: kvorum.Database, request: pytest.FixtureRequest
) -> None:
    """A surface dropped `shard`, or rows of a shard were not found."""
    name = f"sharded_{request.node.callspec.params['db']}"
    made = db.create_table("default", name, shard="logs:universal", split_keys=["m"])
    assert made.shard == "logs:universal"
    table = db.table("default", name)
    for key in ("a", "z"):
        table.put(key, "v")
        table.put(key, "w")
    assert [record.value for record in table.scan().items] == [b"w", b"w"]
    rows = placed(db, made.id)
    assert [(r["shard"], r["policy"]) for r in rows] == [("logs:universal", "universal")] * 2
    assert {row["policy_proposed"] for row in rows} <= {"leveled", "universal"}
    assert [t.shard for t in db.tables("default") if t.name == name] == ["logs:universal"]
    with pytest.raises(kvorum.InvalidArgument, match="shard must be NAME"):
        db.create_table("default", f"{name}2", shard="No!")
    db.drop_table("default", name)


def settled(db: kvorum.Database, number: int, shard: str) -> None:
    """Wait until a table's rows lie there."""
    ends = time.monotonic() + 60
    while [(r["shard"], r["moving_at"]) for r in placed(db, number)] != [(shard, [])]:
        assert time.monotonic() < ends, placed(db, number)
        time.sleep(0.05)


def test_g10_a_table_moves_to_another_shard_while_it_is_used(
    db: kvorum.Database, request: pytest.FixtureRequest
) -> None:
    """A surface could not move a table, or rows were lost on the way."""
    name = f"moves_{request.node.callspec.params['db']}"
    db.create_namespace(name)
    number = db.create_table(name, "t").id
    table = db.table(name, "t")
    for at in range(300):
        table.put(f"{at:04}", b"v" * 100)
    assert db.modify_table(name, "t", shard="mv:universal").shard == "mv:universal"
    for at in range(0, 300, 7):
        table.put(f"{at:04}", "new")
    settled(db, number, "mv:universal")
    found = table.scan(limit=1_000).items
    assert len(found) == 300
    assert [r.value == b"new" for r in found] == [at % 7 == 0 for at in range(300)]
    assert db.modify_namespace(name, shard="mvn").shard == "mvn"
    settled(db, number, "mv:universal")
    assert db.modify_table(name, "t", shard="").shard == ""
    settled(db, number, "mvn")
    assert db.modify_namespace(name, shard="").shard == ""
    settled(db, number, "")
    assert len(table.scan(limit=1_000).items) == 300
    with pytest.raises(kvorum.InvalidArgument, match="shard must be NAME"):
        db.modify_table(name, "t", shard="a:fifo")
    db.drop_table(name, "t")
    db.drop_namespace(name)


def test_g10_tables_have_the_shard_of_their_namespace(
    db: kvorum.Database, request: pytest.FixtureRequest
) -> None:
    """A namespace's tables lay elsewhere, or one that names a shard was not heard."""
    name = f"shard_{request.node.callspec.params['db']}"
    db.create_namespace(name, shard="tenant:leveled")
    assert db.namespace(name).shard == "tenant", "what is usual is not said"
    for table, shard, wanted in (("t", "", "tenant"), ("u", "logs", "logs")):
        made = db.create_table(name, table, shard=shard)
        assert made.shard == shard
        assert [row["shard"] for row in placed(db, made.id)] == [wanted]
        db.drop_table(name, table)
    db.drop_namespace(name)


@pytest.mark.slow
def test_g10_sql_and_the_command_line_name_shards(served: Served) -> None:
    """SQL's tables, their indexes, and what TRUNCATE makes lay in another shard; or nobody saw."""
    address = f"host=127.0.0.1 port={served.base + 3} user=kvorum dbname=default"
    of_tables = "SELECT DISTINCT shard, policy FROM kvorum.partitions WHERE table_name = 'sharded'"
    with psycopg.connect(address, autocommit=True) as sql:
        sql.execute(
            "CREATE TABLE sharded (id int PRIMARY KEY, v text) WITH (shard = 'sq:universal')"
        )
        sql.execute("CREATE INDEX ON sharded (v)")
        sql.execute("INSERT INTO sharded SELECT n, n::text FROM generate_series(1, 100) n")
        assert sql.execute("SELECT id FROM sharded WHERE v = '77'").fetchall() == [(77,)]
        assert sql.execute(of_tables).fetchall() == [("sq:universal", "universal")]
        sql.execute("TRUNCATE sharded")
        assert sql.execute(of_tables).fetchall() == [("sq:universal", "universal")]
        shown = "SELECT shard FROM kvorum.tables WHERE name = 'sharded'"
        assert sql.execute(shown).fetchall() == [("sq:universal",)]
        with pytest.raises(psycopg.Error, match="shard must be NAME"):
            sql.execute("CREATE TABLE bad (id int PRIMARY KEY) WITH (shard = 'a b')")
        for change in ("SET (shard = 'sq2')", "RESET (shard)"):
            sql.execute(f"ALTER TABLE sharded {change}")
        assert sql.execute(of_tables).fetchall() == [("", "leveled")]
        sql.execute("DROP TABLE sharded")

    def told(*words: str) -> str:
        found = CliRunner().invoke(app, [*words, "--connect", served.address])
        assert found.exit_code == 0, found.output
        return found.output

    told("namespace", "create", "cmdshard", "--shard", "cmd")
    told("table", "create", "cmdshard/t", "--shard", "cmd:universal")
    assert '"shard": "cmd:universal"' in told("table", "list", "cmdshard", "--json")
    assert "shard     cmd" in told("namespace", "show", "cmdshard")
    told("table", "modify", "cmdshard/t", "--shard", "cmd:leveled")
    told("table", "modify", "cmdshard/t", "--shard", "cmd:universal")
    told("namespace", "modify", "cmdshard", "--shard", "")
    listed = told("partition", "list")
    assert "POLICY" in listed.splitlines()[0]
    assert any("cmd:universal universal" in " ".join(line.split()) for line in listed.splitlines())
    told("table", "drop", "cmdshard/t")
    told("namespace", "drop", "cmdshard")
