"""What the commit machine and its shell say to each other (txn.commit.core): effects out, events
in.

Plain data. Ops are named by their index in the transaction. A commit makes a dozen of them, and a
frozen dataclass takes ten times as long to make as one of msgspec's structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from kv.base.errors import KvorumError
from txn.shared.message_sizes import Indexes


# -- effects. `attempt` counts from 0: the shell waits longer before each further one
class Group(Struct, frozen=True):
    """Ask which partitions serve these keys now."""

    indexes: Indexes
    attempt: int = 0


class Write(Struct, frozen=True):
    """All ops, one partition, one entry."""

    attempt: int = 0


class Prewrite(Struct, frozen=True):
    indexes: Indexes
    attempt: int = 0


class TakeTimestamp(Struct, frozen=True):
    """A fresh timestamp, at least `above`."""

    above: int


class Flip(Struct, frozen=True):
    commit_ts: int
    attempt: int = 0


class Rollback(Struct, frozen=True):
    attempt: int = 0


class Heartbeat(Struct, frozen=True):
    pass


class Finish(Struct, frozen=True):
    """The answer for the caller: a commit version, or an error."""

    outcome: int | KvorumError


class Resolve(Struct, frozen=True):
    """Turn the intents of these ops into versions of commit_ts, or remove them (0). The last
    effect; one before it if prewrites of an aborted transaction are under way.
    """

    commit_ts: int
    indexes: Indexes


Effect: TypeAlias = (
    Group | Write | Prewrite | TakeTimestamp | Flip | Rollback | Heartbeat | Finish | Resolve
)


# -- events. A failed effect carries its error
class Grouped(Struct, frozen=True):
    request: Group
    groups: Sequence[Indexes]


class Written(Struct, frozen=True):
    version: int


class Prewritten(Struct, frozen=True):
    request: Prewrite
    min_commit_ts: int
    before_ts: int = 0  # of a serializable one: what it read here holds below that; 0 = for ever
    exact: bool = False  # it is the highest bound of these intents; at the anchor: STAGING


class Timestamp(Struct, frozen=True):
    ts: int


class Answered(Struct, frozen=True):
    """What the status record says, to a flip or a rollback."""

    request: Flip | Rollback
    status: int
    commit_ts: int
    min_commit_ts: int = 0
    resolved: Indexes = ()  # whose intents went with the flip


class Beat(Struct, frozen=True):
    status: int


class Failed(Struct, frozen=True):
    request: Group | Write | Prewrite | TakeTimestamp | Flip | Rollback
    error: KvorumError


class GiveUp(Struct, frozen=True):
    """The caller went away, or the time for the work is over: stop if nothing was decided yet."""

    error: KvorumError


class OutOfTime(Struct, frozen=True):
    """The last deadline: answer now."""


Event: TypeAlias = (
    Grouped | Written | Prewritten | Timestamp | Answered | Beat | Failed | GiveUp | OutOfTime
)
