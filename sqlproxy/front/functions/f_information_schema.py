"""Functions of the schema information_schema, which its views call: they return what PostgreSQL's
own do, which are written in SQL. Their rows are those of `types.registry`, named with the schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions.function import Function, declared, total, with_env
from sqlproxy.pg import oids

_CHARS: Final = frozenset((oids.BPCHAR, oids.VARCHAR))
_BITS: Final = frozenset((1560, 1562))
_TIMES: Final = frozenset((oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ, 1266))
_PRECISION: Final = {
    oids.INT2: 16,
    oids.INT4: 32,
    oids.INT8: 64,
    oids.FLOAT4: 24,
    oids.FLOAT8: 53,
}
_CHAR_BYTES: Final = 4  # of UTF-8, at most
_TEXT_BYTES: Final = 1 << 30
_ALL: Final = 0xFFFF  # of the digits of a second
_INTERVAL: Final = re.compile(r"interval[()0-9]* (.*)")


def _char_max_length(oid: int, typmod: int) -> int | None:
    if typmod == -1:
        return None
    return typmod - 4 if oid in _CHARS else typmod if oid in _BITS else None


def _char_octet_length(oid: int, typmod: int) -> int | None:
    if oid != oids.TEXT and oid not in _CHARS:
        return None
    most = _char_max_length(oid, typmod)
    return _TEXT_BYTES if typmod == -1 else most and most * _CHAR_BYTES


def _numeric_precision(oid: int, typmod: int) -> int | None:
    if oid == oids.NUMERIC:
        return None if typmod == -1 else ((typmod - 4) >> 16) & 0xFFFF
    return _PRECISION.get(oid)


def _numeric_precision_radix(oid: int, typmod: int) -> int | None:
    return 10 if oid == oids.NUMERIC else 2 if oid in _PRECISION else None


def _numeric_scale(oid: int, typmod: int) -> int | None:
    if oid == oids.NUMERIC:
        return None if typmod == -1 else (typmod - 4) & 0xFFFF
    return 0 if oid in (oids.INT2, oids.INT4, oids.INT8) else None


def _datetime_precision(oid: int, typmod: int) -> int | None:
    if oid == oids.DATE:
        return 0
    if oid in _TIMES:
        return 6 if typmod < 0 else typmod
    if oid == oids.INTERVAL:
        return 6 if typmod < 0 or typmod & _ALL == _ALL else typmod & _ALL
    return None


def _interval_type(oid: int, typmod: int) -> str | None:
    found = _INTERVAL.match(oids.format_type(oid, typmod)) if oid == oids.INTERVAL else None
    return found[1].upper() if found else None


def _index_position(env: Env, index: int, attribute: int) -> int | None:
    columns: Sequence[int] = env.catalog.get("pg_index", "indkey", indexrelid=index) or ()
    return columns.index(attribute) + 1 if attribute in columns else None


FUNCTIONS: Final[dict[str, Function]] = declared(
    {
        "_pg_char_max_length": _char_max_length,
        "_pg_char_octet_length": _char_octet_length,
        "_pg_numeric_precision": total(_numeric_precision),
        "_pg_numeric_precision_radix": total(_numeric_precision_radix),
        "_pg_numeric_scale": total(_numeric_scale),
        "_pg_datetime_precision": total(_datetime_precision),
        "_pg_interval_type": _interval_type,
        "_pg_index_position": with_env(_index_position),
    }
)
INLINED: Final = {
    "_pg_truetypid": "CASE WHEN b.typtype = 'd' THEN b.typbasetype ELSE a.atttypid END",
    "_pg_truetypmod": "CASE WHEN b.typtype = 'd' THEN b.typtypmod ELSE a.atttypmod END",
}
"""Of rows of pg_attribute, a, and of pg_type, b."""
