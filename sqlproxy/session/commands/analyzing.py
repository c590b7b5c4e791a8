"""ANALYZE."""

from __future__ import annotations

from collections.abc import Sequence

from sqlproxy.front.bound import statements as s
from sqlproxy.rows.schema import PUBLIC, Table
from sqlproxy.session.state.state import State


async def analyze(session: State, bound: s.Analyze) -> None:
    """Look at tables now, as they are committed. Raises SqlError, KvorumError."""
    statistics = session.services.statistics
    if statistics is None:
        return
    declared = await session.declared()
    tables: Sequence[Table] = bound.tables or declared.contents.tables()
    only = bound.only or (frozenset[int](),) * len(tables)
    rights = session.permits.rights(declared)
    for table, columns in zip(tables, only, strict=True):
        if table.plain or table.state != PUBLIC or table.private:
            continue  # what only the session has is in its memory: there is nothing to sample
        user = session.permits.acting
        if not (session.permits.free or rights.owns(user, table) or rights.owns_database(user)):
            words = f'skipping "{table.name}" --- only table or database owner can analyze it'
            session.notice(words, "WARNING", "01000")
            continue
        await statistics.analyze(table, columns or None, turn=session.turn)
