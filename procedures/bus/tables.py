"""Upkeep of a table's files on all its hosts at once, as one-phase operations (N9).

    kvorum.flush_table    {namespace, table} or {partitions}, timeout_ms?   memory into files
    kvorum.compact_table  the same                                          rewrite the files

Both lock the table, shared: DDL on it and they exclude each other. Given partitions they lock
nothing. Each host is asked for the partitions that it has; one that moves meanwhile is done at its
new hosts, too. Both are harmless to repeat, and there is nothing to take back: an operation that
fails stops at those who have not begun. What is flushed is the whole database of a host, since its
tables share it; compaction rewrites the ranges of the partitions alone.

Results: {targets: {node: {partitions, took_ms}}}.
"""

from __future__ import annotations

from typing import ClassVar

from kv.base.errors import InvalidArgument
from procedures.bus import targets
from procedures.bus.phases import OnePhase, table_lock
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.registry import procedure

FLUSH = "flush"
COMPACT = "compact"


class _OfTable(OnePhase):
    async def wanted(self, ctx: StepContext) -> Plain:
        match ctx.args:
            case {"namespace": str(namespace), "table": str(name)}:
                table = {"namespace": namespace, "name": name}
                return await targets.wanted(ctx, {"table": table})
            case {"partitions": list(ids)}:
                return await targets.wanted(ctx, {"partitions": ids})
            case args:
                raise InvalidArgument(
                    f"{ctx.name} wants {{namespace, table}} or {{partitions: [id, …]}}, "
                    f"got {args!r:.120}"
                )


@procedure("kvorum.flush_table", locks=table_lock)
class FlushTable(_OfTable):
    """See the module."""

    kind: ClassVar[str] = FLUSH
    leaves_nothing: ClassVar[bool] = True


@procedure("kvorum.compact_table", locks=table_lock)
class CompactTable(_OfTable):
    """See the module."""

    kind: ClassVar[str] = COMPACT
    leaves_nothing: ClassVar[bool] = True
