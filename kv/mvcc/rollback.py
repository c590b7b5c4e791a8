"""Abort a transaction for good: its record says ABORTED, also if it never got one, so that a late
prewrite finds it closed.
"""

from __future__ import annotations

from kv.base.methods import ABORTED, PENDING
from kv.mvcc.records import TxnRecord
from kv.mvcc.view import Mutations, View


def rollback(view: View, anchor: bytes, *, start_ts: int, m: Mutations) -> TxnRecord:
    """The record afterwards: ABORTED, or COMMITTED if that came first."""
    record = view.txn(anchor, start_ts)
    if record is not None and record.status != PENDING:
        return record
    done = TxnRecord(status=ABORTED)
    m.set_txn(anchor, start_ts, done, new=record is None)
    return done
