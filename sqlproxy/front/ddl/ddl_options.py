"""Options of declarations: of sequences, of tables, and the columns of an index. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlproxy.front.binding.typenames import check_collation, type_of
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.syntax.syntax import Node, at, strings, unwrap
from sqlproxy.pg.oids import canonical
from sqlproxy.values.errors import (
    INVALID_PARAMETER,
    INVALID_TABLE_DEFINITION,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    SqlError,
    unsupported,
)
from sqlproxy.values.words import words

_TEXTS: Final = ("shard", "survive", "leaders")
NAMESPACE_OPTIONS: Final = ("replicas", "tags", *_TEXTS)
TABLE_OPTIONS: Final = (*NAMESPACE_OPTIONS, "partition_bytes")
_BTREE: Final = words(
    """
    array_ops bool_ops bpchar_ops bpchar_pattern_ops bytea_ops char_ops date_ops enum_ops float4_ops
    float8_ops int2_ops int4_ops int8_ops interval_ops jsonb_ops name_ops numeric_ops oid_ops
    text_ops text_pattern_ops time_ops timestamp_ops timestamptz_ops uuid_ops varchar_ops
    varchar_pattern_ops
    """
)
_INDEX_HINTS: Final = ("fillfactor", "deduplicate_items")


_ON_COMMIT: Final = {"ONCOMMIT_DELETE_ROWS": "delete rows", "ONCOMMIT_DROP": "drop"}


def on_commit(said: str, *, temporary: bool) -> str:
    """What becomes of a temporary table at each commit; "": nothing. Raises SqlError (42P16)."""
    if said not in ("", "ONCOMMIT_NOOP") and not temporary:
        raise SqlError(INVALID_TABLE_DEFINITION, "ON COMMIT can only be used on temporary tables")
    return _ON_COMMIT.get(said, "")


def check_place(*, method: str, tablespace: str) -> None:
    """Of a table that is made: there is one way to store it. Raises SqlError."""
    if method not in ("", "heap"):
        raise SqlError(UNDEFINED_OBJECT, f'access method "{method}" does not exist')
    check_tablespace(tablespace)


def check_tablespace(name: str) -> None:
    """Raises 42704."""
    if name not in ("", "pg_default"):
        raise SqlError(
            UNDEFINED_OBJECT,
            f'tablespace "{name}" does not exist',
            hint="Tables are placed by WITH (tags = …, survive = …, leaders = …).",
        )


def check_index_options(nodes: Sequence[Node]) -> None:
    """WITH of an index or of a key: hints to pages, of which there are none. Raises 22023."""
    for node in nodes:
        name = node["DefElem"]["defname"]
        if name not in _INDEX_HINTS:
            raise SqlError(INVALID_PARAMETER, f'unrecognized parameter "{name}"')


def check_view_options(nodes: Sequence[Node]) -> None:
    """WITH of a view: what would change who may read what is refused. Raises SqlError."""
    for node in nodes:
        body = node["DefElem"]
        name = body["defname"]
        if name not in ("security_barrier", "security_invoker", "check_option"):
            raise SqlError(INVALID_PARAMETER, f'unrecognized parameter "{name}"')
        if str(option_value(body)).lower() not in ("false", "off", "0", "no"):
            raise unsupported(
                f"the option {name} of a view",
                hint="A view reads what its owner may read, and is not written to.",
            )


def index_part(
    body: Node, known: set[str], derive: Callable[[Node], d.Derived] | None = None
) -> d.KeyPart:
    """One column of an index; `derive`: of an expression. Raises SqlError."""
    node, name = body.get("expr"), body.get("name")
    if node is not None and "ColumnRef" in node:
        name = strings(node["ColumnRef"]["fields"])[-1]  # in parentheses
    if name is None and derive is None:
        raise SqlError("0A000", "expressions are not supported in included columns")
    if collation := strings(body.get("collation")):
        check_collation(collation, 0)
    opclass = strings(body.get("opclass"))
    if opclass and opclass[-1] not in _BTREE:
        raise SqlError(
            UNDEFINED_OBJECT,
            f'operator class "{opclass[-1]}" does not exist for access method "btree"',
        )
    if name is not None and name not in known:
        raise SqlError(UNDEFINED_COLUMN, f'column "{name}" does not exist')
    descending = body.get("ordering") == "SORTBY_DESC"
    nulls = body.get("nulls_ordering", "SORTBY_NULLS_DEFAULT")
    first = descending if nulls == "SORTBY_NULLS_DEFAULT" else nulls == "SORTBY_NULLS_FIRST"
    if name is not None:
        return d.KeyPart(name, descending, first)
    assert node is not None
    assert derive is not None
    return d.KeyPart("", descending, first, derive(node))


def option_value(body: Node) -> Any:
    """The plain value of a DefElem; None: it has none."""
    if "arg" not in body:
        return None
    kind, value = unwrap(body["arg"])
    match kind:
        case "String":
            return value.get("sval", "")
        case "Integer":
            return value.get("ival", 0)
        case "Boolean":
            return value.get("boolval", False)
        case "Float":
            return value.get("fval", "")
        case "TypeName":
            return strings(value["names"])[-1]
        case "List":
            return tuple(strings(value.get("items")))
        case "A_Const":
            if "sval" in value:
                return value["sval"].get("sval", "")
            if "ival" in value:
                return value["ival"].get("ival", 0)
            return value.get("boolval", {}).get("boolval", False)
        case _:
            return None


def sequence_options(nodes: Sequence[Node]) -> dict[str, Any]:
    found: dict[str, object] = {}
    for node in nodes:
        body = node["DefElem"]
        name = body["defname"]
        if name in found:
            raise SqlError(SYNTAX_ERROR, "conflicting or redundant options", position=at(body))
        value = option_value(body)
        if name in (
            "start",
            "increment",
            "minvalue",
            "maxvalue",
            "cache",
            "restart",
        ) and isinstance(value, str):
            value = int(value)
        if name == "increment" and value == 0:
            raise SqlError(INVALID_PARAMETER, "INCREMENT must not be zero")
        if name == "as":
            oid, _ = type_of(body["arg"]["TypeName"])
            if oid not in (20, 21, 23):
                raise SqlError(
                    INVALID_PARAMETER, "sequence type must be smallint, integer, or bigint"
                )
            value = canonical(oid)
        found[name] = value
    return found


def table_options(nodes: Sequence[Node]) -> dict[str, object]:
    """WITH (replicas = 3, tags = 'ssd,eu', survive = 'rack', …). Raises 22023 for
    others.
    """
    found: dict[str, object] = {}
    for node in nodes:
        body = node["DefElem"]
        name = body["defname"].lower()
        value = option_value(body)
        if name not in TABLE_OPTIONS:
            if name == "fillfactor":  # a hint to a heap; the session says that there is none
                found[name] = value
                continue
            if name in ("autovacuum_enabled", "oids"):
                raise unsupported(f"the storage parameter {name}")
            raise SqlError(
                INVALID_PARAMETER,
                f'unrecognized parameter "{name}"',
                hint=f"There are {', '.join(TABLE_OPTIONS)}.",
            )
        if name == "tags":
            value = tuple(t.strip() for t in str(value).split(",") if t.strip())
        elif name in _TEXTS:
            value = str(value)
        elif not isinstance(value, int):
            raise SqlError(INVALID_PARAMETER, f'invalid value for integer option "{name}": {value}')
        found[name] = value
    return found
