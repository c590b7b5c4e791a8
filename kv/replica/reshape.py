"""Applying an entry that changes what a partition is (kv.partition.shapes) to the state DB: one
batch each, with the applied index, so that a crash leaves the one or the other.

    split    the descriptor ends at the key; the new partition's records are there: descriptor,
             applied (BORN, highest timestamp), counters, safepoint, sizes; in the storage shard
             that the old one is in at this node. In memory intents and guards are cut in two. A
             node that is none of its founders removes its rows instead.
    freeze   record FROZEN with the entry's (index, term); thaw takes it away
    merge    the descriptor covers both; the partition above has no records any more but the marker
             ABSORBED, after which its log goes. Its rows stay. Both must be at this node, the one
             above frozen and applied up to the index that the entry names: or this replica stops.
    settle   the descriptor with its next epoch

Nothing in memory changes before the batch is written. Raises Unavailable: nothing was written, try
again.
"""

from __future__ import annotations

from dataclasses import replace

from kv.base.checksum import seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption
from kv.base.keys import u64
from kv.partition.shapes import BORN, Freeze, Merge, Settle, Shape, Split, Thaw
from kv.partition.sizes import SizeMap
from kv.replica.absorbing import absorb
from kv.replica.metakeys import (
    APPLIED,
    COLLECTED,
    COUNTERS,
    DESCRIPTOR,
    FROZEN,
    SAFEPOINT,
    SIZES,
    encode_descriptor,
    meta_key,
    pack_applied,
    pack_counters,
    pack_frozen,
)
from kv.replica.ranges import delete_slices
from kv.replica.state import PartitionState
from kv.storage.engine import Batch


def reshape(
    state: PartitionState,
    shape: Shape,
    *,
    index: int,
    term: int,
    node: int,
    above: PartitionState | None,
) -> PartitionState | None:
    """Apply the entry at (index, term); what a split made. `above`: of a merge, the partition that
    is taken in. Raises Unavailable, Corruption.
    """
    batch = state.batch()
    match shape:
        case Split():
            return _split(state, batch, shape, index=index, term=term, node=node)
        case Merge():
            _merge(state, batch, shape, above, index=index, term=term)
        case Freeze():
            _put(batch, state, FROZEN, pack_frozen(index, term))
            _become(state, batch, state.descriptor, shape.epoch, index, term)
            state.frozen = index, term
        case Thaw():
            batch.delete(meta_key(state.descriptor.id, FROZEN), _meta(state))
            _become(state, batch, state.descriptor, shape.epoch, index, term)
            state.frozen = None
        case Settle():
            _become(state, batch, state.descriptor, shape.epoch, index, term)
    return None


def _split(
    state: PartitionState, batch: Batch, shape: Split, *, index: int, term: int, node: int
) -> PartitionState | None:
    new = replace(shape.new, shard=state.descriptor.shard)
    founder = node in (*new.voters, *new.learners)
    state.fill(batch, (), shape.others)
    left, right = _halves(state.sizes, shape.key)
    made = PartitionState(state.engine, new, state.retention_ms, load=False)
    made.index, made.term = BORN
    made.top_ts, made.safepoint = state.top_ts, state.safepoint
    made.old_versions, made.live_bytes = shape.old_versions, shape.live_bytes
    made.collected = state.collected.cut(shape.live_bytes / max(1, state.live_bytes))
    _put(batch, state, COLLECTED, state.collected.record())
    if founder:
        _records(batch, made, right)
        _put(batch, made, COLLECTED, made.collected.record())
    else:
        delete_slices(batch, state.engine, new)
    old = state.old_versions - shape.old_versions, state.live_bytes - shape.live_bytes
    _put(batch, state, COUNTERS, pack_counters(*old))
    _put_sizes(batch, state, left)
    _become(state, batch, replace(state.descriptor, end=shape.key), shape.epoch, index, term)
    state.old_versions, state.live_bytes = old
    state.set_locks(shape.others)
    made.locks, made.guards = state.locks.cut(shape.key), state.guards.cut(shape.key)
    state.sizes, made.sizes = left, right
    return made if founder else None


def _merge(
    state: PartitionState,
    batch: Batch,
    shape: Merge,
    above: PartitionState | None,
    *,
    index: int,
    term: int,
) -> None:
    right = shape.right
    if above is None or above.frozen is None or above.index < shape.index:
        at = "is not here" if above is None else f"stands at {above.index} here"
        raise Corruption(
            f"partition {state.descriptor.id} takes in partition {right.id} as of index "
            f"{shape.index}, but that one {at}: this replica stops. Remove it, and let the others "
            "rebuild it",
            details={"partition": state.descriptor.id, "index": index},
        )
    if above.descriptor.shard != state.descriptor.shard:  # CAUGHT_UP sees to that
        raise Corruption(
            f"partition {state.descriptor.id} takes in partition {right.id}, but here they lie in "
            f"the storage shards {state.descriptor.shard!r} and {above.descriptor.shard!r}: this "
            "replica stops. Remove it, and let the others rebuild it",
            details={"partition": state.descriptor.id, "index": index},
        )
    sums = state.old_versions + above.old_versions, state.live_bytes + above.live_bytes
    sizes, _ = _halves(state.sizes, right.start)  # estimates may be wrong, and must stop nobody
    _, upper = _halves(above.sizes, right.start)
    sizes.join(upper)
    _put(batch, state, COUNTERS, pack_counters(*sums))
    state.collected.join(above.collected)
    _put(batch, state, COLLECTED, state.collected.record())
    _put_sizes(batch, state, sizes)
    safepoint = max(state.safepoint, above.safepoint)
    if safepoint:
        _put(batch, state, SAFEPOINT, u64(safepoint))
    absorb(batch, state.engine, above.descriptor)
    wide = replace(state.descriptor, end=right.end)
    _become(state, batch, wide, shape.epoch, index, term, top_ts=above.top_ts)
    state.old_versions, state.live_bytes = sums
    state.safepoint = safepoint
    state.locks.join(above.locks)
    state.guards.join(above.guards)
    state.sizes = sizes


def _become(
    state: PartitionState,
    batch: Batch,
    descriptor: PartitionDescriptor,
    epoch: int,
    index: int,
    term: int,
    *,
    top_ts: int = 0,
) -> None:
    """Write the batch with the new descriptor and the applied index."""
    new = replace(descriptor, epoch=epoch)
    key = meta_key(new.id, DESCRIPTOR)
    batch.put(key, encode_descriptor(key, new), _meta(state))
    state.write(batch, index=index, term=term, top_ts=top_ts)
    state.descriptor = new


def _records(batch: Batch, made: PartitionState, sizes: SizeMap) -> None:
    """All records of a partition that was split off."""
    key = meta_key(made.descriptor.id, DESCRIPTOR)
    batch.put(key, encode_descriptor(key, made.descriptor), _meta(made))
    _put(batch, made, APPLIED, pack_applied(made.index, made.term, made.top_ts))
    _put(batch, made, COUNTERS, pack_counters(made.old_versions, made.live_bytes))
    if made.safepoint:
        _put(batch, made, SAFEPOINT, u64(made.safepoint))
    _put_sizes(batch, made, sizes)


def _halves(sizes: SizeMap, key: bytes) -> tuple[SizeMap, SizeMap]:
    left = SizeMap.of(sizes.record())
    return left, left.cut(key)


def _put_sizes(batch: Batch, state: PartitionState, sizes: SizeMap) -> None:
    if len(sizes):
        _put(batch, state, SIZES, sizes.record())
    else:
        batch.delete(meta_key(state.descriptor.id, SIZES), _meta(state))


def _put(batch: Batch, state: PartitionState, kind: bytes, record: bytes) -> None:
    key = meta_key(state.descriptor.id, kind)
    batch.put(key, seal(key, record), _meta(state))


def _meta(state: PartitionState) -> object:
    return state.engine.family("meta")
