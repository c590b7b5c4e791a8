"""Functions that return sets, by way of the list of what they return: a list of values, or of rows
where the function returns several columns. Pure.

DuckDB unnests the list. Not here: generate_series of integers and timestamps and unnest, which
DuckDB does alike.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from kv.base.limits import SQL_SERIES_ROWS_MAX
from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions import f_catalog, f_json, f_jsonpath
from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.front.functions.f_times import add_zoned
from sqlproxy.values import jsonb
from sqlproxy.values.errors import INVALID_PARAMETER, SqlError
from sqlproxy.values.interval import Interval

Lister = Callable[..., list[Any]]


def column_of(lister: Lister, place: int) -> Lister:
    """The list of one column of rows."""
    return lambda *args: [row[place] for row in lister(*args)]


# -- JSON


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return jsonb.dumps(value)


def _elements(text: str) -> list[str]:
    return [jsonb.dumps(one) for one in _array(text)]


def _element_texts(text: str) -> list[str | None]:
    return [_text(one) for one in _array(text)]


def _array(text: str) -> list[object]:
    value = jsonb.parse(text)
    if isinstance(value, list):
        return value
    kind = "an object" if isinstance(value, dict) else "a scalar"
    raise SqlError("22023", f"cannot extract elements from {kind}")


def _object(text: str, name: str) -> dict[str, object]:
    value = jsonb.parse(text)
    if isinstance(value, dict):
        return value
    if name == "jsonb_object_keys":
        kind = "an array" if isinstance(value, list) else "a scalar"
        raise SqlError("22023", f"cannot call {name} on {kind}")
    raise SqlError("22023", f"cannot call {name} on a non-object")


def _each(text: str) -> list[tuple[str, str]]:
    return [(k, jsonb.dumps(v)) for k, v in _object(text, "jsonb_each").items()]


def _each_text(text: str) -> list[tuple[str, str | None]]:
    return [(k, _text(v)) for k, v in _object(text, "jsonb_each_text").items()]


def _keys(text: str) -> list[str]:
    return list(_object(text, "jsonb_object_keys"))


# json keeps its members as they were written: in their order, and twice if they came twice


def _members(text: str, name: str) -> list[tuple[str, str]]:
    opening, members = f_json.parts(text)
    if opening == "{":
        return members
    what = "an array" if opening == "[" else "a scalar"
    if name == "json_object_keys":
        raise SqlError("22023", f"cannot call {name} on {what}")
    tail = " as an object" if opening == "[" else ""
    raise SqlError("22023", f"cannot deconstruct {what}{tail}")


def _json_items(text: str, name: str) -> list[str]:
    opening, items = f_json.parts(text)
    if opening != "[":
        what = "a non-array" if opening == "{" else "a scalar"
        raise SqlError("22023", f"cannot call {name} on {what}")
    return [item for _, item in items]


def _json_each_text(text: str) -> list[tuple[str, str | None]]:
    return [(k, f_json.json_text(v)) for k, v in _members(text, "json_each_text")]


# -- text and arrays


def _subscripts(array: list[object], dimension: int, backwards: bool = False) -> list[int]:
    part: object = array
    for _ in range(dimension - 1):
        part = part[0] if isinstance(part, list) and part else None
    if dimension < 1 or not isinstance(part, list):
        return []
    found = list(range(1, len(part) + 1))
    return found[::-1] if backwards else found


def _options(listed: list[str]) -> list[tuple[str, str | None]]:
    pairs = (one.partition("=") for one in listed)
    return [(name, value if said else None) for name, said, value in pairs]


_NO_ROWS: Final = (
    "pg_partition_ancestors",
    "pg_partition_tree",
    "pg_tablespace_databases",
)
"""What there is nothing of."""
LISTS: Final[dict[str, Lister]] = {
    "regexp_split_to_table": FUNCTIONS["regexp_split_to_array"].call,
    "regexp_split_to_table_no_flags": FUNCTIONS["regexp_split_to_array_no_flags"].call,
    "text_to_table": FUNCTIONS["text_to_array"].call,
    "text_to_table_null": FUNCTIONS["text_to_array_null"].call,
    "generate_subscripts": _subscripts,
    "generate_subscripts_nodir": _subscripts,
    "generate_subscripts_from_0": lambda *args: [n - 1 for n in _subscripts(*args)],
    "generate_subscripts_nodir_from_0": lambda *args: [n - 1 for n in _subscripts(*args)],
    "jsonb_array_elements": _elements,
    "jsonb_array_elements_text": _element_texts,
    "jsonb_each": _each,
    "jsonb_each_text": _each_text,
    "jsonb_object_keys": _keys,
    "jsonb_path_query": f_jsonpath.query,
    "json_array_elements": lambda text: _json_items(text, "json_array_elements"),
    "json_array_elements_text": lambda text: [
        f_json.json_text(one) for one in _json_items(text, "json_array_elements_text")
    ],
    "json_each": lambda text: _members(text, "json_each"),
    "json_each_text": _json_each_text,
    "json_object_keys": lambda text: [key for key, _ in _members(text, "json_object_keys")],
    "_pg_expandarray": lambda array: [(one, n) for n, one in enumerate(array, 1)],
    "pg_options_to_table": _options,
    **dict.fromkeys(_NO_ROWS, lambda *args: []),
    "pg_stat_get_backend_idset": lambda: [1],
}
"""By PostgreSQL's name of the C function. A strict function of NULL returns no rows."""


# -- series


def _bounded(values: list[object]) -> list[object]:
    if len(values) > SQL_SERIES_ROWS_MAX:
        raise SqlError(
            "54000",
            f"generate_series of this type returns more than {SQL_SERIES_ROWS_MAX} rows",
            hint="Generate integers and compute the values from them.",
        )
    return values


def _numbers(env: Env, start: Decimal, stop: Decimal, step: Decimal = Decimal(1)) -> list[object]:
    for value, name in ((start, "start"), (stop, "stop"), (step, "step")):
        if not value.is_finite():
            word = "NaN" if value.is_nan() else "infinity"
            what = f"{name} value" if name != "step" else "step size"
            raise SqlError(INVALID_PARAMETER, f"{what} cannot be {word}")
    if not step:
        raise SqlError(INVALID_PARAMETER, "step size cannot equal zero")
    found: list[object] = []
    add = FUNCTIONS["numeric_add"].call
    while (start <= stop if step > 0 else start >= stop) and len(found) <= SQL_SERIES_ROWS_MAX:
        found.append(start)
        start = add(start, step)
    return _bounded(found)


def _moments(env: Env, start: datetime, stop: datetime, step: Interval) -> list[object]:
    if not step.span:
        raise SqlError(INVALID_PARAMETER, "step size cannot equal zero")
    found: list[object] = []
    while (start <= stop if step.span > 0 else start >= stop) and len(found) <= SQL_SERIES_ROWS_MAX:
        found.append(start)
        start = add_zoned(env, start, step)
    return _bounded(found)


ASKING: Final[dict[str, Callable[..., list[Any]]]] = {
    "aclexplode": f_catalog.exploded,
    "generate_series_numeric": _numbers,
    "generate_series_step_numeric": _numbers,
    "generate_series_timestamptz": _moments,
    "jsonb_path_query_tz": f_jsonpath.query_tz,
    "pg_listening_channels": lambda env: env.listening(),
}
"""Of the environment (its time zone, its catalog) and the arguments."""
