"""One node process and one Spark session for all tests of this directory, and a namespace of each
file's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kvorum
from tests.kit.machine import ROOT, free_port_base, java_home
from tests.kit.processes import NodeProcess

# What the JVM compiles well is run a few times here; its threads took a core from the other tests.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def namespace_of(module: str) -> str:
    """Of a test file: no other one's tables and types meet its own on the node that all share."""
    return module.rpartition(".")[2]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """`python -m kvorum start` on free ports."""
    with NodeProcess(tmp_path_factory.mktemp("kvorum") / "data", free_port_base()) as node:
        node.start()
        yield node


@pytest.fixture(scope="module")
def db(node: NodeProcess, request: pytest.FixtureRequest) -> Iterator[kvorum.Database]:
    with kvorum.connect(node.url) as db:
        db.create_namespace(namespace_of(request.module.__name__))
        yield db


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A small local session. The source is found by its package's name: nobody registers it."""
    home, advice = java_home()
    if home is None:
        pytest.fail(advice, pytrace=False)
    os.environ["JAVA_HOME"] = home
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", _SHORT_LIVED)
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def options(node: NodeProcess, request: pytest.FixtureRequest) -> Callable[..., dict[str, str]]:
    """`options("table", where="…")`: the options of one load or save."""

    def make(table: str, **more: str) -> dict[str, str]:
        return {
            "endpoint": f"127.0.0.1:{node.base}",
            "table": f"{namespace_of(request.module.__name__)}.{table}",
            "timeoutMs": "30000",
            **more,
        }

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For sources and checkpoints of a stream."""
    (tmp_path / "source").mkdir()
    return tmp_path
