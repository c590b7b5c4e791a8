"""The pinned library's class as `raft/group.py` builds on it: its private state by name, its
settings, and what of it is switched off. Besides `raft/group.py` and `raft/elections.py` the only
file that knows its privates.
"""

from __future__ import annotations

from raft.api import RaftConfig
from raft.journal import Journal
from raft.pinned import CANDIDATE, LEADER, LibraryLog, Message, PeerNode, SyncObj, SyncObjConf
from raft.records import Entry


class LibraryGroup(SyncObj):
    """One group without our rules. `journal` and `_config` are set before its constructor runs."""

    journal: Journal
    _config: RaftConfig

    # What we read and write of the library's private state.
    _SyncObj__raftState: int
    _SyncObj__raftCurrentTerm: int
    _SyncObj__raftCommitIndex: int
    _SyncObj__raftLastApplied: int
    _SyncObj__raftLeader: PeerNode | None
    _SyncObj__raftElectionDeadline: float
    _SyncObj__newAppendEntriesTime: float
    _SyncObj__otherNodes: set[PeerNode]
    _SyncObj__readonlyNodes: set[PeerNode]
    _SyncObj__connectedNodes: set[PeerNode]
    _SyncObj__raftNextIndex: dict[PeerNode, int]
    _SyncObj__raftMatchIndex: dict[PeerNode, int]
    _SyncObj__lastResponseTime: dict[PeerNode, float]

    def _library_conf(self) -> object:
        config = self._config
        return SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=config.heartbeat_ms / 1000,
            raftMinTimeout=config.election_min_ms / 1000,
            raftMaxTimeout=config.election_max_ms / 1000,
            # Check-quorum: a leader without a majority gives way. 30 s by default (P6).
            leaderFallbackTimeout=config.election_max_ms / 1000,
            connectionTimeout=1e9,
            commandsQueueSize=0,
            appendEntriesBatchSizeBytes=config.append_bytes_max,
            journalFile=LibraryLog(self.journal),
            dynamicMembershipChange=False,
        )

    def __dir__(self) -> list[str]:
        """The library's constructor looks through all attributes for replicated methods."""
        return []

    def _SyncObj__onSetCodeVersion(self, version: int) -> None:
        """No replicated methods, so no versions of them."""

    # ------------------------------------------------------------------ what it is

    @property
    def raft_leader(self) -> bool:
        """Leads in the sense of Raft. It may not serve yet."""
        return self._SyncObj__raftState == LEADER

    @property
    def term(self) -> int:
        return self._SyncObj__raftCurrentTerm

    @property
    def commit_index(self) -> int:
        return self._SyncObj__raftCommitIndex

    @property
    def leader_id(self) -> int | None:
        leader = self._SyncObj__raftLeader
        return None if leader is None else int(leader.id)

    @property
    def peers(self) -> set[PeerNode]:
        """Nodes of the other voters."""
        return self._SyncObj__otherNodes

    @property
    def has_members(self) -> bool:
        """Somebody else is to be replicated to."""
        return bool(self._SyncObj__otherNodes or self._SyncObj__readonlyNodes)

    @property
    def campaigns(self) -> bool:
        return self._SyncObj__raftState == CANDIDATE

    # ------------------------------------------------------------------ what it does not do

    def _checkCommandsToApply(self) -> None:
        """Its command queue is never used: proposals go straight into the journal (P7)."""

    def _SyncObj__tryLogCompaction(self) -> None:
        """Compaction is the caller's decision: it knows what its state DB holds durably."""

    def _SyncObj__getEntries(
        self, first: int | None, count: int | None = None, maxSizeBytes: int | None = None
    ) -> list[Entry]:
        """Entries from `first` on; the library sees the base as an entry too."""
        journal = self.journal
        if first is None or not journal.base_index <= first <= journal.last_index:
            return []
        last = journal.last_index if count is None else min(journal.last_index, first + count - 1)
        if first > journal.base_index:
            return journal.entries(first, last, maxSizeBytes)
        rest = journal.entries(first + 1, last, maxSizeBytes) if last > first else []
        return [journal.base_entry, *rest]

    # ------------------------------------------------------------------ what it does

    def _to_library(self, node: PeerNode, message: Message) -> None:
        super()._SyncObj__onMessageReceived(node, message)
