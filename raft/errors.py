"""Errors of the consensus library: one class per reaction of the caller.

    RaftError
    ├── NotLeader          ask `leader_id` instead; the command was certainly not executed
    ├── Stopped            this replica no longer works; restart the node, it recovers from its log
    ├── EntryTooLarge      split the command, or raise `RaftConfig.entry_bytes_max`
    ├── ProposalsFull      wait for earlier proposals; certainly not executed
    │   └── Transferring   the leadership is moving: ask again in a moment; certainly not executed
    ├── BadConfig          a setting or a membership that cannot work: correct it
    ├── UnknownGroup       create the group first, or it was dropped
    ├── LogCorrupt         stored bytes are not what was written: restore or remove this replica
    │   └── LogHole        entries are missing between the state machine and the log
    ├── Fenced             an operator has given this replica's side up: drop it, join anew
    ├── InvariantBroken    consensus would be violated: the replica stops, other replicas decide
    ├── SnapshotUnavailable  raised by a state machine: it makes or takes no snapshot (now)
    ├── ApplyFailed        the state machine raised: the replica stops at that entry
    └── SyncFailed         the disk did not confirm: nothing is acknowledged any more on this node

`LibraryMismatch` is an ImportError: the installed pysyncobj is not the one that this package was
proved with.

Every message says what to do. Nothing here depends on other packages, so callers translate into
their own tree.
"""

from __future__ import annotations


class RaftError(Exception):
    """Root of the tree."""


class NotLeader(RaftError):
    """The group has another leader, or none, or this one may not serve yet. `leader_id` is a hint,
    None if unknown.
    """

    def __init__(self, group_id: int, leader_id: int | None) -> None:
        where = (
            f"ask node {leader_id}" if leader_id is not None else "retry after an election timeout"
        )
        super().__init__(f"group {group_id}: this node does not lead; {where}")
        self.group_id = group_id
        self.leader_id = leader_id


class Stopped(RaftError):
    """The replica or its host was closed, dropped, or stopped itself after a fatal error."""

    def __init__(self, group_id: int, reason: str) -> None:
        super().__init__(
            f"group {group_id} is stopped ({reason}); restart the node to recover it from its log"
        )
        self.group_id = group_id


class EntryTooLarge(RaftError):
    """The command is longer than `RaftConfig.entry_bytes_max`. It was not appended."""

    def __init__(self, group_id: int, entry_bytes: int, entry_bytes_max: int) -> None:
        super().__init__(
            f"group {group_id}: command of {entry_bytes} bytes exceeds "
            f"entry_bytes_max = {entry_bytes_max}; split it into several commands or raise "
            "RaftConfig.entry_bytes_max on every node"
        )
        self.entry_bytes = entry_bytes
        self.entry_bytes_max = entry_bytes_max


class ProposalsFull(RaftError):
    """`RaftConfig.proposals_max` proposals of this group still wait for their outcome. Nothing was
    appended.
    """

    def __init__(self, group_id: int, proposals_max: int) -> None:
        super().__init__(
            f"group {group_id}: {proposals_max} proposals are waiting; "
            "pack more commands into one entry, wait for `ready()`, or raise "
            "RaftConfig.proposals_max"
        )


class Transferring(ProposalsFull):
    """The leader is handing over to `target`; proposals are refused until that has succeeded or
    failed. Nothing was appended.
    """

    def __init__(self, group_id: int, target: int) -> None:
        RaftError.__init__(
            self,
            f"group {group_id}: the leadership is moving to node {target}; retry in a moment, "
            "there or here",
        )
        self.target = target


class BadConfig(RaftError):
    """A setting, a node id or a membership that cannot work. The message names it."""


class UnknownGroup(RaftError):
    """No bootstrap record of this group is stored on this node."""

    def __init__(self, group_id: int) -> None:
        super().__init__(f"group {group_id} is not stored on this node; call create_group first")
        self.group_id = group_id


class LogCorrupt(RaftError):
    """Stored bytes fail their checksum or contradict each other. Never repaired by guessing."""

    def __init__(self, group_id: int, index: int | None, why: str) -> None:
        at = f"group {group_id}" if index is None else f"group {group_id}, index {index}"
        super().__init__(
            f"log of {at}: {why}. Do not delete single records: remove this replica and let the "
            "group rebuild it, or, if it is the only one, restore the node from a backup"
        )
        self.group_id = group_id
        self.index = index


class LogHole(LogCorrupt):
    """Entries that the state machine still needs are not in the log."""


class Fenced(RaftError):
    """An operator has forced the members of the group (`RaftHost.force_members`), and this replica
    is of the side that was given up. It has stopped.
    """

    def __init__(self, group_id: int, members: list[int], reason: str) -> None:
        super().__init__(
            f"group {group_id}: an operator has made nodes {members} its only voters ({reason}); "
            "this replica is of the other side and has stopped. Save from it what the others lack, "
            "then drop it and let the node join the group anew"
        )
        self.group_id = group_id


class InvariantBroken(RaftError):
    """Going on would break consensus. Either a bug or a damaged peer; the replica stops instead."""


class SnapshotUnavailable(RaftError):
    """Raised by a state machine or its snapshot: none can be made, read or taken, never or not now.
    Nothing stops: the follower that needs it stays behind, and it is tried again later.
    """


class ApplyFailed(RaftError):
    """The state machine raised while applying a committed entry; `__cause__` is its exception."""

    def __init__(self, group_id: int, index: int) -> None:
        super().__init__(
            f"group {group_id}: the state machine failed at entry {index}; the replica is stopped "
            "there. A rejected command must be a result, not an exception; fix the cause and "
            "restart"
        )
        self.group_id = group_id
        self.index = index


class SyncFailed(RaftError):
    """The log could not be made durable; `__cause__` says why. After a failed sync the cache may
    lie, so no retry.
    """

    def __init__(self) -> None:
        super().__init__(
            "the Raft log could not be made durable; every group of this node is stopped and "
            "acknowledges nothing. Check the disk, then restart the node"
        )


class LibraryMismatch(ImportError):
    """The installed pysyncobj differs from the pinned source that the hardening was written and
    tested against.
    """
