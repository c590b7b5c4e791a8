"""Intents and guards whose transaction has its record in a range that goes away.

When a table is dropped, the records of the transactions that are anchored in it go with it, and
with them the only proof that one of them committed. So what they left in other tables is ended
before (kvorum/settling.py); this finds it at one node, in the partitions that it leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kv.base.intents import Abandoned
from kv.mvcc.guards import Guard
from kv.mvcc.records import Lock
from kv.replica.replica import Replica


def anchored(
    replicas: Iterable[Replica], start: bytes, end: bytes, keys_max: int
) -> list[Abandoned]:
    """Those anchored in `[start, end)` (end b"" = no bound) that lie outside of it, up to so many
    keys. Looks at all intents.
    """
    found: list[Abandoned] = []
    left = keys_max
    for replica in replicas:
        locks, guards = replica.state.locks.by_key, replica.state.guards.by_at
        if not (locks or guards) or not replica.leads():
            continue
        here: dict[int, Abandoned] = {}
        mine: Iterable[tuple[bytes, Lock | Guard]] = chain(
            locks.items(), ((one.start, one) for one in guards.values())
        )
        for key, one in mine:
            if not start <= one.anchor or (end and one.anchor >= end):
                continue
            if start <= key and (not end or key < end):
                continue
            new = Abandoned(one.start_ts, one.anchor, one.ttl_ms, [])
            here.setdefault(one.start_ts, new).keys.append(key)
            left -= 1
            if not left:
                return [*found, *here.values()]
        found += here.values()
    return found
