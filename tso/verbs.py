"""Requests about timestamps and snapshots (kv/base/verbs.py). TSO itself is kv's, which has a short
way for it.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from kv.base.fields import Timestamp, TsoCount, integer, text
from kv.base.limits import LEASE_TTL_MS_MAX, OWNER_CHARS_MAX
from kv.base.rights import Action
from kv.base.verbs import CLUSTER, Caller, Repeat, Request, verb

_read = partial(
    verb, by=Caller.CLIENT, action=Action.READ, on=CLUSTER, repeat=Repeat.QUESTION, master=True
)


@verb(69, by=Caller.CLIENT, action=Action.READ, on=CLUSTER, repeat=Repeat.QUESTION)
class Safepoint(Request):
    """→ the safepoint: reads below it are refused"""


@_read(110, told={"read_ts": 1})
class SnapshotOpen(Request):
    """→ id, at. Hold a snapshot: what a reader of `at` (0 = now) sees is not collected until it is
    released or nobody renews it for ttl_ms (tso/leases.py). One whose answer was lost expires.
    """

    at: Timestamp
    owner: Annotated[str, text(OWNER_CHARS_MAX)]
    ttl_ms: Annotated[int, integer(1, LEASE_TTL_MS_MAX)]


@_read(111)
class SnapshotRenew(Request):
    """→ at"""

    id: Timestamp


@_read(112)
class SnapshotRelease(Request):
    """→ whether it was held"""

    id: Timestamp


@_read(113)
class SnapshotList(Request):
    """→ [[id, at, owner, ttl_ms, age_ms, left_ms], …], oldest first, the safepoint"""


@verb(114, by=Caller.NODE, action=Action.NODE, on=CLUSTER, repeat=Repeat.QUESTION, master=True)
class CollectBelow(Request):
    """→ the cluster's safepoint, durable: what is superseded at or below it may be collected"""


@verb(117, by=Caller.CLIENT, action=Action.READ, on=CLUSTER, repeat=Repeat.QUESTION)
class TsoRelayed(Request):
    """→ first. TSO, which this node asks the meta partition's leader in the caller's stead: in one
    attempt, begun after it was asked (tso/detour.py).
    """

    count: TsoCount


SAFEPOINT: Final = Safepoint.number
SNAPSHOT_OPEN: Final = SnapshotOpen.number
SNAPSHOT_RENEW: Final = SnapshotRenew.number
SNAPSHOT_RELEASE: Final = SnapshotRelease.number
SNAPSHOT_LIST: Final = SnapshotList.number
COLLECT_BELOW: Final = CollectBelow.number
TSO_RELAYED: Final = TsoRelayed.number
