"""PostgreSQL's types in DuckDB: how a value of each is held, how its literals are read and shown.

oid, reg*, xid            BIGINT; a reg* value is the OID, its name is looked up when it is shown
"char", name, json, …     VARCHAR
int2vector, oidvector     lists, subscripts from 0 as in PostgreSQL
numeric                   DECIMAL or HUGEINT, whatever DuckDB made of it
the rest                  its namesake
"""

from __future__ import annotations

from typing import Any, Final

from sqlproxy.pg import oids
from sqlproxy.values.errors import INVALID_TEXT, SqlError

REG: Final = {
    oids.REGCLASS: "regclass",
    oids.REGTYPE: "regtype",
    oids.REGNAMESPACE: "regnamespace",
    oids.REGPROC: "regproc",
    oids.REGPROCEDURE: "regprocedure",
    oids.REGROLE: "regrole",
    oids.REGOPER: "regoper",
    oids.REGOPERATOR: "regoperator",
    oids.REGCONFIG: "regconfig",
}
IDS: Final = frozenset({oids.OID, oids.XID, oids.XID8, oids.CID, *REG})
INTEGERS: Final = (oids.INT2, oids.INT4, oids.INT8)
NUMBERS: Final = (*INTEGERS, oids.NUMERIC, oids.FLOAT4, oids.FLOAT8)  # each widens to those after
STRINGS: Final = frozenset({oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.NAME, oids.CHAR})
VECTORS: Final = frozenset({oids.INT2VECTOR, oids.OIDVECTOR})
_WHOLE: Final = ("SMALLINT", "INTEGER", "BIGINT")
TIMES: Final = (oids.DATE, oids.TIMESTAMP, oids.TIMESTAMPTZ)
_HELD: Final = {
    oids.BOOL: "BOOLEAN",
    oids.BYTEA: "BLOB",
    oids.INT2: "SMALLINT",
    oids.INT4: "INTEGER",
    oids.INT8: "BIGINT",
    oids.FLOAT4: "FLOAT",
    oids.FLOAT8: "DOUBLE",
    oids.NUMERIC: "DECIMAL(38,9)",
    oids.DATE: "DATE",
    oids.TIME: "TIME",
    oids.TIMESTAMP: "TIMESTAMP",
    oids.TIMESTAMPTZ: "TIMESTAMPTZ",
    oids.INTERVAL: "INTERVAL",
    oids.UUID: "UUID",
    oids.INT2VECTOR: "SMALLINT[]",
    oids.OIDVECTOR: "BIGINT[]",
}


def held(oid: int, element: int) -> str:
    """The DuckDB type of a PostgreSQL type; `element`: that of an array, or 0."""
    if oid in IDS:
        return "BIGINT"
    if oid in _HELD:
        return _HELD[oid]
    return held(element, 0) + "[]" if element else "VARCHAR"


def fit(value: Any, held: str) -> object:
    """Recorded values of types that DuckDB holds otherwise: unusual ones as text, domains as what
    they are made of.
    """
    if value is None or isinstance(value, str) == (held == "VARCHAR"):
        return value
    return str(value) if held == "VARCHAR" else int(value) if held in _WHOLE else value


def category(oid: int, element: int = 0) -> str:
    """What may be compared with what: PostgreSQL's typcategory, "char" among the strings."""
    if oid in STRINGS:
        return "S"
    if oid in NUMBERS or oid in IDS:
        return "N"
    if oid in TIMES:
        return "D"
    if element or oid == oids.ANYARRAY:
        return "A"
    return {oids.BOOL: "B", oids.INTERVAL: "T"}.get(oid, "U")


def quoted(text: str) -> str:
    """A string literal of DuckDB, which knows no escapes but the doubled quote."""
    return "'" + text.replace("'", "''") + "'"


def boolean(text: str) -> bool:
    word = text.strip().lower()
    if word and ("true".startswith(word) or "yes".startswith(word) or word in ("on", "1")):
        return True
    if word and ("false".startswith(word) or "no".startswith(word) or word in ("off", "of", "0")):
        return False
    raise SqlError(INVALID_TEXT, f'invalid input syntax for type boolean: "{text}"')


def integer(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SqlError(INVALID_TEXT, f'invalid input syntax for type {name}: "{text}"') from None


def array_items(text: str) -> list[str | None]:
    """The elements of an array's literal, one dimension. Raises SqlError (22P02)."""
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise SqlError(
            INVALID_TEXT,
            f'malformed array literal: "{text}"',
            detail='Array value must start with "{" or dimension information.',
        )
    items: list[str | None] = []
    at, end = 1, len(body) - 1
    while at < end:
        item, at = _item(body, at, end)
        items.append(item)
        if at < end and body[at] == ",":
            at += 1
    return items


def _item(body: str, at: int, end: int) -> tuple[str | None, int]:
    while at < end and body[at].isspace():
        at += 1
    if body[at] != '"':
        stop = body.find(",", at, end)
        stop = end if stop < 0 else stop
        word = body[at:stop].strip()
        return (None if word.lower() == "null" else word), stop
    parts: list[str] = []
    at += 1
    while at < end and body[at] != '"':
        at += body[at] == "\\"
        parts.append(body[at])
        at += 1
    return "".join(parts), at + 1
