"""What can raise, computed row by row after DuckDB. Pure.

DuckDB computes some thousand rows at a time, so a row that fails may stand after a LIMIT, or
after rows that a cursor gives out first. A query that failed before its first row runs once more:
DuckDB makes the rows without what can raise, and closures do the rest in the order of the rows, up
to the one that fails. Only a query over FROM and WHERE can wait so; what is grouped or sorted by
needs all rows in PostgreSQL too. A query that does not fail never comes here, and is as quick as
DuckDB is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import walk
from sqlproxy.front.bound.statements import Select, SubQuery
from sqlproxy.front.closures.compiling import Fn
from sqlproxy.front.closures.raising import inside
from sqlproxy.pg.answers import Row
from sqlproxy.tables.selecting import in_pieces

Places = tuple[int, ...]


def patient(select: Select) -> bool:
    """Whether a query may come further when it runs so: see `Selects`."""
    return waits(select) or any(isinstance(one, SubQuery) for one in inside(select))


def waits(select: Select) -> bool:
    """Whether the list of a query may be computed after its rows."""
    return bool(select.items) and not (
        select.aggregates
        or select.sets
        or select.distinct
        or select.distinct_on
        or select.operation is not None
        or select.values is not None
        or select.with_ties
        or select.locking
    )


def waits_with_where(select: Select) -> bool:
    """The same of WHERE: nothing depends on all rows that it leaves."""
    bounds = (one for one in (select.limit, select.offset) if one is not None)
    return (
        waits(select)
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

    @property
    def done(self) -> bool:
        """There are no more rows."""
        return self.keep == 0

    def pieces(self, rows: Sequence[Row], env: Env) -> Iterator[list[Row]]:
        """What becomes of some rows of DuckDB, piece by piece; the error of the first
        that fails comes after them. Raises SqlError.
        """
        return in_pieces(rows, lambda row: None if self.done else self._made(row, env))

    def _made(self, row: Row, env: Env) -> Row | None:
        for condition, places in self.conditions:
            if condition([row[at] for at in places], env) is not True:
                return None
        if self.skip:
            self.skip -= 1
            return None
        made = tuple(
            row[places[0]] if fn is None else fn([row[at] for at in places], env)
            for fn, places in self.targets
        )
        if self.keep is not None:
            self.keep -= 1
        return made
