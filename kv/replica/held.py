"""The intents and guards of the partitions that a node leads, for people (GET /v1/locks)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice
from typing import Final

from kv.base.timestamps import physical_ms
from kv.base.waits import GUARD, INTENT, Held
from kv.mvcc.guards import Guard
from kv.mvcc.records import Lock, TxnRecord
from kv.replica.replica import Replica

_LOOKED_AT: Final = 10_000  # per partition: there may be a million

OwnerOf = Callable[[bytes, int], str]


def held(replicas: Iterable[Replica], node: int, now_ms: int, most: int) -> tuple[list[Held], bool]:
    """The oldest `most` of about the first 10 000 of each partition, and whether there are more."""
    found: list[Held] = []
    more = False
    for replica in replicas:
        state = replica.state
        # A partition that sleeps has no lease, and keeps its intents.
        if not (state.locks.by_key or state.guards.by_at) or not replica.leads():
            continue
        locks, guards = state.locks.by_key, state.guards.by_at
        more = more or len(locks) > _LOOKED_AT or len(guards) > _LOOKED_AT
        owner = _owners(replica)
        id_ = replica.descriptor.id
        found += [
            _intent(node, id_, key, lock, owner, now_ms)
            for key, lock in islice(locks.items(), _LOOKED_AT)
        ]
        found += [
            _guard(node, id_, guard, owner, now_ms) for guard in islice(guards.values(), _LOOKED_AT)
        ]
    return nsmallest(most, found, key=lambda one: one.txn), more or len(found) > most


def _owners(replica: Replica) -> OwnerOf:
    """By anchor and start_ts, for transactions whose status record is in this partition."""
    known: dict[int, str] = {}

    def owner(anchor: bytes, start_ts: int) -> str:
        if start_ts not in known:
            record: TxnRecord | None = None
            if replica.descriptor.covers(anchor):
                record = replica.state.txn(anchor, start_ts)
            known[start_ts] = "" if record is None else record.owner
        return known[start_ts]

    return owner


def _intent(node: int, partition: int, key: bytes, lock: Lock, owner: OwnerOf, now_ms: int) -> Held:
    return Held(
        node,
        partition,
        INTENT,
        key,
        None,
        lock.start_ts,
        owner(lock.anchor, lock.start_ts),
        max(0, now_ms - physical_ms(lock.start_ts)),
        lock.ttl_ms,
    )


def _guard(node: int, partition: int, guard: Guard, owner: OwnerOf, now_ms: int) -> Held:
    return Held(
        node,
        partition,
        GUARD,
        guard.start,
        guard.end,
        guard.start_ts,
        owner(guard.anchor, guard.start_ts),
        max(0, now_ms - physical_ms(guard.start_ts)),
        guard.ttl_ms,
    )
