"""FROM: tables, views, subqueries, functions, joins → items and the names that they make visible
(parse_relation.c).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, Protocol

from sqlproxy.front.binding.binder import Binder, fields_of
from sqlproxy.front.binding.functioncalls import IN_FROM, no_sets
from sqlproxy.front.binding.scope import Names, Parameters, Rel, Scope, SystemView, columns_of
from sqlproxy.front.binding.typenames import type_of
from sqlproxy.front.bound.exprs import Call, Cast, Coalesce, Column, Expr, Logic, children
from sqlproxy.front.bound.statements import (
    Change,
    CteItem,
    FunctionItem,
    Item,
    ItemColumn,
    JoinItem,
    Select,
    SelectItem,
    SequenceItem,
    SystemItem,
    TableItem,
    Target,
    shown,
)
from sqlproxy.front.functions.f_catalog import CATALOG, RELATIONS
from sqlproxy.front.functions.system_columns import of_rows, with_row_number
from sqlproxy.front.syntax import syntax
from sqlproxy.front.syntax.syntax import Node, at, strings, unwrap
from sqlproxy.pg import oids
from sqlproxy.pg.oids import by_name
from sqlproxy.rows.naming import PUBLIC, TEMPORARY, InSchema, named
from sqlproxy.rows.schema import ROWID, Table, View
from sqlproxy.rows.schema import Column as TableColumn
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.values.errors import (
    AMBIGUOUS_COLUMN,
    DUPLICATE_COLUMN,
    INVALID_COLUMN_REFERENCE,
    INVALID_TABLE_DEFINITION,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_SCHEMA,
    UNDEFINED_TABLE,
    WRONG_OBJECT_TYPE,
    SqlError,
    unsupported,
)

_JOINS: Final = {"JOIN_LEFT": "left", "JOIN_FULL": "full", "JOIN_RIGHT": "right"}
_KEYS: Final = {
    "pg_attribute": ("attrelid", "attnum"),
    "pg_index": ("indexrelid",),
    "pg_range": ("rngtypid",),
    "pg_sequence": ("seqrelid",),
}
"""Of the system's tables whose key is not their column oid."""
_NESTED_VIEWS_MAX: Final = 32
_TOP_LEVEL: Final = "set-returning functions must appear at top level of FROM"
_CHANGES: Final = ("insert", "update", "delete", "merge")
SEQUENCE_COLUMNS: Final = (
    ("last_value", oids.INT8),
    ("log_cnt", oids.INT8),
    ("is_called", oids.BOOL),
)
PLAIN_COLUMNS: Final = (
    TableColumn(1, "key", "bytea", nullable=False),
    TableColumn(2, "value", "bytea", nullable=False),
)


def table_columns(table: Table) -> tuple[TableColumn, ...]:
    """The columns that statements see; of a plain key-value table its key and its value."""
    return PLAIN_COLUMNS if table.plain else shown(table)


def item_columns(table: Table) -> tuple[ItemColumn, ...]:
    found = []
    for column in table_columns(table):
        of, typmod = by_name(column.type)
        found.append(ItemColumn(column.name, of.oid, typmod, int(table.id), column.id))
    return tuple(found)


class Selecting(Protocol):
    """Binds the queries within FROM (sqlproxy.front.binding.query.Queries)."""

    def select(self, body: Node, parent: Scope | None) -> Select: ...
    def with_targets(self, select: Select, targets: Sequence[Target]) -> Select: ...
    def within(self, clause: str) -> AbstractContextManager[None]: ...


def output(statement: Select | Change) -> tuple[ItemColumn, ...]:
    """The columns that a query, or RETURNING, has for the query around it."""
    found = []
    targets = statement.targets if isinstance(statement, Select) else statement.returning
    for target in targets:
        expr = target.expr
        origin = (expr.table, expr.attribute) if isinstance(expr, Column) else (0, 0)
        found.append(ItemColumn(target.name, expr.oid, expr.typmod, *origin))
    return tuple(found)


class FromItems:
    def __init__(self, binder: Binder, queries: Selecting) -> None:
        self.binder = binder
        self.queries = queries
        self.views: list[int] = []  # those around, the outermost first
        self.qualifies = False  # whether names are written into the tree with their schemas
        self.systems = 0  # how many of the system's

    def bind(self, node: Node, scope: Scope) -> Item:
        """One item of FROM; its names are in the scope then."""
        kind, body = unwrap(node)
        match kind:
            case "RangeVar":
                return self._relation(body, scope)
            case "RangeSubselect":
                return self._subselect(body, scope)
            case "RangeFunction":
                return self._function(body, scope)
            case "JoinExpr":
                return self._join(body, scope)
            case "RangeTableSample":
                raise unsupported("TABLESAMPLE", position=at(body))
            case _:
                raise unsupported(kind, position=at(body))

    # -- relations

    def find(self, body: Node, *, queried: bool = False) -> Table | View:
        """The relation that a RangeVar names. Raises 42P01, 3F000. `queried`: by a query, or by
        what changes its rows, to which a schema that is not there is a relation that is not.
        """
        names = self.binder.names
        name = check_schema(body, names, queried=queried)
        found: Table | View | None = names.table(name) or names.view(name)
        if found is not None:
            if self.qualifies and isinstance(name, InSchema):
                body["schemaname"] = name.schema
            return found
        if names.sequence(name) is not None:
            raise SqlError(WRONG_OBJECT_TYPE, f'"{name}" is not a table', position=at(body))
        if names.index(name) is not None:
            raise SqlError(
                WRONG_OBJECT_TYPE,
                f'cannot open relation "{name}"',
                position=at(body),
                detail="This operation is not supported for indexes.",
            )
        raise no_relation(body)

    def table(self, body: Node, what: str) -> Table:
        """The table that a statement changes. Raises 42809 for a view or a sequence."""
        if (sequence := self._sequence_of(body)) is not None:
            raise SqlError(
                WRONG_OBJECT_TYPE,
                f'cannot change sequence "{sequence.name}"'
                if what in _CHANGES
                else f'"{sequence.name}" is not a table',
            )
        found = self.find(body, queried=what in _CHANGES)
        if isinstance(found, View):
            if what in _CHANGES:
                word = {"insert": "insert into", "delete": "delete from"}.get(what, what)
                raise SqlError(
                    "55000",
                    f'cannot {word} view "{found.name}"',
                    detail="Views are not updatable here.",
                )
            raise SqlError(WRONG_OBJECT_TYPE, f'"{found.name}" is not a table')
        return found

    def target(self, body: Node, scope: Scope, what: str) -> TableItem:
        """The target of a data-modifying statement, as the scope's next item."""
        table = self._shown(self.table(body, what))
        alias, _ = _alias(body, table.name)
        item = TableItem(alias=alias, columns=item_columns(table), offset=scope.width, table=table)
        self.enter(item, scope)
        return item

    def _relation(self, body: Node, scope: Scope) -> Item:
        name = body["relname"]
        pos = at(body)
        if "schemaname" not in body and (cte := scope.cte(name)) is not None:
            if not cte.columns and isinstance(cte.statement, Change):
                raise SqlError(
                    "0A000",
                    f'WITH query "{name}" does not have a RETURNING clause',
                    position=pos,
                )
            alias, names = _alias(body, name)
            columns = _renamed(cte.columns, names, alias, pos)
            return self.enter(
                CteItem(alias=alias, columns=columns, offset=scope.width, name=name), scope
            )
        if (sequence := self._sequence_of(body)) is not None:
            return self.enter(self._sequence(sequence, body, scope), scope)
        if (system := self._system(body)) is not None:
            alias, names = _alias(body, name)
            columns = _renamed(system.columns, names, alias, pos)
            schema = "" if "alias" in body else _schema(body)
            return self.enter(
                replace(system, alias=alias, columns=columns, offset=scope.width), scope, schema
            )
        found = self.find(body, queried=True)
        alias, names = _alias(body, name)
        item: Item
        if isinstance(found, View):
            item = self._view(found, alias, names, scope, pos)
        else:
            self.binder.needs.on(found.id, "r")
            found = self._shown(found)
            columns = _renamed(item_columns(found), names, alias, pos)
            item = TableItem(alias=alias, columns=columns, offset=scope.width, table=found)
        return self.enter(item, scope)

    def _system(self, body: Node) -> SystemItem | SelectItem | None:
        """A relation of the system."""
        name, names, schema = body["relname"], self.binder.names, _schema(body)
        if not schema and not self.systems:  # pg_catalog is searched before all others
            own = names.searched(name)
            if names.table(own) or names.view(own):
                return None
        listed = names.system_columns(schema, name)
        if listed is None:
            return None
        if (view := names.system_view(schema, name)) is not None:
            return self._system_view(f"{schema}.{name}", view, listed)
        return self._reported(schema, name, listed, self._oid(f"{schema}.{name}"))

    def _reported(
        self, schema: str, name: str, listed: Sequence[tuple[str, int, int]], oid: int = 0
    ) -> SystemItem:
        """What the catalog is asked for."""
        key = _KEYS.get(name, ("oid",))
        self.binder.casts.asked |= {RELATIONS, CATALOG, f"{schema}.{name}"}
        return SystemItem(
            alias=name,
            columns=tuple(
                ItemColumn(column, kind, typmod, -oid, place)
                for place, (column, kind, typmod) in enumerate(listed, 1)
            ),
            offset=0,
            relation=f"{schema}.{name}",
            oid=oid,
            key=frozenset(place for place, one in enumerate(listed, 1) if one[0] in key),
        )

    def _oid(self, path: str) -> int:
        relations = self.binder.names.relations()
        return relations.oid(relations.must(path))

    def _system_view(
        self, path: str, view: SystemView, listed: Sequence[tuple[str, int, int]]
    ) -> SelectItem:
        """A view of the system, bound once for all statements: it depends on none."""
        casts = self.binder.casts
        if (select := view.select) is None:
            parsed = syntax.whole(view.text)
            assert parsed is not None, path
            outer, casts.asked = casts.asked, set()
            self.systems += 1
            try:
                select = self._inside(path, parsed.body)
            finally:
                self.systems -= 1
                asked, casts.asked = casts.asked, outer
            view.asks, view.select = frozenset(asked), select
        casts.asked |= view.asks
        oid = self._oid(path)
        columns = tuple(
            ItemColumn(name, target.expr.oid, typmod, -oid, place)
            for place, ((name, _, typmod), target) in enumerate(
                zip(listed, select.targets, strict=True), 1
            )
        )
        return SelectItem(alias="", columns=columns, offset=0, select=select)

    def _inside(self, name: str, body: Node) -> Select:
        """The query of a view: it sees nothing of the statement, nor has it parameters."""
        if len(self.views) + self.systems >= _NESTED_VIEWS_MAX:
            raise SqlError(
                "54001", f'views are nested more than {_NESTED_VIEWS_MAX} deep at "{name}"'
            )
        binder = self.binder
        kept, binder.casts.parameters = binder.casts.parameters, Parameters(allowed=False)
        binder.parameters, outer = binder.casts.parameters, binder.parameters
        try:
            return self.queries.select(body, None)
        finally:
            binder.casts.parameters, binder.parameters = kept, outer

    def _sequence_of(self, body: Node) -> SequenceRow | None:
        names = self.binder.names
        schema = body.get("schemaname")
        if schema == TEMPORARY:
            schema = names.private
        name = names.searched(body["relname"]) if schema is None else named(schema, body["relname"])
        return None if names.table(name) or names.view(name) else names.sequence(name)

    def _sequence(self, sequence: SequenceRow, body: Node, scope: Scope) -> Item:
        self.binder.needs.on(sequence.id, "r")
        alias, names = _alias(body, sequence.name)
        columns = tuple(
            ItemColumn(column, oid, -1, int(sequence.id), place)
            for place, (column, oid) in enumerate(SEQUENCE_COLUMNS, 1)
        )
        return SequenceItem(
            alias=alias,
            columns=_renamed(columns, names, alias, at(body)),
            offset=scope.width,
            sequence=sequence,
        )

    def _view(self, view: View, alias: str, names: Sequence[str], scope: Scope, pos: int) -> Item:
        parsed = syntax.parse(view.sql)
        if parsed is None or parsed.kind != "SelectStmt":
            raise SqlError("XX000", f'the view "{view.name}" has no query')
        if view.id in self.views:
            words = f'infinite recursion detected in rules for relation "{view.name}"'
            raise SqlError("42P17", words)
        self.views.append(view.id)
        names_here, self.binder.names = self.binder.names, self.binder.names.publicly()
        try:
            with self.binder.needs.inside(view):
                select = self._inside(view.name, parsed.body)
        finally:
            self.views.pop()
            self.binder.names = names_here
        columns = tuple(
            ItemColumn(name, t.expr.oid, t.expr.typmod, view.id, i)
            for i, ((name, _), t) in enumerate(zip(view.columns, select.targets, strict=True), 1)
        )
        return SelectItem(
            alias=alias,
            columns=_renamed(columns, names, alias, pos),
            offset=scope.width,
            select=select,
            view=view,
        )

    def enter(self, item: Item, scope: Scope, schema: str = "public") -> Item:
        """Make the item's columns visible under its alias."""
        names = tuple(c.name for c in item.columns)
        columns = columns_of(item.alias, item.columns, item.offset)
        system = self.system(item)
        if system:
            places = [at for at, name in enumerate(names) if name != ROWID]
            names = tuple(names[at] for at in places)
            columns = tuple(columns[at] for at in places)
        scope.add(
            Rel(
                item.alias,
                names,
                columns,
                named=bool(item.alias),
                base=item.table.name if isinstance(item, TableItem) else "",
                schema=schema,
                scalar=isinstance(item, FunctionItem) and len(item.columns) == 1,
                system=system,
            )
        )
        scope.width = item.offset + len(item.columns)
        return item

    def _shown(self, table: Table) -> Table:
        """The table with all that the statement may ask of a row."""
        return with_row_number(table) if self.binder.system_columns else table

    def system(self, item: Item) -> dict[str, Expr]:
        """What PostgreSQL has beside the columns of a table, if the statement may ask for it."""
        if not self.binder.system_columns:
            return {}
        if isinstance(item, SystemItem):
            key = columns_of(item.alias, item.columns, item.offset)[:1]
            return of_rows(key, [one.name for one in key], item.oid)
        if not isinstance(item, TableItem) or item.table.plain:
            return {}
        table, columns = item.table, columns_of(item.alias, item.columns, item.offset)
        by_id = {column.attribute: column for column in columns}
        keys = {table.column(name).id for name in table.primary_key}
        named = [replace(one, name=table.by_id(number).name) for number, one in by_id.items()]
        names = [table.by_id(number).name for number in keys]
        return of_rows(named, names, self.binder.names.relation_oid(int(table.id)))

    # -- subqueries and functions

    def _seen(self, scope: Scope, lateral: bool) -> Scope:
        """What an item of FROM may see of its neighbours: nothing, unless it is LATERAL."""
        if lateral:
            return Scope(
                parent=scope.parent, rels=list(scope.rels), ctes=scope.ctes, width=scope.width
            )
        return Scope(parent=scope.parent, ctes=scope.ctes, hidden=scope.rels)

    def _subselect(self, body: Node, scope: Scope) -> Item:
        lateral, pos = bool(body.get("lateral")), at(body.get("alias", {}))
        _, query = unwrap(body["subquery"])
        inner = self._seen(scope, lateral)
        found = self.queries.select(query, inner)
        select = _by_field(found)
        alias, names = _alias(body, "")
        if names and select is not found:
            raise unsupported("names for the columns of a query with rows as values", position=pos)
        columns = _renamed(output(select), names, alias, 0)
        item = SelectItem(
            alias=alias, columns=columns, offset=scope.width, select=select, lateral=lateral
        )
        return self.enter(item, scope)

    def _function(self, body: Node, scope: Scope) -> Item:
        if (known := self._known_function(body)) is not None:
            alias, names = _alias(body, known.alias)
            known = replace(known, alias=alias, offset=scope.width)
            shown = _renamed(known.columns, names, alias, 0)
            return self.enter(replace(known, columns=shown), scope)
        calls: list[Expr] = []
        columns: list[ItemColumn] = []
        functions = _each_array(part["List"]["items"] for part in body["functions"])
        own = self._own_function(functions[0], body, scope) if len(functions) == 1 else None
        if own is not None:
            return own
        alias, names = _alias(body, "")
        here = self.binder.calls.here
        for items in functions:
            sets = here.sets
            with self.queries.within(IN_FROM):
                call = self.binder.expr(items[0], self._seen(scope, True))
            here.sets = sets
            no_sets(children(call), _TOP_LEVEL, "")
            declared = body.get("coldeflist") if len(functions) == 1 else None
            if len(items) > 1 and items[1]:
                declared = items[1]["List"]["items"]
            calls.append(call)
            columns.extend(
                self._columns(call, items[0], declared, alias if len(functions) == 1 else "", body)
            )
        if not alias:
            alias = (strings(unwrap(functions[0][0])[1].get("funcname", ())) or [""])[-1]
        if body.get("ordinality"):
            columns.append(ItemColumn("ordinality", oids.INT8))
        item = FunctionItem(
            alias=alias,
            columns=_renamed(tuple(columns), names, alias, 0),
            offset=scope.width,
            calls=tuple(calls),
            ordinality=bool(body.get("ordinality")),
            lateral=True,
        )
        return self.enter(item, scope)

    def _own_function(self, items: Sequence[Node], body: Node, scope: Scope) -> Item | None:
        """A function of users' that returns rows, as the query that it is; None: it is none."""
        kind, part = unwrap(items[0])
        if kind != "FuncCall":
            return None
        inlining = self.binder.calls.inlining
        here = self.binder.calls.here
        sets = here.sets
        with self.queries.within(IN_FROM):
            chosen = inlining.chosen(strings(part["funcname"]), part, self._seen(scope, True))
        here.sets = sets
        if chosen is None or not chosen.function.columns:
            return None
        no_sets(chosen.args, _TOP_LEVEL, "")
        if body.get("ordinality") or body.get("coldeflist") or (len(items) > 1 and items[1]):
            raise unsupported("WITH ORDINALITY and column lists of users' functions", are=True)
        select = inlining.rows(chosen, self.queries.select, self.queries.with_targets)
        alias, names = _alias(body, "")
        if alias and not names and chosen.function.result != oids.RECORD:
            names = [alias]  # of one value its name is the value's
        alias = alias or chosen.function.title
        columns = _renamed(output(select), names, alias, 0)
        item = SelectItem(
            alias=alias, columns=columns, offset=scope.width, select=select, lateral=True
        )
        return self.enter(item, scope)

    def _known_function(self, body: Node) -> SystemItem | None:
        """A function of no arguments whose rows the catalog has."""
        kind, call = unwrap(body["functions"][0]["List"]["items"][0])
        words = strings(call.get("funcname", ())) if kind == "FuncCall" else []
        plain = len(body["functions"]) == 1 and not body.get("ordinality") and "args" not in call
        if not (plain and words and words[:-1] in ([], ["pg_catalog"])):
            return None
        listed = self.binder.names.system_columns("pg_catalog", f"{words[-1]}()")
        if listed is None:
            return None
        item = self._reported("pg_catalog", f"{words[-1]}()", listed)
        return replace(item, alias=words[-1])

    def _columns(
        self, call: Expr, node: Node, declared: Sequence[Node] | None, alias: str, body: Node
    ) -> list[ItemColumn]:
        if declared:
            if call.oid != oids.RECORD or (isinstance(call, Call) and call.proc.out):
                refused = (
                    'is only allowed for functions returning "record"'
                    if call.oid != oids.RECORD
                    else "is redundant for a function with OUT parameters"
                )
                raise SqlError(
                    SYNTAX_ERROR,
                    f"a column definition list {refused}",
                    position=at(declared[0]["ColumnDef"]),
                )
            found = []
            for part in declared:
                column = part["ColumnDef"]
                kind = type_of(column["typeName"], self.binder.names)
                found.append(ItemColumn(column["colname"], *kind))
            return found
        if isinstance(call, Call) and call.proc.out and call.oid == oids.RECORD:
            return [ItemColumn(name, oid) for name, oid in call.proc.out]
        if call.oid == oids.RECORD:
            raise SqlError(
                SYNTAX_ERROR,
                'a column definition list is required for functions returning "record"',
                position=call.pos + 1,
            )
        name = alias
        if not name and isinstance(call, Call):
            name = call.proc.out[0][0] if call.proc.out else ""
        if not name:
            words = strings(unwrap(node)[1].get("funcname", ()))
            name = words[-1] if words else "?column?"
        if isinstance(call, Call) and len(call.proc.out) == 1:
            name = call.proc.out[0][0]
        return [ItemColumn(name, call.oid, call.typmod)]

    # -- joins

    def _join(self, body: Node, scope: Scope) -> Item:
        kind = _JOINS.get(body.get("jointype", ""), "inner")
        before = len(scope.rels)
        left = self.bind(body["larg"], scope)
        middle = len(scope.rels)
        right = self.bind(body["rarg"], scope)
        left_rels, right_rels = scope.rels[before:middle], scope.rels[middle:]
        using = strings(body.get("usingClause"))
        if body.get("isNatural"):
            names = {n for rel in right_rels if rel.open for n in rel.names}
            using = [n for rel in left_rels if rel.open for n in rel.names if n in names]
        on: Expr | None = None
        merged: list[tuple[str, Expr]] = []
        if using:
            on, merged = self._using(using, kind, left_rels, right_rels, scope)
        elif "quals" in body:
            outer = Scope(
                parent=scope.parent,
                rels=[*left_rels, *right_rels],
                hidden=scope.rels[:before],
                ctes=scope.ctes,
                width=scope.width,
            )
            with self.queries.within("JOIN conditions"):
                on = self.binder.condition(body["quals"], outer, "JOIN/ON")
        elif kind == "inner":
            kind = "cross"
        self._visible(body, using, merged, left_rels, right_rels, scope)
        for rel in (
            *(left_rels if kind in ("right", "full") else ()),
            *(right_rels if kind in ("left", "full") else ()),
        ):
            rel.outer = True
        columns = (*left.columns, *right.columns)
        return JoinItem(
            alias=body.get("alias", {}).get("aliasname", ""),
            columns=columns,
            offset=left.offset,
            kind=kind,
            left=left,
            right=right,
            on=on,
            using=tuple(using),
        )

    def _using(
        self,
        using: Sequence[str],
        kind: str,
        left: Sequence[Rel],
        right: Sequence[Rel],
        scope: Scope,
    ) -> tuple[Expr, list[tuple[str, Expr]]]:
        conditions: list[Expr] = []
        merged: list[tuple[str, Expr]] = []
        for i, name in enumerate(using):
            if name in using[:i]:
                raise SqlError(
                    DUPLICATE_COLUMN,
                    f'column name "{name}" appears more than once in USING clause',
                )
            a, b = _only(name, left, "left"), _only(name, right, "right")
            conditions.append(self.binder.operator("=", a, b, 0))
            oid, both = self.binder.common([a, b], "JOIN/USING")
            same = a.oid == b.oid and a.typmod == b.typmod
            typmod = a.typmod if same else -1
            sides = [
                side if side.typmod == typmod else Cast(oid=oid, arg=side, how="relabel")
                for side in both
            ]
            value = sides[kind == "right"]
            if kind == "inner":  # one that is as it was, if there is such
                value = next(
                    (s for s, given in zip(sides, (a, b), strict=True) if s is given), value
                )
            elif kind == "full":
                value = Coalesce(oid=oid, typmod=typmod, args=tuple(sides))
            merged.append((name, value))
        on = (
            conditions[0]
            if len(conditions) == 1
            else Logic(op="and", args=tuple(conditions), oid=oids.BOOL)
        )
        return on, merged

    def _visible(
        self,
        body: Node,
        using: Sequence[str],
        merged: Sequence[tuple[str, Expr]],
        left: Sequence[Rel],
        right: Sequence[Rel],
        scope: Scope,
    ) -> None:
        """Merged columns come first and once; an alias of the join hides the names inside."""
        for rel in (*left, *right):
            rel.joined = True
        alias: dict[str, Any] = body.get("alias", {})
        if not using and not alias:
            return
        rest = [
            (n, e)
            for rel in (*left, *right)
            if rel.open
            for n, e in zip(rel.names, rel.exprs, strict=True)
            if n not in using
        ]
        whole = [*merged, *rest]
        for rel in (*left, *right):
            rel.open = False
            if alias:
                rel.named = False
        names = [n for n, _ in whole]
        for i, name in enumerate(strings(alias.get("colnames"))):
            if i >= len(names):
                raise SqlError(
                    INVALID_COLUMN_REFERENCE,
                    f'join expression "{alias["aliasname"]}" has {len(names)} columns '
                    "available but more were specified",
                )
            names[i] = name
        scope.add(
            Rel(
                alias.get("aliasname", ""),
                tuple(names),
                tuple(e for _, e in whole),
                named=bool(alias),
            )
        )


def _only(name: str, rels: Sequence[Rel], side: str) -> Expr:
    found = [
        e
        for rel in rels
        if rel.open
        for n, e in zip(rel.names, rel.exprs, strict=True)
        if n == name
    ]
    if not found:
        raise SqlError(
            UNDEFINED_COLUMN,
            f'column "{name}" specified in USING clause does not exist in {side} table',
        )
    if len(found) > 1:
        raise SqlError(
            AMBIGUOUS_COLUMN, f'common column name "{name}" appears more than once in {side} table'
        )
    return found[0]


def _alias(body: Node, default: str) -> tuple[str, list[str]]:
    alias = body.get("alias")
    if not alias:
        return default, []
    return alias["aliasname"], strings(alias.get("colnames"))


def _by_field(select: Select) -> Select:
    """A query with a column for each field of what its list has of rows: `x.field`."""
    if not any(fields_of(target.expr) for target in select.targets):
        return select
    listed = [
        [Target(one, f"{target.name}.{name}") for name, one in fields_of(target.expr).items()]
        or [target]
        for target in select.targets
    ]
    if select.order or select.distinct or select.distinct_on or select.group:
        raise unsupported("rows as values, where they are sorted, grouped or compared")
    return replace(select, targets=tuple(one for part in listed for one in part))


def _schema(body: Node) -> str:
    """Of a relation that may be the system's: names that begin with pg_ need none."""
    schema: str = body.get("schemaname") or ("pg_catalog" if body["relname"][:3] == "pg_" else "")
    return schema


def _renamed(
    columns: tuple[ItemColumn, ...], names: Sequence[str], alias: str, pos: int
) -> tuple[ItemColumn, ...]:
    if not names:
        return columns
    if len(names) > len(columns):
        raise SqlError(
            INVALID_COLUMN_REFERENCE,
            f'table "{alias}" has {len(columns)} columns available but {len(names)} columns '
            f"specified",
            position=pos,
        )
    return tuple(replace(c, name=names[i]) if i < len(names) else c for i, c in enumerate(columns))


def no_schema(name: str, pos: int = 0) -> SqlError:
    return SqlError(UNDEFINED_SCHEMA, f'schema "{name}" does not exist', position=pos)


def reference(words: Sequence[str]) -> Node:
    """A name of several words as a RangeVar."""
    return dict(zip(("relname", "schemaname", "catalogname"), reversed(words), strict=False))


def no_relation(body: Node) -> SqlError:
    """Of a RangeVar, as it is written."""
    schema, name = body.get("schemaname"), body["relname"]
    shown = name if schema is None else f"{schema}.{name}"
    return SqlError(UNDEFINED_TABLE, f'relation "{shown}" does not exist', position=at(body))


def check_schema(body: Node, names: Names, *, queried: bool = False, made: bool = False) -> str:
    """The name of a RangeVar in its schema (`sqlproxy.rows.naming.named`), which without one is
    searched. `queried`: as of `FromItems.find`; `made`: it is to be made, in the first schema of
    the path. Raises 3F000, 42P01, 0A000.
    """
    catalog, schema = body.get("catalogname"), body.get("schemaname")
    if catalog is not None and catalog != names.database:
        shown_name = f"{catalog}.{schema}.{body['relname']}"
        raise SqlError(
            "0A000",
            f'cross-database references are not implemented: "{shown_name}"',
            position=at(body),
        )
    if schema == TEMPORARY:
        schema = names.private or schema
    there = schema in (None, PUBLIC) or schema in names.schemas
    if not there and queried:
        raise no_relation(body)
    if not there:
        raise no_schema(str(schema), at(body))
    name: str = body["relname"]
    if made and body.get("relpersistence", "p") == "t":
        if schema not in (None, names.private):
            raise SqlError(
                INVALID_TABLE_DEFINITION,
                "cannot create temporary relation in non-temporary schema",
                position=at(body),
            )
        return named(names.private, name)
    if schema is not None:
        return named(schema, name)
    if made and not names.path:
        raise SqlError(UNDEFINED_SCHEMA, "no schema has been selected to create in")
    return named(names.path[0], name) if made else names.searched(name)


def _each_array(functions: Iterable[list[Node]]) -> list[list[Node]]:
    """The functions of one item; unnest of several arrays is one unnest for each, side by side."""
    found: list[list[Node]] = []
    for items in functions:
        kind, body = unwrap(items[0])
        args = body.get("args", ())
        if (
            kind == "FuncCall"
            and strings(body.get("funcname"))[-1:] == ["unnest"]
            and len(args) > 1
        ):
            found += [[{kind: {**body, "args": [arg]}}, *items[1:]] for arg in args]
        else:
            found.append(items)
    return found
