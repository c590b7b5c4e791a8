"""One node, and a database on it through each surface."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import kvorum
from tests.kit.machine import free_port_base

PROCEDURES = "tests.kvorum.surfaces.sample_procedures"
SURFACES = ("embedded", "sdk", "http")
_HERE = Path(__file__).parent
_names = itertools.count(1)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Of a test through each surface `make test` runs one, not the same one of all tests; those of
    test_suite.py, which are about that, all three.
    """
    here = [one for one in items if one.path.parent == _HERE and one.path.name != "test_suite.py"]
    for item in here:
        spec = getattr(item, "callspec", None)
        if spec is None or "db" not in spec.indices or item.get_closest_marker("few"):
            continue
        if spec.indices["db"] != zlib.crc32(item.originalname.encode()) % len(SURFACES):
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True, slots=True)
class Served:
    """A running node and the three ways to it."""

    base: int
    by_name: dict[str, kvorum.Database]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.base}"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The node is embedded in this process; SDK and HTTP reach it over its ports."""
    base = free_port_base()
    data: Path = tmp_path_factory.mktemp("surfaces") / "data"
    with (
        kvorum.open(data, port=base, procedure_modules=[PROCEDURES]) as embedded,
        kvorum.connect(f"kvorum://127.0.0.1:{base}") as sdk,
        kvorum.connect(f"http://127.0.0.1:{base + 2}") as http,
    ):
        yield Served(base, {"embedded": embedded, "sdk": sdk, "http": http})


@pytest.fixture(params=SURFACES)
def db(served: Served, request: pytest.FixtureRequest) -> kvorum.Database:
    """The database through one surface."""
    return served.by_name[request.param]


@pytest.fixture
def table(db: kvorum.Database) -> kvorum.Table:
    """A new table of three partitions: below "h", below "p", and the rest."""
    name = f"t{next(_names)}"
    db.create_table("default", name, split_keys=["h", "p"])
    return db.table("default", name)


@pytest.fixture(scope="session")
def http(served: Served) -> Iterator[httpx.Client]:
    """A plain client of the node's API, with a table default.web."""
    served.by_name["embedded"].create_table("default", "web", split_keys=["m"])
    with httpx.Client(base_url=f"http://127.0.0.1:{served.base + 2}", timeout=20) as client:
        yield client


def error_of(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of a refusal, whose body must be complete."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"code", "message", "retry", "details"}
    assert error["code"] == code
    assert error["message"]
    return error
