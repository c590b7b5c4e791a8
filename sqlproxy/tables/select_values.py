"""SELECT over VALUES: rows that the statement itself brings along. SQLAlchemy's bulk insert is
`INSERT … SELECT … FROM (VALUES …) ORDER BY …`, so it must not cost a start of DuckDB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.statements import Select, SelectItem
from sqlproxy.front.closures.compiling import Fn, compile
from sqlproxy.front.stages.sequence_stages import takes
from sqlproxy.tables.rules import Row
from sqlproxy.tables.sorting import sort_key, sortable
from sqlproxy.values.errors import INVALID_LIMIT, INVALID_OFFSET, SqlError


def bounds(offset: Fn | None, limit: Fn | None, env: Env) -> tuple[int, int | None]:
    """How many rows are skipped, and how many come then. Raises SqlError for negative ones."""
    keep = None if limit is None else limit((), env)
    skip = None if offset is None else offset((), env)
    if keep is not None and keep < 0:
        raise SqlError(INVALID_LIMIT, "LIMIT must not be negative")
    if skip is not None and skip < 0:
        raise SqlError(INVALID_OFFSET, "OFFSET must not be negative")
    return skip or 0, keep


def listing_plan(select: Select) -> ListingPlan | None:
    """A plan for VALUES, or for a SELECT over one; None: it reads something else, or does more than
    filter, order and limit.
    """
    inner = select if select.values is not None else _listed(select)
    if inner is None or inner.values is None or _more(select) or (inner.order and inner != select):
        return None
    if any(map(takes, (one.expr for one in select.order))):
        return None
    if not sortable(select.order) or inner.subqueries or select.subqueries:
        return None
    if inner is not select and (_more(inner) or inner.limit or inner.offset or inner.where):
        return None
    return ListingPlan(select, inner)


def _listed(select: Select) -> Select | None:
    """The VALUES that is all of FROM."""
    if len(select.items) == 1 and isinstance(select.items[0], SelectItem):
        return select.items[0].select
    return None


def _more(select: Select) -> bool:
    return bool(
        select.operation
        or select.ctes
        or select.aggregates
        or select.windows
        or select.sets
        or select.distinct
        or select.distinct_on
        or select.with_ties
        or select.locking
    )


class ListingPlan:
    """`sequences`: what its expressions take numbers from, and how many at most; `count`: so
    many rows at most.
    """

    def __init__(self, select: Select, inner: Select) -> None:
        assert inner.values is not None
        compiled = [[compile(expr) for expr in row] for row in inner.values]
        self._rows: list[list[Fn]] = [[one.fn for one in row] for row in compiled]
        outer = [] if inner is select else [compile(target.expr) for target in select.targets]
        self._targets: list[Fn] = [one.fn for one in outer]
        self._numbered = any(one.numbered for one in outer)
        every = [one for row in compiled for one in row] + outer * len(compiled)
        self.sequences = Counter(name for one in every for name in one.taken)
        self.count = len(self._rows)
        self._where = None if select.where is None else compile(select.where).fn
        self._key: Callable[[Row, Env], bytes] | None = None
        if select.order:
            self._key = sort_key(select.order)
        self._limit = None if select.limit is None else compile(select.limit).fn
        self._offset = None if select.offset is None else compile(select.offset).fn

    def rows(self, env: Env) -> Sequence[Row]:
        """All rows; they are as many as the statement is long."""
        skip, keep = bounds(self._offset, self._limit, env)
        if keep == 0:
            return []
        found: Iterable[Row] = (tuple([fn((), env) for fn in row]) for row in self._rows)
        if self._where is not None:
            where = self._where
            found = (row for row in found if where(row, env) is True)
        if self._key is not None:
            key = self._key
            found = sorted(found, key=lambda row: key(row, env))
        rows = list(islice(found, None if keep is None else skip + keep))
        if self._numbered:  # numbers are taken for the rows that OFFSET skips, too
            return [tuple([fn(row, env) for fn in self._targets]) for row in rows][skip:]
        if self._targets:
            return [tuple([fn(row, env) for fn in self._targets]) for row in rows[skip:]]
        return rows[skip:]
