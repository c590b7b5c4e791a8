"""`Elections`: who leads a group. Pre-vote, votes, taking office, stepping down, handing over: the
part of `raft.group.Group` that decides by time and votes, and never looks into entries.

The library grants votes and starts elections; here is what may reach it, and when (I6, I7 in
`raft.group`). The rules are `rules.prevote`, `rules.votes` and `rules.lease`.
"""

from __future__ import annotations

from collections.abc import Callable

from raft import pinned
from raft.api import Rng
from raft.fence import Fence
from raft.followers import Followers
from raft.handover import Handover
from raft.hibernation import Quiet
from raft.library import LibraryGroup
from raft.pinned import CANDIDATE, FOLLOWER, Message, PeerNode, node_of
from raft.rules.lease import Lease, Promise
from raft.rules.prevote import PreVote, log_is_current
from raft.rules.reads import Rounds
from raft.rules.votes import VoteBox


class Elections(LibraryGroup):
    """See the module. `Group` sets all of this before the library's constructor runs."""

    followers: Followers
    rounds: Rounds
    _clock: Callable[[], float]
    _rng: Rng
    _votes: VoteBox
    _pre_vote: PreVote
    _lease: Lease
    _promise: Promise
    _fence: Fence
    _quiet: Quiet
    _handover: Handover
    _by_transfer: bool
    _office_waits: bool  # elected, but our own vote is not durable yet (I7)
    _may_lead: bool
    is_voter: bool
    keeps_data: bool
    _founded_by_all: bool
    _send: Callable[[PeerNode, Message], None]
    _drop: Callable[[], None]
    _voters: Callable[[], tuple[int, ...]]

    # ------------------------------------------------------------------ timers

    def await_leader(self, *, impatient: bool = False) -> None:
        """Start the election timer; `impatient`: we know of a reason why nobody will speak."""
        pinned.bind(self._clock, self._rng)
        timeout_s = self._SyncObj__generateRaftTimeout()
        if impatient:
            timeout_s -= self._config.election_min_ms / 1000
        self._SyncObj__raftElectionDeadline = self._clock() + timeout_s

    def campaign_now(self) -> None:
        """Let the next tick start an election without waiting: nobody else could be disturbed by
        it.
        """
        self._SyncObj__raftElectionDeadline = float("-inf")

    def _pre_vote_gate(self) -> None:
        """Before the library sees an expired election timer, ask whether we could win."""
        now = self._clock()
        if self.raft_leader or self._SyncObj__raftElectionDeadline >= now:
            return
        if (
            self._office_waits or not self._may_lead or self._fence.removed
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

    # ------------------------------------------------------------------ office

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
        self.followers.take_office()
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
            self._quiet.wake(tell=False)

    def hears_leader(self) -> bool:
        """As follower that is awake: a leader spoke lately."""
        return self._promise.binds(self._clock())

    def _promised(self) -> bool:
        """I6, the ground of leases and of undisturbed leaders."""
        now = self._clock()
        return self._lease.holds(now) if self.raft_leader else self._promise.binds(now)

    def _knows_nothing(self) -> bool:
        """An empty replica that is no first voter gives no vote: perhaps it had one and lost its
        log, and with it what it has acknowledged and whom it voted for. (A witness may be asked
        before anybody has written to it.)
        """
        return self.keeps_data and not self.journal.last_index and not self.is_voter

    # ------------------------------------------------------------------ messages

    def _in_request_vote(self, node: PeerNode, message: Message) -> None:
        if self._fence.refuses_candidate(node.id, message):
            self._drop()
        elif message["term"] < self.term:
            self._send(node, {"type": "stale", "term": self.term})
        elif (message["transfer"] or not self._promised()) and not self._knows_nothing():
            self._to_library(node, message)
        else:
            self._drop()

    def _in_response_vote(self, node: PeerNode, message: Message) -> None:
        """P9: the library counts duplicates and strangers (S:1063-1068)."""
        if message["term"] == self.term and self._votes.add(node.id, self._voters()):
            self._to_library(node, message)
        else:
            self._drop()

    def _in_pre_vote(self, node: PeerNode, message: Message) -> None:
        log = self.journal
        theirs = message["last_log_term"], message["last_log_index"]
        if self._fence.refuses_candidate(node.id, message):
            self._drop()
        elif message["term"] <= self.term:
            self._send(node, {"type": "stale", "term": self.term})
        elif not (self._promised() or self._knows_nothing()) and log_is_current(
            theirs, (log.last_term, log.last_index)
        ):
            self._send(
                node, {"type": "pre_vote_ok", "term": message["term"], "round": message["round"]}
            )

    def _in_pre_vote_ok(self, node: PeerNode, message: Message) -> None:
        current = message["term"] == self.term + 1 and not self.raft_leader
        by_all = self._founded_by_all and not self.journal.last_index
        if current and self._pre_vote.granted(
            node.id, message["round"], self._voters(), by_all=by_all
        ):
            self.campaign_now()

    def _in_timeout_now(self, node: PeerNode, message: Message) -> None:
        if self._may_lead and message["term"] == self.term and self._SyncObj__raftLeader == node:
            self._by_transfer = True
            self._to_library(node, message)

    def _in_stale(self, node: PeerNode, message: Message) -> None:
        self._step_down(message["term"])

    # ------------------------------------------------------------------ handing over

    @property
    def handing_over(self) -> int | None:
        """The node that is to lead next; proposals are refused meanwhile."""
        return self._handover.target

    def transfer_refusal(self, target: int) -> str | None:
        """Why not; None if `transfer` may be called."""
        return self._handover.refusal(target)

    def transfer(self, target: int) -> None:
        """Freeze proposals and hand over."""
        self._quiet.stir()
        self._handover.start(target)

    def best_target(self) -> int | None:
        return self._handover.best_target()

    def order_election(self, target: int) -> None:
        """Ask `target` to take over now. It overrides I6, so this term gets no lease any more."""
        pinned.bind(self._clock, self._rng)
        self._lease.forbid()
        self.transferLeadership(node_of(target))

    def renew(self) -> None:
        """As leader, begin a new term by an election that we order ourselves: nobody's promise
        stands against it but the one to us.
        """
        self._lease.forbid()
        self._SyncObj__setState(FOLLOWER)
        self._by_transfer = True
        self.campaign_now()
