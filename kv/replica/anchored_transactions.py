"""What a table that is being dropped has to do with transactions that go beyond it.

When it is gone, the records of the transactions that are anchored in it are gone, and with them the
only proof that one of them committed; and so are its parts of transactions with their record
elsewhere, which may be committed by their intents alone. So all of them are ended before
(kvorum/storage/drop_transactions.py); this finds them at one node, in the partitions that it leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kv.base.intents import Abandoned, TxnId, txn_id
from kv.mvcc.guards import Guard
from kv.mvcc.records import Lock
from kv.replica.replica import Replica


def inside(key: bytes, start: bytes, end: bytes) -> bool:
    """Whether `[start, end)` has the key; end b"" = no bound."""
    return start <= key and (not end or key < end)


def close(replicas: Iterable[Replica], start: bytes, end: bytes) -> list[int]:
    """Close all of `[start, end)` to new writes; the ids of those led here whose log says so, and
    in which nothing is on its way any more.
    """
    going = [replica for replica in replicas if inside(replica.descriptor.start, start, end)]
    for replica in going:
        replica.close_to_writes()
    led = [replica for replica in going if replica.leads()]
    closed = [replica for replica in led if replica.close_for_good()]
    return [replica.descriptor.id for replica in closed if replica.machine.quiet]


def anchored(
    replicas: Iterable[Replica], start: bytes, end: bytes, keys_max: int
) -> list[Abandoned]:
    """Intents and guards, up to so many keys, whose transaction has its record in `[start, end)`:
    those outside of it, and those at the record; and one key inside of each transaction that has
    its record elsewhere. Looks at all intents.
    """
    found: list[Abandoned] = []
    left = keys_max
    for replica in replicas:
        locks, guards = replica.state.locks, replica.state.guards.by_at
        if not (locks or guards) or not replica.leads():
            continue
        here: dict[TxnId, Abandoned] = {}
        mine: Iterable[tuple[bytes, Lock | Guard]] = chain(
            locks.items(), ((one.start, one) for one in guards.values())
        )
        for key, one in mine:
            id_ = txn_id(one.start_ts, one.user)
            if inside(one.anchor, start, end):
                if key != one.anchor and inside(key, start, end):
                    continue
            elif id_ in here or not inside(key, start, end):
                continue
            new = Abandoned(one.start_ts, one.anchor, one.ttl_ms, [], one.user)
            here.setdefault(id_, new).keys.append(key)
            left -= 1
            if not left:
                return [*found, *here.values()]
        found += here.values()
    return found
