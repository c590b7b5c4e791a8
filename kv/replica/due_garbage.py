"""What is due in a node's gcq, split by partition.

All partitions of a node share the queue, in order of time; so it is looked through once for all of
them, not once per partition. Rows of a key that no replica here covers are left of a partition that
was removed: nobody will ever collect them, so they go without the log, which has none for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import PartitionId
from kv.base.keys import u64
from kv.mvcc.records import RECORDS, parse_txn_key
from kv.storage.engine import Engine

Covering = Callable[[bytes], PartitionDescriptor | None]


@dataclass(slots=True)
class DueRows:
    """A slice of the queue, each list in order of time."""

    of: dict[PartitionId, list[bytes]] = field(default_factory=dict)
    strangers: list[bytes] = field(default_factory=list)
    at: bytes | None = None  # where to look on; None: that was all


def due_rows(
    engine: Engine, covering: Covering, at: bytes, safepoint: int, rows_max: int
) -> DueRows:
    """Up to `rows_max` rows from `at` on that are due at `safepoint`."""
    found = DueRows()
    rows = engine.scan("gcq", at, u64(safepoint + 1), limit=rows_max)
    for row, _ in rows:
        partition = covering(target_of(row))
        if partition is None:
            found.strangers.append(row)
        else:
            found.of.setdefault(partition.id, []).append(row)
    if len(rows) == rows_max:
        found.at = rows[-1][0] + b"\x00"
    return found


def target_of(row: bytes) -> bytes:
    """The key that a row is about; of a transaction its anchor."""
    return parse_txn_key(row[9:])[0] if row[8:9] in RECORDS else row[9:]


def start_ts_of(row: bytes) -> int | None:
    """The transaction that a row is about, None for a row of a key."""
    return parse_txn_key(row[9:])[1] if row[8:9] in RECORDS else None


def forget(engine: Engine, rows: Sequence[bytes]) -> None:
    """Remove rows of nobody. Raises Unavailable: nothing was written."""
    batch = engine.batch()
    queue = engine.family("gcq")
    for row in rows:
        batch.delete(row, queue)
    engine.write(batch)
