"""From a transaction's id to its anchor: one seek, because the due time of its row in gcq follows
from the id.
"""

from __future__ import annotations

from kv.mvcc.records import find_range, parse_find
from kv.mvcc.view import GcView


def find(view: GcView, start_ts: int) -> bytes | None:
    """The anchor under which the record of `start_ts` lies on this node, None if there is none."""
    first, past = find_range(start_ts)
    for row, _ in view.scan("gcq", first, past, limit=2):
        anchor = parse_find(row, start_ts)
        if anchor is not None:
            return anchor
    return None
