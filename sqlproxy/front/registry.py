"""PostgreSQL's tables of types, casts, operators and functions, as far as they are about types that
Kvorum has.

The rows are PostgreSQL 15's own (tables.json, written by scripts/record_sql_tables.py), so that a
name means here what it means there. A type is its OID. `Proc.source` is PostgreSQL's name of the C
function behind a row: the key of what `sqlproxy.front.functions.functions` does for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import msgspec

from sqlproxy.values import enums

BOOL: Final = 16
BYTEA: Final = 17
CHAR: Final = 18
NAME: Final = 19
INT8: Final = 20
INT2: Final = 21
INT4: Final = 23
TEXT: Final = 25
OID: Final = 26
JSON: Final = 114
FLOAT4: Final = 700
FLOAT8: Final = 701
UNKNOWN: Final = 705
BPCHAR: Final = 1042
VARCHAR: Final = 1043
DATE: Final = 1082
TIME: Final = 1083
TIMESTAMP: Final = 1114
TIMESTAMPTZ: Final = 1184
INTERVAL: Final = 1186
NUMERIC: Final = 1700
REGCLASS: Final = 2205
REGTYPE: Final = 2206
RECORD: Final = 2249
ANY: Final = 2276
ANYARRAY: Final = 2277
TID: Final = 27
XID: Final = 28
CID: Final = 29
VOID: Final = 2278
ANYELEMENT: Final = 2283
ANYNONARRAY: Final = 2776
ANYENUM: Final = 3500
UUID: Final = 2950
JSONB: Final = 3802
JSONPATH: Final = 4072
ANYCOMPATIBLE: Final = 5077
ANYCOMPATIBLEARRAY: Final = 5078
ANYCOMPATIBLENONARRAY: Final = 5079

SIMPLE_POLYMORPHIC: Final = frozenset((ANYELEMENT, ANYARRAY, ANYNONARRAY, ANYENUM))
COMPATIBLE_POLYMORPHIC: Final = frozenset(
    (ANYCOMPATIBLE, ANYCOMPATIBLEARRAY, ANYCOMPATIBLENONARRAY)
)
POLYMORPHIC: Final = SIMPLE_POLYMORPHIC | COMPATIBLE_POLYMORPHIC
INTEGERS: Final = frozenset((INT2, INT4, INT8))


@dataclass(frozen=True, slots=True)
class TypeRow:
    oid: int
    name: str
    category: str
    preferred: bool
    element: int  # of a true array; 0 = it is none
    array: int
    length: int


@dataclass(frozen=True, slots=True)
class CastRow:
    context: str  # i implicit, a assignment, e explicit only
    method: str  # f function, i by text, b the same representation
    source: str


@dataclass(frozen=True, slots=True)
class Proc:
    """A function or what an operator calls. `kind`: f function, a aggregate, w window function, o
    operator.
    """

    name: str
    args: tuple[int, ...]
    result: int
    source: str
    kind: str = "f"
    strict: bool = True
    volatile: str = "i"  # i immutable, s stable, v volatile
    returns_set: bool = False
    defaults: int = 0
    variadic: int = 0  # the element's type of VARIADIC, 0 = none
    aggregate_kind: str = ""  # n normal, o ordered set, h hypothetical set
    direct_args: int = 0
    out: tuple[tuple[str, int], ...] = ()
    commutator: str = ""
    negator: str = ""
    field: int = -1  # the place of the one column that is asked for of what returns several


def _load() -> tuple[
    dict[int, TypeRow],
    dict[tuple[int, int], CastRow],
    dict[str, tuple[Proc, ...]],
    dict[str, tuple[Proc, ...]],
]:
    data: dict[str, list[list[Any]]] = msgspec.json.decode(
        files("sqlproxy.front").joinpath("tables.json").read_bytes()
    )
    # int2vector and its like have elements but are not what ARRAY[…] makes.
    types = {
        t[0]: TypeRow(t[0], t[1], t[2], t[3], t[4] if t[6] == -1 and t[2] == "A" else 0, t[5], t[6])
        for t in data["types"]
    }
    casts = {(c[0], c[1]): CastRow(c[2], c[3], c[4]) for c in data["casts"]}
    operators: dict[str, list[Proc]] = {}
    for name, left, right, result, source, volatile, commutator, negator in data["operators"]:
        args = (left, right) if left else (right,)
        source = source or f"{name}({','.join(map(str, args))})"
        operators.setdefault(name, []).append(
            Proc(
                name,
                args,
                result,
                source,
                "o",
                True,
                volatile,
                commutator=commutator,
                negator=negator,
            )
        )
    functions: dict[str, list[Proc]] = {}
    for (
        name,
        args,
        result,
        kind,
        strict,
        volatile,
        srf,
        source,
        defaults,
        variadic,
        agg,
        direct,
        out,
    ) in data["functions"]:
        outs = tuple(
            (column.rpartition(" ")[0], int(column.rpartition(" ")[2])) for column in out or ()
        )
        # Functions in SQL have no C name: theirs is their signature.
        source = source or f"{name}({','.join(map(str, args))})"
        functions.setdefault(name, []).append(
            Proc(
                name,
                tuple(args),
                result,
                source,
                kind,
                strict,
                volatile,
                srf,
                defaults,
                variadic,
                agg,
                direct,
                outs,
            )
        )
    return (
        types,
        casts,
        {k: tuple(v) for k, v in operators.items()},
        {k: tuple(v) for k, v in functions.items()},
    )


def _of_enums() -> tuple[list[Proc], list[Proc]]:
    """Operators and functions of any enum, as pg_operator and pg_proc have them."""
    two = (ANYENUM, ANYENUM)
    turned = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
    negated = {"=": "<>", "<>": "=", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}
    words = {"=": "eq", "<>": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge"}
    operators = [
        Proc(
            name,
            two,
            BOOL,
            f"enum_{words[name]}",
            "o",
            commutator=turned[name],
            negator=negated[name],
        )
        for name in words
    ]
    functions = [
        Proc("enum_first", (ANYENUM,), ANYENUM, "enum_first", strict=False, volatile="s"),
        Proc("enum_last", (ANYENUM,), ANYENUM, "enum_last", strict=False, volatile="s"),
        Proc("enum_range", (ANYENUM,), ANYARRAY, "enum_range_all", strict=False, volatile="s"),
        Proc("enum_range", two, ANYARRAY, "enum_range_bounds", strict=False, volatile="s"),
        Proc("max", (ANYENUM,), ANYENUM, "aggregate_dummy", "a", False, aggregate_kind="n"),
        Proc("min", (ANYENUM,), ANYENUM, "aggregate_dummy", "a", False, aggregate_kind="n"),
    ]
    return operators, functions


def _with(known: dict[str, tuple[Proc, ...]], more: list[Proc]) -> Mapping[str, tuple[Proc, ...]]:
    for proc in more:
        if not any(proc.args == there.args for there in known.get(proc.name, ())):
            known[proc.name] = (*known.get(proc.name, ()), proc)
    return known


_tables = _load()
TYPES: Final = _tables[0]  # and enums, as they become known
CASTS: Final[Mapping[tuple[int, int], CastRow]] = _tables[1]
OPERATORS: Final[Mapping[str, tuple[Proc, ...]]] = _with(_tables[2], _of_enums()[0])
FUNCTIONS: Final[Mapping[str, tuple[Proc, ...]]] = _with(_tables[3], _of_enums()[1])
TYPE_BY_NAME: Final[Mapping[str, int]] = {row.name: row.oid for row in TYPES.values()}


def _add(enum: enums.Enum) -> None:
    shown, array = enums.quoted(enum.name), enums.array_oid(enum.oid)
    TYPES[enum.oid] = TypeRow(enum.oid, shown, "E", False, 0, array, 4)
    TYPES[array] = TypeRow(array, f"_{enum.name}", "A", False, enum.oid, 0, -1)


enums.listen(_add)

_LONG_NAMES: Final = {
    BOOL: "boolean",
    INT2: "smallint",
    INT4: "integer",
    INT8: "bigint",
    FLOAT4: "real",
    FLOAT8: "double precision",
    VARCHAR: "character varying",
    BPCHAR: "character",
    CHAR: '"char"',
    TIME: "time without time zone",
    TIMESTAMP: "timestamp without time zone",
    TIMESTAMPTZ: "timestamp with time zone",
    1266: "time with time zone",
}


def element_of(oid: int) -> int:
    """The element's type of an array type; 0: it is none."""
    row = TYPES.get(oid)
    return row.element if row else 0


def array_of(oid: int) -> int:
    """The array type over a type; 0: there is none."""
    row = TYPES.get(oid)
    return row.array if row else 0


def category(oid: int) -> str:
    row = TYPES.get(oid)
    return row.category if row else "X"


def preferred(oid: int) -> bool:
    row = TYPES.get(oid)
    return row.preferred if row else False


def format_type(oid: int, typmod: int = -1) -> str:
    """The name as PostgreSQL's messages write it, e.g. `character varying(10)`, `integer[]`."""
    if element := element_of(oid):
        return format_type(element, typmod) + "[]"
    row = TYPES.get(oid)
    if row is None:
        return str(oid)
    base = _LONG_NAMES.get(oid, row.name)
    if typmod < 0:
        return base
    if oid in (VARCHAR, BPCHAR):
        return f"{base}({typmod - 4})"
    if oid == NUMERIC:
        return f"numeric({(typmod - 4) >> 16},{scale_of(typmod)})"
    if oid in (TIME, TIMESTAMP, TIMESTAMPTZ):
        head, _, tail = base.partition(" ")
        return f"{head}({typmod}) {tail}"
    if oid == INTERVAL:
        return f"interval({typmod & 0xFFFF})" if typmod & 0xFFFF != 0xFFFF else "interval"
    return base


def scale_of(typmod: int) -> int:
    """The scale of numeric(p,s), which may be negative (11 bits, as PostgreSQL packs it)."""
    scale = (typmod - 4) & 0x7FF
    return scale - 0x800 if scale & 0x400 else scale
