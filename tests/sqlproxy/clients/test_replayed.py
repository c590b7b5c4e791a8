"""The statements that Knex, TypeORM, Sequelize, node-pg-migrate, peewee, pgjdbc (recorded by
tests/sqlproxy/clients/record.py) and dbmate (as its source says) send, in order: each is done, or
fails, as in PostgreSQL 15.

`make clients` runs the programs themselves (tests/clients/sql/foreign).
"""

from __future__ import annotations

import json
from typing import Any, Final

import psycopg
import pytest

from tests.clients.sql.conftest import started
from tests.kit.processes import NodeProcess
from tests.sqlproxy.clients.record import FILE, answer

pytestmark = pytest.mark.slow

node = pytest.fixture(scope="module", name="node")(started)

STATEMENTS: Final[dict[str, list[list[Any]]]] = json.loads(FILE.read_text(encoding="utf-8"))
MIGRATIONS: Final = "-c kvorum.autocommit_before_ddl=on"
"""They change rows and tables in one transaction: docs/guides/sql.md."""


@pytest.mark.parametrize("program", sorted(STATEMENTS))
def test_statements_of_a_program_end_as_in_postgresql(node: NodeProcess, program: str) -> None:
    """A release of Kvorum would stop the program, or not tell it what it waits for."""
    address = f"host=127.0.0.1 port={node.base + 3} user=kvorum"
    name = f"of_{program}"
    with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    options = MIGRATIONS if program in ("knex", "node_pg_migrate") else ""
    with psycopg.connect(f"{address} dbname={name}", autocommit=True, options=options) as link:
        different = [
            (sql, values, wanted, found)
            for sql, values, wanted in STATEMENTS[program]
            if (found := answer(link.pgconn, sql, values)) != wanted
        ]
    assert different == []
