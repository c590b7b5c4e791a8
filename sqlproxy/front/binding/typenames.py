"""Type names of statements → OID and modifier, and the names that PostgreSQL gives to columns of
answers.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from sqlproxy.front.binding.scope import Names
from sqlproxy.front.syntax.syntax import Node, at, find, strings, unwrap
from sqlproxy.front.types.registry import TYPE_BY_NAME, array_of, category, element_of, format_type
from sqlproxy.pg import oids
from sqlproxy.pg.oids import TYPES as VALUE_TYPES
from sqlproxy.rows.naming import PUBLIC, named
from sqlproxy.values.errors import (
    DATATYPE_MISMATCH,
    INVALID_PARAMETER,
    SYNTAX_ERROR,
    UNDEFINED_OBJECT,
    UNDEFINED_SCHEMA,
    SqlError,
    unsupported,
)
from sqlproxy.values.words import by_word

SERIALS: Final = by_word(
    {"int2": "smallserial serial2", "int4": "serial serial4", "int8": "bigserial serial8"}
)
COLLATIONS: Final = frozenset(("C", "POSIX", "C.UTF-8", "C.utf8", "default", "ucs_basic"))
"""All are the same order."""
_LENGTH_MAX: Final = 10_485_760
_INFORMATION: Final = "information_schema"
_DOMAINS: Final = {
    "cardinal_number": (oids.INT4, -1),
    "character_data": (oids.VARCHAR, -1),
    "sql_identifier": (oids.NAME, -1),
    "time_stamp": (oids.TIMESTAMPTZ, 2),
    "yes_or_no": (oids.VARCHAR, 7),
}
"""Of information_schema: what they are made of."""


def type_of(node: Node, names: Names | None = None) -> tuple[int, int]:
    """The OID and the modifier (-1 = none) of a TypeName's fields; `names`: where enums may be.
    Raises 42704, 22023, 0A000.
    """
    words = strings(node.get("names"))
    pos = at(node)
    name, schema = words[-1], words[-2] if len(words) > 1 else ""
    if schema == _INFORMATION and (domain := _DOMAINS.get(name)):
        return domain
    others: Container[str] = () if names is None else names.schemas
    if schema not in ("", "pg_catalog", "public") and schema not in others:
        raise SqlError(UNDEFINED_SCHEMA, f'schema "{schema}" does not exist', position=pos)
    if node.get("pct_type"):
        raise unsupported("%TYPE", position=pos)
    oid = None if schema in others else TYPE_BY_NAME.get(name)
    if names is not None and schema != "pg_catalog" and (oid is None or schema):
        for one in (schema,) if schema else names.path:
            if (own := names.enum(named(one, name))) is not None:
                oid = own.oid  # what PostgreSQL has of this name comes first
                break
    if oid is None:
        if name in SERIALS:
            raise SqlError(UNDEFINED_OBJECT, f'type "{name}" does not exist', position=pos)
        shown = ".".join(words)
        raise SqlError(UNDEFINED_OBJECT, f'type "{shown}" does not exist', position=pos)
    known = VALUE_TYPES.get(oid)
    if known is None or known.kind == "pseudo":
        raise unsupported(f"the type {format_type(oid)}", position=pos)
    typmod = _modifier(oid, [_constant(m) for m in node.get("typmods", ())], pos)
    if node.get("arrayBounds"):
        oid = array_of(oid)
        if not oid:
            raise SqlError(
                UNDEFINED_OBJECT, f'could not find array type for data type "{name}"', position=pos
            )
    return oid, typmod


def with_schemas(node: Node, names: Names, called: Mapping[int, str]) -> Node:
    """The tree with the schemas of users' types and functions that the path alone finds. `called`:
    those of functions, by the places of the calls.
    """
    if names.path == (PUBLIC,):
        return node
    found = deepcopy(node)
    for kind in ("typeName", "TypeName"):
        for body in find(found, kind):
            words = strings(body.get("names"))
            if len(words) == 1 and words[0] not in TYPE_BY_NAME:
                path = (one for one in names.path if names.enum(named(one, words[0])) is not None)
                if (schema := next(path, PUBLIC)) != PUBLIC:
                    body["names"] = _words(schema, words[0])
    for body in find(found, "FuncCall"):
        words, schema = strings(body.get("funcname")), called.get(at(body), PUBLIC)
        if len(words) == 1 and schema != PUBLIC:
            body["funcname"] = _words(schema, words[0])
    return found


def _words(*words: str) -> list[Node]:
    return [{"String": {"sval": word}} for word in words]


def check_collation(words: Sequence[str], oid: int, pos: int = 0) -> None:
    """COLLATE of a value or a column of a type (0: of any). Raises 42704, 3F000, 42804."""
    if len(words) > 1 and words[-2] != "pg_catalog":
        raise SqlError(UNDEFINED_SCHEMA, f'schema "{words[-2]}" does not exist', position=pos)
    if words[-1] not in COLLATIONS:
        raise SqlError(
            UNDEFINED_OBJECT,
            f'collation "{words[-1]}" for encoding "UTF8" does not exist',
            hint='There is "C" only.',
            position=pos,
        )
    if oid and category(element_of(oid) or oid) != "S":
        raise SqlError(
            DATATYPE_MISMATCH,
            f"collations are not supported by type {format_type(oid)}",
            position=pos,
        )


def _constant(node: Node) -> int:
    kind, body = unwrap(node)
    if kind == "A_Const" and "ival" in body:
        value: int = body["ival"].get("ival", 0)
        return value
    if kind == "A_Expr" and "lexpr" not in body and strings(body.get("name")) == ["-"]:
        return -_constant(body["rexpr"])
    raise SqlError(
        SYNTAX_ERROR, "type modifiers must be simple constants or identifiers", position=at(body)
    )


def _modifier(oid: int, given: list[int], pos: int) -> int:
    if not given:
        return -1
    if oid in (oids.VARCHAR, oids.BPCHAR):
        word = "varchar" if oid == oids.VARCHAR else "char"
        if given[0] < 1:
            raise SqlError(
                INVALID_PARAMETER, f"length for type {word} must be at least 1", position=pos
            )
        if given[0] > _LENGTH_MAX:
            raise SqlError(
                INVALID_PARAMETER,
                f"length for type {word} cannot exceed {_LENGTH_MAX}",
                position=pos,
            )
        return given[0] + 4
    if oid == oids.NUMERIC:
        precision, scale = given[0], given[1] if len(given) > 1 else 0
        if not 1 <= precision <= 1_000:
            raise SqlError(
                INVALID_PARAMETER,
                f"NUMERIC precision {precision} must be between 1 and 1000",
                position=pos,
            )
        if not -1_000 <= scale <= 1_000:
            raise SqlError(
                INVALID_PARAMETER,
                f"NUMERIC scale {scale} must be between -1000 and 1000",
                position=pos,
            )
        return (precision << 16 | scale & 0x7FF) + 4
    if oid in (oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ):
        if given[0] < 0:
            word = "TIME" if oid == oids.TIME else "TIMESTAMP"
            raise SqlError(
                INVALID_PARAMETER,
                f"{word}({given[0]}) precision must not be negative",
                position=pos,
            )
        return min(given[0], 6)
    if oid == oids.INTERVAL:
        precision = given[1] if len(given) > 1 else 0xFFFF
        return (given[0] & 0x7FFF) << 16 | (min(precision, 6) if precision != 0xFFFF else precision)
    raise SqlError(
        SYNTAX_ERROR, f'type modifier is not allowed for type "{format_type(oid)}"', position=pos
    )


_FUNCTION_LIKE: Final = {
    "SVFOP_CURRENT_DATE": "current_date",
    "SVFOP_CURRENT_TIME": "current_time",
    "SVFOP_CURRENT_TIME_N": "current_time",
    "SVFOP_CURRENT_TIMESTAMP": "current_timestamp",
    "SVFOP_CURRENT_TIMESTAMP_N": "current_timestamp",
    "SVFOP_LOCALTIME": "localtime",
    "SVFOP_LOCALTIME_N": "localtime",
    "SVFOP_LOCALTIMESTAMP": "localtimestamp",
    "SVFOP_LOCALTIMESTAMP_N": "localtimestamp",
    "SVFOP_CURRENT_ROLE": "current_role",
    "SVFOP_CURRENT_USER": "current_user",
    "SVFOP_USER": "user",
    "SVFOP_SESSION_USER": "session_user",
    "SVFOP_CURRENT_CATALOG": "current_catalog",
    "SVFOP_CURRENT_SCHEMA": "current_schema",
}
NO_NAME: Final = "?column?"
_FIXED: Final = {
    "GroupingFunc": "grouping",
    "A_ArrayExpr": "array",
    "RowExpr": "row",
    "CoalesceExpr": "coalesce",
    "XmlExpr": "xml",
    "XmlSerialize": "xmlserialize",
    "JsonObjectConstructor": "json_object",
}


def function_name(op: str) -> str:
    return _FUNCTION_LIKE[op]


def column_name(node: Node) -> str:
    """FigureColname: the name of a column of an answer that was given none."""
    return _figure(node)[1] or NO_NAME


def _figure(node: Node) -> tuple[int, str]:  # noqa: C901 - a table of nodes
    """How sure (0 not, 1 a type's name, 2 surely) and the name."""
    kind, body = unwrap(node)
    if kind in _FIXED:
        return 2, _FIXED[kind]
    match kind:
        case "ColumnRef":
            words = [n["String"].get("sval", "") for n in body["fields"] if "String" in n]
            if words and "String" in body["fields"][-1]:
                return 2, words[-1]
        case "A_Indirection":
            words = strings(body.get("indirection"))
            return (2, words[-1]) if words else _figure(body["arg"])
        case "FuncCall":
            return 2, strings(body["funcname"])[-1]
        case "A_Expr" if body.get("kind") == "AEXPR_NULLIF":
            return 2, "nullif"
        case "TypeCast":
            sure, name = _figure(body["arg"])
            return (sure, name) if sure > 1 else (1, strings(body["typeName"]["names"])[-1])
        case "CollateClause":
            return _figure(body["arg"])
        case "SubLink":
            return _of_subquery(body)
        case "CaseExpr":
            sure, name = _figure(body["defresult"]) if "defresult" in body else (0, "")
            return (sure, name) if sure > 1 else (1, "case")
        case "MinMaxExpr":
            return 2, "greatest" if body.get("op", "IS_GREATEST") == "IS_GREATEST" else "least"
        case "SQLValueFunction":
            return 2, _FUNCTION_LIKE[body["op"]]
        case _:
            pass
    return 0, ""


def _of_subquery(body: dict[str, Any]) -> tuple[int, str]:
    match body.get("subLinkType"):
        case "EXISTS_SUBLINK":
            return 2, "exists"
        case "ARRAY_SUBLINK":
            return 2, "array"
        case "EXPR_SUBLINK":
            select = body["subselect"].get("SelectStmt", {})
            while "larg" in select:  # of a set operation the first part names
                select = select["larg"]
            if targets := select.get("targetList"):
                target = targets[0]["ResTarget"]
                return 2, target["name"] if "name" in target else column_name(target["val"])
        case _:
            pass
    return 0, ""
