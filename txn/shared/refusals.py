"""What a transaction raises when it does not commit, or is over: the errors, in words that say what
to do.

Of a commit all but `unknown` are certain: nothing was written, nor ever will be. What may be
committed is `unknown`, and never called a failure (FoundationDB's commit_unknown_result;
kv/base/errors.py). Invariant: who makes one of the others knows that no message was sent that could
still commit. Which of them is due when is decided in txn/commit/core.py and
txn/bulk/spilled_commit.py; what participants refuse has its words in kv/mvcc/refusals.py.
"""

from __future__ import annotations

import re

from kv.base.errors import (
    DeadlineExceeded,
    KvorumError,
    NotFound,
    Refused,
    TxnAborted,
    Unavailable,
    UnknownOutcome,
)
from kv.base.limits import TXN_LIFETIME_MS_MAX


def too_old(start_ts: int, age_ms: int) -> TxnAborted:
    """The transaction is older than any may become."""
    return TxnAborted(
        f"transaction {start_ts} is {age_ms} ms old; the limit is {TXN_LIFETIME_MS_MAX}; "
        "split the work into shorter transactions",
        details={"txn": start_ts, "reason": "lifetime"},
    )


def deadline_exceeded(start_ts: int) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"transaction {start_ts} could not be committed before its deadline; nothing was written",
        details={"txn": start_ts},
    )


def expired(start_ts: int) -> TxnAborted:
    """Somebody rolled it back, because it seemed to be dead."""
    return TxnAborted(
        f"transaction {start_ts} was rolled back by another client: it went without a "
        "heartbeat for longer than its ttl; run it again, with a longer ttl_ms if it is slow",
        details={"txn": start_ts, "reason": "expired"},
    )


def connection_lost(start_ts: int) -> TxnAborted:
    """Its one request broke, and the record says that it was not executed and never will be."""
    return TxnAborted(
        f"the connection broke before transaction {start_ts} was executed; nothing "
        "was written; run it again",
        details={"txn": start_ts, "reason": "connection lost"},
    )


def caller_gone(start_ts: int) -> TxnAborted:
    return TxnAborted(
        f"the caller of transaction {start_ts} went away",
        details={"txn": start_ts, "reason": "cancelled"},
    )


def closed(start_ts: int) -> Unavailable:
    return Unavailable(
        f"the client was closed before transaction {start_ts} was committed",
        details={"txn": start_ts},
    )


def unknown(start_ts: int, anchor: bytes, *, until: str = " before the deadline") -> UnknownOutcome:
    """Only the record at the anchor knows, and it could not be asked `until` then."""
    return UnknownOutcome(
        f"the outcome of transaction {start_ts} could not be learned{until}: it "
        "may or may not be committed; ask for its status by its id before doing it again",
        details={"txn": start_ts, "anchor": anchor},
    )


def renumber(error: KvorumError, place: int | None) -> None:
    """A refused condition (kv.mvcc.refusals.condition_failed) is reported by the place of its op in
    what the caller gave, not in a message; None: that has none.
    """
    number = "" if place is None else f"operation {place}: "
    error.details["op"] = place
    error.message = number + re.sub(r"^operation \d+: ", "", error.message)
    error.args = (error.message,)


# -- of one that has ended, worded once for every surface

BY_OWNER = "it was aborted by its owner"
BY_REQUEST = "it was aborted on request"


def is_over(txn: int, why: str) -> TxnAborted:
    """It did not commit, and takes no more requests."""
    return TxnAborted(
        f"transaction {txn} is over: {why}; begin another",
        details={"txn": str(txn), "reason": why},
    )


def is_committed(txn: int, version: int) -> Refused:
    """It has committed: neither does it take requests nor can it be aborted."""
    return Refused(
        f"transaction {txn} has committed at {version}; begin another",
        code="TXN_COMMITTED",
        details={"txn": str(txn), "commit_ts": str(version)},
    )


def is_unknown(txn: int) -> NotFound:
    """Nobody can be asked to end it."""
    return NotFound(
        f"nothing is known of transaction {txn}: it has written nothing, holds nothing, and only "
        "its own client can end it; or it never was, or is not remembered any more. `kvorum locks` "
        "lists those that hold something",
        code="TXN_NOT_FOUND",
        details={"txn": str(txn)},
    )
