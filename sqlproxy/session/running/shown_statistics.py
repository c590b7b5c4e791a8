"""What pg_stats shows of what is known of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlproxy.pg import oids
from sqlproxy.pg.arrays import array_writer
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.schema import Column, Table
from sqlproxy.session.state.state import State
from sqlproxy.tables.statistics import Known, TableStatistics

_written = array_writer(str, oids.TEXT)


async def pg_stats(session: State) -> list[Mapping[str, object]]:
    """The rows of pg_stats: of columns that the session may read."""
    statistics = session.services.statistics
    if statistics is None:
        return []
    declared = await session.declared()
    rights = session.permits.rights(declared)
    found: list[Mapping[str, object]] = []
    heads = await statistics.sizes()
    for table in declared.contents.tables():
        if table.id not in heads:
            continue
        user, columns = session.permits.acting, table.visible
        if not (session.permits.free or rights.allows(user, table, "r")):
            columns = tuple(c for c in columns if rights.allows_columns(user, table, "r", [c.id]))
        if not columns:
            continue
        if (known := statistics.of(table)) is None:
            await statistics.bring([table])
            known = statistics.of(table)
        if known is not None:
            found += _rows(table, columns, known)
    return found


def _rows(
    table: Table, columns: Sequence[Column], known: TableStatistics
) -> list[Mapping[str, object]]:
    return [
        {
            "schemaname": schema_of(table.namespace),
            "tablename": str(table.name),
            "attname": column.name,
            "inherited": False,
            "null_frac": of.nulls,
            "avg_width": of.width,
            "n_distinct": of.distinct,
            "most_common_vals": _listed(of.common),
            "most_common_freqs": list(of.shares) or None,
            "histogram_bounds": _listed(of.bounds),
        }
        for column in columns
        if (of := known.columns.get(column.id)) is not None
    ]


def _listed(values: Sequence[Known]) -> str | None:
    """As an array's text."""
    return _written([one.text for one in values]) if values else None
