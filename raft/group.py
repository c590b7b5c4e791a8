"""`Group`: one consensus group, pysyncobj's SyncObj 0.3.17 hardened by a subclass. The only file
that touches its privates.

The library keeps: vote granting, election start, follower append and truncation, pipelined send,
step-down, timers. Ours: what may reach its handlers, the log and hard state, commit bounds,
membership, pre-vote, leases. The rules are in `raft/rules`; this file only connects them to the
library.

Invariants
  I1 votes, append replies and vote requests leave the node only after the sync that covers them
     (`early=False`);
  I2 the leader counts itself only up to its synced index; nobody applies beyond min(commit,
     synced);
  I3 an append reply speaks for one term, and its index was verified against that term's leader;
  I4 entries up to the commit index are never truncated;
  I5 the configuration in force is the last one in the log, committed or not; at most one is
     uncommitted;
  I6 a node that heard a leader (or started) within the minimum election timeout helps nobody to an
     election, except by transfer;
  I7 nobody leads before its own vote is durable.

Defects of the library that are repaired here are marked P1 to P15 at the place;
`tests/raft/test_p*.py` shows each on the stock class and its absence here. S:n is line n of
pysyncobj/syncobj.py 0.3.17.
Left out: snapshots, witnesses, hibernation, flow control of appends, proposal freeze during a
transfer. Longer than our other files, because everything that knows the library's inside is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from raft import pinned
from raft.api import RaftConfig, Rng, Timers
from raft.errors import InvariantBroken
from raft.journal import Journal
from raft.pinned import (
    CANDIDATE,
    FOLLOWER,
    LEADER,
    LibraryLog,
    Message,
    Port,
    SyncObj,
    SyncObjConf,
    node_of,
)
from raft.records import CONFIG, Entry
from raft.rules import append, commit
from raft.rules.backoff import Backoff
from raft.rules.lease import Lease, Promise
from raft.rules.membership import Membership, check_change
from raft.rules.prevote import PreVote, log_is_current
from raft.rules.reads import Rounds
from raft.rules.votes import VoteBox


class Outbox(Protocol):
    """Where messages go; `early` ones need not wait for a sync."""

    def __call__(self, peer: int, message: Mapping[str, object], *, early: bool) -> None: ...


class Group(SyncObj):
    """Doors: `tick`, `step`, `synced`, `replicate`, `campaign_now`, `confirm_leadership`, `change`,
    `transfer`. After `step`, call `tick`.
    """

    # What we read and write of the library's private state.
    _SyncObj__raftState: int
    _SyncObj__raftCurrentTerm: int
    _SyncObj__raftCommitIndex: int
    _SyncObj__raftLastApplied: int
    _SyncObj__raftLeader: Any
    _SyncObj__raftElectionDeadline: float
    _SyncObj__newAppendEntriesTime: float
    _SyncObj__otherNodes: set[Any]
    _SyncObj__readonlyNodes: set[Any]
    _SyncObj__connectedNodes: set[Any]
    _SyncObj__raftNextIndex: dict[Any, int]
    _SyncObj__raftMatchIndex: dict[Any, int]
    _SyncObj__lastResponseTime: dict[Any, float]

    def __init__(
        self,
        *,
        node_id: int,
        journal: Journal,
        applied_index: int,
        timers: Timers,
        rng: Rng,
        config: RaftConfig,
        out: Outbox,
        drop: Callable[[], None],
    ) -> None:
        """`applied_index` is committed. `drop` counts a message that was refused."""
        self.me, self.journal, self._out, self._drop = node_id, journal, out, drop
        self._clock, self._rng, self._config = timers.monotonic, rng, config
        pinned.bind(self._clock, rng)
        now = self._clock()
        self._votes, self._pre_vote, self._backoff = VoteBox(node_id), PreVote(node_id), Backoff()
        self.rounds, self._lease = Rounds(), Lease(lease_s=config.lease_ms / 1000)
        self._promise = Promise(now_s=now, election_min_s=config.election_min_ms / 1000)
        self._by_transfer = False
        self._office_waits = False  # elected, but our own vote is not durable yet (I7)
        self._commit_floor = applied_index
        self.membership: Membership | None = None
        self.is_voter = False
        port = Port()
        super().__init__(node_of(node_id), [], self._library_conf(), transport=port)
        port.out = self._send
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex = applied_index
        self._adopt(journal.memberships.current)

    def _library_conf(self) -> Any:
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
    def peers(self) -> set[Any]:
        """Nodes of the other voters."""
        return self._SyncObj__otherNodes

    @property
    def has_members(self) -> bool:
        """Somebody else is to be replicated to."""
        return bool(self._SyncObj__otherNodes or self._SyncObj__readonlyNodes)

    def lease_holds(self) -> bool:
        """May the leader serve reads without asking? A lone voter cannot have been replaced."""
        return not self.peers or self._lease.holds(self._clock())

    def own_term_committed(self) -> bool:
        return self.journal.term_at(self.commit_index) == self.term

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next, in the time of `Timers.monotonic`; None if never."""
        if self.raft_leader:
            return self._SyncObj__newAppendEntriesTime if self.has_members else None
        if not self.is_voter:
            return None
        return self._SyncObj__raftElectionDeadline

    # ------------------------------------------------------------------ doors

    def tick(self) -> None:
        """Let time act: elections, heartbeats, check-quorum."""
        pinned.bind(self._clock, self._rng)
        self._take_office_if_due()
        self._pre_vote_gate()
        self._commit_floor = self._SyncObj__raftCommitIndex
        self._onTick(0)
        self._by_transfer = False

    def synced(self) -> None:
        """The journal's synced index or hard state moved."""
        if self._office_waits:
            pinned.bind(self._clock, self._rng)
            self._take_office_if_due()
        self._advance_commit(self._SyncObj__raftCommitIndex)

    def step(self, peer: int, message: Message) -> None:
        """A message of a peer arrived. Unknown kinds (the library's forwarded commands, utilities)
        end here.
        """
        door = _DOORS.get(message["type"])
        if door is None:
            self._drop()
            return
        pinned.bind(self._clock, self._rng)
        door(self, node_of(peer), message)
        self._adopt_latest()

    def replicate(self) -> None:
        """Send what was appended: to followers in step at once, before our own sync (thesis
        10.2.1).
        """
        pinned.bind(self._clock, self._rng)
        self._SyncObj__sendAppendEntries()

    def peer_up(self, peer: int) -> None:
        """A connection was made: ask a follower at once instead of at the next heartbeat."""
        if self.raft_leader and node_of(peer) in self._SyncObj__raftNextIndex:
            self.replicate()

    def peer_down(self, peer: int) -> None:
        """A connection was lost. The election timeout decides what that means."""

    def campaign_now(self) -> None:
        """Let the next tick start an election without waiting: nobody else could be disturbed by
        it.
        """
        self._SyncObj__raftElectionDeadline = float("-inf")

    def confirm_leadership(self) -> int:
        """Send a heartbeat round; when a majority has answered it (`rounds.confirmed`), we led at
        this moment.
        """
        self.replicate()
        return self.rounds.current

    # ------------------------------------------------------------------ elections

    def _pre_vote_gate(self) -> None:
        """Before the library sees an expired election timer, ask whether we could win."""
        now = self._clock()
        if self.raft_leader or self._SyncObj__raftElectionDeadline >= now:
            return
        if (
            self._office_waits or not self.is_voter
        ):  # a slow disk must not make a lone voter start over and over
            self._SyncObj__raftElectionDeadline = now + self._SyncObj__generateRaftTimeout()
        elif self.peers and not self._by_transfer and not self._pre_vote.won:
            self._SyncObj__raftElectionDeadline = now + self._SyncObj__generateRaftTimeout()
            question: Message = {
                "type": "pre_vote",
                "term": self.term + 1,
                "round": self._pre_vote.start(),
                "last_log_term": self.journal.last_term,
                "last_log_index": self.journal.last_index,
            }
            for node in self.peers:
                self._send(node, dict(question))

    def _take_office_if_due(self) -> None:
        if (
            self._office_waits
            and self._SyncObj__raftState == CANDIDATE
            and self.journal.hard_state_synced
        ):
            self._SyncObj__onBecomeLeader()

    def _SyncObj__onBecomeLeader(self) -> None:
        """I7, P15: only a lone voter gets here before its vote is durable (S:650). It could crash,
        forget the term, win it again, and write other entries under the same index and term."""
        self._office_waits = not self.journal.hard_state_synced
        if self._office_waits:
            return
        self._backoff.clear()
        self._lease.restart()
        self.rounds.restart()
        super()._SyncObj__onBecomeLeader()

    def _SyncObj__setCurrentTerm(self, term: int, vote: int | None) -> None:
        self._votes.restart()
        self._pre_vote.cancel()
        self._office_waits = False
        super()._SyncObj__setCurrentTerm(term, vote)

    def _step_down(self, term: int) -> None:
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)
            self._SyncObj__setState(FOLLOWER)
            self._SyncObj__raftLeader = None

    def _promised(self) -> bool:
        """I6, the ground of leases and of undisturbed leaders."""
        now = self._clock()
        return self._lease.holds(now) if self.raft_leader else self._promise.binds(now)

    def _in_request_vote(self, node: Any, message: Message) -> None:
        if message["term"] < self.term:
            self._send(node, {"type": "stale", "term": self.term})
        elif message["transfer"] or not self._promised():
            self._to_library(node, message)
        else:
            self._drop()

    def _in_response_vote(self, node: Any, message: Message) -> None:
        """P9: the library counts duplicates and strangers (S:1063-1068)."""
        if message["term"] == self.term and self._votes.add(node.id, self._voters()):
            self._to_library(node, message)
        else:
            self._drop()

    def _in_pre_vote(self, node: Any, message: Message) -> None:
        log = self.journal
        theirs = message["last_log_term"], message["last_log_index"]
        if message["term"] <= self.term:
            self._send(node, {"type": "stale", "term": self.term})
        elif not self._promised() and log_is_current(theirs, (log.last_term, log.last_index)):
            self._send(
                node, {"type": "pre_vote_ok", "term": message["term"], "round": message["round"]}
            )

    def _in_pre_vote_ok(self, node: Any, message: Message) -> None:
        current = message["term"] == self.term + 1 and not self.raft_leader
        if current and self._pre_vote.granted(node.id, message["round"], self._voters()):
            self.campaign_now()

    def _in_timeout_now(self, node: Any, message: Message) -> None:
        if self.is_voter and message["term"] == self.term and self._SyncObj__raftLeader == node:
            self._by_transfer = True
            self._to_library(node, message)

    def _in_stale(self, node: Any, message: Message) -> None:
        self._step_down(message["term"])

    def transfer(self, target: int) -> None:
        """Ask `target` to take over. It overrides I6, so this term gets no lease any more."""
        if self.raft_leader and node_of(target) in self.peers:
            pinned.bind(self._clock, self._rng)
            self._lease.forbid()
            self.transferLeadership(node_of(target))

    # ------------------------------------------------------------------ commit

    def _advance_commit(self, floor: int) -> None:
        """I2. Also undoes the library's own count, which takes our unsynced entries for safe
        (S:659).
        """
        if self._SyncObj__raftState != LEADER:
            return
        journal, match = self.journal, self._SyncObj__raftMatchIndex
        self._SyncObj__raftCommitIndex = commit.commit_bound(
            floor,
            journal.synced,
            [match[node] for node in self._SyncObj__otherNodes],
            term=self._SyncObj__raftCurrentTerm,
            term_at=journal.term_at,
        )

    def _SyncObj__applyLogEntries(self) -> bool:
        """Called by the library's tick after its own count. Applying is the replica's work, not the
        library's.
        """
        self._advance_commit(self._commit_floor)
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        return False

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

    # ------------------------------------------------------------------ sending

    def _send(self, node: Any, message: Message) -> None:
        """Stamp a message and say whether it may leave before the next sync (I1)."""
        kind = message["type"]
        if kind == "append_entries":
            message["round"] = self.rounds.current
        elif kind == "next_node_idx":
            message["term"] = self.term  # P3
        elif kind == "request_vote":
            message["transfer"] = self._by_transfer
        self._out(node.id, message, early=kind not in _AFTER_SYNC)

    def _SyncObj__sendAppendEntries(self) -> None:
        """Followers in step are the library's; the others are taken out of its sight and sent one
        message each.

        P13: for a node behind the base the library repeats `serialized: None` until a heartbeat
        period of *time* has passed (S:1267-1351). P14: to a follower whose log differs it
        pipelines, and the rejections of the later messages raise nextIndex again, so that the
        back-off never reaches the common prefix.
        """
        self._lease.sent(self.rounds.next(), self._clock())
        connected, base_index = self._SyncObj__connectedNodes, self.journal.base_index
        next_index = self._SyncObj__raftNextIndex
        odd = [
            node
            for node in next_index
            if next_index[node] <= base_index or self._backoff.is_probing(node.id)
        ]
        connected.difference_update(odd)
        super()._SyncObj__sendAppendEntries()
        connected.update(odd)
        for node in sorted(odd, key=lambda node: int(node.id)):
            self._send(node, self._probe(next_index[node]))

    def _probe(self, start: int) -> Message:
        """One AppendEntries from `start` on, or, behind the base, a bare heartbeat: only a snapshot
        can help there.
        """
        journal = self.journal
        message: Message = {
            "type": "append_entries",
            "term": self.term,
            "commit_index": self.commit_index,
        }
        if start > journal.base_index:
            message["entries"] = self._SyncObj__getEntries(
                start, None, self._config.append_bytes_max
            )
            message["prevLogIdx"], message["prevLogTerm"] = start - 1, journal.term_at(start - 1)
        return message

    # ------------------------------------------------------------------ receiving as a follower

    def _to_library(self, node: Any, message: Message) -> None:
        super()._SyncObj__onMessageReceived(node, message)

    def _leader_speaks(self, node: Any, message: Message) -> bool:
        """Common to all messages of a leader: False if it is deposed; else adopt it and answer its
        round.
        """
        if message["term"] < self.term:
            self._send(
                node, {"type": "stale", "term": self.term}
            )  # P6: the library lets it wait in the dark
            return False
        if message["term"] == self.term and self.raft_leader:
            raise InvariantBroken(f"two leaders in term {self.term}: {self.me} and {node.id}")
        self._promise.heard_leader(self._clock())
        self._pre_vote.cancel()
        # Claims nothing about the log, so it need not wait for a sync: a slow disk stops no
        # heartbeats.
        self._send(
            node, {"type": "hb_ack", "term": message["term"], "round": message.get("round", 0)}
        )
        return True

    def _bare(self, node: Any, message: Message, commit_index: int) -> None:
        """Let the library adopt term and leader, and learn a commit index that we have verified."""
        self._to_library(
            node, {"type": "append_entries", "term": message["term"], "commit_index": commit_index}
        )

    def _in_append_entries(self, node: Any, message: Message) -> None:
        if not self._leader_speaks(node, message):
            return
        prev = message.get("prevLogIdx")
        if prev is None or "transmission" in message:
            # P2: a message without position verifies nothing. P8, P10: we never send chunks or
            # `prevLogIdx: None`.
            self._bare(node, message, self.commit_index)
            return
        journal, entries = self.journal, message["entries"]
        placed = append.place(
            prev,
            message["prevLogTerm"],
            [entry[2] for entry in entries],
            base=(journal.base_index, journal.base_term),
            term_at=journal.term_at,
        )
        match placed:
            case append.Known(end):  # P1: the library would remove everything after `prev`
                self._bare(node, message, min(message["commit_index"], end))
                self._SyncObj__sendNextNodeIdx(node, nextNodeIdx=end + 1, success=True)
            case append.Mismatch(prev, prev_term):
                self._to_library(
                    node, {**message, "prevLogIdx": prev, "prevLogTerm": prev_term, "entries": []}
                )
            case append.Extend(prev, prev_term, skip):
                if prev < self.commit_index:
                    raise InvariantBroken(
                        f"would truncate after {prev}, but {self.commit_index} is committed"
                    )
                self._to_library(
                    node,
                    {
                        **message,
                        "prevLogIdx": prev,
                        "prevLogTerm": prev_term,
                        "entries": entries[skip:],
                    },
                )

    # ------------------------------------------------------------------ receiving as a leader

    def _leads_sender(self, node: Any, message: Message) -> bool:
        """An answer counts only in its own term (P3) and from a member (P11, S:1080)."""
        self._step_down(message["term"])
        if (
            message["term"] == self.term
            and self.raft_leader
            and node in self._SyncObj__raftNextIndex
        ):
            return True
        self._drop()
        return False

    def _in_next_node_idx(self, node: Any, message: Message) -> None:
        if not self._leads_sender(node, message):
            return
        next_index, old = self._SyncObj__raftNextIndex, self._SyncObj__raftNextIndex[node]
        self._to_library(node, message)
        next_index[node] = self._backoff.next_index(  # P4, P10, P14
            node.id,
            old=old,
            asked=next_index[node],
            match=self._SyncObj__raftMatchIndex[node],
            last=self.journal.last_index,
            rejected=message["reset"],
        )

    def _in_hb_ack(self, node: Any, message: Message) -> None:
        if not self._leads_sender(node, message):
            return
        self._SyncObj__lastResponseTime[node] = self._clock()
        if self.rounds.answered(node.id, message["round"], [peer.id for peer in self.peers]):
            self._lease.confirmed(self.rounds.confirmed)

    # ------------------------------------------------------------------ membership

    def _voters(self) -> tuple[int, ...]:
        return self.journal.memberships.current.voters

    def _adopt_latest(self) -> None:
        if self.journal.memberships.current is not self.membership:
            self._adopt(self.journal.memberships.current)

    def _adopt(self, config: Membership) -> None:
        """I5. Voters are the library's otherNodes, learners its readonly nodes: replicated to,
        never counted.
        """
        self.membership = config
        self.is_voter = self.me in config.voters
        self._SyncObj__otherNodes = _nodes(config.voters, self.me)
        self._SyncObj__readonlyNodes = _nodes(config.learners, self.me)
        members = self._SyncObj__otherNodes | self._SyncObj__readonlyNodes
        self._SyncObj__connectedNodes = set(
            members
        )  # the transport hides connections; check-quorum finds the dead
        next_index = self._SyncObj__raftNextIndex
        for node in members - next_index.keys():
            next_index[node], self._SyncObj__raftMatchIndex[node] = self.journal.last_index + 1, 0
            self._SyncObj__lastResponseTime[node] = self._clock()
        for node in next_index.keys() - members:
            del next_index[node], self._SyncObj__raftMatchIndex[node]
            self._backoff.forget(node.id)

    def change(self, new: Membership) -> str | None:
        """Append a configuration as leader; None if it was appended (not yet committed), else why
        not.

        P12: the library's own guard is dead code (S:186, 1361-1367).
        """
        match = {node.id: index for node, index in self._SyncObj__raftMatchIndex.items()}
        refusal = (
            "only the leader may"
            if not self.raft_leader
            else check_change(
                self.journal.memberships.current,
                new,
                me=self.me,
                commit_index=self.commit_index,
                commit_term_is_ours=self.own_term_committed(),
                match=lambda node: match.get(node, 0),
            )
        )
        if refusal is None:
            self.journal.append(CONFIG + new.encode(), self.term)
            self._adopt_latest()
            self.replicate()
        return refusal


def _nodes(ids: Iterable[int], me: int) -> set[Any]:
    return {node_of(node_id) for node_id in ids if node_id != me}


_AFTER_SYNC = frozenset({"request_vote", "response_vote", "next_node_idx"})
_DOORS: dict[str, Callable[[Group, Any, Message], None]] = {
    "append_entries": Group._in_append_entries,
    "next_node_idx": Group._in_next_node_idx,
    "hb_ack": Group._in_hb_ack,
    "request_vote": Group._in_request_vote,
    "response_vote": Group._in_response_vote,
    "pre_vote": Group._in_pre_vote,
    "pre_vote_ok": Group._in_pre_vote_ok,
    "timeout_now": Group._in_timeout_now,
    "stale": Group._in_stale,
}
