"""What EXPLAIN says of a node, in PostgreSQL's form: `(cost=0.00..1.35 rows=3 width=8)`.

Rows and widths come from statistics, of a table without any from the shares that PostgreSQL takes
then. Costs are in its unit, one page that is read in order: a request is one, a row a hundredth, a
row that an index leads to three of them. They compare ways; they are no time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kv.base.limits import SQL_SCAN_ROWS
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Expr
from sqlproxy.tables.reading import TableReader
from sqlproxy.tables.statistics import Estimates, rows_of, together, width

_REQUEST: Final = 1.0
_ROW: Final = 0.01
_LOOKED_UP: Final = 0.03
_COMPARED: Final = 0.0025
_GIVEN: Final = 0.005  # of all rows, for a component that is given, …
_RANGED: Final = 1 / 3  # … or has a range


@dataclass(frozen=True, slots=True)
class Figure:
    start: float
    total: float
    rows: float
    width: int

    def __str__(self) -> str:
        rows = max(1, round(self.rows))
        return f"  (cost={self.start:.2f}..{self.total:.2f} rows={rows} width={self.width})"

    def beside(self, other: Figure) -> Figure:
        """Both, one after the other."""
        return replace(self, total=self.total + other.total, rows=self.rows + other.rows)

    def sorted(self) -> Figure:
        """All of its rows, then in order."""
        compared = self.rows * math.log2(max(2.0, self.rows)) * _COMPARED
        total = self.total + compared
        return replace(self, start=total, total=total + self.rows * _ROW)

    def limited(self, rows: int | None) -> Figure:
        """Its first rows."""
        if rows is None or rows >= self.rows:
            return self
        share = rows / max(self.rows, 1.0)
        return replace(self, total=self.start + (self.total - self.start) * share, rows=float(rows))

    def written(self) -> Figure:
        """Its rows are changed, and nothing comes out."""
        return Figure(self.start, self.total + self.rows * _LOOKED_UP, 0.0, 0)


NOTHING: Final = Figure(0.0, 0.01, 1.0, 0)


class Figures:
    """Of one statement. `shown`: COSTS is not off."""

    def __init__(self, estimates: Estimates | None, env: Env, *, shown: bool) -> None:
        self.env = env
        self._estimates, self._shown = estimates, shown

    def said(self, figure: Figure) -> str:
        return str(figure) if self._shown else ""

    def chosen(self, reader: TableReader) -> TableReader:
        """What reads instead of it where the order does not matter."""
        return reader.unless_many(self.env, self._estimates)

    def scan(self, reader: TableReader, conditions: Sequence[Expr] = ()) -> Figure:
        """Of all ways of a reader; `conditions`: what its rows have to meet."""
        found = self.way(reader)
        for one in reader.ways[1:]:
            found = found.beside(self.way(one))
        known = None if self._estimates is None else self._estimates.of(reader.table)
        rows = found.rows
        if conditions:
            rows = rows_of(known) * together(known, reader.table, conditions, self.env)
        return replace(found, rows=min(rows, found.rows) if reader.access.points else rows)

    def way(self, reader: TableReader) -> Figure:
        """Of one way alone, all that it reads."""
        table, access = reader.table, reader.access
        known = None if self._estimates is None else self._estimates.of(table)
        rows = self._unknown(reader) if known is None else reader.alone(self.env, known)
        each = _ROW if access.index is None or reader.covered else _LOOKED_UP
        requests = max(1, math.ceil(rows / SQL_SCAN_ROWS))
        wanted = reader.wanted
        columns = [one for one in table.columns if wanted is None or one.id in wanted]
        return Figure(0.0, requests * _REQUEST + rows * each, rows, width(known, columns))

    def _unknown(self, reader: TableReader) -> float:
        spans, access, rows = reader.spans(self.env), reader.access, rows_of(None)
        if spans.points:
            return float(len(spans.points))
        if access.whole:
            return rows
        shares = sum(
            _GIVEN ** len(one.given) * (_RANGED if one.ranged else 1) for one in access.stretches
        )
        return max(1.0, rows * min(1.0, shares))
