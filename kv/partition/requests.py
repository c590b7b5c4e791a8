"""What a partition request must look like. Checked before anything is read, so that bad input
changes nothing (C15).

A request is `[rid, method, deadline, partition id, epoch, *args]`. Each argument by itself is
checked as its declaration says (kv/base/methods.py); what must hold among them is here, for those
that write rows in request_writes.py. `check_request` returns the keys that the command will read,
for the read-ahead; ranges of keys against the partition are checked by the machine.

Beside: which keys of a request must lie in the partition, the short way for a plain GET or PUT, and
what a queued request weighs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base import methods
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.fields import PREFIX_BYTES, check_key, integer, too_large
from kv.base.limits import ENDS_KEYS_MAX, ENDS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX
from kv.base.methods import GET, PARTITION_VERBS, PREWRITE, RANGES, WRITE
from kv.base.timestamps import MAX
from kv.base.wire_row import WireRow
from kv.mvcc.packed_rows import PackedKeys
from kv.partition import request_writes as writes
from kv.partition.request_writes import NO_KEYS, Keys, outer_reads

_OWN_KEYS: Final = frozenset({WRITE, PREWRITE})
_START_TS: Final = integer(1, MAX)


def check_request(r: list[object]) -> Keys:
    """The keys that the command will read. Raises InvalidArgument or TooLarge."""
    found = _CHECKS.get(r[1]) if type(r[1]) is int else None
    if found is None:
        raise InvalidArgument(f"unknown partition method {r[1]!r:.40}")
    check, rule = found
    check(r)
    return NO_KEYS if rule is None else rule(r)


def _key(r: WireRow) -> Keys:
    return (r[5],)


def _range(r: WireRow) -> Keys:
    if r[6] and r[6] < r[5]:
        raise InvalidArgument(
            f"range from {r[5][:64]!r} to {r[6][:64]!r}: the end lies before the start"
        )
    return NO_KEYS


def _scan_sealed(r: list[object]) -> Keys:
    if r[9]:
        raise InvalidArgument("SCAN_SEALED goes forward only: reverse must be false")
    if not r[7]:
        raise InvalidArgument("SCAN_SEALED reads at a timestamp: read_ts must not be 0")
    return _range(r)


def _resolve(r: WireRow) -> Keys:
    keys: list[bytes] = r[7]
    if len(set(keys)) != len(keys):
        raise InvalidArgument("resolve: a key occurs twice")
    return keys


def _recover(r: list[object]) -> Keys:
    if not r[7]:
        raise InvalidArgument("recover needs keys")
    return NO_KEYS  # only intents are looked at


def _finish(r: list[object]) -> Keys:
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
        _START_TS("start_ts", start_ts)
        if type(commit_ts) is not int or not start_ts < commit_ts <= MAX:
            raise InvalidArgument(f"commit_ts must be above start_ts, got {commit_ts!r:.40}")
        for key in keys:
            check_key("a key", key)
        if len(set(keys)) != len(keys):
            raise InvalidArgument("finish: a key occurs twice in a transaction")
        needed += keys
        if anchor is not None and anchor != keys[0]:
            check_key("an anchor", anchor)
            needed.append(anchor)
    if len(needed) > ENDS_KEYS_MAX:
        raise too_large("keys", ENDS_KEYS_MAX, len(needed))
    if len({row[0] for row in ends}) != len(ends):
        raise InvalidArgument("finish: a transaction occurs twice")
    return needed


# What must hold among the arguments, and the keys that are read ahead: of reads only GET's, others
# read what they need themselves, at once.
_RULES: Final[dict[int, Callable[[list[object]], Keys]]] = {
    **dict.fromkeys(RANGES, _range),
    **dict.fromkeys((GET, methods.HELD, methods.MARK, methods.PUT, methods.DELETE), _key),
    methods.SCAN_SEALED: _scan_sealed,
    methods.RESOLVE: _resolve,
    methods.RECOVER: _recover,
    methods.FINISH: _finish,
    WRITE: writes.write,
    methods.WRITE_ROWS: writes.write_rows,
    methods.INGEST: writes.ingest,
    PREWRITE: writes.prewrite,
    methods.PREWRITE_ROWS: writes.prewrite_rows,
}
_CHECKS: Final = {verb.number: (verb.check, _RULES.get(verb.number)) for verb in PARTITION_VERBS}


def first_and_last(r: WireRow, keys: Keys) -> tuple[bytes, bytes] | None:
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


def first_key(r: WireRow) -> bytes | None:
    """The lowest key of a partition request, None if it has none or is malformed."""
    if type(r[1]) is not int:
        return None
    try:
        needed = check_request(r)
    except (InvalidArgument, TooLarge):
        return None
    if r[1] in RANGES:
        return bytes(r[5])
    outer = first_and_last(r, needed)
    if outer is None and r[1] in (WRITE, PREWRITE) and (read := outer_reads(r)) is not None:
        return read[0]
    return None if outer is None else outer[0]


def plain(r: list[object]) -> bool:
    """Whether a GET or PUT is well formed, for the usual cases; whatever else goes through
    `check_request`.
    """
    if r[1] == GET:
        return (
            len(r) == 8
            and type(r[5]) is bytes
            and PREFIX_BYTES <= len(r[5]) <= KEY_BYTES_MAX
            and (r[6] == 0 or (type(r[6]) is int and 0 < r[6] <= MAX))
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


def weight(r: list[object]) -> int:
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


def _weight_of(rows: list[object]) -> int:
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
