"""Queries as PostgreSQL 15 answers them: recorded by scripts/record_sql_queries.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg

from scripts.record_sql_queries import answer
from tests.kit.each import each

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
DIFFERENT: dict[str, str] = json.loads((HERE / "differences.json").read_text(encoding="utf-8"))
"""What is refused, or said in other words: the SQLSTATE by query."""


@each("recorded", RECORDED, ids=[row[0] for row in RECORDED])
def test_p1_query_as_postgresql(filled: psycopg.Connection, recorded: list[Any]) -> None:
    """A join, an aggregate, a window or a set operation answers otherwise than PostgreSQL 15."""
    found = answer(filled.pgconn, recorded[0])
    refused = DIFFERENT.get(recorded[0])
    if refused is not None:
        assert found[1] == refused, "it is answered now: take it out of differences.json"
    else:
        assert found == recorded


def test_p1_few_queries_are_refused() -> None:
    """Most of what PostgreSQL answers is refused."""
    answered = [row for row in RECORDED if isinstance(row[1], list)]
    refused = [row for row in answered if row[0] in DIFFERENT]
    assert len(answered) >= 300
    assert len(refused) * 5 < len(answered)
