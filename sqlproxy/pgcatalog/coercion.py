"""From one type to another: unknown literals and parameters get theirs, values are cast as
PostgreSQL casts them, and every value can be shown as text.

The names of reg* values are looked up in the catalog itself, by subqueries: DuckDB joins them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kv.base.limits import SQL_CATALOG_ELEMENTS_MAX
from sqlproxy.front.syntax.syntax import parse, strings
from sqlproxy.pg import oids
from sqlproxy.pgcatalog import held_types
from sqlproxy.pgcatalog.held_types import quoted
from sqlproxy.pgcatalog.model import Expr, Needs
from sqlproxy.pgcatalog.static import CATALOG, Static
from sqlproxy.values.errors import (
    CANNOT_COERCE,
    DATATYPE_MISMATCH,
    LIMIT_EXCEEDED,
    UNDEFINED_OBJECT,
    UNDEFINED_TABLE,
    SqlError,
)

FAILURE = "KVORUM"  # how an error that a statement raises itself begins: KVORUM|SQLSTATE|words
VISIBLE = "CAST($visible AS BIGINT[])"
DATABASE = "CAST($database AS VARCHAR)"


def failure(sqlstate: str, words: str) -> str:
    """DuckDB's text that raises this error; `words` is DuckDB's text too."""
    return f"error('{FAILURE}|{sqlstate}|' || {words})"


def lists_joined(left: str, right: str) -> str:
    """Two lists as one, within a bound: DuckDB does not count what lists hold."""
    count = f"coalesce(len({left}), 0) + coalesce(len({right}), 0)"
    refused = failure(
        LIMIT_EXCEEDED, f"'arrays over the catalog: at most {SQL_CATALOG_ELEMENTS_MAX} elements'"
    )
    return (
        f"CASE WHEN {count} > {SQL_CATALOG_ELEMENTS_MAX} THEN {refused} "
        f"ELSE list_concat({left}, {right}) END"
    )


class Coercion:
    def __init__(self, static: Static, needs: Needs, declared: Mapping[int, int]) -> None:
        self.static = static
        self.needs = needs
        self.declared = declared

    # -- types

    def element(self, oid: int) -> int:
        return self.static.element_of(oid)

    def held(self, oid: int) -> str:
        return held_types.held(oid, self.element(oid))

    def category(self, oid: int) -> str:
        return held_types.category(oid, self.element(oid))

    def type_name(self, oid: int) -> str:
        """As PostgreSQL's messages call it."""
        return "unknown" if oid == oids.UNKNOWN else oids.format_type(oid, None)

    def named(self, names: Sequence[str], position: int = 0) -> int:
        """The OID of a type as a statement names it. Raises SqlError (42704)."""
        found = self.static.type_names.get(names[-1], 0)
        if not found or (len(names) > 1 and self.static.types[found].schema != self._schema(names)):
            shown = ".".join(names)
            raise SqlError(UNDEFINED_OBJECT, f'type "{shown}" does not exist', position=position)
        return self.static.base(found)

    def _schema(self, names: Sequence[str]) -> int:
        return self.static.schemas.get(names[0], -1)

    # -- parameters and unknowns

    def parameter(self, number: int) -> Expr:
        oid = self.declared.get(number, 0) or self.needs.parameters.get(number, 0)
        if oid and oid != oids.UNKNOWN:
            return self._typed(number, oid)
        self.needs.parameters.setdefault(number, 0)
        return Expr(f"$p{number}", oids.UNKNOWN, parameter=number)

    def _typed(self, number: int, oid: int) -> Expr:
        self.needs.parameters[number] = oid
        if oid in held_types.REG:
            return Expr(self.lookup(held_types.REG[oid], f"CAST($p{number} AS VARCHAR)"), oid)
        return Expr(f"CAST($p{number} AS {self.held(oid)})", oid)

    def settle(self, value: Expr, oid: int = oids.TEXT) -> Expr:
        """The value with a type: an unknown one takes this."""
        return self.to(value, oid) if value.unknown else value

    def common(self, values: Sequence[Expr], what: str = "CASE") -> int:
        """The type of a CASE, UNION, … over these. Raises SqlError (42804)."""
        known = [v.type for v in values if not v.unknown]
        if not known:
            return oids.TEXT
        best = known[0]
        for oid in known[1:]:
            if oid == best:
                continue
            if self.category(oid) != self.category(best):
                raise SqlError(
                    DATATYPE_MISMATCH,
                    f"{what} types {self.type_name(best)} and {self.type_name(oid)} "
                    "cannot be matched",
                )
            best = self._wider(best, oid)
        return best

    def _wider(self, one: int, other: int) -> int:
        if one in held_types.NUMBERS and other in held_types.NUMBERS:
            return max(one, other, key=held_types.NUMBERS.index)
        if one in held_types.IDS or other in held_types.IDS:
            return oids.OID
        if one in held_types.TIMES and other in held_types.TIMES:
            return max(one, other, key=held_types.TIMES.index)
        if one == oids.CHAR and other in (oids.TEXT, oids.NAME, oids.VARCHAR):
            return oids.TEXT
        return one

    # -- casts

    def to(self, value: Expr, oid: int, typmod: int = -1) -> Expr:
        """The value as this type; its column's name stays. Raises SqlError."""
        oid = self.static.base(oid)
        if value.parameter and value.unknown:
            made = self._typed(value.parameter, oid)
        elif value.unknown:
            made = Expr(self._literal(value.literal, oid), oid)
        elif value.type == oid:
            made = Expr(value.sql, oid, value.typmod, reg=value.reg)
        elif oid == oids.REGCLASS and value.reg:  # there and back again: no need to look it up
            made = Expr(value.reg, oid)
        else:
            there = value.sql if value.type == oids.REGCLASS and oid in held_types.STRINGS else ""
            made = Expr(self._cast(value, oid), oid, reg=there)
        if typmod >= 4 and oid in (oids.VARCHAR, oids.BPCHAR):
            made = replace(made, sql=f"left({made.sql}, {typmod - 4})")
        elif typmod >= 4 and oid == oids.NUMERIC:
            scale = (typmod - 4) & 0x7FF
            made = replace(made, sql=f"CAST({made.sql} AS DECIMAL(38,{min(scale, 38)}))")
        return replace(
            made,
            typmod=typmod if typmod >= 0 else made.typmod,
            name=value.name,
            strength=value.strength,
            table=value.table if value.type == oid else 0,
            column=value.column if value.type == oid else 0,
            struct=value.struct,
            many=value.many,
        )

    def _literal(self, text: str | None, oid: int) -> str:
        if text is None:
            return f"CAST(NULL AS {self.held(oid)})"
        if oid in held_types.VECTORS:
            parts = ", ".join(str(held_types.integer(p, "smallint")) for p in text.split())
            return f"CAST([{parts}] AS {self.held(oid)})"
        if element := self.element(oid):
            items = (self._literal(item, element) for item in held_types.array_items(text))
            return f"CAST([{', '.join(items)}] AS {self.held(oid)})"
        if oid in held_types.REG:
            return self._reg_literal(held_types.REG[oid], text)
        if oid in held_types.IDS or oid in held_types.INTEGERS:
            number = held_types.integer(text, self.type_name(oid))
            return str(number) if oid != oids.INT8 else f"CAST({number} AS BIGINT)"
        if oid == oids.BOOL:
            return "true" if held_types.boolean(text) else "false"
        if oid == oids.CHAR:
            return quoted(text[:1])
        if self.held(oid) == "VARCHAR":
            return quoted(text)
        return f"CAST({quoted(text)} AS {self.held(oid)})"

    def _cast(self, value: Expr, oid: int) -> str:
        source = value.type
        if oid in held_types.STRINGS:
            shown = self.text(value)
            return f"left({shown}, 1)" if oid == oids.CHAR else shown
        if oid in held_types.REG and self.category(source) == "S":
            return self.lookup(held_types.REG[oid], value.sql)
        if source in held_types.IDS and oid in held_types.IDS:
            return value.sql
        if self.element(oid) and self.category(source) == "S":
            inner = f"trim({value.sql}, '{{}}')"
            return (
                f"CAST(CASE WHEN {inner} = '' THEN [] ELSE string_split({inner}, ',') END "
                f"AS {self.held(oid)})"
            )
        if self.held(oid) == "VARCHAR":
            return self.text(value)
        if {self.category(source), self.category(oid)} in ({"B", "A"}, {"A", "N"}, {"D", "B"}):
            raise SqlError(
                CANNOT_COERCE,
                f"cannot cast type {self.type_name(source)} to {self.type_name(oid)}",
            )
        return value.sql if self.held(source) == self.held(oid) else self._plain(value, oid)

    def _plain(self, value: Expr, oid: int) -> str:
        return f"CAST({value.sql} AS {self.held(oid)})"

    # -- text

    def text(self, value: Expr) -> str:
        """DuckDB's text of the value's own text, as PostgreSQL writes it."""
        if value.unknown:
            return self.to(value, oids.TEXT).sql
        sql, oid = value.sql, value.type
        if oid in held_types.REG:
            return self.shown(held_types.REG[oid], sql)
        if oid in held_types.VECTORS:
            return f"array_to_string(CAST({sql} AS VARCHAR[]), ' ')"
        element = self.element(oid)
        if element in held_types.REG:
            each = f"list_transform({self.shown_each(element, sql)}, lambda kv_e: "
            return f"('{{' || array_to_string({each}kv_array_item(kv_e)), ',') || '}}')"
        if element:
            each = self.text(Expr("kv_e", element))
            return (
                f"('{{' || array_to_string(list_transform({sql}, lambda kv_e: "
                f"kv_array_item({each})), ',') || '}}')"
            )
        if oid in (oids.FLOAT4, oids.FLOAT8):
            return f"regexp_replace(CAST({sql} AS VARCHAR), '\\.0$', '')"
        if oid == oids.TIMESTAMPTZ:
            return f"(CAST({sql} AS VARCHAR))"
        return sql if self.held(oid) == "VARCHAR" else f"CAST({sql} AS VARCHAR)"

    # -- reg*

    def shown(self, kind: str, sql: str) -> str:
        """The name of an OID; the number if there is none."""
        if kind == "regclass":
            self.needs.facts["visible"] = None
            name = (
                f"CASE WHEN list_contains({VISIBLE}, z.relnamespace) THEN z._name ELSE z._qname END"
            )
            found = f"(SELECT {name} FROM k_pg_class z WHERE z.oid = {sql})"
        elif kind == "regtype":
            found = f"(SELECT z._text FROM k_pg_type z WHERE z.oid = {sql})"
        elif kind == "regnamespace":
            found = f"(SELECT z.nspname FROM k_pg_namespace z WHERE z.oid = {sql})"
        elif kind == "regrole":
            found = f"(SELECT kv_quoted(z.rolname) FROM k_pg_authid z WHERE z.oid = {sql})"
        elif kind in ("regproc", "regprocedure"):
            more = " || '(' || z._identity || ')'" if kind == "regprocedure" else ""
            found = f"(SELECT z.proname{more} FROM k_pg_proc z WHERE z.oid = {sql})"
        elif kind in ("regoper", "regoperator"):
            sides = (
                " || '(' || coalesce(l._text, 'NONE') || ',' || coalesce(r._text, 'NONE') || ')'"
            )
            found = (
                f"(SELECT z.oprname{sides if kind == 'regoperator' else ''} FROM k_pg_operator z "
                "LEFT JOIN k_pg_type l ON l.oid = z.oprleft LEFT JOIN k_pg_type r "
                f"ON r.oid = z.oprright WHERE z.oid = {sql})"
            )
        else:
            found = f"(SELECT z.cfgname FROM k_pg_ts_config z WHERE z.oid = {sql})"
        return f"CASE WHEN {sql} = 0 THEN '-' ELSE coalesce({found}, CAST({sql} AS VARCHAR)) END"

    def shown_each(self, element: int, sql: str) -> str:
        """The names of an array of OIDs of this type."""
        name = self.shown(held_types.REG[element], "kv_u.kv_e")
        listed = f"SELECT unnest({sql}) AS kv_e, generate_subscripts({sql}, 1) AS kv_n"
        found = f"(SELECT list({name} ORDER BY kv_u.kv_n) FROM ({listed}) kv_u)"
        return f"CASE WHEN {sql} IS NOT NULL THEN coalesce({found}, []) END"

    def lookup(self, kind: str, sql: str, *, strict: bool = True) -> str:
        """The OID of a name; fails (or is NULL) if there is none."""
        folded = f"kv_folded({sql})"
        words = {"regclass": "relation", "regtype": "type", "regnamespace": "schema"}
        state = UNDEFINED_TABLE if kind == "regclass" else UNDEFINED_OBJECT
        if kind == "regnamespace":
            state = "3F000"
        if kind == "regclass":
            self.needs.facts |= {"visible": None, "database": None}
            path = f"kv_path({sql})"
            found = (
                f"coalesce((SELECT min(z.oid) FROM k_pg_class z WHERE z.relname = {path} AND "
                f"list_contains({VISIBLE}, z.relnamespace)), "
                f"(SELECT min(z.oid) FROM k_pg_class z WHERE z._path = {path}), "
                f"(SELECT min(z.oid) FROM k_pg_class z WHERE "
                f"concat({DATABASE}, chr(31), z._path) = {path}))"
            )
        elif kind == "regtype":
            found = (
                "(SELECT min(z.oid) FROM k_pg_type z WHERE z.typname = regexp_replace("
                f"{folded}, '^(pg_catalog|public)\\.', '') OR z._text = {folded})"
            )
        else:
            table, column = {
                "regnamespace": ("pg_namespace", "nspname"),
                "regrole": ("pg_authid", "rolname"),
                "regproc": ("pg_proc", "proname"),
                "regprocedure": ("pg_proc", "proname || '(' || z._identity || ')'"),
                "regoper": ("pg_operator", "oprname"),
                "regoperator": ("pg_operator", "oprname"),
                "regconfig": ("pg_ts_config", "cfgname"),
            }[kind]
            several = failure("42725", f"'more than one function named \"' || {sql} || '\"'")
            one = f"CASE WHEN count(*) > 1 THEN {several} ELSE min(z.oid) END"
            picked = one if kind == "regproc" else "min(z.oid)"
            bare = f"replace({folded}, 'pg_catalog.', '')"
            found = f"(SELECT {picked} FROM k_{table} z WHERE z.{column} = {bare})"
        if not strict:
            return found
        what = words.get(kind, {"regrole": "role"}.get(kind, "function"))
        gone = failure(state, f"'{what} \"' || {sql} || '\" does not exist'")
        number = f"CASE WHEN regexp_full_match({sql}, '[0-9]+') THEN CAST({sql} AS BIGINT)"
        return f"({number} WHEN {sql} IS NULL THEN NULL ELSE coalesce({found}, {gone}) END)"

    def _reg_literal(self, kind: str, text: str) -> str:
        if text.strip().isdigit():
            return text.strip()
        if text.strip() == "-":
            return "0"
        if kind == "regclass":
            path = text.split(".") if "." in text else [CATALOG, text]
            if (oid := self.static.relations.get((path[0], path[-1]))) and len(path) == 2:
                return str(oid)
        if kind == "regtype" and (oid := self._type_literal(text)):
            return str(oid)
        return self.lookup(kind, quoted(text))

    def _type_literal(self, text: str) -> int:
        """The OID of a type of PostgreSQL itself, spelt in any way; 0: it is none."""
        try:
            parsed = parse(f"SELECT NULL::{text}")
        except SqlError:
            return 0
        assert parsed is not None
        cast = parsed.body["targetList"][0]["ResTarget"]["val"].get("TypeCast")
        if cast is None:
            return 0
        oid = self.static.type_names.get(strings(cast["typeName"]["names"])[-1], 0)
        return self.static.array_of(oid) if cast["typeName"].get("arrayBounds") else oid
