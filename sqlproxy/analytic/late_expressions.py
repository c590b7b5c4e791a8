"""What is computed row by row after DuckDB, in the order of the rows. Pure.

DuckDB computes some thousand rows at a time, and sorts what it has computed. So what closures
compute of the outermost list of a query, and nothing is sorted by, is left to when its row goes
out: a LIMIT spares the rows behind it, and so does a cursor that nobody reads to its end. Where
LIMIT stands further inside, a query around it computes the list for the rows that are left.

A row that fails in DuckDB may stand after such a bound, too. A query that failed before its first
row runs once more, and all that can raise waits. Only a query over FROM and WHERE can wait so; what
is grouped or sorted by needs all rows in PostgreSQL too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import walk
from sqlproxy.front.bound.statements import Select, SubQuery
from sqlproxy.front.bound.trees import inside
from sqlproxy.front.closures.compiling import Fn
from sqlproxy.pg.answers import Row
from sqlproxy.tables.selecting import growing, in_pieces
from sqlproxy.values.errors import SqlError
from sqlproxy.values.memory import now

Places = tuple[int, ...]


def patient(select: Select) -> bool:
    """Whether a query may come further when it runs so: see `Selects`."""
    return waits_for_errors(select) or any(isinstance(one, SubQuery) for one in inside(select))


def waits(select: Select) -> bool:
    """Whether the list of a query may be computed after its rows."""
    return not (
        select.sets
        or select.distinct
        or select.distinct_on
        or select.operation is not None
        or select.values is not None
        or select.with_ties
    )


def waits_for_errors(select: Select) -> bool:
    """The same of all that can raise."""
    return bool(select.items) and waits(select) and not (select.aggregates or select.locking)


def waits_with_where(select: Select) -> bool:
    """The same of WHERE: nothing depends on all rows that it leaves."""
    bounds = (one for one in (select.limit, select.offset) if one is not None)
    return (
        waits_for_errors(select)
        and not (select.order or select.windows)
        and not any(isinstance(part, SubQuery) for one in bounds for part in walk(one))
    )


@dataclass(slots=True)
class Late:
    """`conditions` and `targets`: closures of the columns at these places of DuckDB's rows; a
    target without one is that column. `skip`, `keep`: OFFSET and LIMIT, if conditions wait.
    """

    conditions: list[tuple[Fn, Places]] = field(default_factory=list)
    targets: list[tuple[Fn | None, Places]] = field(default_factory=list)
    skip: int = 0
    keep: int | None = None
    before: int = 0  # so many rows of DuckDB were there

    @property
    def done(self) -> bool:
        """There are no more rows."""
        return self.keep == 0

    def pieces(self, rows: Sequence[Row], env: Env) -> Iterator[list[Row]]:
        """What becomes of some rows of DuckDB, piece by piece; the error of the first
        that fails comes after them. Raises SqlError.
        """
        for some in growing(rows, self.before):
            now().fresh()
            try:
                made = None if self.conditions else [self._made(row, env) for row in some]
            except SqlError:
                made = None
            if made is None:
                yield from in_pieces(some, lambda row: self._kept(row, env))
            else:
                yield made
        self.before += len(rows)

    def _made(self, row: Row, env: Env) -> Row:
        return tuple(
            row[places[0]] if fn is None else fn([row[at] for at in places], env)
            for fn, places in self.targets
        )

    def _kept(self, row: Row, env: Env) -> Row | None:
        if self.done:
            return None
        for condition, places in self.conditions:
            if condition([row[at] for at in places], env) is not True:
                return None
        if self.skip:
            self.skip -= 1
            return None
        made = self._made(row, env)
        if self.keep is not None:
            self.keep -= 1
        return made
