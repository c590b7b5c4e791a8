"""ALTER TABLE → actions, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlproxy.errors import (
    DUPLICATE_COLUMN,
    INVALID_TABLE_DEFINITION,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)
from sqlproxy.front import definitions as d
from sqlproxy.front import granting
from sqlproxy.front.ddl import Definitions
from sqlproxy.front.ddl_options import option_value, sequence_options, table_options
from sqlproxy.front.ddl_tables import Draft
from sqlproxy.front.ddl_texts import text_of
from sqlproxy.front.dialect import Extras
from sqlproxy.front.fromitems import check_schema, item_columns
from sqlproxy.front.registry import format_type
from sqlproxy.front.resolve import ASSIGNMENT
from sqlproxy.front.scope import columns_of
from sqlproxy.front.statements import ItemColumn
from sqlproxy.front.syntax import Node, strings
from sqlproxy.front.typenames import type_of
from sqlproxy.pg.oids import canonical
from sqlproxy.schema import Table


class Alterations:
    """ALTER TABLE."""

    def __init__(self, ddl: Definitions) -> None:
        self.ddl = ddl

    def bind(self, body: Node) -> d.AlterTable | granting.ChangeOwner:
        if (owner := granting.owner_of_relation(body, self.ddl.names)) is not None:
            return owner
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
        draft = Draft(self.ddl, table.name)
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
        value, sql = self.ddl.default(command["def"], column.name, column.oid, column.typmod)
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
        draft = Draft(self.ddl, table.name)
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
}
