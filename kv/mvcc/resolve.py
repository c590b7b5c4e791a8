"""Second phase on one partition: intents become versions at the commit timestamp, or vanish."""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.keys import from_u64
from kv.base.methods import OP_CHECK, OP_PUT
from kv.base.timestamps import physical_ms
from kv.mvcc.versions import add_version
from kv.mvcc.view import Mutations, View


def resolve(
    view: View, keys: Sequence[bytes], *, start_ts: int, commit_ts: int, m: Mutations
) -> int:
    """How many intents of `start_ts` were resolved; commit_ts 0 = rolled back. Keys are distinct.

    Keys without such an intent are left alone. An intent over a version at or above commit_ts is
    the echo of a prewrite that was sent twice and arrived late: its version was written long ago,
    so it only vanishes. Raises Corruption.
    """
    resolved = 0
    for key in keys:
        lock = view.lock(key)
        if lock is None or lock.start_ts != start_ts:
            continue
        m.drop_lock(key)
        resolved += 1
        if not commit_ts or lock.kind == OP_CHECK:
            continue
        old = view.cur(key)
        if old is not None and from_u64(old) >= commit_ts:
            continue
        value = None
        if lock.kind == OP_PUT:
            value = lock.payload if lock.payload is not None else view.intent(key).payload
        ttl_ms = lock.value_ttl_ms
        add_version(
            m,
            key,
            value,
            expire_ms=physical_ms(commit_ts) + ttl_ms if ttl_ms else 0,
            commit_ts=commit_ts,
            old=old,
        )
    return resolved
