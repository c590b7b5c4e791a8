"""A SELECT over the system catalog, from PostgreSQL's syntax tree to DuckDB's text.

What comes out: the text, the fields with PostgreSQL's names, OIDs and origins, the types of the
parameters, and what the text needs when it runs (`Needs`). It is the same for every database and
session, so it is kept by text. Views are put in place of their names, as PostgreSQL does.

Deliberately missing: rows as values (`SELECT t FROM t`), window frames, XML, JSON operators beyond
the simple ones, FOR UPDATE. They are refused with 0A000.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlproxy.front.syntax.syntax import Node, at, parse, strings, unwrap
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Field
from sqlproxy.pgcatalog import held_types
from sqlproxy.pgcatalog.calls import AGGREGATES, Calls
from sqlproxy.pgcatalog.coercion import Coercion
from sqlproxy.pgcatalog.expressions import Expressions
from sqlproxy.pgcatalog.model import (
    SIGNAL_SQL,
    UNNAMED,
    Col,
    Cte,
    Expr,
    Item,
    Needs,
    Query,
    Scope,
    missing_table,
)
from sqlproxy.pgcatalog.relations import Relations
from sqlproxy.pgcatalog.static import Static
from sqlproxy.values.errors import (
    UNDEFINED_TABLE,
    SqlError,
    unsupported,
)

_SETOPS: Final = {"SETOP_UNION": "UNION", "SETOP_INTERSECT": "INTERSECT", "SETOP_EXCEPT": "EXCEPT"}
_JOINS: Final = {
    "JOIN_INNER": "JOIN",
    "JOIN_LEFT": "LEFT JOIN",
    "JOIN_RIGHT": "RIGHT JOIN",
    "JOIN_FULL": "FULL JOIN",
}
_SHOWN: Final = {
    oids.TIMESTAMPTZ: "epoch_us({})",
    oids.INTERVAL: "epoch_us({})",
    oids.NUMERIC: "CAST({} AS VARCHAR)",
}


@dataclass(frozen=True, slots=True)
class Translated:
    """`settings`: how many triples (name, value, local) follow the fields in each row."""

    sql: str
    fields: tuple[Field, ...]
    kinds: tuple[int, ...]  # the types as they come out of DuckDB: what rows are converted by
    parameters: tuple[int, ...]
    needs: Needs
    settings: int


def translate(
    body: Node, static: Static, relations: Relations, declared: Sequence[int] = ()
) -> Translated:
    """`body`: of a SelectStmt. `declared`: the client's OIDs of parameters. Raises SqlError."""
    needs = Needs()
    given = {i: oid for i, oid in enumerate(declared, 1) if oid}
    work = Translation(static, relations, needs, given)
    query = work.query(body, None)
    work.settle_targets(query)
    fields = tuple(
        Field(t.name, work.types.static.base(t.type), t.typmod, t.table, t.column)
        for t in query.targets
    )
    types = tuple(t.type for t in query.targets)
    return Translated(
        work.outer(query), fields, types, _parameters(needs, declared), needs, len(work.changes)
    )


def _parameters(needs: Needs, declared: Sequence[int]) -> tuple[int, ...]:
    count = max([len(declared), *needs.parameters]) if needs.parameters else len(declared)
    given = dict(enumerate(declared, 1))
    return tuple(
        needs.parameters.get(n, 0) or given.get(n, 0) or oids.TEXT for n in range(1, count + 1)
    )


class Translation(Expressions):
    def __init__(
        self, static: Static, relations: Relations, needs: Needs, declared: Mapping[int, int]
    ) -> None:
        self.static = static
        self.relations = relations
        self.types = Coercion(static, needs, declared)
        self.calls = Calls(self.types)
        self.changes: list[tuple[str, str, str]] = []
        self._top: Scope | None = None
        self._count = 0
        self._views: list[str] = []

    def fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    # -- the outermost text

    def outer(self, query: Query) -> str:
        """Values that DuckDB's client cannot give as PostgreSQL's are turned to what it can."""
        inner = self.text(query)
        shown, plain = [], True
        for number, target in enumerate(query.targets, 1):
            sql = f"c{number}"
            if target.type in held_types.REG:
                sql, plain = self.types.shown(held_types.REG[target.type], f"q.{sql}"), False
            elif (element := self.types.element(target.type)) in held_types.REG:
                sql, plain = self.types.shown_each(element, f"q.{sql}"), False
            elif target.type in _SHOWN:
                sql, plain = _SHOWN[target.type].format(sql), False
            shown.append(sql)
        if plain:
            return inner
        hidden = [f"h{n}" for n in range(3 * len(self.changes))]
        return f"SELECT {', '.join([*shown, *hidden])} FROM ({inner}) q"

    def setting(self, name: str, value: str, local: str, scope: Scope, position: int) -> None:
        if scope is not self._top:
            what = "to end a session" if name == SIGNAL_SQL else "set_config()"
            raise unsupported(f"{what} inside a query", position=position)
        self.changes.append((name, value, local))

    # -- queries

    def query(self, body: Node, parent: Scope | None) -> Query:
        scope = Scope(parent=parent)
        top = parent is None and self._top is None
        if top:
            self._top = scope
        if "lockingClause" in body:
            raise unsupported("FOR UPDATE over the system catalog")
        if "intoClause" in body:
            raise unsupported("SELECT INTO from the system catalog")
        head = self._with(body, scope)
        if body.get("op", "SETOP_NONE") != "SETOP_NONE":
            made = self._set_operation(body, scope)
        elif "valuesLists" in body:
            made = self._values(body, scope)
        else:
            made = self._select(body, scope)
        if top and self.changes and made.left is not None:
            raise unsupported("set_config() in a set operation")
        made.head = head + made.head
        return made

    def text(self, query: Query) -> str:
        if query.left is None or query.right is None:
            picked = [f"{t.sql} AS c{n}" for n, t in enumerate(query.targets, 1)]
            if query.keys == {"top"}:
                flat = [part for change in self.changes for part in change]
                picked += [f"{part} AS h{n}" for n, part in enumerate(flat)]
            return f"{query.head}{', '.join(picked) or 'NULL'}{query.body}"
        # A set operation's columns take its types on both sides.
        for side in (query.left, query.right):
            side.targets = [
                self.types.to(t, wanted.type, wanted.typmod)
                for t, wanted in zip(side.targets, query.targets, strict=True)
            ]
        return (
            f"{query.head}({self.text(query.left)}) {query.operator} "
            f"({self.text(query.right)}){query.body}"
        )

    def _with(self, body: Node, scope: Scope) -> str:
        clause = body.get("withClause")
        if clause is None:
            return ""
        parts = []
        recursive = clause.get("recursive", False)
        for cte in (c["CommonTableExpr"] for c in clause["ctes"]):
            parts.append(self._cte(cte, scope, recursive=recursive))
        return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(parts)} "

    def _cte(self, cte: Node, scope: Scope, *, recursive: bool) -> str:
        name, sql = cte["ctename"], self.fresh("w")
        body = cte["ctequery"].get("SelectStmt")
        if body is None:
            raise unsupported("a WITH query that writes, over the system catalog")
        names = strings(cte.get("aliascolnames"))
        if recursive and body.get("op") == "SETOP_UNION":
            first = self.query(body["larg"], scope)
            self.settle_targets(first)
            scope.ctes[name] = Cte(name, sql, self._columns(first, names))
            second = self.query(body["rarg"], scope)
            word = "UNION ALL" if body.get("all") else "UNION"
            query = Query(list(first.targets), left=first, right=second, operator=word)
        else:
            query = self.query(body, scope)
            self.settle_targets(query)
        columns = self._columns(query, names)
        scope.ctes[name] = Cte(name, sql, columns)
        listed = ", ".join(c.sql for c in columns)
        return f"{sql}({listed}) AS ({self.text(query)})"

    def _columns(self, query: Query, names: Sequence[str] = ()) -> list[Col]:
        return [
            Col(
                names[n] if n < len(names) else t.name,
                f"c{n + 1}",
                t.type,
                t.typmod,
                t.table,
                t.column,
                t.struct,
            )
            for n, t in enumerate(query.targets)
        ]

    def _set_operation(self, body: Node, scope: Scope) -> Query:
        left, right = self.query(body["larg"], scope), self.query(body["rarg"], scope)
        word = _SETOPS[body["op"]]
        if len(left.targets) != len(right.targets):
            raise SqlError("42601", f"each {word} query must have the same number of columns")
        targets = []
        for number, (one, other) in enumerate(zip(left.targets, right.targets, strict=True), 1):
            kind = self.types.common([one, other], word)
            typmod = one.typmod if one.typmod == other.typmod else -1
            targets.append(Expr(f"c{number}", kind, typmod, one.name, one.strength))
        operator = f"{word} ALL" if body.get("all") else word
        query = Query(targets, left=left, right=right, operator=operator)
        listed = Scope(items=[Item("", "", self._columns(query))], parent=scope.parent)
        query.body = self._sorted(body, query, listed) + self._limit(body, scope)
        return query

    def _values(self, body: Node, scope: Scope) -> Query:
        rows = [[self.expr(i, scope) for i in r["List"]["items"]] for r in body["valuesLists"]]
        if len({len(r) for r in rows}) > 1:
            raise SqlError("42601", "VALUES lists must all be the same length")
        types = [self.types.common(column, "VALUES") for column in zip(*rows, strict=True)]
        listed = ", ".join(
            "(" + ", ".join(self.types.to(v, k).sql for v, k in zip(r, types, strict=True)) + ")"
            for r in rows
        )
        alias = self.fresh("v")
        names = ", ".join(f"c{n}" for n in range(1, len(types) + 1))
        targets = [
            Expr(f"{alias}.c{n}", k, name=f"column{n}", strength=2) for n, k in enumerate(types, 1)
        ]
        query = Query(targets, head="SELECT ", body=f" FROM (VALUES {listed}) {alias}({names})")
        inner = Scope(items=[Item("", alias, self._columns(query))], parent=scope.parent)
        query.body += self._sorted(body, query, inner) + self._limit(body, scope)
        return query

    def _select(self, body: Node, scope: Scope) -> Query:
        sources = self._from(body.get("fromClause", ()), scope)
        where = (
            f" WHERE {self.condition(body['whereClause'], scope)}" if "whereClause" in body else ""
        )
        for window in (w["WindowDef"] for w in body.get("windowClause", ())):
            scope.windows[window["name"]] = self.window(window, scope)[1:-1]
        group = self._group(body, scope)
        targets = self._targets(body.get("targetList", ()), scope)
        query = Query(targets, head="SELECT ")
        if scope is self._top:
            query.keys = {"top"}
        having = ""
        if "havingClause" in body:
            having = f" HAVING {self.condition(body['havingClause'], scope, 'HAVING')}"
        order = self._sorted(body, query, scope)
        if "distinctClause" in body:
            on = [d for d in body["distinctClause"] if d]
            listed = ", ".join(self._ordinal(d, query, scope) for d in on)
            query.head += f"DISTINCT ON ({listed}) " if on else "DISTINCT "
        query.body = f"{sources}{where}{group}{having}{order}{self._limit(body, scope)}"
        return query

    def _targets(self, listed: Sequence[Node], scope: Scope) -> list[Expr]:
        made: list[Expr] = []
        for target in (t["ResTarget"] for t in listed):
            kind, value = unwrap(target["val"])
            if kind == "ColumnRef" and "A_Star" in value["fields"][-1]:
                made += self._star(strings(value["fields"]), scope, at(value))
                continue
            if kind == "A_Indirection" and "A_Star" in value["indirection"][-1]:
                one = self.expr(value["arg"], scope)
                made += [self._field(one, name) for name, _ in one.struct]
                continue
            self.listed = value
            one = self.expr(target["val"], scope)
            made.append(one.named(target["name"]) if "name" in target else one)
        return made

    def _star(self, names: Sequence[str], scope: Scope, position: int) -> list[Expr]:
        if not names:
            items = scope.items
            if not items:
                raise SqlError("42601", "SELECT * with no tables specified is not valid")
        else:
            found = scope.item(names[-1], names[-2] if len(names) > 1 else "")
            if found is None:
                raise missing_table(names[-1], position)
            items = [found[0]]
        return [
            self._column(item, col, scope, position)
            for item in items
            for col in item.columns
            if not col.hidden and (names or col.name not in item.merged)
        ]

    def _group(self, body: Node, scope: Scope) -> str:
        """The GROUP BY; from then on the scope checks what is used outside of aggregates."""
        clauses = body.get("groupClause", ())
        if not clauses:
            if "havingClause" in body or _aggregates(body.get("targetList", [])):
                scope.grouped = set()
            return ""
        texts: list[str] = []
        for clause in clauses:
            if "GroupingSet" in clause:
                raise unsupported("grouping sets over the system catalog", are=True)
            texts.append(self._group_item(clause, body, scope))
        scope.grouped = set(texts)
        return f" GROUP BY {', '.join(texts)}"

    def _group_item(self, clause: Node, body: Node, scope: Scope) -> str:
        targets = [t["ResTarget"] for t in body.get("targetList", ())]
        if "A_Const" in clause and "ival" in clause["A_Const"]:
            number = clause["A_Const"]["ival"].get("ival", 0)
            if not 1 <= number <= len(targets):
                raise SqlError("42P10", f"GROUP BY position {number} is not in select list")
            return self.known(targets[number - 1]["val"], scope).sql
        try:
            return self.known(clause, scope).sql
        except SqlError:
            names = strings(clause.get("ColumnRef", {}).get("fields"))
            for target in targets:
                if len(names) == 1 and target.get("name") == names[0]:
                    return self.known(target["val"], scope).sql
            raise

    def _sorted(self, body: Node, query: Query, scope: Scope) -> str:
        parts = []
        for clause in (s["SortBy"] for s in body.get("sortClause", ())):
            parts.append(self.sort(clause, self._ordinal(clause["node"], query, scope)))
        return f" ORDER BY {', '.join(parts)}" if parts else ""

    def _ordinal(self, node: Node, query: Query, scope: Scope) -> str:
        """What an ORDER BY (or DISTINCT ON) means: a column of the answer by number or name, or an
        expression.
        """
        constant = node.get("A_Const", {})
        if "ival" in constant:
            number = constant["ival"].get("ival", 0)
            if not 1 <= number <= len(query.targets):
                raise SqlError("42P10", f"ORDER BY position {number} is not in select list")
            return f"c{number}" if query.left else self._sortable(query, number)
        names = strings(node.get("ColumnRef", {}).get("fields"))
        if len(names) == 1 and len(node["ColumnRef"]["fields"]) == 1:
            for number, target in enumerate(query.targets, 1):
                if target.name == names[0]:
                    return f"c{number}" if query.left else self._sortable(query, number)
        return self.known(node, scope).sql

    def _sortable(self, query: Query, number: int) -> str:
        target = query.targets[number - 1]
        return str(number) if not target.unknown else f"c{number}"

    def _limit(self, body: Node, scope: Scope) -> str:
        text = ""
        for word, key in (("LIMIT", "limitCount"), ("OFFSET", "limitOffset")):
            if key in body and not body[key].get("A_Const", {}).get("isnull"):
                text += f" {word} {self.types.to(self.expr(body[key], scope), oids.INT8).sql}"
        return text

    # -- FROM

    def _from(self, listed: Sequence[Node], scope: Scope) -> str:
        texts = []
        for node in listed:
            text, items = self._source(node, scope)
            for item in items:
                if item.alias and any(
                    i.alias == item.alias and i.schema == item.schema for i in scope.items
                ):
                    raise SqlError("42712", f'table name "{item.alias}" specified more than once')
            scope.items += items
            texts.append(text)
        return f" FROM {', '.join(texts)}" if texts else ""

    def _source(self, node: Node, scope: Scope) -> tuple[str, list[Item]]:
        kind, body = unwrap(node)
        if kind == "RangeVar":
            return self._table(body, scope)
        if kind == "JoinExpr":
            return self._join(body, scope)
        if kind == "RangeSubselect":
            return self._subselect(body, scope)
        if kind == "RangeFunction":
            return self._function(body, scope)
        raise unsupported(f"{kind} over the system catalog", position=at(body))

    def _named(self, body: Node, default: str, sql: str, columns: list[Col]) -> Item:
        alias = body.get("alias", {})
        names = strings(alias.get("colnames"))
        shown = [replace(c, name=names[n]) if n < len(names) else c for n, c in enumerate(columns)]
        return Item(alias.get("aliasname", default), sql, shown)

    def _table(self, body: Node, scope: Scope) -> tuple[str, list[Item]]:
        name, schema = body["relname"], body.get("schemaname", "")
        sql = self.fresh("t")
        if not schema and (cte := scope.cte(name)) is not None:
            return f"{cte.sql} {sql}", [self._named(body, name, sql, cte.columns)]
        relation = self.relations.find(schema, name)
        if relation is None:
            shown = f"{schema}.{name}" if schema else name
            raise SqlError(UNDEFINED_TABLE, f'relation "{shown}" does not exist', position=at(body))
        columns = [
            Col(c.name, c.sql, c.type, c.typmod, relation.oid, n)
            for n, c in enumerate(relation.columns, 1)
        ]
        item = self._named(body, name, sql, columns)
        item.schema = "" if "alias" in body else relation.schema
        item.key = relation.key
        if relation.view:
            text = self._view(f"{relation.schema}.{relation.name}", relation.view)
            item.columns = [replace(c, sql=f"c{n}") for n, c in enumerate(item.columns, 1)]
            return f"({text}) {sql}", [item]
        if relation.feed:
            self.types.needs.feeds[relation.feed] = None
        return f"{relation.sql} {sql}", [item]

    def _view(self, path: str, text: str) -> str:
        parsed = parse(text)
        assert parsed is not None, path
        if len(self._views) > 16:
            raise unsupported(f"the view {path}: it is nested too deeply")
        self._views.append(path)
        query = self.query(parsed.body, Scope())
        self.settle_targets(query)
        self._views.pop()
        return self.text(query)

    def _subselect(self, body: Node, scope: Scope) -> tuple[str, list[Item]]:
        # Without LATERAL the items beside it are not to be seen, but what is around the query is.
        lateral = body.get("lateral", False)
        outside = Scope(parent=scope.parent, ctes=dict(scope.ctes))
        query = self.query(body["subquery"]["SelectStmt"], scope if lateral else outside)
        self.settle_targets(query)
        sql = self.fresh("t")
        item = self._named(body, "", sql, self._columns(query))
        return f"{'LATERAL ' if lateral else ''}({self.text(query)}) {sql}", [item]

    def _function(self, body: Node, scope: Scope) -> tuple[str, list[Item]]:
        calls = [f["List"]["items"][0] for f in body["functions"]]
        first = calls[0].get("FuncCall", {})
        names = strings(first.get("funcname"))
        sql = self.fresh("t")
        if len(calls) == 1 and names and (relation := self.relations.function(names[-1])):
            if relation.feed:
                self.types.needs.feeds[relation.feed] = None
            columns = [Col(c.name, c.sql, c.type, c.typmod) for c in relation.columns]
            return f"{relation.sql} {sql}", [self._named(body, names[-1], sql, columns)]
        values = self._calls(calls, scope)
        picked, columns, lists = [], [], []
        default = body.get("alias", {}).get("aliasname")
        for value in values:
            lists.append(value.listed or f"[{value.sql}]")
            for field, kind in value.struct or ((value.name, value.type),):
                number = f"c{len(columns) + 1}"
                whole = f"unnest({lists[-1]})"
                picked.append(
                    f"struct_extract({whole}, '{field}') AS {number}"
                    if value.struct
                    else f"{whole} AS {number}"
                )
                single = len(values) == 1 and not value.struct and default
                columns.append(Col(default if single else field, number, kind))
        if body.get("ordinality"):
            number = f"c{len(columns) + 1}"
            longest = ", ".join(f"coalesce(len({each}), 0)" for each in lists)
            picked.append(f"unnest(range(1, 1 + greatest({longest}))) AS {number}")
            columns.append(Col("ordinality", number, oids.INT8))
        item = self._named(body, names[-1] if names else UNNAMED, sql, columns)
        return f"LATERAL (SELECT {', '.join(picked)}) {sql}", [item]

    def _calls(self, calls: Sequence[Node], scope: Scope) -> list[Expr]:
        """The functions of one item; `unnest(a, b)` is two."""
        values = []
        for call in calls:
            body = call.get("FuncCall", {})
            if strings(body.get("funcname"))[-1:] == ["unnest"] and len(body.get("args", ())) > 1:
                for argument in body["args"]:
                    one = {"FuncCall": {**body, "args": [argument]}}
                    values.append(self.types.settle(self.expr(one, scope)))
            else:
                values.append(self.types.settle(self.expr(call, scope)))
        return values

    def _join(self, body: Node, scope: Scope) -> tuple[str, list[Item]]:
        if "alias" in body:
            raise unsupported("an alias of a join over the system catalog")
        left_sql, left = self._source(body["larg"], scope)
        beside = Scope([*scope.items, *left], scope.parent, scope.ctes)
        right_sql, right = self._source(body["rarg"], beside)
        inner = Scope([*left, *right], Scope(scope.items, scope.parent), scope.ctes)
        kind = _JOINS[body["jointype"]]
        using = strings(body.get("usingClause"))
        if body.get("isNatural"):
            names = {c.name for i in right for c in i.columns if not c.hidden}
            using = list(dict.fromkeys(c.name for i in left for c in i.columns if c.name in names))
        if using or body.get("isNatural"):
            items, condition = self._using(using, left, right, kind)
            return f"({left_sql} {kind} {right_sql} ON {condition})", items
        if "quals" not in body:
            return f"({left_sql} CROSS JOIN {right_sql})", [*left, *right]
        condition = self.condition(body["quals"], inner, "JOIN/ON")
        return f"({left_sql} {kind} {right_sql} ON {condition})", [*left, *right]

    def _using(
        self, names: Sequence[str], left: list[Item], right: list[Item], kind: str
    ) -> tuple[list[Item], str]:
        """The items of a join by column names: the shared columns come first, once."""
        shared, conditions = [], []
        one, other = Scope(left), Scope(right)
        for name in names:
            item, col, _ = one.column(name, 0)
            there, match, _ = other.column(name, 0)
            a, b = f"{item.sql}.{col.sql}".lstrip("."), f"{there.sql}.{match.sql}".lstrip(".")
            conditions.append(f"{a} = {b}")
            sql = {"RIGHT JOIN": b, "FULL JOIN": f"coalesce({a}, {b})"}.get(kind, a)
            shared.append(replace(col, sql=sql))
        merged = frozenset(names)
        for item in (*left, *right):
            item.merged |= merged
        joined = Item("", "", shared)
        return [joined, *left, *right], " AND ".join(conditions) or "true"


def _aggregates(node: object) -> bool:
    """Whether an aggregate is called, subqueries and windows left out."""
    if isinstance(node, list):
        return any(_aggregates(one) for one in node)
    if not isinstance(node, dict):
        return False
    call = node.get("FuncCall")
    if call and "over" not in call and strings(call.get("funcname"))[-1] in AGGREGATES:
        return True
    return any(_aggregates(one) for kind, one in node.items() if kind != "SelectStmt")


def uses(body: Node, ctes: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """The relations that a statement names (schema or "", name), its own WITH queries left out."""
    found: list[tuple[str, str]] = []
    _uses(body, ctes, found)
    return found


def _uses(node: object, ctes: frozenset[str], found: list[tuple[str, str]]) -> None:
    if isinstance(node, list):
        for one in node:
            _uses(one, ctes, found)
    elif isinstance(node, dict):
        if isinstance(clause := node.get("withClause"), dict):
            ctes |= {c["CommonTableExpr"]["ctename"] for c in clause["ctes"]}
        if isinstance(table := node.get("RangeVar"), dict):
            if table.get("schemaname") or table["relname"] not in ctes:
                found.append((table.get("schemaname", ""), table["relname"]))
            return
        for one in node.values():
            _uses(one, ctes, found)
