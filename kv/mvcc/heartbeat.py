"""A transaction's owner says that it is alive.

One that is STAGING becomes PENDING: its owner waits for something, does not count on its intents
any more, and will flip. So nobody recovers it, and readers push it instead of waiting.
"""

from __future__ import annotations

from dataclasses import replace

from kv.base.methods import PENDING, STAGING
from kv.mvcc.refusals import check_age
from kv.mvcc.view import Mutations, View


def heartbeat(view: View, anchor: bytes, *, start_ts: int, now_ms: int, m: Mutations) -> int:
    """The status; PENDING also while there is no record yet (nothing is written then). Raises
    TxnAborted: too old.
    """
    record = view.txn(anchor, start_ts)
    if record is not None and record.status not in (PENDING, STAGING):
        return record.status
    check_age(start_ts, 0, now_ms)
    if record is not None and (record.heartbeat_ms != now_ms or record.status == STAGING):
        alive = replace(record, status=PENDING, heartbeat_ms=now_ms, parts=())
        m.set_txn(anchor, start_ts, alive, new=False)
    return PENDING
