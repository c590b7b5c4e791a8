"""Functions that are not one text: what they become depends on their arguments' types or literals,
or on the rows that they return. A function `f` is the method `_call_f`.
"""

from __future__ import annotations

from sqlproxy.front.syntax.syntax import Node, at, strings
from sqlproxy.pg import oids
from sqlproxy.pgcatalog import held_types
from sqlproxy.pgcatalog.calls import Calls
from sqlproxy.pgcatalog.coercion import Coercion
from sqlproxy.pgcatalog.functions import INTERVAL_FIELDS, SCALAR
from sqlproxy.pgcatalog.held_types import quoted
from sqlproxy.pgcatalog.model import SIGNAL_SQL, Expr, Scope, Struct
from sqlproxy.values.errors import SqlError, unsupported

_TIMES = (oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ)
_ARRAYS = ", ".join(str(of.array_oid) for of in oids.TYPES.values() if of.array_oid)


def _with_arrays(*types: int) -> str:
    return ", ".join(f"{oid}, {oids.TYPES[oid].array_oid}" for oid in types)


class Special:
    """`expr` and `_columnref` are the rest of the translation's."""

    types: Coercion
    calls: Calls
    listed: Node | None = None  # what is all of a column of a SELECT's list

    def expr(self, node: Node, scope: Scope) -> Expr:
        raise NotImplementedError

    def _columnref(self, body: Node, scope: Scope) -> Expr:
        raise NotImplementedError

    # -- functions that are not one text

    def _arguments(self, body: Node, scope: Scope) -> list[Expr]:
        return [self.expr(a, scope) for a in body.get("args", ())]

    def _call_format_type(self, body: Node, scope: Scope) -> Expr:
        given = self._arguments(body, scope)
        if len(given) != 2:
            self.calls.resolve("format_type", given, at(body))
        oid, typmod = self.types.to(given[0], oids.OID).sql, self.types.to(given[1], oids.INT4).sql
        found = f"(SELECT z._text FROM k_pg_type z WHERE z.oid = {oid})"
        base = f"replace({found}, '[]', '')"
        array = f"CASE WHEN {oid} IN ({_ARRAYS}) THEN '[]' ELSE '' END"
        n = f"({typmod} - 4)"
        scale = f"(({n} & 2047) - CASE WHEN {n} & 1024 > 0 THEN 2048 ELSE 0 END)"
        text = (
            f"(CASE WHEN {oid} IS NULL THEN NULL WHEN {oid} = 0 THEN '-' "
            f"WHEN {typmod} >= 4 AND {oid} IN ({_with_arrays(oids.VARCHAR, oids.BPCHAR)}) "
            f"THEN CASE WHEN {oid} IN ({_with_arrays(oids.VARCHAR)}) THEN 'character varying(' "
            f"ELSE 'character(' END || {n} || ')' || {array} "
            f"WHEN {typmod} >= 4 AND {oid} IN ({_with_arrays(oids.NUMERIC)}) "
            f"THEN {base} || '(' || ({n} >> 16) || ',' || {scale} || ')' || {array} "
            f"WHEN {typmod} >= 0 AND {oid} IN ({_with_arrays(*_TIMES)}) "
            f"THEN regexp_replace({base}, ' ', '(' || {typmod} || ') ') || {array} "
            f"WHEN {typmod} >= 0 AND {oid} IN ({_with_arrays(oids.INTERVAL)}) "
            f"THEN {base} || {INTERVAL_FIELDS.format(f'({typmod} >> 16)')} || CASE "
            f"WHEN {typmod} & 65535 = 65535 THEN '' ELSE '(' || ({typmod} & 65535) || ')' END "
            f"|| {array} "
            f"WHEN {oid} = 1042 AND {typmod} IS NOT NULL THEN 'bpchar' "
            f"ELSE coalesce({found}, '???') END)"
        )
        return Expr(text, oids.TEXT, name="format_type", strength=2)

    def _call_concat(self, body: Node, scope: Scope) -> Expr:
        parts = [self.types.text(self.types.settle(g)) for g in self._arguments(body, scope)]
        return Expr(f"concat({', '.join(parts)})", oids.TEXT, name="concat", strength=2)

    def _call_concat_ws(self, body: Node, scope: Scope) -> Expr:
        parts = [self.types.text(self.types.settle(g)) for g in self._arguments(body, scope)]
        return Expr(f"concat_ws({', '.join(parts)})", oids.TEXT, name="concat_ws", strength=2)

    def _call_format(self, body: Node, scope: Scope) -> Expr:
        given = self._arguments(body, scope)
        if not given or given[0].literal is None:
            raise unsupported("format() of a text that is not a literal", position=at(body))
        parts, rest, taken = [], given[0].literal, iter(given[1:])
        while "%" in rest:
            before, _, rest = rest.partition("%")
            parts.append(quoted(before))
            letter, rest = rest[:1], rest[1:]
            if letter == "%":
                parts.append("'%'")
                continue
            value = next(taken, None)
            if value is None or letter not in ("s", "I", "L"):
                raise SqlError("22023", "too few arguments for format()", position=at(body))
            text = self.types.text(self.types.settle(value))
            parts.append(
                {"s": f"coalesce({text}, '')", "I": f"kv_quoted({text})"}.get(
                    letter, f"coalesce('''' || replace({text}, '''', '''''') || '''', 'NULL')"
                )
            )
        parts.append(quoted(rest))
        return Expr(f"({' || '.join(parts)})", oids.TEXT, name="format", strength=2)

    def _call_array_to_string(self, body: Node, scope: Scope) -> Expr:
        given = self._arguments(body, scope)
        if len(given) < 2:
            self.calls.resolve("array_to_string", given, at(body))
        listed = self.types.settle(given[0], 1009)
        element = self.types.element(listed.type) or oids.TEXT
        each = self.types.text(Expr("kv_e", element))
        if len(given) > 2:
            each = f"coalesce({each}, {self.types.to(given[2], oids.TEXT).sql})"
        mark = self.types.to(given[1], oids.TEXT).sql
        texts = f"list_transform({listed.sql}, lambda kv_e: {each})"
        return Expr(
            f"array_to_string({texts}, {mark})", oids.TEXT, name="array_to_string", strength=2
        )

    def _call_json_build_object(self, body: Node, scope: Scope) -> Expr:
        given = self._arguments(body, scope)
        pairs = [
            f"to_json({self.types.text(self.types.settle(k))}) || ' : ' || {self._json(v)}"
            for k, v in zip(given[::2], given[1::2], strict=False)
        ]
        name = strings(body["funcname"])[-1]
        kind = oids.JSON if name == "json_build_object" else oids.JSONB
        return Expr(
            f"('{{' || {' || chr(44) || chr(32) || '.join(pairs) or chr(39) * 2} || '}}')",
            kind,
            name=name,
            strength=2,
        )

    _call_jsonb_build_object = _call_json_build_object

    def _json(self, value: Expr) -> str:
        value = self.types.settle(value)
        if value.type in (oids.JSON, oids.JSONB):
            return f"coalesce({value.sql}, 'null')"
        plain = (
            self.types.category(value.type) in ("N", "B", "A") and value.type not in held_types.REG
        )
        shown = value.sql if plain else self.types.text(value)
        return f"coalesce(CAST(to_json({shown}) AS VARCHAR), 'null')"

    def _call_to_json(self, body: Node, scope: Scope) -> Expr:
        value = self._json(self._arguments(body, scope)[0])
        return Expr(f"({value})", oids.JSON, name="to_json", strength=2)

    def _call_to_regclass(self, body: Node, scope: Scope) -> Expr:
        return self._lenient(body, scope, oids.REGCLASS)

    def _call_to_regtype(self, body: Node, scope: Scope) -> Expr:
        return self._lenient(body, scope, oids.REGTYPE)

    def _call_to_regnamespace(self, body: Node, scope: Scope) -> Expr:
        return self._lenient(body, scope, oids.REGNAMESPACE)

    def _call_to_regrole(self, body: Node, scope: Scope) -> Expr:
        return self._lenient(body, scope, oids.REGROLE)

    def _call_to_regproc(self, body: Node, scope: Scope) -> Expr:
        return self._lenient(body, scope, oids.REGPROC)

    def _lenient(self, body: Node, scope: Scope, kind: int) -> Expr:
        given = self.types.to(self._arguments(body, scope)[0], oids.TEXT)
        word = held_types.REG[kind]
        return Expr(
            self.types.lookup(word, given.sql, strict=False), kind, name=f"to_{word}", strength=2
        )

    def _call_pg_get_serial_sequence(self, body: Node, scope: Scope) -> Expr:
        given = self._arguments(body, scope)
        self.calls.resolve("pg_get_serial_sequence", given, at(body))
        table = self.types.to(self.types.to(given[0], oids.TEXT), oids.REGCLASS)
        column = self.types.to(given[1], oids.TEXT)
        text = str(SCALAR["_serial"]).replace("{0}", table.sql).replace("{1}", column.sql)
        oid = text.replace("min(q._qname)", "min(q.oid)")
        return Expr(text, oids.TEXT, name="pg_get_serial_sequence", strength=2, reg=oid)

    def _call__pg_truetypid(self, body: Node, scope: Scope) -> Expr:
        return self._true_type(body, scope, "atttypid", "typbasetype")

    def _call__pg_truetypmod(self, body: Node, scope: Scope) -> Expr:
        return self._true_type(body, scope, "atttypmod", "typtypmod")

    def _true_type(self, body: Node, scope: Scope, plain: str, domain: str) -> Expr:
        """information_schema's functions of a row of pg_attribute and one of pg_type: of a domain
        what it is made of.
        """

        def column(argument: Node, name: str) -> Expr:
            fields = [*argument["ColumnRef"]["fields"][:-1], {"String": {"sval": name}}]
            return self._columnref({"fields": fields}, scope)

        row, of = body["args"]
        value = column(row, plain)
        test = f"{column(of, 'typtype').sql} = 'd'"
        return Expr(
            f"(CASE WHEN {test} THEN {column(of, domain).sql} ELSE {value.sql} END)", value.type
        )

    def _call_current_setting(self, body: Node, scope: Scope) -> Expr:
        given = self._arguments(body, scope)
        if not given:
            self.calls.resolve("current_setting", given, at(body))
        if given[0].literal is None:
            self.types.needs.feeds["kv_shown_settings"] = None
            key = self.types.to(given[0], oids.TEXT).sql
            text = f"(SELECT z.setting FROM kv_shown_settings z WHERE z.name = lower({key}))"
            return Expr(text, oids.TEXT, name="current_setting", strength=2)
        lenient = len(given) > 1 and given[1].sql == "true"
        name = given[0].literal.lower()
        key = f"s{len(self.types.needs.settings)}"
        self.types.needs.settings[key] = name + ("?" if lenient else "")
        return Expr(f"CAST(${key} AS VARCHAR)", oids.TEXT, name="current_setting", strength=2)

    def _call_set_config(self, body: Node, scope: Scope) -> Expr:
        """Its answer is the value; that it sets something is in hidden columns (`changes`)."""
        given = self._arguments(body, scope)
        if len(given) != 3:
            self.calls.resolve("set_config", given, at(body))
        name, value = (self.types.to(g, oids.TEXT).sql for g in given[:2])
        local = self.types.to(given[2], oids.BOOL).sql
        self.setting(name, value, local, scope, at(body))
        return Expr(value, oids.TEXT, name="set_config", strength=2)

    def _call_pg_cancel_backend(self, body: Node, scope: Scope) -> Expr:
        return self._signal("pg_cancel_backend", body, scope)

    def _call_pg_terminate_backend(self, body: Node, scope: Scope) -> Expr:
        return self._signal("pg_terminate_backend", body, scope)

    def _signal(self, name: str, body: Node, scope: Scope) -> Expr:
        """Whether there is such a session; that it ends is reported as set_config()'s change is,
        for every row that comes out: within a CASE, say, it would end those that are not meant.
        """
        if body is not self.listed:
            raise unsupported(
                f"{name}() within an expression or a condition",
                position=at(body),
                hint=f"Write SELECT {name}(pid) FROM pg_stat_activity WHERE ….",
            )
        given = self._arguments(body, scope)
        self.calls.resolve(name, given, at(body))
        process = self.types.to(given[0], oids.INT4).sql
        ends = "true" if name == "pg_terminate_backend" else "false"
        self.setting(SIGNAL_SQL, f"CAST({process} AS VARCHAR)", ends, scope, at(body))
        there = self.calls.fact("list_contains($pids, {0})").replace("{0}", process)
        return Expr(f"({there})", oids.BOOL, name=name, strength=2)

    def setting(self, name: str, value: str, local: str, scope: Scope, position: int) -> None:
        raise NotImplementedError

    # -- functions that return rows

    def _listed(self, name: str, listed: str, kind: int, struct: Struct = ()) -> Expr:
        return Expr(
            f"unnest({listed})",
            kind,
            name=name,
            strength=2,
            struct=struct,
            many=True,
            listed=listed,
        )

    def _call_unnest(self, body: Node, scope: Scope) -> Expr:
        given = self.types.settle(self._arguments(body, scope)[0], 1009)
        element = self.types.element(given.type)
        if not element:
            self.calls.resolve("unnest", [given], at(body))
        return self._listed("unnest", given.sql, element)

    def _call_generate_series(self, body: Node, scope: Scope) -> Expr:
        given = [self.types.settle(g, oids.INT4) for g in self._arguments(body, scope)]
        kind = self.types.common(given)
        if kind not in held_types.INTEGERS:
            raise unsupported(
                "generate_series of other than integers over the catalog", position=at(body)
            )
        listed = f"generate_series({', '.join(g.sql for g in given)})"
        return self._listed("generate_series", f"CAST({listed} AS {self.types.held(kind)}[])", kind)

    def _call_generate_subscripts(self, body: Node, scope: Scope) -> Expr:
        given = self._arguments(body, scope)
        first = 0 if given[0].type in held_types.VECTORS else 1
        if len(given) > 1:
            self.types.to(given[1], oids.INT4)
        listed = f"CAST(range({first}, {first} + len({given[0].sql})) AS INTEGER[])"
        return self._listed("generate_subscripts", listed, oids.INT4)

    def _call__pg_expandarray(self, body: Node, scope: Scope) -> Expr:
        given = self._arguments(body, scope)[0]
        element = self.types.element(given.type)
        listed = f"list_transform({given.sql}, lambda kv_e, kv_n: {{'x': kv_e, 'n': kv_n}})"
        return self._listed(
            "_pg_expandarray", listed, oids.RECORD, (("x", element), ("n", oids.INT4))
        )
