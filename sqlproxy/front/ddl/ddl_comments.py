"""COMMENT ON an index, a constraint of a table, a database, and the schema public."""

from __future__ import annotations

from sqlproxy.front.binding.fromitems import check_schema, no_relation, no_schema, reference
from sqlproxy.front.binding.scope import Names
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.syntax.syntax import Node, strings
from sqlproxy.rows.naming import named, schema_of
from sqlproxy.rows.schema import CONSTRAINT, INDEX
from sqlproxy.values.errors import (
    UNDEFINED_OBJECT,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)


def bind(body: Node, text: str, names: Names) -> d.Comment:
    """Raises 42P01, 42704, 42809, 3F000."""
    match body["objtype"]:
        case "OBJECT_DATABASE":
            return d.Comment("database", body["object"]["String"]["sval"], "", text)
        case "OBJECT_SCHEMA":
            name = body["object"]["String"]["sval"]
            if name in names.schemas:
                raise unsupported("COMMENT ON a schema beside public")
            if name != "public":
                raise no_schema(name)
            return d.Comment("schema", names.database, "", text)
        case "OBJECT_INDEX":
            return _index(strings(body["object"]["List"]["items"]), text, names)
        case _:
            return _constraint(strings(body["object"]["List"]["items"]), text, names)


def _index(words: list[str], text: str, names: Names) -> d.Comment:
    relation = reference(words)
    name = check_schema(relation, names)
    table = names.index(name)
    if table is not None:
        return d.Comment(INDEX, named(schema_of(table.namespace), table.name), name, text)
    if names.table(name) or names.view(name) or names.sequence(name):
        raise SqlError(WRONG_OBJECT_TYPE, f'"{name}" is not an index')
    raise no_relation(relation)


def _constraint(words: list[str], text: str, names: Names) -> d.Comment:
    *of, name = words
    relation = reference(of)
    table = names.table(check_schema(relation, names))
    if table is None:
        raise no_relation(relation)
    if name not in table.named_parts(CONSTRAINT):
        words_of = f'constraint "{name}" for table "{table.name}" does not exist'
        raise SqlError(UNDEFINED_OBJECT, words_of)
    return d.Comment(CONSTRAINT, named(schema_of(table.namespace), table.name), name, text)
