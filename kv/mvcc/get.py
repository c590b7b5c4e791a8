"""Point reads: lock → cur → hist.

`read_ts` 0 reads the newest applied version: what was acknowledged last. `read_ms` is the reader's
time for expiry: the physical part of read_ts, so that a snapshot shows the same at every moment;
for the newest, the present.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from zlib import crc32

from kv.base.checksum import CRC_OK
from kv.base.errors import TooLarge
from kv.base.intents import TxnId, txn_id
from kv.base.keys import MAX64, from_u64
from kv.base.limits import MULTI_GET_BYTES_MAX
from kv.base.methods import OP_CHECK
from kv.base.timestamps import physical_ms
from kv.mvcc.records import Lock, corrupt, hist_key, payload_at, verified
from kv.mvcc.refusals import key_locked, snapshot_too_old
from kv.mvcc.view import ReadView

Found = tuple[bytes | None, int]
"""(value, version); (None, 0) for absent, deleted and expired keys."""
ABSENT: Found = (None, 0)
_SLICE_KEYS = 32
"""Keys that a multi-get reads before it looks how large the values are: any may be the largest."""
KEYS_PER_REFUSAL_MAX = 256
"""How many locked keys one KEY_LOCKED names, so that the client resolves them together."""


def blocks(lock: Lock, read_ts: int, ignore: Collection[TxnId] | None) -> bool:
    """Whether a reader must find out about this intent first.

    An intent that began after the snapshot, or has a bound above it, commits after it; a check
    writes nothing; the client names in `ignore` those that it knows to commit above read_ts (or not
    at all).
    """
    if lock.kind == OP_CHECK or (read_ts and max(lock.start_ts, lock.min_commit_ts) > read_ts):
        return False
    if not ignore:
        return True
    return (txn_id(lock.start_ts, lock.user) if lock.user else lock.start_ts) not in ignore


def check_readable(view: ReadView, read_ts: int) -> None:
    if read_ts and read_ts < view.safepoint:
        raise snapshot_too_old(read_ts, view.safepoint, view.retention_ms)


def newest(key: bytes, record: bytes | None, read_ms: int) -> Found:
    """The newest version in a sealed cur record. The hot path of reads. Raises Corruption."""
    if record is None:
        return ABSENT
    if crc32(record, crc32(key)) != CRC_OK:
        raise corrupt("cur", key)
    if not record[8]:
        return record[9:-4], int.from_bytes(record[:8], "big")
    value = payload_at(record, read_ms)
    return ABSENT if value is None else (value, from_u64(record))


def version_at(
    view: ReadView, key: bytes, record: bytes | None, read_ts: int, read_ms: int
) -> Found:
    """The version of `key` that a reader at read_ts sees, given the key's cur record. Raises
    Corruption.

    A key without a cur record has no version that anybody at or above the safepoint could see.
    """
    if record is None or not read_ts or from_u64(record) <= read_ts:
        return newest(key, record, read_ms)
    verified("cur", key, record)
    first, past = hist_key(key, read_ts), hist_key(key, 0) + b"\x00"
    older = view.scan("hist", first, past, limit=1)
    if not older:
        return ABSENT
    old_key, old = older[0]
    verified("hist", old_key, old)
    # The version was superseded by one that the collector took together with its tombstone: a gap.
    if from_u64(old) <= read_ts:
        return ABSENT
    value = payload_at(old, read_ms)
    return ABSENT if value is None else (value, MAX64 - from_u64(old_key, len(old_key) - 8))


def get(
    view: ReadView, key: bytes, *, read_ts: int, ignore: Collection[TxnId] | None, now_ms: int
) -> Found:
    """Raises KeyLocked, SnapshotTooOld, Corruption."""
    check_readable(view, read_ts)
    lock = view.lock(key)
    if lock is not None and blocks(lock, read_ts, ignore):
        raise key_locked(key, lock, now_ms)
    read_ms = physical_ms(read_ts) if read_ts else now_ms
    return version_at(view, key, view.cur(key), read_ts, read_ms)


def multi_get(
    view: ReadView,
    keys: list[bytes],
    *,
    read_ts: int,
    ignore: Collection[TxnId] | None,
    now_ms: int,
) -> list[Found]:
    """One answer per key, in the order asked; all of one snapshot. Raises like `get`, and TooLarge
    for more than MULTI_GET_BYTES_MAX of values, without having read much more.
    """
    check_readable(view, read_ts)
    refuse_locked(view, keys, read_ts, ignore, now_ms)
    unique = sorted(set(keys))
    read_ms = physical_ms(read_ts) if read_ts else now_ms
    found: dict[bytes, Found] = {}
    size = 0
    while part := unique[len(found) : len(found) + _SLICE_KEYS]:
        for key, record in zip(part, view.multi_cur(part), strict=True):
            found[key] = version_at(view, key, record, read_ts, read_ms)
            size += max(len(found[key][0] or b""), len(record or b""))
        if size > MULTI_GET_BYTES_MAX:
            raise _too_much(len(found), len(unique))
    return [found[key] for key in keys]


def few(
    view: ReadView,
    keys: Sequence[bytes],
    known: Mapping[bytes, bytes],
    *,
    read_ts: int,
    ignore: Collection[TxnId] | None,
    now_ms: int,
    keep: Callable[[bytes, bytes | None], None],
) -> tuple[list[list[object] | None], int]:
    """`multi_get` of FEW_KEYS at most, as a transaction reads what it is about to write: ([value,
    version], or None for absent, per key; bytes of the values). `known`: newest applied records,
    verified, b"" = there is none; what is read from disk is given to `keep`. Raises like `get`.
    """
    check_readable(view, read_ts)
    read_ms = physical_ms(read_ts) if read_ts else now_ms
    rows: list[list[object] | None] = []
    size = 0
    for key in keys:
        lock = view.lock(key)
        if lock is not None and blocks(lock, read_ts, ignore):
            refuse_locked(view, keys, read_ts, ignore, now_ms)
        record = known.get(key)
        if record is None:
            record = view.cur(key)
            if record is not None and crc32(record, crc32(key)) != CRC_OK:
                raise corrupt("cur", key)
            keep(key, record)
        if not record:
            rows.append(None)
            continue
        version = int.from_bytes(record[:8], "big")
        if record[8] or (read_ts and version > read_ts):
            value, version = version_at(view, key, record, read_ts, read_ms)
        else:
            value = record[9:-4]
        rows.append(None if value is None else [value, version])
        size += len(value or b"")
    return rows, size


def _too_much(read: int, of: int) -> TooLarge:
    return TooLarge(
        f"the first {read} of {of} keys have more than {MULTI_GET_BYTES_MAX} bytes of values, the "
        "limit of one read; ask for fewer keys at once, at one `at`",
        details={"what": "bytes of values", "limit": MULTI_GET_BYTES_MAX, "keys": read},
    )


def refuse_locked(
    view: ReadView,
    keys: Iterable[bytes],
    read_ts: int,
    ignore: Collection[TxnId] | None,
    now_ms: int,
) -> None:
    """Raises KeyLocked for the first blocking intent, naming further keys of its transaction, and
    the other transactions that block.
    """
    if ignore:
        ignore = frozenset(ignore)
    met: dict[TxnId, tuple[Lock, list[bytes]]] = {}
    left = KEYS_PER_REFUSAL_MAX
    for key in keys:
        lock = view.lock(key)
        if lock is None or not blocks(lock, read_ts, ignore):
            continue
        id_ = txn_id(lock.start_ts, lock.user)
        met.setdefault(id_, (lock, []))[1].append(key)
        left -= 1
        if not left:
            break
    if met:
        (lock, same), *others = met.values()
        refusal = key_locked(same[0], lock, now_ms, same)
        if others:
            refusal.details["others"] = [
                [other.start_ts, other.anchor, other.ttl_ms, also, other.user]
                for other, also in others
            ]
        raise refusal
