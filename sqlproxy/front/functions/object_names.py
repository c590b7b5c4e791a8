"""Names of objects and their OIDs: what the input and output functions of regnamespace, regrole,
regproc, … do, and what becomes of a regtype that is no constant.

A value of these types is the OID; whoever hands rows to a client, or makes it a text, shows its
name. A regtype is held as the name (as a regclass is: `regclass`), so its OID is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from sqlproxy.front.bound.env import Env, path_of, searched_before
from sqlproxy.front.bound.exprs import Call, Expr
from sqlproxy.front.functions.asking_rights import check_usage
from sqlproxy.front.functions.function import Function, with_env
from sqlproxy.front.functions.regclass import bounded, name_parts, written_number
from sqlproxy.front.types.quoting import quote_ident
from sqlproxy.front.types.registry import Proc, format_type
from sqlproxy.pg import oids
from sqlproxy.values.errors import (
    UNDEFINED_FUNCTION,
    UNDEFINED_OBJECT,
    UNDEFINED_SCHEMA,
    SqlError,
)

HELD_AS_NAMES: Final = frozenset((oids.REGCLASS, oids.REGTYPE))
HELD_AS_OIDS: Final = oids.NAMES_OF_OBJECTS - HELD_AS_NAMES


class _Kind(NamedTuple):
    relation: str
    column: str
    word: str
    state: str = UNDEFINED_OBJECT
    signature: bool = False  # its arguments' types are part of the name


_KINDS: Final = {
    oids.REGNAMESPACE: _Kind("pg_namespace", "nspname", "schema", UNDEFINED_SCHEMA),
    oids.REGROLE: _Kind("pg_authid", "rolname", "role"),
    oids.REGPROC: _Kind("pg_proc", "proname", "function", UNDEFINED_FUNCTION),
    oids.REGPROCEDURE: _Kind("pg_proc", "proname", "function", UNDEFINED_FUNCTION, signature=True),
    oids.REGOPER: _Kind("pg_operator", "oprname", "operator", UNDEFINED_FUNCTION),
    oids.REGOPERATOR: _Kind("pg_operator", "oprname", "operator", UNDEFINED_FUNCTION, True),
    oids.REGCONFIG: _Kind("pg_ts_config", "cfgname", "text search configuration"),
}


def _number(text: str) -> int | None:
    """What is no name. Raises SqlError (22003)."""
    return 0 if text == "-" else written_number(text)


def _signature(env: Env, kind: _Kind, oid: int) -> str:
    if kind.relation == "pg_proc":
        return str(env.catalog.get("pg_proc", "_identity", oid=oid))
    sides = (env.catalog.get("pg_operator", side, oid=oid) for side in ("oprleft", "oprright"))
    return ",".join(
        str(env.catalog.get("pg_type", "_text", oid=side)) if side else "NONE" for side in sides
    )


def _found(env: Env, kind: _Kind, text: str) -> list[int]:
    bare, arguments = bounded(text).strip(), ""
    if kind.signature:
        bare, _, arguments = bare.partition("(")
    name, where = bare.strip().removeprefix("pg_catalog."), dict[str, object]()
    if kind.relation != "pg_operator":
        *schemas, name = name_parts(bare)
        if schemas and kind.relation == "pg_proc":
            where["pronamespace"] = _schema(env, schemas[-1])
            if where["pronamespace"] is not None:
                check_usage(env, schemas[-1])
    every = env.catalog.find(kind.relation, "oid", **{kind.column: name}, **where)
    if not kind.signature:
        return every
    listed = arguments.rstrip().removesuffix(")").split(",")
    if kind.relation == "pg_proc":
        listed = [_written(env, one) for one in listed]
    wanted = ",".join(listed).replace(" ", "")
    return [one for one in every if _signature(env, kind, one).replace(" ", "") == wanted]


def _schema(env: Env, name: str) -> int | None:
    found: int | None = env.catalog.get("pg_namespace", "oid", nspname=name)
    return found


def _written(env: Env, text: str) -> str:
    """A type as it is shown."""
    found = _type(env, text) if text.strip() else None
    return text if found is None else str(env.catalog.get("pg_type", "_text", oid=found))


def _or_null(of: int) -> Callable[..., int | None]:
    kind = _KINDS[of]

    def find(env: Env, text: str) -> int | None:
        found = _found(env, kind, text)
        return found[0] if len(found) == 1 or (found and not kind.signature) else None

    return find


def _in(of: int) -> Callable[..., int]:
    kind = _KINDS[of]

    def read(env: Env, text: str) -> int:
        if (number := _number(text)) is not None:
            return number
        found = _found(env, kind, text)
        if not found:
            words = name_parts(text.partition("(")[0]) if kind.relation == "pg_proc" else []
            if len(words) > 1 and _schema(env, words[-2]) is None:
                raise SqlError(UNDEFINED_SCHEMA, f'schema "{words[-2]}" does not exist')
            raise SqlError(kind.state, f'{kind.word} "{text}" does not exist')
        if len(found) > 1:
            raise SqlError("42725", f'more than one {kind.word} named "{text}"')
        return found[0]

    return read


function_in: Final = _in(oids.REGPROCEDURE)


def _out(of: int) -> Callable[..., str]:
    kind = _KINDS[of]

    def show(env: Env, oid: int) -> str:
        if not oid:
            return "-"
        name = env.catalog.get(kind.relation, kind.column, oid=oid)
        if name is None:
            return str(oid)
        shown = name if kind.relation == "pg_operator" else quote_ident(name)
        if kind.signature:
            return f"{shown}({_signature(env, kind, oid)})"
        several = kind.state == UNDEFINED_FUNCTION and len(_found(env, kind, name)) > 1
        return f"pg_catalog.{shown}" if several else shown

    return show


_WORDS: Final = {
    "int": "int4",
    "dec": "numeric",
    "decimal": "numeric",
    "float": "float8",
    "char": "bpchar",
}
"""What the language calls types besides their names."""
_MODIFIER: Final = re.compile(r"\s*\([\d\s,]*\)")
_BOUNDS: Final = re.compile(r"(\s*\[\s*\d*\s*\]|\s+array)+$", re.IGNORECASE)


def _type(env: Env, text: str) -> int | None:
    """Of a type as it is written: a name, also quoted and of a schema, or the words that the
    language has for it; a modifier says nothing here.
    """
    name = _MODIFIER.sub("", bounded(text).strip())
    if (element_name := _BOUNDS.sub("", name)) != name:
        element = _type(env, element_name)
        return element and (env.catalog.get("pg_type", "typarray", oid=element) or element)
    order = [*searched_before(env), *path_of(env)]  # as names of a statement's types
    words = '"' not in name and "." not in name
    if words:
        name = " ".join(name.lower().split())
        name = _WORDS.get(name, name)
    else:
        *schemas, name = name_parts(name)
        order = schemas[-1:] or order
        if schemas and _schema(env, schemas[-1]) is not None:
            check_usage(env, schemas[-1])
    tried = [("typname", schema) for schema in order]
    for column, schema in (*tried, *([("_text", "pg_catalog")] if words else [])):
        where = env.catalog.get("pg_namespace", "oid", nspname=schema)
        found = env.catalog.get("pg_type", "oid", **{column: name, "typnamespace": where})
        if found is not None:
            return int(found)
    return None


def type_in(env: Env, text: str) -> int:
    number = _number(text)
    found = _type(env, text) if number is None else number
    if found is None:
        parts = name_parts(text) if '"' in text or "." in text else [text]
        if len(parts) > 1 and not env.catalog.find("pg_namespace", "oid", nspname=parts[-2]):
            raise SqlError(UNDEFINED_SCHEMA, f'schema "{parts[-2]}" does not exist')
        raise SqlError(UNDEFINED_OBJECT, f'type "{".".join(parts)}" does not exist')
    return found


def type_name(env: Env, oid: int) -> str | None:
    """A type as messages and regtype show it: with its schema where the name alone does not mean
    it.
    """
    text: str | None = env.catalog.get("pg_type", "_text", oid=oid)
    schema = env.catalog.get("pg_type", "typnamespace", oid=oid)
    schema = env.catalog.get("pg_namespace", "nspname", oid=schema)
    if text is None or schema in (None, "pg_catalog", "information_schema"):
        return text
    shown = quote_ident(schema) + "."
    bare = text.removeprefix(shown)
    return bare if _found_alone(env, oid, schema) else shown + bare


def _found_alone(env: Env, oid: int, schema: str) -> bool:
    """Whether the path leads to this type of all that have its name."""
    order = [*searched_before(env), *path_of(env)]
    name = env.catalog.get("pg_type", "typname", oid=oid)
    others = env.catalog.find("pg_type", "typnamespace", typname=name)
    before = order[: order.index(schema)] if schema in order else None
    return before is not None and not any(
        env.catalog.get("pg_namespace", "nspname", oid=one) in before for one in others
    )


def _type_out(env: Env, oid: int) -> str:
    return type_name(env, oid) or (str(oid) if oid else "-")


def _type_or_null(env: Env, text: str) -> str | None:
    found = _type(env, text)
    return None if found is None else _type_out(env, found)


def shower(oid: int) -> Callable[[Env, object], str]:
    """What shows values of one of the types that are held as OIDs."""
    return _out(oid)


FUNCTIONS: Final[dict[str, Function]] = {
    **{f"{format_type(of)}in": with_env(_in(of)) for of in _KINDS},
    **{f"{format_type(of)}out": with_env(_out(of)) for of in _KINDS},
    **{f"to_{format_type(of)}": with_env(_or_null(of)) for of in _KINDS},
    "regtypein": with_env(type_in),
    "regtypeout": with_env(_type_out),
    "to_regtype": with_env(_type_or_null),
}


def _call(source: str, arg: Expr, result: int) -> Call:
    proc = Proc(source, (arg.oid,), result, source, volatile="s")
    return Call(oid=result, proc=proc, args=(arg,), pos=arg.pos)


def of_text(arg: Expr, oid: int) -> Call:
    """A text as a value of one of these types."""
    if oid != oids.REGTYPE:
        return _call(f"{format_type(oid)}in", arg, oid)
    return as_type(_call("regtypein", arg, oids.OID))


def as_text(arg: Expr) -> Call:
    """What is held as an OID as it is shown."""
    return _call(f"{format_type(arg.oid)}out", arg, oids.TEXT)


def as_type(arg: Expr) -> Call:
    """An OID as a regtype."""
    return _call("regtypeout", arg, oids.REGTYPE)


def oid_of_type(arg: Expr) -> Call:
    return _call("regtypein", arg, oids.OID)
