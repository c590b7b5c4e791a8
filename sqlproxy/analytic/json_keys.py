"""What jsonb is grouped, sorted and compared by in DuckDB. Pure.

Source: PostgreSQL 15, jsonb_util.c (compareJsonbContainers).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlproxy.rows import keys
from sqlproxy.values.jsonb import parse


def sort_key(text: str) -> bytes:
    """Bytes that are equal, and sort, as the values: null < string < number < false < true <
    array < object, shorter ones first; the empty array alone is below null.
    """
    value = parse(text)
    return b"\0" if value == [] else _sortable(value)


def _sortable(value: Any) -> bytes:
    match value:
        case None:
            return b"\1"
        case bool():
            return b"\4\1" if value else b"\4\0"
        case str():
            return b"\2" + _ended(value)
        case Decimal():
            return b"\3" + keys.encoder("numeric")(format(value, "f"))
        case list():
            return b"\5" + len(value).to_bytes(4, "big") + b"".join(map(_sortable, value))
        case _:
            parts = [_ended(key) + _sortable(one) for key, one in value.items()]
            return b"\6" + len(parts).to_bytes(4, "big") + b"".join(parts)


def _ended(text: str) -> bytes:
    """A text that sorts before each that it begins."""
    return text.encode().replace(b"\0", b"\0\xff") + b"\0\0"
