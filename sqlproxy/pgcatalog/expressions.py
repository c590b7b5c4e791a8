"""Expressions of PostgreSQL's syntax trees as DuckDB's text, with PostgreSQL's types and names.

A node is libpg_query's JSON (sqlproxy/front/syntax/syntax.py). Every name is resolved here, so that
nothing is left to DuckDB's own rules, which know neither case nor search paths as PostgreSQL does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlproxy.duck import ducktext as d
from sqlproxy.front.binding.typenames import check_collation
from sqlproxy.front.syntax.syntax import Node, at, find, strings, unwrap
from sqlproxy.pg import oids
from sqlproxy.pgcatalog import held_types, rights
from sqlproxy.pgcatalog.calls import AGGREGATES, WINDOWS
from sqlproxy.pgcatalog.coercion import lists_joined
from sqlproxy.pgcatalog.held_types import quoted
from sqlproxy.pgcatalog.model import UNNAMED, Col, Expr, Item, Query, Scope, missing_table
from sqlproxy.pgcatalog.special_functions import Special
from sqlproxy.values.errors import (
    DATATYPE_MISMATCH,
    GROUPING_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_FUNCTION,
    SqlError,
    unsupported,
)

COMPARISONS: Final = {"=", "<>", "!=", "<", ">", "<=", ">="}
_REGEX: Final = ("~", "~*", "!~", "!~*")
_LIKE: Final = ("~~", "!~~", "~~*", "!~~*")
_BETWEENS: Final = {
    "AEXPR_BETWEEN": (False, False),
    "AEXPR_NOT_BETWEEN": (True, False),
    "AEXPR_BETWEEN_SYM": (False, True),
    "AEXPR_NOT_BETWEEN_SYM": (True, True),
}
"""Whether it is negated, and symmetric."""
_SYSTEM: Final = {
    "tableoid": oids.OID,
    "xmin": oids.XID,
    "xmax": oids.XID,
    "cmin": oids.CID,
    "cmax": oids.CID,
    "ctid": oids.TID,
}
_VALUES: Final = {
    "SVFOP_CURRENT_USER": ("$user", oids.NAME, "current_user"),
    "SVFOP_CURRENT_ROLE": ("$user", oids.NAME, "current_role"),
    "SVFOP_SESSION_USER": ("$user", oids.NAME, "session_user"),
    "SVFOP_USER": ("$user", oids.NAME, "user"),
    "SVFOP_CURRENT_CATALOG": ("$database", oids.NAME, "current_catalog"),
    "SVFOP_CURRENT_SCHEMA": ("$schema", oids.NAME, "current_schema"),
    "SVFOP_CURRENT_TIMESTAMP": ("$now", oids.TIMESTAMPTZ, "current_timestamp"),
    "SVFOP_CURRENT_DATE": ("CAST($now AS DATE)", oids.DATE, "current_date"),
    "SVFOP_LOCALTIMESTAMP": ("CAST($now AS TIMESTAMP)", oids.TIMESTAMP, "localtimestamp"),
}
_ACL: Final = (
    ("grantor", oids.OID),
    ("grantee", oids.OID),
    ("privilege_type", oids.TEXT),
    ("is_grantable", oids.BOOL),
)
_STRUCTS: Final = {
    "aclexplode": (rights.EXPLODED, _ACL),
    "pg_options_to_table": (
        "list_transform({0}, lambda kv_e: {{'option_name': split_part(kv_e, '=', 1), "
        "'option_value': split_part(kv_e, '=', 2)}})",
        (("option_name", oids.TEXT), ("option_value", oids.TEXT)),
    ),
}


class Expressions(Special):
    """`many` is allowed in targets and FROM only; DuckDB's own error covers the rest."""

    def query(self, body: Node, parent: Scope | None) -> Query:
        raise NotImplementedError

    def text(self, query: Query) -> str:
        raise NotImplementedError

    # -- entry

    def expr(self, node: Node, scope: Scope) -> Expr:
        """Raises SqlError."""
        if scope.grouped is not None:
            grouped, scope.grouped = scope.grouped, None
            try:
                plain = self._expr(node, scope)
            finally:
                scope.grouped = grouped
            if plain.sql in grouped:
                return plain
        return self._expr(node, scope)

    def known(self, node: Node, scope: Scope) -> Expr:
        return self.types.settle(self.expr(node, scope))

    def condition(self, node: Node, scope: Scope, what: str = "WHERE") -> str:
        value = self.expr(node, scope)
        if not value.unknown and value.type != oids.BOOL:
            raise SqlError(
                DATATYPE_MISMATCH,
                f"argument of {what} must be type boolean, not type "
                f"{self.types.type_name(value.type)}",
            )
        return self.types.to(value, oids.BOOL).sql

    def _expr(self, node: Node, scope: Scope) -> Expr:
        kind, body = unwrap(node)
        method = getattr(self, f"_{kind.lower()}", None)
        if method is None:
            raise unsupported(f"{kind} over the system catalog", position=at(body))
        made: Expr = method(body, scope)
        return made

    # -- leaves

    def _a_const(self, body: Node, scope: Scope) -> Expr:
        if body.get("isnull"):
            return Expr("NULL", oids.UNKNOWN)
        if "ival" in body:
            return Expr(str(body["ival"].get("ival", 0)), oids.INT4)
        if "fval" in body:
            text = body["fval"]["fval"]
            if text.isdigit() and int(text) < 1 << 63:
                return Expr(f"CAST({text} AS BIGINT)", oids.INT8)
            return Expr(text, oids.NUMERIC)
        if "boolval" in body:
            truth = body["boolval"].get("boolval", False)
            return Expr(d.TRUE if truth else d.FALSE, oids.BOOL, name="bool", strength=1)
        if "sval" in body:
            text = body["sval"].get("sval", "")
            return Expr(d.primary(quoted(text)), oids.UNKNOWN, literal=text)
        raise unsupported("a bit string over the system catalog", position=at(body))

    def _paramref(self, body: Node, scope: Scope) -> Expr:
        return self.types.parameter(body["number"])

    def _columnref(self, body: Node, scope: Scope) -> Expr:
        fields = body["fields"]
        if "A_Star" in fields[-1]:
            raise unsupported("a row as a value over the system catalog", position=at(body))
        names = strings(fields)
        position = at(body)
        if len(names) == 1:
            try:
                return self._column(*scope.column(names[0], position), position)
            except SqlError as error:
                if error.sqlstate != UNDEFINED_COLUMN:
                    raise
                if names[0] in _SYSTEM and scope.items and scope.items[0].columns[0].table:
                    return self._system(scope.items[0], names[0])
                if not scope.item(names[0]):
                    raise
                raise unsupported(
                    "a row as a value over the system catalog", position=position
                ) from None
        if len(names) > 4:
            raise unsupported("a name of more than four parts", position=position)
        alias, name = names[-2], names[-1]
        found = scope.item(alias, names[-3] if len(names) > 2 else "")
        if found is None:
            raise missing_table(alias, position)
        item, where = found
        for col in item.columns:
            if col.name == name:
                return self._column(item, col, where, position)
        if name in _SYSTEM and any(c.table for c in item.columns):
            return self._system(item, name)
        raise SqlError(UNDEFINED_COLUMN, f"column {alias}.{name} does not exist", position=position)

    def _system(self, item: Item, name: str) -> Expr:
        table = next((c.table for c in item.columns), 0)
        value = {"tableoid": str(table), "ctid": "'(0,1)'"}.get(name, "1")
        return Expr(value, _SYSTEM[name], name=name, strength=2)

    def _column(self, item: Item, col: Col, scope: Scope, position: int) -> Expr:
        sql = d.primary(f"{item.sql}.{col.sql}" if item.sql else col.sql)
        made = Expr(
            sql,
            col.type,
            col.typmod,
            col.name,
            2,
            table=col.table,
            column=col.column,
            struct=col.struct,
        )
        if scope.grouped is None or sql in scope.grouped:
            return made
        by_name = {c.name: c for c in item.columns}
        if item.key and all(
            f"{item.sql}.{by_name[k].sql}" in scope.grouped for k in item.key if k in by_name
        ):
            return Expr(d.call("any_value", sql), col.type, col.typmod, col.name, 2)
        shown = f"{item.alias}.{col.name}" if item.alias else col.name
        raise SqlError(
            GROUPING_ERROR,
            f'column "{shown}" must appear in the GROUP BY clause or be used in an aggregate '
            "function",
            position=position,
        )

    def _sqlvaluefunction(self, body: Node, scope: Scope) -> Expr:
        found = _VALUES.get(body["op"])
        if found is None:
            raise unsupported(f"{body['op']} over the system catalog", position=at(body))
        return Expr(self.calls.fact(found[0]), found[1], name=found[2], strength=2)

    # -- operators

    def _boolexpr(self, body: Node, scope: Scope) -> Expr:
        parts = [self.condition(a, scope, body["boolop"][:-5]) for a in body["args"]]
        if body["boolop"] == "NOT_EXPR":
            return Expr(d.negation(parts[0]), oids.BOOL)
        every = body["boolop"] == "AND_EXPR"
        joined = d.conjunction if every else d.disjunction
        for n, node in enumerate(body["args"]):
            if n and _risky(node) and not _joins(node):  # after what stands before it
                before = d.infix(joined(parts[:n]), "IS DISTINCT FROM", d.primary(str(not every)))
                parts[n] = d.case([(before, parts[n])])
        return Expr(joined(parts), oids.BOOL)

    def _nulltest(self, body: Node, scope: Scope) -> Expr:
        value = self.known(body["arg"], scope)
        word = "IS NULL" if body["nulltesttype"] == "IS_NULL" else "IS NOT NULL"
        return Expr(d.test(value.sql, word), oids.BOOL)

    def _booleantest(self, body: Node, scope: Scope) -> Expr:
        value = self.condition(body["arg"], scope)
        words = body["booltesttype"].replace("_", " ").replace("UNKNOWN", "NULL")
        if words in ("IS NULL", "IS NOT NULL"):
            return Expr(d.test(value, words), oids.BOOL)
        wanted = d.TRUE if words.endswith("TRUE") else d.FALSE
        same = "IS DISTINCT FROM" if "NOT" in words else "IS NOT DISTINCT FROM"
        return Expr(d.infix(value, same, wanted), oids.BOOL)

    def _a_expr(self, body: Node, scope: Scope) -> Expr:
        kind, operator = body["kind"], strings(body["name"])[-1]
        if kind == "AEXPR_OP" and "RowExpr" in body.get("lexpr", {}):
            return self._rows(body, operator, scope)
        if kind in ("AEXPR_OP_ANY", "AEXPR_OP_ALL"):
            return self._any(body, operator, scope)
        if kind == "AEXPR_IN":
            return self._in(body, operator, scope)
        if kind in _BETWEENS:
            return self._between(body, scope)
        right = self.expr(body["rexpr"], scope)
        if "lexpr" not in body:
            value = self.types.settle(right, oids.INT4)
            return Expr(d.prefix(operator, value.sql), value.type)
        left = self.expr(body["lexpr"], scope)
        if kind in ("AEXPR_DISTINCT", "AEXPR_NOT_DISTINCT"):
            left, right = self._alike(left, right, "=", at(body))
            word = "IS DISTINCT FROM" if kind == "AEXPR_DISTINCT" else "IS NOT DISTINCT FROM"
            return Expr(d.infix(left.sql, word, right.sql), oids.BOOL)
        if kind == "AEXPR_NULLIF":
            left, right = self._alike(left, right, "=", at(body))
            return Expr(d.call("nullif", left.sql, right.sql), left.type, name="nullif", strength=2)
        if kind in ("AEXPR_LIKE", "AEXPR_ILIKE"):
            return self._like(left, right, operator, body["rexpr"], scope)
        if kind == "AEXPR_SIMILAR":
            raise unsupported("SIMILAR TO over the system catalog", position=at(body))
        return self.operator(operator, left, right, at(body))

    def operator(self, operator: str, left: Expr, right: Expr, position: int) -> Expr:
        """A binary operator. Raises SqlError (42883): there is none for these types."""
        if operator in COMPARISONS:
            left, right = self._alike(left, right, operator, position)
            return Expr(d.infix(left.sql, operator, right.sql), oids.BOOL)
        if operator in _REGEX:
            one, other = self.types.text(left), self.types.text(right)
            found = d.call("kv_imatches" if "*" in operator else "kv_matches", one, other)
            return Expr(d.negation(found) if operator.startswith("!") else found, oids.BOOL)
        if operator in _LIKE:
            return self._like(left, right, operator, None, None)
        if operator == "||":
            return self._joined(left, right)
        if operator in ("@>", "<@", "&&"):
            left, right = self._alike(left, right, operator, position)
            name = "list_has_any" if operator == "&&" else "list_has_all"
            pair = (right, left) if operator == "<@" else (left, right)
            return Expr(d.call(name, pair[0].sql, pair[1].sql), oids.BOOL)
        if operator in ("->", "->>"):
            word = "json_extract_string" if operator == "->>" else "json_extract"
            kind = oids.TEXT if operator == "->>" else left.type
            key = self.types.settle(right)
            path = key.sql if key.type == oids.INT4 else d.infix(d.primary("'$.'"), "||", key.sql)
            return Expr(d.call(word, left.sql, path), kind)
        if operator in ("+", "-", "*", "/", "%", "&", "|", "#", "<<", ">>", "^"):
            return self._arithmetic(operator, left, right, position)
        raise self._no_operator(operator, left, right, position)

    def _no_operator(self, operator: str, left: Expr, right: Expr, position: int) -> SqlError:
        shown = f"{self.types.type_name(left.type)} {operator} {self.types.type_name(right.type)}"
        return SqlError(
            UNDEFINED_FUNCTION,
            f"operator does not exist: {shown}",
            hint="No operator matches the given name and argument types. "
            "You might need to add explicit type casts.",
            position=position,
        )

    def _alike(self, left: Expr, right: Expr, operator: str, position: int) -> tuple[Expr, Expr]:
        """Both sides of a comparison as types that can be compared."""
        if left.unknown and right.unknown:
            return self.types.settle(left), self.types.settle(right)
        if left.unknown:
            return self.types.to(left, right.type), right
        if right.unknown:
            return left, self.types.to(right, left.type)
        one, other = self.types.category(left.type), self.types.category(right.type)
        if one != other:
            raise self._no_operator(operator, left, right, position)
        return left, right

    def _arithmetic(self, operator: str, left: Expr, right: Expr, position: int) -> Expr:
        if left.unknown:
            left = self.types.to(left, right.type if not right.unknown else oids.INT4)
        if right.unknown:
            right = self.types.to(right, left.type)
        categories = self.types.category(left.type) + self.types.category(right.type)
        if categories == "NN":
            kind = self.types.common([left, right])
            kind = oids.INT8 if kind in held_types.IDS else kind
            if operator == "#":
                return Expr(d.call("xor", left.sql, right.sql), kind)
            if operator == "/" and kind in (oids.NUMERIC, oids.FLOAT4, oids.FLOAT8):
                return Expr(d.infix(d.cast(left.sql, "DOUBLE"), "/", right.sql), kind)
            word = "//" if operator == "/" else operator
            return Expr(d.infix(left.sql, word, right.sql), kind)
        if categories == "DD" and operator == "-":
            return Expr(d.infix(left.sql, "-", right.sql), oids.INTERVAL)
        if categories in ("DT", "TD") and operator in "+-":
            kind = left.type if categories == "DT" else right.type
            return Expr(d.infix(left.sql, operator, right.sql), kind)
        raise self._no_operator(operator, left, right, position)

    def _joined(self, left: Expr, right: Expr) -> Expr:
        """`||`: arrays are joined (NULL is none), everything else as text."""
        left_array, right_array = self.types.element(left.type), self.types.element(right.type)
        if left_array or right_array:
            kind = left.type if left_array else right.type
            element = left_array or right_array
            if left.unknown or right.unknown:
                left = self.types.to(left, kind) if left.unknown else left
                right = self.types.to(right, kind) if right.unknown else right
            one, other = (
                side.sql if self.types.element(side.type) else d.primary(f"[{side.sql}]")
                for side in (left, right)
            )
            held = self.types.held(element)
            both = lists_joined(*(d.cast(side, f"{held}[]") for side in (one, other)))
            neither = d.conjunction([d.test(side, "IS NULL") for side in (one, other)])
            return Expr(d.case([(neither, "NULL")], both), kind)
        if left.type == oids.JSONB and right.type == oids.JSONB:
            return Expr(d.call("json_merge_patch", left.sql, right.sql), oids.JSONB)
        return Expr(d.call("kv_joined", self.types.text(left), self.types.text(right)), oids.TEXT)

    def _like(
        self, left: Expr, right: Expr, operator: str, node: Node | None, scope: Scope | None
    ) -> Expr:
        escape = None
        if node is not None and scope is not None and "FuncCall" in node:
            call = node["FuncCall"]
            if strings(call["funcname"])[-1] == "like_escape":
                right = self.expr(call["args"][0], scope)
                escape = self.types.to(self.expr(call["args"][1], scope), oids.TEXT).sql
        one, other = self.types.text(left), self.types.text(right)
        if escape is not None:
            other = d.call("kv_like_escape", other, escape)
        found = d.call("kv_ilike" if "*" in operator else "kv_like", one, other)
        return Expr(d.negation(found) if operator.startswith("!") else found, oids.BOOL)

    def _in(self, body: Node, operator: str, scope: Scope) -> Expr:
        items = body["rexpr"]["List"]["items"]
        negated = operator == "<>"
        if "RowExpr" in body["lexpr"]:
            each = [{**body, "rexpr": one} for one in items]
            same = [self._rows(one, "=", scope).sql for one in each]
            return Expr(
                d.negation(d.disjunction(same)) if negated else d.disjunction(same), oids.BOOL
            )
        left = self.expr(body["lexpr"], scope)
        values = [self.expr(i, scope) for i in items]
        if left.unknown:
            left = self.types.to(left, self.types.common(values))
        listed = [self._alike(left, v, "=", at(body))[1].sql for v in values]
        return Expr(d.member(left.sql, ", ".join(listed), negated=negated), oids.BOOL)

    def _between(self, body: Node, scope: Scope) -> Expr:
        low, high = body["rexpr"]["List"]["items"]
        value = self.known(body["lexpr"], scope)
        _, one = self._alike(value, self.expr(low, scope), ">=", at(body))
        _, other = self._alike(value, self.expr(high, scope), "<=", at(body))
        negated, symmetric = _BETWEENS[body["kind"]]
        made = d.between(value.sql, one.sql, other.sql, negated=negated)
        if symmetric:
            turned = d.between(value.sql, other.sql, one.sql, negated=negated)
            made = (d.conjunction if negated else d.disjunction)([made, turned])
        return Expr(made, oids.BOOL)

    def _any(self, body: Node, operator: str, scope: Scope) -> Expr:
        left, listed = self.expr(body["lexpr"], scope), self.expr(body["rexpr"], scope)
        if listed.unknown:
            left = self.types.settle(left)
            listed = self.types.to(listed, self.types.static.array_of(left.type))
        element = self.types.element(listed.type)
        if not element:
            raise SqlError(
                "42809", "op ANY/ALL (array) requires array on right side", position=at(body)
            )
        one = self.operator(operator, left, Expr("kv_e", element), at(body))
        if left.unknown:
            left = self.types.to(left, element)
        every = body["kind"] == "AEXPR_OP_ALL"
        if operator == "=" and not every:  # a function: DuckDB makes a join of ANY
            return Expr(d.call("list_contains", listed.sql, left.sql), oids.BOOL)
        if operator in ("<>", "!=") and every:
            return Expr(d.negation(d.call("list_contains", listed.sql, left.sql)), oids.BOOL)
        if operator in COMPARISONS:
            word = f"{operator} {'ALL' if every else 'ANY'}"
            return Expr(d.infix(left.sql, word, f"({listed.sql})"), oids.BOOL)
        outcomes = f"list_transform({listed.sql}, lambda kv_e: {one.sql})"
        return Expr(d.call(f"list_bool_{'and' if every else 'or'}", outcomes), oids.BOOL)

    def _row_text(self, body: Node, scope: Scope) -> str:
        listed = ", ".join(self.known(a, scope).sql for a in body.get("args", ()))
        return d.primary(f"({listed})")

    def _rows(self, body: Node, operator: str, scope: Scope) -> Expr:
        lefts = body["lexpr"]["RowExpr"]["args"]
        rights = body["rexpr"].get("RowExpr", {}).get("args", ())
        if len(lefts) != len(rights) or operator not in COMPARISONS:
            raise SqlError(
                "42601", "unequal number of entries in row expressions", position=at(body)
            )
        pairs = [
            self._alike(self.expr(a, scope), self.expr(b, scope), operator, at(body))
            for a, b in zip(lefts, rights, strict=True)
        ]
        return Expr(d.compared_rows(operator, [(a.sql, b.sql) for a, b in pairs]), oids.BOOL)

    def _rowexpr(self, body: Node, scope: Scope) -> Expr:
        parts = [self.types.text(self.known(a, scope)) for a in body.get("args", ())]
        joined = " || ',' || ".join(f"coalesce({p}, '')" for p in parts) or "''"
        return Expr(f"('(' || {joined} || ')')", oids.RECORD, name="row", strength=2)

    # -- conditional

    def _caseexpr(self, body: Node, scope: Scope) -> Expr:
        argument = self.known(body["arg"], scope) if "arg" in body else None
        tests, results = [], []
        for when in (w["CaseWhen"] for w in body["args"]):
            if argument is None:
                tests.append(self.condition(when["expr"], scope, "CASE/WHEN"))
            else:
                value = self.expr(when["expr"], scope)
                tests.append(self.operator("=", argument, value, at(when)).sql)
            results.append(self.expr(when["result"], scope))
        default = self.expr(body["defresult"], scope) if "defresult" in body else None
        kind = self.types.common([*results, default] if default else results)
        listed = [self.types.to(r, kind).sql for r in results]
        other = self.types.to(default, kind).sql if default else None
        name, strength = (default.name, default.strength) if default else (UNNAMED, 0)
        if strength < 2:
            name, strength = "case", 1
        typmods = {r.typmod for r in [*results, *([default] if default else [])]}
        typmod = typmods.pop() if len(typmods) == 1 else -1
        made = d.case(zip(tests, listed, strict=True), other)
        return Expr(made, kind, typmod, name, strength)

    def _coalesceexpr(self, body: Node, scope: Scope) -> Expr:
        return self._many_of(body, scope, "coalesce")

    def _minmaxexpr(self, body: Node, scope: Scope) -> Expr:
        return self._many_of(body, scope, "greatest" if body["op"] == "IS_GREATEST" else "least")

    def _many_of(self, body: Node, scope: Scope, name: str) -> Expr:
        values = [self.expr(a, scope) for a in body["args"]]
        kind = self.types.common(values, name.upper())
        made = d.call(name, *(self.types.to(v, kind).sql for v in values))
        return Expr(made, kind, name=name, strength=2)

    # -- casts, arrays, fields

    def _typecast(self, body: Node, scope: Scope) -> Expr:
        spelt = body["typeName"]
        names = strings(spelt["names"])
        oid = self.types.named(names, at(spelt))
        bounds = len(spelt.get("arrayBounds", ()))
        if bounds:
            oid = self.types.static.array_of(oid)
        if bounds and "A_ArrayExpr" in body["arg"]:
            items = body["arg"]["A_ArrayExpr"].get("elements", ())
            element = self.types.element(oid)
            parts = [self.types.to(self.expr(i, scope), element).sql for i in items]
            return Expr(
                f"CAST([{', '.join(parts)}] AS {self.types.held(oid)})",
                oid,
                name="array",
                strength=2,
            )
        value = self.expr(body["arg"], scope)
        made = self.types.to(value, oid, self._typmod(spelt, oid))
        return made if value.strength > 1 else made.named(names[-1], 1)

    def _typmod(self, spelt: Node, oid: int) -> int:
        given = [
            m["A_Const"]["ival"].get("ival", 0) for m in spelt.get("typmods", ()) if "A_Const" in m
        ]
        if not given:
            return -1
        if oid in (oids.VARCHAR, oids.BPCHAR):
            return int(given[0]) + 4
        if oid == oids.NUMERIC:
            return ((int(given[0]) << 16) | (int(given[1]) if len(given) > 1 else 0)) + 4
        return int(given[0])

    def _collateclause(self, body: Node, scope: Scope) -> Expr:
        check_collation(strings(body["collname"]), 0, at(body))
        return self.expr(body["arg"], scope)

    def _a_arrayexpr(self, body: Node, scope: Scope) -> Expr:
        values = [self.expr(e, scope) for e in body.get("elements", ())]
        if not values:
            raise SqlError("42P18", "cannot determine type of empty array", position=at(body))
        kind = self.types.common(values, "ARRAY")
        array = self.types.static.array_of(kind)
        listed = ", ".join(self.types.to(v, kind).sql for v in values)
        return Expr(f"[{listed}]", array, name="array", strength=2)

    def _a_indirection(self, body: Node, scope: Scope) -> Expr:
        value = self.expr(body["arg"], scope)
        for step in body["indirection"]:
            kind, fields = unwrap(step)
            if kind == "A_Indices":
                value = self._subscript(value, fields, scope)
            elif kind == "String" and value.struct:
                value = self._field(value, fields.get("sval", ""))
            else:
                raise unsupported("a row as a value over the system catalog")
        return value

    def _subscript(self, value: Expr, fields: Node, scope: Scope) -> Expr:
        if value.type == oids.NAME and "uidx" in fields and not fields.get("is_slice"):
            at = self.types.to(self.expr(fields["uidx"], scope), oids.INT4).sql  # from 0
            character = f"CASE WHEN {at} >= 0 THEN substr({value.sql}, {at} + 1, 1) END"
            return Expr(f"({character})", oids.CHAR, name=value.name, strength=value.strength)
        element = self.types.element(value.type)
        if not element:
            raise SqlError(
                DATATYPE_MISMATCH,
                f"cannot subscript type {self.types.type_name(value.type)} because it does not "
                "support subscripting",
            )
        shift = value.type in held_types.VECTORS
        ends = [
            self._place(self.types.to(self.expr(fields[end], scope), oids.INT4).sql, shift)
            if end in fields
            else ""
            for end in ("lidx", "uidx")
        ]
        if fields.get("is_slice"):
            return Expr(
                d.primary(f"{d.inner(value.sql)}[{ends[0]}:{ends[1]}]"),
                value.type,
                name=value.name,
                strength=value.strength,
            )
        found = d.primary(f"{d.inner(value.sql)}[{ends[1]}]")
        only = d.case([(d.infix(ends[1], ">=", "1"), found)])
        return Expr(only, element, name=value.name, strength=value.strength)

    @staticmethod
    def _place(sql: str, shift: bool) -> str:
        return d.infix(sql, "+", "1") if shift else sql

    def _field(self, value: Expr, name: str) -> Expr:
        for field, kind in value.struct:
            if field == name:
                return Expr(
                    d.call("struct_extract", value.sql, f"'{name}'"),
                    kind,
                    name=name,
                    strength=2,
                    many=value.many,
                )
        raise SqlError(UNDEFINED_COLUMN, f'column "{name}" not found in data type record')

    # -- subqueries

    def _sublink(self, body: Node, scope: Scope) -> Expr:
        kind = body["subLinkType"]
        query = self.query(body["subselect"]["SelectStmt"], scope)
        if kind == "EXISTS_SUBLINK":
            return Expr(d.call("EXISTS ", self.text(query)), oids.BOOL, name="exists", strength=2)
        self.settle_targets(query)
        first = query.targets[0]
        if kind == "EXPR_SUBLINK":
            if len(query.targets) != 1:
                raise SqlError("42601", "subquery must return only one column", position=at(body))
            return Expr(
                d.primary(f"({self.text(query)})"),
                first.type,
                first.typmod,
                first.name,
                2,
                struct=first.struct,
            )
        if kind == "ARRAY_SUBLINK":
            array = self.types.static.array_of(first.type) or 1009
            return Expr(d.call("ARRAY", self.text(query)), array, name="array", strength=2)
        if kind in ("ANY_SUBLINK", "ALL_SUBLINK"):
            return self._any_subquery(body, query, scope)
        raise unsupported(f"{kind} over the system catalog", position=at(body))

    def settle_targets(self, query: Query) -> None:
        query.targets = [self.types.settle(t) for t in query.targets]

    def _any_subquery(self, body: Node, query: Query, scope: Scope) -> Expr:
        operator = strings(body["operName"])[-1] if "operName" in body else "="
        word = "ALL" if body["subLinkType"] == "ALL_SUBLINK" else "ANY"
        if "RowExpr" in body["testexpr"]:
            row = self._row_text(body["testexpr"]["RowExpr"], scope)
            return Expr(d.member(row, self.text(query)), oids.BOOL)
        left = self.expr(body["testexpr"], scope)
        left, _ = self._alike(left, query.targets[0], operator, at(body))
        if operator == "=" and word == "ANY":
            return Expr(d.member(left.sql, self.text(query)), oids.BOOL)
        against = d.primary(f"({self.text(query)})")
        return Expr(d.infix(left.sql, f"{operator} {word}", against), oids.BOOL)

    # -- functions

    def _funccall(self, body: Node, scope: Scope) -> Expr:
        names = strings(body["funcname"])
        name, position = names[-1], at(body)
        if "over" in body or name in WINDOWS:
            return self._windowed(name, body, scope)
        if name in AGGREGATES:
            return self._aggregated(name, body, scope, "")
        if special := getattr(self, f"_call_{name}", None):
            made: Expr = special(body, scope)
            return made
        given = [self.expr(a, scope) for a in body.get("args", ())]
        if name in _STRUCTS:
            text, struct = _STRUCTS[name]
            listed = text.replace("{0}", given[0].sql).replace("{{", "{").replace("}}", "}")
            return Expr(
                d.call("unnest", listed),
                oids.RECORD,
                name=name,
                strength=2,
                struct=struct,
                many=True,
                listed=listed,
            )
        if (
            len(given) == 1
            and len(names) <= 2
            and name in ("text", "name", "oid", "int4", "int8", "regclass")
        ):
            return self.types.to(given[0], self.types.named([name])).named(name)
        return self.calls.call(name, given, position)

    def _aggregated(self, name: str, body: Node, scope: Scope, over: str) -> Expr:
        inner, scope.grouped = scope.grouped, None
        try:
            given = [self.expr(a, scope) for a in body.get("args", ())]
            order = self.order(body.get("agg_order", ()), scope)
            only = body.get("agg_filter")
            where = f" FILTER (WHERE {self.condition(only, scope, 'FILTER')})" if only else ""
        finally:
            scope.grouped = inner
        called, kind, listed = self.calls.aggregate(name, given, at(body))
        text = "*" if body.get("agg_star") else ", ".join(listed)
        distinct = "DISTINCT " if body.get("agg_distinct") else ""
        if (order or where or distinct) and called.startswith("json_"):  # a macro of DuckDB's
            raise unsupported(f"{name} with DISTINCT, FILTER or ORDER BY over the catalog")
        made = d.primary(f"{called}({distinct}{text}{order}){where}{over}")
        return Expr(made, kind, name=name, strength=2)

    def order(self, listed: Sequence[Node], scope: Scope) -> str:
        parts = [self.sort(s["SortBy"], self.known(s["SortBy"]["node"], scope).sql) for s in listed]
        return f" ORDER BY {', '.join(parts)}" if parts else ""

    def sort(self, body: Node, sql: str) -> str:
        down = body["sortby_dir"] == "SORTBY_DESC"
        if body["sortby_dir"] == "SORTBY_USING":
            down = strings(body["useOp"])[-1] == ">"
        nulls = {"SORTBY_NULLS_FIRST": "FIRST", "SORTBY_NULLS_LAST": "LAST"}.get(
            body["sortby_nulls"], "FIRST" if down else "LAST"
        )
        return f"{sql} {'DESC' if down else 'ASC'} NULLS {nulls}"

    def _windowed(self, name: str, body: Node, scope: Scope) -> Expr:
        if "over" not in body:
            raise SqlError(
                "42P20", f"window function {name} requires an OVER clause", position=at(body)
            )
        over = f" OVER {self.window(body['over'], scope)}"
        if name in AGGREGATES:
            return self._aggregated(name, body, scope, over)
        given = [self.expr(a, scope) for a in body.get("args", ())]
        called, kind, listed = self.calls.window(name, given)
        made = d.primary(f"{called}({', '.join(listed)}){over}")
        return Expr(made, kind, name=name, strength=2)

    def window(self, body: Node, scope: Scope) -> str:
        if "name" in body and body["name"] in scope.windows:
            return f"({scope.windows[body['name']]})"
        if body.get("frameOptions", 1058) != 1058:
            raise unsupported("a window's frame over the system catalog", position=at(body))
        parts = [self.known(p, scope).sql for p in body.get("partitionClause", ())]
        text = f"PARTITION BY {', '.join(parts)}" if parts else ""
        return f"({text}{self.order(body.get('orderClause', ()), scope)})"


_HARMLESS: Final = frozenset(("text", "varchar", "bpchar", "name", "char", "bool"))


def _risky(node: Node) -> bool:
    """Whether computing it can raise: arithmetic, and casts of what is no constant."""
    for cast in find(node, "TypeCast"):
        known = "A_Const" in cast["arg"] or "A_ArrayExpr" in cast["arg"]
        if not known and strings(cast["typeName"]["names"])[-1] not in _HARMLESS:
            return True
    return any(
        strings(one["name"])[-1] in ("/", "%", "+", "-", "*") for one in find(node, "A_Expr")
    )


def _joins(node: Node) -> bool:
    """Whether both sides of an equality have columns: DuckDB joins by it."""
    body = node.get("A_Expr", {})
    return (
        body.get("kind") == "AEXPR_OP"
        and strings(body["name"])[-1] == "="
        and all(
            next(iter(find(body.get(side, {}), "ColumnRef")), None) is not None
            for side in ("lexpr", "rexpr")
        )
    )
