"""A table's declared expressions, compiled: `sqlproxy.tables.rules.Rules`.

Declarations were checked when they were made, so an expression that cannot be bound now means that
the catalog is damaged or of a newer program; the error says which column or constraint it is of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlproxy.front.binding.binder import Binder
from sqlproxy.front.binding.scope import Names, Parameters, Rel, Scope, columns_of
from sqlproxy.front.bound.exprs import Const, Expr
from sqlproxy.front.bound.statements import ItemColumn
from sqlproxy.front.closures.compiling import Compiled, Fn, compile
from sqlproxy.front.syntax.syntax import Node, parse_expression
from sqlproxy.front.types.resolve import ASSIGNMENT
from sqlproxy.pg import oids
from sqlproxy.pg.oids import by_name
from sqlproxy.pg.style import Style
from sqlproxy.pg.text import writer
from sqlproxy.rows.schema import ROWID, Column, Table
from sqlproxy.tables.rules import Rules, Text


def rules_of(
    table: Table, names: Names, style: Style, numbered: Mapping[int, str] | None = None
) -> Rules:
    """`numbered`: the sequence of each identity column, by the column's id. Raises SqlError for a
    declaration that this program cannot read.
    """
    return _Ruling(table, names, style, numbered or {}).rules()


def condition_of(table: Table, names: Names, style: Style, sql: str) -> Fn:
    """A condition on a table's rows, as a CHECK has one: of a row's values and an Env. Raises
    SqlError.
    """
    return _Ruling(table, names, style, {})._condition(sql)


def bound_value(table: Table, names: Names, style: Style, sql: str) -> Expr:
    """An expression over the columns of a table, bound. Raises SqlError."""
    return _Ruling(table, names, style, {}).bound(sql, condition=False)


def bound_condition(table: Table, names: Names, style: Style, sql: str | Node) -> Expr:
    """The same, bound and not compiled; of its text or its tree. Raises SqlError."""
    return _Ruling(table, names, style, {}).bound(sql)


_EVERY = -1


class _Ruling:
    def __init__(
        self, table: Table, names: Names, style: Style, numbered: Mapping[int, str]
    ) -> None:
        self._table = table
        self._numbered = numbered
        self._binder = Binder(names, Parameters(allowed=False), style)
        self._taken: dict[int, tuple[str, ...]] = {}
        self._perhaps: dict[int, tuple[str, ...]] = {}
        self._unsure = False
        self._place = _EVERY  # whose default is compiled
        self._types = [by_name(column.type) for column in table.columns]
        self._writers = [writer(of.oid, style) for of, _ in self._types]
        items = tuple(
            ItemColumn(column.name, of.oid, typmod, int(table.id), column.id)
            for column, (of, typmod) in zip(table.columns, self._types, strict=True)
        )
        self._scope = Scope()
        columns = columns_of(table.name, items, 0)
        self._scope.rels.append(Rel(table.name, tuple(c.name for c in items), columns))

    def rules(self) -> Rules:
        table = self._table
        defaults: dict[int, Fn] = {}
        for place, column in enumerate(table.columns):
            self._place = place
            if (fn := self._default(place, column)) is not None:
                defaults[place] = fn
        self._place = _EVERY
        by_name = sorted(table.checks, key=lambda check: check.name)  # as PostgreSQL tests them
        return Rules(
            table=table,
            defaults=defaults,
            generated=self._of_columns(lambda column: column.generated, self._scope),
            on_update=self._of_columns(lambda column: column.on_update, Scope()),
            checks=tuple((check.name, self._condition(check.sql)) for check in by_name),
            required=tuple(at for at, c in enumerate(table.columns) if not c.nullable),
            text=self._text,
            text_in=self._text_in,
            taken=self._taken,
            perhaps=self._perhaps,
            unsure=self._unsure,
        )

    def _default(self, place: int, column: Column) -> Fn | None:
        if column.hidden and not column.derived:
            return self._number(f"{ROWID}:{self._table.id}")
        if column.identity:
            return self._number(self._numbered[column.id])
        if column.default_sql is not None:
            return self._value(place, column.default_sql, Scope())
        if column.default is None:
            return None
        of, _ = self._types[place]
        return compile(Const(oid=of.oid, value=column.default)).fn

    def _number(self, sequence: str) -> Fn:
        self._takes(sequence)
        return lambda row, env: env.nextval(sequence)

    def _of_columns(
        self, sql_of: Callable[[Column], str | None], scope: Scope
    ) -> tuple[tuple[int, Fn], ...]:
        found = []
        for place, column in enumerate(self._table.columns):
            if (sql := sql_of(column)) is not None:
                found.append((place, self._value(place, sql, scope)))
        return tuple(found)

    def _value(self, place: int, sql: str, scope: Scope) -> Fn:
        """An expression as a value of the column."""
        of, typmod = self._types[place]
        expr: Expr | None = self._binder.expr(parse_expression(sql), scope)
        assert expr is not None
        found = self._binder.casts.to(expr, of.oid, typmod, ASSIGNMENT, 0)
        assert found is not None, "it was checked when it was declared"
        return self._kept(compile(found))

    def _condition(self, sql: str) -> Fn:
        return self._kept(compile(self.bound(sql)))

    def bound(self, sql: str | Node, *, condition: bool = True) -> Expr:
        tree = parse_expression(sql) if isinstance(sql, str) else sql
        expr = self._binder.expr(tree, self._scope)
        return expr if not condition else self._binder.casts.must(expr, oids.BOOL, what="CHECK")

    def _kept(self, compiled: Compiled) -> Fn:
        self._takes(*compiled.taken)
        if compiled.perhaps:
            noted = self._perhaps.get(self._place, ())
            self._perhaps[self._place] = (*noted, *compiled.perhaps)
        self._unsure = self._unsure or compiled.unsure
        return compiled.fn

    def _takes(self, *sequences: str) -> None:
        if sequences:
            self._taken[self._place] = (*self._taken.get(self._place, ()), *sequences)

    def _text(self, place: int, value: object) -> str:
        return self._writers[place](value)

    def _text_in(self, style: Style) -> Text:
        return lambda place, value: writer(self._types[place][0].oid, style)(value)
