"""What may still be written where a disk is nearly full: what frees space, and the system's own
small records, without which nothing could be dropped.

Requests that only delete, and those of the system tables (procedures, the catalog), are small.
They go on until DISK_FREE_BYTES_LAST is touched, too; puts of users' rows wait for room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kv.base.errors import KvorumError
from kv.base.ids import FIRST_USER_TABLE
from kv.base.keys import u32
from kv.base.limits import DISK_FREE_BYTES_LAST, KiB
from kv.base.methods import DELETE, OP_CHECK, OP_DELETE, OP_PUT, OP_TOMBSTONE, PARTITION_VERBS, PUT
from kv.base.verbs import PARTITION_ARGS_AT, Touches

DISK_FREE: Final = "disk_free_bytes"  # what a refusal is about (kv.storage)
_BYTES_MAX: Final = 256 * KiB
_FREEING: Final = frozenset({OP_DELETE, OP_TOMBSTONE, OP_CHECK})
_USERS: Final = u32(FIRST_USER_TABLE)
_OPS_AT: Final = {
    one.number: one.at(one.keys) for one in PARTITION_VERBS if one.touches is Touches.OPS
}


def goes_on(refusal: KvorumError, row: Sequence[Any]) -> bool:
    """Whether a request (request id, method, budget, partition, epoch, arguments …) is taken in
    spite of the refusal. One that is malformed is not: who evaluates it would say so.
    """
    details = refusal.details
    free = details.get("actual")
    if details.get("what") != DISK_FREE or type(free) is not int or free < DISK_FREE_BYTES_LAST:
        return False
    if row[1] == DELETE:
        return True
    ops: object = [[OP_PUT, *row[PARTITION_ARGS_AT : PARTITION_ARGS_AT + 2]]]
    if row[1] != PUT:
        at = _OPS_AT.get(row[1], len(row))
        ops = row[at] if at < len(row) else None
    if not isinstance(ops, list | tuple) or not ops:
        return False
    size = 0
    for op in ops:
        match op:
            case [int(kind), bytes(key), value, *_] if kind in _FREEING or key < _USERS:
                size += len(key) + (len(value) if isinstance(value, bytes) else 0)
            case _:
                return False
    return size <= _BYTES_MAX
