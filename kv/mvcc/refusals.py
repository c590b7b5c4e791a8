"""The errors that verbs raise, each worded once: what was asked, what stands against it, what to
do.
"""

from __future__ import annotations

from kv.base.errors import (
    ConditionFailed,
    KeyLocked,
    SnapshotTooOld,
    TxnAborted,
    WriteConflict,
)
from kv.base.keys import from_u64
from kv.base.limits import TXN_LIFETIME_MS_MAX
from kv.base.strengths import UPDATE
from kv.base.timestamps import physical_ms
from kv.mvcc.guards import Guard, GuardTable
from kv.mvcc.records import Lock, TxnRecord, payload_at


def shown(key: bytes) -> str:
    """A key in a message: bounded, and readable when it is text."""
    return repr(key if len(key) <= 64 else key[:64]) + ("" if len(key) <= 64 else "…")


def newest_version(old: bytes | None, at_ms: int) -> int:
    """The version that a condition compares with: 0 if the key is absent, deleted or expired."""
    if old is None or payload_at(old, at_ms) is None:
        return 0
    return from_u64(old)


def condition_failed(key: bytes, cond: int, version: int, op: int | None) -> ConditionFailed:
    """`op` is the index of the operation in its batch; None for a single write."""
    wanted = "be absent" if cond == 0 else f"have version {cond}"
    found = f"it has version {version}" if version else "it is absent"
    return ConditionFailed(
        f"{'' if op is None else f'operation {op}: '}key {shown(key)} must {wanted}, but {found}; "
        "nothing was written. Read the key again and decide anew",
        details={
            "key": key,
            "version": str(version) if version else None,
            "op": op or 0,
            "wanted": str(cond),
        },
    )


def write_conflict(key: bytes, conflict_ts: int, start_ts: int) -> WriteConflict:
    return WriteConflict(
        f"key {shown(key)} was written at {conflict_ts}, after this transaction began "
        f"({start_ts}); nothing was written. Run the transaction again",
        details={"key": key, "conflict_ts": conflict_ts, "start_ts": start_ts},
    )


def key_locked(key: bytes, lock: Lock, now_ms: int, also: list[bytes] | None = None) -> KeyLocked:
    """`also`: further keys that the same transaction locks and the same request met (bounded by the
    caller).
    """
    age_ms = max(0, now_ms - physical_ms(lock.start_ts))
    return KeyLocked(
        f"key {shown(key)} is being written by transaction {lock.start_ts}, {age_ms} ms old "
        f"(rolled back {lock.ttl_ms} ms after its start or its last heartbeat); ask for its status",
        details={
            "key": key,
            "txn": lock.start_ts,
            "anchor": lock.anchor,
            "age_ms": age_ms,
            "ttl_ms": lock.ttl_ms,
            "keys": also if also else [key],
            **({"chunk": True} if lock.chunk else {}),
            **({"user": lock.user} if lock.user else {}),
        },
    )


def key_guarded(key: bytes, guard: Guard, now_ms: int) -> KeyLocked:
    """`keys` names the guard, not the key: it is what a RESOLVE removes."""
    age_ms = max(0, now_ms - physical_ms(guard.start_ts))
    which = "locked by" if guard.shared else "read by serializable"
    doing = "" if guard.shared else ", which is committing"
    return KeyLocked(
        f"key {shown(key)} was {which} transaction {guard.start_ts}, {age_ms} ms old{doing} "
        f"(rolled back {guard.ttl_ms} ms after its start or its last heartbeat); ask for its "
        "status",
        details={
            "key": key,
            "txn": guard.start_ts,
            "anchor": guard.anchor,
            "age_ms": age_ms,
            "ttl_ms": guard.ttl_ms,
            "keys": [guard.start],
            "kind": "guard",
            **({"user": guard.user} if guard.user else {}),
        },
    )


def refuse_guarded(
    guards: GuardTable,
    key: bytes,
    start_ts: int,
    now_ms: int,
    user: str = "",
    *,
    wanted: int = UPDATE,
    lock: bool = False,
) -> None:
    """Raises KeyLocked if another transaction than `start_ts` (0 = none) of this user guards the
    key against what is `wanted` (`GuardTable.meets`).
    """
    guard = guards.meets(key, start_ts, user, wanted, lock=lock)
    if guard is not None:
        raise key_guarded(key, guard, now_ms)


def read_conflict(key: bytes, conflict_ts: int, start_ts: int) -> WriteConflict:
    return WriteConflict(
        f"key {shown(key)}, which this serializable transaction read as of {start_ts}, was written "
        f"at {conflict_ts}; nothing was written. Run the transaction again",
        details={"key": key, "conflict_ts": conflict_ts, "start_ts": start_ts, "read": True},
    )


def read_expired(start_ts: int, before_ts: int) -> WriteConflict:
    return WriteConflict(
        f"a record that serializable transaction {start_ts} read expired before it could be "
        "committed; nothing was written. Run the transaction again",
        details={"conflict_ts": before_ts, "start_ts": start_ts, "read": True},
    )


def aborted(start_ts: int, reason: str) -> TxnAborted:
    return TxnAborted(
        f"transaction {start_ts} was rolled back: {reason}. Run it again",
        details={"txn": start_ts, "reason": reason},
    )


class OfAnother(Exception):
    """A command would go on with, or end, a transaction of another user: the node that was asked
    looks itself what may be told (kv.server.connection_rights).
    """


def taken(start_ts: int) -> TxnAborted:
    """Somebody else has used the id of a transaction, where this one begins or goes on."""
    return aborted(start_ts, "a transaction of another user has its timestamp")


def over(known: TxnRecord, start_ts: int, user: str) -> TxnAborted:
    """Of a transaction of `user` whose record is not his, or says so."""
    if known.user != user:
        return taken(start_ts)
    return aborted(start_ts, "its record says so (it expired, or somebody aborted it)")


def in_the_way(key: bytes, lock: Lock, start_ts: int, now_ms: int) -> KeyLocked | TxnAborted:
    """A prewrite met an intent that its transaction has not laid."""
    return taken(start_ts) if lock.start_ts == start_ts else key_locked(key, lock, now_ms)


def snapshot_too_old(read_ts: int, safepoint: int, retention_ms: int) -> SnapshotTooOld:
    return SnapshotTooOld(
        f"reading at {read_ts} is not possible any more: old versions are kept for {retention_ms} "
        f"ms, and those below the safepoint {safepoint} are collected. Read at a newer timestamp, "
        "hold a snapshot while you read for long, or raise gc_retention_ms",
        details={"at": read_ts, "safepoint": safepoint, "retention_ms": retention_ms},
    )


def check_age(start_ts: int, safepoint: int, now_ms: int) -> None:
    """Refuse to write for a transaction whose record or conflicts may already be forgotten."""
    age_ms = now_ms - physical_ms(start_ts)
    if age_ms > TXN_LIFETIME_MS_MAX:
        raise aborted(
            start_ts,
            f"it is {age_ms} ms old and a transaction lives {TXN_LIFETIME_MS_MAX} ms at most",
        )
    if start_ts < safepoint:
        raise aborted(start_ts, f"it began before the safepoint {safepoint}")
