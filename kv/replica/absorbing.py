"""What is left of a partition whose rows belong to another one from now on: a marker, after which
its log is removed (kv/replica/births.py).
"""

from __future__ import annotations

from typing import Final

from kv.base.descriptors import PartitionDescriptor
from kv.replica.metakeys import (
    ABSORBED,
    APPLIED,
    CLOSED,
    COLLECTED,
    COUNTERS,
    DESCRIPTOR,
    DROPPING,
    FROZEN,
    INSTALLING,
    LOST,
    MOVING,
    SAFEPOINT,
    SIZES,
    encode_descriptor,
    meta_key,
)
from kv.replica.shard_move import forget
from kv.replica.staging import clear
from kv.storage.engine import Batch, Engine

RECORDS: Final = (
    APPLIED,
    CLOSED,
    COLLECTED,
    COUNTERS,
    DESCRIPTOR,
    FROZEN,
    INSTALLING,
    LOST,
    MOVING,
    SAFEPOINT,
    SIZES,
)
"""All that family meta has of a partition, but for markers of its end."""


def absorb(batch: Batch, engine: Engine, gone: PartitionDescriptor) -> None:
    """Its rows stay, also if it was about to be removed with them."""
    forget(batch, engine, gone)
    meta = engine.family("meta")
    for kind in (*RECORDS, DROPPING):
        batch.delete(meta_key(gone.id, kind), meta)
    clear(engine, batch, gone.id)
    key = meta_key(gone.id, ABSORBED)
    batch.put(key, encode_descriptor(key, gone), meta)
