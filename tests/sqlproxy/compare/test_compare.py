"""Statements as PostgreSQL 15 answers them: recorded by scripts/record_sql_compare.py, which also
compares two live servers.

differences.json: case → [SQLSTATE here, or null for another answer, reason]; the reasons are told
in docs/reference/sql.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from scripts.record_sql_compare import HERE, asked, cases, files, fill
from tests.clients.sql.conftest import started
from tests.kit.processes import NodeProcess

node = pytest.fixture(scope="module", name="node")(started)

RECORDED: list[list[Any]] = [
    case for path in files() for case in json.loads(path.with_suffix(".json").read_text("utf-8"))
]
DIFFERENT: dict[str, list[str | None]] = json.loads((HERE / "differences.json").read_text("utf-8"))
STRIDE = 60


@pytest.fixture(scope="module")
def filled(node: NodeProcess) -> Iterator[psycopg.Connection]:
    """A database with the tables of schema.sql."""
    with fill(f"host=127.0.0.1 port={node.base + 3} user=kvorum", "compare") as connection:
        yield connection


@pytest.mark.few(5)
@pytest.mark.parametrize("first", range(0, len(RECORDED), STRIDE))
def test_p1_statement_answers_as_postgresql(filled: psycopg.Connection, first: int) -> None:
    """Values, types, names of columns, tags, SQLSTATEs or words differ from PostgreSQL 15."""
    wrong = []
    for recorded in RECORDED[first : first + STRIDE]:
        found = asked(filled.pgconn, recorded[0])
        if recorded[0] not in DIFFERENT:
            if found != recorded:
                wrong.append(f"{recorded}\n  is answered with {found[1:]}")
        elif found == recorded:
            wrong.append(f"{recorded[0]} is the same now: take it out of differences.json")
        else:
            first_one = next(b for a, b in zip(recorded[1:], found[1:], strict=True) if a != b)
            if first_one.get("error") != DIFFERENT[recorded[0]][0]:
                wrong.append(f"{recorded[0]}\n  is answered with {first_one}")
    assert not wrong, "\n".join(wrong)


def test_p1_what_is_recorded_is_what_is_asked() -> None:
    """A case was added and not recorded, so it is not compared; or a difference is of no case."""
    asked_for = [case for path in files() for case in cases(path)]
    assert [row[0] for row in RECORDED] == asked_for
    assert len(asked_for) == len(set(asked_for)) >= 1_300
    assert set(DIFFERENT) <= set(asked_for)
    assert len(DIFFERENT) * 12 < len(asked_for)
