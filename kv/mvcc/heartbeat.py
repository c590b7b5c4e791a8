"""A transaction's owner says that it is alive."""

from __future__ import annotations

from dataclasses import replace

from kv.base.methods import PENDING
from kv.mvcc.refusals import check_age
from kv.mvcc.view import Mutations, View


def heartbeat(view: View, anchor: bytes, *, start_ts: int, now_ms: int, m: Mutations) -> int:
    """The status; PENDING also while there is no record yet (nothing is written then). Raises
    TxnAborted: too old.
    """
    record = view.txn(anchor, start_ts)
    if record is not None and record.status != PENDING:
        return record.status
    check_age(start_ts, 0, now_ms)
    if record is not None and record.heartbeat_ms != now_ms:
        m.set_txn(anchor, start_ts, replace(record, heartbeat_ms=now_ms), new=False)
    return PENDING
