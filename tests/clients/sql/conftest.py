"""One node for all tests of a process, and a database of its own for every test."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess

REPEATABLE_READ: Final = "-c default_transaction_isolation=repeatable\\ read"
"""Options of a connection whose blocks lock nothing until they commit."""


@dataclass(frozen=True)
class Sql:
    """Where a test's database is. `node`: the whole node, which tests do not stop."""

    node: NodeProcess
    database: str

    @property
    def port(self) -> int:
        return self.node.base + 3

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=kvorum dbname={self.database}"

    def url(self, driver: str = "psycopg") -> str:
        """For SQLAlchemy."""
        return f"postgresql+{driver}://kvorum@127.0.0.1:{self.port}/{self.database}"

    def connect(self, **options: Any) -> psycopg.Connection:
        return psycopg.connect(self.dsn, **options)


def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node as `kvorum start` gives it: the fixture `node` here, and of other files, where it ends
    with them.
    """
    data: Path = tmp_path_factory.mktemp("sql") / "data"
    with NodeProcess(data, free_port_base()) as found:
        found.start()
        yield found
        assert found.stop() == 0, found.tail()
        log = found.log.read_text(errors="replace")
        if "Traceback" in log:
            warnings.warn(log[log.index("Traceback") - 300 :][:3000], stacklevel=1)


node = pytest.fixture(scope="session", name="node")(started)
_numbers = itertools.count(1)


@pytest.fixture
def sql(node: NodeProcess) -> Sql:
    """A database that nothing else uses."""
    name = f"d{next(_numbers)}"
    with Sql(node, "postgres").connect(autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    return Sql(node, name)


@pytest.fixture
def db(sql: Sql) -> Iterator[psycopg.Connection]:
    """An autocommit connection to it."""
    with sql.connect(autocommit=True) as conn:
        yield conn
