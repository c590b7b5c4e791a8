"""The one status change that commits a transaction (D7): everything before it is provisional,
everything after it clean-up. From STAGING it only writes down what the intents say already, or
what a coordinator decides that did not rely on them (kv.mvcc.recover).

One transaction may take others with it (`beside`): those of a batch's tasks, which laid its rows.
All of them are committed at one timestamp, in one entry, or none is. They need no intent at their
anchors, and may be older than a transaction usually lives: their records are the proof that nobody
gave them up.
"""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.errors import InvalidArgument
from kv.base.methods import COMMITTED, PENDING, STAGING
from kv.mvcc.records import TxnRecord
from kv.mvcc.refusals import OfAnother, aborted, check_age
from kv.mvcc.view import Mutations, View


def commit(
    view: View,
    anchor: bytes,
    *,
    start_ts: int,
    commit_ts: int,
    now_ms: int,
    m: Mutations,
    beside: Sequence[tuple[bytes, int]] = (),
) -> TxnRecord:
    """The record afterwards. COMMITTED or ABORTED: the outcome, whoever decided it. PENDING:
    refused, because a reader pushed the transaction: take a timestamp of at least `min_commit_ts`
    and ask again. `beside`: anchor and start of those that are committed with it.

    Raises TxnAborted if the transaction never prewrote its anchor, or is too old, or if one of
    those beside it is over.
    """
    record = view.txn(anchor, start_ts)
    if record is not None and record.user != m.user and not m.ends_others:
        raise OfAnother
    if record is not None and record.status not in (PENDING, STAGING):
        return record
    check_age(start_ts, 0, now_ms)
    lock = view.lock(anchor)
    if record is None or lock is None or lock.start_ts != start_ts or lock.user != record.user:
        raise aborted(start_ts, "its anchor was never prewritten, or is not remembered any more")
    others = [(*one, _pending(view, *one, m)) for one in beside]
    bound = max(
        record.min_commit_ts, start_ts + 1, *(max(r.min_commit_ts, ts + 1) for _, ts, r in others)
    )
    if commit_ts < bound:
        return record._replace(status=PENDING, min_commit_ts=bound)
    done = TxnRecord(COMMITTED, commit_ts, 0, 0, 0, record.owner, (), record.user)
    m.set_txn(anchor, start_ts, done, new=False)
    for other, other_ts, its in others:
        m.set_txn(other, other_ts, done._replace(owner=its.owner, user=its.user), new=False)
    return done


def _pending(view: View, anchor: bytes, start_ts: int, m: Mutations) -> TxnRecord:
    """The record of one that is to be committed with another. Raises TxnAborted."""
    if not view.holds(anchor):
        raise InvalidArgument("transactions that are committed together lie in one partition")
    record = view.txn(anchor, start_ts)
    if record is not None and record.user != m.user and not m.ends_others:
        raise OfAnother
    if record is None or record.status != PENDING:
        raise aborted(start_ts, "it was to be committed with another one, and is over already")
    return record
