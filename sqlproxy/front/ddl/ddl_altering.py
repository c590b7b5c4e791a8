"""ALTER TABLE → actions, one after the other.

What is bound, and done, first is PostgreSQL's: what goes (and DROP DEFAULT), types, columns added,
their NOT NULL, keys, other constraints, defaults, the rest. So `ADD UNIQUE (c), ADD COLUMN c int`
is one addition, and `DROP COLUMN c, ADD COLUMN c text` makes another column. But columns are
dropped last where nothing needs their place: what is added may fail, and their values are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Final

from sqlproxy.front.binding.fromitems import check_schema, item_columns
from sqlproxy.front.binding.scope import columns_of
from sqlproxy.front.binding.typenames import check_collation, type_of
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.exprs import Call, Column, Expr, Length
from sqlproxy.front.bound.immutability import of_zone
from sqlproxy.front.bound.statements import ItemColumn
from sqlproxy.front.ddl import ddl_granting as granting
from sqlproxy.front.ddl.ddl_creating import Definitions
from sqlproxy.front.ddl.ddl_options import option_value, sequence_options, table_options
from sqlproxy.front.ddl.ddl_tables import Draft
from sqlproxy.front.ddl.ddl_texts import text_of
from sqlproxy.front.syntax.dialect import Extras
from sqlproxy.front.syntax.syntax import Node, at, strings, unwrap
from sqlproxy.front.types.quoting import quote_ident, quote_literal
from sqlproxy.front.types.registry import format_type
from sqlproxy.front.types.resolve import ASSIGNMENT
from sqlproxy.pg import oids, zones
from sqlproxy.pg.oids import canonical
from sqlproxy.rows.naming import named, schema_of
from sqlproxy.rows.schema import CONSTRAINT, Table
from sqlproxy.values.errors import (
    DUPLICATE_COLUMN,
    INVALID_TABLE_DEFINITION,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    UNDEFINED_SCHEMA,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)

_ANY_TEXT: Final = ((oids.TEXT, -1), (oids.VARCHAR, -1))


class Alterations:
    """ALTER TABLE."""

    def __init__(self, ddl: Definitions) -> None:
        self.ddl = ddl
        self._items: list[ItemColumn] = []  # as the actions so far leave them

    def _draft(self, table: Table) -> Draft:
        draft = Draft(self.ddl.clauses, named(schema_of(table.namespace), table.name))
        draft.items = list(self._items)
        draft.columns = [d.ColumnDef(name=i.name, type="") for i in draft.items]
        return draft

    def bind(self, body: Node) -> d.AlterTable | granting.ChangeOwner:
        if (owner := granting.owner_of_relation(body, self.ddl.names)) is not None:
            return owner
        if body.get("objtype", "OBJECT_TABLE") == "OBJECT_INDEX":
            raise unsupported("ALTER INDEX")
        try:
            name = check_schema(body["relation"], self.ddl.names)
        except SqlError as error:
            if error.sqlstate != UNDEFINED_SCHEMA or not body.get("missing_ok"):
                raise
            return d.AlterTable(None, body["relation"]["relname"], ())
        found = self.ddl.names.table(name)
        if found is None:
            if body.get("missing_ok"):
                return d.AlterTable(None, name, ())
            self.ddl.queries.items.find(body["relation"])  # raises, unless it is a view
            raise SqlError(WRONG_OBJECT_TYPE, f'"{name}" is not a table')
        self._items = list(item_columns(found))
        actions: list[d.Action] = []
        for command in sorted((node["AlterTableCmd"] for node in body["cmds"]), key=_pass):
            handler = _ALTERS.get(command["subtype"])
            if handler is None:
                raise unsupported(_refused(command["subtype"]))
            actions.extend(handler(self, command, found))
        return d.AlterTable(found, name, tuple(_in_order(actions)))

    def _column(self, table: Table, name: str) -> ItemColumn:
        for item in self._items:
            if item.name == name:
                return item
        raise SqlError(
            UNDEFINED_COLUMN, f'column "{name}" of relation "{table.name}" does not exist'
        )

    def _add_column(self, command: Node, table: Table) -> list[d.Action]:
        draft = self._draft(table)
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
        self._items = draft.items
        added: list[d.Action] = [d.AddColumn(draft.columns[-1], bool(command.get("missing_ok")))]
        rest: list[d.KeyDef | d.CheckDef | d.ForeignKeyDef] = [
            *draft.keys,
            *draft.checks,
            *draft.foreign_keys,
        ]
        return [*added, *(d.AddConstraint(c, of=body["colname"]) for c in rest)]

    def _drop_column(self, command: Node, table: Table) -> list[d.Action]:
        if not command.get("missing_ok"):
            self._column(table, command["name"])
        self._items = [item for item in self._items if item.name != command["name"]]
        cascade = command.get("behavior") == "DROP_CASCADE"
        return [d.DropColumn(command["name"], bool(command.get("missing_ok")), cascade)]

    def _set_default(self, command: Node, table: Table) -> list[d.Action]:
        column = self._column(table, command["name"])
        if "def" not in command:
            return [d.SetDefault(column.name)]
        value, sql = self.ddl.clauses.default(
            command["def"], column.name, column.oid, column.typmod
        )
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
        oid, typmod = type_of(body["typeName"], self.ddl.names)
        if clause := body.get("collClause"):
            check_collation(strings(clause["collname"]), oid, at(clause))
        retyped = replace(column, oid=oid, typmod=typmod)
        self._items = [retyped if item is column else item for item in self._items]
        using: str | None = None
        uses: tuple[str, ...] = (column.name,)
        plain = True
        if "raw_default" in body:
            expr, uses = self.ddl.clauses.over_columns(
                body["raw_default"], item_columns(table), table.name, "transform expressions"
            )
            using = text_of(self.ddl.binder.kept(body["raw_default"]))
            plain = self._plain(body["raw_default"], column, (oid, typmod))
        else:
            expr = columns_of(table.name, (column,), 0)[0]
        converted = self.ddl.binder.casts.to(expr, oid, typmod, ASSIGNMENT)
        zone = self.ddl.binder.style.zone
        if converted is not None and zone is not UTC and of_zone(converted):
            using, plain = _in_zone(converted, column, zone), False
            if using is None:
                raise unsupported(
                    "a change of type that depends on TimeZone, which is not UTC here",
                    hint="Say the zone: USING column AT TIME ZONE '…'; or SET TimeZone = 'UTC' "
                    "first.",
                )
        if converted is None:
            word = "result of USING clause for column" if using else "column"
            raise SqlError(
                "42804",
                f'{word} "{column.name}" cannot be cast automatically to type {format_type(oid)}',
                hint=""
                if using
                else f'You might need to specify "USING '
                f'{column.name}::{format_type(oid, typmod)}".',
            )
        return [d.SetType(column.name, canonical(oid, typmod), using, uses, plain)]

    def _plain(self, node: Node, column: ItemColumn, wanted: tuple[int, int]) -> bool:
        """Whether USING is the column itself, cast to its new type or to what holds all of it."""
        kind, body = unwrap(node)
        while kind == "TypeCast":
            found = type_of(body["typeName"], self.ddl.names)
            whole = found in (wanted, (column.oid, column.typmod))
            if not (whole or (column.oid in (oids.TEXT, oids.VARCHAR) and found in _ANY_TEXT)):
                return False
            kind, body = unwrap(body["arg"])
        return kind == "ColumnRef" and strings(body["fields"])[-1:] == [column.name]

    def _add_constraint(self, command: Node, table: Table) -> list[d.Action]:
        draft = self._draft(table)
        body = command["def"]["Constraint"]
        if body.get("indexname"):
            key = d.KeyDef(
                name=body.get("conname"),
                parts=(),
                unique=True,
                primary=body["contype"] == "CONSTR_PRIMARY",
                constraint=True,
                deferrable=bool(body.get("deferrable")),
                deferred=bool(body.get("initdeferred")),
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

    def _alter_constraint(self, command: Node, table: Table) -> list[d.Action]:
        body = command["def"]["ATAlterConstraint"]
        name = body["conname"]
        if not body.get("alterDeferrability"):
            raise unsupported("ALTER CONSTRAINT but of DEFERRABLE", position=at(body))
        if not any(key.name == name for key in table.foreign_keys):
            known = {*table.named_parts(CONSTRAINT)}
            raise SqlError(
                WRONG_OBJECT_TYPE if name in known else UNDEFINED_OBJECT,
                f'constraint "{name}" of relation "{table.name}" '
                + ("is not a foreign key constraint" if name in known else "does not exist"),
            )
        deferrable, deferred = bool(body.get("deferrable")), bool(body.get("initdeferred"))
        return [d.AlterConstraint(name, deferrable or deferred, deferred)]

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


def _pass(command: Node) -> int:
    """When it is bound."""
    kind = command["subtype"]
    if kind == "AT_ColumnDefault":
        return _LATER if "def" in command else _FIRST
    if kind == "AT_AddConstraint":
        contype = command["def"]["Constraint"]["contype"]
        return _KEYS if contype in ("CONSTR_PRIMARY", "CONSTR_UNIQUE") else _CONSTRAINTS
    return _PASSES.get(kind, _LATER)


def _in_order(actions: list[d.Action]) -> list[d.Action]:
    added = {a.column.name for a in actions if isinstance(a, d.AddColumn)}
    retyped = any(isinstance(a, d.SetType) for a in actions)

    def turn(action: d.Action) -> int:
        if isinstance(action, d.DropColumn) and not retyped and action.name not in added:
            return _LAST
        return _turn(action)

    return sorted(actions, key=turn)


def _turn(action: d.Action) -> int:
    """When it is done; those of one command may come in several."""
    match action:
        case d.DropColumn() | d.DropConstraint() | d.DropExpression() | d.SetNullable(_, True):
            return _FIRST
        case d.SetDefault(_, None, None) | d.SetIdentity(_, ""):
            return _FIRST
        case d.SetType():
            return _TYPES
        case d.AddColumn():
            return _COLUMNS
        case d.SetNullable() | d.AddConstraint(d.KeyDef()):
            return _KEYS
        case d.AddConstraint():
            return _CONSTRAINTS
        case _:
            return _LATER


def _refused(kind: str) -> str:
    return f"ALTER TABLE … {_WORDS.get(kind) or kind.removeprefix('AT_')}"


_FIRST, _TYPES, _COLUMNS, _KEYS, _CONSTRAINTS, _LATER, _LAST = range(7)
_PASSES: Final = {
    "AT_DropColumn": _FIRST,
    "AT_DropConstraint": _FIRST,
    "AT_DropNotNull": _FIRST,
    "AT_DropExpression": _FIRST,
    "AT_DropIdentity": _FIRST,
    "AT_AlterColumnType": _TYPES,
    "AT_AddColumn": _COLUMNS,
    "AT_SetNotNull": _KEYS,
}
_WORDS: Final = {
    "AT_EnableTrig": "ENABLE TRIGGER",
    "AT_EnableTrigAll": "ENABLE TRIGGER ALL",
    "AT_EnableTrigUser": "ENABLE TRIGGER USER",
    "AT_EnableAlwaysTrig": "ENABLE ALWAYS TRIGGER",
    "AT_EnableReplicaTrig": "ENABLE REPLICA TRIGGER",
    "AT_DisableTrig": "DISABLE TRIGGER",
    "AT_DisableTrigAll": "DISABLE TRIGGER ALL",
    "AT_DisableTrigUser": "DISABLE TRIGGER USER",
    "AT_EnableRule": "ENABLE RULE",
    "AT_EnableAlwaysRule": "ENABLE ALWAYS RULE",
    "AT_EnableReplicaRule": "ENABLE REPLICA RULE",
    "AT_DisableRule": "DISABLE RULE",
    "AT_EnableRowSecurity": "ENABLE ROW LEVEL SECURITY",
    "AT_DisableRowSecurity": "DISABLE ROW LEVEL SECURITY",
    "AT_ForceRowSecurity": "FORCE ROW LEVEL SECURITY",
    "AT_NoForceRowSecurity": "NO FORCE ROW LEVEL SECURITY",
    "AT_SetStatistics": "ALTER COLUMN … SET STATISTICS",
    "AT_SetStorage": "ALTER COLUMN … SET STORAGE",
    "AT_SetCompression": "ALTER COLUMN … SET COMPRESSION",
    "AT_SetOptions": "ALTER COLUMN … SET (…)",
    "AT_ResetOptions": "ALTER COLUMN … RESET (…)",
    "AT_SetExpression": "ALTER COLUMN … SET EXPRESSION",
    "AT_ClusterOn": "CLUSTER ON",
    "AT_DropCluster": "SET WITHOUT CLUSTER",
    "AT_SetLogged": "SET LOGGED",
    "AT_SetUnLogged": "SET UNLOGGED",
    "AT_DropOids": "SET WITHOUT OIDS",
    "AT_SetAccessMethod": "SET ACCESS METHOD",
    "AT_SetTableSpace": "SET TABLESPACE",
    "AT_AddInherit": "INHERIT",
    "AT_DropInherit": "NO INHERIT",
    "AT_AddOf": "OF",
    "AT_DropOf": "NOT OF",
    "AT_ReplicaIdentity": "REPLICA IDENTITY",
    "AT_AttachPartition": "ATTACH PARTITION",
    "AT_DetachPartition": "DETACH PARTITION",
    "AT_GenericOptions": "OPTIONS (…)",
}
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
    "AT_AlterConstraint": Alterations._alter_constraint,
    "AT_AddIdentity": Alterations._identity,
    "AT_SetIdentity": Alterations._identity,
    "AT_DropIdentity": Alterations._identity,
    "AT_DropExpression": Alterations._drop_expression,
    "AT_SetRelOptions": Alterations._options,
    "AT_ResetRelOptions": Alterations._options,
}


def _in_zone(converted: Expr, column: ItemColumn, zone: tzinfo) -> str | None:
    """The text of a conversion of the column alone with the session's zone in it, for a job that
    has no session; None: there is none.
    """
    while isinstance(converted, Length):
        converted = converted.arg
    if not (isinstance(converted, Call) and converted.cast and len(converted.args) == 1):
        return None
    of = converted.args[0]
    name, form = zones.name_of(zone), _ZONED.get((column.oid, converted.oid))
    if not isinstance(of, Column) or of.name != column.name or name is None or form is None:
        return None
    return form.format(quote_ident(column.name), f"AT TIME ZONE {quote_literal(name)}")


_ZONED: Final = {
    (oids.TIMESTAMP, oids.TIMESTAMPTZ): "({} {})",
    (oids.TIMESTAMPTZ, oids.TIMESTAMP): "({} {})",
    (oids.DATE, oids.TIMESTAMPTZ): "({}::timestamp {})",
    (oids.TIMESTAMPTZ, oids.DATE): "({} {})::date",
    (oids.TIMESTAMPTZ, oids.TIME): "({} {})::time",
}
"""Conversions that ask for the zone, of the column and the words that name it."""
