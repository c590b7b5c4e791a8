"""Expressions as PostgreSQL 15 answers them: recorded by scripts/record_sql_expressions.py."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlproxy.front import front
from sqlproxy.front.bound.env import Env
from sqlproxy.front.closures import compiling
from sqlproxy.front.functions.f_text import output
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values.errors import SqlError
from tests.kit.each import each
from tests.sqlproxy.front.names import FakeNames, known_differences

RECORDED = json.loads(Path(__file__).with_name("expressions.json").read_text(encoding="utf-8"))
DIFFERENT = known_differences()
NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ENV = Env(
    now=NOW,
    statement_now=NOW,
    session={"user": "postgres", "database": "postgres", "process": "1"},
    clock=lambda: NOW,
    random=lambda: 0.5,
    uuid=lambda: UUID(int=7),
)


def answer(expression: str) -> list[Any]:
    """[OID, typmod, text] or [SQLSTATE, message]."""
    try:
        bound = front.bind(front.parse(f"SELECT {expression}"), FakeNames())
        field = bound.fields[0]
        try:
            value = compiling.compile(bound.targets[0].expr).fn((), ENV)
        except compiling.CannotCompile as error:
            if "in an expression over one row" not in error.message:
                raise
            return [field.oid, field.typmod]  # an aggregate: others evaluate it
        write = output(field.oid, DEFAULT)
        return [field.oid, field.typmod, None if value is None else write(value)]
    except SqlError as error:
        return [error.sqlstate, error.message, error.position]


@each("row", RECORDED, ids=[row[0] for row in RECORDED])
def test_p1_expression_as_postgresql(row: list[Any]) -> None:
    """A value, its type, its modifier or the error's SQLSTATE and words differ from PostgreSQL
    15's.
    """
    expression, *wanted = row
    found = answer(expression)
    if expression in DIFFERENT:
        assert found[: len(DIFFERENT[expression])] == DIFFERENT[expression]
        return
    if isinstance(wanted[0], str):
        assert found[:2] == wanted[:2]
    else:
        assert found == wanted[: max(len(found), 2)]


def test_p1_enough_was_recorded() -> None:
    """The record shrank: it is what holds the expressions to PostgreSQL's."""
    failing = sum(isinstance(row[1], str) for row in RECORDED)
    assert len(RECORDED) - failing >= 600
    assert failing >= 200
