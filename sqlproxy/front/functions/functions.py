"""What each function of PostgreSQL does, by the name of its C function (`registry.Proc.source`).

PURE        of its arguments only
WITH_TYPES  made from the arguments' types and the session's style: `OfTypes`
WITH_ENV    with the Env as its first argument
NON_STRICT  those that are called with NULLs, too
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlproxy.front import formatting, regclass, system_columns
from sqlproxy.front.env import TOLD, Env
from sqlproxy.front.functions import (
    f_arrays,
    f_enums,
    f_json,
    f_numbers,
    f_patterns,
    f_text,
    f_times,
)
from sqlproxy.front.functions.f_advisory import FUNCTIONS as ADVISORY
from sqlproxy.front.quoting import read_relation
from sqlproxy.front.registry import format_type
from sqlproxy.front.values import OfTypes
from sqlproxy.pg.style import Style
from sqlproxy.values.errors import UNDEFINED_OBJECT, SqlError


def _typeof(
    types: Sequence[int], result: int, variadic: bool, style: Style
) -> Callable[[Any], str]:
    name = format_type(types[0])
    return lambda value: name


def _nextval(env: Env, name: str) -> int:
    return env.nextval(read_relation(name))


def _setval(env: Env, name: str, value: int, called: bool = True) -> int:
    return env.setval(read_relation(name), value, called)


def _sleep(env: Env, seconds: float) -> str:
    env.slept += max(0.0, seconds)
    return ""


def _setting(env: Env, name: str, missing: bool = False) -> str | None:
    """Raises SqlError (42704): there is no such setting."""
    try:
        found = None if name.lower() in TOLD else env.session.get(name)
    except SqlError as error:
        if error.sqlstate != UNDEFINED_OBJECT:
            raise
        found = None
    if found is None and not missing:
        raise SqlError(UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name:.100}"')
    return found


PURE: Final[dict[str, Any]] = {
    **regclass.FUNCTIONS,
    **f_numbers.FUNCTIONS,
    **f_patterns.FUNCTIONS,
    **f_text.FUNCTIONS,
    **f_times.FUNCTIONS,
    **f_json.FUNCTIONS,
    **f_json.casts(f_numbers.FUNCTIONS),
    **f_arrays.FUNCTIONS,
    **formatting.FUNCTIONS,
}
WITH_TYPES: Final[dict[str, OfTypes]] = {
    **f_text.OF_TYPES,
    **f_json.OF_TYPES,
    **f_arrays.OF_TYPES,
    **f_enums.OF_TYPES,
    **system_columns.OF_TYPES,
    "pg_typeof": _typeof,
}
WITH_ENV: Final[dict[str, Callable[..., Any]]] = {
    **f_times.WITH_ENV,
    **formatting.WITH_ENV,
    "drandom": lambda env: env.random(),
    "pg_sleep": _sleep,
    "gen_random_uuid": lambda env: env.uuid(),
    "nextval_oid": _nextval,
    "currval_oid": lambda env, name: env.currval(read_relation(name)),
    "lastval": lambda env: env.lastval(),
    **ADVISORY,
    "setval_oid": _setval,
    "setval3_oid": _setval,
    "current_user": lambda env: env.session.get("user", ""),
    "session_user": lambda env: env.session.get("session_user", env.session.get("user", "")),
    "show_config_by_name": _setting,
    "show_config_by_name_missing_ok": _setting,
    "pg_backend_pid": lambda env: int(env.session["process"]),
    "current_database": lambda env: env.session.get("database", ""),
    "current_schema": lambda env: "public",
}
NON_STRICT: Final = (
    f_patterns.NON_STRICT
    | f_text.NON_STRICT
    | f_times.NON_STRICT
    | f_json.NON_STRICT
    | f_arrays.NON_STRICT
    | f_enums.NON_STRICT
    | system_columns.NON_STRICT
    | {"pg_typeof"}
)
