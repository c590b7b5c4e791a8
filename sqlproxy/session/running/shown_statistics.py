"""What pg_stats shows of what is known of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlproxy.pg import oids
from sqlproxy.pg.arrays import array_writer
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.schema import Table
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
        if not (session.permits.free or rights.allows(session.permits.acting, table, "r")):
            continue
        if (known := statistics.of(table)) is None:
            await statistics.bring([table])
            known = statistics.of(table)
        if known is not None:
            found += _rows(table, known)
    return found


def _rows(table: Table, known: TableStatistics) -> list[Mapping[str, object]]:
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
        for column in table.visible
        if (of := known.columns.get(column.id)) is not None
    ]


def _listed(values: Sequence[Known]) -> str | None:
    """As an array's text."""
    return _written([one.text for one in values]) if values else None
