"""UPDATE … FROM, DELETE … USING, MERGE, and changes with subqueries: DuckDB finds which rows are
meant and what the other tables say; the plans of `sqlproxy.tables.writing` do the writing.

The row that expressions see is the target's columns, those of the other items, then one more column
for each subquery in SET or a condition: `taken_out` puts them there. A target that several rows
join is changed once, as in PostgreSQL, by whichever comes first; MERGE refuses it (21000).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kv.base.limits import SQL_LOOKUP_ROWS
from sqlproxy.analytic.selects import Query, Selects
from sqlproxy.front.bound.exprs import TAKING, Call, Case, Coalesce, Column, Default, Expr, Logic
from sqlproxy.front.bound.folding import rebuilt
from sqlproxy.front.bound.statements import (
    Assignment,
    Delete,
    Insert,
    Merge,
    MergeWhen,
    SubQuery,
    Update,
    shown,
)
from sqlproxy.front.bound.trees import inside
from sqlproxy.front.closures.compiling import Fn, compile
from sqlproxy.front.closures.raising import raises
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Table
from sqlproxy.tables.reading import Stored
from sqlproxy.tables.row_locking import Wait, has_room, lock_found
from sqlproxy.tables.writing import DeletePlan, InsertPlan, Outcome, UpdatePlan, Work
from sqlproxy.values.errors import CARDINALITY_VIOLATION, SqlError, unsupported

Found = Sequence[Sequence[Any]]
Run = Callable[[Callable[[Selects], Query]], Awaitable[list[Sequence[Any]]]]
"""Runs the query that this makes; all its rows."""


def _spares(expr: Expr) -> bool:
    """Whether it keeps a query inside from rows for which that would raise: DuckDB computes the
    whole of it then, and knows when.
    """
    if not isinstance(expr, Case | Coalesce | Logic):
        return False
    parts = list(inside(expr))
    return (
        any(isinstance(one, SubQuery) for one in parts)
        and not any(isinstance(one, Call) and one.proc.source in TAKING for one in parts)
        and raises(expr)
    )


@dataclass(slots=True)
class _Taken:
    """Subqueries that became columns after the row of all items, with what spares them."""

    width: int
    subqueries: list[Expr]

    def out_of(self, expr: Expr) -> Expr:
        def change(part: Expr) -> Expr | None:
            if not isinstance(part, SubQuery) and not _spares(part):
                return None
            self.subqueries.append(part)
            at = self.width + len(self.subqueries) - 1
            return Column(oid=part.oid, typmod=part.typmod, index=at, name="subquery")

        return rebuilt(expr, change)

    def assignments(self, given: Sequence[Assignment]) -> tuple[Assignment, ...]:
        return tuple(replace(one, value=self.out_of(one.value)) for one in given)


async def change(work: Work, bound: Update | Delete | Merge, run: Run) -> Outcome:
    """Raises SqlError."""
    if bound.target.table.plain:
        raise unsupported("changing a plain key-value table by a join")
    match bound:
        case Merge():
            return await _merge(work, bound, run)
        case _ if bound.current_of:
            raise unsupported("WHERE CURRENT OF")
        case Update():
            return await _update(work, bound, run)
        case _:
            return await _delete(work, bound, run)


async def insert(work: Work, bound: Insert, run: Run) -> Outcome:
    """INSERT whose query stands after WITH. Raises SqlError."""
    assert bound.select is not None
    select = replace(bound.select, ctes=(*bound.ctes, *bound.select.ctes))
    found = await run(lambda selects: selects.query(select))
    return await InsertPlan(replace(bound, ctes=())).run(work, found)


async def _update(work: Work, bound: Update, run: Run) -> Outcome:
    taken = _Taken(_width(bound), [])
    assignments = taken.assignments(bound.assignments)
    found = await run(
        lambda selects: selects.meant(bound.items, bound.where, taken.subqueries, bound.ctes)
    )
    rows = await _joined(work, bound.target.table, _once(found))
    plan = UpdatePlan(replace(bound, assignments=assignments), finds=False)
    return await plan.run(work, rows)


async def _delete(work: Work, bound: Delete, run: Run) -> Outcome:
    found = await run(lambda selects: selects.meant(bound.items, bound.where, (), bound.ctes))
    rows = await _joined(work, bound.target.table, _once(found))
    return await DeletePlan(bound, finds=False).run(work, rows)


# -- MERGE


@dataclass(slots=True)
class _When:
    """One WHEN, compiled. `rows`: those that it applies to."""

    when: MergeWhen
    condition: Fn | None
    rows: list[tuple[Stored | None, tuple[Any, ...]]]


async def _merge(work: Work, bound: Merge, run: Run) -> Outcome:
    taken = _Taken(_width(bound), [])
    whens = []
    for one in bound.whens:
        condition = None if one.condition is None else taken.out_of(one.condition)
        made = replace(one, condition=condition, assignments=taken.assignments(one.assignments))
        whens.append(_When(made, None if condition is None else compile(condition).fn, []))
    found = await run(
        lambda selects: selects.meant(bound.items, None, taken.subqueries, bound.ctes, bound.on)
    )
    stored = await _stored(work, bound.target.table, [row[0] for row in found if row[0]])
    nothing = (None,) * len(bound.target.columns)
    seen_of = _Shown(bound.target.table)
    changed: set[bytes] = set()
    for key, *rest in found:
        old = stored[key] if key is not None else None
        seen = (*(nothing if old is None else seen_of(old.values)), *rest)
        for way in whens:
            if way.when.matched is not (old is not None):
                continue
            if way.condition is not None and way.condition(seen, work.env) is not True:
                continue
            if old is not None and way.when.action != "nothing":
                if key in changed:
                    raise SqlError(
                        CARDINALITY_VIOLATION,
                        "MERGE command cannot affect row a second time",
                        hint="Ensure that not more than one source row matches any one target row.",
                    )
                changed.add(key)
            way.rows.append((old, seen))
            break
    return await _merged(work, bound, whens)


async def _merged(work: Work, bound: Merge, whens: Sequence[_When]) -> Outcome:
    """What goes is deleted first, so that what comes may have its keys."""
    total = Outcome()
    order = ("delete", "update", "insert")
    for one in sorted(
        (w for w in whens if w.rows and w.when.action in order),
        key=lambda w: order.index(w.when.action),
    ):
        olds = [(old, seen) for old, seen in one.rows if old is not None]
        match one.when.action:
            case "delete":
                delete = Delete(target=bound.target, items=bound.items)
                part = await DeletePlan(delete, finds=False).run(work, olds)
            case "update":
                update = Update(
                    target=bound.target,
                    items=bound.items,
                    assignments=one.when.assignments,
                )
                part = await UpdatePlan(update, finds=False).run(work, olds)
            case _:
                part = await _inserted(work, bound, one)
        total.count += part.count
        total.writers += part.writers
        total.again = True
    return total


async def _inserted(work: Work, bound: Merge, one: _When) -> Outcome:
    given = [a for a in one.when.assignments if not isinstance(a.value, Default)]
    insert = Insert(
        target=bound.target,
        columns=tuple(a.column for a in given),
        conversions=tuple(a.value for a in given),
        overriding=one.when.overriding,
    )
    # Where nothing is given, all of a row are defaults.
    rows: list[Sequence[object]] = [seen if given else () for _, seen in one.rows]
    return await InsertPlan(insert).run(work, rows)


# -- rows


class _Shown:
    """The columns that statements see, out of a stored row."""

    def __init__(self, table: Table) -> None:
        seen = {column.id for column in shown(table)}
        self._places = tuple(at for at, c in enumerate(table.columns) if c.id in seen)

    def __call__(self, values: Sequence[object]) -> tuple[object, ...]:
        return tuple(values[at] for at in self._places)


def _width(bound: Update | Delete | Merge) -> int:
    return sum(len(item.columns) for item in bound.items)


def _once(found: Found) -> Found:
    """The first row of each target."""
    by_key: dict[bytes, Sequence[object]] = {}
    for row in found:
        by_key.setdefault(row[0], row)
    return list(by_key.values())


async def _joined(
    work: Work, table: Table, found: Found
) -> list[tuple[Stored, tuple[object, ...]]]:
    """Each old row with the row that expressions see."""
    stored = await _stored(work, table, [row[0] for row in found])
    seen_of = _Shown(table)
    return [(stored[key], (*seen_of(stored[key].values), *rest)) for key, *rest in found]


async def _stored(work: Work, table: Table, keys: Sequence[bytes]) -> dict[bytes, Stored]:
    """The rows at storage keys, which are there: the same snapshot named them."""
    rows = codec(table)
    found: dict[bytes, Stored] = {}
    wanted = sorted(set(keys))
    if has_room(work.t, len(wanted)):
        await lock_found(work.t, wanted, Wait(table.name))
    for at in range(0, len(wanted), SQL_LOOKUP_ROWS):
        some = wanted[at : at + SQL_LOOKUP_ROWS]
        work.touched.get(len(some))
        there = await work.t.multi_get(some, tally=work.touched.tally)
        for key, one in zip(some, there, strict=True):
            assert one is not None, "the scan of the same snapshot had it"
            found[key] = Stored(key, rows.decode_row(key[4:], one[0]), one[1])
    return found
