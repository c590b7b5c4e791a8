"""A bound SELECT → one DuckDB statement over sources.

Every FROM item gets a name of its own (t1, t2, …) and its columns the names c0, c1, …; the columns
of a query are o0, o1, …. A column of the bound tree is found by the frame it belongs to: frames are
the queries around, innermost last, as `Column.level` counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from sqlproxy.analytic.aggregates import Calls, direction, nested
from sqlproxy.analytic.expressions import PARTS_MAX, Apart, Expressions, Sql
from sqlproxy.analytic.forms import TEXT, held, literal
from sqlproxy.analytic.functions import Functions
from sqlproxy.analytic.guarding import (
    beside,
    cost,
    guarded,
    met,
    only_where,
    plain,
    together,
    where_true,
)
from sqlproxy.analytic.late_expressions import (
    Late,
    Places,
    waits,
    waits_for_errors,
    waits_with_where,
)
from sqlproxy.analytic.pieces import grouping_sets, only_of
from sqlproxy.analytic.set_returning import ASKING, LISTS, column_of
from sqlproxy.duck import ducktext as d
from sqlproxy.duck.ducktext import Text
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import (
    Aggregate,
    Call,
    Column,
    Expr,
    Grouping,
    IsBool,
    Order,
    RowExpr,
    Window,
    bare,
    conjuncts,
    walk,
)
from sqlproxy.front.bound.statements import (
    Cte,
    CteItem,
    FunctionItem,
    Item,
    ItemColumn,
    JoinItem,
    KnownItem,
    Select,
    SelectItem,
    SubQuery,
    SystemItem,
    TableItem,
)
from sqlproxy.front.bound.trees import inside
from sqlproxy.front.closures.compiling import Fn
from sqlproxy.front.closures.raising import raises
from sqlproxy.front.stages.expanding import expanded
from sqlproxy.front.stages.sequence_stages import correlated
from sqlproxy.front.types import registry as r
from sqlproxy.pg import oids
from sqlproxy.tables.access import alike, rejects_null
from sqlproxy.values.errors import (
    INVALID_LIMIT,
    INVALID_OFFSET,
    INVALID_PARAMETER,
    SqlError,
    unsupported,
)

_NOTHING: Final = Sql(d.null("BOOLEAN"), oids.BOOL, "BOOLEAN")
_NO_TEXT: Final = d.primary("")  # of a query's columns, which are known by their places
_WRITTEN_MAX: Final = 16  # rows of VALUES that are written into the text
_STEPPED: Final = frozenset(
    (oids.INT4, oids.INT8, oids.TIMESTAMP)
)  # of which DuckDB's series is the same


@dataclass(frozen=True, slots=True)
class Query:
    """SQL of a query whose columns are o0, o1, …"""

    text: str
    columns: tuple[Sql, ...]  # their texts mean nothing
    held: int = 0  # so many columns at the end are storage keys that must hold until the commit
    guard: bool = False  # it has one column more, g: what it says of its rows (`guarding`)
    late: Late | None = None  # what makes the statement's rows of these

    def under(self, name: str) -> list[Sql]:
        """Its columns where it stands under a name."""
        return [Sql(d.primary(f"{name}.o{i}"), c.oid, c.held) for i, c in enumerate(self.columns)]


@dataclass(slots=True)
class Frame:
    """The row that columns of one level index. `groups`: what the query groups by, if it does."""

    columns: dict[int, Sql] = field(default_factory=dict)
    groups: list[tuple[Expr, Sql]] | None = None
    keys: dict[str, str] = field(default_factory=dict)  # what GROUP BY says, by what stands for it
    inside: int = 0  # of how many aggregates
    expanding: bool = False  # functions that return sets may stand here: in SELECT's list
    expanded: list[tuple[Call, Sql]] = field(default_factory=list)  # by GROUP BY: columns of rows
    leaves: tuple[Item, ...] = ()  # the items of FROM that are no joins
    nullable: frozenset[int] = frozenset()  # offsets of those that a join may make NULLs of
    hot: frozenset[int] = frozenset()  # columns that are computed by what can raise
    touched: frozenset[int] = frozenset()  # offsets of items of which what can raise has columns
    known: list[Expr] = field(default_factory=list)  # what is true of the rows of FROM
    asked: SubQuery | None = None  # by a condition that is not met where this query has no row
    demands: tuple[Expr, ...] = ()  # the conditions of such a query


@dataclass(slots=True)
class _Known:
    name: str
    columns: tuple[Sql, ...]


@dataclass(slots=True)
class Source:
    """A table as the statement reads it. `conditions`: conjuncts that all rows that count meet;
    `used`: places of the columns that the statement looks at.
    """

    name: str
    item: TableItem
    held: tuple[str, ...]
    conditions: tuple[Expr, ...]
    used: set[int] = field(default_factory=set)
    keyed: bool = False  # its rows come with their storage keys, as column k
    links: list[Link] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Link:
    """Of the source that has it, rows matter only if this column of theirs equals that of a row of
    another, at this place.
    """

    column: Column
    other: Source
    place: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that were computed before, and how their columns are held. `used`: places of the columns
    that the statement looks at; None: all. `relation`: the item has none, they are this one's of
    the system as the run finds them.
    """

    item: KnownItem
    held: tuple[str, ...]
    used: set[int] | None = None
    relation: str = ""


class Selects:
    """Renders one statement."""

    def __init__(self, env: Env, *, late: bool = False) -> None:
        """`late`: after an error; the outermost query leaves what can raise to `Late`, if it may,
        and queries are guarded by what queries say, at a price.
        """
        self.env, self.functions = env, Functions()
        self._late = late
        self.grows = False  # it may make rows, and so values, of nothing that was read
        self.sources: list[Source] = []
        self.known: dict[str, Rows] = {}  # that the statement has already, by name
        self._used: dict[str, tuple[Source, int]] = {}  # by the text of a column
        self._seen: dict[str, tuple[set[int], int]] = {}  # the same of rows that are known
        self._placed: dict[int, tuple[Source, str]] = {}  # by the id of the item
        self._pairs: list[tuple[Source, Column, Frame, int]] = []  # of which links are made
        self._asking: dict[int, Expr] = {}  # conditions that have to be met, by their ids
        self._frames: list[Frame] = []
        self._raising: dict[tuple[int, frozenset[int]], tuple[Expr, bool]] = {}
        self._ctes: list[dict[str, _Known]] = []
        self._names = 0
        self.expressions = Expressions(self)
        self.calls = Calls(self.expressions)

    # -- what expressions ask

    def column(self, column: Column) -> Sql:
        frame = self._frames[-1 - column.level]
        found = frame.columns[column.index]
        if (read := self._used.get(found.text)) is not None:
            read[0].used.add(read[1])
        elif (seen := self._seen.get(found.text)) is not None:
            seen[0].add(seen[1])
        if frame.groups is not None and not frame.inside and not column.level:
            # it depends on what is grouped by: one value in each group
            return Sql(d.call("first", found.text), found.oid, found.held)
        return Sql(found.text, found.oid, found.held)

    def aggregate(self, expr: Expr) -> Sql:
        frame = self._frames[-1]
        match expr:
            case Aggregate():
                levels = {one.level for one in walk(expr) if isinstance(one, Column)}
                if levels and 0 not in levels:
                    raise unsupported("an aggregate of the query around, in a subquery,")
                frame.inside += 1
                try:
                    return self.calls.aggregate(expr)
                finally:
                    frame.inside -= 1
            case Window():
                return self.calls.window(expr)
            case Grouping():
                listed = ", ".join(frame.keys[self.expressions.text(one)] for one in expr.args)
                return Sql(d.cast(d.call("grouping", listed), "INTEGER"), oids.INT4, "INTEGER")
            case _:
                raise unsupported(type(expr).__name__)

    def set_returned(self, call: Call) -> Sql:
        frame = self._frames[-1]
        for known, sql in frame.expanded:
            if known == call:
                return sql
        if not frame.expanding:
            raise unsupported(f"the set-returning function {call.proc.name} here")
        frame.expanding = False  # but not in its own arguments
        try:
            listed = self._set(call)
        finally:
            frame.expanding = True
        return Sql(d.call("unnest", listed.text), call.oid, listed.held[:-2])

    def grouped(self, expr: Expr) -> Sql | None:
        frame = self._frames[-1] if self._frames else None
        if frame is None or frame.groups is None or frame.inside:
            return None
        for known, sql in frame.groups:
            if known == expr:
                return sql
        return None

    def raises(self, expr: Expr) -> bool:
        """Known once it was asked: guards are asked about for each value that they guard."""
        hot = self._frames[-1].hot
        known = self._raising.get((id(expr), hot))
        if known is None:
            can = raises(expr, (lambda one: not one.level and one.index in hot) if hot else None)
            known = self._raising[id(expr), hot] = expr, can
        return known[1]

    def forget(self) -> None:
        """What is of no use once the text is made."""
        self._raising.clear()

    def subquery(self, expr: SubQuery) -> Sql:
        asked = expr if id(expr) in self._asking else None
        if self.expressions.guards and raises(expr):
            guards = self.expressions.guards
            left = tuple(
                where_true(guards, one, self.raises) if self.raises(one) else one
                for one in expr.left
            )
            select = expr.select
            if self._late or correlated(select):  # else it would become that, and run for each row
                select = only_where(select, guards, queries=self._late)
            expr = replace(expr, select=select, left=left)
        kept, self.expressions.guards = self.expressions.guards, []
        try:
            return self._subquery(expr, asked)
        finally:
            self.expressions.guards = kept

    def _subquery(self, expr: SubQuery, asked: SubQuery | None) -> Sql:
        inner = self.query(expr.select, asked=asked)
        if expr.kind == "exists":
            return Sql(d.call("EXISTS ", inner.text), oids.BOOL, "BOOLEAN")
        if expr.kind == "scalar" and not expr.left:
            only = inner.columns[0]
            return Sql(d.primary(f"({inner.text})"), only.oid, only.held)
        if expr.kind == "array":
            only = inner.columns[0]
            name = self._name()
            text = d.primary(
                f"(SELECT coalesce(list({name}.o0), CAST([] AS {only.held}[])) "
                f"FROM ({inner.text}) AS {name})"
            )
            made = Sql(text, expr.oid, only.held + "[]")
            return nested(self.expressions, made) if r.element_of(only.oid) else made
        return self._compared(expr, inner, needed=asked is not None)

    def _compared(self, expr: SubQuery, inner: Query, *, needed: bool) -> Sql:
        """left op ANY (…), op ALL (…), or = a row. `needed`: NULL is as good as false."""
        left = [self.expressions.sql(one) for one in expr.left]
        if len(left) != 1 or expr.kind == "scalar":
            return self._rows(expr, left, inner, needed=needed)
        name = self._name()
        value = inner.under(name)[0]
        pair = self.expressions.pair(left[0], value)
        if pair is None:
            raise unsupported(
                f"comparing {r.format_type(left[0].oid)} with the values of a subquery"
            )
        body = d.primary(f"(SELECT {pair[1]} FROM ({inner.text}) AS {name})")
        word = "ANY" if expr.kind == "any" else "ALL"
        operator = "<>" if expr.operator == "!=" else expr.operator
        if operator not in ("=", "<>", "<", "<=", ">", ">="):
            raise unsupported(f"the operator {operator} with a subquery")
        return Sql(d.infix(pair[0], f"{operator} {word}", body), oids.BOOL, "BOOLEAN")

    def _rows(self, expr: SubQuery, left: Sequence[Sql], inner: Query, *, needed: bool) -> Sql:
        """A row op ANY: true if it is so of any row, NULL if it may be, else false; op ALL
        accordingly; or op one row. If it is needed that a row is IN, a semi join finds it.
        """
        operator = "<>" if expr.operator == "!=" else expr.operator
        if operator not in ("=", "<>", "<", "<=", ">", ">="):
            raise unsupported(f"comparing a row by {operator} with a subquery")
        name = self._name()
        pairs = [self.expressions.pair(a, b) for a, b in zip(left, inner.under(name), strict=True)]
        if None in pairs:
            raise unsupported("comparing rows of these types with a subquery")
        compared = [pair for pair in pairs if pair]
        hashed = _hashed(expr, operator)
        if hashed and needed and expr.kind == "any":
            found = self.expressions.whole_row_among(compared, f"({inner.text}) AS {name}")
            return Sql(found, oids.BOOL, "BOOLEAN")
        # of what is hashed, the rows with NULL are left, of which there are few
        rest = d.disjunction([d.test(pair[1], "IS NULL") for pair in compared])
        where = f" WHERE {rest}" if hashed else ""
        held = d.compared_rows(operator, compared)
        if expr.kind != "scalar":
            every = expr.kind != "any"
            said = d.call("bool_and" if every else "bool_or", held)
            decided = (d.negation(said), "false") if every else (said, "true")
            unknown = d.infix(d.call("count", "*"), ">", d.call("count", held))
            held = d.case([decided, (unknown, "NULL")], "true" if every else "false")
        text = d.primary(f"(SELECT {held} FROM ({inner.text}) AS {name}{where})")
        if hashed:
            rows = f"SELECT * FROM ({inner.text}) AS {name} WHERE {d.negation(rest)}"
            equal = self.expressions.equal_row(compared)
            if expr.kind == "all":
                equal = d.negation(equal)
            text = d.case([(self.expressions.row_of(compared, rows, name), equal)], text)
        return Sql(text, oids.BOOL, "BOOLEAN")

    # -- queries

    def query(
        self,
        select: Select,
        *,
        item: bool = False,
        guarding: bool = False,
        asked: SubQuery | None = None,
    ) -> Query:
        """`item`: it is one of FROM; `guarding`: of whose columns something can raise; `asked`: by
        what, if that has to be true. Raises SqlError (0A000).
        """
        if select.locking and (self._frames or not select.items):
            raise unsupported("FOR UPDATE inside a subquery")
        select = expanded(select)
        frame = Frame(asked=asked)
        self._frames.append(frame)
        self._ctes.append({})
        try:
            head = self._with(select.ctes)
            if select.operation is not None:
                made = self._operation(select, frame)
            elif select.values is not None:
                made = self._values(select, frame)
            else:
                made = self._simple(select, frame, item=item, guarding=guarding)
            text = head + made.text
            if guarding and not plain(select) and select.limit is None and select.offset is None:
                text += " OFFSET 0"  # nothing from outside is computed below it
            if self._outermost:
                self._link()
            return replace(made, text=text)
        finally:
            self._frames.pop()
            self._ctes.pop()

    def meant(
        self,
        items: Sequence[Item],
        where: Expr | None,
        extra: Sequence[Expr],
        ctes: Sequence[Cte],
        merge: Expr | None = None,
    ) -> Query:
        """For a change of the first item: its rows' storage keys, the columns of the other items,
        and the values of `extra`, which see the row of all items. `merge`: MERGE's condition; all
        rows of the second item come then, with NULL for the key where the first has none.
        """
        frame = Frame()
        self._frames.append(frame)
        self._ctes.append({})
        try:
            head = self._with(ctes)
            self._look(items, (*conjuncts(where), *conjuncts(merge)), frame)
            self._asking.update((id(one), one) for one in conjuncts(where))
            needed = conjuncts(where) if merge is None else ()
            texts = [self._item(items[0], frame, needed if merge is None else conjuncts(merge))]
            target, key = self.sources[-1], f"{texts[0].rpartition(' ')[2]}.k"
            target.keyed = True
            width = len(items[0].columns)
            texts += [self._item(item, frame, needed) for item in items[1:]]
            if merge is None:
                source = ", ".join(texts)
            else:
                source = f"{texts[1]} LEFT JOIN {texts[0]} ON {self._on(merge, (), frame)}"
            columns = [Sql(d.primary(key), oids.BYTEA, "BLOB")]
            for index in sorted(frame.columns):
                if index >= width:
                    of = frame.columns[index]
                    columns.append(self.column(Column(oid=of.oid, index=index, name="")))
            columns += [self.expressions.sql(one) for one in extra]
            listed = ", ".join(f"{sql.text} AS o{i}" for i, sql in enumerate(columns))
            text = f"{head}SELECT {listed} FROM {source}"
            if where is not None:
                text += f" WHERE {self._on(where, items, frame)}"
            self._link()
            return Query(text, tuple(columns))
        finally:
            self._frames.pop()
            self._ctes.pop()

    def _name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def _look(self, items: Sequence[Item], demands: Sequence[Expr], frame: Frame) -> None:
        """What can raise in the query: its columns and conditions, those of joins too."""
        leaves = list(_leaves(items))
        frame.leaves = tuple(leaf for leaf, _ in leaves)
        frame.nullable = frozenset(leaf.offset for leaf, nullable in leaves if nullable)
        frame.hot = frozenset(leaf.offset + i for leaf in frame.leaves for i in self._hot(leaf))
        every = [*demands, *(one for item in items for one in _ons(item))]
        risky = [one for one in every if self.raises(one)]
        frame.touched = frozenset(at for one in risky for at in self._relations(one))

    def _hot(self, item: Item) -> list[int]:
        """The places of the columns of an item that are computed by what can raise."""
        if isinstance(item, SelectItem):
            one: Select | None = item.select
            while one is not None and one.operation is not None:
                one = one.operation.left
            if one is not None and plain(one):
                return [i for i, target in enumerate(one.targets) if raises(target.expr)]
        return []

    def _relations(self, expr: Expr) -> frozenset[int]:
        """The items, by their offsets, whose columns an expression has; with a query in it all."""
        leaves = self._frames[-1].leaves
        if any(isinstance(one, SubQuery) for one in walk(expr)):
            return frozenset(leaf.offset for leaf in leaves)
        places = {one.index for one in walk(expr) if isinstance(one, Column) and not one.level}
        return frozenset(
            leaf.offset
            for leaf in leaves
            if any(
                at == -1 - leaf.offset or 0 <= at - leaf.offset < len(leaf.columns) for at in places
            )
        )

    def _on(self, condition: Expr, items: Sequence[Item], frame: Frame) -> Text:
        """A condition on the rows of items of which their own joins are true."""
        known = [*frame.known, *met(items)]
        found = guarded(conjuncts(condition), known, self._relations, self.raises)
        return self.expressions.text(together(found))

    def _simple(
        self, select: Select, frame: Frame, *, item: bool = False, guarding: bool = False
    ) -> Query:
        own = plain(select) and item
        risky = [target.expr for target in select.targets] if own else []
        self._look(select.items, (*select.conjuncts, *risky), frame)
        self._demand(select, frame)
        sources = [self._item(item, frame, select.conjuncts) for item in select.items]
        self._matched(select, frame, frame.asked)
        sources += self._expand(select, frame)
        parts = [f"FROM {', '.join(sources)}"] if sources else []
        if self._late and self._outermost and waits_for_errors(select):
            return self._waiting(select, frame, " ".join(parts))
        if select.where is not None:
            parts.append(f"WHERE {self._on(select.where, select.items, frame)}")
        if select.aggregates:
            groups = [self.expressions.sql(one) for one in select.group]
            listed = [self.expressions.key(one) for one in groups]
            frame.groups = [
                (expr, self._of_group(sql, key, partly=select.grouping_sets))
                for expr, sql, key in zip(select.group, groups, listed, strict=True)
            ]
            frame.keys = dict(zip((sql.text for _, sql in frame.groups), listed, strict=True))
            if select.grouping_sets:
                parts.append(f"GROUP BY {grouping_sets(select, listed)}")
            elif listed:
                parts.append(f"GROUP BY {', '.join(listed)}")
            if select.having is not None:
                demands = guarded(
                    conjuncts(select.having), (), lambda one: frozenset((0,)), self.raises
                )
                parts.append(f"HAVING {self.expressions.text(together(demands))}")
        said: list[Expr] = []
        if own:
            said = [*frame.known, *met(select.items), *select.conjuncts]
            said = [one for one in said if not any(isinstance(x, SubQuery) for x in walk(one))]
        targets, left = self._targets(select, frame, said)
        locked = self._locked(select)
        targets += [Sql(d.primary(key), oids.BYTEA, "BLOB") for key in locked]
        inner = [*targets, *(one for part in left.values() for one in part.inputs)]
        listed_targets = ", ".join(f"{sql.text} AS o{i}" for i, sql in enumerate(inner))
        if guarding and said:
            listed_targets += f", {self.expressions.text(self._in_order(said))} AS g"
        word = self._distinct(select, targets)
        made = f"SELECT {word}{listed_targets or '1 AS o0'} {' '.join(parts)}"
        keys = ", ".join(self._order(one, targets, distinct=bool(word)) for one in select.order)
        if select.with_ties:
            made += self._ties(select)
        made += (f" ORDER BY {keys}" if keys else "") + self._bounds(select)
        if left:
            return self._around_rows(Query(made, tuple(inner), len(locked)), targets, left)
        return Query(made, tuple(targets), len(locked), guarding and bool(said))

    def _around_rows(self, rows: Query, targets: Sequence[Sql], left: dict[int, Apart]) -> Query:
        """What is `left` of the targets, for each of the rows, whose columns are the targets and
        then what that is computed from.
        """
        places: dict[int, Places] = {}
        at = len(targets)
        for n, part in left.items():
            places[n] = tuple(range(at, at + len(part.inputs)))
            at += len(part.inputs)
        if self._outermost:
            late = Late()
            for n in range(len(targets)):
                late.targets.append((left[n].fn, places[n]) if n in left else (None, (n,)))
            return replace(rows, late=late)
        name = self._name()
        given = rows.under(name)
        shown = [
            self.expressions.called(left[n], [given[at] for at in places[n]])
            if n in left
            else given[n]
            for n in range(len(targets))
        ]
        listed = ", ".join(f"{sql.text} AS o{i}" for i, sql in enumerate(shown))
        return Query(f"SELECT {listed} FROM ({rows.text}) AS {name}", tuple(shown))

    @property
    def _outermost(self) -> bool:
        return len(self._frames) == 1

    def _waiting(self, select: Select, frame: Frame, source: str) -> Query:
        """Without what can raise: `Late` computes it row by row."""
        late, columns = Late(), list[Sql]()

        def apart(expr: Expr) -> tuple[Fn, Places]:
            part = self.expressions.apart(expr)
            places = tuple(range(len(columns), len(columns) + len(part.inputs)))
            columns.extend(part.inputs)
            return part.fn, places

        def waiting(expr: Expr) -> bool:  # queries are DuckDB's, and so is what guards them
            return self.raises(expr) and not _asks(expr)

        where = list(select.conjuncts)
        if waits_with_where(select):
            last = [one for one in where if waiting(one)]
            late.conditions = [apart(one) for one in sorted(last, key=cost)]
            where = [one for one in where if one not in last]
        sorted_by = {one.target for one in select.order}
        shown: list[Sql] = []
        for at, target in enumerate(select.targets):
            expr = target.expr
            if at not in sorted_by and waiting(expr):
                late.targets.append(apart(expr))
                shown.append(Sql(_NO_TEXT, expr.oid, TEXT))  # nothing asks for it
            else:
                shown.append(self.expressions.sql(expr))
                late.targets.append((None, (len(columns),)))
                columns.append(shown[-1])
        text = f" {source}"
        if where:
            text += f" WHERE {self._on(together(where), select.items, frame)}"
        if select.order:  # by expressions: the names are not those of the targets
            keys = [
                f"{self.expressions.key(value)} {direction(one)}"
                for one in select.order
                for value in (
                    shown[one.target] if one.target >= 0 else self.expressions.sql(one.expr),
                )
            ]
            text += f" ORDER BY {', '.join(keys)}"
        if late.conditions:
            skip, late.keep = (
                None if one is None else self.expressions.constant(one)
                for one in (select.offset, select.limit)
            )
            late.skip = skip or 0
        else:
            text += self._bounds(select)
        listed = ", ".join(f"{sql.text} AS o{i}" for i, sql in enumerate(columns)) or "1 AS o0"
        return Query(f"SELECT {listed}{text}", tuple(columns), late=late)

    def _locked(self, select: Select) -> list[str]:
        """The storage keys of the tables that FOR UPDATE and its like are about."""
        if not select.locking:
            return []
        found: list[str] = []
        for lock in select.locking:
            for leaf, nullable in _leaves(select.items):
                if lock.tables and leaf.alias not in lock.tables:
                    continue
                word = f"FOR {lock.strength.upper()}"
                if nullable:
                    raise SqlError(
                        "0A000",
                        f"{word} cannot be applied to the nullable side of an outer join",
                    )
                if isinstance(leaf, TableItem):
                    found.append(self._key_of(leaf))
                elif lock.tables or isinstance(leaf, SelectItem):
                    raise unsupported(f"{word} of what is no table")
        return sorted(set(found))

    def _key_of(self, item: TableItem) -> str:
        """The column with its storage keys."""
        source, name = self._placed[id(item)]
        source.keyed = True
        return f"{name}.k"

    def _of_group(self, value: Sql, key: str, *, partly: bool) -> Sql:
        """What a group shows of an expression that it is grouped by, by its key. `partly`: NULL in
        the sets without it.
        """
        if not self.expressions.keyed(value):
            return value
        text = d.call("first", value.text)
        if partly:
            text = d.case([(d.infix(d.call("grouping", key), "=", "0"), text)])
        return Sql(text, value.oid, value.held)

    def _in_order(self, said: Sequence[Expr]) -> Expr:
        return where_true(said[:-1], said[-1], self.raises)

    def _targets(
        self, select: Select, frame: Frame, said: Sequence[Expr]
    ) -> tuple[list[Sql], dict[int, Apart]]:
        """`said`: what the query says of its rows, where DuckDB may compute a column before. What
        closures compute of the rows that are left in the end, by its place, is not among them.
        """
        left: dict[int, Apart] = {}
        frame.expanding = True
        try:
            exprs = [target.expr for target in select.targets]
            if said:
                exprs = [
                    where_true(said, one, self.raises) if self.raises(one) else one for one in exprs
                ]
            if not (self._outermost or select.limit is not None) or not waits(select):
                return [self.expressions.sql(one) for one in exprs], left
            targets = []
            sorted_by = {one.target for one in select.order}
            for at, expr in enumerate(exprs):
                functions, known = self.functions.wanted, len(self.functions.made)
                made = self.expressions.sql(expr)
                if self.functions.wanted > functions and at not in sorted_by and not _asks(expr):
                    self.functions.forget(known)
                    left[at] = self.expressions.apart(expr)
                    made = _NOTHING
                targets.append(made)
            return targets, left
        finally:
            frame.expanding = False

    def _expand(self, select: Select, frame: Frame) -> list[str]:
        """What GROUP BY groups sets by: an item of FROM that has their values, side by side."""
        calls: list[Call] = []
        for expr in select.group:
            for one in walk(expr):
                if isinstance(one, Call) and one.proc.returns_set and one not in calls:
                    calls.append(one)
        if not calls:
            return []
        name = self._name()
        sets = [self._set(call) for call in calls]
        frame.expanded = [
            (call, Sql(d.primary(f"{name}.o{i}"), call.oid, one.held[:-2]))
            for i, (call, one) in enumerate(zip(calls, sets, strict=True))
        ]
        listed = ", ".join(f"unnest({one.text}) AS o{i}" for i, one in enumerate(sets))
        return [f"LATERAL (SELECT {listed}) AS {name}"]

    def _distinct(self, select: Select, targets: Sequence[Sql]) -> str:
        if select.distinct_on:
            keys = [self.expressions.key(self.expressions.sql(e)) for e in select.distinct_on]
            return f"DISTINCT ON ({', '.join(keys)}) "
        if not select.distinct:
            return ""
        if any(map(self.expressions.keyed, targets)):
            keys = [
                key
                for one, made in zip(select.targets, targets, strict=True)
                for key in (
                    self.expressions.keys(one.expr)
                    if isinstance(one.expr, RowExpr)
                    else [self.expressions.key(made)]
                )
            ]
            return f"DISTINCT ON ({', '.join(keys)}) "
        return "DISTINCT "

    def _order(self, order: Order, targets: Sequence[Sql], *, distinct: bool) -> str:
        if order.target >= 0:
            value = targets[order.target]
            if not self.expressions.keyed(value):
                return f"o{order.target} {direction(order)}"
        else:
            value = self.expressions.sql(order.expr)
        return f"{self.expressions.key(value)} {direction(order)}"

    def _ties(self, select: Select) -> str:
        """WITH TIES: all whose rank is within the limit."""
        if select.distinct or select.distinct_on or select.limit is None:
            raise unsupported("WITH TIES and DISTINCT")
        skipped = 0 if select.offset is None else self.expressions.constant(select.offset) or 0
        last = (self.expressions.constant(select.limit) or 0) + skipped
        return f" QUALIFY rank() OVER (ORDER BY {self.calls.order(select.order)}) <= {last}"

    def _bounds(self, select: Select) -> str:
        text = ""
        for expr, word, state in (
            (select.limit, "LIMIT", INVALID_LIMIT),
            (select.offset, "OFFSET", INVALID_OFFSET),
        ):
            if expr is None or (select.with_ties and word == "LIMIT"):
                continue
            if any(isinstance(one, SubQuery) for one in walk(expr)):
                text += f" {word} (SELECT {self.expressions.text(expr)})"
                continue
            value = self.expressions.constant(expr)
            if value is None:
                continue
            if value < 0:
                raise SqlError(state, f"{word} must not be negative")
            text += f" {word} {value}"
        return text

    def _values(self, select: Select, frame: Frame) -> Query:
        if (known := self._constants(select)) is not None:
            name = self._name()
            return self._output(select, frame, known, name, f"({known.text}) AS {name}")
        rows = [[self.expressions.sql(e) for e in row] for row in select.values or ()]
        columns = [self.expressions.alike(one) for one in zip(*rows, strict=True)]
        name = self._name()
        listed = ", ".join(
            "(" + ", ".join(one.text for one in row) + ")" for row in zip(*columns, strict=True)
        )
        names = ", ".join(f"o{i}" for i in range(len(columns)))
        made = Query(
            f"(VALUES {listed}) AS {name}({names})", tuple(column[0] for column in columns)
        )
        return self._output(select, frame, made, name, made.text)

    def _constants(self, select: Select) -> Query | None:
        """VALUES of many rows without a column is a table, which DuckDB need not read as text."""
        values = select.values or ()
        if len(values) <= _WRITTEN_MAX or not values[0]:
            return None
        constant = self.expressions.constant
        try:
            rows = [tuple([constant(expr) for expr in row]) for row in values]
            kinds = tuple(held(one.expr.oid, one.expr.typmod) for one in select.targets)
        except SqlError:  # it fails when it is reached, or needs more than constants
            return None
        columns = tuple(
            ItemColumn(name=one.name, oid=one.expr.oid, typmod=one.expr.typmod)
            for one in select.targets
        )
        name = self._keep(columns, rows, kinds)
        listed = ", ".join(f"c{i} AS o{i}" for i in range(len(kinds)))
        return Query(
            f"SELECT {listed} FROM {name}",
            tuple(Sql(_NO_TEXT, one.oid, kind) for one, kind in zip(columns, kinds, strict=True)),
        )

    def _keep(
        self,
        columns: tuple[ItemColumn, ...],
        rows: Sequence[Sequence[object]],
        kinds: tuple[str, ...],
    ) -> str:
        """Rows that are known, under a name."""
        name = f"k{self._name()}"
        item = KnownItem(alias=name, columns=columns, offset=0, rows=rows)
        self.known[name] = Rows(item, kinds)
        return name

    def _output(self, select: Select, frame: Frame, made: Query, name: str, source: str) -> Query:
        """A query over what has its columns already, in order and with its bounds."""
        if select.with_ties:
            raise unsupported("WITH TIES of a set operation or VALUES")
        own = made.under(name)
        frame.columns = dict(enumerate(own))
        targets = [
            Sql(sql.text, t.expr.oid, sql.held) for sql, t in zip(own, select.targets, strict=True)
        ]
        listed = ", ".join(f"{sql.text} AS o{i}" for i, sql in enumerate(targets))
        keys = ", ".join(self._order(one, targets, distinct=False) for one in select.order)
        return Query(
            f"SELECT {listed} FROM {source}"
            + (f" ORDER BY {keys}" if keys else "")
            + self._bounds(select),
            tuple(targets),
        )

    def _operation(self, select: Select, frame: Frame) -> Query:
        assert select.operation is not None
        one = select.operation
        left, right = self.query(one.left), self.query(one.right)
        return self._combined(select, frame, left, right)

    def _combined(self, select: Select, frame: Frame, left: Query, right: Query) -> Query:
        assert select.operation is not None
        kind, every = select.operation.kind, select.operation.all
        left, right = self._same(left, right)
        keyed = any(map(self.expressions.keyed, left.columns))
        name = self._name()
        if keyed and kind != "union":
            body = f"({self._by_keys(kind, every, left, right)})"
        else:
            word = kind.upper() + (" ALL" if every or keyed else "")
            body = f"(({left.text}) {word} ({right.text}))"
            if keyed and not every:
                inner = self._name()
                keys = ", ".join(self.expressions.key(c) for c in left.under(inner))
                body = f"(SELECT DISTINCT ON ({keys}) * FROM {body} AS {inner})"
        made = Query(body, left.columns)
        return self._output(select, frame, made, name, f"{body} AS {name}")

    def _by_keys(self, kind: str, every: bool, left: Query, right: Query) -> str:
        """INTERSECT and EXCEPT of values that are equal by their keys: rows of the left side, by
        their number among those with the same keys and by how many the right side has.
        """
        both, counted = self._name(), self._name()
        keys = ", ".join(self.expressions.key(c) for c in left.under(both))
        sides = f"SELECT *, 0 AS side FROM ({left.text}) UNION ALL SELECT *, 1 FROM ({right.text})"
        if every:
            chosen = "n <= there" if kind == "intersect" else "n > there"
        else:
            chosen = f"n = 1 AND there {'>' if kind == 'intersect' else '='} 0"
        listed = ", ".join(f"o{i}" for i in range(len(left.columns)))
        return (
            f"SELECT {listed} FROM (SELECT *, row_number() OVER (PARTITION BY {keys}, side) AS n, "
            f"sum(side) OVER (PARTITION BY {keys}) AS there FROM ({sides}) AS {both}) AS {counted} "
            f"WHERE side = 0 AND {chosen}"
        )

    def _same(self, left: Query, right: Query) -> tuple[Query, Query]:
        """Both with columns that are held alike."""
        kinds = [
            a.held if a.held == b.held else (TEXT + "[]" if a.held.endswith("[]") else TEXT)
            for a, b in zip(left.columns, right.columns, strict=True)
        ]
        return self.held_as(left, kinds), self.held_as(right, kinds)

    def held_as(self, query: Query, kinds: Sequence[str]) -> Query:
        """The query with its columns held in these ways."""
        if all(c.held == kind for c, kind in zip(query.columns, kinds, strict=True)):
            return query
        name = self._name()
        columns = [
            self.expressions.as_held(c, kind)
            for c, kind in zip(query.under(name), kinds, strict=True)
        ]
        listed = ", ".join(f"{c.text} AS o{i}" for i, c in enumerate(columns))
        return Query(f"SELECT {listed} FROM ({query.text}) AS {name}", tuple(columns))

    # -- WITH

    def _with(self, ctes: Sequence[Cte]) -> str:
        if not ctes:
            return ""
        parts, recursive = [], False
        for cte in ctes:
            if not isinstance(cte.statement, Select):
                raise unsupported("a data-modifying statement in WITH")
            name = f"w{self._name()}"
            if cte.recursive:
                recursive = self.grows = True
                made = self._recursive(cte, cte.statement, name)
            else:
                made = self.query(cte.statement)
            names = ", ".join(f"o{i}" for i in range(len(made.columns)))
            hint = "NOT MATERIALIZED " if cte.materialized is False else "MATERIALIZED "
            if cte.recursive:
                hint = ""
            parts.append(f"{name}({names}) AS {hint}({made.text})")
            self._ctes[-1][cte.name] = _Known(name, made.columns)
        return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(parts)} "

    def _recursive(self, cte: Cte, select: Select, name: str) -> Query:
        """The term that is not recursive says how the columns are held; numerics are text."""
        assert select.operation is not None
        if select.order or select.limit is not None or select.offset is not None:
            raise unsupported("ORDER BY, LIMIT or OFFSET in a recursive query")
        if select.ctes:
            raise unsupported("WITH inside a recursive query")
        self._frames.append(Frame())  # the query of both terms is one more level
        self._ctes.append({})
        try:
            left = self.query(select.operation.left)
            kinds = [held(column.oid) for column in cte.columns]
            left = self.held_as(left, kinds)
            self._ctes[-1][cte.name] = _Known(name, left.columns)
            right = self.held_as(self.query(select.operation.right), kinds)
        finally:
            self._frames.pop()
            self._ctes.pop()
        if not select.operation.all and any(map(self.expressions.keyed, left.columns)):
            raise unsupported("WITH RECURSIVE … UNION of values of type numeric or char(n)")
        word = "UNION ALL" if select.operation.all else "UNION"
        return Query(f"({left.text}) {word} ({right.text})", left.columns)

    # -- FROM

    def _item(self, item: Item, frame: Frame, conditions: Sequence[Expr] = ()) -> str:
        """The text of an item; its columns are in the frame then. `conditions`: what rows have to
        meet to matter.
        """
        match item:
            case TableItem():
                return self._table(item, frame, conditions)
            case SelectItem():
                # FROM's queries see the items beside them (LATERAL) or nothing, one level out
                seen = frame if item.lateral else Frame()
                guarding = item.offset in frame.touched
                inner = self._inner(seen, item.select, guarding=guarding)
                if item.lateral and item.offset not in frame.nullable:
                    frame.known += beside(item.select)
                return self._derived(item, frame, inner)
            case CteItem():
                known = self._known(item.name)
                text = (
                    f"SELECT {', '.join(f'o{i}' for i in range(len(known.columns)))} "
                    f"FROM {known.name}"
                )
                if item.offset in frame.touched:
                    text += " OFFSET 0"  # as in `query`
                return self._derived(item, frame, Query(text, known.columns))
            case KnownItem():
                return self._rows_of(item, frame)
            case SystemItem():
                return self._system(item, frame)
            case JoinItem():
                return self._join(item, frame, conditions)
            case FunctionItem():
                return self._derived(item, frame, self._function(item, frame))
            case _:
                raise unsupported(f"{type(item).__name__} in FROM")

    def _inner(self, seen: Frame, select: Select, *, guarding: bool) -> Query:
        kept = self._frames[-1]
        self._frames[-1] = seen
        try:
            return self.query(select, item=True, guarding=guarding)
        finally:
            self._frames[-1] = kept

    def _enter(self, item: Item, frame: Frame, texts: Sequence[Text], kinds: Sequence[str]) -> None:
        for i, (column, text, kind) in enumerate(zip(item.columns, texts, kinds, strict=True)):
            frame.columns[item.offset + i] = Sql(text, column.oid, kind)

    def _derived(self, item: Item, frame: Frame, query: Query) -> str:
        name = self._name()
        columns = query.under(name)
        self._enter(item, frame, [c.text for c in columns], [c.held for c in columns])
        if query.guard:
            at = -1 - item.offset
            frame.columns[at] = Sql(d.primary(f"{name}.g"), oids.BOOL, "BOOLEAN")
            guard = Column(oid=oids.BOOL, index=at, name="g")
            if item.offset in frame.nullable:  # of a row of NULLs, that a join made, it is NULL
                frame.known.append(IsBool(arg=guard, value=False, negated=True))
            else:
                frame.known.append(guard)
        return f"({query.text}) AS {name}"

    def _known(self, name: str) -> _Known:
        for scope in reversed(self._ctes):
            if name in scope:
                return scope[name]
        raise unsupported(f'the WITH query "{name}" here')

    def _table(self, item: TableItem, frame: Frame, conditions: Sequence[Expr]) -> str:
        name = self._name()
        kinds = tuple(held(column.oid, column.typmod) for column in item.columns)
        texts = [d.primary(f"{name}.c{i}") for i in range(len(kinds))]
        self._enter(item, frame, texts, kinds)
        mine = tuple(one for one in conditions if only_of(one, item))
        source = Source(f"s{len(self.sources) + 1}", item, kinds, mine)
        self.sources.append(source)
        for condition in conditions:
            self._pair(condition, source, frame)
        self._placed[id(item)] = (source, name)
        self._used.update((text, (source, i)) for i, text in enumerate(texts))
        return f"{source.name} AS {name}"

    # -- which rows of a source those of another lead to

    def _demand(self, select: Select, frame: Frame) -> None:
        """The conditions of a query have to be met."""
        self._asking.update((id(one), one) for one in select.conjuncts)
        asked = frame.asked
        # ALL is true of no row, and aggregates make a row of none
        if asked is not None and asked.kind != "all" and not select.aggregates:
            frame.demands = select.conjuncts

    def _pair(self, condition: Expr, source: Source, frame: Frame) -> None:
        """Where rows of a source have to meet a column that equals another's."""
        match condition:
            case Call(operator="=", args=(left, right)):
                both = [bare(left), bare(right)]
            case _:
                return
        item = source.item
        mine = range(item.offset, item.offset + len(item.columns))
        for one, other in (both, both[::-1]):
            if not (isinstance(one, Column) and isinstance(other, Column)):
                return
            if one.level or one.index not in mine or not (one.attribute and alike(one, other)):
                continue
            if not other.level and other.index in mine:
                continue
            beyond = self._frames[-1 - other.level]
            self._pairs.append((source, one, beyond, other.index))
            if other.level == 1 and any(condition is one for one in frame.demands):
                self._back(beyond, other, frame, one.index)

    def _back(self, beyond: Frame, column: Column, frame: Frame, index: int) -> None:
        """A column of the query around has to equal one of the query that is asked."""
        read = self._used.get(getattr(beyond.columns.get(column.index), "text", ""))
        if read is not None and column.attribute:
            self._pairs.append((read[0], replace(column, level=0), frame, index))

    def _matched(self, select: Select, frame: Frame, asked: SubQuery | None) -> None:
        """IN: what is looked for, and where."""
        if asked is None or asked.kind != "any" or asked.operator != "=":
            return
        whole = plain(select) and select.limit is None and select.offset is None
        for left, target in zip(map(bare, asked.left), select.targets, strict=True):
            value = bare(target.expr)
            if not (isinstance(left, Column) and isinstance(value, Column)):
                continue
            if left.level or value.level or not alike(left, value):
                continue
            beyond = self._frames[-2]
            self._back(beyond, left, frame, value.index)
            read = self._used.get(getattr(frame.columns.get(value.index), "text", ""))
            if whole and read is not None and value.attribute:
                self._pairs.append((read[0], value, beyond, left.index))

    def _link(self) -> None:
        """All is rendered: what columns stand for is known."""
        for source, column, frame, index in self._pairs:
            read = self._used.get(getattr(frame.columns.get(index), "text", ""))
            if read is not None and read[0] is not source:
                other, place = read
                other.used.add(place)
                source.links.append(Link(column, other, place))

    def _system(self, item: SystemItem, frame: Frame) -> str:
        known = KnownItem(
            alias=item.alias,
            columns=item.columns,
            offset=item.offset,
            lateral=item.lateral,
            rows=(),
        )
        return self._rows_of(known, frame, item.relation)

    def _rows_of(self, item: KnownItem, frame: Frame, relation: str = "") -> str:
        name = self._name()
        kinds = [held(column.oid, column.typmod) for column in item.columns]
        used: set[int] = set()
        self.known[f"k{name}"] = Rows(item, tuple(kinds), used, relation)
        texts = [d.primary(f"{name}.c{i}") for i in range(len(kinds))]
        self._enter(item, frame, texts, kinds)
        self._seen.update((text, (used, i)) for i, text in enumerate(texts))
        return f"k{name} AS {name}"

    def elements(self, rows: Sequence[Sequence[object]], types: Sequence[int]) -> str:
        columns = tuple(ItemColumn(name=f"c{at}", oid=oid) for at, oid in enumerate(types))
        return self._keep(columns, rows, tuple(map(held, types)))

    def _join(self, item: JoinItem, frame: Frame, conditions: Sequence[Expr]) -> str:
        # Of the side of an outer join that need not match, a row left out comes back as NULLs. So
        # what WHERE says narrows it only if it is not true of NULLs: of `deleted IS NULL` a partial
        # index would make rows without a match. ON's narrow that side only.
        on = conjuncts(item.on)
        strict = tuple(one for one in conditions if rejects_null(one))
        inner = item.kind in ("inner", "cross")
        left_only = (
            *(conditions if inner or item.kind == "left" else strict),
            *(on if inner or item.kind == "right" else ()),
        )
        right_only = (
            *(conditions if inner or item.kind == "right" else strict),
            *(on if inner or item.kind == "left" else ()),
        )
        left = self._item(item.left, frame, left_only)
        right = self._item(item.right, frame, right_only)
        if item.on is None:
            if item.kind == "cross":
                return f"({left} CROSS JOIN {right})"
            return f"({left} {item.kind.upper()} JOIN {right} ON true)"
        condition = self._on(item.on, (item.left, item.right), frame)
        word = "INNER" if item.kind == "cross" else item.kind.upper()
        return f"({left} {word} JOIN {right} ON {condition})"

    # -- functions that return sets

    def _function(self, item: FunctionItem, frame: Frame) -> Query:
        if len(item.calls) != 1:
            return self._beside(item)
        call = item.calls[0]
        if not (isinstance(call, Call) and call.proc.returns_set):
            columns = [self.expressions.sql(call)]
            if call.oid == oids.RECORD:
                raise unsupported("a function that returns a row, in FROM")
            listed = f"{columns[0].text} AS o0"
            if item.ordinality:
                columns.append(Sql(d.primary("1"), oids.INT8, "BIGINT"))
                listed += ", CAST(1 AS BIGINT) AS o1"
            return Query(f"SELECT {listed}", tuple(columns))
        if not item.ordinality and (series := self._series(call)) is not None:
            return series
        sets = self._sets(call)
        listed = ", ".join(f"unnest({one.text}) AS o{n}" for n, one in enumerate(sets))
        columns = [Sql(_NO_TEXT, r.element_of(one.oid), one.held[:-2]) for one in sets]
        if item.ordinality:
            first = sets[0].text
            listed += f", CAST(generate_subscripts({first}, 1) AS BIGINT) AS o{len(sets)}"
            columns.append(Sql(_NO_TEXT, oids.INT8, "BIGINT"))
        return Query(f"SELECT {listed}", tuple(columns))

    def _beside(self, item: FunctionItem) -> Query:
        """ROWS FROM (f, g): rows side by side, the shorter ones filled up with NULLs."""
        sets: list[Sql] = []
        for call in item.calls:
            if isinstance(call, Call) and call.proc.returns_set:
                sets += self._sets(call)
            else:  # one row
                one = self.expressions.sql(call)
                oid = r.array_of(one.oid) or one.oid
                sets.append(Sql(d.primary(f"[{one.text}]"), oid, one.held + "[]"))
        parts = [d.call("unnest", one.text) for one in sets]
        columns = [Sql(_NO_TEXT, r.element_of(one.oid), one.held[:-2]) for one in sets]
        if item.ordinality:
            counts = [d.call("coalesce", d.call("len", one.text), "0") for one in sets]
            most = d.infix("1", "+", d.call("greatest", *counts))
            parts.append(d.cast(d.call("unnest", d.call("range", "1", most)), "BIGINT"))
            columns.append(Sql(_NO_TEXT, oids.INT8, "BIGINT"))
        listed = ", ".join(f"{part} AS o{n}" for n, part in enumerate(parts))
        return Query(f"SELECT {listed}", tuple(columns))

    def _series(self, call: Call) -> Query | None:
        """generate_series of known integers: made as it is read, never as one list."""
        if call.proc.name != "generate_series" or call.oid not in (oids.INT4, oids.INT8):
            return None
        if not all(self.expressions.is_constant(arg) for arg in call.args):
            return None
        values = [self.expressions.constant(arg) for arg in call.args]
        if None in values:
            return None
        if values[2:] == [0]:
            raise SqlError(INVALID_PARAMETER, "step size cannot equal zero")
        kind, name = held(call.oid), self._name()
        listed = ", ".join(f"CAST({value} AS BIGINT)" for value in values)
        return Query(
            f"SELECT CAST({name}.v AS {kind}) AS o0 FROM generate_series({listed}) AS {name}(v)",
            (Sql(_NO_TEXT, call.oid, kind),),
        )

    def _set(self, call: Call) -> Sql:
        """The list of what a function returns that is no row."""
        sets = self._sets(call)
        if len(sets) != 1:
            raise unsupported(f"the function {call.proc.name}, which returns rows, here")
        return sets[0]

    def _sets(self, call: Call) -> list[Sql]:
        """The same by column of what it returns."""
        self.grows = True
        proc = call.proc
        args = [self.expressions.sql(arg) for arg in call.args]
        if proc.name == "unnest" and len(args) == 1 and args[0].held.endswith("[]"):
            return args
        if proc.name == "generate_series" and call.oid in _STEPPED:
            kind = held(call.oid)
            listed = ", ".join(arg.text for arg in args)
            text = d.cast(d.call("generate_series", listed), f"{kind}[]")
            return [Sql(text, r.array_of(call.oid), f"{kind}[]")]
        lister = LISTS.get(proc.source)
        if (asking := ASKING.get(proc.source)) is not None:
            lister = partial(asking, self.env)
        if lister is None:
            raise unsupported(f"the set-returning function {proc.name}")
        if not args and len(proc.out) < 2:  # DuckDB's functions have arguments
            array = r.array_of(call.oid)
            text, kind = literal(lister(), array)
            return [Sql(text, array, kind)]
        if proc.field >= 0:
            places = [(proc.field, call.oid)]
        else:
            types = [oid for _, oid in proc.out] if len(proc.out) > 1 else [call.oid]
            places = list(enumerate(types))
        found = []
        for place, oid in places:
            single = len(places) == 1 and proc.field < 0
            fn = lister if single else column_of(lister, place)
            found.append(
                self.expressions.function(
                    (proc.source, place, single),
                    fn,
                    args,
                    r.array_of(oid),
                    f"{held(oid)}[]",
                    nothing=[],
                )
            )
        return found


def _ons(item: Item) -> Iterator[Expr]:
    """The conditions of joins."""
    if isinstance(item, JoinItem):
        yield from _ons(item.left)
        yield from _ons(item.right)
        yield from conjuncts(item.on)


def _leaves(items: Sequence[Item], nullable: bool = False) -> Iterator[tuple[Item, bool]]:
    """The items of FROM that are no joins, each with whether a join may give NULLs for its row."""
    for item in items:
        if not isinstance(item, JoinItem):
            yield item, nullable
            continue
        yield from _leaves((item.left,), nullable or item.kind in ("right", "full"))
        yield from _leaves((item.right,), nullable or item.kind in ("left", "full"))


def _asks(expr: Expr) -> bool:
    """Whether it has a query."""
    return any(isinstance(one, SubQuery) for one in walk(expr))


def _hashed(expr: SubQuery, operator: str) -> bool:
    """Whether rows are looked for in a set that a query makes once."""
    return (
        (operator, expr.kind) in (("=", "any"), ("<>", "all"))
        and not correlated(expr.select)
        and len(expr.left) <= PARTS_MAX
        and not any(
            isinstance(one, Call) and one.proc.volatile == "v"
            for one in (*inside(expr.select), *inside(expr.left))
        )
    )
