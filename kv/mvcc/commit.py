"""The one status change that commits a transaction (D7): everything before it is provisional,
everything after it clean-up. From STAGING it only writes down what the intents say already, or
what a coordinator decides that did not rely on them (kv.mvcc.recover).
"""

from __future__ import annotations

from kv.base.methods import COMMITTED, PENDING, STAGING
from kv.mvcc.records import TxnRecord
from kv.mvcc.refusals import aborted, check_age
from kv.mvcc.view import Mutations, View


def commit(
    view: View, anchor: bytes, *, start_ts: int, commit_ts: int, now_ms: int, m: Mutations
) -> TxnRecord:
    """The record afterwards. COMMITTED or ABORTED: the outcome, whoever decided it. PENDING:
    refused, because a reader pushed the transaction: take a timestamp of at least `min_commit_ts`
    and ask again.

    Raises TxnAborted if the transaction never prewrote its anchor, or is too old.
    """
    record = view.txn(anchor, start_ts)
    if record is not None and record.status not in (PENDING, STAGING):
        return record
    check_age(start_ts, 0, now_ms)
    lock = view.lock(anchor)
    if record is None or lock is None or lock.start_ts != start_ts:
        raise aborted(start_ts, "its anchor was never prewritten, or is not remembered any more")
    if commit_ts < record.min_commit_ts or commit_ts <= start_ts:
        bound = max(record.min_commit_ts, start_ts + 1)
        return record._replace(status=PENDING, min_commit_ts=bound)
    done = TxnRecord(COMMITTED, commit_ts, 0, 0, 0, record.owner)
    m.set_txn(anchor, start_ts, done, new=False)
    return done
