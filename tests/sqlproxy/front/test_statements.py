"""Statements as PostgreSQL 15 describes them: recorded by scripts/record_sql_statements.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sqlproxy.front import front
from sqlproxy.values.errors import SqlError
from tests.kit.each import each
from tests.sqlproxy.front.names import FakeNames

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "statements.json").read_text(encoding="utf-8"))
DIFFERENT = json.loads((HERE / "statement_differences.json").read_text(encoding="utf-8"))
TABLES = {16_389: "t", 16_390: "u", 16_391: "w", 0: ""}


def answer(text: str) -> list[Any]:
    """[parameters, fields] or [SQLSTATE, message, position]."""
    try:
        bound = front.bind(front.parse(text), FakeNames())
    except SqlError as error:
        return [error.sqlstate, error.message, error.position]
    fields = None
    if getattr(bound, "fields", ()):
        fields = [[f.name, f.oid, f.typmod, TABLES[f.table], f.column] for f in bound.fields]
    return [list(bound.parameters), fields]


@each("row", RECORDED, ids=[row[0] for row in RECORDED])
def test_p1_statement_as_postgresql(row: list[Any]) -> None:
    """A client is told other columns, parameters or errors than by PostgreSQL 15."""
    text, *wanted = row
    assert answer(text) == DIFFERENT.get(text, wanted)
