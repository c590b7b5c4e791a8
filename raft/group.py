"""`Group`: one consensus group, pysyncobj's SyncObj 0.3.17 hardened by a subclass. With its bases
`elections` and `library`, the only file that touches its privates.

The library keeps: vote granting, election start, step-down, check-quorum, timers. Ours: what may
reach its handlers, the log and hard state, replication, commit bounds, membership, pre-vote,
leases. The rules are in `raft/rules`; this file only connects them to the library.

Invariants
  I1 votes, append replies and vote requests leave the node only after the sync that covers them
     (`early=False`);
  I2 the leader counts itself only up to its synced index; nobody applies beyond min(commit,
     synced);
  I3 an append reply speaks for one term, and its index was verified against that term's leader;
  I4 entries up to the commit index are never truncated;
  I5 the configuration in force is the last one in the log, committed or not; at most one is
     uncommitted;
  I6 a node that heard a leader (or started, unless it is new) within the minimum election timeout
     helps nobody to an election, except by transfer;
  I7 nobody leads before its own vote is durable.

Defects of the library that are repaired here are marked P1 to P15 at the place;
`tests/raft/test_p*.py` shows each on the stock class and its absence here. S:n is line n of
pysyncobj/syncobj.py 0.3.17.
Who leads is in `elections`, what a leader knows and sends in `followers`, what a follower takes in
`intake`, the state for who is behind the log in `snapshot`, transfers in `handover`, sleep in
`quiet`, who is refused in `fence`. Longer than our other files, because what knows the library's
log is here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from raft import pinned
from raft.api import RaftConfig, RaftCounters, Rng, Timers
from raft.elections import Elections
from raft.errors import InvariantBroken
from raft.fence import Fence, forced_term
from raft.followers import Followers
from raft.handover import Handover
from raft.hibernation import Quiet
from raft.intake import Intake
from raft.journal import Journal
from raft.pinned import (
    FOLLOWER,
    LEADER,
    Message,
    PeerNode,
    Port,
    node_of,
)
from raft.records import CONFIG
from raft.rules import commit
from raft.rules.lease import Lease, Promise
from raft.rules.membership import Membership, check_change
from raft.rules.prevote import PreVote
from raft.rules.reads import Rounds
from raft.rules.votes import VoteBox


class Outbox(Protocol):
    """Where messages go; `early` ones need not wait for a sync."""

    def __call__(self, peer: int, message: Mapping[str, object], *, early: bool) -> None: ...


class SnapshotPort(Protocol):
    """What a group tells of followers that only a snapshot helps, and the messages about it."""

    def wanted(self, peer: int) -> None: ...
    def answered(self, peer: int, message: Message) -> None: ...
    def received(self, peer: int, message: Message) -> None: ...


class Group(Elections):
    """Doors: `tick`, `step`, `synced`, `replicate`, `campaign_now`, `confirm_leadership`, `change`,
    `transfer`. After `step`, call `tick` or `settle`.
    """

    snapshots: SnapshotPort
    """Set by the replica, before any door is used."""

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
        room: Callable[[int], bool],
        counters: RaftCounters,
        keeps_data: bool = True,
        hibernates: bool = True,
        unreachable: Collection[int] = (),
        on_wake: Callable[[], None] = lambda: None,
        fresh: bool = False,
        blank: bool = False,
        founded_by_all: bool = False,
    ) -> None:
        """`applied_index` is committed. `room(peer)`: may entries be sent there now? A witness is a
        group that does not `keeps_data`. `unreachable`: nodes that the transport has lost;
        `on_wake()`: a group that slept is to be ticked again. `fresh`: it never ran (I6).
        """
        self.me, self.journal, self._out = node_id, journal, out
        self._counters = counters
        self._clock, self._rng, self._config = timers.monotonic, rng, config
        pinned.bind(self._clock, rng)
        now = self._clock()
        self._votes, self._pre_vote = VoteBox(node_id), PreVote(node_id)
        self._round_answered = (0, 0)  # term and round of the last heartbeat that we answered
        self.rounds, self._lease = Rounds(), Lease(lease_s=config.lease_ms / 1000)
        # A log and a term of zero do not prove that it never ran: a heartbeat's answer does not
        # wait for the sync of the term that it came with.
        begins = journal.base_index, journal.base_term  # (0, 0), or where the founders stand
        untouched = fresh and (journal.last_index, journal.term) == begins
        self._promise = Promise(
            now_s=float("-inf") if untouched else now,
            election_min_s=config.election_min_ms / 1000,
        )
        self.keeps_data, self._unreachable = keeps_data, unreachable
        self._blank, self._founded_by_all = blank, founded_by_all
        self._handover = Handover(
            self, give_up_s=config.election_min_ms / 1000, resend_s=config.heartbeat_ms / 1000
        )
        self._fence = Fence(self)
        after_ms = config.hibernate_after_ms if hibernates else 0
        self._quiet = Quiet(
            self,
            after_s=after_ms / 1000 if after_ms else None,
            unreachable=unreachable,
            on_wake=on_wake,
        )
        self.on_read: Callable[[int, Message], None] = lambda _peer, _message: None
        self._by_transfer = False
        self._office_waits = False  # elected, but our own vote is not durable yet (I7)
        self._commit_floor = applied_index
        self.membership: Membership | None = None
        self._forced = 0
        self._witnesses: frozenset[int] = frozenset()
        self.is_voter = self._may_lead = False
        port = Port()
        super().__init__(node_of(node_id), [], self._library_conf(), transport=port)
        port.out = self._send
        self._intake = Intake(self, config=config, counters=counters)
        self.followers = Followers(
            self,
            next_index=self._SyncObj__raftNextIndex,
            match_index=self._SyncObj__raftMatchIndex,
            answered_s=self._SyncObj__lastResponseTime,
            config=config,
            counters=counters,
            clock=self._clock,
            room=room,
            unreachable=unreachable,
        )
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex = applied_index
        self._adopt(journal.memberships.current)

    # ------------------------------------------------------------------ what it is

    @property
    def blank(self) -> bool:
        """It lacks the state that the log begins with, and waits for a snapshot."""
        return self._blank and not self.journal.last_index

    def lease_holds(self) -> bool:
        """May the leader serve reads without asking? A lone voter cannot have been replaced."""
        return not self.peers or self._lease.holds(self._clock())

    def used(self) -> bool:
        """`lease_holds`, for somebody who is going to read: the group is in use."""
        if not self._SyncObj__otherNodes:
            return True
        self._quiet.stir()
        return self._lease.holds(self._clock())

    def own_term_committed(self) -> bool:
        return self.journal.term_at(self.commit_index) == self.term

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next, in the time of `Timers.monotonic`; None if never."""
        leads = self._SyncObj__raftState == LEADER
        if leads and not self.followers.nodes:  # a lone voter is asked after every sync
            return None
        if self._quiet.asleep:
            return None
        if leads:
            return self._SyncObj__newAppendEntriesTime
        return self._SyncObj__raftElectionDeadline if self._may_lead else None

    # ------------------------------------------------------------------ doors

    def tick(self) -> None:
        """Let time act: elections, heartbeats, check-quorum."""
        if self._quiet.asleep:
            return
        pinned.bind(self._clock, self._rng)
        self._take_office_if_due()
        self._pre_vote_gate()
        # Before the library counts: it would look at every entry from the commit index on.
        self._advance_commit(self._SyncObj__raftCommitIndex)
        self._commit_floor = self._SyncObj__raftCommitIndex
        self._handover.step()
        self._onTick(0)
        self._by_transfer = False
        if self.raft_leader and self.has_members:
            self._quiet.look()

    def settle(self) -> None:
        """Instead of `tick` after entries and answers: what is committed now? The timers have their
        own moments.
        """
        self._advance_commit(self._SyncObj__raftCommitIndex)

    def synced(self) -> None:
        """The journal's synced index or hard state moved."""
        if self._office_waits:
            pinned.bind(self._clock, self._rng)
            self._take_office_if_due()
        self._advance_commit(self._SyncObj__raftCommitIndex)
        if self.followers.nodes:
            self.followers.synced()

    def step(self, peer: int, message: Message) -> None:
        """A message of a peer arrived. Unknown kinds (the library's forwarded commands, utilities)
        end here.
        """
        door = _DOORS.get(message["type"])
        if door is None:
            self._drop()
            return
        pinned.bind(self._clock, self._rng)
        if message.get("forced", 0) != self._forced and not self._fence.admits(peer, message):
            self._drop()
            return
        if self._quiet.asleep and not self._quiet.admits(peer, message):
            return
        door(self, node_of(peer), message)
        self._adopt_latest()

    def replicate(self) -> None:
        """Send what was appended to followers in step, at once, before our own sync (thesis
        10.2.1), as far as their windows take it; their answers make room for the rest.
        """
        self._quiet.stir()
        for node in self.followers.nodes:
            self.followers.feed(node)

    def post(self, peer: int, message: Message) -> None:
        """Send a message of ours."""
        self._send(node_of(peer), message)

    def peer_up(self, peer: int) -> None:
        """A connection was made: ask a follower at once instead of at the next heartbeat."""
        if self.raft_leader and peer in self.followers:
            self._quiet.stir()
            self.followers.reconnected(peer)
        elif self.raft_leader:
            self._fence.met(peer)

    def peer_down(self, peer: int) -> None:
        """A connection was lost. Of a group that is awake, the election timeout decides what that
        means.
        """
        self._quiet.peer_down(peer)

    def confirm_leadership(self) -> int:
        """Send a heartbeat round; when a majority has answered it (`rounds.confirmed`), we led at
        this moment.
        """
        pinned.bind(self._clock, self._rng)
        self._quiet.stir()
        self._SyncObj__sendAppendEntries()
        return self.rounds.current

    # ------------------------------------------------------------------ for quiet, handover, fence

    @property
    def asleep(self) -> bool:
        return self._quiet.asleep

    def stir(self) -> None:
        """Somebody uses the group: wake it, or keep it awake."""
        self._quiet.stir()

    @property
    def removed(self) -> bool:
        return self._fence.removed

    def show(self, peer: int) -> None:
        """Tell a member what is committed now, without waiting for the next heartbeat."""
        if self.raft_leader and peer in self.followers:
            self.followers.heartbeat(node_of(peer))

    def nonce(self) -> float:
        """A random number in [0, 1)."""
        return self._rng.random()

    def now_s(self) -> float:
        return self._clock()

    def responsive(self, peer: int) -> bool:
        """A member has answered lately, or would: a group that sleeps asks nobody."""
        reachable = peer not in self._unreachable
        return reachable and (self._quiet.asleep or self.followers.is_responsive(peer))

    # ------------------------------------------------------------------ commit

    def _advance_commit(self, floor: int) -> None:
        """I2. Also undoes the library's own count, which takes our unsynced entries for safe
        (S:659).
        """
        if self._SyncObj__raftState != LEADER:
            self._SyncObj__raftCommitIndex = floor  # deposed by this very tick, after the count
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

    # ------------------------------------------------------------------ sending

    def _drop(self) -> None:
        self._counters.messages_dropped += 1

    def _send(self, node: PeerNode, message: Message) -> None:
        """Stamp a message and say whether it may leave before the next sync (I1)."""
        kind = message["type"]
        if self._forced:
            message["forced"] = self._forced
        if kind in _OF_A_LEADER:
            message["round"] = self.rounds.current
            if node.id in self._witnesses:
                message["witness"] = True
            if self._quiet.inviting:
                message["sleep"] = self.journal.last_index
        elif kind == "next_node_idx":
            message["term"] = self.term  # P3
        elif kind == "request_vote":
            message["transfer"] = self._by_transfer
        self._out(node.id, message, early=kind not in _AFTER_SYNC)

    def _SyncObj__sendAppendEntries(self) -> None:
        """A heartbeat round, instead of the library's sending: every member gets what its window
        takes, or a message without entries.

        P13: for a node behind the base the library repeats `serialized: None` until a heartbeat
        period of *time* has passed (S:1267-1351). P14: to a follower whose log differs it
        pipelines, and the rejections of the later messages raise nextIndex again, so that the
        back-off never reaches the common prefix. And it knows no window: to a follower that does
        not answer it sends every entry all the same.
        """
        now = self._clock()
        self._SyncObj__newAppendEntriesTime = now + self._config.heartbeat_ms / 1000
        self._lease.sent(self.rounds.next(), now)
        self.followers.round()

    def needs_snapshot(self, peer: int) -> None:
        """A member needs entries that the log does not have any more."""
        self.snapshots.wanted(peer)

    # ------------------------------------------------------------------ receiving as a follower

    def _leader_speaks(self, node: PeerNode, message: Message) -> bool:
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
        self._fence.removed = False
        # Claims nothing about the log, so it need not wait for a sync: a slow disk stops no
        # heartbeats. Messages with entries carry the round of the last heartbeat.
        answer = (message["term"], message.get("round", 0))
        if answer[1] == 0 or answer > self._round_answered:
            self._round_answered = answer
            self._send(node, {"type": "hb_ack", "term": answer[0], "round": answer[1]})
        return True

    def _bare(self, node: PeerNode, message: Message) -> None:
        """Let the library adopt term and leader; what is committed, we have to verify."""
        bare = {"type": "append_entries", "term": message["term"]}
        self._to_library(node, {**bare, "commit_index": self.commit_index})

    def _is_for_us(self, message: Message) -> bool:
        """Not of the other kind: a log or state without payloads, or with them (witness, W7)."""
        if message.get("witness", False) is not self.keeps_data:
            return True
        self._drop()
        return False

    def _in_append_entries(self, node: PeerNode, message: Message) -> None:
        if not self._is_for_us(message) or not self._leader_speaks(node, message):
            return
        self._bare(node, message)
        if message.get("prevLogIdx") is None or "transmission" in message:
            # P2: a message without position verifies nothing. P8, P10: we never send chunks or
            # `prevLogIdx: None`.
            return
        self._intake.take(node.id, message)
        if "sleep" in message:
            self._quiet.invited(node.id, message)

    def _in_snapshot(self, node: PeerNode, message: Message) -> None:
        if self._is_for_us(message) and self._leader_speaks(node, message):
            self._bare(node, message)
            self.snapshots.received(node.id, message)

    def vouch(self, index: int) -> None:
        """Our log or state holds the committed entry `index`: tell the leader, after the next
        sync.
        """
        self.learn_commit(index)
        leader = self.leader_id
        if leader is not None and not self.raft_leader:
            self._intake.vouch(leader, index)

    def installed(self, index: int) -> None:
        """The state machine stands at `index`, and the log begins, or was cut, there."""
        self.learn_commit(index)
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        self._adopt_latest()

    def learn_commit(self, index: int) -> None:
        """`index` is verified: equal to the leader's log up to there, which is committed (P2)."""
        if index > self._SyncObj__raftCommitIndex:
            self._SyncObj__raftCommitIndex = index

    # ------------------------------------------------------------------ receiving as a leader

    def _leads_sender(self, node: PeerNode, message: Message) -> bool:
        """An answer counts only in its own term (P3) and from a member (P11, S:1080)."""
        self._step_down(message["term"])
        if message["term"] == self.term and self.raft_leader and node.id in self.followers:
            return True
        self._drop()
        return False

    def _in_next_node_idx(self, node: PeerNode, message: Message) -> None:
        if not self._leads_sender(node, message):
            return
        self.followers.answered(node, message)
        self._handover.step()

    def _in_snapshot_ack(self, node: PeerNode, message: Message) -> None:
        if self._leads_sender(node, message):
            self.followers.heard(node)
            self.snapshots.answered(node.id, message)

    def _in_hb_ack(self, node: PeerNode, message: Message) -> None:
        if not self._leads_sender(node, message):
            return
        self.followers.heard(node)
        if self.rounds.answered(node.id, message["round"], [peer.id for peer in self.peers]):
            self._lease.confirmed(self.rounds.confirmed)
        self.followers.feed(node)  # it may have been silent, or its queue full

    # ------------------------------------------------------------------ receiving as either

    def _in_removed(self, _node: PeerNode, message: Message) -> None:
        self._fence.learn_removed(message)

    def _in_fenced(self, _node: PeerNode, _message: Message) -> None:
        """Ours is the side that goes on: `_fence.admits` has seen to the others."""

    def _in_asleep(self, node: PeerNode, message: Message) -> None:
        if self._leads_sender(node, message):
            self._quiet.member_sleeps(node.id, message)

    def _in_wake(self, node: PeerNode, message: Message) -> None:
        if self._leads_sender(node, message):
            self._quiet.stir()
            self.followers.heartbeat(node)

    def _in_read(self, node: PeerNode, message: Message) -> None:
        self.on_read(node.id, message)

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
        self._may_lead = self.me in config.data_voters and self.keeps_data
        self._forced, self._witnesses = config.forced, frozenset(config.witnesses)
        self._SyncObj__otherNodes = _nodes(config.voters, self.me)
        self._SyncObj__readonlyNodes = _nodes(config.learners, self.me)
        members = self._SyncObj__otherNodes | self._SyncObj__readonlyNodes
        self._SyncObj__connectedNodes = set(
            members
        )  # the transport hides connections; check-quorum finds the dead
        self.followers.adopt(members, self._witnesses)

    def change(self, new: Membership) -> str | None:
        """Append a configuration as leader; None if it was appended (not yet committed, and to be
        replicated), else why not.

        P12: the library's own guard is dead code (S:186, 1361-1367).
        """
        refusal = (
            "only the leader may"
            if not self.raft_leader
            else check_change(
                self.journal.memberships.current,
                new,
                me=self.me,
                commit_index=self.commit_index,
                commit_term_is_ours=self.own_term_committed(),
                caught_up=self.followers.caught_up,
                responsive=self.responsive,
            )
        )
        if refusal is None:
            self.journal.append(CONFIG + new.encode(), self.term)
            self._adopt_latest()
        return refusal

    def force(self, new: Membership) -> None:
        """An operator's configuration: nobody is asked (raft/fence). Leads to an election among its
        voters.
        """
        self._quiet.wake(tell=False)
        self._SyncObj__setCurrentTerm(forced_term(self.term, self._rng), None)
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None
        self._fence.removed = False
        self.journal.append(CONFIG + new.encode(), self.term)
        self._adopt_latest()
        self.campaign_now()


def _nodes(ids: Iterable[int], me: int) -> set[PeerNode]:
    return {node_of(node_id) for node_id in ids if node_id != me}


_OF_A_LEADER = frozenset({"append_entries", "snapshot"})
_AFTER_SYNC = frozenset({"request_vote", "response_vote", "next_node_idx"})
_DOORS: dict[str, Callable[[Group, PeerNode, Message], None]] = {
    "append_entries": Group._in_append_entries,
    "next_node_idx": Group._in_next_node_idx,
    "hb_ack": Group._in_hb_ack,
    "request_vote": Group._in_request_vote,
    "response_vote": Group._in_response_vote,
    "pre_vote": Group._in_pre_vote,
    "pre_vote_ok": Group._in_pre_vote_ok,
    "snapshot": Group._in_snapshot,
    "snapshot_ack": Group._in_snapshot_ack,
    "timeout_now": Group._in_timeout_now,
    "stale": Group._in_stale,
    "removed": Group._in_removed,
    "fenced": Group._in_fenced,
    "asleep": Group._in_asleep,
    "wake": Group._in_wake,
    "read_index": Group._in_read,
    "read_at": Group._in_read,
}
