"""INSERT, UPDATE, DELETE, MERGE → bound statements (PostgreSQL's analyze.c, parse_merge.c)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import compress
from typing import Any, Final

from sqlproxy.front.binding.casting import is_moment
from sqlproxy.front.binding.fromitems import item_columns, output, table_columns
from sqlproxy.front.binding.grouping import plain
from sqlproxy.front.binding.query import Queries
from sqlproxy.front.binding.scope import Rel, Scope, columns_of
from sqlproxy.front.binding.typenames import check_collation
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Column, Const, Default, Expr, Param, RowExpr
from sqlproxy.front.bound.statements import (
    Assignment,
    Conflict,
    Cte,
    Delete,
    Insert,
    Item,
    Merge,
    MergeWhen,
    Select,
    TableItem,
    Target,
    Update,
)
from sqlproxy.front.closures.compiling import compile
from sqlproxy.front.closures.lengths import fitter
from sqlproxy.front.functions.system_columns import without_row_number
from sqlproxy.front.syntax.syntax import Node, at, find, parse_expression, strings, unwrap
from sqlproxy.front.types.registry import FUNCTIONS
from sqlproxy.front.types.value_texts import reader
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Field
from sqlproxy.pg.oids import by_name
from sqlproxy.rows.schema import Column as TableColumn
from sqlproxy.rows.schema import Table
from sqlproxy.values.errors import (
    DUPLICATE_COLUMN,
    GENERATED_ALWAYS,
    INVALID_COLUMN_REFERENCE,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    SqlError,
    unsupported,
)

_MERGES: Final = {"update": "w", "delete": "d", "insert": "a"}
_OVERRIDING: Final = {"OVERRIDING_USER_VALUE": "user", "OVERRIDING_SYSTEM_VALUE": "system"}


def no_arbiter() -> SqlError:
    """ON CONFLICT names what no unique index is of."""
    return SqlError(
        INVALID_COLUMN_REFERENCE,
        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
    )


class Writes:
    """Binds data-modifying statements; one per statement."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.binder = queries.binder
        # By column and type of the literal.
        self.conversions: dict[tuple[int, int], Callable[[object], object]] = {}
        queries.writes = self.nested

    def nested(self, kind: str, body: Node, scope: Scope) -> Insert | Update | Delete:
        """A data-modifying statement in WITH."""
        with self._own_level():
            match kind:
                case "InsertStmt":
                    return self.insert(body, scope)
                case "UpdateStmt":
                    return self.update(body, scope)
                case "DeleteStmt":
                    return self.delete(body, scope)
                case _:
                    raise unsupported("this statement in WITH")

    @contextmanager
    def _own_level(self) -> Iterator[None]:
        with self.queries._level():
            yield

    # -- INSERT

    def insert(self, body: Node, parent: Scope | None = None, text: str = "") -> Insert:
        scope = Scope(parent=parent)
        ctes = self.queries.with_clause(body.get("withClause"), scope)
        into = Scope(ctes=scope.ctes)
        target = self.queries.items.target(body["relation"], into, "insert")
        scope.hidden = into.rels
        columns, named = self._insert_columns(body, without_row_number(target.table))
        overriding = _OVERRIDING.get(body.get("override", ""), "")
        rows: tuple[tuple[Expr, ...], ...] | None = None
        select: Select | None = None
        conversions: tuple[Expr, ...] = ()
        source = body.get("selectStmt", {}).get("SelectStmt")
        if source is None:
            columns, rows = (), ((),)
        elif "valuesLists" in source and not any(
            k in source for k in ("sortClause", "limitCount", "limitOffset", "withClause")
        ):
            if items := _sets(source):
                select, columns = self._selected(items, columns, named, scope)
                select, conversions = self._from_select(select, columns)
            else:
                rows, count = self._insert_rows(source, columns, named, scope)
                columns = columns[:count]
        else:
            select = self.queries.select(source, scope, decide=False)
            last = select.targets[-1].expr if select.targets else None
            columns = self._fit(columns, named, len(select.targets), last)
            select, conversions = self._from_select(select, columns)
        conflict = self._conflict(body.get("onConflictClause"), target, ctes=scope.ctes)
        returning, fields = self._returning(body, into)
        needs = self.binder.needs
        needs.changes(target, "a", returning, reads=self._infers(conflict))
        if conflict is not None and conflict.assignments:
            needs.on(target.table.id, "w")
        needs.numbers(target.table, columns, rows or ())
        return Insert(
            text=text,
            tree={"InsertStmt": body},
            target=target,
            columns=columns,
            rows=rows,
            select=select,
            conversions=conversions,
            overriding=overriding,
            conflict=conflict,
            returning=returning,
            fields=fields,
            ctes=ctes,
            subqueries=self.binder.subqueries,
        )

    def _insert_columns(
        self, body: Node, table: Table
    ) -> tuple[tuple[TableColumn, ...], Sequence[Node]]:
        """And their names as they are written, if they are."""
        nodes = body.get("cols")
        if not nodes:
            return table_columns(table), ()
        found: list[TableColumn] = []
        for node in nodes:
            part = node["ResTarget"]
            column = find_column(table, part["name"], at(part))
            if part.get("indirection"):
                raise unsupported("assigning to a part of a column", position=at(part))
            if column in found:
                raise SqlError(
                    DUPLICATE_COLUMN,
                    f'column "{column.name}" specified more than once',
                    position=at(part),
                )
            found.append(column)
        return tuple(found), nodes

    @staticmethod
    def _fit(
        columns: tuple[TableColumn, ...], named: Sequence[Node], count: int, last: Expr | None
    ) -> tuple[TableColumn, ...]:
        """The columns that get the values; without names fewer values may come."""
        if count > len(columns):
            raise SqlError(
                SYNTAX_ERROR,
                "INSERT has more expressions than target columns",
                position=last.pos + 1 if last is not None else 0,
            )
        if named and count < len(columns):
            raise SqlError(
                SYNTAX_ERROR,
                "INSERT has more target columns than expressions",
                position=at(named[count]["ResTarget"]),
            )
        return columns[:count]

    def _selected(
        self,
        items: Sequence[Node],
        columns: tuple[TableColumn, ...],
        named: Sequence[Node],
        scope: Scope,
    ) -> tuple[Select, tuple[TableColumn, ...]]:
        """The SELECT of a row that returns sets, and the columns that get its values: all but those
        of DEFAULT.
        """
        given = [("SetToDefault" not in item) for item in items]
        nodes = [{"ResTarget": {"val": item}} for item in compress(items, given)]
        select = self.queries.select({"targetList": nodes}, scope, decide=False)
        for target in select.targets:
            plain(target.expr, "VALUES")
        defaults = len(items) - len(nodes)
        if defaults and len(select.targets) != len(nodes):
            raise unsupported("DEFAULT beside the fields of a row")
        count = len(select.targets) + defaults
        fitting = self._fit(columns, named, count, select.targets[-1].expr)
        return select, tuple(compress(fitting, given)) if defaults else fitting

    def _insert_rows(
        self, source: Node, columns: tuple[TableColumn, ...], named: Sequence[Node], scope: Scope
    ) -> tuple[tuple[tuple[Expr, ...], ...], int]:
        self.binder.allow_default = True
        try:
            rows = self.queries.values_rows(source["valuesLists"], Scope(parent=scope))
        finally:
            self.binder.allow_default = False
        if len(rows[0]) > len(columns):
            raise SqlError(
                SYNTAX_ERROR,
                "INSERT has more expressions than target columns",
                position=rows[0][len(columns)].pos + 1,
            )
        fitting = self._fit(columns, named, len(rows[0]), rows[0][-1])
        types = [(c, *_type(c)) for c in fitting]
        converted = tuple(
            tuple(
                self._value(value, column, oid, typmod)
                for value, (column, oid, typmod) in zip(row, types, strict=True)
            )
            for row in rows
        )
        return converted, len(fitting)

    def _value(self, value: Expr, column: TableColumn, oid: int, typmod: int) -> Expr:
        if isinstance(value, Default):
            return value
        if column.generated is not None:
            raise SqlError(
                GENERATED_ALWAYS,
                f'cannot insert a non-DEFAULT value into column "{column.name}"',
                detail=f'Column "{column.name}" is a generated column.',
            )
        if isinstance(value, Const) and not (oid == oids.INTERVAL and typmod >= 0):
            return self._constant(value, column, oid, typmod)
        return self.binder.casts.assign(value, oid, typmod, column.name, value.pos + 1)

    def _constant(self, value: Const, column: TableColumn, oid: int, typmod: int) -> Expr:
        """A literal as the column's value, by a conversion that is made once for all rows."""
        given = value.value
        if given is None:
            return Const(oid=oid, typmod=typmod, value=None, pos=value.pos)
        key = (column.id, value.oid)
        convert = self.conversions.get(key)
        if convert is None:
            convert = self._conversion(value, column, oid, typmod)
            self.conversions[key] = convert
        if value.oid == oids.UNKNOWN and is_moment(given, oid):
            return self.binder.casts.assign(value, oid, typmod, column.name, value.pos + 1)
        try:
            return Const(oid=oid, typmod=typmod, value=convert(given), pos=value.pos)
        except SqlError as error:
            if value.oid == oids.UNKNOWN and error.position == 0:
                error.position = value.pos + 1
            raise

    def converter(self, column: TableColumn, oid: int) -> Callable[[object], object] | None:
        """From the user form of a type to the column's, for `bulk`; None: it is the
        same. Raises SqlError.
        """
        target, typmod = _type(column)
        if oid == target and typmod < 0:
            return None
        return self._conversion(Const(oid=oid, value=None), column, target, typmod)

    def _conversion(
        self, value: Const, column: TableColumn, oid: int, typmod: int
    ) -> Callable[[Any], object]:
        if value.oid == oids.UNKNOWN:
            read = reader(oid, self.binder.style)
            if typmod < 0:
                return read
            fit = fitter(oid, typmod, False)
            return lambda text: fit(read(text))
        place = Column(oid=value.oid, index=0, name="")
        expr = self.binder.casts.assign(place, oid, typmod, column.name, value.pos + 1)
        fn = compile(expr).fn
        env = Env(style=self.binder.style)
        return lambda given: fn((given,), env)

    def _from_select(
        self, select: Select, columns: Sequence[TableColumn]
    ) -> tuple[Select, tuple[Expr, ...]]:
        """Literals and parameters without a type take the column's, whatever else is converted row
        by row.
        """
        casts, binder = self.binder.casts, self.binder
        targets: list[Target] = []
        conversions: list[Expr] = []
        for i, (target, column) in enumerate(zip(select.targets, columns, strict=True)):
            oid, typmod = _type(column)
            expr = target.expr
            if column.generated is not None:
                raise SqlError(
                    GENERATED_ALWAYS,
                    f'cannot insert a non-DEFAULT value into column "{column.name}"',
                    detail=f'Column "{column.name}" is a generated column.',
                )
            if (
                expr.oid == oids.UNKNOWN
                and isinstance(expr, Const | Param)
                and select.values is None
            ):
                expr = casts.must(expr, oid)
            elif expr.oid == oids.UNKNOWN:
                expr = replace(expr, oid=25)
            targets.append(Target(expr, target.name))
            place = Column(
                oid=expr.oid, typmod=expr.typmod, pos=expr.pos, index=i, name=target.name
            )
            conversions.append(casts.assign(place, oid, typmod, column.name, expr.pos + 1))
        if select.values is not None:
            rows = tuple(
                tuple(
                    casts.must(e, t.expr.oid) if e.oid == oids.UNKNOWN else e
                    for e, t in zip(row, targets, strict=True)
                )
                for row in select.values
            )
            select = replace(select, values=rows)
        fields = self.queries.fields(targets)
        del binder
        return replace(select, targets=tuple(targets), fields=fields), tuple(conversions)

    # -- ON CONFLICT

    @staticmethod
    def _infers(conflict: Conflict | None) -> bool:
        """Whether it names what decides, which is to read it."""
        return conflict is not None and bool(conflict.columns or conflict.constraint)

    def _conflict(
        self, body: Node | None, target: TableItem, ctes: dict[str, Cte]
    ) -> Conflict | None:
        if body is None:
            return None
        table = target.table
        infer = body.get("infer", {})
        constraint = infer.get("conname")
        columns: tuple[int, ...] = ()
        predicate: Expr | None = None
        if constraint is not None:
            self._check_constraint(table, constraint)
        elif "indexElems" in infer:
            columns = self._inferred(infer, target)
            if "whereClause" in infer:
                scope = Scope()
                seen = columns_of(table.name, target.columns, 0)
                scope.rels.append(Rel(table.name, tuple(c.name for c in target.columns), seen))
                with self.queries.within("ON CONFLICT"):
                    predicate = self.binder.condition(infer["whereClause"], scope, "WHERE")
        if body["action"] == "ONCONFLICT_NOTHING":
            return Conflict(columns, constraint, predicate=predicate)
        if constraint is None and not columns:
            raise SqlError(
                SYNTAX_ERROR,
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                hint="For example, ON CONFLICT (column_name).",
                position=at(body),
            )
        scope = Scope(ctes=ctes)
        alias = Rel(
            target.alias,
            tuple(c.name for c in target.columns),
            columns_of(target.alias, target.columns, 0),
            system=self.queries.items.system(target),
        )
        scope.rels.append(alias)
        # Of no table: it is given, not read, so it wants no privilege.
        given = [replace(one, table=0, attribute=0) for one in target.columns]
        proposed = columns_of("excluded", given, len(given))
        scope.rels.append(Rel("excluded", alias.names, proposed, open=False))
        scope.width = 2 * len(target.columns)
        assignments = self.assignments(body["targetList"], table, scope)
        where = None
        if "whereClause" in body:
            with self.queries.within("WHERE"):
                where = self.binder.condition(body["whereClause"], scope, "WHERE")
        return Conflict(columns, constraint, assignments, where, predicate)

    def _expression_meant(self, node: Node, target: TableItem) -> int:
        """The id of the column that an index over this expression is of. Raises 42P10."""
        scope = Scope()
        seen = columns_of(target.table.name, target.columns, 0)
        scope.rels.append(Rel(target.table.name, tuple(c.name for c in target.columns), seen))
        with self.queries.within("ON CONFLICT"):
            wanted = self.binder.expr(node, scope)
            if isinstance(wanted, Column):
                return wanted.attribute
            for column in target.table.columns:
                if column.derived and column.state == "public":
                    tree = parse_expression(column.generated or "NULL")
                    if self.binder.expr(tree, scope) == wanted:
                        return column.id
        raise no_arbiter()

    @staticmethod
    def _check_constraint(table: Table, name: str) -> None:
        unique = {i.name for i in table.indexes if i.unique and not i.where} | {
            table.primary_key_name or f"{table.name}_pkey"
        }
        if name not in unique:
            raise SqlError(
                UNDEFINED_OBJECT, f'constraint "{name}" for table "{table.name}" does not exist'
            )

    def _inferred(self, infer: Node, target: TableItem) -> tuple[int, ...]:
        wanted, table = [], target.table
        for node in infer["indexElems"]:
            part = node["IndexElem"]
            if "name" not in part:
                wanted.append(self._expression_meant(part["expr"], target))
                continue
            if collation := strings(part.get("collation")):
                check_collation(collation, 0, at(infer))
            wanted.append(find_column(table, part["name"], at(infer)).id)
        shown_columns = {c.name: c.id for c in table_columns(table)}
        keys = [frozenset(shown_columns[n] for n in table.primary_key if n in shown_columns)]
        if table.plain:
            keys = [frozenset((1,))]
        keys += [
            frozenset(i.column_ids)
            for i in table.indexes
            if i.unique and i.state == "public" and (not i.where or "whereClause" in infer)
        ]
        if frozenset(wanted) not in keys:
            raise no_arbiter()
        return tuple(dict.fromkeys(wanted))

    # -- SET

    def assignments(
        self, nodes: Sequence[Node], table: Table, scope: Scope
    ) -> tuple[Assignment, ...]:
        """The SET clause. Raises 42601, 42703, 428C9, 42804."""
        found: list[Assignment] = []
        with self.queries.within("UPDATE"):
            for node in nodes:
                part = node["ResTarget"]
                column = find_column(table, part["name"], at(part))
                if part.get("indirection"):
                    raise unsupported("assigning to a part of a column", position=at(part))
                if any(a.column.id == column.id for a in found):
                    raise SqlError(
                        SYNTAX_ERROR, f'multiple assignments to same column "{column.name}"'
                    )
                found.append(Assignment(column, self._assigned(part["val"], column, scope)))
        return tuple(found)

    def _assigned(self, node: Node, column: TableColumn, scope: Scope) -> Expr:
        kind, body = unwrap(node)
        self.binder.allow_default = True
        try:
            if kind == "MultiAssignRef":
                value = self._multiple(body, scope)
            else:
                value = self.binder.expr(node, scope)
        finally:
            self.binder.allow_default = False
        if isinstance(value, Default):
            self.binder.needs.default(column)
            return value
        if column.generated is not None or column.identity == "always":
            kind = "a generated" if column.generated is not None else "an identity"
            tail = "." if column.generated is not None else " defined as GENERATED ALWAYS."
            raise SqlError(
                GENERATED_ALWAYS,
                f'column "{column.name}" can only be updated to DEFAULT',
                detail=f'Column "{column.name}" is {kind} column{tail}',
            )
        oid, typmod = _type(column)
        return self.binder.casts.assign(value, oid, typmod, column.name, value.pos + 1)

    def _one_of(self, link: Node, number: int, count: int, scope: Scope) -> Expr:
        """Column `number` of a subquery, as a subquery of one column around it."""
        inner = link["subselect"]["SelectStmt"]
        listed = inner.get("targetList", ())
        stars = any(
            "A_Star" in part
            for one in listed
            for part in one["ResTarget"]["val"].get("ColumnRef", {}).get("fields", ())
        )
        if listed and not stars and len(listed) != count:
            raise SqlError(
                SYNTAX_ERROR, "number of columns does not match number of values", position=at(link)
            )

        def word(text: str) -> Node:
            return {"String": {"sval": text}}

        names = [word(f"c{i}") for i in range(1, count + 1)]
        around = {
            "targetList": [
                {"ResTarget": {"val": {"ColumnRef": {"fields": [word("q"), names[number - 1]]}}}}
            ],
            "fromClause": [
                {
                    "RangeSubselect": {
                        "subquery": link["subselect"],
                        "alias": {"aliasname": "q", "colnames": names},
                    }
                }
            ],
            "limitOption": "LIMIT_OPTION_DEFAULT",
            "op": "SETOP_NONE",
        }
        return self.binder.expr({"SubLink": {**link, "subselect": {"SelectStmt": around}}}, scope)

    def _multiple(self, body: Node, scope: Scope) -> Expr:
        """One column of (a, b) = (…)."""
        kind, source = unwrap(body["source"])
        number = body.get("colno", 1)
        if kind == "SubLink":
            return self._one_of(source, number, body.get("ncolumns", 1), scope)
        if kind != "RowExpr":
            raise SqlError(
                "0A000",
                "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
                position=at(source),
            )
        args = source.get("args", ())
        if len(args) != body.get("ncolumns", 1):
            raise SqlError(
                SYNTAX_ERROR,
                "number of columns does not match number of values",
                position=at(source),
            )
        return self.binder.expr(args[number - 1], scope)

    # -- UPDATE, DELETE

    def update(self, body: Node, parent: Scope | None = None, text: str = "") -> Update:
        scope = Scope(parent=parent)
        ctes = self.queries.with_clause(body.get("withClause"), scope)
        target = self.queries.items.target(body["relation"], scope, "update")
        items = self._items(target, body.get("fromClause", ()), scope)
        assignments = self.assignments(body["targetList"], target.table, scope)
        where, cursor = self._where(body, scope)
        returning, fields = self._returning(body, scope)
        self.binder.needs.changes(target, "w", returning, reads=False)
        return Update(
            text=text,
            tree={"UpdateStmt": body},
            target=target,
            assignments=assignments,
            items=items,
            where=where,
            current_of=cursor,
            returning=returning,
            fields=fields,
            ctes=ctes,
            subqueries=self.binder.subqueries,
        )

    def delete(self, body: Node, parent: Scope | None = None, text: str = "") -> Delete:
        scope = Scope(parent=parent)
        ctes = self.queries.with_clause(body.get("withClause"), scope)
        target = self.queries.items.target(body["relation"], scope, "delete")
        items = self._items(target, body.get("usingClause", ()), scope)
        where, cursor = self._where(body, scope)
        returning, fields = self._returning(body, scope)
        self.binder.needs.changes(target, "d", returning, reads=False)
        return Delete(
            text=text,
            tree={"DeleteStmt": body},
            target=target,
            items=items,
            where=where,
            current_of=cursor,
            returning=returning,
            fields=fields,
            ctes=ctes,
            subqueries=self.binder.subqueries,
        )

    def _items(self, target: TableItem, nodes: Sequence[Node], scope: Scope) -> tuple[Item, ...]:
        return (target, *(self.queries.items.bind(node, scope) for node in nodes))

    def _where(self, body: Node, scope: Scope) -> tuple[Expr | None, str]:
        if "whereClause" not in body:
            return None, ""
        kind, part = unwrap(body["whereClause"])
        if kind == "CurrentOfExpr":
            return None, part.get("cursor_name", "")
        with self.queries.within("WHERE"):
            return self.binder.condition(body["whereClause"], scope, "WHERE"), ""

    def _returning(
        self, body: Node, scope: Scope
    ) -> tuple[tuple[Target, ...], tuple[Field, ...] | None]:
        clause = body.get("returningClause") or {}
        nodes = clause.get("exprs") or body.get("returningList")
        if not nodes:
            return (), None
        if clause.get("options"):
            raise unsupported("RETURNING WITH (OLD AS …, NEW AS …)")
        with self.queries.within("RETURNING"):
            targets = self.queries.targets(nodes, scope, True)
        if not targets:
            raise SqlError(SYNTAX_ERROR, "RETURNING must have at least one column")
        return tuple(targets), self.queries.fields(targets)

    # -- MERGE

    def merge(self, body: Node, text: str = "") -> Merge:
        scope = Scope()
        ctes = self.queries.with_clause(body.get("withClause"), scope)
        if body.get("returningClause") or body.get("returningList"):
            raise unsupported("RETURNING in MERGE", hint="PostgreSQL has it from version 17 on.")
        target = self.queries.items.target(body["relation"], scope, "merge")
        source = self.queries.items.bind(body["sourceRelation"], scope)
        with self.queries.within("JOIN conditions"):
            on = self.binder.condition(body["joinCondition"], scope, "JOIN/ON")
        whens = tuple(
            self._when(n["MergeWhenClause"], target, scope, source)
            for n in body["mergeWhenClauses"]
        )
        always: set[bool] = set()
        for when in whens:
            if when.matched in always:
                raise SqlError(
                    SYNTAX_ERROR,
                    "unreachable WHEN clause specified after unconditional WHEN clause",
                )
            if when.condition is None:
                always.add(when.matched)
            if (letter := _MERGES.get(when.action)) is not None:
                self.binder.needs.changes(target, letter, reads=True)
            if when.action == "insert":
                given, row = (
                    [a.column for a in when.assignments],
                    [a.value for a in when.assignments],
                )
                self.binder.needs.numbers(target.table, given, (row,))
        return Merge(
            text=text,
            tree={"MergeStmt": body},
            target=target,
            items=(target, source),
            on=on,
            whens=whens,
            ctes=ctes,
            subqueries=self.binder.subqueries,
        )

    def _when(self, body: Node, target: TableItem, scope: Scope, source: Item) -> MergeWhen:
        match_kind = body.get("matchKind", "MERGE_WHEN_MATCHED")
        if match_kind == "MERGE_WHEN_NOT_MATCHED_BY_SOURCE":
            raise unsupported("WHEN NOT MATCHED BY SOURCE")
        matched = match_kind == "MERGE_WHEN_MATCHED"
        seen = scope
        if not matched:
            # There is no row of the target: its names are not visible.
            seen = Scope(parent=scope.parent, ctes=scope.ctes, width=scope.width)
            for rel in scope.rels:
                (seen.hidden if rel.alias == target.alias else seen.rels).append(rel)
        condition = None
        if "condition" in body:
            with self.queries.within("MERGE WHEN conditions"):
                condition = self.binder.condition(body["condition"], seen, "WHEN")
        overriding = _OVERRIDING.get(body.get("override", ""), "")
        match body["commandType"]:
            case "CMD_UPDATE":
                done = self.assignments(body["targetList"], target.table, seen)
                return MergeWhen(
                    matched=matched, action="update", condition=condition, assignments=done
                )
            case "CMD_DELETE":
                return MergeWhen(matched=matched, action="delete", condition=condition)
            case "CMD_INSERT":
                done = self._merge_insert(body, target.table, seen)
                return MergeWhen(
                    matched=matched,
                    action="insert",
                    condition=condition,
                    assignments=done,
                    overriding=overriding,
                )
            case _:
                return MergeWhen(matched=matched, action="nothing", condition=condition)

    def _merge_insert(self, body: Node, table: Table, scope: Scope) -> tuple[Assignment, ...]:
        columns, named = self._insert_columns({"cols": body.get("targetList")}, table)
        values = body.get("values", ())
        if not values:
            return ()
        self.binder.allow_default = True
        try:
            with self.queries.within("VALUES"):
                bound = [self.binder.expr(v, scope) for v in values]
        finally:
            self.binder.allow_default = False
        columns = self._fit(columns, named, len(bound), bound[-1])
        return tuple(
            Assignment(c, self._value(v, c, *_type(c))) for c, v in zip(columns, bound, strict=True)
        )


def _sets(source: Node) -> Sequence[Node]:
    """The values of a row of VALUES that calls what returns a set; none: it is no such row."""
    lists = source.get("valuesLists", ())
    items: Sequence[Node] = lists[0]["List"]["items"] if len(lists) == 1 else ()
    names = (strings(call["funcname"])[-1] for call in find(items, "FuncCall", but="SubLink"))
    return items if any(p.returns_set for name in names for p in FUNCTIONS.get(name, ())) else ()


def find_column(table: Table, name: str, pos: int) -> TableColumn:
    """Raises SqlError 42703."""
    for column in table_columns(table):
        if column.name == name:
            return column
    raise SqlError(
        UNDEFINED_COLUMN,
        f'column "{name}" of relation "{table.name}" does not exist',
        position=pos,
    )


def _type(column: TableColumn) -> tuple[int, int]:
    of, typmod = by_name(column.type)
    return of.oid, typmod


__all__ = ["RowExpr", "Writes", "find_column", "item_columns", "output"]
