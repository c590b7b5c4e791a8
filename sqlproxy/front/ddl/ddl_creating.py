"""CREATE, DROP, RENAME → bound definitions. Expressions are bound here, so that mistakes show when
they are declared.

    ddl_tables     the columns and constraints of a table that is declared
    ddl_altering   the actions of ALTER TABLE
    ddl_options    WITH (…), options of sequences, columns of indexes
    ddl_texts      what is kept as SQL
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Final

from kv.base.ids import FIRST_PRIVATE_TABLE
from kv.base.limits import SQL_COMMENT_CHARS_MAX
from sqlproxy.front.binding.fromitems import (
    check_schema,
    no_relation,
    no_schema,
    reference,
    table_columns,
)
from sqlproxy.front.binding.query import Queries
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.statements import Ignored, Select
from sqlproxy.front.ddl import ddl_comments, ddl_extensions, ddl_functions, ddl_types
from sqlproxy.front.ddl.ddl_clauses import Clauses
from sqlproxy.front.ddl.ddl_granting import role_name
from sqlproxy.front.ddl.ddl_options import (
    NAMESPACE_OPTIONS,
    check_index_options,
    check_place,
    check_tablespace,
    check_view_options,
    index_part,
    on_commit,
    option_value,
    sequence_options,
    table_options,
)
from sqlproxy.front.ddl.ddl_tables import Draft, twice
from sqlproxy.front.ddl.ddl_texts import (
    query_text,
    uses_of,
    with_names,
    with_targets,
)
from sqlproxy.front.syntax.dialect import Extras
from sqlproxy.front.syntax.syntax import Node, strings, unwrap
from sqlproxy.pg.oids import canonical
from sqlproxy.rows.naming import PUBLIC, check_schema_name, is_temporary, named, schema_in
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.rows.schema import Table, View
from sqlproxy.values.errors import (
    LIMIT_EXCEEDED,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    UNDEFINED_SCHEMA,
    UNDEFINED_TABLE,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)

_LOCALES: Final = frozenset(("c", "posix", "c.utf8"))  # all are the same here
_DROPS: Final = {
    "OBJECT_TABLE": "table",
    "OBJECT_INDEX": "index",
    "OBJECT_VIEW": "view",
    "OBJECT_SEQUENCE": "sequence",
}


SYSTEM: Final = ("pg_catalog", "information_schema", "kvorum")
_NOTED: Final = ("OBJECT_INDEX", "OBJECT_TABCONSTRAINT", "OBJECT_DATABASE", "OBJECT_SCHEMA")
_COMMENTED: Final = {
    "OBJECT_TABLE": "table",
    "OBJECT_VIEW": "view",
    "OBJECT_SEQUENCE": "sequence",
    "OBJECT_COLUMN": "column",
}


class Definitions:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.binder = queries.binder
        self.names = queries.binder.names
        self.clauses = Clauses(queries)

    # -- CREATE TABLE

    def create_table(self, body: Node, extras: Extras) -> d.CreateTable:
        name = check_schema(body["relation"], self.names, made=True)
        for key, what in (
            ("inhRelations", "INHERITS"),
            ("partspec", "PARTITION BY: tables are split by themselves"),
            ("ofTypename", "CREATE TABLE OF"),
        ):
            if body.get(key):
                raise unsupported(what)
        if body["relation"].get("relpersistence", "p") == "u":
            raise unsupported("unlogged tables", are=True)
        check_place(method=body.get("accessMethod", ""), tablespace=body.get("tablespacename", ""))
        draft = Draft(self.clauses, name)
        for node in body.get("tableElts", ()):
            kind, part = unwrap(node)
            if kind == "ColumnDef":
                draft.column(part, extras)
            elif kind == "Constraint":
                draft.later.append((part, None))
            else:
                draft.like(part)
        draft.finish()
        for more in extras.keys:
            parts = tuple(d.KeyPart(column, desc, desc) for column, desc in more.columns)
            for one in parts:
                draft.known(one.column, 0)
            draft.keys.append(
                d.KeyDef(name=more.name, parts=parts, unique=more.unique, constraint=more.unique)
            )
        return d.CreateTable(
            name=name,
            columns=tuple(draft.columns),
            if_not_exists=bool(body.get("if_not_exists")),
            keys=tuple(draft.keys),
            checks=tuple(draft.checks),
            foreign_keys=tuple(draft.foreign_keys),
            options=table_options(body.get("options", ())),
            on_commit=on_commit(body.get("oncommit", ""), temporary=self._private(name)),
            notes=tuple(draft.notes),
        )

    def _private(self, name: str) -> bool:
        """Whether it is, or will be, in the session's own schema."""
        return bool(self.names.private) and schema_in(name) == self.names.private

    def create_table_as(self, body: Node) -> d.CreateTableAs:
        if body.get("objtype") != "OBJECT_TABLE":
            raise unsupported("materialized views", are=True)
        into = body["into"]
        name = check_schema(into["rel"], self.names, made=True)
        if into["rel"].get("relpersistence", "p") == "u":
            raise unsupported("unlogged tables", are=True)
        check_place(method=into.get("accessMethod", ""), tablespace=into.get("tableSpaceName", ""))
        query = body["query"]
        if "SelectStmt" not in query:
            raise unsupported("CREATE TABLE AS EXECUTE")
        select = self.queries.select(query["SelectStmt"], None)
        names = strings(into.get("colNames"))
        if len(names) > len(select.targets):
            raise SqlError(SYNTAX_ERROR, "too many column names were specified")
        columns: list[d.ColumnDef] = []
        for i, target in enumerate(select.targets):
            column = names[i] if i < len(names) else target.name
            if any(c.name == column for c in columns):
                raise twice(column)
            columns.append(
                d.ColumnDef(name=column, type=canonical(target.expr.oid, target.expr.typmod))
            )
        return d.CreateTableAs(
            name,
            tuple(columns),
            select,
            if_not_exists=bool(body.get("if_not_exists")),
            with_data=not into.get("skipData"),
            options=table_options(into.get("options", ())),
            on_commit=on_commit(into.get("onCommit", ""), temporary=self._private(name)),
        )

    # -- constraints of a table, by contype

    # -- CREATE INDEX

    def create_index(self, body: Node) -> d.CreateIndex:
        table = self.queries.items.table(body["relation"], "index")
        if body.get("accessMethod", "btree") != "btree":
            raise unsupported(f"the access method {body['accessMethod']}", hint="There is btree.")
        check_tablespace(body.get("tableSpace", ""))
        check_index_options(body.get("options", ()))
        if body.get("nulls_not_distinct"):
            raise unsupported("NULLS NOT DISTINCT")
        known = {c.name for c in table_columns(table)}
        parts = tuple(
            index_part(n["IndexElem"], known, lambda node: self.clauses.derived(node, table))
            for n in body["indexParams"]
        )
        include = tuple(
            index_part(n["IndexElem"], known).column for n in body.get("indexIncludingParams", ())
        )
        where, used = "", tuple[str, ...]()
        if "whereClause" in body:
            where, used = self.clauses.predicate(body["whereClause"], table)
        key = d.KeyDef(
            name=body.get("idxname"),
            parts=parts,
            unique=bool(body.get("unique")),
            include=include,
            where=where,
            where_columns=used,
        )
        return d.CreateIndex(table, key, bool(body.get("if_not_exists")))

    # -- views

    def create_view(self, body: Node) -> d.CreateView:
        name = check_schema(body["view"], self.names, made=True)
        if body.get("withCheckOption", "NO_CHECK_OPTION") != "NO_CHECK_OPTION":
            raise unsupported("WITH CHECK OPTION")
        check_view_options(body.get("options", ()))
        query = body["query"]["SelectStmt"]
        self.binder.parameters.allowed = False
        if self.names.path != (PUBLIC,) or self.names.first:  # it is read without that path
            query, self.queries.items.qualifies = deepcopy(query), True
        select = self.queries.select(query, None)
        if any(not isinstance(cte.statement, Select) for cte in select.ctes):
            raise SqlError("0A000", "views must not contain data-modifying statements in WITH")
        names = strings(body.get("aliases"))
        if len(names) > len(select.targets):
            raise SqlError(SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns")
        columns: list[tuple[str, str]] = []
        for i, target in enumerate(select.targets):
            column = names[i] if i < len(names) else target.name
            if any(column == c for c, _ in columns):
                raise twice(column)
            columns.append((column, canonical(target.expr.oid, target.expr.typmod)))
        query = with_targets(self.binder.kept(query), select)
        query = with_names(query, [t.name for t in select.targets], [c for c, _ in columns])
        uses, notice = uses_of(select, self.names), ""
        if any(number >= FIRST_PRIVATE_TABLE for number, _ in uses) and not self._private(name):
            if "schemaname" in body["view"]:
                raise SqlError("42P16", "cannot create temporary relation in non-temporary schema")
            notice = f'view "{name}" will be a temporary view'
            name = named(self.names.private, name)
        return d.CreateView(
            name, query_text(query), tuple(columns), uses, bool(body.get("replace")), notice
        )

    # -- sequences

    def create_sequence(self, body: Node) -> d.CreateSequence:
        name = check_schema(body["sequence"], self.names, made=True)
        options = self._sequence_options(body.get("options", ()))
        return d.CreateSequence(name, options, bool(body.get("if_not_exists")))

    def alter_sequence(self, body: Node) -> d.AlterSequence:
        name = check_schema(body["sequence"], self.names)
        found = self.names.sequence(name)
        if found is None and not body.get("missing_ok"):
            raise no_relation(body["sequence"])
        return d.AlterSequence(found, self._sequence_options(body.get("options", ())))

    def _sequence_options(self, nodes: Sequence[Node]) -> dict[str, object]:
        options = sequence_options(nodes)
        if "owned_by" in options:
            options["owned_by"] = self._owner(options["owned_by"])
        return options

    def _owner(self, words: Sequence[str]) -> tuple[str, str] | None:
        """The table and the column of OWNED BY [schema.]table.column; None: NONE. Raises 42601."""
        if list(words) == ["none"]:
            return None
        if len(words) < 2:
            raise SqlError(
                SYNTAX_ERROR,
                "invalid OWNED BY option",
                hint="Specify OWNED BY table.column or OWNED BY NONE.",
            )
        *table, column = words
        return check_schema(reference(table), self.names), column

    # -- databases, DROP, RENAME

    def create_database(self, body: Node) -> d.CreateDatabase:
        options: dict[str, object] = {}
        for node in body.get("options", ()):
            part = node["DefElem"]
            name = part["defname"].lower()
            placed = name in NAMESPACE_OPTIONS
            options |= table_options([node]) if placed else {name: option_value(part)}
        for key, value in options.items():
            if key == "encoding" and str(value).upper().replace("-", "") in (
                "UTF8",
                "6",
                "DEFAULT",
            ):
                continue
            if key == "template":
                if value in (None, "template0", "template1"):
                    continue
                raise unsupported(
                    f"CREATE DATABASE as a copy of {value}",
                    hint="Leave TEMPLATE out and make the tables anew.",
                )
            if key in ("owner", "connection_limit", *NAMESPACE_OPTIONS):
                continue
            if key in ("lc_collate", "lc_ctype", "locale") and (
                value is None or str(value).lower().replace("-", "") in _LOCALES
            ):
                continue
            if key == "locale_provider" and value in ("libc", None):
                continue
            raise unsupported(f"the option {key.upper()} of CREATE DATABASE")
        return d.CreateDatabase(body["dbname"], options)

    def drop_database(self, body: Node) -> d.DropDatabase:
        options = [n["DefElem"]["defname"] for n in body.get("options", ())]
        return d.DropDatabase(body["dbname"], bool(body.get("missing_ok")), "force" in options)

    def create_schema(self, body: Node) -> d.CreateSchema | Ignored:
        owner = role_name(body["authrole"]) if "authrole" in body else None
        name = body.get("schemaname") or owner or ""
        if body.get("schemaElts"):
            raise unsupported("what is made within CREATE SCHEMA", hint="Make it afterwards.")
        _check_own_schema(name)
        if name != PUBLIC and name not in self.names.schemas:
            check_schema_name(name)
            return d.CreateSchema(name, owner, bool(body.get("if_not_exists")))
        if body.get("if_not_exists"):
            return Ignored("CREATE SCHEMA", f'schema "{name}" already exists, skipping')
        raise SqlError("42P06", f'schema "{name}" already exists')

    def _drop_schemas(self, body: Node) -> d.DropSchemas:
        names, skipped = [], []
        for name in strings(body["objects"]):
            if name in self.names.schemas:
                names.append(name)
            elif name == PUBLIC:
                raise unsupported("dropping the schema public", hint="Drop the database.")
            elif name in SYSTEM:
                raise SqlError(
                    "2BP01",
                    f"cannot drop schema {name} because it is required by the database system",
                )
            elif body.get("missing_ok"):
                skipped.append(f'schema "{name}" does not exist, skipping')
            else:
                raise no_schema(name)
        cascade = body.get("behavior") == "DROP_CASCADE"
        return d.DropSchemas(tuple(names), cascade, tuple(skipped))

    def drop(self, body: Node) -> d.Drop | d.DropTypes | d.DropFunctions | d.DropSchemas | Ignored:
        if body["removeType"] == "OBJECT_SCHEMA":
            return self._drop_schemas(body)
        if body["removeType"] == "OBJECT_EXTENSION":
            missing_ok = bool(body.get("missing_ok"))
            return ddl_extensions.drop(strings(body["objects"]), missing_ok=missing_ok)
        if body["removeType"] in ("OBJECT_TYPE", "OBJECT_DOMAIN"):
            return ddl_types.drop(body, self.names)
        if body["removeType"] in ("OBJECT_FUNCTION", "OBJECT_ROUTINE"):
            return ddl_functions.drop(body, self.names)
        kind = _DROPS.get(body["removeType"])
        if kind is None:
            word = body["removeType"].removeprefix("OBJECT_").lower().replace("_", " ")
            raise unsupported(f"DROP {word.upper()}")
        names, skipped = [], []
        for node in body["objects"]:
            relation = reference(strings(node["List"]["items"]))
            try:
                name = check_schema(relation, self.names)
                if not schema_in(name):  # none is searched
                    state = UNDEFINED_OBJECT if kind == "index" else UNDEFINED_TABLE
                    raise SqlError(state, f'{kind} "{name}" does not exist')
                names.append(name)
            except SqlError as error:
                absent = (UNDEFINED_SCHEMA, UNDEFINED_OBJECT, UNDEFINED_TABLE)
                if error.sqlstate not in absent or not body.get("missing_ok"):
                    raise
                skipped.append(f"{error.message}, skipping")
        cascade = body.get("behavior") == "DROP_CASCADE"
        missing_ok = bool(body.get("missing_ok"))
        return d.Drop(kind, tuple(names), missing_ok, cascade, tuple(skipped))

    def comment(self, body: Node) -> d.Comment:
        """COMMENT ON; of what is no relation and no column: ddl_comments."""
        text = body.get("comment", "")
        if len(text) > SQL_COMMENT_CHARS_MAX:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"a comment has at most {SQL_COMMENT_CHARS_MAX} characters, got {len(text)}",
            )
        kind = _COMMENTED.get(body["objtype"])
        if body["objtype"] in _NOTED:
            return ddl_comments.bind(body, text, self.names)
        if kind is None:
            word = body["objtype"].removeprefix("OBJECT_").lower().replace("_", " ")
            raise unsupported(f"COMMENT ON {word.upper()}")
        words = strings(body["object"]["List"]["items"])
        column = words.pop() if kind == "column" else ""
        if not words:
            raise SqlError(SYNTAX_ERROR, "column name must be qualified")
        relation = reference(words)
        name = check_schema(relation, self.names)
        there = self.names.table(name) or self.names.view(name) or self.names.sequence(name)
        if there is None:
            raise no_relation(relation)
        if kind != "column" and there.kind != kind:
            raise SqlError(WRONG_OBJECT_TYPE, f'"{name}" is not a {kind}')
        if column and column not in _names_of(there):
            raise SqlError(
                UNDEFINED_COLUMN, f'column "{column}" of relation "{name}" does not exist'
            )
        return d.Comment(kind, name, column, text)

    def passed_over(self, body: Node) -> Ignored | None:
        """ALTER … IF EXISTS of a relation in a schema that is not there. Raises 0A000."""
        relation = body.get("relation") or body.get("sequence")
        if relation is None or not body.get("missing_ok"):
            return None
        try:
            check_schema(relation, self.names)
        except SqlError as error:
            if error.sqlstate != UNDEFINED_SCHEMA:
                raise
        else:
            return None
        kind = body.get("objtype") or body.get("objectType") or body.get("renameType")
        if kind in ("OBJECT_COLUMN", "OBJECT_TABCONSTRAINT"):
            kind = body["relationType"]
        word = (kind or "OBJECT_SEQUENCE").removeprefix("OBJECT_").replace("_", " ")
        notice = f'relation "{relation["relname"]}" does not exist, skipping'
        return Ignored(f"ALTER {word}", notice)

    def set_schema(self, body: Node) -> d.SetSchema:
        """ALTER … SET SCHEMA. Raises SqlError."""
        kind = _DROPS.get(body["objectType"])
        if kind in (None, "index"):
            word = body["objectType"].removeprefix("OBJECT_").lower().replace("_", " ")
            raise unsupported(f"ALTER {word.upper()} … SET SCHEMA")
        assert kind is not None
        schema, names = body["newschema"], self.names
        name: str | None = check_schema(body["relation"], names)
        there = names.table(name or "") or names.view(name or "") or names.sequence(name or "")
        if there is None and not body.get("missing_ok"):
            raise no_relation(body["relation"])
        if there is not None and kind != "table" and there.kind != kind:
            raise SqlError(WRONG_OBJECT_TYPE, f'"{name}" is not a {kind}')
        if there is not None and (self._private(name or "") or is_temporary(schema)):
            raise SqlError("0A000", "cannot move objects into or out of temporary schemas")
        if schema in SYSTEM:
            raise SqlError("42501", f"permission denied for schema {schema}")
        if schema != PUBLIC and schema not in names.schemas:
            raise no_schema(schema)
        return d.SetSchema(kind, None if there is None else name, schema)

    def _rename_schema(self, old: str, new: str) -> d.Rename:
        schemas = self.names.schemas
        if old == PUBLIC:
            raise unsupported("renaming the schema public", hint="Make another one beside it.")
        if old in SYSTEM or is_temporary(old):
            raise SqlError("42501", f"permission denied for schema {old}")
        if old not in schemas:
            raise no_schema(old)
        if new == PUBLIC or new in schemas:
            raise SqlError("42P06", f'schema "{new}" already exists')
        _check_own_schema(new)
        check_schema_name(new)
        return d.Rename("schema", old, new)

    def rename(self, body: Node) -> d.Rename:
        if body["renameType"] == "OBJECT_TYPE":
            return ddl_types.rename(body, self.names)
        if body["renameType"] == "OBJECT_SCHEMA":
            return self._rename_schema(body["subname"], body["newname"])
        kinds = {
            "OBJECT_TABLE": "table",
            "OBJECT_VIEW": "view",
            "OBJECT_SEQUENCE": "sequence",
            "OBJECT_INDEX": "index",
            "OBJECT_COLUMN": "column",
            "OBJECT_TABCONSTRAINT": "constraint",
        }
        kind = kinds.get(body["renameType"])
        if kind is None:
            word = body["renameType"].removeprefix("OBJECT_").lower().replace("_", " ")
            raise unsupported(f"ALTER {word.upper()} … RENAME")
        relation, names = check_schema(body["relation"], self.names), self.names
        missing_ok = bool(body.get("missing_ok"))
        known = (names.table, names.view, names.sequence, names.index)
        if not missing_ok and not any(find(relation) for find in known):
            raise no_relation(body["relation"])
        return d.Rename(kind, relation, body["newname"], body.get("subname", ""), missing_ok)


def _check_own_schema(name: str) -> None:
    """Raises SqlError (42939)."""
    if name.startswith("pg_") or name in SYSTEM:
        raise SqlError(
            "42939",
            f'unacceptable schema name "{name}"',
            detail="The system has schemas of such names.",
        )


def _names_of(one: Table | View | SequenceRow) -> tuple[str, ...]:
    """Of its columns."""
    match one:
        case Table():
            return tuple(column.name for column in table_columns(one)) if not one.plain else ()
        case View():
            return tuple(name for name, _ in one.columns)
        case _:
            return ()
