"""What became of a parallel commit whose coordinator does not say: decided by anybody, once.

The rule. A transaction whose record is STAGING with parts K is committed as soon as every key of K
has an intent of it with a bound in the log of its partition, and then its commit timestamp is the
highest of these bounds. The coordinator knows it from the answers to its prewrites, and answers its
caller before anybody has written it down. Everybody else finds out in two steps:

    RECOVER   at every partition that serves keys of K: are all intents there? The keys are
              *fenced* at once, missing ones and those that have one: a record of status FENCED in
              the log, after which no prewrite of this transaction lays an intent on them again
              (kv.mvcc.prewrite looks before it writes);
    SETTLE    at the anchor: COMMITTED at the highest bound if all were there, else ABORTED;
              whatever else the record says by then is the answer.

Why there is exactly one outcome, whoever asks, how often and in whatever order:

 1. The record leaves STAGING once. SETTLE, COMMIT, the coordinator's own ROLLBACK and its HEARTBEAT
    are each one entry in the anchor's log; the first of them changes it, the others get to know.
 2. Nobody but the coordinator acts on a finding before the record says it. So all but the
    coordinator agree by (1), and it is left to show that the record never contradicts an answer
    that the coordinator gave early, "committed at C".
 3. It gave it when every part had answered that its intents lie in the log with their bounds, that
    the record was STAGING with them, and C is the highest bound. From the answer of the last part
    on:
      * an intent stays until a RESOLVE, which everybody sends only after the record left STAGING,
        or until the entry in which it leaves it (FINISH, docs/decisions/0305); so a RECOVER before
        that finds each of them, with the bound that the coordinator was given, and every SETTLE
        that follows, or comes after it, says COMMITTED at C;
      * an earlier RECOVER found none of the keys missing: it would have fenced it, in the log of
        that key before the prewrite, which would have been refused and not answered. So no SETTLE
        that is still under way says ABORTED;
      * none of the answers came from an echo: a prewrite sent a second time when others had
        committed and resolved the transaction already would lay another intent, with another
        bound. They fenced its key before, or it is the anchor's, where the record refuses it;
      * the coordinator itself sends COMMIT at C and nothing else. It sends ROLLBACK or HEARTBEAT
        only while it has not answered, and from the first of them on it waits for the record
        instead of answering early; a copy of one that still travels tells the same.
 4. A key is fenced, or has an intent, by itself: it does not matter how the keys are distributed
    over partitions, and whether they were split, moved or asked in other portions meanwhile.
 5. What a RECOVER saw is in the log, not only in flight: its reply leaves when the entries that it
    was evaluated on are applied (kv.partition.machine).

Timestamps. A bound is a timestamp that the oracle gave out while its prewrite was evaluated. Below
it, every read that missed the intent; above it, reads wait for the intent to be applied
(kv.partition.reads) and then meet it. So C, the highest, lies above every read that missed any of
them, on the same leader or on one before it, and below every timestamp taken after the caller was
answered. It belongs to this one request, so no other transaction has it. The prewrite that makes
the record STAGING refuses to if a reader has pushed the transaction above its bound; later pushes
find STAGING, and do nothing.

What a serializable transaction read is part of K, by the keys where its guards begin: a guard has
a bound, is fenced and stays like an intent. K names no key twice: what was read at a
key that is written is checked by the request that writes it, and where a range must begin at such a
key, because a partition does, the transaction is flipped. Reads that hold only below some
timestamp, because a record expires, and ranges that one request cannot look through, leave no
bounds: such a transaction is flipped.

Source: CockroachDB's parallel commits (Taft et al. 2020, section 3.3, and its TLA+ model); there a
timestamp cache takes the place of the fence. Deliberately missing: recovery of chunk intents, which
have no bound: transactions of many keys are flipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.errors import InvalidArgument
from kv.base.methods import ABORTED, COMMITTED, PENDING, STAGING
from kv.mvcc.records import TxnRecord
from kv.mvcc.view import Mutations, View


def recover(
    view: View,
    keys: Sequence[bytes],
    *,
    start_ts: int,
    anchor: bytes,
    fence: bool,
    m: Mutations,
    user: str = "",
) -> tuple[bool, int]:
    """(whether every key has an intent of the transaction with a bound, the highest bound).

    If so, or with `fence` in any case, the keys are closed to further prewrites of it. The anchor
    is not: its intent was written together with the STAGING record, so without one the transaction
    is over, and its record says how. `user`: whose it is.
    """
    bound, whole = 0, True
    for key in keys:
        mine = _bound_of(view, key, start_ts, user)
        bound, whole = max(bound, mine), whole and mine > 0
    if whole or fence:
        for key in keys:
            if key != anchor and view.txn(key, start_ts) is None:
                m.set_fence(key, start_ts)
    return whole, bound if whole else 0


def _bound_of(view: View, key: bytes, start_ts: int, user: str) -> int:
    """Of the transaction's intent on the key, or its guard that begins there; 0: it has none."""
    lock = view.lock(key)
    if lock is not None and lock.start_ts == start_ts and lock.user == user:
        return lock.min_commit_ts
    guard = view.guards.by_at.get((key, start_ts)) if view.guards is not None else None
    return guard.min_commit_ts if guard is not None and guard.user == user else 0


def settle(view: View, anchor: bytes, *, start_ts: int, commit_ts: int, m: Mutations) -> TxnRecord:
    """The record afterwards: if it was STAGING, COMMITTED at `commit_ts` or (0) ABORTED; else as it
    was. PENDING also if there is none: ask with CHECK. Raises InvalidArgument.
    """
    record = view.txn(anchor, start_ts)
    if record is None:
        return TxnRecord(status=PENDING)
    if record.status != STAGING:
        return record
    if commit_ts and commit_ts <= max(start_ts, record.min_commit_ts - 1):
        raise InvalidArgument(
            f"settle at {commit_ts}: transaction {start_ts} commits at or above "
            f"{max(start_ts + 1, record.min_commit_ts)}"
        )
    status = COMMITTED if commit_ts else ABORTED
    done = TxnRecord(status, commit_ts, owner=record.owner, user=record.user)
    m.set_txn(anchor, start_ts, done, new=False)
    return done
