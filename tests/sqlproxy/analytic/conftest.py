"""A node, and a database with the tables of schema.sql."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.clients.sql.conftest import started
from tests.kit.processes import NodeProcess

node = pytest.fixture(scope="package", name="node")(started)

HERE = Path(__file__).parent


@pytest.fixture(scope="package")
def filled(node: NodeProcess) -> Iterator[psycopg.Connection]:
    """A database with the tables of schema.sql."""
    address = f"host=127.0.0.1 port={node.base + 3} user=kvorum"
    with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
        connection.execute("create database analytic")
    with psycopg.connect(f"{address} dbname=analytic", autocommit=True) as connection:
        connection.execute((HERE / "schema.sql").read_bytes())
        connection.execute("set timezone = 'UTC'")
        yield connection
