"""PostgreSQL's types by OID and by our canonical name, their modifiers and display names.

    canonical name (sqlproxy.values.types)   by_name ─▶ (PgType, typmod)      canonical ◀─ (OID,
                                                                              typmod)
    OID (wire, catalog)               by_oid  ─▶ PgType
    what psql shows                   format_type(OID, typmod), e.g. "character varying(20)"

OIDs are those of PostgreSQL 15 (pg_type.dat); they are fixed there, and drivers have them compiled
in. A typmod is -1 for "none"; varchar(n), char(n): n + 4; numeric(p,s): ((p << 16) | s) + 4;
times: n; intervals: a mask of their fields << 16 | n.

Enums come to these lists as they become known (`sqlproxy.values.enums`), each with the type of its
arrays.

Deliberately missing: ranges, network and geometric types, timetz, money, bit, xml, domains.
The catalog's own types (regclass, int2vector, …) are here because its columns have them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from sqlproxy.values import enums
from sqlproxy.values.interval import ALL_FIELDS, fields_named, fields_text

BOOL: Final = 16
BYTEA: Final = 17
CHAR: Final = 18  # "char", one byte: the catalog's
NAME: Final = 19
INT8: Final = 20
INT2: Final = 21
INT2VECTOR: Final = 22
INT4: Final = 23
REGPROC: Final = 24
TEXT: Final = 25
OID: Final = 26
TID: Final = 27
XID: Final = 28
CID: Final = 29
OIDVECTOR: Final = 30
JSON: Final = 114
PG_NODE_TREE: Final = 194
FLOAT4: Final = 700
FLOAT8: Final = 701
UNKNOWN: Final = 705
INET: Final = 869
ACLITEM: Final = 1033
BPCHAR: Final = 1042
VARCHAR: Final = 1043
DATE: Final = 1082
TIME: Final = 1083
TIMESTAMP: Final = 1114
TIMESTAMPTZ: Final = 1184
INTERVAL: Final = 1186
NUMERIC: Final = 1700
REFCURSOR: Final = 1790
REGPROCEDURE: Final = 2202
REGOPER: Final = 2203
REGOPERATOR: Final = 2204
REGCLASS: Final = 2205
REGTYPE: Final = 2206
RECORD: Final = 2249
ANY: Final = 2276
ANYARRAY: Final = 2277
VOID: Final = 2278
ANYELEMENT: Final = 2283
ANYNONARRAY: Final = 2776
UUID: Final = 2950
PG_LSN: Final = 3220
PG_NDISTINCT: Final = 3361
PG_DEPENDENCIES: Final = 3402
ANYENUM: Final = 3500
REGCONFIG: Final = 3734
JSONB: Final = 3802
JSONPATH: Final = 4072
REGNAMESPACE: Final = 4089
REGROLE: Final = 4096
PG_MCV_LIST: Final = 5017
XID8: Final = 5069
ANYCOMPATIBLE: Final = 5077
ANYCOMPATIBLEARRAY: Final = 5078
ANYCOMPATIBLENONARRAY: Final = 5079
PG_STATISTIC: Final = 10029

_OF_CODE: Final = frozenset({REGPROC, REGPROCEDURE, REGOPER, REGOPERATOR})
NAMES_OF_OBJECTS: Final = _OF_CODE | {REGCLASS, REGTYPE, REGCONFIG, REGNAMESPACE, REGROLE}

OF_CATALOG: Final = frozenset(
    {
        ACLITEM,
        ANYARRAY,
        INET,
        PG_DEPENDENCIES,
        PG_LSN,
        PG_MCV_LIST,
        PG_NDISTINCT,
        PG_NODE_TREE,
        PG_STATISTIC,
    }
)
"""Types of which only the system's columns are: a value is its text."""

Kind = Literal["base", "array", "pseudo", "enum"]


@dataclass(frozen=True, slots=True)
class PgType:
    """`name`: canonical, without modifiers (char(n): "char", array: "int4[]"). `size`: bytes of a
    value in PostgreSQL's memory, as RowDescription tells it; -1 varies, -2 a C string. `element`:
    the OID of an array's (and vector's) elements, or 0. `category`: pg_type.typcategory.
    """

    oid: int
    name: str
    array_oid: int
    size: int
    kind: Kind = "base"
    element: int = 0
    category: str = "U"
    sql_name: str = ""  # what format_type shows, without modifiers
    catalog_name: str = ""  # pg_type.typname


# oid, canonical name, array's oid, size, category, format_type's name and typname ("" = the same)
_BASE: Final[tuple[tuple[int, str, int, int, str, str, str], ...]] = (
    (BOOL, "bool", 1000, 1, "B", "boolean", ""),
    (BYTEA, "bytea", 1001, -1, "U", "", ""),
    (CHAR, '"char"', 1002, 1, "Z", "", "char"),
    (NAME, "name", 1003, 64, "S", "", ""),
    (INT8, "int8", 1016, 8, "N", "bigint", ""),
    (INT2, "int2", 1005, 2, "N", "smallint", ""),
    (INT4, "int4", 1007, 4, "N", "integer", ""),
    (REGPROC, "regproc", 1008, 4, "N", "", ""),
    (TEXT, "text", 1009, -1, "S", "", ""),
    (OID, "oid", 1028, 4, "N", "", ""),
    (TID, "tid", 1010, 6, "U", "", ""),
    (XID, "xid", 1011, 4, "U", "", ""),
    (XID8, "xid8", 271, 8, "U", "", ""),
    (CID, "cid", 1012, 4, "U", "", ""),
    (JSON, "json", 199, -1, "U", "", ""),
    (PG_NODE_TREE, "pg_node_tree", 0, -1, "Z", "", ""),
    (FLOAT4, "float4", 1021, 4, "N", "real", ""),
    (FLOAT8, "float8", 1022, 8, "N", "double precision", ""),
    (INET, "inet", 1041, -1, "I", "", ""),
    (ACLITEM, "aclitem", 1034, 12, "U", "", ""),
    (BPCHAR, "char", 1014, -1, "S", "character", "bpchar"),
    (VARCHAR, "varchar", 1015, -1, "S", "character varying", ""),
    (DATE, "date", 1182, 4, "D", "", ""),
    (TIME, "time", 1183, 8, "D", "time without time zone", ""),
    (TIMESTAMP, "timestamp", 1115, 8, "D", "timestamp without time zone", ""),
    (TIMESTAMPTZ, "timestamptz", 1185, 8, "D", "timestamp with time zone", ""),
    (INTERVAL, "interval", 1187, 16, "T", "", ""),
    (NUMERIC, "numeric", 1231, -1, "N", "", ""),
    (REFCURSOR, "refcursor", 2201, -1, "U", "", ""),
    (REGPROCEDURE, "regprocedure", 2207, 4, "N", "", ""),
    (REGOPER, "regoper", 2208, 4, "N", "", ""),
    (REGOPERATOR, "regoperator", 2209, 4, "N", "", ""),
    (REGCLASS, "regclass", 2210, 4, "N", "", ""),
    (REGTYPE, "regtype", 2211, 4, "N", "", ""),
    (UUID, "uuid", 2951, 16, "U", "", ""),
    (REGCONFIG, "regconfig", 3735, 4, "N", "", ""),
    (JSONB, "jsonb", 3807, -1, "U", "", ""),
    (JSONPATH, "jsonpath", 4073, -1, "U", "", ""),
    (REGNAMESPACE, "regnamespace", 4090, 4, "N", "", ""),
    (REGROLE, "regrole", 4097, 4, "N", "", ""),
    (PG_LSN, "pg_lsn", 3221, 8, "U", "", ""),
    (PG_NDISTINCT, "pg_ndistinct", 0, -1, "Z", "", ""),
    (PG_DEPENDENCIES, "pg_dependencies", 0, -1, "Z", "", ""),
    (PG_MCV_LIST, "pg_mcv_list", 0, -1, "Z", "", ""),
    (PG_STATISTIC, "pg_statistic", 10028, -1, "C", "", ""),
)
_PSEUDO: Final[tuple[tuple[int, str, int, int, str], ...]] = (
    (UNKNOWN, "unknown", 0, -2, "X"),
    (RECORD, "record", 2287, -1, "P"),
    (ANY, "any", 0, 4, "P"),
    (ANYARRAY, "anyarray", 0, -1, "P"),
    (VOID, "void", 0, 4, "P"),
    (ANYELEMENT, "anyelement", 0, 4, "P"),
)
_VECTORS: Final[tuple[tuple[int, str, int, int], ...]] = (
    (INT2VECTOR, "int2vector", 1006, INT2),
    (OIDVECTOR, "oidvector", 1013, OID),
)


def _array_of(base: PgType) -> PgType:
    return PgType(
        base.array_oid,
        f"{base.name}[]",
        0,
        -1,
        "pseudo" if base.kind == "pseudo" else "array",
        base.oid,
        "P" if base.kind == "pseudo" else "A",
        f"{base.sql_name}[]",
        f"_{base.catalog_name}",
    )


def _all() -> dict[int, PgType]:
    types = [
        PgType(oid, name, array, size, "base", 0, category, sql or name, catalog or name)
        for oid, name, array, size, category, sql, catalog in _BASE
    ]
    types += [
        PgType(
            *(oid, name, array, size, "pseudo", 0, category),
            sql_name='"any"' if oid == ANY else name,  # a word of the language
            catalog_name=name,
        )
        for oid, name, array, size, category in _PSEUDO
    ]
    types += [
        PgType(oid, name, array, -1, "array", element, "A", name, name)
        for oid, name, array, element in _VECTORS
    ]
    types += [_array_of(base) for base in types if base.array_oid]
    return {of.oid: of for of in types}


TYPES: Final = _all()  # by OID
_BY_NAME: Final = {of.name: of for of in TYPES.values()} | {
    # char without (n) is char(1) where a column is declared; bpchar has no limit.
    "bpchar": TYPES[BPCHAR],
    "bpchar[]": TYPES[TYPES[BPCHAR].array_oid],
}


def _add(enum: enums.Enum) -> None:
    """A type of a user's, or a new name of one."""
    shown, array = enums.quoted(enum.name), enums.array_oid(enum.oid)
    TYPES[enum.oid] = PgType(enum.oid, shown, array, 4, "enum", 0, "E", shown, enum.name)
    TYPES[array] = PgType(
        array, f"{shown}[]", 0, -1, "array", enum.oid, "A", f"{shown}[]", f"_{enum.name}"
    )


enums.listen(_add)

_MODIFIED = re.compile(r"(varchar|char|numeric|timestamp(?:tz)?|time)\((\d+)(?:,(-?\d+))?\)(\[\])?")
_INTERVAL = re.compile(r"interval(?: ([a-z ]+))?(?:\((\d)\))?(\[\])?")
_TIMES = frozenset((TIME, TIMESTAMP, TIMESTAMPTZ))
_ALL_DIGITS = 0xFFFF
_HEADER = 4  # bytes that PostgreSQL adds to the modifiers of these types


def by_oid(oid: int) -> PgType | None:
    return TYPES.get(oid)


@lru_cache(maxsize=1_024)
def by_name(name: str) -> tuple[PgType, int]:
    """The type and typmod of a canonical name: `int4`, `varchar(20)`, `numeric(10,2)[]`. Raises
    KeyError for any other text: canonical names come from us. SqlError: see `enums.learn`.
    """
    if name in _BY_NAME:
        return _BY_NAME[name], -1
    if name.startswith(enums.PREFIX):
        enum = enums.parsed(name.removesuffix("[]"))
        enums.learn(enum)
        return TYPES[enums.array_oid(enum.oid) if name.endswith("[]") else enum.oid], -1
    found = _MODIFIED.fullmatch(name)
    if found is None:
        return _interval(name)
    base, first, second, array = found.groups()
    if base == "numeric":
        typmod = numeric_typmod(int(first), int(second or 0))
    elif second is not None:
        raise KeyError(name)
    elif base in ("varchar", "char"):
        typmod = int(first) + _HEADER
    else:
        typmod = int(first)
    return _BY_NAME[base + (array or "")], typmod


def _interval(name: str) -> tuple[PgType, int]:
    found = _INTERVAL.fullmatch(name)
    fields = fields_named(found[1] or "") if found else None
    if found is None or fields is None:
        raise KeyError(name)
    digits = _ALL_DIGITS if found[2] is None else int(found[2])
    return _BY_NAME["interval" + (found[3] or "")], fields << 16 | digits


def array_of(oid: int) -> PgType | None:
    """The array type of an element type."""
    base = TYPES.get(oid)
    return None if base is None else TYPES.get(base.array_oid)


def element_of(oid: int) -> PgType | None:
    """The element type of an array or vector; None: it is neither."""
    of = TYPES.get(oid)
    return None if of is None or not of.element else TYPES[of.element]


def numeric_typmod(precision: int, scale: int) -> int:
    """PostgreSQL 15 packs a scale in eleven bits, negative ones included."""
    return (precision << 16 | scale & 0x7FF) + _HEADER


def numeric_modifiers(typmod: int) -> tuple[int, int] | None:
    """(precision, scale) of a numeric's typmod; None: it has none."""
    if typmod < _HEADER:
        return None
    packed = typmod - _HEADER
    return packed >> 16 & 0xFFFF, (packed & 0x7FF ^ 1_024) - 1_024


def canonical(oid: int, typmod: int = -1) -> str:
    """The canonical name with its modifiers: the reverse of `by_name`. Raises KeyError."""
    of = TYPES[oid]
    if (enum := enums.of(of.element or oid)) is not None:
        return enums.text_of(enum.enum) + ("[]" if of.element else "")
    if typmod < _HEADER and BPCHAR in (of.oid, of.element):
        return of.name.replace("char", "bpchar")
    return _with_modifiers(of, of.name, typmod)


def format_type(oid: int | None, typmod: int | None = -1) -> str:
    """What pg_catalog.format_type answers, for the types that exist here; `???` for others. A
    typmod of None leaves modifiers out; char without one is then `character`, else `bpchar`.
    """
    if not oid:
        return "-"
    of = TYPES.get(oid)
    if of is None:
        return "???"
    base = TYPES[of.element] if of.kind == "array" and of.element and of.name[-2:] == "[]" else of
    if base.oid == BPCHAR and typmod is not None and typmod < _HEADER:
        return of.sql_name.replace("character", "bpchar")
    return _with_modifiers(of, of.sql_name, -1 if typmod is None else typmod)


def _with_modifiers(of: PgType, name: str, typmod: int) -> str:
    array = "[]" if name.endswith("[]") else ""
    base, bare = of.element or of.oid, name.removesuffix("[]")
    if base in _TIMES and typmod >= 0:
        word, _, zone = bare.partition(" ")  # time(3) with time zone
        return f"{word}({typmod})" + (f" {zone}" if zone else "") + array
    if base == INTERVAL and typmod >= 0:
        return bare + _interval_modifiers(typmod) + array
    if typmod < _HEADER:
        return name
    if base == NUMERIC:
        found = numeric_modifiers(typmod)
        assert found is not None
        return f"{bare}({found[0]},{found[1]}){array}"
    if base in (VARCHAR, BPCHAR):
        return f"{bare}({typmod - _HEADER}){array}"
    return name


def _interval_modifiers(typmod: int) -> str:
    """intervaltypmodout: ` day to second(3)`."""
    fields, digits = fields_text(typmod >> 16 & ALL_FIELDS), typmod & _ALL_DIGITS
    text = f" {fields}" if fields else ""
    return text if digits == _ALL_DIGITS else f"{text}({digits})"
