"""Statements that nobody would write: calls of every function that `pg_proc` shows, with operators,
casts, large and strange literals, in every clause. After SQLsmith, which draws them from the
catalog, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sqlproxy.front.functions.all_functions import FUNCTIONS as OURS

_LITERALS: Final[Mapping[str, tuple[str, ...]]] = {
    "number": (
        *("0", "-1", "1.5", "2147483647", "-9223372036854775808", "1e308", "'NaN'::float8"),
        *("99999999999999999999999999999999999999::numeric", "NULL", "50000::numeric", "1000000"),
    ),
    "text": (
        *("''", "'abc'", "repeat('a', 40)", "repeat('x', 200000)", "'%a%a%a%a%b'", "NULL"),
        *("'^(a+)+$'", "E'\\x00'", "'{1,2}'", "'[[[[1]]]]'", "U&'\\2014'", "repeat('9', 10000)"),
        *("'(?=a)(a|b)*\\1'", "'FMMonth TH'", "'1 year'", "'2024-02-30'"),
    ),
    "array": (
        *("'{}'::int[]", "array[1,2,null]", "array['a','b']", "array[[1,2],[3,4]]"),
        *("NULL::text[]", "array_fill(1, array[1000])"),
    ),
    "json": ("'{}'::jsonb", "'[1,[2,{\"a\":null}]]'::jsonb", "NULL::jsonb", "'1e400'::jsonb"),
    "time": (
        *("now()", "'infinity'::timestamptz", "'4714-01-01 BC'::date", "interval '1e6 years'"),
        *("'24:00'::time", "NULL::timestamp"),
    ),
    "bytes": ("'\\x'::bytea", "repeat('x', 100000)::bytea", "NULL::bytea"),
    "other": ("NULL", "true", "a0", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "row(1,'a')"),
}
_OF_TYPE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8", "numeric", "oid"), "number"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "char", "regclass"), "text"),
    **dict.fromkeys(("json", "jsonb", "jsonpath"), "json"),
    **dict.fromkeys(("date", "time", "timetz", "timestamp", "timestamptz", "interval"), "time"),
    "bytea": "bytes",
}
_OPERATORS: Final = (
    *("+", "-", "*", "/", "%", "^", "||", "=", "<>", "<", ">=", "~", "!~*", "LIKE", "->", "->>"),
    *("@>", "<@", "&&", "#>", "?", "AND", "OR", "IS DISTINCT FROM", "SIMILAR TO"),
)
_TYPES: Final = (
    *("int", "bigint", "numeric(10,2)", "text", "varchar(3)", "float8", "jsonb", "date", "uuid"),
    *("timestamptz", "interval", "bytea", "bool", "int[]", "text[]", "regclass"),
)
_SHAPES: Final = (
    "SELECT {0}",
    "SELECT {0} FROM t",
    "SELECT a0 FROM t WHERE {0} IS NOT NULL",
    "SELECT a0 FROM t WHERE ({0})::text = ({1})::text ORDER BY {2} LIMIT 3",
    "SELECT count(*), max(({0})::text) FROM t GROUP BY {1} HAVING count(*) > 0",
    "SELECT {0} FROM generate_series(1, 100) g LIMIT 5",
    "WITH w AS (SELECT {0} x FROM t) SELECT * FROM w JOIN t ON ({1})::text = a1",
    "SELECT array_agg({0}) OVER (ORDER BY {1}) FROM t",
    "INSERT INTO t (a0, a1) SELECT 5, ({0})::text WHERE false",
    "UPDATE t SET a1 = ({0})::text WHERE a0 = 1",
    "DELETE FROM t WHERE a0 = 99 AND ({0}) IS NULL",
    "VALUES ({0}), ({1})",
    "SELECT CASE WHEN {0} IS NULL THEN {1} ELSE {2} END",
    "SELECT coalesce({0}, {1})",
    "SELECT ({0}) IN ({1}, {2})",
    "SELECT string_agg(({0})::text, ({1})::text) FROM t",
    "EXPLAIN SELECT {0}",
)
_WAITS: Final = ("pg_sleep", "advisory", "lo_", "terminate", "cancel_backend")
TABLE: Final = (
    "CREATE TABLE t (a0 int PRIMARY KEY, a1 text, a2 numeric, a3 jsonb, a4 timestamptz)",
    "INSERT INTO t SELECT g, 'v' || g, g / 3.0, '{}', now() FROM generate_series(1, 50) g",
)
FUNCTIONS: Final = (
    "SELECT p.proname, p.prosrc, array(SELECT t.typname::text"
    " FROM unnest(p.proargtypes) WITH ORDINALITY a(o, n) JOIN pg_type t ON t.oid = a.o ORDER BY n)"
    " FROM pg_proc p WHERE p.prokind = 'f'"
)
"""Name, what computes it, and types of the arguments."""


_CALLS_EACH: Final = 16
_ARRAYS: Final = ("'{}'", "'{NULL}'", "'{3}'", "'{{1,2},{3,4}}'", "'{{{1}}}'")


def _literals(type_: str) -> Sequence[str]:
    """Values of that type, and some of another."""
    if type_.startswith("any"):
        array, element = [f"{one}::int[]" for one in _ARRAYS], _LITERALS["other"]
        return array if type_.endswith("array") else [*array, *element]
    if type_.startswith("_"):
        return [f"{one}::{type_[1:]}[]" for one in _ARRAYS]
    kind = _OF_TYPE.get(type_, "other")
    return [f"({one})::{type_}" for one in (*_LITERALS[kind], "NULL") if one != "a0"]


class Statements:
    """`make` gives one after the other; the same seed and functions give the same ones."""

    def __init__(self, seed: int, functions: Iterable[tuple[str, str, list[str]]]) -> None:
        self._rng = random.Random(seed)
        known = {(name, source, tuple(types)) for name, source, types in functions}
        usable = sorted(
            one
            for one in known
            if not any(word in one[0] for word in _WAITS)
            and not any(t in ("internal", "cstring") or t.startswith("reg") for t in one[2])
        )
        self._all = [(name, types) for name, _, types in usable]
        self._ours = [(name, types) for name, source, types in usable if source in OURS]

    def make(self) -> str:
        """A statement; nobody says that it is right."""
        return self._rng.choice(_SHAPES).format(*(self._value(3) for _ in range(3)))

    def calls(self) -> Iterator[str]:
        """Each function with literals of its types, _CALLS_EACH times."""
        for name, types in self._ours:
            for _ in range(_CALLS_EACH if types else 1):
                given = (self._rng.choice(_literals(one)) for one in types)
                yield f'SELECT "{name}"({", ".join(given)})'

    def _value(self, depth: int, kind: str = "") -> str:
        rng = self._rng
        if depth == 0 or rng.random() < 0.2:
            return self._literal(kind)
        match rng.randrange(8):
            case 0:
                operator = rng.choice(_OPERATORS)
                return f"({self._value(depth - 1)} {operator} {self._value(depth - 1)})"
            case 1:
                return f"({self._value(depth - 1)})::{rng.choice(_TYPES)}"
            case 2:
                return f"(SELECT {self._value(depth - 1)})"
            case _:
                name, types = rng.choice(self._ours if rng.random() < 0.9 else self._all)
                if rng.random() < 0.05:
                    types = (*types, "text")
                given = (self._argument(depth - 1, one) for one in types)
                return f'"{name}"({", ".join(given)})'

    def _argument(self, depth: int, type_: str) -> str:
        """Of that type, nearly always: what has the wrong one gets no further than its binding."""
        value = self._value(depth, self._kind(type_))
        known = type_.startswith("_") or type_ in _OF_TYPE or type_ in ("bool", "uuid")
        if known and self._rng.random() < 0.95:
            return f"({value})::{type_}"
        return value

    def _literal(self, kind: str) -> str:
        rng = self._rng
        if not kind or rng.random() < 0.1:
            kind = rng.choice(sorted(_LITERALS))
        return rng.choice(_LITERALS[kind])

    def _kind(self, name: str) -> str:
        if name.startswith(("_", "any")):
            return "array" if "array" in name or name.startswith("_") else ""
        return _OF_TYPE.get(name, "text")
