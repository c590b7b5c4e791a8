"""WITH x AS (INSERT, UPDATE or DELETE … RETURNING …): the changes are made first, one after the
other, and what they return stands for them in the rest of the statement, as VALUES.

In PostgreSQL all parts of such a statement see the tables as they were before. Here a later part
would see the change: so a statement whose other parts read or change a table that WITH changes is
refused (0A000), but for an INSERT that adds rows to it without a look at it, and names the change,
which therefore comes before it in PostgreSQL, too. The rows that a change returns are held in
memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kv.base.limits import SQL_WITH_ROWS_MAX
from sqlproxy.front.bound.exprs import Const
from sqlproxy.front.bound.statements import (
    Cte,
    CteItem,
    Insert,
    Item,
    Select,
    TableItem,
)
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Row
from sqlproxy.rows.schema import Table
from sqlproxy.session.running.known_rows import values_of
from sqlproxy.session.shared.prepared import Prepared, plan_of
from sqlproxy.session.state.state import State
from sqlproxy.tables.writing import Outcome
from sqlproxy.values.errors import LIMIT_EXCEEDED, SqlError, unsupported

Run = Callable[[Prepared], Awaitable[Outcome]]


def changes_in(bound: object) -> bool:
    """Whether the statement's WITH changes anything."""
    return any(not isinstance(cte.statement, Select) for cte in getattr(bound, "ctes", ()))


async def carried_out(session: State, prepared: Prepared, run: Run) -> Prepared:
    """The statement without the changes of its WITH, which are made. `run`: makes one, as
    `sqlproxy.session.running.run_statements` does. Raises SqlError.
    """
    bound = prepared.bound
    _check_apart(bound)
    session.check_writable("WITH")
    done: list[Cte] = []
    for cte in bound.ctes:
        if isinstance(cte.statement, Select):
            done.append(cte)
            continue
        statement = cte.statement
        if done and any(True for _ in _named(statement)):
            statement = replace(statement, ctes=(*done, *statement.ctes))
        inner = replace(
            prepared, bound=statement, fields=statement.fields or None, plan=plan_of(statement)
        )
        outcome = await run(inner)
        if cte.columns:
            done.append(_known(cte, outcome.rows))
    rest = replace(bound, ctes=tuple(done))
    return replace(prepared, bound=rest, plan=plan_of(rest))


def _known(cte: Cte, rows: Sequence[Row]) -> Cte:
    """A WITH query of rows that are known."""
    if len(rows) > SQL_WITH_ROWS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED,
            f'the change "{cte.name}" in WITH returns more than {SQL_WITH_ROWS_MAX} rows',
            hint="Change fewer rows at a time, or in statements of their own in one transaction.",
        )
    select = values_of(cte.columns, rows or [(None,) * len(cte.columns)])
    if not rows:
        select = replace(select, limit=Const(oid=oids.INT4, value=0))
    return replace(cte, statement=select)


# -- what is refused


def _check_apart(bound: Any) -> None:
    """Raises 0A000 where one part would see what another changes."""
    names = [cte.name for cte in bound.ctes]
    parts = [*(cte.statement for cte in bound.ctes), replace(bound, ctes=())]
    changed = [None if isinstance(one, Select) else one.target.table.id for one in parts[:-1]]
    for later, part in enumerate(parts):
        own = changed[later] if later < len(changed) else None
        for earlier, one in enumerate(parts[:later]):
            for table in _tables(part):
                if changed[earlier] != table.id:
                    continue
                if not (_adds(part, table) and names[earlier] in _reached(parts, names, part)):
                    raise _seen(table.name)
            for table in _tables(one):
                if table.id == own and changed[earlier] != own:
                    raise _seen(table.name)


def _adds(part: Any, table: Table) -> bool:
    """Whether it puts rows into a table, and neither reads it nor changes rows of it."""
    if not isinstance(part, Insert) or part.conflict is not None:
        return False
    return part.target.table.id == table.id and [t.id for t in _tables(part)].count(table.id) == 1


def _reached(parts: Sequence[Any], names: Sequence[str], part: object) -> set[str]:
    """The WITH queries that a part reads, and those that these read."""
    found: set[str] = set()
    left = [part]
    while left:
        new = {*_named(left.pop())} - found
        found |= new
        left += [parts[names.index(name)] for name in new if name in names]
    return found


def _seen(name: str) -> SqlError:
    return unsupported(
        f'a statement whose WITH changes the table "{name}", which another part uses',
        hint="Make it two statements in one transaction.",
    )


def _tables(node: object) -> Iterator[Table]:
    """The tables that a bound tree reads or changes."""
    return (item.table for item in _items(node) if isinstance(item, TableItem))


def _named(node: object) -> Iterator[str]:
    """The WITH queries that a bound tree reads."""
    return (item.name for item in _items(node) if isinstance(item, CteItem))


def _items(node: object) -> Iterator[Item]:
    if isinstance(node, tuple):
        for one in node:
            yield from _items(one)
    elif is_dataclass(node) and not isinstance(node, type):
        if isinstance(node, TableItem | CteItem):
            yield node
            return
        for one in fields(node):
            if one.name not in ("fields", "tree"):
                yield from _items(getattr(node, one.name))
