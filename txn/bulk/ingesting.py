"""INGEST: rows that were made from a snapshot, written as of its time (kv/mvcc/ingest.py)."""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.errors import KeyLocked, Moved, NotLeader, TryLater, UnknownOutcome
from kv.base.methods import INGEST
from txn.intents.resolver import Resolver
from txn.shared.deadlines import Backoff, Deadline
from txn.shared.grouping import end_of_part
from txn.shared.message_sizes import row_runs
from txn.shared.ports import Kv


async def ingest(
    kv: Kv,
    resolver: Resolver,
    backoff: Backoff,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    *,
    at: int,
    unique: bool,
    deadline: Deadline,
) -> int:
    """How many were put. `keys` rise. Message by message, each for one partition and until it is
    answered: done twice it changes nothing, so nothing is unknown. Raises ConditionFailed
    (`unique`: the messages before it are done), TxnAborted (`at` is too old), and what is said at
    the deadline.
    """
    done = 0
    for some, theirs in row_runs(keys, values):
        attempt = low = 0
        while low < len(some):
            high = await end_of_part(kv, some, low)
            try:
                (put,) = await kv.call(
                    INGEST,
                    some[low],
                    some[low:high],
                    theirs[low:high],
                    at,
                    unique,
                    budget_ms=deadline.budget_ms(),
                )
            except KeyLocked as met:
                await resolver.met_by_write(met, attempt, deadline)
            except (Moved, NotLeader, TryLater, UnknownOutcome):
                if deadline.passed:
                    raise
                await backoff.wait(attempt, deadline)
            else:
                done, low, attempt = done + put, high, 0
                continue
            attempt += 1
    return done
