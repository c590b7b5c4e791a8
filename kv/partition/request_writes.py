"""What must hold among the arguments of WRITE, WRITE_ROWS, INGEST, and of the prewrites of a
transaction. See kv/partition/requests.py.

Invariants of what passes: a key occurs once; the rows of WRITE_ROWS, PREWRITE_ROWS and INGEST rise;
what a serializable transaction says that it read rises and does not overlap
(txn/buffered/read_set.py sends it so).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import lt
from typing import Any, Final

import msgpack

from kv.base import decode_cost
from kv.base.errors import InvalidArgument
from kv.base.fields import (
    PREFIX_BYTES,
    STORAGE_KEY_BYTES_MAX,
    check_bound,
    check_key,
    check_value,
    integer,
    too_large,
)
from kv.base.limits import (
    BATCH_BYTES_MAX,
    BATCH_OPS_MAX,
    PREWRITE_BYTES_MAX,
    PREWRITE_KEYS_MAX,
    TTL_MS_MAX,
    VALUE_BYTES_MAX,
)
from kv.base.methods import OP_CHECK, OP_DELETE, OP_PUT, OP_TOMBSTONE, WRITE
from kv.base.options import options_of
from kv.base.timestamps import MAX
from kv.base.wire_row import WireRow
from kv.mvcc.packed_rows import PackedKeys

Keys = Sequence[bytes]
NO_KEYS: Final[Keys] = ()
_COND: Final = integer(0, MAX)
_TTL_MS: Final = integer(0, TTL_MS_MAX)
_VALUES: Final = {bytes, type(None)}
_WITHOUT_VALUE: Final = (OP_DELETE, OP_CHECK, OP_TOMBSTONE)
_LOCKS: Final = frozenset({"lock", "unlock"})
_OF_LOCK: Final = frozenset({"values", "present", "strength", "going"})
_NOT_OF_LOCKS: Final = frozenset({"reads", "ranges", "fence", "stage", "locked"})
_SAMPLED: Final = 16  # of so many rows one is counted as traffic on its key


def write(r: WireRow) -> Keys:
    options = r[8] if len(r) > 8 else None
    if options and ("reads" in options or "ranges" in options):
        _check_reads(options)
        if r[6] == 0:
            raise InvalidArgument("only a transaction has reads and ranges: give its start_ts")
    return check_ops(r[5], ops_max=BATCH_OPS_MAX, bytes_max=BATCH_BYTES_MAX)


def prewrite(r: WireRow) -> Keys:
    options = r[10] if len(r) > 10 else None
    if options and ("reads" in options or "ranges" in options):
        _check_reads(options)
        if r[8] == [] and _LOCKS.isdisjoint(options):
            return NO_KEYS  # a partition that was only read
    said = _LOCKS.intersection(options or ())
    if said and (others := _NOT_OF_LOCKS.intersection(options or ()) or said - {min(said)}):
        raise InvalidArgument(f"a prewrite with option {min(said)} has no option {min(others)}")
    if "lock" not in said and (others := _OF_LOCK.intersection(options or ())):
        raise InvalidArgument(f"option {min(others)} of a prewrite needs option lock")
    return check_ops(
        r[8],
        ops_max=PREWRITE_KEYS_MAX,
        bytes_max=PREWRITE_BYTES_MAX + VALUE_BYTES_MAX,
        locks=bool(said),
    )


def prewrite_rows(r: WireRow) -> Keys:
    keys = r[8]
    bytes_max = PREWRITE_BYTES_MAX + VALUE_BYTES_MAX
    if type(r[9]) is bytes:
        keys = r[8] = _check_packed(keys, r[9], PREWRITE_KEYS_MAX, bytes_max)
        anchored = keys.first <= r[6] <= keys.last and r[6] in keys
    else:
        _check_rows(keys, r[9], {bytes, type(None)}, PREWRITE_KEYS_MAX, bytes_max)
        anchored = r[6] in keys
    if anchored:
        raise InvalidArgument("the anchor is prewritten by PREWRITE, before these rows")
    return NO_KEYS  # they are read at once, if at all


def write_rows(r: WireRow) -> Keys:
    options = r[9] if len(r) > 9 else None
    if options and ("reads" in options or "ranges" in options):
        raise InvalidArgument("options reads and ranges are WRITE's: send ops")
    _check_rows(r[5], r[6], {bytes}, BATCH_OPS_MAX, BATCH_BYTES_MAX)
    sampled: list[bytes] = r[5][::_SAMPLED]
    return sampled  # all are read at once; these tell where the traffic is


def ingest(r: list[object]) -> Keys:
    _check_rows(r[5], r[6], {bytes}, BATCH_OPS_MAX, BATCH_BYTES_MAX)
    return NO_KEYS  # they are read at once


def _check_packed(sent: object, values: bytes, rows_max: int, bytes_max: int) -> PackedKeys:
    """Packed rows, of which everything is looked at here and nothing later."""
    if type(sent) is PackedKeys:
        return sent  # of a request that was here before
    match sent:
        case [
            bytes() as first,
            int() as prefix_bytes,
            int() as rows,
            bytes() as packed,
            bytes() as last,
        ]:
            pass
        case _:
            raise InvalidArgument("packed keys are [first, prefix bytes, rows, packed, last]")
    check_key("a key", first)
    if len(packed) + len(values) > bytes_max:
        raise too_large("bytes of keys and values", bytes_max, len(packed) + len(values))
    try:
        own, bodies = decode_cost.unpack_rows(packed), decode_cost.unpack_rows(values)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvalidArgument(f"packed keys and values are msgpack lists: {error}") from error
    if type(own) is not list or type(bodies) is not list or not len(own) == len(bodies) == rows:
        raise InvalidArgument(f"{rows} rows are said, but keys and values are others")
    prefix = first[:prefix_bytes] if 0 <= prefix_bytes <= len(first) else None
    if prefix is None or not own:
        raise InvalidArgument("packed keys need a prefix that the first has, and at least one row")
    if rows > rows_max:
        raise too_large("rows", rows_max, rows)
    if set(map(type, own)) != {bytes} or not set(map(type, bodies)) <= _VALUES:
        raise InvalidArgument("keys must be bytes, values bytes or nil")
    _check_whole(prefix, own, len(packed) + len(values), bytes_max)
    if len(values) > VALUE_BYTES_MAX:
        check_value("a value", max(filter(None, bodies), key=len, default=b""))
    if not all(map(lt, own, islice(own, 1, None))):
        raise InvalidArgument("keys must rise: they are not sorted, or one occurs twice")
    if first != prefix + own[0] or last != prefix + own[-1]:
        raise InvalidArgument("the first or the last of packed keys is not what is said")
    return PackedKeys(first, prefix_bytes, rows, packed, last)


def _check_whole(prefix: bytes, own: list[bytes], size: int, bytes_max: int) -> None:
    """Packed rows of `size`, as they are without a prefix: so they become versions, and have to fit
    an entry then.
    """
    check_key("a key", prefix + min(own, key=len))
    check_key("a key", prefix + max(own, key=len))
    size += len(prefix) * len(own)
    if size > bytes_max:
        raise too_large("bytes of keys and values", bytes_max, size)


def _check_rows(
    keys: object, values: object, kinds: set[type], rows_max: int, bytes_max: int
) -> None:
    """Rows as two lists; the types that a value may have. Nothing is done row by row."""
    if type(keys) is not list or type(values) is not list or len(keys) != len(values) or not keys:
        raise InvalidArgument("keys and values must be lists of one length, with at least one row")
    if len(keys) > rows_max:
        raise too_large("rows", rows_max, len(keys))
    if set(map(type, keys)) != {bytes} or not set(map(type, values)) <= kinds:
        nil = " or nil" if type(None) in kinds else ""
        raise InvalidArgument(f"keys must be bytes, values bytes{nil}")
    lengths = list(map(len, keys))
    check_key("a key", keys[lengths.index(min(lengths))])
    check_key("a key", keys[lengths.index(max(lengths))])
    size = sum(lengths)
    lengths = list(map(len, filter(None, values)))
    if lengths and max(lengths) > VALUE_BYTES_MAX:
        check_value("a value", max(filter(None, values), key=len))
    size += sum(lengths)
    if size > bytes_max:
        raise too_large("bytes of keys and values", bytes_max, size)
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise InvalidArgument("keys must rise: they are not sorted, or one occurs twice")


def check_ops(ops: object, *, ops_max: int, bytes_max: int, locks: bool = False) -> list[bytes]:
    """The keys of the ops. `locks`: all are checks without a condition, else none is."""
    if type(ops) is not list or not ops:
        raise InvalidArgument("ops must be a list with at least one operation")
    if len(ops) > ops_max:
        raise too_large("operations", ops_max, len(ops))
    size = 0
    keys = []
    for i, op in enumerate(ops):
        if (type(op) is not list and not isinstance(op, tuple)) or len(op) != 5:
            raise InvalidArgument(f"operation {i} must be [kind, key, value, cond, ttl_ms]")
        kind, key, value, cond, ttl_ms = op
        if (
            kind == OP_PUT
            and cond is None
            and ttl_ms == 0
            and type(key) is bytes
            and type(value) is bytes
            and PREFIX_BYTES <= len(key) <= STORAGE_KEY_BYTES_MAX
            and len(value) <= VALUE_BYTES_MAX
            and not locks
        ):  # nearly always: what `_check_op` would find, without the calls
            size += len(key) + len(value)
        else:
            size += _check_op(i, op, locks)
        keys.append(key)
    if size > bytes_max:
        raise too_large("bytes of keys and values", bytes_max, size)
    if len(set(keys)) != len(keys):
        seen: set[bytes] = set()
        for i, key in enumerate(keys):
            if key in seen:
                raise InvalidArgument(
                    f"operation {i}: key {key[:64]!r} occurs twice; all operations happen at one "
                    "version, so give each key once",
                    details={"key": key, "op": i},
                )
            seen.add(key)
    return keys


def _check_op(i: int, op: Sequence[Any], locks: bool) -> int:
    kind, key, value, cond, ttl_ms = op
    if locks and (kind != OP_CHECK or cond is not None):
        raise InvalidArgument(f"operation {i}: a lock is a check without a condition")
    check_key(f"operation {i}: key", key)
    size = len(key)
    if cond is not None:
        _COND(f"operation {i}: cond", cond)
    if kind == OP_PUT:
        check_value(f"operation {i}: value", value)
        _TTL_MS(f"operation {i}: ttl_ms", ttl_ms)
        return size + len(value)
    if kind == OP_CHECK and cond is None and not locks:
        raise InvalidArgument(f"operation {i}: a check needs a condition")
    if kind not in _WITHOUT_VALUE or value is not None or ttl_ms != 0:
        raise InvalidArgument(
            f"operation {i}: kind {kind!r:.20} with value or ttl; kinds are {OP_PUT} put, "
            f"{OP_DELETE} delete, {OP_CHECK} check and {OP_TOMBSTONE} delete that leaves a "
            "tombstone, and only a put has a value and a ttl"
        )
    return size


def _check_reads(options: dict[str, Any]) -> None:
    """What a serializable transaction read: keys that rise, ranges that rise and do not overlap."""
    reads = options.get("reads", ())
    for key in reads:
        check_key("option reads: a key", key)
    if not all(map(lt, reads, islice(reads, 1, None))):
        raise InvalidArgument("option reads: keys must rise: they are not sorted, or one is twice")
    if "since" in options and "ranges" not in options:
        raise InvalidArgument("option since says when the ranges were read, and there are none")
    last: bytes | None = b""
    for row in options.get("ranges", ()):
        if type(row) is not list or len(row) != 2:
            raise InvalidArgument("option ranges: each is [start, end]")
        start, end = row
        check_key("a key", start)
        check_bound("a range's end", end)
        if last is None or start < last or (end and end <= start):
            raise InvalidArgument("option ranges: they must rise, not overlap, and not be empty")
        last = end or None


def outer_reads(r: list[object]) -> tuple[bytes, bytes, bool] | None:
    """The first and the last key of what a WRITE or PREWRITE says that it read, and whether the
    last one is where a range ends (b"" = nowhere); None if it read nothing.
    """
    options = options_of(r, 8 if r[1] == WRITE else 10)
    reads, ranges = options.get("reads"), options.get("ranges")
    if ranges:
        low = min(reads[0], ranges[0][0]) if reads else ranges[0][0]
        end = ranges[-1][1]
        if not end or not reads or reads[-1] < end:
            return low, end, True
        return low, reads[-1], False
    return (reads[0], reads[-1], False) if reads else None
