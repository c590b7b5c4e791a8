"""The statements of docs/guides/sql.md, word for word and in their order: what stands behind `-- →`
is the first row's values, or the SQLSTATE.
"""

from __future__ import annotations

import re

import psycopg
import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.machine import ROOT

pytestmark = pytest.mark.cluster

GUIDE = (ROOT / "docs" / "guides" / "sql.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def _said(db: psycopg.Connection, statement: str) -> str:
    """Its first row as psql -A shows it, or its error."""
    try:
        found = db.execute(statement, prepare=False)
    except psycopg.Error as error:
        return f"ERROR {error.sqlstate}"
    pg = found.pgresult
    assert pg is not None
    if not pg.ntuples:
        return ""
    return " | ".join((pg.get_value(0, n) or b"").decode() for n in range(pg.nfields))


def test_the_guides_statements(sql: Sql, db: psycopg.Connection) -> None:
    """Users copied a statement that does not work, or answers something else."""
    wrong = []
    for block in _blocks("sql"):
        for line in block.splitlines():
            statement, _, promised = line.partition("-- →")
            said = _said(db, statement)
            if promised.strip() != said and (promised or said.startswith("ERROR")):
                wrong.append(f"{statement.strip()} says {said!r}")
    assert not wrong, "\n".join(wrong)
    [program] = _blocks("python")
    program = program.replace("9003/postgres", f"{sql.port}/{sql.database}")
    exec(compile(program, "guide", "exec"), {"__name__": "guide"})
    found = db.execute("SELECT cents FROM account WHERE owner IN ('ann', 'bob') ORDER BY owner")
    assert found.fetchall() == [(401,), (120,)]
