"""What has become of a transaction, asked by whoever met its intent or by its owner: always
answered.

Three cases change something: an abandoned transaction (no heartbeat within its time to live) is
rolled back; one that was never heard of and should have been is fenced off with an ABORTED record;
and a reader's `push_above` raises the bound below which the transaction may not commit any more, so
that the reader can read on without waiting (D10). A STAGING one is only reported, with its parts:
whoever asks recovers it (kv.mvcc.recover).

Whoever has met no intent of a transaction may have guessed its id, and an intent may have been made
to look like another user's. So of one that was not `met`, and has no record, nothing is written
down; and of a record that is another user's than the intent, the intent is no part.
"""

from __future__ import annotations

from dataclasses import dataclass

from kv.base.limits import TXN_TTL_MS_MAX, TXN_TTL_MS_SAID_MIN
from kv.base.methods import ABORTED, PENDING, STAGING
from kv.base.timestamps import physical_ms
from kv.mvcc.records import TxnRecord
from kv.mvcc.rollback import rollback
from kv.mvcc.view import Mutations, View


@dataclass(frozen=True, slots=True)
class Checked:
    """`age_ms`: since the last heartbeat (of one never heard of: since its start)."""

    record: TxnRecord
    age_ms: int


def check(
    view: View,
    anchor: bytes,
    *,
    start_ts: int,
    push_above: int,
    ttl_ms: int,
    now_ms: int,
    m: Mutations,
    met: bool = True,
    user: str | None = None,
) -> Checked:
    """`ttl_ms` is that of the met intent, used while there is neither a record nor an intent here.
    `push_above` 0 = do not push. `user`: whose the intent is; None: that is not known.
    """
    record = view.txn(anchor, start_ts)
    if record is not None and user is not None and record.user != user:
        return Checked(TxnRecord(ABORTED), 0)
    if record is not None and record.status == STAGING:
        age_ms = now_ms - record.heartbeat_ms
        return Checked(record, age_ms if age_ms >= 0 else record.ttl_ms)  # the clock was set back
    if record is not None and record.status != PENDING:
        return Checked(record, 0)
    if record is None:
        ttl_ms = _ttl_ms(view, anchor, start_ts, ttl_ms)
        seen = TxnRecord(PENDING, 0, 0, physical_ms(start_ts), ttl_ms, user=user or "")
    else:
        seen = record
    age_ms = now_ms - seen.heartbeat_ms
    if record is None and not met:
        return Checked(seen, max(0, age_ms))
    if age_ms > seen.ttl_ms:
        return Checked(rollback(view, anchor, start_ts=start_ts, m=m, user=seen.user), age_ms)
    known = seen
    if age_ms < -seen.ttl_ms:
        # From the future: the clock was set back, and the oracle, which goes on ahead of it, dates
        # every new transaction so. Nobody knows how old this one is: it gets its time anew, once.
        seen = seen._replace(heartbeat_ms=now_ms)
    if push_above and seen.min_commit_ts <= push_above:
        seen = seen._replace(min_commit_ts=push_above + 1)
    if seen is not known:
        m.set_txn(anchor, start_ts, seen, new=record is None)
    return Checked(seen, max(0, age_ms))


def _ttl_ms(view: View, anchor: bytes, start_ts: int, said_ms: int) -> int:
    """How long it lives without a heartbeat. Whoever asks may lie, to have it aborted or to keep it
    for ever; what it wrote itself counts, and where it has written nothing yet, bounds.
    """
    lock = view.lock(anchor)
    if lock is not None and lock.start_ts == start_ts:
        return lock.ttl_ms
    return min(max(said_ms, TXN_TTL_MS_SAID_MIN), TXN_TTL_MS_MAX)
