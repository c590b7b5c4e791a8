"""Programs of other ecosystems against a node: Knex, TypeORM, Sequelize, node-pg-migrate, peewee,
and pgjdbc in a zone that is not UTC. What each prints was recorded against PostgreSQL 15
(tests/clients/sql/foreign/answers).

They need what a fresh machine has not: `make clients` gets it (scripts/clients.sh) and runs these.
Their statements are replayed by tests/sqlproxy/clients in every run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.machine import ROOT

pytestmark = [pytest.mark.clients, pytest.mark.cluster, pytest.mark.slow]

FOREIGN = ROOT / "tests" / "clients" / "sql" / "foreign"
TOOLS = ROOT / ".clients"
MIGRATIONS = "-c kvorum.autocommit_before_ddl=on"
RUN_S = 100


def ran(command: Sequence[str], needed: Path) -> list[str]:
    """The lines that a program prints."""
    if not needed.exists():
        pytest.fail(f"{needed} is not there: run `make clients`, which gets it")
    env = {
        **os.environ,
        "NODE_PATH": str(TOOLS / "node_modules"),
        "PYTHONPATH": str(TOOLS / "python"),
    }
    done = subprocess.run(
        command, cwd=FOREIGN, env=env, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def answers(program: str) -> list[str]:
    return (FOREIGN / "answers" / f"{program}.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("program", ["knex", "node_pg_migrate", "sequelize", "typeorm"])
def test_programs_for_node(sql: Sql, program: str) -> None:
    """Its migrations, its models or its queries would stop, or say something else."""
    options = [MIGRATIONS] if program in ("knex", "node_pg_migrate") else []
    command = ["node", f"{program}.js", str(sql.port), sql.database, *options]
    assert ran(command, TOOLS / "node_modules" / "pg") == answers(program)


def test_peewee(sql: Sql) -> None:
    """Its models, migrations and introspection would stop, or say something else."""
    command = [sys.executable, "peewee_program.py", str(sql.port), sql.database]
    assert ran(command, TOOLS / "python" / "peewee.py") == answers("peewee")


def test_pgjdbc_outside_utc(sql: Sql) -> None:
    """Every Java program that is not in UTC sends its zone at the start."""
    jar = TOOLS / "postgresql.jar"
    url = f"jdbc:postgresql://127.0.0.1:{sql.port}/{sql.database}"
    zone = "-Duser.timezone=America/New_York"
    assert ran(["java", zone, "-cp", str(jar), "Clients.java", url], jar) == answers("pgjdbc")
