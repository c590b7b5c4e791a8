"""What a partition request must look like. Checked before anything is read, so that bad input
changes nothing (C15).

A request is `[rid, method, deadline, partition id, epoch, *args]` (kv.base.methods). Each checker
gets the whole request and returns the keys that its command will read, for the read-ahead; ranges
of keys against the partition are checked by the machine.

Here is what all methods share: the table of checkers, which keys of a request must lie in the
partition, the short way for a plain GET or PUT, and what a queued request weighs. The checkers lie
beside: request_reads.py, request_writes.py, request_verbs.py; of single fields, fields.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kv.base import methods
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from kv.base.methods import (
    AWAIT_CHANGES,
    CHANGES,
    CHECK,
    COMMIT,
    DELETE,
    FINISH,
    GET,
    HEARTBEAT,
    INGEST,
    MGET,
    PAIRS,
    PARTS,
    PREWRITE,
    PREWRITE_ROWS,
    PUT,
    READ_NOW,
    RECOVER,
    RESOLVE,
    ROLLBACK,
    SCAN,
    SCAN_SEALED,
    SCAN_VALUES,
    SETTLE,
    WRITE,
    WRITE_ROWS,
)
from kv.base.timestamps import MAX
from kv.base.verbs import VERBS, Touches
from kv.mvcc.packed import PackedKeys
from kv.partition import request_reads as reads
from kv.partition import request_verbs as verbs
from kv.partition import request_writes as writes
from kv.partition.fields import PREFIX_BYTES, Keys
from kv.partition.request_writes import outer_reads

CHECKERS: Final[dict[int, Callable[[list[Any]], Keys]]] = {
    GET: reads.get,
    PUT: writes.put,
    DELETE: writes.delete,
    WRITE: writes.write,
    WRITE_ROWS: writes.write_rows,
    INGEST: writes.ingest,
    MGET: reads.mget,
    READ_NOW: reads.mget,
    SCAN: reads.scan,
    SCAN_VALUES: reads.scan_values,
    SCAN_SEALED: reads.scan_sealed,
    CHANGES: reads.changes,
    PAIRS: reads.pairs,
    PARTS: reads.parts,
    AWAIT_CHANGES: reads.await_changes,
    PREWRITE: writes.prewrite,
    PREWRITE_ROWS: writes.prewrite_rows,
    COMMIT: verbs.commit,
    ROLLBACK: verbs.rollback,
    CHECK: verbs.check,
    RESOLVE: verbs.resolve,
    HEARTBEAT: verbs.rollback,
    RECOVER: verbs.recover,
    SETTLE: verbs.settle,
    FINISH: verbs.finish,
}
_OWN_KEYS: Final = frozenset({WRITE, PREWRITE})


def check_request(r: list[Any]) -> Keys:
    """The keys that the command will read. Raises InvalidArgument or TooLarge."""
    checker = CHECKERS.get(r[1]) if type(r[1]) is int else None
    if checker is None:
        raise InvalidArgument(f"unknown partition method {r[1]!r:.40}")
    VERBS[r[1]].count(r)
    return checker(r)


def first_and_last(r: list[Any], keys: Keys) -> tuple[bytes, bytes] | None:
    """The outermost keys that must lie in the partition, None if there are none (SCAN: the machine
    clips nothing).
    """
    method = r[1]
    if method in _OWN_KEYS:  # nearly always
        if len(keys) == 1:
            return keys[0], keys[0]
        return (min(keys), max(keys)) if keys else None
    match method:
        case methods.MGET | methods.READ_NOW:
            keys = r[5]
        case methods.RECOVER:
            keys = r[7]
        case methods.PREWRITE_ROWS:  # they rise
            return r[8][0], r[8][-1]
        case methods.WRITE_ROWS | methods.INGEST:
            return r[5][0], r[5][-1]
        case methods.COMMIT | methods.ROLLBACK | methods.CHECK | methods.HEARTBEAT | methods.SETTLE:
            return r[5], r[5]
        case _:
            pass
    return (min(keys), max(keys)) if keys else None


def first_key(r: list[Any]) -> bytes | None:
    """The lowest key of a partition request, None if it has none or is malformed."""
    if type(r[1]) is not int:
        return None
    try:
        needed = check_request(r)
    except (InvalidArgument, TooLarge):
        return None
    if VERBS[r[1]].touches is Touches.RANGE:
        return bytes(r[5])
    outer = first_and_last(r, needed)
    if outer is None and r[1] in (WRITE, PREWRITE) and (read := outer_reads(r)) is not None:
        return read[0]
    return None if outer is None else outer[0]


def plain(r: list[Any]) -> bool:
    """Whether a GET or PUT is well formed, for the usual cases; whatever else goes through
    `check_request`.
    """
    if r[1] == GET:
        return (
            len(r) == 8
            and type(r[5]) is bytes
            and PREFIX_BYTES <= len(r[5]) <= KEY_BYTES_MAX
            and r[6] == 0
            and r[7] is None
        )
    if len(r) != 9:
        return False
    _, _, _, _, _, key, value, cond, ttl_ms = r
    return (
        type(key) is bytes
        and type(value) is bytes
        and (cond is None or (type(cond) is int and 0 <= cond <= MAX))
        and ttl_ms == 0
        and PREFIX_BYTES <= len(key) <= KEY_BYTES_MAX
        and len(value) <= VALUE_BYTES_MAX
    )


def weight(r: list[Any]) -> int:
    """About how many bytes a queued request holds."""
    size = 0
    for arg in r[5:]:
        if isinstance(arg, bytes):
            size += len(arg)
        elif isinstance(arg, list):
            size += _weight_of(arg)
        elif isinstance(arg, PackedKeys):
            size += len(arg.packed)
        elif isinstance(arg, dict):  # options: reads and ranges are lists, too
            size += sum(_weight_of(value) for value in arg.values() if isinstance(value, list))
    return size + 64


def _weight_of(rows: list[Any]) -> int:
    size = 0
    for row in rows:
        fields = row if isinstance(row, list) else (row,)
        for f in fields:
            if isinstance(f, bytes):
                size += len(f)
            elif isinstance(f, list):  # of a FINISH
                size += _weight_of(f)
        size += 64
    return size
