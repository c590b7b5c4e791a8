"""A function of users' → its row of pg_proc. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.rights import OWNER
from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import oids, rights
from sqlproxy.pgcatalog.definitions import quoted
from sqlproxy.pgcatalog.row_bases import Rows
from sqlproxy.rows.schema import FunctionArgument, SqlFunction

_SQL: Final = 14  # of pg_language


def of_function(one: SqlFunction, rows: Rows, named: Callable[[int], str]) -> None:
    """`named`: a type, as it is shown."""
    arguments = one.arguments
    table = one.result == types.RECORD
    columns = one.columns if table else ()
    names = [*(a.name for a in arguments), *(name for name, _ in columns)]
    identity = ", ".join(_shown(argument, named, default=False) for argument in arguments)
    result = named(one.result)
    if table:
        listed = ", ".join(f"{quoted(name)} {named(oid)}" for name, oid in columns)
        result = f"TABLE({listed})"
    elif one.columns:
        result = f"SETOF {result}"
    defaults = [argument.default for argument in arguments if argument.default is not None]
    rows["pg_proc"].append(
        {
            "oid": oids.relation(one.id),
            "proname": one.title,
            "pronamespace": oids.PUBLIC_SCHEMA,
            "proowner": rights.number(one.owner or OWNER),
            "prolang": _SQL,
            "procost": 100.0,
            "prorows": 1000.0 if one.columns else 0.0,
            "provariadic": 0,
            "prosupport": 0,
            "prokind": "f",
            "prosecdef": False,
            "proleakproof": False,
            "proisstrict": one.strict,
            "proretset": bool(one.columns),
            "provolatile": one.volatile,
            "proparallel": "u",
            "pronargs": len(arguments),
            "pronargdefaults": len(defaults),
            "prorettype": one.result,
            "proargtypes": [argument.oid for argument in arguments],
            "proallargtypes": [*(a.oid for a in arguments), *(of for _, of in columns)]
            if columns
            else None,
            "proargmodes": ["i"] * len(arguments) + ["t"] * len(columns) if columns else None,
            "proargnames": names if any(names) else None,
            "proargdefaults": ", ".join(defaults) or None,
            "prosrc": one.sql,
            "_result": result,
            "_arguments": ", ".join(
                _shown(argument, named, default=True) for argument in arguments
            ),
            "_identity": identity,
        }
    )


def _shown(argument: FunctionArgument, named: Callable[[int], str], *, default: bool) -> str:
    said = f"{quoted(argument.name)} " if argument.name else ""
    said += named(argument.oid)
    if default and argument.default is not None:
        said += f" DEFAULT {argument.default}"
    return said
