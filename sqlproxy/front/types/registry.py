"""PostgreSQL's tables of types, casts, operators and functions, as far as they are about types that
Kvorum has.

The rows are PostgreSQL 15's own (tables.json, written by scripts/record_sql_tables.py), so that a
name means here what it means there. A type is its OID. `Proc.source` is PostgreSQL's name of the C
function of a row: the key of what `sqlproxy.front.functions.all_functions` does for it. Rows that
are not in the file (those of any enum) are made here, and come after PostgreSQL's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

from sqlproxy.pg import oids
from sqlproxy.values import enums

SIMPLE_POLYMORPHIC: Final = frozenset(
    (oids.ANYELEMENT, oids.ANYARRAY, oids.ANYNONARRAY, oids.ANYENUM)
)
COMPATIBLE_POLYMORPHIC: Final = frozenset(
    (oids.ANYCOMPATIBLE, oids.ANYCOMPATIBLEARRAY, oids.ANYCOMPATIBLENONARRAY)
)
POLYMORPHIC: Final = SIMPLE_POLYMORPHIC | COMPATIBLE_POLYMORPHIC
INFORMATION_SCHEMA: Final = "information_schema"
INTEGERS: Final = frozenset((oids.INT2, oids.INT4, oids.INT8))


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
    out: tuple[tuple[str, int], ...] = ()
    commutator: str = ""
    negator: str = ""
    field: int = -1  # the place of the one column that is asked for of what returns several


class _Operator(NamedTuple):
    name: str
    left: int
    right: int
    result: int
    source: str
    volatile: str
    commutator: str
    negator: str


class _Function(NamedTuple):
    name: str
    args: tuple[int, ...]
    result: int
    kind: str
    strict: bool
    volatile: str
    returns_set: bool
    source: str
    defaults: int
    variadic: int
    aggregate_kind: str
    direct_args: int
    out: tuple[str, ...] | None  # "name type"


class _Tables(msgspec.Struct):
    """sqlproxy/front/types/tables.json, which scripts/record_sql_tables.py writes."""

    types: list[tuple[int, str, str, bool, int, int, int]]
    casts: list[tuple[int, int, str, str, str]]
    operators: list[_Operator]
    functions: list[_Function]


def _source(name: str, args: tuple[int, ...]) -> str:
    """Functions in SQL have no C name: theirs is their signature."""
    return f"{name}({','.join(map(str, args))})"


def _type(oid: int, name: str, category: str, preferred: bool, *sizes: int) -> TypeRow:
    element, array, length = sizes
    # int2vector and its like have elements but are not what ARRAY[…] makes.
    true_array = length == -1 and category == "A"
    return TypeRow(oid, name, category, preferred, element if true_array else 0, array, length)


def _operator(row: _Operator) -> Proc:
    args = (row.left, row.right) if row.left else (row.right,)
    return Proc(
        row.name,
        args,
        row.result,
        row.source or _source(row.name, args),
        "o",
        volatile=row.volatile,
        commutator=row.commutator,
        negator=row.negator,
    )


def _function(row: _Function) -> Proc:
    outs = (column.rpartition(" ") for column in row.out or ())
    return Proc(
        row.name,
        row.args,
        row.result,
        row.source or _source(row.name, row.args),
        row.kind,
        row.strict,
        row.volatile,
        row.returns_set,
        row.defaults,
        row.variadic,
        row.aggregate_kind,
        tuple((name, int(oid)) for name, _, oid in outs),
    )


def _by_name(procs: Iterable[Proc], more: Iterable[Proc]) -> Mapping[str, tuple[Proc, ...]]:
    """`more`: those whose arguments are not among the others'."""
    known: dict[str, list[Proc]] = {}
    for proc in procs:
        known.setdefault(proc.name, []).append(proc)
    for proc in more:
        found = known.setdefault(proc.name, [])
        if all(proc.args != one.args for one in found):
            found.append(proc)
    return {name: tuple(found) for name, found in known.items()}


def _of_enums() -> tuple[list[Proc], list[Proc]]:
    """Operators and functions of any enum, as pg_operator and pg_proc have them."""
    two = (oids.ANYENUM, oids.ANYENUM)
    operators = [
        Proc(name, two, oids.BOOL, f"enum_{word}", "o", commutator=turned, negator=negated)
        for name, word, turned, negated in (
            ("=", "eq", "=", "<>"),
            ("<>", "ne", "<>", "="),
            ("<", "lt", ">", ">="),
            (">", "gt", "<", "<="),
            ("<=", "le", ">=", ">"),
            (">=", "ge", "<=", "<"),
        )
    ]
    functions = [
        Proc("enum_first", (oids.ANYENUM,), oids.ANYENUM, "enum_first", strict=False, volatile="s"),
        Proc("enum_last", (oids.ANYENUM,), oids.ANYENUM, "enum_last", strict=False, volatile="s"),
        Proc(
            "enum_range",
            (oids.ANYENUM,),
            oids.ANYARRAY,
            "enum_range_all",
            strict=False,
            volatile="s",
        ),
        Proc("enum_range", two, oids.ANYARRAY, "enum_range_bounds", strict=False, volatile="s"),
        Proc(
            "max", (oids.ANYENUM,), oids.ANYENUM, "aggregate_dummy", "a", False, aggregate_kind="n"
        ),
        Proc(
            "min", (oids.ANYENUM,), oids.ANYENUM, "aggregate_dummy", "a", False, aggregate_kind="n"
        ),
    ]
    return operators, functions


def _of_information_schema() -> list[Proc]:
    """Those that its views call: functions in SQL, with a C name of our own."""
    of_type = (oids.OID, oids.INT4)
    listed: list[tuple[str, tuple[int, ...], int]] = [
        ("_pg_char_max_length", of_type, oids.INT4),
        ("_pg_char_octet_length", of_type, oids.INT4),
        ("_pg_numeric_precision", of_type, oids.INT4),
        ("_pg_numeric_precision_radix", of_type, oids.INT4),
        ("_pg_numeric_scale", of_type, oids.INT4),
        ("_pg_datetime_precision", of_type, oids.INT4),
        ("_pg_interval_type", of_type, oids.TEXT),
        ("_pg_index_position", (oids.OID, oids.INT2), oids.INT4),
    ]
    array = Proc(
        f"{INFORMATION_SCHEMA}._pg_expandarray",
        (oids.ANYARRAY,),
        oids.RECORD,
        "_pg_expandarray",
        returns_set=True,
        out=(("x", oids.ANYELEMENT), ("n", oids.INT4)),
    )
    return [array, *(Proc(f"{INFORMATION_SCHEMA}.{one[0]}", *one[1:], one[0]) for one in listed)]


def _of_nothing() -> list[Proc]:
    """Functions of types that only the system's columns have; they return NULL."""
    names = {
        oids.INET: ("inet_server_addr", "inet_client_addr"),
        oids.PG_LSN: (
            "pg_last_wal_receive_lsn",
            "pg_last_wal_replay_lsn",
            "pg_current_wal_lsn",
            "pg_current_wal_insert_lsn",
        ),
    }
    return [Proc(n, (), oid, n, volatile="s") for oid, listed in names.items() for n in listed]


_tables = msgspec.json.decode(
    files("sqlproxy.front.types").joinpath("tables.json").read_bytes(), type=_Tables
)
_enum_operators, _enum_functions = _of_enums()
_recorded = {row[0]: _type(*row) for row in _tables.types}
TYPES: Final = {  # and enums, as they become known
    one.oid: TypeRow(
        *(one.oid, one.catalog_name, one.category, False, one.element, one.array_oid, one.size)
    )
    for one in oids.TYPES.values()
} | _recorded
CASTS: Final[Mapping[tuple[int, int], CastRow]] = {
    (source, target): CastRow(*rest) for source, target, *rest in _tables.casts
}
OPERATORS: Final = _by_name(map(_operator, _tables.operators), _enum_operators)
FUNCTIONS: Final = _by_name(
    map(_function, _tables.functions),
    [*_enum_functions, *_of_information_schema(), *_of_nothing()],
)
TYPE_BY_NAME: Final[Mapping[str, int]] = {row.name: row.oid for row in TYPES.values()}


def _add(enum: enums.Enum) -> None:
    shown, array = enums.quoted(enum.name), enums.array_oid(enum.oid)
    TYPES[enum.oid] = TypeRow(enum.oid, shown, "E", False, 0, array, 4)
    TYPES[array] = TypeRow(array, f"_{enum.name}", "A", False, enum.oid, 0, -1)


enums.listen(_add)

_LONG_NAMES: Final = {
    oids.BOOL: "boolean",
    oids.INT2: "smallint",
    oids.INT4: "integer",
    oids.INT8: "bigint",
    oids.FLOAT4: "real",
    oids.FLOAT8: "double precision",
    oids.VARCHAR: "character varying",
    oids.BPCHAR: "character",
    oids.CHAR: '"char"',
    oids.TIME: "time without time zone",
    oids.TIMESTAMP: "timestamp without time zone",
    oids.TIMESTAMPTZ: "timestamp with time zone",
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
    if oid in (oids.VARCHAR, oids.BPCHAR):
        return f"{base}({typmod - 4})"
    if oid == oids.NUMERIC:
        return f"numeric({(typmod - 4) >> 16},{scale_of(typmod)})"
    if oid in (oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ):
        head, _, tail = base.partition(" ")
        return f"{head}({typmod}) {tail}"
    if oid == oids.INTERVAL:
        return f"interval({typmod & 0xFFFF})" if typmod & 0xFFFF != 0xFFFF else "interval"
    return base


def scale_of(typmod: int) -> int:
    """The scale of numeric(p,s), which may be negative (11 bits, as PostgreSQL packs it)."""
    scale = (typmod - 4) & 0x7FF
    return scale - 0x800 if scale & 0x400 else scale
