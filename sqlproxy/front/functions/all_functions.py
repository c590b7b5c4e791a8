"""What each function of PostgreSQL does, by the name of its C function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlproxy.front.bound.env import NO_SETTINGS, Env, path_of, searched_before
from sqlproxy.front.functions import (
    f_advisory,
    f_arrays,
    f_catalog,
    f_enums,
    f_information_schema,
    f_json,
    f_jsonpath,
    f_numbers,
    f_patterns,
    f_text,
    f_times,
    formatting,
    regclass,
    system_columns,
)
from sqlproxy.front.functions.function import (
    Function,
    Site,
    declared,
    nulls,
    total,
    typed,
    with_env,
)
from sqlproxy.front.types.quoting import read_relation
from sqlproxy.front.types.registry import format_type
from sqlproxy.values.errors import UNDEFINED_OBJECT, SqlError


def _typeof(site: Site) -> Callable[[object], str]:
    name = format_type(site.types[0])
    return lambda value: name


def _nextval(env: Env, name: str) -> int:
    return env.nextval(read_relation(name))


def _currval(env: Env, held: str, relations: regclass.Relations) -> int:
    return env.currval(relations.sequence(held), read_relation(held))


def _setval(env: Env, name: str, value: int, called: bool = True) -> int:
    return env.setval(read_relation(name), value, called)


def _sleep(env: Env, seconds: float) -> str:
    env.slept += max(0.0, seconds)
    return ""


def _notify(env: Env, channel: str | None, payload: str | None) -> str:
    env.notify(channel or "", payload or "")
    return ""


def _session_user(env: Env) -> str:
    return env.session.get("session_user", env.session.get("user", ""))


def _setting(env: Env, name: str, missing: bool = False) -> str | None:
    """Raises SqlError (42704): there is no such setting."""
    try:
        found = None if name.lower() in NO_SETTINGS else env.session.get(name)
    except SqlError as error:
        if error.sqlstate != UNDEFINED_OBJECT:
            raise
        found = None
    if found is None and not missing:
        raise SqlError(UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name:.100}"')
    return found


def _acts(verb: str) -> Function:
    return with_env(lambda env, *given: env.act(verb, given))


def _set_config(env: Env, name: str | None, value: str | None, local: bool | None) -> object:
    if name is None:
        raise SqlError("22004", "SET requires parameter name")
    return env.act("set_config", (name, value, bool(local)))


FUNCTIONS: Final[dict[str, Function]] = {
    **f_advisory.FUNCTIONS,
    **f_arrays.FUNCTIONS,
    **f_catalog.FUNCTIONS,
    **f_enums.FUNCTIONS,
    **f_information_schema.FUNCTIONS,
    **f_json.FUNCTIONS,
    **f_jsonpath.FUNCTIONS,
    **f_numbers.FUNCTIONS,
    **f_patterns.FUNCTIONS,
    **f_text.FUNCTIONS,
    **f_times.FUNCTIONS,
    **formatting.FUNCTIONS,
    **regclass.FUNCTIONS,
    **system_columns.FUNCTIONS,
    **declared(
        {
            "pg_typeof": total(nulls(typed(_typeof))),
            "drandom": with_env(lambda env: env.random()),
            "pg_sleep": with_env(_sleep),
            "pg_notify": nulls(with_env(_notify)),
            "gen_random_uuid": with_env(lambda env: env.uuid()),
            "nextval_oid": with_env(_nextval),
            "currval_oid": with_env(_currval),
            "lastval": with_env(lambda env, relations: env.lastval(relations.sequences)),
            "setval_oid": with_env(_setval),
            "setval3_oid": with_env(_setval),
            "current_user": total(with_env(lambda env: env.session.get("user", ""))),
            "session_user": total(with_env(_session_user)),
            "show_config_by_name": with_env(_setting),
            "show_config_by_name_missing_ok": with_env(_setting),
            "set_config_by_name": nulls(with_env(_set_config)),
            "pg_cancel_backend": _acts("pg_cancel_backend"),
            "pg_terminate_backend": _acts("pg_terminate_backend"),
            "pg_backend_pid": with_env(lambda env: int(env.session["process"])),
            "current_database": total(with_env(lambda env: env.session.get("database", ""))),
            "current_schema": total(with_env(lambda env: next(iter(path_of(env)), None))),
            "current_schemas": with_env(
                lambda env, implicit: [
                    *(searched_before(env) if implicit else ()),
                    *path_of(env),
                ]
            ),
        }
    ),
}
