"""What stands in a declaration, in text and bound: defaults, checks, foreign keys, predicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlproxy.front.binding import binder as binding
from sqlproxy.front.binding.fromitems import check_schema, item_columns
from sqlproxy.front.binding.query import Queries
from sqlproxy.front.binding.scope import Parameters, Rel, Scope, columns_of
from sqlproxy.front.binding.typenames import NO_NAME, column_name
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound.exprs import Column, Const, Expr, walk
from sqlproxy.front.bound.immutability import immutable
from sqlproxy.front.bound.statements import ItemColumn
from sqlproxy.front.closures.compiling import fold
from sqlproxy.front.ddl.ddl_texts import (
    text_of,
    unqualified,
)
from sqlproxy.front.syntax.syntax import Node, find, parse_expression, strings
from sqlproxy.front.types.registry import format_type
from sqlproxy.front.types.resolve import ASSIGNMENT
from sqlproxy.pg import oids
from sqlproxy.pg.oids import canonical
from sqlproxy.pg.style import DEFAULT
from sqlproxy.rows.schema import Table
from sqlproxy.values.errors import (
    SqlError,
    unsupported,
)

_ACTIONS: Final = {
    "a": "no action",
    "r": "restrict",
    "c": "cascade",
    "n": "set null",
    "d": "set default",
}


class Clauses:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.binder = queries.binder
        self.names = queries.binder.names

    def default(self, node: Node, column: str, oid: int, typmod: int) -> tuple[object, str]:
        """The value if it is a constant, and the SQL."""
        with self._declared("DEFAULT expressions"):
            if any(True for _ in find(node, "ColumnRef")):
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
        return value, text_of(self.binder.kept(node))

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

    def check(self, body: Node, columns: Sequence[ItemColumn], relation: str) -> d.CheckDef:
        expr, used = self.over_columns(body["raw_expr"], columns, relation, "check constraints")
        self.binder.casts.must(expr, oids.BOOL, what="CHECK")
        return d.CheckDef(
            name=body.get("conname"),
            sql=text_of(unqualified(self.binder.kept(body["raw_expr"]))),
            columns=used,
            validated=not body.get("skip_validation", False),
        )

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
            table=check_schema(body["pktable"], self.names),
            referenced=referenced,
            on_delete=_ACTIONS[body.get("fk_del_action", "a")],
            on_update=_ACTIONS[body.get("fk_upd_action", "a")],
            deferrable=bool(body.get("deferrable")),
            deferred=bool(body.get("initdeferred")),
            validated=not body.get("skip_validation", False),
        )

    def derived(self, node: Node, table: Table) -> d.Derived:
        """What an index over an expression is of. Raises SqlError (42P17)."""
        self.binder.parameters.allowed = False
        items = item_columns(table)
        expr, used = self.over_columns(node, items, table.name, "index expressions")
        if not immutable(expr):
            raise SqlError("42P17", "functions in index expression must be marked IMMUTABLE")
        if expr.oid == oids.UNKNOWN or not used:
            raise unsupported("an index over a constant")
        text = text_of(unqualified(self.binder.kept(node)))
        if self._usually(text, table) != expr:
            raise unsupported(
                "an index over an expression whose constants depend on settings of the session",
                hint="Write dates as YYYY-MM-DD and times with their time zone.",
            )
        title = column_name(node)
        kind = canonical(expr.oid, expr.typmod)
        return d.Derived(text, kind, used, "expr" if title == NO_NAME else title)

    def _usually(self, text: str, table: Table, *, condition: bool = False) -> Expr:
        """An expression over a table as it is bound with the usual settings."""
        usual = binding.Binder(self.names, Parameters(allowed=False), DEFAULT)
        items, scope = item_columns(table), Scope()
        columns = columns_of(table.name, items, 0)
        scope.rels.append(Rel(table.name, tuple(c.name for c in items), columns))
        found = usual.expr(parse_expression(text), scope)
        return usual.casts.must(found, oids.BOOL, what="WHERE") if condition else found

    def predicate(self, node: Node, table: Table) -> tuple[str, tuple[str, ...]]:
        """Of a partial index: its text, and the columns that it names. Raises SqlError (42P17)."""
        self.binder.parameters.allowed = False
        items = item_columns(table)
        expr, used = self.over_columns(node, items, table.name, "index predicates")
        expr = self.binder.casts.must(expr, oids.BOOL, what="WHERE")
        if not immutable(expr):
            raise SqlError("42P17", "functions in index predicate must be marked IMMUTABLE")
        text = text_of(unqualified(self.binder.kept(node)))
        if self._usually(text, table, condition=True) != expr:
            raise unsupported(
                "an index predicate whose constants depend on settings of the session",
                hint="Write dates as YYYY-MM-DD and times with their time zone.",
            )
        return text, used
