"""A transaction's owner says that it is alive.

One that is STAGING becomes PENDING: its owner waits for something, does not count on its intents
any more, and will flip. So nobody recovers it, and readers push it instead of waiting.
"""

from __future__ import annotations

from kv.base.methods import PENDING, STAGING
from kv.mvcc.records import TxnRecord
from kv.mvcc.refusals import OfAnother, check_age, taken
from kv.mvcc.view import Mutations, View


def heartbeat(
    view: View,
    anchor: bytes,
    *,
    start_ts: int,
    now_ms: int,
    m: Mutations,
    ttl_ms: int = 0,
    owner: str = "",
    user: str | None = None,
) -> int:
    """The status; PENDING also while there is no record yet. Raises TxnAborted: too old, or of
    another user.

    `ttl_ms`: begin the record if there is none, as a push does: the prewrite of the anchor waits in
    a queue, and who meets the other intents must find that somebody cares for them. One that is
    there lives at least so long from now on, however old it is: its record is what its rows are
    committed by (kv.mvcc.commit). 0: write nothing then. `user`: whose it is, if that is
    known.
    """
    record = view.txn(anchor, start_ts)
    whose = m.user if user is None else user
    if record is not None:
        if user not in (None, record.user):
            raise taken(start_ts)
        whose = record.user
    if whose != m.user and not m.ends_others:
        raise OfAnother
    if record is not None and record.status not in (PENDING, STAGING):
        return record.status
    if record is None or not ttl_ms:
        check_age(start_ts, 0, now_ms)
    if record is None and ttl_ms:
        born = TxnRecord(PENDING, 0, 0, now_ms, ttl_ms, owner, (), whose)
        m.set_txn(anchor, start_ts, born, new=True)
    longer = record is not None and record.ttl_ms < ttl_ms
    if record is not None and (longer or record.heartbeat_ms != now_ms or record.status == STAGING):
        ttl_ms = max(ttl_ms, record.ttl_ms)
        alive = record._replace(status=PENDING, heartbeat_ms=now_ms, ttl_ms=ttl_ms, parts=())
        m.set_txn(anchor, start_ts, alive, new=False)
    return PENDING
