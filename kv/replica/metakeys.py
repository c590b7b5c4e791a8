"""Records of family `meta`: per partition, all sealed by their key (kv.base.checksum). Big-endian.

    b"r" [partition 8] b"a"   applied: [index 8][term 8][highest commit timestamp 8]
    b"r" [partition 8] b"d"   descriptor: msgpack of PartitionDescriptor.to_wire()
    b"r" [partition 8] b"s"   counters: [old versions 8, signed][live bytes 8, signed]
    b"r" [partition 8] b"g"   safepoint: [timestamp 8]
    b"r" [partition 8] b"k"   where its bytes lie: kv/partition/sizes.py
    b"r" [partition 8] b"t"   counts of its rows: kv/partition/collectors.py
    b"r" [partition 8] b"z"   frozen: [index 8][term 8] of the entry since which nobody is served
    b"r" [partition 8] b"m"   absorbed marker: the descriptor again, while its log is removed; its
                              rows belong to another partition now (kv/replica/reshape.py)
    b"r" [partition 8] b"c"   closed to new writes, for good: its table is being dropped. Empty;
                              from the partition's own log, and part of its snapshots
    b"r" [partition 8] b"x"   drop marker: the descriptor again, while it is being removed
    b"r" [partition 8] b"i"   install marker: the SnapshotId and the chunks that replace the range
                              now, [index 8][term 8][sender 8][number 8][chunks 8]
    b"r" [partition 8] b"o"   moving marker: the storage shard that the rows are copied to; what is
                              there is nobody's yet (kv/replica/shard_move.py)
    b"r" [partition 8] b"l"   lost: why its state or its log could not be read; it is not opened, so
                              that it neither votes nor acknowledges, until it is removed
Other keys belong to services, which seal their own. Those of the cluster (SERVICES) are written by
the meta partition's log and are part of its snapshots; the rest is this node's alone.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgpack

from kv.base.checksum import CRC_BYTES, seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.keys import u64
from kv.mvcc.records import verified

APPLIED: Final = b"a"
DESCRIPTOR: Final = b"d"
COUNTERS: Final = b"s"
SAFEPOINT: Final = b"g"
SIZES: Final = b"k"
COLLECTED: Final = b"t"
FROZEN: Final = b"z"
ABSORBED: Final = b"m"
CLOSED: Final = b"c"
DROPPING: Final = b"x"
INSTALLING: Final = b"i"
LOST: Final = b"l"
MOVING: Final = b"o"
SERVICES: Final = (b"tso", b"leases")

pack_applied = struct.Struct(">QQQ").pack
unpack_applied = struct.Struct(">QQQ").unpack_from
pack_counters = struct.Struct(">qq").pack
unpack_counters = struct.Struct(">qq").unpack_from
pack_frozen = struct.Struct(">QQ").pack
unpack_frozen = struct.Struct(">QQ").unpack_from
pack_installing = struct.Struct(">QQQQQ").pack
unpack_installing = struct.Struct(">QQQQQ").unpack_from


def meta_key(partition: int, kind: bytes) -> bytes:
    return b"r" + u64(partition) + kind


def encode_descriptor(key: bytes, descriptor: PartitionDescriptor) -> bytes:
    return seal(key, msgpack.packb(descriptor.to_wire()))


def decode_descriptor(key: bytes, record: bytes) -> PartitionDescriptor:
    """Raises Corruption."""
    row: Any = msgpack.unpackb(body(key, record))
    return PartitionDescriptor.from_wire(row)


def body(key: bytes, record: bytes) -> bytes:
    """What was sealed. Raises Corruption."""
    return verified("meta", key, record)[:-CRC_BYTES]
