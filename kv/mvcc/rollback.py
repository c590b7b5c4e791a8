"""Abort a transaction for good: its record says ABORTED, also if it never got one, so that a late
prewrite finds it closed.

One that is STAGING may be committed already, by its intents alone. Only its coordinator, which
knows that it reported no commit, may still abort it; everybody else recovers it (kv.mvcc.recover).
"""

from __future__ import annotations

from kv.base.methods import ABORTED, PENDING, STAGING
from kv.mvcc.records import TxnRecord
from kv.mvcc.refusals import OfAnother
from kv.mvcc.view import Mutations, View


def rollback(
    view: View,
    anchor: bytes,
    *,
    start_ts: int,
    m: Mutations,
    own: bool = False,
    user: str | None = None,
) -> TxnRecord:
    """The record afterwards: ABORTED, COMMITTED if that came first, or STAGING (only if not
    `own`). `user`: whose it is, if there is none yet.
    """
    record = view.txn(anchor, start_ts)
    if record is not None and record.user != m.user and not m.ends_others:
        raise OfAnother
    if record is not None and record.status != PENDING and not (own and record.status == STAGING):
        return record
    done = TxnRecord(ABORTED, user=m.user if user is None else user)
    if record is not None:
        done = TxnRecord(ABORTED, owner=record.owner, user=record.user)
    m.set_txn(anchor, start_ts, done, new=record is None)
    return done
