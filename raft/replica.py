"""`Replica`: one group on this node between its state machine and consensus. Implements
`raft.api.ConsensusGroup`.

It owns what the library knows nothing of: tokens of proposals, applying, the role that the state
machine is called for, reads.

Invariants
  * an entry is applied once per start, in order, at most up to min(commit, synced) (rule 4);
  * `leader` turns true only after an entry of the own term was applied, so the state is complete
    and no other node can have committed in between (rules 2 and 11);
  * a token leaves exactly once: with `apply` of its own entry, or with `dropped`. That another
    term's entry was applied at its index is the only proof that it was not executed; a truncation
    alone proves nothing (another replica may still hold it and win).

Source: Raft section 5.3, 8; the apply pipeline's doc of CockroachDB's `kvserver/apply` for keeping
it in one place. Members, transfer and status are in `administration`, snapshots in `snapshot`,
reads of a follower in `reads`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from raft.administration import Administration
from raft.api import (
    RaftConfig,
    RaftCounters,
    ReadDone,
    Recovery,
    SnapshotId,
    SnapshotSink,
    StateMachine,
)
from raft.errors import (
    ApplyFailed,
    BadConfig,
    EntryTooLarge,
    InvariantBroken,
    ProposalsFull,
    Transferring,
)
from raft.group import Group
from raft.journal import Journal
from raft.pinned import Message
from raft.reads import ASK_MAX, FollowerReads
from raft.records import DATA, DATA_KIND, WITHHELD_KIND, Base
from raft.restore import Receiver
from raft.rules.reads import PendingRead, ReadQueue
from raft.snapshot import Budget, Sender, Snapshots


class Host(Protocol):
    """The node's end of all groups (raft.host): it runs a replica's doors."""

    counters: RaftCounters
    snapshot_budget: Budget
    clock: Callable[[], float]

    def barrier(self, done: Callable[[], object]) -> None: ...
    def guard(self, replica: Replica, door: Callable[..., object], *args: object) -> None: ...
    def enter(self, replica: Replica, door: Callable[..., object], *args: object) -> None: ...
    def soon(self, replica: Replica, door: Callable[[], object]) -> None: ...
    def schedule(self, replica: Replica) -> None: ...


_ROUTINE = frozenset({"append_entries", "next_node_idx", "hb_ack", "snapshot", "snapshot_ack"})
"""Messages that start no election."""


class Replica(Administration):
    """See the module. Built by `RaftHost.open_group`."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        core: Group,
        sm: StateMachine,
        config: RaftConfig,
        recovery: Recovery,
    ) -> None:
        self.group_id = journal.group_id
        self.recovery = recovery
        self.leader = False
        self.applied_index = recovery.applied_index
        self._host, self._journal, self._core, self._sm = host, journal, core, sm
        self._config = config
        self._enter = partial(host.enter, self)
        self._counters = host.counters
        self._replayed_until = recovery.last_index
        self._tokens: dict[int, tuple[int, object]] = {}
        # Of proposals that were cut off here, whose index a later leadership of ours used again:
        # another replica may still hold them and win.
        self._cut_off: dict[int, list[tuple[int, object]]] = {}
        self._reads = ReadQueue()
        self._follower_reads = FollowerReads(
            ask=self._ask_leader,
            first=int(core.nonce() * ASK_MAX),
            resend_s=config.heartbeat_ms / 1000,
            give_up_s=config.election_max_ms / 1000,
        )
        core.on_read = self._on_read
        self._sender = Sender(
            core,
            make=lambda: sm.snapshot(),
            config=config,
            counters=host.counters,
            budget=host.snapshot_budget,
            clock=host.clock,
        )
        self._receiver = Receiver(
            core,
            self,
            restore=self._restore,
            barrier=host.barrier,
            enter=self._enter,
            config=config,
            counters=host.counters,
        )
        core.snapshots = Snapshots(self._sender, self._receiver)
        self._reported_term = 0
        self._applying = self._goes_on = False
        self._stopped: str | None = None

    # ------------------------------------------------------------------ what it is

    @property
    def term(self) -> int:
        return self._core.term

    @property
    def commit_index(self) -> int:
        return self._core.commit_index

    @property
    def last_index(self) -> int:
        return self._journal.last_index

    @property
    def leader_id(self) -> int | None:
        return self._core.leader_id

    @property
    def voters(self) -> tuple[int, ...]:
        return self._journal.memberships.current.voters

    @property
    def learners(self) -> tuple[int, ...]:
        return self._journal.memberships.current.learners

    @property
    def stopped(self) -> bool:
        return self._stopped is not None

    # ------------------------------------------------------------------ proposing

    def ready(self) -> bool:
        """See ConsensusGroup: False while a sync with an entry of ours runs, or when we may not
        propose.
        """
        return self.leader and not self._journal.in_flight

    def campaign(self) -> None:
        """Ask for the leadership now, if no leader is known: for a group whose replicas have just
        been made. Whoever has promised a leader its time says no, as always.
        """
        if self._stopped is None and self._core.leader_id is None:
            self._core.campaign_now()
            self._host.enter(self, self.tick)

    def propose(self, command: bytes, token: object) -> int:
        """See ConsensusGroup."""
        if not self.leader:
            if self._stopped is None:
                self._core.stir()
            self._check_leads()
        config = self._config
        if len(command) > config.entry_bytes_max:
            raise EntryTooLarge(self.group_id, len(command), config.entry_bytes_max)
        if len(self._tokens) + len(self._cut_off) >= config.proposals_max:
            raise ProposalsFull(self.group_id, config.proposals_max)
        core = self._core
        members, term = core.has_members, core.term
        if members and (target := core.handing_over) is not None:
            raise Transferring(self.group_id, target)
        index = self._journal.append(DATA + command, term)
        if index in self._tokens:
            self._cut_off.setdefault(index, []).append(self._tokens[index])
        self._tokens[index] = (term, token)
        if members:
            # What fails from here on (an old entry that a slow follower needs cannot be read any
            # more) must not look like a refusal: the command is in the log.
            self._host.guard(self, core.replicate)
        return index

    # ------------------------------------------------------------------ reading

    def serving(self) -> bool:
        """See ConsensusGroup."""
        return self.leader and self._core.lease_holds()

    def can_serve_reads(self) -> bool:
        """See ConsensusGroup."""
        if self.leader:
            return self._core.used()
        if self._stopped is None:
            self._core.stir()
        return False

    def read_barrier(self, done: ReadDone) -> None:
        """See ConsensusGroup."""
        waiting = len(self._reads) + len(self._follower_reads)
        if self._stopped is not None or waiting >= self._config.proposals_max:
            done(None)
            return
        core = self._core
        if not self.leader:
            if core.raft_leader or not core.keeps_data:
                done(None)
                return
            self._follower_reads.add(done, core.now_s())
            self._host.schedule(self)
            return
        need = 0 if core.lease_holds() else core.confirm_leadership()
        self._reads.add(PendingRead(core.term, need, core.commit_index, done))
        self._serve_reads()

    def _ask_leader(self, number: int) -> bool:
        core = self._core
        leader = core.leader_id
        if leader is None or core.raft_leader:
            return False
        core.stir()
        core.post(leader, {"type": "read_index", "term": core.term, "ask": number})
        return True

    def _on_read(self, peer: int, message: Message) -> None:
        """A question of a follower, or the answer to ours."""
        number, core = message["ask"], self._core
        if message["type"] == "read_at":
            self._follower_reads.answered(number, message["index"], core.now_s())
            return

        def answer(index: int | None) -> None:
            core.post(peer, {"type": "read_at", "term": core.term, "ask": number, "index": index})
            core.show(peer)

        if self.leader:
            self.read_barrier(answer)
        else:
            answer(None)

    def _serve_reads(self) -> None:
        if not self._follower_reads.idle:
            self._follower_reads.serve(self.applied_index)
        if not self._reads:
            return
        leading = self._core.term if self.leader else None
        for done in self._reads.take_lost(leading_term=leading):
            done(None)
        served = self._reads.take_served(
            confirmed=self._core.rounds.confirmed, applied_index=self.applied_index
        )
        for done in served:
            done(self.applied_index)

    # ------------------------------------------------------------------ doors of the host

    def tick(self) -> None:
        """Let time act."""
        self._core.tick()
        self._follower_reads.tick(self._core.now_s())
        self._sender.pump()
        self.advance()

    def receive(self, peer: int, message: Message) -> None:
        """A message of a peer."""
        self._core.step(peer, message)
        if message["type"] in _ROUTINE:
            self._core.settle()
        else:
            self._core.tick()
        self._sender.pump()
        self.advance()

    def peer_up(self, peer: int) -> None:
        """The transport reaches this node again."""
        self._core.peer_up(peer)
        self._sender.reconnected(peer)

    def peer_down(self, peer: int) -> None:
        """The transport lost this node."""
        self._core.peer_down(peer)

    def sync_begins(self) -> None:
        self._journal.sync_begins()

    def sync_ended(self) -> None:
        """Only marks; `after_sync` acts, once every group of the sync is marked."""
        self._journal.sync_ended()

    def after_sync(self) -> None:
        """Commit and apply what the sync made durable."""
        self._core.synced()
        self.advance()

    def next_deadline_s(self) -> float | None:
        if self._stopped is not None:
            return None
        deadline_s = self._core.next_deadline_s()
        if self._sender.idle and self._follower_reads.idle:  # asked after every sync
            return deadline_s
        others_s = (self._sender.deadline_s(), self._follower_reads.next_deadline_s())
        return min((at_s for at_s in (deadline_s, *others_s) if at_s is not None), default=None)

    def stop(self, reason: str) -> None:
        """Answer everybody who waits and do nothing any more. The outcome of proposals in flight is
        unknown.
        """
        if self._stopped is not None:
            return
        self._stopped = reason
        self._sender.close()
        self._follower_reads.close()
        was_leader, self.leader = self.leader, False
        tokens = self._take_tokens()
        self._serve_reads()
        if tokens:
            self._sm.dropped(tokens, unknown=True)
        if was_leader:
            self._sm.role(leader=False, term=self._core.term)

    # ------------------------------------------------------------------ applying

    def advance(self) -> None:
        """Tell roles, apply what is committed and durable, serve reads. Safe to reach from within
        `apply`.
        """
        if self._applying or self._stopped is not None:
            return
        self._applying = True
        try:
            self._tell_loss()
            if not self._receiver.installing:
                self._apply()
        finally:
            self._applying = False
        self._serve_reads()

    def _apply(self) -> None:
        journal, core = self._journal, self._core
        enough = self.applied_index + self._config.apply_entries_max
        while self.applied_index < (upto := min(core.commit_index, journal.synced)):
            if self.applied_index >= enough:  # a long replay must not silence the heartbeats
                if not self._goes_on:
                    self._goes_on = True
                    self._host.soon(self, self._go_on)
                return
            for command, index, term in journal.entries(self.applied_index + 1, min(upto, enough)):
                try:
                    self._apply_one(command, index, term)
                except Exception as error:
                    raise ApplyFailed(self.group_id, index) from error
                if (
                    self._stopped is not None
                ):  # the state machine dropped its own group, or the host was closed
                    return
            journal.trim_memory(self.applied_index)
            self._receiver.outrun(self.applied_index)

    def _go_on(self) -> None:
        self._goes_on = False
        self.advance()

    def _apply_one(self, command: bytes, index: int, term: int) -> None:
        proposed = self._tokens.pop(index, None)
        token = None
        if proposed is not None:
            if proposed[0] == term:
                token = proposed[1]
            else:
                self._sm.dropped([proposed[1]], unknown=False)
        if self._cut_off:
            token = self._settle_cut_off(index, term, token)
        try:
            if command[0] == DATA_KIND:
                self._sm.apply(index, term, memoryview(command)[1:], token)
            elif command[0] == WITHHELD_KIND and self._core.keeps_data:
                raise InvariantBroken("the log of a witness was opened as one with data")
            else:
                self._sm.advance(index, term)
        except Exception:
            if token is not None:  # `stop` answers it: the state machine may have executed a part
                self._tokens[index] = (term, token)
            raise
        self.applied_index = index
        counters = self._counters
        counters.entries_applied += 1
        if index <= self._replayed_until:
            counters.entries_replayed += 1
        if not self.leader and self._stopped is None:
            self._tell_gain(term)

    def _settle_cut_off(self, index: int, term: int, token: object | None) -> object | None:
        """The token of the entry that is applied at `index`; the others there are answered."""
        for proposed_term, proposed in self._cut_off.pop(index, ()):
            if proposed_term == term:
                token = proposed
            else:
                self._sm.dropped([proposed], unknown=False)
        return token

    def _take_tokens(self, upto: int | None = None) -> list[object]:
        """Of all proposals without an outcome, or of those up to an index."""
        taken = []
        for index in [i for i in self._tokens if upto is None or i <= upto]:
            taken.append(self._tokens.pop(index)[1])
        for index in [i for i in self._cut_off if upto is None or i <= upto]:
            taken += [token for _, token in self._cut_off.pop(index)]
        return taken

    # ------------------------------------------------------------------ roles

    def _tell_gain(self, applied_term: int) -> None:
        if self._core.raft_leader and applied_term == self._core.term:
            self.leader, self._reported_term = True, applied_term
            self._counters.elections_won += 1
            self._sm.role(leader=True, term=applied_term)

    def _tell_loss(self) -> None:
        if self.leader and not (self._core.raft_leader and self._core.term == self._reported_term):
            self.leader = False
            self._sm.role(leader=False, term=self._core.term)

    # ------------------------------------------------------------------ forgetting

    def alone(self) -> bool:
        return not self._core.has_members

    def compact(self, index: int) -> None:
        """See ConsensusGroup. Less is forgotten while others need it: what a transfer's end will
        ask for, what a follower that answers lacks, and a tail for the next leader.

        Raises BadConfig if `index` is not applied yet.
        """
        if self._stopped is not None or self._receiver.installing:
            return
        if index > self.applied_index:
            raise BadConfig(
                f"group {self.group_id}: cannot forget entries up to {index}, "
                f"only {self.applied_index} are applied"
            )
        if self._core.has_members:
            pinned = self._sender.pinned_index()
            index = self._core.followers.not_needed(index if pinned is None else min(index, pinned))
        self._journal.compact(index)

    def forget(self, index: int) -> None:
        """`compact` for a witness: nobody is ever sent its log."""
        self._journal.compact(index)

    def _restore(self, snapshot: SnapshotId) -> SnapshotSink:
        self._tell_loss()  # a leader has everything: it takes no snapshots
        return self._sm.restore(snapshot)

    def restart_at(self, base: Base) -> None:
        """A snapshot was installed: the state machine stands at `base`, durably."""
        lost = self._take_tokens(upto=base.index)
        self._journal.restart(base)
        self.applied_index = base.index
        self._core.installed(base.index)
        if lost:  # the snapshot does not tell whether they are in it
            self._sm.dropped(lost, unknown=True)
        self.advance()
