"""Which rows of the state DB are a partition's.

cur, lock   [start, end); these and hist in its storage shard (kv.base.shards)
hist, txn, guard
            the same keys, escaped; a guard by where its range begins
gcq         rows of the whole node in order of their due time: a partition's are known by the key
            inside
meta        b"r" [partition] …; for the meta partition also the records of SERVICES. Of these only
            SERVICES and CLOSED come from the log
"""

from __future__ import annotations

from typing import Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import META_PARTITION
from kv.base.keys import escape_open
from kv.base.limits import KEY_BYTES_MAX
from kv.base.shards import SHARDED
from kv.mvcc.records import RECORDS, parse_txn_key
from kv.replica.metakeys import CLOSED, SERVICES, meta_key
from kv.storage.engine import Batch, Engine

END_OF_KEYS: Final = b"\xff" * (2 * KEY_BYTES_MAX + 16)
"""Above every key: where a deletion needs an end and the range has none."""


def slices(descriptor: PartitionDescriptor) -> list[tuple[str, bytes, bytes]]:
    """(family, start, end) of the families that are cut at keys; end b"" = no bound."""
    start, end = descriptor.start, descriptor.end
    low, high = escape_open(start), escape_open(end)
    escaped = [(family, low, high) for family in ("txn", "guard")]
    return [("cur", start, end), ("hist", low, high), ("lock", start, end), *escaped]


def services(descriptor: PartitionDescriptor) -> tuple[bytes, ...]:
    """Keys of family meta that the log of this partition writes: for the cluster's services, and
    whether it is closed.
    """
    if descriptor.id == META_PARTITION:
        return SERVICES
    return (meta_key(descriptor.id, CLOSED),)


def is_due_here(descriptor: PartitionDescriptor, row: bytes) -> bool:
    """Whether a row of gcq is about a key of the partition. Raises ValueError if it is no row."""
    target = parse_txn_key(row[9:])[0] if row[8:9] in RECORDS else row[9:]
    return descriptor.covers(target)


def delete_slices(batch: Batch, engine: Engine, descriptor: PartitionDescriptor) -> None:
    """Remove everything of the partition that is cut at keys. Its rows in gcq stay."""
    engine = engine.shard(descriptor.shard)
    for family, start, end in slices(descriptor):
        batch.delete_range(start, end or END_OF_KEYS, engine.family(family))


def delete_own(batch: Batch, engine: Engine, descriptor: PartitionDescriptor) -> None:
    """`delete_slices` of the families alone that its storage shard has for itself."""
    engine = engine.shard(descriptor.shard)
    for family, start, end in slices(descriptor):
        if family in SHARDED and not engine.is_empty(family, start, end):
            batch.delete_range(start, end or END_OF_KEYS, engine.family(family))


def empty_slices(batch: Batch, engine: Engine, descriptor: PartitionDescriptor) -> None:
    """`delete_slices` for what is written anew in the same place: without a mark where nothing is,
    so that files can be taken in below.
    """
    engine = engine.shard(descriptor.shard)
    for family, start, end in slices(descriptor):
        if not engine.is_empty(family, start, end):
            batch.delete_range(start, end or END_OF_KEYS, engine.family(family))


def due_rows(
    engine: Engine, descriptor: PartitionDescriptor, start: bytes, rows_max: int
) -> tuple[list[bytes], bytes | None]:
    """The partition's rows among the next `rows_max` of gcq from `start` on, and where to go on,
    None at the end.
    """
    rows = engine.scan("gcq", start, b"", limit=rows_max)
    found = [row for row, _ in rows if is_due_here(descriptor, row)]
    return found, rows[-1][0] + b"\x00" if len(rows) == rows_max else None
