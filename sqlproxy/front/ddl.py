"""CREATE, ALTER, DROP → bound definitions. Expressions are bound here, so that mistakes show when
they are declared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

import postgast
from google.protobuf import json_format  # type: ignore[import-untyped]

from sqlproxy.errors import (
    DUPLICATE_COLUMN,
    INVALID_PARAMETER,
    INVALID_TABLE_DEFINITION,
    STATEMENT_TOO_COMPLEX,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    UNDEFINED_TABLE,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)
from sqlproxy.front import definitions as d
from sqlproxy.front.compiling import fold
from sqlproxy.front.dialect import Extras
from sqlproxy.front.exprs import Column, Const, Expr, walk
from sqlproxy.front.fromitems import check_schema, item_columns, table_columns
from sqlproxy.front.query import Queries
from sqlproxy.front.registry import BOOL, format_type
from sqlproxy.front.resolve import ASSIGNMENT
from sqlproxy.front.scope import Rel, Scope, columns_of
from sqlproxy.front.statements import Ignored, ItemColumn, Select, SelectItem, TableItem
from sqlproxy.front.syntax import TOO_DEEP, Node, at, find, strings, unwrap
from sqlproxy.front.typenames import SERIALS, type_of
from sqlproxy.pg.oids import canonical
from sqlproxy.schema import Table, View

_ACTIONS: Final = {
    "a": "no action",
    "r": "restrict",
    "c": "cascade",
    "n": "set null",
    "d": "set default",
}
_DROPS: Final = {
    "OBJECT_TABLE": "table",
    "OBJECT_INDEX": "index",
    "OBJECT_VIEW": "view",
    "OBJECT_SEQUENCE": "sequence",
}
_TABLE_OPTIONS: Final = ("replicas", "tags", "partition_bytes")


def text_of(node: Node) -> str:
    """An expression's tree as SQL. Raises SqlError: nested too deeply to be kept."""
    select = {"targetList": [{"ResTarget": {"val": node}}], "limitOption": "LIMIT_OPTION_DEFAULT"}
    return query_text(select).removeprefix("SELECT ")


def unqualified(node: Node) -> Node:
    """An expression over one table without the table's name, which may change."""
    found = copy.deepcopy(node)
    for reference in find(found, "ColumnRef"):
        reference["fields"] = reference["fields"][-1:]
    return found


def query_text(body: Node) -> str:
    """A SelectStmt's tree as SQL."""
    result = postgast.ParseResult()
    whole = {"stmts": [{"stmt": {"SelectStmt": {"op": "SETOP_NONE", **body}}}]}
    try:
        text: str = postgast.deparse(json_format.ParseDict(whole, result))
    except (json_format.ParseError, RecursionError, postgast.PgQueryError) as error:
        if isinstance(error, postgast.PgQueryError):
            raise SqlError(
                SYNTAX_ERROR, f"the expression cannot be kept: {error.message}"
            ) from None
        raise SqlError(STATEMENT_TOO_COMPLEX, TOO_DEEP) from None
    return text


class Definitions:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.binder = queries.binder
        self.names = queries.binder.names

    # -- expressions in declarations

    def _default(self, node: Node, column: str, oid: int, typmod: int) -> tuple[Any, str]:
        """The value if it is a constant, and the SQL."""
        with self._declared("DEFAULT expressions"):
            if any(True for _ in _columns_in(node)):
                raise SqlError("0A000", "cannot use column reference in DEFAULT expression")
            expr = self.binder.expr(node, Scope())
        expr = self._no_subquery(expr, "DEFAULT expression")
        found = self.binder.casts.to(expr, oid, typmod, ASSIGNMENT, expr.pos + 1)
        if found is None:
            raise SqlError(
                "42804",
                f'column "{column}" is of type {format_type(oid)} but default expression is of '
                f"type "
                f"{format_type(expr.oid)}",
                hint="You will need to rewrite or cast the expression.",
            )
        folded = fold(found)
        value = folded.value if isinstance(folded, Const) else None
        return value, text_of(node)

    def _declared(self, clause: str) -> Any:
        return self.queries.within(clause)

    def _no_subquery(self, expr: Expr, where: str) -> Expr:
        if self.binder.subqueries:
            raise SqlError("0A000", f"cannot use subquery in {where}")
        return expr

    def over_columns(
        self, node: Node, columns: Sequence[ItemColumn], relation: str, clause: str
    ) -> tuple[Expr, tuple[str, ...]]:
        """An expression over the columns of one table, and the columns that it names."""
        scope = Scope()
        names = tuple(c.name for c in columns)
        scope.rels.append(Rel(relation, names, columns_of(relation, columns, 0)))
        with self._declared(clause):
            expr = self.binder.expr(node, scope)
        self._no_subquery(expr, clause.removesuffix("s"))
        used = {e.index: e.name for e in walk(expr) if isinstance(e, Column)}
        return expr, tuple(used[i] for i in sorted(used))

    def _check(self, body: Node, columns: Sequence[ItemColumn], relation: str) -> d.CheckDef:
        expr, used = self.over_columns(body["raw_expr"], columns, relation, "check constraints")
        self.binder.casts.must(expr, BOOL, what="CHECK")
        return d.CheckDef(
            name=body.get("conname"),
            sql=text_of(unqualified(body["raw_expr"])),
            columns=used,
            validated=not body.get("skip_validation", False),
        )

    # -- CREATE TABLE

    def create_table(self, body: Node, extras: Extras) -> d.CreateTable:
        name = check_schema(body["relation"], self.names.database)
        for key, what in (
            ("inhRelations", "INHERITS"),
            ("partspec", "PARTITION BY: tables are split by themselves"),
            ("ofTypename", "CREATE TABLE OF"),
            ("tablespacename", "a tablespace"),
        ):
            if body.get(key):
                raise unsupported(what)
        if body["relation"].get("relpersistence", "p") != "p":
            raise unsupported("temporary and unlogged tables")
        draft = _Draft(self, name)
        for node in body.get("tableElts", ()):
            kind, part = unwrap(node)
            if kind == "ColumnDef":
                draft.column(part, extras)
            elif kind == "Constraint":
                draft.later.append((part, None))
            else:
                raise unsupported("LIKE in CREATE TABLE")
        draft.finish()
        for more in extras.keys:
            parts = tuple(d.KeyPart(column, desc, desc) for column, desc in more.columns)
            for one in parts:
                draft.known(one.column, 0)
            draft.keys.append(
                d.KeyDef(name=more.name, parts=parts, unique=more.unique, constraint=more.unique)
            )
        if not draft.columns:
            raise unsupported("a table without columns")
        return d.CreateTable(
            name=name,
            columns=tuple(draft.columns),
            if_not_exists=bool(body.get("if_not_exists")),
            keys=tuple(draft.keys),
            checks=tuple(draft.checks),
            foreign_keys=tuple(draft.foreign_keys),
            options=table_options(body.get("options", ())),
        )

    def create_table_as(self, body: Node) -> d.CreateTableAs:
        if body.get("objtype") != "OBJECT_TABLE":
            raise unsupported("materialized views")
        into = body["into"]
        name = check_schema(into["rel"], self.names.database)
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
                raise _twice(column)
            columns.append(
                d.ColumnDef(name=column, type=canonical(target.expr.oid, target.expr.typmod))
            )
        return d.CreateTableAs(
            name, tuple(columns), select, bool(body.get("if_not_exists")), not into.get("skipData")
        )

    # -- constraints of a table, by contype

    def foreign_key(self, body: Node, columns: Sequence[str]) -> d.ForeignKeyDef:
        """`columns`: of a constraint declared with its column, that one."""
        if body.get("fk_matchtype", "s") not in ("s", "FKCONSTR_MATCH_SIMPLE"):
            raise unsupported("MATCH FULL and MATCH PARTIAL")
        if body.get("fk_del_set_cols"):
            raise unsupported("SET NULL or SET DEFAULT of some columns only")
        own = tuple(strings(body.get("fk_attrs"))) or tuple(columns)
        referenced = tuple(strings(body.get("pk_attrs")))
        if referenced and len(own) != len(referenced):
            raise SqlError(
                "42830", "number of referencing and referenced columns for foreign key disagree"
            )
        return d.ForeignKeyDef(
            name=body.get("conname"),
            columns=own,
            table=check_schema(body["pktable"], self.names.database),
            referenced=referenced,
            on_delete=_ACTIONS[body.get("fk_del_action", "a")],
            on_update=_ACTIONS[body.get("fk_upd_action", "a")],
            deferrable=bool(body.get("deferrable")),
            deferred=bool(body.get("initdeferred")),
            validated=not body.get("skip_validation", False),
        )

    # -- CREATE INDEX

    def create_index(self, body: Node) -> d.CreateIndex:
        table = self.queries.items.table(body["relation"], "index")
        if body.get("accessMethod", "btree") != "btree":
            raise unsupported(f"the access method {body['accessMethod']}", hint="There is btree.")
        if "whereClause" in body:
            raise unsupported("a partial index")
        if body.get("tableSpace"):
            raise unsupported("a tablespace")
        if body.get("nulls_not_distinct"):
            raise unsupported("NULLS NOT DISTINCT")
        known = {c.name for c in table_columns(table)}
        parts = tuple(index_part(n["IndexElem"], known) for n in body["indexParams"])
        include = tuple(
            index_part(n["IndexElem"], known).column for n in body.get("indexIncludingParams", ())
        )
        key = d.KeyDef(
            name=body.get("idxname"), parts=parts, unique=bool(body.get("unique")), include=include
        )
        return d.CreateIndex(table, key, bool(body.get("if_not_exists")))

    # -- views

    def create_view(self, body: Node) -> d.CreateView:
        name = check_schema(body["view"], self.names.database)
        if body.get("withCheckOption", "NO_CHECK_OPTION") != "NO_CHECK_OPTION":
            raise unsupported("WITH CHECK OPTION")
        query = body["query"]["SelectStmt"]
        self.binder.parameters.allowed = False
        select = self.queries.select(query, None)
        names = strings(body.get("aliases"))
        if len(names) > len(select.targets):
            raise SqlError(SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns")
        columns: list[tuple[str, str]] = []
        for i, target in enumerate(select.targets):
            column = names[i] if i < len(names) else target.name
            if any(column == c for c, _ in columns):
                raise _twice(column)
            columns.append((column, canonical(target.expr.oid, target.expr.typmod)))
        query = _with_targets(query, select)
        return d.CreateView(
            name, query_text(query), tuple(columns), uses_of(select), bool(body.get("replace"))
        )

    # -- sequences

    def create_sequence(self, body: Node) -> d.CreateSequence:
        name = check_schema(body["sequence"], self.names.database)
        options = self._sequence_options(body.get("options", ()))
        return d.CreateSequence(name, options, bool(body.get("if_not_exists")))

    def alter_sequence(self, body: Node) -> d.AlterSequence:
        name = check_schema(body["sequence"], self.names.database)
        found = self.names.sequence(name)
        if found is None and not body.get("missing_ok"):
            raise SqlError(
                UNDEFINED_TABLE, f'relation "{name}" does not exist', position=at(body["sequence"])
            )
        return d.AlterSequence(found, self._sequence_options(body.get("options", ())))

    def _sequence_options(self, nodes: Sequence[Node]) -> dict[str, Any]:
        return sequence_options(nodes)

    # -- databases, DROP, RENAME

    def create_database(self, body: Node) -> d.CreateDatabase:
        options = {}
        for node in body.get("options", ()):
            part = node["DefElem"]
            options[part["defname"].lower()] = option_value(part)
        for key, value in options.items():
            if key == "encoding" and str(value).upper().replace("-", "") in (
                "UTF8",
                "6",
                "DEFAULT",
            ):
                continue
            if key in ("owner", "template", "replicas", "tags", "connection_limit"):
                continue
            if key in ("lc_collate", "lc_ctype", "locale") and value in ("C", "POSIX", None):
                continue
            raise unsupported(f"the option {key.upper()} of CREATE DATABASE")
        return d.CreateDatabase(body["dbname"], options)

    def drop_database(self, body: Node) -> d.DropDatabase:
        options = [n["DefElem"]["defname"] for n in body.get("options", ())]
        return d.DropDatabase(body["dbname"], bool(body.get("missing_ok")), "force" in options)

    def create_schema(self, body: Node) -> Ignored:
        if body.get("schemaname") == "public":
            if body.get("if_not_exists"):
                return Ignored("CREATE SCHEMA", 'schema "public" already exists, skipping')
            raise SqlError("42P06", 'schema "public" already exists')
        raise unsupported(
            "a schema beside public", hint="Each database has the schema public; make a database."
        )

    def drop(self, body: Node) -> d.Drop:
        kind = _DROPS.get(body["removeType"])
        if kind is None:
            word = body["removeType"].removeprefix("OBJECT_").lower().replace("_", " ")
            raise unsupported(f"DROP {word.upper()}")
        names = []
        for node in body["objects"]:
            words = strings(node["List"]["items"])
            reference: Node = {"relname": words[-1]}
            if len(words) > 1:
                reference["schemaname"] = words[-2]
            if len(words) > 2:
                reference["catalogname"] = words[-3]
            names.append(check_schema(reference, self.names.database))
        cascade = body.get("behavior") == "DROP_CASCADE"
        return d.Drop(kind, tuple(names), bool(body.get("missing_ok")), cascade)

    def rename(self, body: Node) -> d.Rename:
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
        relation = check_schema(body["relation"], self.names.database)
        missing_ok = bool(body.get("missing_ok"))
        return d.Rename(kind, relation, body["newname"], body.get("subname", ""), missing_ok)


class _Draft:
    """A CREATE TABLE under way, or the columns that ALTER TABLE adds."""

    def __init__(self, ddl: Definitions, name: str) -> None:
        self.ddl = ddl
        self.name = name
        self.columns: list[d.ColumnDef] = []
        self.items: list[ItemColumn] = []
        self.keys: list[d.KeyDef] = []
        self.checks: list[d.CheckDef] = []
        self.foreign_keys: list[d.ForeignKeyDef] = []
        # Constraints and generated columns are bound when all columns are known.
        self.later: list[tuple[Node, str | None]] = []

    def column(self, body: Node, extras: Extras) -> None:
        name = body["colname"]
        if any(c.name == name for c in self.columns):
            raise _twice(name, at(body))
        type_body = body["typeName"]
        words = strings(type_body["names"])
        serial = words[-1] in SERIALS and len(words) == 1
        if serial:
            if type_body.get("arrayBounds"):
                raise unsupported("an array of serial", position=at(type_body))
            type_body = {**type_body, "names": [{"String": {"sval": SERIALS[words[-1]]}}]}
        oid, typmod = type_of(type_body)
        made = d.ColumnDef(
            name=name, type=canonical(oid, typmod), serial=serial, nullable=not serial
        )
        if body.get("collClause"):
            collation = strings(body["collClause"]["collname"])[-1]
            if collation not in ("C", "POSIX", "default", "ucs_basic"):
                raise unsupported(f'the collation "{collation}"', hint='There is "C" only.')
        if name in extras.auto_increment:
            made = replace(made, identity="by default", nullable=False)
        if name in extras.on_update:
            made = replace(
                made, on_update=self._on_update(extras.on_update[name], name, oid, typmod)
            )
        self.items.append(ItemColumn(name, oid, typmod))
        self.columns.append(made)
        for node in body.get("constraints", ()):
            self._of_column(node["Constraint"], len(self.columns) - 1, oid, typmod)

    def _on_update(self, text: str, name: str, oid: int, typmod: int) -> str:
        from sqlproxy.front.syntax import parse_expression

        return self.ddl._default(parse_expression(text), name, oid, typmod)[1]

    def _of_column(self, body: Node, place: int, oid: int, typmod: int) -> None:
        column = self.columns[place]
        kind = body["contype"]
        if kind == "CONSTR_NOTNULL":
            column = replace(column, nullable=False)
        elif kind == "CONSTR_DEFAULT":
            if column.default_sql is not None or column.serial:
                raise SqlError(
                    SYNTAX_ERROR,
                    f'multiple default values specified for column "{column.name}" of table '
                    f'"{self.name}"',
                    position=at(body),
                )
            value, sql = self.ddl._default(body["raw_expr"], column.name, oid, typmod)
            column = replace(column, default=value, default_sql=sql)
        elif kind == "CONSTR_IDENTITY":
            column = self._identity(column, body, oid)
        elif kind == "CONSTR_NULL":
            if not column.nullable:
                raise SqlError(
                    SYNTAX_ERROR,
                    f'conflicting NULL/NOT NULL declarations for column "{column.name}" of '
                    f'table "{self.name}"',
                    position=at(body),
                )
        elif kind in ("CONSTR_ATTR_DEFERRABLE", "CONSTR_ATTR_DEFERRED"):
            last = self.later[-1][0]
            last["deferrable"] = True
            last["initdeferred"] = last.get("initdeferred") or kind == "CONSTR_ATTR_DEFERRED"
        elif not kind.startswith("CONSTR_ATTR"):
            self.later.append((dict(body), column.name))
        self.columns[place] = column

    def _identity(self, column: d.ColumnDef, body: Node, oid: int) -> d.ColumnDef:
        if column.type not in ("int2", "int4", "int8"):
            raise SqlError(
                INVALID_PARAMETER, "identity column type must be smallint, integer, or bigint"
            )
        when = "always" if body.get("generated_when") == "a" else "by default"
        options = sequence_options(body.get("options", ()))
        return replace(column, identity=when, sequence=options, nullable=False)

    def known(self, name: str, pos: int) -> None:
        if not any(i.name == name for i in self.items):
            raise SqlError(
                UNDEFINED_COLUMN, f'column "{name}" named in key does not exist', position=pos
            )

    def finish(self) -> None:
        for body, column in self.later:
            self._constraint(body, column)

    def _constraint(self, body: Node, column: str | None) -> None:
        own = (column,) if column is not None else ()
        match body["contype"]:
            case "CONSTR_PRIMARY" | "CONSTR_UNIQUE" as kind:
                self._key(body, own, kind == "CONSTR_PRIMARY")
            case "CONSTR_CHECK":
                self.checks.append(self.ddl._check(body, self.items, self.name))
            case "CONSTR_FOREIGN":
                key = self.ddl.foreign_key(body, own)
                for name in key.columns:
                    if not any(i.name == name for i in self.items):
                        raise SqlError(
                            UNDEFINED_COLUMN,
                            f'column "{name}" referenced in foreign key constraint does not exist',
                        )
                self.foreign_keys.append(key)
            case "CONSTR_GENERATED":
                assert column is not None
                self._generated(body, column)
            case "CONSTR_NOTNULL":
                for name in strings(body.get("keys")):
                    self.known(name, at(body))
                    place = next(i for i, c in enumerate(self.columns) if c.name == name)
                    self.columns[place] = replace(self.columns[place], nullable=False)
            case "CONSTR_EXCLUSION":
                raise unsupported("an exclusion constraint", position=at(body))
            case other:
                raise unsupported(other, position=at(body))

    def _key(self, body: Node, own: tuple[str, ...], primary: bool) -> None:
        names = strings(body.get("keys")) or list(own)
        if primary and any(k.primary for k in self.keys):
            raise SqlError(
                INVALID_TABLE_DEFINITION,
                f'multiple primary keys for table "{self.name}" are not allowed',
                position=at(body),
            )
        for i, name in enumerate(names):
            self.known(name, at(body))
            if name in names[:i]:
                word = "primary key" if primary else "unique"
                raise SqlError(
                    DUPLICATE_COLUMN,
                    f'column "{name}" appears twice in {word} constraint',
                    position=at(body),
                )
        if body.get("nulls_not_distinct"):
            raise unsupported("NULLS NOT DISTINCT", position=at(body))
        if body.get("deferrable"):
            raise unsupported("a deferrable unique constraint", position=at(body))
        include = tuple(strings(body.get("including")))
        parts = tuple(d.KeyPart(name) for name in names)
        self.keys.append(
            d.KeyDef(
                name=body.get("conname"),
                parts=parts,
                unique=True,
                primary=primary,
                constraint=True,
                include=include,
            )
        )
        if primary:
            self.columns = [
                replace(c, nullable=False) if c.name in names else c for c in self.columns
            ]

    def _generated(self, body: Node, column: str) -> None:
        if body.get("generated_kind", "s") == "v":
            raise unsupported("a virtual generated column", hint="Say STORED.", position=at(body))
        place = next(i for i, c in enumerate(self.columns) if c.name == column)
        item = self.items[place]
        expr, used = self.ddl.over_columns(
            body["raw_expr"], self.items, self.name, "column generation expressions"
        )
        if any(getattr(getattr(e, "proc", None), "volatile", "i") != "i" for e in walk(expr)):
            raise SqlError("42P17", "generation expression is not immutable")
        if any(type(e).__name__ == "Named" for e in walk(expr)):
            raise SqlError("42P17", "generation expression is not immutable")
        others = {c.name for c in self.columns if c.generated is not None} | {
            n for b, n in self.later if b["contype"] == "CONSTR_GENERATED" and n is not None
        }
        for name in used:
            if name in others:
                raise SqlError(
                    "42P17",
                    f'cannot use generated column "{name}" in column generation expression',
                    detail="A generated column cannot reference another generated column.",
                )
        self.ddl.binder.casts.assign(expr, item.oid, item.typmod, column, expr.pos + 1)
        text = text_of(unqualified(body["raw_expr"]))
        made = replace(self.columns[place], generated=text, uses=used)
        if made.default_sql is not None or made.identity or made.serial:
            raise SqlError(
                SYNTAX_ERROR,
                f'both default and generation expression specified for column "{column}" of '
                f'table "{self.name}"',
                position=at(body),
            )
        self.columns[place] = made


class Alterations:
    """ALTER TABLE."""

    def __init__(self, ddl: Definitions) -> None:
        self.ddl = ddl

    def bind(self, body: Node) -> d.AlterTable:
        if body.get("objtype", "OBJECT_TABLE") == "OBJECT_INDEX":
            raise unsupported("ALTER INDEX")
        name = check_schema(body["relation"], self.ddl.names.database)
        found = self.ddl.names.table(name)
        if found is None:
            if body.get("missing_ok"):
                return d.AlterTable(None, name, ())
            self.ddl.queries.items.find(body["relation"])  # raises, unless it is a view
            raise SqlError(WRONG_OBJECT_TYPE, f'"{name}" is not a table')
        actions: list[d.Action] = []
        for node in body["cmds"]:
            command = node["AlterTableCmd"]
            handler = _ALTERS.get(command["subtype"])
            if handler is None:
                word = command["subtype"].removeprefix("AT_")
                raise unsupported(f"ALTER TABLE … {word}")
            actions.extend(handler(self, command, found))
        return d.AlterTable(found, name, tuple(actions))

    def _column(self, table: Table, name: str) -> ItemColumn:
        for item in item_columns(table):
            if item.name == name:
                return item
        raise SqlError(
            UNDEFINED_COLUMN, f'column "{name}" of relation "{table.name}" does not exist'
        )

    def _add_column(self, command: Node, table: Table) -> list[d.Action]:
        draft = _Draft(self.ddl, table.name)
        draft.items = list(item_columns(table))
        draft.columns = [d.ColumnDef(name=i.name, type="") for i in draft.items]
        body = command["def"]["ColumnDef"]
        if any(c.name == body["colname"] for c in draft.columns):
            if command.get("missing_ok"):
                return []
            raise SqlError(
                DUPLICATE_COLUMN,
                f'column "{body["colname"]}" of relation "{table.name}" already exists',
            )
        draft.column(body, Extras())
        draft.finish()
        added: list[d.Action] = [d.AddColumn(draft.columns[-1], bool(command.get("missing_ok")))]
        rest: list[d.KeyDef | d.CheckDef | d.ForeignKeyDef] = [
            *draft.keys,
            *draft.checks,
            *draft.foreign_keys,
        ]
        return [*added, *(d.AddConstraint(c) for c in rest)]

    def _drop_column(self, command: Node, table: Table) -> list[d.Action]:
        if not command.get("missing_ok"):
            self._column(table, command["name"])
        cascade = command.get("behavior") == "DROP_CASCADE"
        return [d.DropColumn(command["name"], bool(command.get("missing_ok")), cascade)]

    def _set_default(self, command: Node, table: Table) -> list[d.Action]:
        column = self._column(table, command["name"])
        if "def" not in command:
            return [d.SetDefault(column.name)]
        value, sql = self.ddl._default(command["def"], column.name, column.oid, column.typmod)
        return [d.SetDefault(column.name, value, sql)]

    def _set_not_null(self, command: Node, table: Table) -> list[d.Action]:
        self._column(table, command["name"])
        return [d.SetNullable(command["name"], False)]

    def _drop_not_null(self, command: Node, table: Table) -> list[d.Action]:
        self._column(table, command["name"])
        if any(table.by_id(number).name == command["name"] for number in table.declared_key):
            raise SqlError(
                INVALID_TABLE_DEFINITION, f'column "{command["name"]}" is in a primary key'
            )
        return [d.SetNullable(command["name"], True)]

    def _set_type(self, command: Node, table: Table) -> list[d.Action]:
        column = self._column(table, command["name"])
        body = command["def"]["ColumnDef"]
        oid, typmod = type_of(body["typeName"])
        using: str | None = None
        uses: tuple[str, ...] = (column.name,)
        if "raw_default" in body:
            expr, uses = self.ddl.over_columns(
                body["raw_default"], item_columns(table), table.name, "transform expressions"
            )
            using = text_of(body["raw_default"])
        else:
            expr = columns_of(table.name, (column,), 0)[0]
        if self.ddl.binder.casts.to(expr, oid, typmod, ASSIGNMENT) is None:
            word = "result of USING clause for column" if using else "column"
            raise SqlError(
                "42804",
                f'{word} "{column.name}" cannot be cast automatically to type {format_type(oid)}',
                hint=""
                if using
                else f'You might need to specify "USING '
                f'{column.name}::{format_type(oid, typmod)}".',
            )
        return [d.SetType(column.name, canonical(oid, typmod), using, uses)]

    def _add_constraint(self, command: Node, table: Table) -> list[d.Action]:
        draft = _Draft(self.ddl, table.name)
        draft.items = list(item_columns(table))
        draft.columns = [d.ColumnDef(name=i.name, type="") for i in draft.items]
        body = command["def"]["Constraint"]
        if body.get("indexname"):
            key = d.KeyDef(
                name=body.get("conname"),
                parts=(),
                unique=True,
                primary=body["contype"] == "CONSTR_PRIMARY",
                constraint=True,
            )
            return [d.AddConstraint(key, body["indexname"])]
        draft._constraint(body, None)
        rest: list[d.KeyDef | d.CheckDef | d.ForeignKeyDef] = [
            *draft.keys,
            *draft.checks,
            *draft.foreign_keys,
        ]
        if not rest:
            return [d.SetNullable(name, False) for name in strings(body.get("keys"))]
        return [d.AddConstraint(c) for c in rest]

    def _drop_constraint(self, command: Node, table: Table) -> list[d.Action]:
        name, missing = command["name"], bool(command.get("missing_ok"))
        known = {
            *(c.name for c in table.checks),
            *(c.name for c in table.foreign_keys),
            *(i.name for i in table.indexes if i.constraint),
            table.primary_key_name,
        }
        if name not in known and not missing:
            raise SqlError(
                UNDEFINED_OBJECT, f'constraint "{name}" of relation "{table.name}" does not exist'
            )
        return [d.DropConstraint(name, missing, command.get("behavior") == "DROP_CASCADE")]

    def _validate(self, command: Node, table: Table) -> list[d.Action]:
        return [d.ValidateConstraint(command["name"])]

    def _identity(self, command: Node, table: Table) -> list[d.Action]:
        name = command["name"]
        self._column(table, name)
        if command["subtype"] == "AT_DropIdentity":
            return [d.SetIdentity(name, "", missing_ok=bool(command.get("missing_ok")))]
        if command["subtype"] == "AT_AddIdentity":
            body = command["def"]["Constraint"]
            when = "always" if body.get("generated_when") == "a" else "by default"
            return [d.SetIdentity(name, when, sequence_options(body.get("options", ())), add=True)]
        nodes = command["def"]["List"]["items"]
        when_node = [n for n in nodes if n["DefElem"]["defname"] == "generated"]
        options = sequence_options([n for n in nodes if n not in when_node])
        identity = None
        if when_node:
            identity = (
                "always" if option_value(when_node[0]["DefElem"]) == ord("a") else "by default"
            )
        return [d.SetIdentity(name, identity, options)]

    def _drop_expression(self, command: Node, table: Table) -> list[d.Action]:
        self._column(table, command["name"])
        return [d.DropExpression(command["name"], bool(command.get("missing_ok")))]

    def _options(self, command: Node, table: Table) -> list[d.Action]:
        nodes = command["def"]["List"]["items"]
        if command["subtype"] == "AT_ResetRelOptions":
            return [d.SetOptions({n["DefElem"]["defname"]: None for n in nodes})]
        return [d.SetOptions(table_options(nodes))]

    def _owner(self, command: Node, table: Table) -> list[d.Action]:
        return []  # every user may do everything: whoever owns it


Handler = Callable[[Alterations, Node, Table], list[d.Action]]
_ALTERS: Final[dict[str, Handler]] = {
    "AT_AddColumn": Alterations._add_column,
    "AT_DropColumn": Alterations._drop_column,
    "AT_ColumnDefault": Alterations._set_default,
    "AT_SetNotNull": Alterations._set_not_null,
    "AT_DropNotNull": Alterations._drop_not_null,
    "AT_AlterColumnType": Alterations._set_type,
    "AT_AddConstraint": Alterations._add_constraint,
    "AT_DropConstraint": Alterations._drop_constraint,
    "AT_ValidateConstraint": Alterations._validate,
    "AT_AddIdentity": Alterations._identity,
    "AT_SetIdentity": Alterations._identity,
    "AT_DropIdentity": Alterations._identity,
    "AT_DropExpression": Alterations._drop_expression,
    "AT_SetRelOptions": Alterations._options,
    "AT_ResetRelOptions": Alterations._options,
    "AT_ChangeOwner": Alterations._owner,
}


def index_part(body: Node, known: set[str]) -> d.KeyPart:
    """One column of an index. Raises 0A000 for an expression."""
    if "name" not in body:
        raise unsupported("an index over an expression")
    opclass = strings(body.get("opclass"))
    if opclass and not opclass[-1].endswith("_ops"):
        raise SqlError(
            UNDEFINED_OBJECT,
            f'operator class "{opclass[-1]}" does not exist for access method "btree"',
        )
    if body["name"] not in known:
        raise SqlError(UNDEFINED_COLUMN, f'column "{body["name"]}" does not exist')
    descending = body.get("ordering") == "SORTBY_DESC"
    nulls = body.get("nulls_ordering", "SORTBY_NULLS_DEFAULT")
    first = descending if nulls == "SORTBY_NULLS_DEFAULT" else nulls == "SORTBY_NULLS_FIRST"
    return d.KeyPart(body["name"], descending, first)


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
    found: dict[str, Any] = {}
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


def table_options(nodes: Sequence[Node]) -> dict[str, Any]:
    """WITH (replicas = 3, tags = 'ssd,eu', partition_bytes = …). Raises 22023 for others."""
    found: dict[str, Any] = {}
    for node in nodes:
        body = node["DefElem"]
        name = body["defname"].lower()
        value = option_value(body)
        if name not in _TABLE_OPTIONS:
            if name == "fillfactor":  # a hint to a heap; the session says that there is none
                found[name] = value
                continue
            if name in ("autovacuum_enabled", "oids"):
                raise unsupported(f"the storage parameter {name}")
            raise SqlError(
                INVALID_PARAMETER,
                f'unrecognized parameter "{name}"',
                hint=f"There are {', '.join(_TABLE_OPTIONS)}.",
            )
        if name == "tags":
            value = tuple(t.strip() for t in str(value).split(",") if t.strip())
        elif not isinstance(value, int):
            raise SqlError(INVALID_PARAMETER, f'invalid value for integer option "{name}": {value}')
        found[name] = value
    return found


def _with_targets(query: Node, select: Select) -> Node:
    """The query with its stars written out, so that columns added later are not in it."""
    if "targetList" not in query:
        return query
    nodes = []
    has_star = False
    for node in query["targetList"]:
        kind, body = unwrap(node["ResTarget"]["val"])
        has_star = has_star or (kind == "ColumnRef" and "A_Star" in body["fields"][-1])
        nodes.append(node)
    if not has_star:
        return query
    written = iter(n for n in nodes)
    targets = list(select.targets)
    out: list[Node] = []
    for node in written:
        kind, body = unwrap(node["ResTarget"]["val"])
        if not (kind == "ColumnRef" and "A_Star" in body["fields"][-1]):
            out.append(node)
            targets.pop(0)
            continue
        # As many as are left when those that follow have had theirs.
        words = strings(body["fields"])
        count = _star_width(select, words[-1] if words else "")
        for target in targets[:count]:
            expr = target.expr
            parts = [target.name]
            if isinstance(expr, Column) and expr.relation:
                parts = [expr.relation, expr.name]
            ref = {"fields": [{"String": {"sval": p}} for p in parts]}
            out.append({"ResTarget": {"name": target.name, "val": {"ColumnRef": ref}}})
        del targets[:count]
    return {**query, "targetList": out}


def _star_width(select: Select, alias: str) -> int:
    from sqlproxy.front.query import leaves
    from sqlproxy.front.statements import JoinItem

    if alias:
        return next(
            len(leaf.columns)
            for item in select.items
            for leaf in leaves(item)
            if leaf.alias == alias
        )

    def width(item: Any) -> int:
        if isinstance(item, JoinItem):
            return width(item.left) + width(item.right) - len(item.using)
        return len(item.columns)

    return sum(width(item) for item in select.items)


def uses_of(select: Select) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Tables (columns by id) and views (columns by place) that a query reads, directly."""
    found: dict[int, set[int]] = {}

    def visit(value: Any) -> None:
        if isinstance(value, SelectItem) and value.view is not None:
            found.setdefault(value.view.id, set())
            return
        if isinstance(value, TableItem):
            found.setdefault(int(value.table.id), set())
            return
        if isinstance(value, Column) and value.table:
            found.setdefault(value.table, set()).add(value.attribute)
        if isinstance(value, tuple):
            for one in value:
                visit(one)
        elif is_dataclass(value) and not isinstance(value, Table | View | type):
            for part in fields(value):
                visit(getattr(value, part.name))

    visit(select)
    return tuple((table, tuple(sorted(columns))) for table, columns in sorted(found.items()))


def _columns_in(node: Node) -> Any:
    return find(node, "ColumnRef")


def _twice(name: str, pos: int = 0) -> SqlError:
    return SqlError(DUPLICATE_COLUMN, f'column "{name}" specified more than once', position=pos)


Options = Mapping[str, Any]
