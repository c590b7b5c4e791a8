"""CREATE, ALTER and DROP of types. Users have enums (`sqlproxy.values.enums`); besides there are
PostgreSQL's own types, and those of the rows of tables and views.

What names one that is not there answers as PostgreSQL: migrations say DROP TYPE IF EXISTS after a
DROP TABLE, whether or not a type was made. Not here: ALTER TYPE of composite types, which is an
ALTER TABLE to the grammar; composite, range and base types, and domains (0A000 by the front).
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlproxy.front.binding.fromitems import check_schema
from sqlproxy.front.binding.scope import Names
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.statements import Ignored
from sqlproxy.front.syntax.syntax import Node, strings
from sqlproxy.front.types.registry import TYPE_BY_NAME, format_type
from sqlproxy.rows.naming import named
from sqlproxy.values.errors import (
    DEPENDENT_OBJECTS,
    UNDEFINED_OBJECT,
    UNDEFINED_SCHEMA,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)


def create_enum(body: Node, names: Names) -> d.CreateEnum:
    """Raises 3F000, 0A000."""
    words = strings(body["typeName"])
    return d.CreateEnum(_own_name(words, names), tuple(strings(body.get("vals"))))


def drop(body: Node, names: Names) -> d.DropTypes | Ignored:
    """DROP TYPE and DROP DOMAIN. Raises 42704, 3F000, 42809, 2BP01 (a type of the system, or of a
    relation's rows).
    """
    missing: list[str] = []
    found: list[str] = []
    domain = body["removeType"] == "OBJECT_DOMAIN"
    for words in _names(body):
        if not domain and (own := _own(words, names)) is not None:
            found.append(own)
            continue
        why = _why_not(words, names, domain=domain)
        absent = why.sqlstate in (UNDEFINED_OBJECT, UNDEFINED_SCHEMA)
        if not (absent and body.get("missing_ok")):
            raise why
        missing.append(f"{why.message}, skipping")
    tag = body["removeType"].replace("OBJECT", "DROP").replace("_", " ")
    if not found:
        return Ignored(tag, missing[0], tuple(missing[1:]))
    cascade = body.get("behavior") == "DROP_CASCADE"
    return d.DropTypes(tuple(dict.fromkeys(found)), cascade, tuple(missing))


def alter_enum(body: Node, names: Names) -> d.AddLabel | d.RenameLabel:
    """ADD VALUE and RENAME VALUE. Raises 42704, 42809."""
    words = strings(body["typeName"])
    name = _own(words, names)
    if name is None:
        raise _no_enum(words, names)
    if "oldVal" in body:
        return d.RenameLabel(name, body["oldVal"], body.get("newVal", ""))
    neighbour = body.get("newValNeighbor")
    after = bool(body.get("newValIsAfter"))
    return d.AddLabel(
        name,
        body.get("newVal", ""),
        before=None if after else neighbour,
        after=neighbour if after else None,
        if_not_exists=bool(body.get("skipIfNewValExists")),
    )


def rename(body: Node, names: Names) -> d.Rename:
    """ALTER TYPE … RENAME TO. Raises 42704, 0A000."""
    words = strings(body["object"]["List"]["items"])
    if (name := _own(words, names)) is not None:
        return d.Rename("type", name, body["newname"])
    if _there(words, names):
        raise unsupported("renaming a type that is the system's or of a relation's rows")
    raise SqlError(UNDEFINED_OBJECT, f'type "{".".join(words)}" does not exist')


def _own_name(words: list[str], names: Names) -> str:
    """Of one that is to be made. Raises 3F000, 0A000."""
    reference: Node = {"relname": words[-1]}
    if len(words) > 1:
        reference["schemaname"] = words[-2]
    if len(words) > 2:
        reference["catalogname"] = words[-3]
    return check_schema(reference, names, made=True)


def _own(words: list[str], names: Names) -> str | None:
    """The name of a type of users'; None: it is none."""
    if words[:-2] not in ([], [names.database]):
        return None
    for schema in words[-2:-1] or names.path:
        if names.enum(found := named(schema, words[-1])) is not None:
            return found
    return None


def _names(body: Node) -> Iterator[list[str]]:
    for node in body["objects"]:
        yield strings(node["TypeName"]["names"])


def _relation(words: list[str], names: Names) -> str:
    """What the rows of this type are of: "table t", "view v"; "": no relation of users'."""
    if words[:-1] == ["pg_catalog"]:
        return ""
    reference: Node = {"relname": words[-1]}
    if len(words) > 1:
        reference["schemaname"] = words[-2]
    name = check_schema(reference, names)
    one = names.table(name) or names.view(name)
    return "" if one is None else f"{one.kind} {name}"


def _there(words: list[str], names: Names) -> bool:
    own = words[:-1] in ([], ["pg_catalog"]) and words[-1] in TYPE_BY_NAME
    return own or bool(_relation(words, names))


def _why_not(words: list[str], names: Names, *, domain: bool) -> SqlError:
    """Why a type is not dropped, in PostgreSQL's words: it is not there, or it stays."""
    shown = ".".join(words)
    try:
        if not _there(words, names):
            return SqlError(UNDEFINED_OBJECT, f'type "{shown}" does not exist')
    except SqlError as error:
        return error
    if domain:
        return SqlError(WRONG_OBJECT_TYPE, f'"{shown}" is not a domain')
    if whose := _relation(words, names):
        return SqlError(
            DEPENDENT_OBJECTS,
            f"cannot drop type {words[-1]} because {whose} requires it",
            hint=f"You can drop {whose} instead.",
        )
    shown = format_type(TYPE_BY_NAME[words[-1]])
    return SqlError(
        DEPENDENT_OBJECTS,
        f"cannot drop type {shown} because it is required by the database system",
    )


def _no_enum(words: list[str], names: Names) -> SqlError:
    shown = ".".join(words)
    if _there(words, names):
        system = TYPE_BY_NAME.get(words[-1]) if not _relation(words, names) else None
        shown = shown if system is None else format_type(system)
        return SqlError(WRONG_OBJECT_TYPE, f"{shown} is not an enum")
    return SqlError(UNDEFINED_OBJECT, f'type "{shown}" does not exist')
