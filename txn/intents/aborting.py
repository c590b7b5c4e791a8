"""Ends a transaction by its id, whoever began it.

What is to be aborted has a record, or it holds nothing: without one there is nothing to be undone,
and nobody but its client knows of it. One that may be committed by its intents alone (STAGING) is
recovered first, as by a reader who meets it: what is committed cannot be aborted any more.
"""

from __future__ import annotations

from kv.base.errors import DeadlineExceeded, KvorumError
from kv.base.limits import TXN_TTL_MS_MAX
from kv.base.methods import ABORTED, COMMITTED, ROLLBACK, STAGING
from txn.intents.resolver import Resolver, resolve
from txn.shared.deadlines import Backoff, Deadline
from txn.shared.ports import Kv
from txn.shared.refusals import is_committed


async def abort(
    kv: Kv, resolver: Resolver, backoff: Backoff, txn: int, anchor: bytes, deadline: Deadline
) -> None:
    """Roll back the transaction whose record is at `anchor`; fine if it was already. Raises Refused
    (TXN_COMMITTED), DeadlineExceeded: ask again, nothing is lost by that.
    """
    attempt = 0
    while True:
        status, version = await kv.call(
            ROLLBACK, anchor, anchor, txn, budget_ms=deadline.budget_ms()
        )
        if status == STAGING:
            found, _ = await resolver.check(
                txn, anchor, ttl_ms=TXN_TTL_MS_MAX, budget_ms=deadline.budget_ms()
            )
            status, version = found.status, found.commit_ts
        if status == COMMITTED:
            raise is_committed(txn, version)
        if status == ABORTED:
            break
        if deadline.passed:  # its coordinator has the first word for a moment
            raise DeadlineExceeded(
                f"whether transaction {txn} is committed could not be learned in time; ask again",
                details={"txn": str(txn)},
            )
        await backoff.wait(attempt, deadline)
        attempt += 1
    try:  # the key that is asked for most; whoever waits for others finds out by himself
        await resolve(kv, [anchor], txn, 0, budget_ms=deadline.budget_ms(), anchor=anchor)
    except KvorumError:
        return
