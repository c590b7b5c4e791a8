"""What a partition request must look like. Checked before anything is read, so that bad input
changes nothing (C15).

A request is `[rid, method, deadline, partition id, epoch, *args]` (kv.base.methods). Each checker
gets the whole request and returns the keys that its command will read, for the read-ahead; ranges
of keys against the partition are checked by the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import lt
from typing import Any, Final

from kv.base import methods
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import (
    BATCH_BYTES_MAX,
    BATCH_OPS_MAX,
    ENDS_KEYS_MAX,
    ENDS_MAX,
    FEED_BYTES_MAX,
    FEED_ROWS_MAX,
    KEY_BYTES_MAX,
    MULTI_KEYS_MAX,
    PARALLEL_KEYS_MAX,
    PREWRITE_BYTES_MAX,
    PREWRITE_KEYS_MAX,
    SCAN_ROWS_MAX,
    TTL_MS_MAX,
    TXN_TTL_MS_MAX,
    VALUE_BYTES_MAX,
    WAIT_MS_MAX,
)
from kv.base.methods import (
    AWAIT_CHANGES,
    CHANGES,
    CHECK,
    COMMIT,
    DELETE,
    FINISH,
    GET,
    HEARTBEAT,
    MGET,
    OP_CHECK,
    OP_DELETE,
    OP_PUT,
    PREWRITE,
    PREWRITE_ROWS,
    PUT,
    RECOVER,
    RESOLVE,
    ROLLBACK,
    SCAN,
    SETTLE,
    WRITE,
)
from kv.base.timestamps import MAX
from kv.partition.options import check_options, options_of

HEAD: Final = 5  # fields before the arguments
PREFIX_BYTES: Final = 4
STORAGE_KEY_BYTES_MAX: Final = PREFIX_BYTES + KEY_BYTES_MAX
Keys = Sequence[bytes]
_NO_KEYS: Final[Keys] = ()


def too_large(what: str, limit: int, actual: int) -> TooLarge:
    return TooLarge(
        f"{what}: {actual}, at most {limit}; nothing was done. Send less at once "
        "(docs/limits.md lists every limit)",
        details={"what": what, "limit": limit, "actual": actual},
    )


def check_bound(key: Any, more: int = 0) -> None:
    """Where a range begins or ends; `more`: "the next key" is one byte longer."""
    if type(key) is not bytes:
        raise InvalidArgument(f"a key must be bytes, got {type(key).__name__}")
    if len(key) > STORAGE_KEY_BYTES_MAX + more:
        raise too_large("key bytes", STORAGE_KEY_BYTES_MAX, len(key))


def check_key(key: Any) -> None:
    """A storage key: the four bytes of its table, then the user's."""
    check_bound(key)
    if len(key) < PREFIX_BYTES:
        raise InvalidArgument(
            f"a storage key begins with the {PREFIX_BYTES} bytes of its table's id, got {key!r}",
            details={"key": key},
        )


def check_value(value: Any) -> None:
    if type(value) is not bytes:
        raise InvalidArgument(f"a value must be bytes, got {type(value).__name__}")
    if len(value) > VALUE_BYTES_MAX:
        raise too_large("value bytes", VALUE_BYTES_MAX, len(value))


def check_int(value: Any, what: str, high: int, low: int = 0) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidArgument(f"{what} must be an integer from {low} to {high}, got {value!r:.40}")


def check_keys(keys: Any, keys_max: int) -> None:
    if type(keys) is not list:
        raise InvalidArgument(f"keys must be a list, got {type(keys).__name__}")
    if len(keys) > keys_max:
        raise too_large("keys", keys_max, len(keys))
    for key in keys:
        check_key(key)


def check_reader(read_ts: Any, ignore: Any) -> None:
    check_int(read_ts, "read_ts", MAX)
    if ignore is not None and (
        type(ignore) is not list or any(type(ts) is not int for ts in ignore)
    ):
        raise InvalidArgument("ignore must be nil or a list of transaction ids")


def check_ops(ops: Any, *, ops_max: int, bytes_max: int) -> list[bytes]:
    """The keys of the ops."""
    if type(ops) is not list or not ops:
        raise InvalidArgument("ops must be a list with at least one operation")
    if len(ops) > ops_max:
        raise too_large("operations", ops_max, len(ops))
    size = 0
    keys = []
    for i, op in enumerate(ops):
        if not isinstance(op, list | tuple) or len(op) != 5:
            raise InvalidArgument(f"operation {i} must be [kind, key, value, cond, ttl_ms]")
        size += _check_op(i, op)
        keys.append(op[1])
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


def _check_op(i: int, op: Sequence[Any]) -> int:
    kind, key, value, cond, ttl_ms = op
    check_key(key)
    size = len(key)
    if cond is not None:
        check_int(cond, f"operation {i}: cond", MAX)
    if kind == OP_PUT:
        check_value(value)
        check_int(ttl_ms, f"operation {i}: ttl_ms", TTL_MS_MAX)
        return size + len(value)
    if kind == OP_CHECK and cond is None:
        raise InvalidArgument(f"operation {i}: a check needs a condition")
    if (kind != OP_DELETE and kind != OP_CHECK) or value is not None or ttl_ms != 0:
        raise InvalidArgument(
            f"operation {i}: kind {kind!r:.20} with value or ttl; kinds are {OP_PUT} put, "
            f"{OP_DELETE} delete and {OP_CHECK} check, and only a put has a value and a ttl"
        )
    return size


# -- one checker per method: request → keys to read ahead


def _get(r: list[Any]) -> Keys:
    check_key(r[5])
    check_reader(r[6], r[7])
    return (r[5],)


def _put(r: list[Any]) -> Keys:
    check_key(r[5])
    check_value(r[6])
    if r[7] is not None:
        check_int(r[7], "cond", MAX)
    check_int(r[8], "ttl_ms", TTL_MS_MAX)
    return (r[5],)


def _delete(r: list[Any]) -> Keys:
    check_key(r[5])
    if r[6] is not None:
        check_int(r[6], "cond", MAX)
    return (r[5],)


def _write(r: list[Any]) -> Keys:
    check_int(r[6], "start_ts", MAX)
    check_int(r[7], "flags", 0xFFFF)
    options = r[8] if len(r) > 8 else None
    check_options(options)
    if options:
        _check_reads(options)
        if r[6] == 0 and ("reads" in options or "ranges" in options):
            raise InvalidArgument("only a transaction has reads and ranges: give its start_ts")
    return check_ops(r[5], ops_max=BATCH_OPS_MAX, bytes_max=BATCH_BYTES_MAX)


def _check_reads(options: dict[str, Any]) -> None:
    """What a serializable transaction read: keys that rise, ranges that rise and do not overlap."""
    reads = options.get("reads", ())
    for key in reads:
        check_key(key)
    if not all(map(lt, reads, islice(reads, 1, None))):
        raise InvalidArgument("option reads: keys must rise: they are not sorted, or one is twice")
    last: bytes | None = b""
    for row in options.get("ranges", ()):
        if type(row) is not list or len(row) != 2:
            raise InvalidArgument("option ranges: each is [start, end]")
        start, end = row
        check_key(start)
        check_bound(end, 1)
        if last is None or start < last or (end and end <= start):
            raise InvalidArgument("option ranges: they must rise, not overlap, and not be empty")
        last = end or None


def outer_reads(r: list[Any]) -> tuple[bytes, bytes, bool] | None:
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


def _mget(r: list[Any]) -> Keys:
    check_keys(r[5], MULTI_KEYS_MAX)
    check_reader(r[6], r[7])
    return _NO_KEYS  # the verb reads them itself, at once


def _check_bounds(r: list[Any]) -> None:
    check_bound(r[5], 1)
    check_bound(r[6], 1)
    if r[6] and r[6] < r[5]:
        raise InvalidArgument(
            f"range from {r[5][:64]!r} to {r[6][:64]!r}: the end lies before the start"
        )


def _scan(r: list[Any]) -> Keys:
    _check_bounds(r)
    check_int(r[8], "limit", SCAN_ROWS_MAX, 1)
    if type(r[9]) is not bool:
        raise InvalidArgument(f"reverse must be true or false, got {r[9]!r:.40}")
    check_reader(r[7], r[10])
    return _NO_KEYS


def _changes(r: list[Any]) -> Keys:
    _check_bounds(r)
    check_int(r[7], "read_ts", MAX, 1)
    check_int(r[8], "limit", FEED_ROWS_MAX, 1)
    check_int(r[9], "above", MAX)
    if type(r[10]) is not bool:
        raise InvalidArgument(f"closed must be true or false, got {r[10]!r:.40}")
    check_int(r[11], "bytes_max", FEED_BYTES_MAX, 1)
    if r[12] is not None and type(r[12]) is not bytes:
        raise InvalidArgument(f"cursor must be bytes or nil, got {type(r[12]).__name__}")
    return _NO_KEYS


def _await_changes(r: list[Any]) -> Keys:
    _check_bounds(r)
    check_int(r[7], "mark", MAX)
    check_int(r[8], "wait_ms", WAIT_MS_MAX)
    return _NO_KEYS


def _prewrite(r: list[Any]) -> Keys:
    check_int(r[5], "start_ts", MAX, 1)
    check_key(r[6])
    check_int(r[7], "ttl_ms", TXN_TTL_MS_MAX, 1)
    check_int(r[9], "flags", 0xFFFF)
    options = r[10] if len(r) > 10 else None
    check_options(options)
    if options:
        _check_reads(options)
        if r[8] == [] and ("reads" in options or "ranges" in options):
            return _NO_KEYS  # a partition that was only read
    return check_ops(
        r[8], ops_max=PREWRITE_KEYS_MAX, bytes_max=PREWRITE_BYTES_MAX + VALUE_BYTES_MAX
    )


def _prewrite_rows(r: list[Any]) -> Keys:
    check_int(r[5], "start_ts", MAX, 1)
    check_key(r[6])
    check_int(r[7], "ttl_ms", TXN_TTL_MS_MAX, 1)
    keys, values = r[8], r[9]
    if type(keys) is not list or type(values) is not list or len(keys) != len(values) or not keys:
        raise InvalidArgument("keys and values must be lists of one length, with at least one row")
    if len(keys) > PREWRITE_KEYS_MAX:
        raise too_large("rows", PREWRITE_KEYS_MAX, len(keys))
    if set(map(type, keys)) != {bytes} or not set(map(type, values)) <= {bytes, type(None)}:
        raise InvalidArgument("keys must be bytes, values bytes or nil")
    check_key(min(keys, key=len))
    check_key(max(keys, key=len))
    check_value(max(filter(None, values), key=len, default=b""))
    size = sum(map(len, keys)) + sum(map(len, filter(None, values)))
    if size > PREWRITE_BYTES_MAX + VALUE_BYTES_MAX:
        raise too_large("bytes of keys and values", PREWRITE_BYTES_MAX + VALUE_BYTES_MAX, size)
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise InvalidArgument("keys must rise: they are not sorted, or one occurs twice")
    if r[6] in keys:
        raise InvalidArgument("the anchor is prewritten by PREWRITE, before these rows")
    check_options(r[10] if len(r) > 10 else None)
    return _NO_KEYS  # they are read at once, if at all


def _anchored(r: list[Any]) -> Keys:
    check_key(r[5])
    check_int(r[6], "start_ts", MAX, 1)
    return _NO_KEYS


def _commit(r: list[Any]) -> Keys:
    check_int(r[7], "commit_ts", MAX, 1)
    return _anchored(r)


def _check(r: list[Any]) -> Keys:
    check_int(r[7], "push_above", MAX - 1)
    check_int(r[8], "ttl_ms", 1 << 32)
    return _anchored(r)


def _resolve(r: list[Any]) -> Keys:
    check_int(r[5], "start_ts", MAX, 1)
    check_int(r[6], "commit_ts", MAX)
    check_keys(r[7], MULTI_KEYS_MAX)
    if len(set(r[7])) != len(r[7]):
        raise InvalidArgument("resolve: a key occurs twice")
    keys: list[bytes] = r[7]
    return keys


def _finish(r: list[Any]) -> Keys:
    ends = r[5]
    if type(ends) is not list or not ends:
        raise InvalidArgument("ends must be a list with at least one transaction")
    if len(ends) > ENDS_MAX:
        raise too_large("transactions", ENDS_MAX, len(ends))
    needed: list[bytes] = []
    for row in ends:
        if type(row) is not list or len(row) != 4 or type(row[3]) is not list or not row[3]:
            raise InvalidArgument("each end is [start_ts, anchor, commit_ts, keys], with keys")
        start_ts, anchor, commit_ts, keys = row
        check_int(start_ts, "start_ts", MAX, 1)
        check_int(commit_ts, "commit_ts", MAX, start_ts + 1)
        for key in keys:
            check_key(key)
        if len(set(keys)) != len(keys):
            raise InvalidArgument("finish: a key occurs twice in a transaction")
        needed += keys
        if anchor is not None and anchor != keys[0]:
            check_key(anchor)
            needed.append(anchor)
    if len(needed) > ENDS_KEYS_MAX:
        raise too_large("keys", ENDS_KEYS_MAX, len(needed))
    if len({row[0] for row in ends}) != len(ends):
        raise InvalidArgument("finish: a transaction occurs twice")
    return needed


def _rollback(r: list[Any]) -> Keys:
    check_options(r[7] if len(r) > 7 else None)
    return _anchored(r)


def _settle(r: list[Any]) -> Keys:
    check_int(r[7], "commit_ts", MAX)
    return _anchored(r)


def _recover(r: list[Any]) -> Keys:
    check_int(r[5], "start_ts", MAX, 1)
    check_key(r[6])
    check_keys(r[7], PARALLEL_KEYS_MAX)
    if not r[7] or type(r[8]) is not bool:
        raise InvalidArgument("recover needs keys, and whether to fence: true or false")
    return _NO_KEYS  # only intents are looked at


CHECKERS: Final[dict[int, tuple[int, Callable[[list[Any]], Keys]]]] = {
    GET: (3, _get),
    PUT: (4, _put),
    DELETE: (2, _delete),
    WRITE: (3, _write),
    MGET: (3, _mget),
    SCAN: (6, _scan),
    CHANGES: (8, _changes),
    AWAIT_CHANGES: (4, _await_changes),
    PREWRITE: (5, _prewrite),
    PREWRITE_ROWS: (5, _prewrite_rows),
    COMMIT: (3, _commit),
    ROLLBACK: (2, _rollback),
    CHECK: (4, _check),
    RESOLVE: (3, _resolve),
    HEARTBEAT: (2, _rollback),
    RECOVER: (4, _recover),
    SETTLE: (3, _settle),
    FINISH: (1, _finish),
}
# one more argument (kv.partition.options)
WITH_OPTIONS: Final = frozenset({WRITE, PREWRITE, PREWRITE_ROWS, ROLLBACK, HEARTBEAT})


def check_request(r: list[Any]) -> Keys:
    """The keys that the command will read. Raises InvalidArgument or TooLarge."""
    entry = CHECKERS.get(r[1]) if type(r[1]) is int else None
    if entry is None:
        raise InvalidArgument(f"unknown partition method {r[1]!r:.40}")
    count, checker = entry
    if len(r) != HEAD + count and (len(r) != HEAD + count + 1 or r[1] not in WITH_OPTIONS):
        raise InvalidArgument(
            f"method {r[1]} takes {count} arguments after partition and epoch, got {len(r) - HEAD}"
        )
    return checker(r)


def first_and_last(r: list[Any], keys: Keys) -> tuple[bytes, bytes] | None:
    """The outermost keys that must lie in the partition, None if there are none (SCAN: the machine
    clips nothing).
    """
    match r[1]:
        case methods.MGET:
            keys = r[5]
        case methods.RECOVER:
            keys = r[7]
        case methods.PREWRITE_ROWS:  # they rise
            return r[8][0], r[8][-1]
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
    if r[1] in (SCAN, CHANGES, AWAIT_CHANGES):
        return bytes(r[5])
    outer = first_and_last(r, needed)
    if outer is None and r[1] in (WRITE, PREWRITE) and (read := outer_reads(r)) is not None:
        return read[0]
    return None if outer is None else outer[0]


def plain(r: list[Any]) -> bool:
    """Whether a GET or PUT is well formed, for the usual cases; whatever
    else goes through
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
    return (
        len(r) == 9
        and type(r[5]) is bytes
        and PREFIX_BYTES <= len(r[5]) <= KEY_BYTES_MAX
        and type(r[6]) is bytes
        and len(r[6]) <= VALUE_BYTES_MAX
        and r[7] is None
        and r[8] == 0
    )


def weight(r: list[Any]) -> int:
    """About how many bytes a queued request holds."""
    size = 0
    for arg in r[5:]:
        if isinstance(arg, bytes):
            size += len(arg)
        elif isinstance(arg, list):
            size += _weight_of(arg)
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
