"""Changes of a table whose column is being replaced (ALTER COLUMN … TYPE) wait until it has the new
one: a moment, unless a process that serves SQL is silent. However many wait, one asks the store. In
a transaction whose snapshot is older than that they would read what is not there yet, so it has to
run again (40001).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from kv.base.limits import SQL_EXPEL_MS, SQL_SETTLE_MS
from sqlproxy.front import statements as s
from sqlproxy.rows.schema import Table
from sqlproxy.tables.changing import being_changed

if TYPE_CHECKING:
    from sqlproxy.session.prepared import Prepared
    from sqlproxy.session.session import SqlSession

_WAIT_MS: Final = 2 * (SQL_SETTLE_MS + SQL_EXPEL_MS)


def frozen(bound: Any) -> Table | None:
    """The table that a change would write and may not."""
    match bound:
        case s.Insert() | s.Update() | s.Delete() | s.Merge():
            table: Table = bound.target.table
        case s.Copy() if bound.source and bound.target is not None:
            table = bound.target.table
        case _:
            return None
    return table if table.frozen else None


async def thawed(
    session: SqlSession, table: Table, current: Callable[[], Awaitable[Prepared]]
) -> Prepared:
    """The statement, bound to the table as it is then. Raises SqlError (40001)."""
    catalogs = session.services.catalogs
    timers = session.services.client.timers
    until = timers.monotonic() + _WAIT_MS / 1000
    while timers.monotonic() < until and session.block.transaction is None:
        found = await current()
        if frozen(found.bound) is None:
            return found
        assert found.declared is not None
        await catalogs.changed(found.declared, until)
    raise being_changed(table)
