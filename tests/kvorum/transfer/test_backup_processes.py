"""Backup and restore of real clusters, by the command: under load, over kill -9 of the master and
of the command itself, and into a new cluster.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest

import kvorum
from kv.base.config import SQL_OFFSET
from kv.base.errors import InvalidArgument
from kvorum.transfer import postgresql
from kvorum.transfer.places import place_of
from kvorum.transfer.verify import verify
from sqlproxy.rows.schema import Column, Table
from tests.kit.clusters import Nodes, cluster
from tests.kit.commands import command, run, told
from tests.kit.waiting import poll

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ACCOUNTS, BALANCE = 20, 100
FILLER = os.urandom(4_000)
ROWS = 3_000  # 12 MB: a few files


def started(nodes: Nodes, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*words, "--connect", nodes.local.connect, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, (out, err)
    return dict(json.loads(out))


def done(nodes: Nodes, *words: str, code: int = 0) -> Any:
    return told(*words, code=code, connect=nodes.local.connect)


def fill(db: Any) -> None:
    db.create_table("default", "bank", split_keys=["05", "10", "15"])
    db.create_table("default", "filler")
    for i in range(ACCOUNTS):
        db.table("default", "bank").put(f"{i:02}", str(BALANCE))
    puts = [kvorum.Put("default", "filler", f"{i:06}", FILLER) for i in range(ROWS)]
    for at in range(0, ROWS, 500):
        db.batch(puts[at : at + 500])


class Load:
    """Transfers between accounts, until it is stopped."""

    def __init__(self, url: str, seed: int) -> None:
        self._url, self._chance = url, random.Random(seed)
        self._stop = threading.Event()
        self.done = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with kvorum.connect(self._url) as db:
            while not self._stop.is_set():
                one, two = self._chance.sample(range(ACCOUNTS), 2)

                def move(t: Any, one: int = one, two: int = two) -> None:
                    bank = t.table("default", "bank")
                    a, b = (int(bank.get(f"{n:02}").value) for n in (one, two))
                    bank.put(f"{one:02}", str(a - 1))
                    bank.put(f"{two:02}", str(b + 1))

                try:
                    db.run(move)
                    self.done += 1
                except kvorum.KvorumError:
                    time.sleep(0.05)


def balances(db: Any, **at: Any) -> dict[bytes, bytes]:
    return {item.key: item.value for item in db.table("default", "bank").scan(**at).items}


def assert_not_scanned(source: str, table: Table) -> None:
    """That its key is never NULL is in the table's definition: its rows are not counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgresql, "_keyed", lambda _: "1 / (SELECT 0 FROM copy LIMIT 1) = 0")
        assert postgresql.count_keyless(source, "", table) == 0


def known(connection: psycopg.Connection[Any], table: str) -> bool:
    """Whether the node of this connection has heard of a table (SQL_POLL_MS)."""
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchone()
    return found is not None and bool(found[0])


def assert_values_are_kept(nodes: Nodes, source: str) -> None:
    """Values that Python would change, and the digits and lengths of types, come as they are."""
    query = (
        "SELECT 1 AS id, interval '1 year 2 mons 3 days' AS iv, '{\"a\": 1.50}'::jsonb AS j,"
        " '12.5'::numeric(12,4) AS n, 'ab'::varchar(7) AS v, 'x'::char(3) AS c, 'y '::bpchar AS b,"
        " '{1,2,NULL}'::int[] AS a, array[interval '1 mon', NULL] AS ai,"
        " timestamp '2026-01-02 03:04' AS ts"
    )
    words = ("import", "default.typed", source, "--query", query, "--create")
    assert done(nodes, *words)["rows"] == 1
    kinds = [kind for _, kind in postgresql.schema_of(source, query)]
    assert kinds == [
        "int4",
        "interval",
        "jsonb",
        "numeric(12,4)",
        "varchar(7)",
        "char(3)",
        "bpchar",
        "int4[]",
        "interval[]",
        "timestamp",
    ]
    with psycopg.connect(source, autocommit=True) as connection:
        columns = "iv::text, j::text, n::text, v, c || '|', b || '|', a::text, ai::text, ts::text"
        poll(lambda: known(connection, "typed"))
        stored = connection.execute(f"SELECT {columns} FROM typed").fetchone()
        assert stored == connection.execute(f"SELECT {columns} FROM ({query}) AS q").fetchone()
        assert stored is not None
        assert stored[:2] == ("1 year 2 mons 3 days", '{"a": 1.50}')
    odd = "SELECT 1 AS id, NULL::regtype AS x"
    with pytest.raises(InvalidArgument, match="column x is of type regtype there"):
        postgresql.schema_of(source, odd)


def files(where: Path, count: int) -> None:
    """Wait until a backup has written so many."""
    poll(lambda: len(list(where.glob("data/*.kvb"))) >= count)


@pytest.mark.slow
def test_j18_u3_backup_under_load_and_over_the_masters_death(tmp_path: Path) -> None:
    """The backup would show a transfer half done, or end with the master that was killed."""
    where = tmp_path / "backup"
    with cluster(tmp_path / "old") as nodes:
        with kvorum.connect(nodes.url) as db:
            fill(db)
        with Load(nodes.url, 1) as load, Load(nodes.url, 2):
            process = started(nodes, "backup", str(where), "--rate", "4M")
            files(where, 1)
            poll(lambda: load.done > 10)
            nodes.kill(nodes.leader())
            told = ended(process)
        assert told["files"] >= 3
        with kvorum.connect(nodes.url) as db:
            then = balances(db, at=int(told["at"]))
            assert then != balances(db)
    run("backup", "verify", str(where))
    with cluster(tmp_path / "new") as nodes:
        assert done(nodes, "restore", str(where))["rows"] == told["rows"]
        with kvorum.connect(nodes.url) as db:
            assert sum(map(int, then.values())) == ACCOUNTS * BALANCE
            assert balances(db) == then
            assert db.table("default", "filler").get(f"{ROWS - 1:06}").value == FILLER
        found = done(nodes, "check")
        assert found["ok"], found["findings"]
        refused = done(nodes, "restore", str(where), code=1)
        assert refused["error"]["code"] == "CLUSTER_NOT_EMPTY"


@pytest.mark.slow
def test_j18_u3_killed_commands_are_resumed(tmp_path: Path) -> None:
    """A backup or a restore whose command was killed would begin anew, or stay for ever."""
    where = tmp_path / "backup"
    with cluster(tmp_path / "one", 1) as nodes:
        with kvorum.connect(nodes.url) as db:
            fill(db)
        process = started(nodes, "backup", str(where), "--rate", "2M")
        files(where, 1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        made = len(list(where.glob("data/*.kvb")))
        with kvorum.connect(nodes.url) as db:
            (info,) = db.procedures(name="kvorum.backup_here")
            assert not info.finished
        second = done(nodes, "backup", str(where), code=1)
        assert second["error"]["code"] == "TARGET_IN_USE"
        assert f"--resume {info.id}" in second["error"]["message"]
        beside = tmp_path / "beside"
        assert done(nodes, "backup", str(beside))["rows"] > ROWS, "it waits for nobody"
        words = ("backup", str(tmp_path / "third"), "--resume", str(info.id))
        other = done(nodes, *words, code=1)
        assert other["error"]["code"] == "OTHER_PROCEDURE"
        assert str(where) in other["error"]["message"]
        assert len(list(where.glob("data/*.kvb"))) == made
        told = done(nodes, "backup", str(where), "--resume", str(info.id))
        assert told["files"] > made
        for place in (where, beside):
            assert verify(place_of(str(place))).manifest.size > ROWS * len(FILLER)
        full = done(nodes, "backup", str(where), code=1)
        assert "holds a backup already" in full["error"]["message"]
        process = started(nodes, "restore", str(where), "--force", "--rate", "1M")
        with kvorum.connect(nodes.url) as db:
            deadline = time.monotonic() + 60
            while not [p for p in db.procedures(name="kvorum.restore_here") if p.step == "rows"]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "--resume" in err
        with kvorum.connect(nodes.url) as db:
            (info,) = [p for p in db.procedures(name="kvorum.restore_here") if not p.finished]
        second = done(nodes, "restore", str(where), "--force", code=1)
        assert second["error"]["code"] == "RESTORE_UNDER_WAY"
        assert f"--resume {info.id}" in second["error"]["message"]
        done(nodes, "restore", str(where), "--resume", str(info.id))
        with kvorum.connect(nodes.url) as db:
            assert sum(map(int, balances(db).values())) == ACCOUNTS * BALANCE


@pytest.mark.slow
def test_u3_any_url_of_fsspec_is_a_place(tmp_path: Path) -> None:
    """A file system that pyarrow does not know is refused, or its files are not found again."""
    with cluster(tmp_path / "one", 1) as nodes, kvorum.connect(nodes.local.connect) as db:
        fill(db)
        where = f"fsspec+local://{tmp_path}/out"
        told = done(nodes, "export", "default.filler", where, "--format", "parquet")
        assert told["rows"] == ROWS
        db.create_table("default", "again")
        assert done(nodes, "import", "default.again", where)["rows"] == ROWS
        refused = done(nodes, "export", "default.bank", where, "--on-nodes", code=1)
        assert "file:///" in refused["error"]["message"]
        where = f"fsspec+local://{tmp_path}/whole"
        assert done(nodes, "backup", where)["rows"] >= 2 * ROWS + ACCOUNTS
        assert done(nodes, "backup", "verify", where)["rows"] >= 2 * ROWS + ACCOUNTS
        twice = done(nodes, "backup", where, code=1)
        assert twice["error"]["code"] == "TARGET_IN_USE", "it is not empty"
        db.drop_table("default", "again")
        done(nodes, "restore", where, "--force")
        assert db.table("default", "again").get("000007").value == FILLER


@pytest.mark.slow
def test_u3_tables_by_the_command(tmp_path: Path) -> None:
    """The commands would not find each other's files, or end as if all were well."""
    with cluster(tmp_path / "one", 1) as nodes:
        source = tmp_path / "people.csv"
        source.write_text("id,name,born\n1,ann,2001-02-03\n2,bob,\n")
        told = done(nodes, "import", "default.people", str(source), "--create")
        assert told["rows"] == 2
        source.write_text("id;phone\n1;+4912\n1;007\n")
        words = ("import", "default.phones", str(source), "--create", "--delimiter", ";")
        twice = done(nodes, *words, code=1)
        assert twice["error"]["code"] == "IMPORT_ROW"
        source.write_text("id;phone\n1;+4912\n2;007\n")
        assert done(nodes, *words)["rows"] == 2, "the one that failed left its table"
        where = tmp_path / "out"
        words = ("export", "default.people", str(where), "--format", "json", "--where", "id > 1")
        assert done(nodes, *words)["rows"] == 1
        got = json.loads((where / "part-00000.json").read_text())
        assert got == {"id": 2, "name": "bob", "born": None}
        source.write_text("id,name\n3,cleo\nx,y\n")
        bad = done(nodes, "import", "default.people", str(source), code=1)
        assert "people.csv, line 3" in bad["error"]["message"]
        words = ("import", "default.people", str(source), "--on-error", "skip")
        skipped = done(nodes, *words, code=1)
        assert (skipped["rows"], skipped["skipped"]) == (1, 1)
        assert done(nodes, "check", "default.people")["ok"]
        sql = nodes.local.node(1).base + SQL_OFFSET
        there = f"postgresql://kvorum@127.0.0.1:{sql}/default?table=people"
        assert done(nodes, "import", "default.copy", there, "--create")["rows"] == 3
        query = "SELECT id + 10 AS id, name FROM people WHERE name <> 'bob'"
        words = ("import", "default.copy", there.partition("?")[0], "--query", query)
        assert done(nodes, *words)["rows"] == 2
        query = "SELECT CASE WHEN name <> 'bob' THEN id + 20 END AS id, name FROM people"
        words = ("import", "default.copy", there.partition("?")[0], "--query", query)
        refused = done(nodes, *words, code=1)
        assert refused["error"]["code"] == "NULL_KEYS"
        assert "1 rows of the source have NULL in the primary key (id)" in str(refused["error"])
        skipped = done(nodes, *words, "--on-error", "skip", code=1)
        assert (skipped["rows"], skipped["skipped"]) == (2, 1)
        with psycopg.connect(there.partition("?")[0], autocommit=True) as connection:
            found = connection.execute("SELECT id, name, born FROM copy ORDER BY id").fetchall()
        assert [row[:2] for row in found] == [
            (1, "ann"),
            (2, "bob"),
            (3, "cleo"),
            (11, "ann"),
            (13, "cleo"),
            (21, "ann"),
            (23, "cleo"),
        ]
        table = Table.declare(
            "default", "copy", columns=[Column(1, "id", "int4")], primary_key=["id"]
        )
        ids: list[int] = []
        offset: Any = 0
        while offset is not None:
            piece = postgresql.read_piece(
                f"{there.partition('?')[0]}?table=copy", "", table, offset, 2
            )
            ids += [cells.values[0] for cells in piece.rows]
            offset = piece.offset
        assert ids == [1, 2, 3, 11, 13, 21, 23], "pieces follow each other by the key"
        query = "SELECT * FROM (VALUES (1), (2), (2), (3)) AS v(id)"
        piece = postgresql.read_piece(there.partition("?")[0], query, table, 0, 2)
        assert [cells.values[0] for cells in piece.rows] == [1, 2, 2], "none falls between pieces"
        odd = Table.declare(
            "default", "odd", columns=[Column(1, "a%s", "int4")], primary_key=["a%s"]
        )
        query = 'SELECT v AS "a%s" FROM (VALUES (1), (2), (3)) AS v(v) WHERE v % 5 > 0'
        piece = postgresql.read_piece(there.partition("?")[0], query, odd, 0, 2)
        piece = postgresql.read_piece(there.partition("?")[0], query, odd, piece.offset, 2)
        assert [cells.values[0] for cells in piece.rows] == [3], "names may have a percent sign"
        assert postgresql.count_keyless(there.partition("?")[0], query, odd) == 0
        assert_not_scanned(f"{there.partition('?')[0]}?table=copy", table)
        assert_values_are_kept(nodes, there.partition("?")[0])
        assert [row[2] for row in found] == [date(2001, 2, 3), *[None] * 6]
