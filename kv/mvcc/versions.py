"""Adding one committed version to a key, with its rows for the collector. Shared by `write` and
`resolve`.

What it replaces goes to `hist`, but for the tables that keep no history (`UNVERSIONED`).
"""

from __future__ import annotations

from kv.base.system import UNVERSIONED
from kv.mvcc.records import (
    HAS_TTL,
    TOMBSTONE,
    cur_row,
    expiry_of,
    gcq_expiry,
    gcq_tomb,
    put_row,
)
from kv.mvcc.view import Mutations


def add_version(
    m: Mutations,
    key: bytes,
    value: bytes | None,
    *,
    expire_ms: int,
    commit_ts: int,
    old: bytes | None,
    tombstone: bool = False,
) -> None:
    """`value` (None = delete) becomes the newest version over `old`, the sealed cur record or None.

    Deleting what is not there (or is deleted already) changes nothing: a second tombstone would
    only be garbage. But with `tombstone` it leaves one, for `kv.mvcc.ingest` to find.
    """
    kept = None if old is not None and key[:4] in UNVERSIONED else old
    if value is not None and not expire_ms and (old is None or not old[8]):
        m.rows.append(put_row(key, value, commit_ts, kept))
        if commit_ts > m.top_ts:
            m.top_ts = commit_ts
    else:
        flags = 0 if old is None else old[8]
        if value is None:
            if not tombstone and (old is None or flags & TOMBSTONE):
                return
            m.others.append(("gcq", gcq_tomb(key, commit_ts), b""))
        if old is not None and flags & HAS_TTL:
            m.others.append(("gcq", gcq_expiry(key, expiry_of(old)), None))
        if expire_ms:
            m.others.append(("gcq", gcq_expiry(key, expire_ms), b""))
        m.version(cur_row(key, value, commit_ts, kept, expire_ms=expire_ms), commit_ts)
    if kept is None and old is not None:
        m.forgotten_bytes += len(key) + len(old)
