"""The log of requests says of SQL who asked for what, and what was decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.kit.waiting import poll

PASSWORD = "a password of nobody"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 1])
def test_each_decision_of_sql_is_a_line(tmp_path: Path, processes: int) -> None:
    """Whoever went around HTTP by SQL left no trace; or the log had passwords."""
    log = tmp_path / "requests.log"
    options = ("--audit", str(log), "--sql-processes", str(processes))
    with NodeProcess(tmp_path / "data", free_port_base(), *options) as node:
        node.start()
        url = f"host=127.0.0.1 port={node.base + 3} dbname=postgres application_name=shop"
        with psycopg.connect(f"{url} user=kvorum", autocommit=True) as conn:
            conn.execute("CREATE TABLE t (a int PRIMARY KEY)")
            conn.execute("CREATE USER eve")
            conn.execute(f"CREATE USER ann SUPERUSER PASSWORD '{PASSWORD}'")
        with psycopg.connect(f"{url} user=ann", password=PASSWORD, autocommit=True) as conn:
            for _ in range(7):  # the last ones by a prepared statement
                conn.execute("SELECT a FROM t WHERE a = %s", [1], prepare=True)
            conn.execute("SET ROLE eve")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("DELETE FROM t")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(f"{url} user=ann", password="wrong")
        with pytest.raises(psycopg.OperationalError):  # he proves who he is, and may not go in
            psycopg.connect(f"{url} user=ann dbname=nowhere", password=PASSWORD)
        file = log if not processes else log.with_name(f"{log.name}.sql0")

        def lines() -> list[dict[str, Any]]:
            found = [json.loads(line) for line in file.read_text().splitlines()]
            found = [line for line in found if line.get("surface") == "sql" and "user" in line]
            return found if len([x for x in found if x["method"] == "login"]) >= 4 else []

        found = poll(lines)
        selects = [line for line in found if line["method"] == "select" and line["user"] == "ann"]
        assert len(selects) == 7
        assert {line["credential"] for line in selects} == {"password"}
        assert {tuple(line["table"]) for line in selects} == {("postgres.t",)}
        assert {line["said"] for line in selects} == {"shop"}
        assert all(line["client"] == "127.0.0.1" and line["allowed"] for line in selects)
        (denied,) = [line for line in found if line["method"] == "delete"]
        assert (denied["allowed"], denied["code"]) == (False, "42501")
        assert "permission denied" in denied["denied"]
        first, second, failed, late = [line for line in found if line["method"] == "login"]
        for line, user, credential in ((first, "kvorum", "loopback"), (second, "ann", "password")):
            assert (line["user"], line["credential"]) == (user, credential)
            assert (line["allowed"], line["code"]) == (True, "OK")
        assert (late["user"], late["credential"]) == ("ann", "password")
        assert (late["allowed"], late["code"]) == (False, "3D000")
        assert (failed["user"], failed["allowed"]) == ("ann", False)
        assert len({line["request"] for line in found}) == len(found)
        assert PASSWORD not in file.read_text()
