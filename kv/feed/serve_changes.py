"""CHANGES at the partition: which way to the versions, and how far they are complete. The argument
is in kv/feed/changes.py.
"""

from __future__ import annotations

from typing import Protocol

from kv.base.wire_row import WireRow
from kv.feed.changes import check_above, size_of, walk, whole_versions
from kv.feed.recent import Intents, Recent
from kv.mvcc.view import Versions


class Applied(Versions, Protocol):
    """The partition's applied state."""

    @property
    def locks(self) -> Intents: ...

    @property
    def top_ts(self) -> int: ...


def read_ts_of(r: WireRow) -> int:
    """The timestamp that the request must wait for, 0 = it is a closed one."""
    return 0 if r[10] else int(r[7])


def changes(state: Applied, recent: Recent, r: WireRow) -> list[object]:
    """The result fields: rows, frontier, cursor, mark, resolved, large. Nothing at or below
    `read_ts` is in flight on the range. Raises SnapshotTooOld, Corruption, InvalidArgument.
    """
    start, end, read_ts, limit, above, closed, bytes_max, cursor = r[5:]
    recent.begin(state.top_ts)
    check_above(above, state.safepoint)
    frontier = read_ts
    if not closed:
        cursor = None
        frontier = max(above, recent.below_intents(state.locks, read_ts))
    if frontier <= above:
        return [[], above, None, recent.mark, above, 0]
    window = {"above": above, "upto": frontier, "limit": limit, "bytes_max": bytes_max}
    if above < recent.floor:
        rows, rest = walk(state, start, end, cursor=cursor, **window)
    elif closed:
        rows, rest = recent.page(start, end, cursor=cursor, **window)
    else:
        kept, upto = recent.versions(start, end, above, frontier, rows_max=limit)
        rows, upto, large = whole_versions(kept, upto, limit=limit, bytes_max=bytes_max)
        return [rows, upto, None, recent.mark, frontier, large]
    return [rows, frontier, rest, recent.mark, frontier, 0]


def bytes_of(result: WireRow) -> int:
    """Of the keys and values in a result."""
    return sum(map(size_of, result[0]))
