"""Record what a PostgreSQL 15 answers for the types of SQL:
tests/sqlproxy/values/data/types_pg15.json.

python scripts/record_sql_types.py "host=127.0.0.1 port=5432 user=postgres dbname=postgres"
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, LiteralString

import psycopg

TARGET = Path(__file__).parents[1] / "tests/sqlproxy/values/data/types_pg15.json"
JSON = [
    '{"bb":1e2, "a":[1.50,"é"],"a":2}',
    '{"b":1,"aa":2,"c":3,"":4,"é":5}',
    "[ ]",
    "{}",
    '[1,[2,{"x":null}]]',
    "-0",
    "-0.0",
    "0e5",
    "1.5e3",
    "1.20e-3",
    "12.30E+2",
    "123456789012345678901234567890",
    '"\\u00e9\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\u0001\\""',
    "true",
    '"a\x7fb"',
    "1 2",
    "[1,]",
    "{a:1}",
    "01",
    "NaN",
    '"\\u0000"',
    '"\\ud800"',
    "",
    "1e400000",
    "'a'",
]
TEXTS = [
    "",
    "a",
    "abc",
    "abc ",
    "abcd",
    "abc  ",
    "ab    ",
    "éééé",
    "ééé  ",
    " a",
    "a b c",
    "x" * 70,
]
NUMBERS = [
    "0",
    "1.005",
    "99.994",
    "99.995",
    "-99.995",
    "0.00123",
    "0.000004",
    "0.00999",
    "0.01",
    "12345",
    "99949",
    "99950",
    "NaN",
    "Infinity",
    "1e-20",
]
TIMES = [
    "1999-03-04T05:06:07.499999",
    "1999-03-04T05:06:07.500000",
    "1999-03-04T05:06:07.999950",
    "2001-03-04T05:06:07.500000",
    "2001-03-04T05:06:07.049999",
    "2001-03-04T23:59:59.999999",
]


def main(server: str) -> None:
    connection = psycopg.connect(server, autocommit=True)

    def run(query: str, *values: Any) -> Any:
        text: LiteralString = query
        return connection.execute(text, values or None)

    def ask(query: str, value: str) -> Any:
        try:
            return run(query, value).fetchone()[0]
        except psycopg.Error as error:
            return ["!", error.diag.sqlstate]

    out: dict[str, Any] = {"jsonb": [[t, ask("select (%s::text)::jsonb::text", t)] for t in JSON]}
    out["cast"] = {
        kind: [[v, ask(f"select %s::text::{kind}", v)] for v in TEXTS]
        for kind in ("varchar(3)", "char(3)", "bpchar", "name", "text")
    }
    out["assign"] = {}
    for kind in ("varchar(3)", "char(3)", "bpchar", "varchar"):
        run(f"create temp table x(a {kind})")
        rows = [[v, ask("insert into x values (%s::text) returning a", v)] for v in TEXTS]
        out["assign"][kind] = rows
        run("drop table x")
    out["numeric"] = {
        kind: [[v, ask(f"select %s::numeric::{kind}::text", v)] for v in NUMBERS]
        for kind in ("numeric(4,2)", "numeric(3,5)", "numeric(3,-2)", "numeric(5,0)")
    }
    out["timestamp"] = {
        f"timestamp({p})": [[v, ask(f"select %s::timestamp({p})", v).isoformat()] for v in TIMES]
        for p in (0, 1, 3, 6)
    }
    TARGET.write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
