"""Calls of functions: which of PostgreSQL's is meant, and what DuckDB gets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlproxy.pg import oids, zones
from sqlproxy.pgcatalog import functions, held_types, rights
from sqlproxy.pgcatalog.coercion import Coercion
from sqlproxy.pgcatalog.functions import FED
from sqlproxy.pgcatalog.model import Expr
from sqlproxy.pgcatalog.static import Function
from sqlproxy.values.errors import UNDEFINED_FUNCTION, SqlError, unsupported
from sqlproxy.values.words import words

_FACT: Final = re.compile(r"\$([a-z_]+)")
FACTS: Final = {
    "version": "CAST($version AS VARCHAR)",
    "database": "CAST($database AS VARCHAR)",
    "user": "CAST($user AS VARCHAR)",
    "schema": "CAST($schema AS VARCHAR)",
    "schemas": "CAST($schemas AS VARCHAR[])",
    "schemas_all": "CAST($schemas_all AS VARCHAR[])",
    "visible": "CAST($visible AS BIGINT[])",
    "pid": "CAST($pid AS INTEGER)",
    "pids": "CAST($pids AS INTEGER[])",
    "query": "CAST($query AS VARCHAR)",
    "txid": "CAST($txid AS BIGINT)",
    "txid_known": "CAST($txid_known AS BIGINT)",
    "now": "make_timestamptz(CAST($now AS BIGINT))",
    "started": "make_timestamptz(CAST($started AS BIGINT))",
}
_ANY_ELEMENT: Final = (2283, 2776, 5077)  # anyelement, anynonarray, anycompatible
_ANY_ARRAY: Final = (2277, 5078)  # anyarray, anycompatiblearray
AGGREGATES: Final = words(
    """
    count sum min max avg bool_and bool_or every string_agg array_agg json_agg jsonb_agg any_value
    """
)
WINDOWS: Final = words(
    """
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value
    """
)
_SUM: Final = {oids.INT2: oids.INT8, oids.INT4: oids.INT8, oids.INT8: oids.NUMERIC}


@dataclass(slots=True)
class Calls:
    types: Coercion

    def fact(self, sql: str) -> str:
        """The text with the session's facts as DuckDB's typed parameters."""

        def found(match: re.Match[str]) -> str:
            self.types.needs.facts[match[1]] = None
            return FACTS[match[1]]

        return _FACT.sub(found, sql)

    def resolve(self, name: str, given: Sequence[Expr], position: int) -> Function:
        """PostgreSQL's function of this name for these arguments. Raises SqlError (42883)."""
        best: tuple[int, Function] | None = None
        for one in self.types.static.functions.get(name, ()):
            low, high = len(one.arguments) - one.defaults, len(one.arguments)
            if not low <= len(given) <= high:
                continue
            score = sum(self._fits(g, a) for g, a in zip(given, one.arguments, strict=False))
            if score >= 0 and (best is None or score > best[0]):
                best = score, one
        if best is None:
            shown = ", ".join(self.types.type_name(g.type) for g in given)
            raise SqlError(
                UNDEFINED_FUNCTION,
                f"function {name}({shown}) does not exist",
                hint="No function matches the given name and argument types. "
                "You might need to add explicit type casts.",
                position=position,
            )
        return best[1]

    def _fits(self, given: Expr, wanted: int) -> int:
        if given.type == wanted:
            return 10
        if given.unknown:
            return 4 if wanted in (oids.TEXT, oids.NAME) else 2
        if wanted in _ANY_ELEMENT or wanted == oids.ANY:
            return 3
        if wanted in _ANY_ARRAY:
            return 3 if self.types.element(given.type) or given.type == oids.ANYARRAY else -1000
        if self.types.category(given.type) == self.types.category(wanted):
            return 6 if wanted in (oids.TEXT, oids.FLOAT8, oids.OID) else 5
        return 1 if wanted == oids.TEXT else -1000

    def call(self, name: str, given: Sequence[Expr], position: int) -> Expr:
        """A function that is neither an aggregate nor special. Raises SqlError."""
        if name in functions.INFORMATION:
            text, result = functions.INFORMATION[name]
            return self._made(name, text, given, self.types.static.type_names[result])
        if name in functions.MANY:
            spec, result = functions.MANY[name]
            listed = self._filled(self._text(name, spec, len(given)), given)
            kind = self.types.static.type_names[result]
            return Expr(f"unnest({listed})", kind, name=name, strength=2, many=True, listed=listed)
        if name in rights.NAMES:
            found = self.resolve(name, given, position)
            wanted = zip(given, found.arguments, strict=False)
            taken = [self._argument(one, kind, given) for one, kind in wanted]
            return self._made(name, rights.asked(name, found.arguments), taken, found.result)
        if name not in functions.SCALAR:
            self.resolve(name, given, position)
            raise unsupported(f"function {name} over the system catalog", position=position)
        if name == "pg_typeof":
            return Expr(str(given[0].type), oids.REGTYPE, name=name, strength=2)
        text = self._text(name, functions.SCALAR[name], len(given))
        if name == "timezone" and (zone := given[0].literal) is not None:
            given = [replace(given[0], literal=zones.icu(zones.named(zone), None)), *given[1:]]
        if name in ("timezone", "extract", "age", "text", "like_escape"):
            return self._made(name, text, given, self._special(name, given))
        found = self.resolve(name, given, position)
        taken = [self._argument(g, a, given) for g, a in zip(given, found.arguments, strict=False)]
        return self._made(name, text, taken, self._result(found, taken))

    def _special(self, name: str, given: Sequence[Expr]) -> int:
        if name == "timezone":
            return oids.TIMESTAMP if given[1].type == oids.TIMESTAMPTZ else oids.TIMESTAMPTZ
        return {"extract": oids.NUMERIC, "age": oids.INTERVAL}.get(name, oids.TEXT)

    def _text(self, name: str, spec: functions.Spec, count: int) -> str:
        if isinstance(spec, str):
            return spec
        if count in spec:
            return spec[count]
        return spec[min(spec, key=lambda n: abs(n - count))]

    def _argument(self, given: Expr, wanted: int, every: Sequence[Expr]) -> Expr:
        if wanted in _ANY_ARRAY or wanted in _ANY_ELEMENT or wanted == oids.ANY:
            if not given.unknown:
                return given
            element = next((self.types.element(e.type) for e in every if not e.unknown), 0)
            return self.types.to(given, element or oids.TEXT)
        if given.unknown:
            return self.types.to(given, wanted)
        same = self.types.category(given.type) == self.types.category(wanted)
        return given if same and given.type not in held_types.REG else self.types.to(given, wanted)

    def _result(self, found: Function, taken: Sequence[Expr]) -> int:
        if found.result in _ANY_ARRAY:
            return next((t.type for t in taken if self.types.element(t.type)), oids.TEXT)
        if found.result in _ANY_ELEMENT:
            element = next((self.types.element(t.type) for t in taken), 0)
            return element or taken[0].type
        return found.result

    def _made(self, name: str, text: str, given: Sequence[Expr], result: int) -> Expr:
        sql = self._filled(text, [self.types.settle(g) for g in given])
        for feed in FED:
            if feed in sql:
                self.types.needs.feeds[feed] = None
        if sql == "NULL":
            sql = f"CAST(NULL AS {self.types.held(result)})"
        return Expr(f"({sql})", result, name=name, strength=2)

    def _filled(self, text: str, given: Sequence[Expr]) -> str:
        text = self.fact(text)  # before the arguments: their parameters look the same
        for at, one in enumerate(given):
            text = text.replace(f"{{{at}}}", one.sql)
        if "{base}" in text:
            text = text.replace("{base}", "0" if given[0].type in held_types.VECTORS else "1")
        return re.sub(r"\{\d\}", "NULL", text)

    # -- aggregates

    def aggregate(
        self, name: str, given: Sequence[Expr], position: int
    ) -> tuple[str, int, list[str]]:
        """DuckDB's name of it, PostgreSQL's type of its result, its arguments."""
        if name == "count":
            return "count", oids.INT8, [g.sql for g in given]
        if not given:
            self.resolve(name, given, position)
        if name in ("bool_and", "bool_or", "every"):
            truth = self.types.to(given[0], oids.BOOL).sql
            return {"every": "bool_and"}.get(name, name), oids.BOOL, [truth]
        if name == "string_agg":
            return "string_agg", oids.TEXT, [self.types.to(g, oids.TEXT).sql for g in given]
        first = self.types.settle(given[0])
        if name == "array_agg":
            return "list", self.types.static.array_of(first.type) or 1009, [first.sql]
        if name in ("json_agg", "jsonb_agg"):
            return "json_group_array", oids.JSON if name == "json_agg" else oids.JSONB, [first.sql]
        if name == "sum":
            return "sum", _SUM.get(first.type, first.type), [first.sql]
        if name == "avg":
            return "avg", oids.FLOAT8 if first.type in (700, 701) else oids.NUMERIC, [first.sql]
        return name, first.type, [first.sql]

    def window(self, name: str, given: Sequence[Expr]) -> tuple[str, int, list[str]]:
        if name in ("row_number", "rank", "dense_rank"):
            return name, oids.INT8, []
        if name in ("percent_rank", "cume_dist"):
            return name, oids.FLOAT8, []
        settled = [self.types.settle(g) for g in given]
        kind = oids.INT4 if name == "ntile" else settled[0].type
        return name, kind, [s.sql for s in settled]
