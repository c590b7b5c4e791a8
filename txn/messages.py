"""What the commit machine and its shell say to each other (txn.core): effects out, events in.

Plain data. Ops are named by their index in the transaction. Nobody changes a message; they are not
`frozen`, because making a frozen one takes four times as long, and a commit makes a dozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kv.base.errors import KvorumError

Indexes: TypeAlias = tuple[int, ...]  # of the transaction's ops, in its order


# -- effects. `attempt` counts from 0: the shell waits longer before each further one
@dataclass(slots=True)
class Group:
    """Ask which partitions serve these keys now."""

    indexes: Indexes
    attempt: int = 0


@dataclass(slots=True)
class Write:
    """All ops, one partition, one entry."""

    attempt: int = 0


@dataclass(slots=True)
class Prewrite:
    indexes: Indexes
    attempt: int = 0


@dataclass(slots=True)
class TakeTimestamp:
    """A fresh timestamp, at least `above`."""

    above: int


@dataclass(slots=True)
class Flip:
    commit_ts: int
    attempt: int = 0


@dataclass(slots=True)
class Rollback:
    attempt: int = 0


@dataclass(slots=True)
class Heartbeat:
    pass


@dataclass(slots=True)
class Finish:
    """The answer for the caller: a commit version, or an error."""

    outcome: int | KvorumError


@dataclass(slots=True)
class Resolve:
    """Turn the intents of these ops into versions of commit_ts, or remove them (0). The last
    effect; one before it if prewrites of an aborted transaction are under way.
    """

    commit_ts: int
    indexes: Indexes


Effect: TypeAlias = (
    Group | Write | Prewrite | TakeTimestamp | Flip | Rollback | Heartbeat | Finish | Resolve
)


# -- events. A failed effect carries its error
@dataclass(slots=True)
class Grouped:
    request: Group
    groups: Sequence[Indexes]


@dataclass(slots=True)
class Written:
    version: int


@dataclass(slots=True)
class Prewritten:
    request: Prewrite
    min_commit_ts: int
    before_ts: int = 0  # of a serializable one: what it read here holds below that; 0 = for ever
    exact: bool = False  # it is the highest bound of these intents; at the anchor: STAGING


@dataclass(slots=True)
class Timestamp:
    ts: int


@dataclass(slots=True)
class Answered:
    """What the status record says, to a flip or a rollback."""

    request: Flip | Rollback
    status: int
    commit_ts: int
    min_commit_ts: int = 0
    resolved: Indexes = ()  # whose intents went with the flip


@dataclass(slots=True)
class Beat:
    status: int


@dataclass(slots=True)
class Failed:
    request: Group | Write | Prewrite | TakeTimestamp | Flip | Rollback
    error: KvorumError


@dataclass(slots=True)
class GiveUp:
    """The caller went away, or the time for the work is over: stop if nothing was decided yet."""

    error: KvorumError


@dataclass(slots=True)
class OutOfTime:
    """The last deadline: answer now."""


Event: TypeAlias = (
    Grouped | Written | Prewritten | Timestamp | Answered | Beat | Failed | GiveUp | OutOfTime
)
