"""What DuckDB says went wrong, as PostgreSQL says it. For both of our DuckDBs; nobody else reads
its words. What is in no line of the table is our own fault, XX000: a statement was translated into
what DuckDB refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import duckdb

from sqlproxy.values.errors import (
    DIVISION_BY_ZERO,
    INTERNAL_ERROR,
    INVALID_TEXT,
    OUT_OF_MEMORY,
    OUT_OF_RANGE,
    QUERY_CANCELED,
    SqlError,
    disk_full,
)
from sqlproxy.values.words import by_word

_OUT: Final = ("Out of Memory", "MemoryError", "bad_alloc", "Cannot allocate memory")
_TYPES: Final = by_word(
    {
        "smallint": "INT8 INT16 UINT8",
        "integer": "INT32 UINT16",
        "bigint": "INT64",
        "oid": "UINT32",
        "numeric": "INT128 UINT64 DECIMAL",
        "real": "FLOAT",
        "double precision": "DOUBLE",
        "boolean": "BOOL",
        "date": "DATE",
        "time": "TIME",
        "timestamp": "TIMESTAMP",
        "interval": "INTERVAL",
        "uuid": "UUID",
        "bytea": "BLOB",
    }
)


def _named(duck: str) -> str:
    return _TYPES.get(duck.partition("(")[0], duck.lower())


def _out_of_range(text: str) -> str:
    found = re.findall(r"\bU?INT(?:8|16|32|64|128)\b", text)
    return f"{_named(found[-1]) if found else 'value'} out of range"


Words = Callable[[re.Match[str]], str]
_TABLE: Final[tuple[tuple[re.Pattern[str], str, Words], ...]] = tuple(
    (re.compile(pattern, re.DOTALL), state, words)
    for pattern, state, words in (
        (r"KV:(\w{5}):([^\n]*)", "", lambda m: m[2].rstrip("!")),  # raised by our own texts
        (r"KVORUM\|(\w{5})\|([^\n]*)", "", lambda m: m[2]),
        (
            r"The combining JOIN type must be INNER or LEFT for a LATERAL reference",
            "42P10",
            lambda m: f"invalid reference to FROM-clause entry: {m[0]}",
        ),
        (
            r"Could not convert string '(.*?)' to (\w+)",
            INVALID_TEXT,
            lambda m: f'invalid input syntax for type {_named(m[2])}: "{m[1]}"',
        ),
        (r"[Dd]ivision by zero", DIVISION_BY_ZERO, lambda m: "division by zero"),
        (
            r"Argument for ntile must be greater than zero",
            "22014",
            lambda m: "argument of ntile must be greater than zero",
        ),
        (
            r"More than one row returned by a subquery",
            "21000",
            lambda m: "more than one row returned by a subquery used as an expression",
        ),
        (
            r"(?:missing|invalid|unexpected|no argument for|bad|trailing)[^\n]*: [^\n]*\Z",
            "2201B",
            lambda m: f"invalid regular expression: {m[0]}",
        ),
        (
            r"invalid (?:date|timestamp|time|interval) field format: \"(.*?)\"",
            INVALID_TEXT,
            lambda m: f'invalid input syntax: "{m[1]}"',
        ),
        (
            r"(?:date|timestamp|interval|time)[^\n]*out of range",
            "22008",
            lambda m: "timestamp out of range",
        ),
        (
            r".*(?:Overflow|[Oo]ut of [Rr]ange|out of range).*",
            OUT_OF_RANGE,
            lambda m: _out_of_range(m[0]),
        ),
    )
)
"""What is found in the words, the SQLSTATE ("": in the words themselves), PostgreSQL's words."""


def as_sql_error(error: Exception, *, memory: str, hint: str = "") -> SqlError:
    """`memory`, `hint`: what to say when there was not enough of it."""
    text = str(error)
    if isinstance(error, duckdb.InterruptException):
        return SqlError(QUERY_CANCELED, "canceling statement due to user request")
    if "max_temp_directory_size" in text:
        return disk_full()
    out = isinstance(error, duckdb.OutOfMemoryException | MemoryError)
    if out or any(words in text for words in _OUT):
        return SqlError(OUT_OF_MEMORY, "out of memory", detail=memory, hint=hint)
    for pattern, state, words in _TABLE:
        if state == "2201B" and not isinstance(error, duckdb.InvalidInputException):
            continue
        if (found := pattern.search(text)) is not None:
            return SqlError(state or found[1], words(found))
    first = text.split("\n")[0].partition(": ")[2] or text
    if isinstance(error, duckdb.ConversionException):
        return SqlError(INVALID_TEXT, first)
    return SqlError(INTERNAL_ERROR, f"the query could not be run: {first}")
