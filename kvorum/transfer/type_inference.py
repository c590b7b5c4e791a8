"""Types of columns of which there are only texts (csv) or what JSON has: a guess that loses no
digit. Pure.

    bool                true, false
    int8                integers as a program writes them, of 64 bits
    float8              numbers of at most 15 digits
    numeric             other numbers: they have more digits than these two keep
    date, timestamp(tz) ISO 8601
    T[]                 JSON: arrays of one of these
    jsonb               JSON: objects, and other arrays
    text                all else: 01234 and +49123 are no numbers, they would come back without
                        their zero or sign
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Final

_BOOLS: Final = frozenset({"true", "false", "TRUE", "FALSE", "True", "False"})
_INT: Final = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_INT8_MAX: Final = (1 << 63) - 1
_EXACT_DIGITS: Final = 15
_EXPONENT_MAX: Final = 300  # beyond it float8 rounds to nothing, or has no value
_JOINED: Final = {  # of two types in one column
    frozenset(pair): joined
    for *pair, joined in (
        ("int8", "float8", "float8"),
        ("int8", "numeric", "numeric"),
        ("float8", "numeric", "numeric"),
        ("date", "timestamp", "timestamp"),
        ("int8 long", "int8", "int8 long"),
        ("int8 long", "float8", "numeric"),
        ("int8 long", "numeric", "numeric"),
    )
}


def of_texts(cells: Iterable[str | None]) -> str:
    """Of a column of csv."""
    return _all_of(_of_text(cell) for cell in cells if cell is not None)


def of_values(values: Iterable[object]) -> str:
    """Of a column of JSON: what json.loads gives, with Decimal for numbers with a point."""
    return _all_of(_of_value(value) for value in values if value is not None)


def _all_of(kinds: Iterable[str]) -> str:
    found = ""
    for kind in kinds:
        if not found or found == kind:
            found = kind
            continue
        nested = "jsonb" in (found, kind) or found.endswith("[]") or kind.endswith("[]")
        found = _JOINED.get(frozenset((found, kind)), "jsonb" if nested else "text")
        if found in ("text", "jsonb"):
            return found
    return {"": "text", "int8 long": "int8"}.get(found, found)


def _of_text(text: str) -> str:
    if text in _BOOLS:
        return "bool"
    if _INT.fullmatch(text):
        return _of_int(int(text)) if text != "-0" else "text"
    if _NUMBER.fullmatch(text):
        return _of_number(Decimal(text))
    return _of_time(text)


def _of_time(text: str) -> str:
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "date"
        if found := _TIMESTAMP.fullmatch(text):
            datetime.fromisoformat(text)
            return "timestamptz" if found[1] else "timestamp"
    except ValueError:
        pass
    return "text"


def _of_int(value: int) -> str:
    """`int8 long`: one that float8 would round, if others have a point."""
    if not -_INT8_MAX <= value <= _INT8_MAX:
        return "numeric"
    return "int8" if abs(value) < 10**_EXACT_DIGITS else "int8 long"


def _of_number(value: Decimal) -> str:
    held = not value or -_EXPONENT_MAX < value.adjusted() < _EXPONENT_MAX
    return "float8" if held and len(value.as_tuple().digits) <= _EXACT_DIGITS else "numeric"


def _of_value(value: object) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return _of_int(value)
        case Decimal():
            return _of_number(value)
        case float():
            return "float8"
        case str():
            return _of_time(value)
        case list():
            return _of_list(value)
        case _:
            return "jsonb"


def _of_list(values: Sequence[object]) -> str:
    if any(isinstance(value, list | dict) for value in values):
        return "jsonb"
    kinds = {_of_value(value) for value in values if value is not None}
    inner = _all_of(iter(kinds)) if kinds else ""
    if not inner or (inner == "text" and kinds != {"text"}):
        return "jsonb"
    return f"{inner}[]"
