"""Changes whose rows a join finds, as PostgreSQL 15 makes them: scripts/record_sql_queries.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from scripts.record_sql_queries import changed

RECORDED = json.loads(Path(__file__).with_name("changed.json").read_text(encoding="utf-8"))


@pytest.mark.few(10)
@pytest.mark.parametrize("recorded", RECORDED, ids=[row[0] for row in RECORDED])
def test_p1_change_as_postgresql(filled: psycopg.Connection, recorded: list[Any]) -> None:
    """UPDATE FROM, DELETE USING, MERGE or a subquery changes other rows than in PostgreSQL 15."""
    with filled.transaction(force_rollback=True):
        found = changed(filled.pgconn, recorded[0])
    assert found == recorded
