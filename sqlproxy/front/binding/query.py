"""SELECT, VALUES, set operations and WITH → `Select` (PostgreSQL's analyze.c, parse_clause.c,
parse_agg.c, parse_cte.c).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

from kv.base.limits import SQL_TARGETS_MAX
from sqlproxy.front.binding import grouping, recursing
from sqlproxy.front.binding.binder import Binder, fields_of
from sqlproxy.front.binding.fromitems import FromItems, output
from sqlproxy.front.binding.functioncalls import QueryCalls, orderable, sorted_by
from sqlproxy.front.binding.scope import Rel, Scope
from sqlproxy.front.binding.typenames import column_name
from sqlproxy.front.bound.exprs import (
    Call,
    Column,
    Const,
    Default,
    Expr,
    Order,
    leftmost,
    parts_of,
    walk,
)
from sqlproxy.front.bound.statements import (
    Change,
    Cte,
    Item,
    ItemColumn,
    JoinItem,
    Locking,
    Select,
    SetOperation,
    SystemItem,
    TableItem,
    Target,
)
from sqlproxy.front.syntax.syntax import Node, at, strings, unwrap
from sqlproxy.front.types import resolve
from sqlproxy.front.types.registry import format_type
from sqlproxy.front.types.resolve import ASSIGNMENT, IMPLICIT
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Field
from sqlproxy.values.errors import (
    DATATYPE_MISMATCH,
    DUPLICATE_ALIAS,
    INVALID_COLUMN_REFERENCE,
    SYNTAX_ERROR,
    UNDEFINED_TABLE,
    SqlError,
    unsupported,
)

_STRENGTHS: Final = {
    "LCS_FORUPDATE": "update",
    "LCS_FORNOKEYUPDATE": "no key update",
    "LCS_FORSHARE": "share",
    "LCS_FORKEYSHARE": "key share",
}
_WAITS: Final = {"LockWaitSkip": "skip", "LockWaitError": "error"}
_KINDS: Final = {"SETOP_UNION": "union", "SETOP_INTERSECT": "intersect", "SETOP_EXCEPT": "except"}


class Queries:
    """Binds queries; one per statement. `writes` binds a data-modifying statement in WITH."""

    def __init__(self, binder: Binder) -> None:
        self.binder = binder
        binder.subselect = lambda body, scope: self.select(body, scope)
        binder.converted = self._converted
        self.items = FromItems(binder, self)
        self.writes: Any = None

    # -- entry

    def select(
        self,
        body: Node,
        parent: Scope | None,
        *,
        text: str = "",
        tree: Node | None = None,
        decide: bool = True,
    ) -> Select:
        """Any SelectStmt. `decide`: literals of no type become text. Raises SqlError."""
        calls = self.binder.calls
        numbered = calls.numbered
        with self._level():
            if "intoClause" in body:
                raise SqlError(SYNTAX_ERROR, "SELECT ... INTO is not allowed here")
            scope = Scope(parent=parent)
            ctes = self.with_clause(body.get("withClause"), scope)
            kind = body.get("op", "SETOP_NONE")
            if kind != "SETOP_NONE":
                bound = self._set_operation(body, scope, decide)
            elif "valuesLists" in body:
                bound = self._values(body, scope, decide)
            else:
                bound = self._simple(body, scope, decide)
            return replace(
                bound,
                text=text,
                tree=tree or {"SelectStmt": body},
                ctes=ctes,
                numbers=calls.numbered > numbered,
            )

    @contextmanager
    def _level(self) -> Iterator[None]:
        """What calls note belongs to one query."""
        calls, binder = self.binder.calls, self.binder
        outer, calls.here = calls.here, QueryCalls()
        outer_subqueries, binder.subqueries = binder.subqueries, False
        try:
            yield
        finally:
            calls.here = outer
            binder.subqueries = outer_subqueries

    def within(self, clause: str) -> AbstractContextManager[None]:
        return self.binder.calls.within(clause)

    # -- one SELECT

    def _simple(self, body: Node, scope: Scope, decide: bool) -> Select:
        binder, calls = self.binder, self.binder.calls
        items = tuple(self.items.bind(node, scope) for node in body.get("fromClause", ()))
        where = None
        for node in body.get("windowClause", ()):
            spec = node["WindowDef"]
            if spec["name"] in calls.here.named_windows:
                raise SqlError(
                    "42P20", f'window "{spec["name"]}" is already defined', position=at(spec)
                )
            calls.here.named_windows[spec["name"]] = calls.window_spec(spec, scope)
        targets = self.targets(body.get("targetList", ()), scope, decide)
        shown_count = len(targets)
        if "whereClause" in body:
            with self.within("WHERE"):
                where = binder.condition(body["whereClause"], scope, "WHERE")
        having = None
        if "havingClause" in body:
            with self.within("HAVING"):
                having = binder.condition(body["havingClause"], scope, "HAVING")
        order = self._order(body.get("sortClause", ()), targets, scope)
        with self.within("GROUP BY"):
            group, sets, everywhere = self._group(body, targets, scope)
        distinct, distinct_on = self._distinct(body, targets, order, scope)
        limit, offset = self._limits(body, scope)
        grouped = bool(group) or sets or having is not None or calls.here.aggregates
        locking = self._locking(body, items)
        if grouped:
            grouping.check(
                items, targets[:shown_count], group, having, order, distinct_on, everywhere
            )
        self._check_locking(
            locking,
            ("DISTINCT clause", distinct or bool(distinct_on)),
            ("GROUP BY clause", bool(group) or sets),
            ("HAVING clause", having is not None),
            ("aggregate functions", calls.here.aggregates),
        )
        return Select(
            targets=tuple(targets),
            fields=self.fields(targets),
            items=items,
            where=where,
            group=tuple(group),
            grouping_sets=sets,
            having=having,
            distinct=distinct,
            distinct_on=distinct_on,
            order=tuple(order),
            limit=limit,
            offset=offset,
            with_ties=body.get("limitOption") == "LIMIT_OPTION_WITH_TIES",
            locking=locking,
            aggregates=grouped,
            windows=calls.here.windows,
            sets=calls.here.sets,
            subqueries=binder.subqueries,
            volatile=any(_volatile(t.expr) for t in targets)
            or (where is not None and _volatile(where)),
        )

    def targets(self, nodes: Sequence[Node], scope: Scope, decide: bool) -> list[Target]:
        """The select list, stars expanded."""
        found: list[Target] = []
        for node in nodes:
            body = node["ResTarget"]
            kind, value = unwrap(body["val"])
            if kind == "ColumnRef" and "A_Star" in value["fields"][-1]:
                found.extend(self._star(value, scope))
                continue
            if kind == "A_Indirection" and "A_Star" in value["indirection"][-1]:
                fields = fields_of(self.binder.expr(value["arg"], scope))
                if not fields or len(value["indirection"]) > 1:
                    raise unsupported("expanding a composite value", position=at(value))
                found.extend(Target(one, name) for name, one in fields.items())
                continue
            expr = self.binder.expr(body["val"], scope)
            if decide:
                expr = self.binder.decided(expr)
            found.append(Target(expr, body.get("name") or column_name(body["val"])))
        if len(found) > SQL_TARGETS_MAX:
            raise SqlError("54011", f"target lists can have at most {SQL_TARGETS_MAX} entries")
        return found

    def _star(self, body: Node, scope: Scope) -> list[Target]:
        words = strings(body["fields"])
        if words:
            rel, level = scope.relation(words[-1], at(body))
            return [
                Target(replace(e, level=e.level + level) if isinstance(e, Column) else e, n)
                for n, e in zip(rel.names, rel.exprs, strict=True)
            ]
        found = [
            Target(e, n)
            for rel in scope.rels
            if rel.open
            for n, e in zip(rel.names, rel.exprs, strict=True)
        ]
        if not scope.rels:
            raise SqlError(
                SYNTAX_ERROR, "SELECT * with no tables specified is not valid", position=at(body)
            )
        return found

    def fields(self, targets: Sequence[Target]) -> tuple[Field, ...]:
        """What clients learn of the columns."""
        found = []
        for target in targets:
            expr = target.expr
            if isinstance(expr, Column) and expr.table:
                oid = self.binder.names.relation_oid(expr.table)
                found.append(Field(target.name, expr.oid, expr.typmod, oid, expr.attribute))
            else:
                found.append(Field(target.name, expr.oid, expr.typmod))
        return tuple(found)

    def with_targets(self, select: Select, targets: Sequence[Target]) -> Select:
        """The query with another list of as many columns."""
        return replace(select, targets=tuple(targets), fields=self.fields(targets))

    def constant(self, node: Node, clause: str) -> Expr:
        """An expression that names no columns."""
        with self.within(clause):
            return self.binder.expr(node, Scope())

    # -- clauses

    def _by_name(self, node: Node, targets: Sequence[Target], clause: str) -> int | None:
        """The place in the select list that a bare name or number means; None: neither."""
        kind, body = unwrap(node)
        if kind == "ColumnRef" and len(body["fields"]) == 1 and "String" in body["fields"][0]:
            name = strings(body["fields"])[0]
            found = [i for i, t in enumerate(targets) if t.name == name]
            if found and any(targets[i].expr != targets[found[0]].expr for i in found):
                raise SqlError("42702", f'{clause} "{name}" is ambiguous', position=at(body))
            return found[0] if found else None
        if kind == "A_Const":
            if "ival" not in body:
                raise SqlError(SYNTAX_ERROR, f"non-integer constant in {clause}", position=at(body))
            number = body["ival"].get("ival", 0)
            if not 1 <= number <= len(targets):
                raise SqlError(
                    INVALID_COLUMN_REFERENCE,
                    f"{clause} position {number} is not in select list",
                    position=at(body),
                )
            return int(number) - 1
        return None

    def _order(self, nodes: Sequence[Node], targets: Sequence[Target], scope: Scope) -> list[Order]:
        found: list[Order] = []
        for node in nodes:
            body = node["SortBy"]
            place = self._by_name(body["node"], targets, "ORDER BY")
            if place is None:
                expr = self.binder.decided(self.binder.expr(body["node"], scope))
                place = next((i for i, t in enumerate(targets) if t.expr == expr), -1)
            else:
                expr = targets[place].expr
            if expr.oid in (
                oids.REGCLASS,
                oids.REGTYPE,
            ):  # they are held as names, and sort as numbers
                expr, place = self.binder.casts.must(expr, oids.OID, IMPLICIT), -1
            found += sorted_by(body, expr, place)
        return found

    def _group(
        self, body: Node, targets: Sequence[Target], scope: Scope
    ) -> tuple[list[Expr], bool, list[Expr]]:
        """What is grouped by, whether by sets, and what all sets have."""
        found: list[Expr] = []
        sets = False

        def take(nodes: Sequence[Node]) -> list[Expr]:
            return [expr for node in nodes for expr in take_one(node)]

        def take_one(node: Node) -> list[Expr]:
            nonlocal sets
            kind, part = unwrap(node)
            if kind == "GroupingSet":
                sets = True
                each = [take_one(one) for one in part.get("content", ())]
                if part["kind"] != "GROUPING_SET_SETS" or not each:
                    return []
                return [expr for expr in each[0] if all(expr in one for one in each)]
            if kind == "RowExpr":
                return take(part.get("args", ()))
            if kind == "List":
                return take(part.get("items", ()))
            exprs = list(parts_of(self._group_one(node, kind, part, targets, scope)))
            found.extend(exprs)
            return exprs

        everywhere = take(body.get("groupClause", ()))
        return found, sets, everywhere

    def _group_one(
        self, node: Node, kind: str, part: Node, targets: Sequence[Target], scope: Scope
    ) -> Expr:
        # A name means a column first, a name of the select list only then.
        if kind == "ColumnRef" and len(part["fields"]) == 1 and "String" in part["fields"][0]:
            column = scope.column(strings(part["fields"])[0], at(part))
            if column is not None and not (isinstance(column, Column) and column.level):
                return column
        place = self._by_name(node, targets, "GROUP BY")
        if place is None:
            expr = self.binder.decided(self.binder.expr(node, scope))
        else:
            expr = targets[place].expr
            grouping.plain(expr, "GROUP BY")
        for one in parts_of(expr):
            resolve.operator("=", one.oid, one.oid, one.pos + 1)
        return expr

    def _distinct(
        self, body: Node, targets: Sequence[Target], order: Sequence[Order], scope: Scope
    ) -> tuple[bool, tuple[Expr, ...]]:
        if "distinctClause" not in body:
            return False, ()
        nodes = [n for n in body["distinctClause"] if n]
        if not nodes:
            if not targets:
                raise SqlError(SYNTAX_ERROR, "SELECT DISTINCT must have at least one column")
            shown = [one for target in targets for one in parts_of(target.expr)]
            for part in shown:
                orderable(part, part.pos + 1)
            for one in order:
                if one.target < 0 and one.expr not in shown:
                    raise SqlError(
                        INVALID_COLUMN_REFERENCE,
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                        position=one.expr.pos + 1,
                    )
            return True, ()
        on: list[Expr] = []
        for node in nodes:
            place = self._by_name(node, targets, "DISTINCT ON")
            if place is None:
                on += parts_of(self.binder.decided(self.binder.expr(node, scope)))
            else:
                on += parts_of(replace(targets[place].expr, pos=at(unwrap(node)[1]) - 1))
        # Whatever is sorted by before all of ON were must be one of ON.
        left = list(on)
        for one in order:
            if not left:
                break
            if one.expr not in on:
                raise SqlError(
                    INVALID_COLUMN_REFERENCE,
                    "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                    position=on[0].pos + 1,
                )
            left = [e for e in left if e != one.expr]
        return False, tuple(on)

    def _limits(self, body: Node, scope: Scope) -> tuple[Expr | None, Expr | None]:
        found: list[Expr | None] = []
        for key, word in (("limitCount", "LIMIT"), ("limitOffset", "OFFSET")):
            if key not in body:
                found.append(None)
                continue
            with self.within(word):
                bound = self.binder.expr(body[key], scope)
            if any(isinstance(e, Column) and not e.level for e in walk(bound)):
                raise SqlError(
                    INVALID_COLUMN_REFERENCE,
                    f"argument of {word} must not contain variables",
                    position=bound.pos + 1,
                )
            if isinstance(bound, Const) and bound.value is None:
                found.append(None)
                continue
            value = self.binder.casts.coerce(bound, oids.INT8, ASSIGNMENT, bound.pos + 1)
            if value is None:
                raise SqlError(
                    DATATYPE_MISMATCH,
                    f"argument of {word} must be type bigint, not type {format_type(bound.oid)}",
                    position=bound.pos + 1,
                )
            found.append(value)
        return found[0], found[1]

    # -- locking

    def _locking(self, body: Node, items: Sequence[Item]) -> tuple[Locking, ...]:
        found = []
        known = {leaf.alias for item in items for leaf in leaves(item)}
        system = [isinstance(leaf, SystemItem) for item in items for leaf in leaves(item)]
        if "lockingClause" in body and system and all(system):
            raise unsupported("locking rows of the system's relations")
        for node in body.get("lockingClause", ()):
            clause = node["LockingClause"]
            tables = tuple(r["RangeVar"]["relname"] for r in clause.get("lockedRels", ()))
            strength = _STRENGTHS[clause["strength"]]
            for leaf in (leaf for item in items for leaf in leaves(item)):
                if isinstance(leaf, TableItem) and (not tables or leaf.alias in tables):
                    self.binder.needs.on(leaf.table.id, "w")
            for i, name in enumerate(tables):
                if name not in known:
                    raise SqlError(
                        UNDEFINED_TABLE,
                        f'relation "{name}" in FOR {strength.upper()} clause not found in FROM '
                        f"clause",
                        position=at(clause["lockedRels"][i]["RangeVar"]),
                    )
            found.append(
                Locking(strength, _WAITS.get(clause.get("waitPolicy", ""), "block"), tables)
            )
        return tuple(found)

    def _check_locking(self, locking: Sequence[Locking], *clauses: tuple[str, bool]) -> None:
        if not locking:
            return
        word = f"FOR {locking[0].strength.upper()} is not allowed with"
        calls = self.binder.calls
        for what, holds in (
            *clauses,
            ("window functions", calls.here.windows),
            ("set-returning functions in the target list", calls.here.sets),
        ):
            if holds:
                raise SqlError("0A000", f"{word} {what}")

    # -- VALUES

    def values_rows(self, lists: Sequence[Node], scope: Scope) -> list[list[Expr]]:
        if len(lists) == 1:
            listed = self.binder.listed(lists[0]["List"]["items"])
            if listed is not None:
                return [list(map(self.binder.literal, row)) for row in listed]
        rows = []
        with self.within("VALUES"):
            for node in lists:
                rows.append([self.binder.expr(item, scope) for item in node["List"]["items"]])
        if any(len(row) != len(rows[0]) for row in rows):
            odd = next(row for row in rows if len(row) != len(rows[0]))
            raise SqlError(
                SYNTAX_ERROR, "VALUES lists must all be the same length", position=odd[0].pos + 1
            )
        return rows

    def _values(self, body: Node, scope: Scope, decide: bool) -> Select:
        rows = self.values_rows(body["valuesLists"], scope)
        if any(isinstance(e, Default) for row in rows for e in row):
            raise SqlError(SYNTAX_ERROR, "DEFAULT is not allowed in this context")
        columns: list[list[Expr]] = []
        for one in zip(*rows, strict=True):
            if not decide and all(e.oid == oids.UNKNOWN for e in one):
                columns.append(list(one))
            else:
                columns.append(self.binder.common(one, "VALUES")[1])
        targets = []
        for i, column in enumerate(columns):
            typmod = column[0].typmod if all(e.typmod == column[0].typmod for e in column) else -1
            targets.append(
                Target(
                    Column(oid=column[0].oid, typmod=typmod, index=i, name=f"column{i + 1}"),
                    f"column{i + 1}",
                )
            )
        order = self._output_order(body.get("sortClause", ()), targets)
        limit, offset = self._limits(body, scope)
        if "lockingClause" in body:
            raise unsupported("FOR UPDATE of VALUES")
        return Select(
            targets=tuple(targets),
            fields=self.fields(targets),
            values=tuple(zip(*columns, strict=True)),
            order=tuple(order),
            limit=limit,
            offset=offset,
            subqueries=self.binder.subqueries,
        )

    def _output_order(self, nodes: Sequence[Node], targets: Sequence[Target]) -> list[Order]:
        """ORDER BY of what has no FROM of its own: only output columns may be named."""
        found: list[Order] = []
        for node in nodes:
            body = node["SortBy"]
            place = self._by_name(body["node"], targets, "ORDER BY")
            if place is None:
                kind, part = unwrap(body["node"])
                if kind == "ColumnRef":
                    name = ".".join(strings(part["fields"]))
                    raise SqlError("42703", f'column "{name}" does not exist', position=at(part))
                names = tuple(one.name for one in targets)
                own = Scope(rels=[Rel("", names, tuple(one.expr for one in targets))])
                given = self.binder.expr(body["node"], own)
                raise SqlError(
                    "0A000",
                    "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                    detail="Only result column names can be used, not expressions or functions.",
                    hint="Add the expression/function to every SELECT, or move the UNION into a "
                    "FROM clause.",
                    position=leftmost(given),
                )
            found += sorted_by(body, targets[place].expr, place)
        return found

    # -- set operations

    def _set_operation(self, body: Node, scope: Scope, decide: bool) -> Select:
        kind = _KINDS[body["op"]]
        if "lockingClause" in body:
            raise SqlError("0A000", "FOR UPDATE is not allowed with UNION/INTERSECT/EXCEPT")
        left = self.select(body["larg"], scope, decide=False)
        right = self.select(body["rarg"], scope, decide=False)
        return self.combined(body, kind, left, right, scope, decide)

    def combined(
        self, body: Node, kind: str, left: Select, right: Select, scope: Scope, decide: bool
    ) -> Select:
        word = kind.upper()
        if len(left.targets) != len(right.targets):
            raise SqlError(
                SYNTAX_ERROR,
                f"each {word} query must have the same number of columns",
                position=right.targets[0].expr.pos + 1 if right.targets else 0,
            )
        if not left.targets:
            raise unsupported(f"{word} of queries without columns")
        every = bool(body.get("all"))
        types, targets = [], []
        for i, (a, b) in enumerate(zip(left.targets, right.targets, strict=True)):
            if not decide and a.expr.oid == b.expr.oid == oids.UNKNOWN:
                oid = oids.TEXT
            else:
                oid = resolve.common_type([a.expr.oid, b.expr.oid], word, b.expr.pos + 1)
            typmod = (
                a.expr.typmod if a.expr.oid == b.expr.oid and a.expr.typmod == b.expr.typmod else -1
            )
            types.append(oid)
            column = Column(oid=oid, typmod=typmod, index=i, name=a.name, pos=a.expr.pos)
            if not (every and kind == "union"):
                orderable(column, b.expr.pos + 1)
            targets.append(Target(column, a.name))
        left, right = self._converted(left, types, word), self._converted(right, types, word)
        order = self._output_order(body.get("sortClause", ()), targets)
        limit, offset = self._limits(body, scope)
        return Select(
            targets=tuple(targets),
            fields=self.fields(targets),
            operation=SetOperation(kind, every, left, right),
            order=tuple(order),
            limit=limit,
            offset=offset,
            subqueries=self.binder.subqueries,
        )

    def _converted(self, select: Select, types: Sequence[int], word: str) -> Select:
        """The branch with its columns of these types."""
        if all(t.expr.oid == oid for t, oid in zip(select.targets, types, strict=True)):
            return select
        if select.values is not None:
            rows = tuple(
                tuple(
                    self.binder.casts.must(e, oid, IMPLICIT, e.pos + 1)
                    for e, oid in zip(row, types, strict=True)
                )
                for row in select.values
            )
            targets = tuple(
                Target(replace(t.expr, oid=oid, typmod=-1), t.name)
                for t, oid in zip(select.targets, types, strict=True)
            )
            return replace(select, values=rows, targets=targets, fields=self.fields(targets))
        if select.operation is not None:
            inner = select.operation
            parts = replace(
                inner,
                left=self._converted(inner.left, types, word),
                right=self._converted(inner.right, types, word),
            )
            targets = tuple(
                Target(replace(t.expr, oid=oid, typmod=-1) if t.expr.oid != oid else t.expr, t.name)
                for t, oid in zip(select.targets, types, strict=True)
            )
            return replace(select, operation=parts, targets=targets, fields=self.fields(targets))
        targets = tuple(
            Target(self.binder.casts.must(t.expr, oid, IMPLICIT, t.expr.pos + 1), t.name)
            for t, oid in zip(select.targets, types, strict=True)
        )
        return replace(select, targets=targets, fields=self.fields(targets))

    # -- WITH

    def with_clause(self, body: Node | None, scope: Scope) -> tuple[Cte, ...]:
        """Binds the CTEs in order and makes them known in the scope."""
        if body is None:
            return ()
        recursive = bool(body.get("recursive"))
        found: list[Cte] = []
        listed = [node["CommonTableExpr"] for node in body["ctes"]]
        for part in recursing.in_order(listed) if recursive else listed:
            name = part["ctename"]
            if name in scope.ctes:
                raise SqlError(
                    DUPLICATE_ALIAS,
                    f'WITH query name "{name}" specified more than once',
                    position=at(part),
                )
            if "search_clause" in part or "cycle_clause" in part:
                raise unsupported("SEARCH and CYCLE", position=at(part))
            cte = self._cte(part, name, scope, recursive)
            scope.ctes[name] = cte
            found.append(cte)
        return tuple(found)

    def _cte(self, part: Node, name: str, scope: Scope, recursive: bool) -> Cte:
        kind, body = unwrap(part["ctequery"])
        names = strings(part.get("aliascolnames"))
        hints = {"CTEMaterializeAlways": True, "CTEMaterializeNever": False}
        hint = hints.get(part.get("ctematerialized", ""))
        statement: Select | Change
        if kind != "SelectStmt":
            if scope.parent is not None:
                raise SqlError(
                    "0A000",
                    "WITH clause containing a data-modifying statement must be at the top level",
                    position=at(part),
                )
            if self.writes is None:
                raise unsupported("a data-modifying statement in WITH here", position=at(part))
            statement = self.writes(kind, body, scope)
            fields = statement.fields or ()
            columns = output(statement) if fields else ()
            return Cte(name, statement, _renamed(columns, names, name, at(part)), materialized=hint)
        refers = recursive and any(
            r.get("relname") == name and "schemaname" not in r for r in _range_vars(body)
        )
        if refers:
            return self._recursive(part, body, name, names, scope)
        statement = self.select(body, scope)
        return Cte(
            name, statement, _renamed(output(statement), names, name, at(part)), materialized=hint
        )

    def _recursive(
        self, part: Node, body: Node, name: str, names: Sequence[str], scope: Scope
    ) -> Cte:
        if body.get("op") != "SETOP_UNION":
            raise SqlError(
                "42P19",
                f'recursive query "{name}" does not have the form non-recursive-term UNION '
                f"[ALL] recursive-term",
                position=at(part),
            )
        recursing.check(name, body)
        inner = Scope(parent=scope)
        inner_ctes = self.with_clause(body.get("withClause"), inner)
        left = self.select(body["larg"], inner)
        own = tuple(replace(column, table=0, attribute=0) for column in output(left))
        columns = _renamed(own, names, name, at(part))
        inner.ctes[name] = Cte(name, None, columns, recursive=True)
        right = self.select(body["rarg"], inner, decide=False)
        recursing.check_aggregates(name, right)
        with self._level():
            whole = self.combined(body, "union", left, right, inner, True)
        for i, (one, overall) in enumerate(zip(left.targets, whole.targets, strict=True), 1):
            has, gets = (format_type(of.expr.oid, of.expr.typmod) for of in (one, overall))
            same = self.items.views and one.expr.oid == overall.expr.oid  # one that was made before
            if has != gets and not same:
                raise SqlError(
                    DATATYPE_MISMATCH,
                    f'recursive query "{name}" column {i} has type {has} in non-recursive term '
                    f"but type {gets} overall",
                    hint="Cast the output of the non-recursive term to the correct type.",
                    position=one.expr.pos + 1,
                )
        whole = replace(
            whole,
            tree={"SelectStmt": body},
            ctes=inner_ctes,
            numbers=left.numbers or right.numbers,
        )
        return Cte(name, whole, columns, recursive=True)


def _renamed(
    columns: tuple[ItemColumn, ...], names: Sequence[str], alias: str, pos: int
) -> tuple[ItemColumn, ...]:
    if len(names) > len(columns):
        raise SqlError(
            INVALID_COLUMN_REFERENCE,
            f'WITH query "{alias}" has {len(columns)} columns available but {len(names)} '
            f"columns specified",
            position=pos,
        )
    return tuple(replace(c, name=names[i]) if i < len(names) else c for i, c in enumerate(columns))


def _range_vars(body: Node) -> Iterator[Node]:
    from sqlproxy.front.syntax.syntax import find

    return find(body, "RangeVar")


def leaves(item: Item) -> Iterator[Item]:
    """The items that are no joins."""
    if isinstance(item, JoinItem):
        yield from leaves(item.left)
        yield from leaves(item.right)
    else:
        yield item


def _volatile(expr: Expr) -> bool:
    return any(isinstance(e, Call) and e.proc.volatile == "v" for e in walk(expr))
