"""Requests about timestamps and snapshots (kv/base/verbs.py). TSO itself is kv's, which has a short
way for it.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from kv.base.fields import Timestamp, TsoCount, integer, text
from kv.base.limits import LEASE_TTL_MS_MAX, NAME_CHARS_MAX, OWNER_CHARS_MAX
from kv.base.rights import Action
from kv.base.verbs import CLUSTER, Caller, Repeat, Request, verb

# Whoever may come in at all needs timestamps, and a snapshot of what it reads.
_served = partial(verb, by=Caller.CLIENT, action=Action.CONNECT, on=CLUSTER, repeat=Repeat.QUESTION)

User = Annotated[str, text(NAME_CHARS_MAX)]


@_served(69)
class Safepoint(Request):
    """→ the safepoint: reads below it are refused"""


@_served(110, master=True, in_reply={"read_ts": 1})
class SnapshotOpen(Request):
    """→ id, at. Hold a snapshot: what a reader of `at` (0 = now) sees is not collected until it is
    released or nobody renews it for ttl_ms (tso/leases.py). One whose answer was lost expires.
    """

    at: Timestamp
    owner: Annotated[str, text(OWNER_CHARS_MAX)]
    ttl_ms: Annotated[int, integer(1, LEASE_TTL_MS_MAX)]
    user: User = ""


@_served(111, master=True)
class SnapshotRenew(Request):
    """→ at. Of another's (`user`, of whom a node asks for; empty: anybody's) it needs operate."""

    id: Timestamp
    user: User = ""


@_served(112, master=True)
class SnapshotRelease(Request):
    """→ whether it was held. Of another's as SNAPSHOT_RENEW"""

    id: Timestamp
    user: User = ""


@verb(
    113,
    by=Caller.CLIENT,
    action=Action.READ,
    on=CLUSTER,
    repeat=Repeat.QUESTION,
    master=True,
)
class SnapshotList(Request):
    """→ [[id, at, owner, ttl_ms, age_ms, left_ms], …], oldest first, the safepoint"""


@verb(114, by=Caller.NODE, action=Action.NODE, on=CLUSTER, repeat=Repeat.QUESTION, master=True)
class CollectBelow(Request):
    """→ the cluster's safepoint, durable: what is superseded at or below it may be collected"""


@_served(117)
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
