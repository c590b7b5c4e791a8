"""DuckDB's own errors, raised by DuckDB, as clients see them."""

from __future__ import annotations

import duckdb
import pytest

from kv.base.disk_space import DISK_FREE
from kv.base.errors import Unavailable
from sqlproxy.duck import duckerrors
from sqlproxy.values.errors import from_store

_CASES = [
    ("SELECT 1 // 0", "22012", "division by zero"),
    ("SELECT 1 % 0", "22012", "division by zero"),
    ("SELECT CAST('x' AS INTEGER)", "22P02", 'invalid input syntax for type integer: "x"'),
    ("SELECT CAST('x' AS BIGINT)", "22P02", 'invalid input syntax for type bigint: "x"'),
    ("SELECT CAST('y' AS BOOLEAN[])", "22P02", None),
    ("SELECT CAST('soon' AS DATE)", "22P02", None),
    ("SELECT CAST('soon' AS TIMESTAMP)", "22P02", None),
    ("SELECT CAST(2147483647 AS INTEGER) + CAST(1 AS INTEGER)", "22003", "integer out of range"),
    ("SELECT CAST(9223372036854775807 AS BIGINT) * 2", "22003", None),
    ("SELECT CAST(70000 AS SMALLINT)", "22003", "smallint out of range"),
    ("SELECT CAST(1e10 AS INTEGER)", "22003", "integer out of range"),
    (
        "SELECT (SELECT * FROM range(2))",
        "21000",
        "more than one row returned by a subquery used as an expression",
    ),
    (
        "SELECT ntile(0) OVER () FROM range(2)",
        "22014",
        "argument of ntile must be greater than zero",
    ),
    ("SELECT regexp_matches('a', '[')", "2201B", None),
    (
        "SELECT error('KV:22003:value out of range: overflow')",
        "22003",
        "value out of range: overflow",
    ),
    (
        "SELECT error('KVORUM|42P01|relation \"x\" does not exist')",
        "42P01",
        'relation "x" does not exist',
    ),
    ("SELECT * FROM range(1) a(x) RIGHT JOIN LATERAL (SELECT a.x) ON true", "42P10", None),
    ("SELECT no_such_function(1)", "XX000", None),
]


@pytest.mark.parametrize(("text", "state", "words"), _CASES, ids=[case[0] for case in _CASES])
def test_what_duckdb_says_becomes_an_sqlstate(text: str, state: str, words: str | None) -> None:
    """A client is told of an internal error, or in DuckDB's words, where its data are wrong."""
    with duckdb.connect() as link, pytest.raises(duckdb.Error) as failed:
        link.execute(text).fetchall()
    told = duckerrors.as_sql_error(failed.value, memory="too little")
    assert told.sqlstate == state, failed.value
    if words is not None:
        assert told.message == words


def test_a_full_disk_is_told_as_one() -> None:
    """40001 has clients repeat a statement for which there is no room."""
    found = from_store(Unavailable("the disk is full", details={"what": DISK_FREE}))
    assert (found.sqlstate, found.message) == ("53100", "the disk is full")
    assert from_store(Unavailable("not now")).sqlstate == "40001"
