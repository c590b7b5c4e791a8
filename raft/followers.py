"""`Followers`: what a leader knows of the other members of its group, and what it sends them.

A heartbeat round goes to everybody once per period and for reads without a lease; entries leave in
between, as soon as they are in the log, as far as each member's window takes them (`rules/flow`).
Answers open windows, and say what is lost.

Invariants
  * a member that does not answer, or whose queue is full, gets heartbeats only;
  * a member whose next entry is not in the log any more gets bare heartbeats, and the snapshots are
    told of it;
  * a witness gets what `rules/witness` allows, without payloads;
  * a configuration leaves only once it is durable here, while all other entries leave at once. A
    voter that it makes a learner campaigns no more; with it in its log, that node would also refuse
    us its vote, if a crash took it out of ours: nobody could ever be elected. It gets it only once
    it is committed, so that it can still be elected should we be gone for good.

The indexes live in the library's tables, by its nodes: it fills them when it takes office, and its
check-quorum reads when everybody answered. Elsewhere members are known by their ids.

Source: Raft section 5.3; thesis 10.2.1; etcd's `Progress`. Left out: heartbeats that several groups
share (the transport puts them into one frame).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from raft.api import RaftConfig, RaftCounters
from raft.journal import Journal
from raft.pinned import Message, PeerNode, node_of
from raft.records import Entry
from raft.rules import witness
from raft.rules.flow import Flow, InFlight
from raft.rules.progress import Progress

LONG_AGO = float("-inf")


class Leader(Protocol):
    """The group whose members these are."""

    journal: Journal

    @property
    def me(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def raft_leader(self) -> bool: ...
    def post(self, peer: int, message: Message) -> None: ...
    def needs_snapshot(self, peer: int) -> None: ...


class Followers:
    """See the module. Meaningful while `core` leads; kept up to date with the configuration
    always.
    """

    def __init__(
        self,
        core: Leader,
        *,
        next_index: dict[PeerNode, int],
        match_index: dict[PeerNode, int],
        answered_s: dict[PeerNode, float],
        config: RaftConfig,
        counters: RaftCounters,
        clock: Callable[[], float],
        room: Callable[[int], bool],
        unreachable: Collection[int],
    ) -> None:
        """`room(peer)`: may entries be sent there now? The tables are the library's."""
        self._core, self._journal = core, core.journal
        self._next, self._match, self._answered_s = next_index, match_index, answered_s
        self._config, self._counters, self._clock = config, counters, clock
        self._room, self._unreachable = room, unreachable
        self._silent_s = config.election_min_ms / 1000
        self._flows: dict[int, Flow] = {}
        self._witnesses: frozenset[int] = frozenset()
        self._demoted: set[int] = set()  # by the last configuration
        self._progress = Progress(window_s=self._silent_s)
        self._progress.restart(clock(), core.journal.last_index)
        self._withheld = False  # entries wait for our own sync
        self.nodes: list[PeerNode] = []
        """Everybody to replicate to, in a fixed order."""

    # ------------------------------------------------------------------ who they are

    def adopt(self, nodes: Collection[PeerNode], witnesses: frozenset[int]) -> None:
        """The configuration changed: forget who left, and be ready for who came."""
        config = self._config
        self.nodes = sorted(nodes, key=lambda node: int(node.id))
        self._witnesses = witnesses
        history = self._journal.memberships
        self._demoted = set(history.before.voters).difference(history.current.voters)
        for node in self.nodes:
            if node in self._next:
                continue
            self._flows[node.id] = Flow(
                bytes_max=config.window_bytes_max,
                messages_max=config.window_messages_max,
                reorder_s=config.reorder_ms / 1000,
            )
            self._next[node], self._match[node] = self._journal.last_index + 1, 0
            self._answered_s[node] = self._clock()
        for node in self._next.keys() - set(self.nodes):
            del self._next[node], self._match[node], self._flows[node.id]

    def take_office(self) -> None:
        """A new leadership: nothing is known of anybody."""
        for flow in self._flows.values():
            flow.restart()
        self._progress.restart(self._clock(), self._journal.last_index)

    def __contains__(self, peer: int) -> bool:
        return peer in self._flows

    @property
    def ids(self) -> list[int]:
        """Ascending."""
        return [node.id for node in self.nodes]

    # ------------------------------------------------------------------ what is known

    def match(self, peer: int) -> int:
        """Its log is ours up to here, durably; 0 if unknown."""
        return self._match.get(node_of(peer), 0)

    def next(self, peer: int) -> int:
        """The entry that it would be sent next."""
        return self._next[node_of(peer)]

    def is_behind(self, peer: int) -> bool:
        """It needs entries which our log does not have any more."""
        return peer in self._flows and self.next(peer) <= self._journal.base_index

    def is_responsive(self, peer: int) -> bool:
        """It answered within the minimum election timeout."""
        answered_s = self._answered_s.get(node_of(peer), LONG_AGO)
        return self._clock() < answered_s + self._silent_s

    def takes(self, peer: int) -> bool:
        """Entries and chunks go only to who answers, while the way there is free; the others get
        heartbeats.
        """
        return self.is_responsive(peer) and self._room(peer)

    def in_step(self, peer: int) -> bool:
        """It keeps up with our log."""
        heard_s, match = self._answered_s[node_of(peer)], self.match(peer)
        reachable = peer not in self._unreachable
        return reachable and self._progress.in_step(match, heard_s, self._clock())

    def caught_up(self, peer: int) -> bool:
        """A learner may become a voter: it has nearly the whole log, and keeps up."""
        match, heard_s = self.match(peer), self._answered_s.get(node_of(peer), LONG_AGO)
        joined = match >= self._journal.memberships.current.index
        near = match + self._config.promote_lag_max >= self._journal.last_index
        return joined and near and self._progress.caught_up(match, heard_s, self._clock())

    def hear_everybody(self) -> None:
        """The group slept, so that nobody answered: check-quorum begins anew."""
        now = self._clock()
        for node in self.nodes:
            self._answered_s[node] = now

    def not_needed(self, index: int) -> int:
        """How far the log may be forgotten, if the caller needs nothing up to `index`."""
        journal, config = self._journal, self._config
        index = min(index, journal.index_before_end(config.log_tail_bytes))
        if self._core.raft_leader:
            for peer in self.ids:
                match = self.match(peer)
                lacks = match < index and self.is_responsive(peer)
                if lacks and journal.bytes_after(match) <= config.log_keep_bytes_max:
                    index = match
        return index

    # ------------------------------------------------------------------ sending

    def round(self) -> None:
        """A heartbeat round: every member gets what its window takes, or a message without
        entries.
        """
        now = self._clock()
        if now >= self._progress.next_mark_s:
            self._progress.mark(now, self._journal.last_index)
        for node in self.nodes:
            if not self.feed(node, heartbeat=True):
                self.heartbeat(node)

    def feed(self, node: PeerNode, *, heartbeat: bool = False) -> bool:
        """Send a member what its window takes; False if that is nothing."""
        journal, flow = self._journal, self._flows[node.id]
        start, sent, last = self._next[node], False, journal.last_index
        config_index = journal.memberships.current.index
        if config_index > journal.synced:
            self._withheld, last = True, config_index - 1
        if node.id in self._demoted and config_index > self._core.commit_index:
            last = min(last, config_index - 1)
        if node.id in self._witnesses:
            last = self._witness_bound(heartbeat=heartbeat)
        while (
            journal.base_index < start <= last and (room := flow.room()) > 0 and self.takes(node.id)
        ):
            room = min(room, self._config.message_bytes_max)
            entries = self._entries_for(node, start, last, room)
            end, size = entries[-1][1], sum(len(entry[0]) for entry in entries)
            self._send_from(node, start, entries)
            flow.sent(start, end, size, self._clock())
            sent = True
            if flow.probing:
                break
            start = self._next[node] = end + 1
        return sent

    def synced(self) -> None:
        """Our own log is durable further than before."""
        if self._withheld and self._core.raft_leader:
            self._withheld = False
            for node in self.nodes:
                self.feed(node)
        self.feed_witnesses()

    def feed_witnesses(self) -> None:
        """Something that they may have now, and that waits for them, became durable."""
        if self._witnesses and self._core.raft_leader:
            for node in self.nodes:
                if node.id in self._witnesses:
                    self.feed(node)

    def heartbeat(self, node: PeerNode) -> None:
        """A message without entries. Its position makes the member say what it has; behind the
        base there is none, and only a snapshot can help.
        """
        start = self._next[node]
        if start > self._journal.base_index:
            self._send_from(node, start, [])
        else:
            self._core.post(node.id, self._append_entries())
            self._core.needs_snapshot(node.id)

    def _entries_for(self, node: PeerNode, first: int, last: int, bytes_max: int) -> list[Entry]:
        if node.id not in self._witnesses:
            return self._journal.entries(first, last, bytes_max)
        journal = self._journal
        last = min(last, first + self._config.replay_entries_max - 1)
        return witness.without_payloads(
            first, last, term_at=journal.term_at, configs=journal.memberships.after(first)
        )

    def _witness_bound(self, *, heartbeat: bool) -> int:
        """Up to where witnesses may have the log now. What is committed without them they get with
        the heartbeats, for nobody waits for it.
        """
        core, journal = self._core, self._journal
        config = journal.memberships.current
        in_step, others = [journal.synced], list[int]()
        for node in config.data_voters:
            if node != core.me:
                (in_step if self.in_step(node) else others).append(self.match(node))
        upto = witness.bound(config, commit_index=core.commit_index, in_step=in_step, others=others)
        return upto if heartbeat or upto > core.commit_index else 0

    def _send_from(self, node: PeerNode, start: int, entries: Sequence[Entry]) -> None:
        message = self._append_entries()
        message["entries"] = entries
        message["prevLogIdx"], message["prevLogTerm"] = start - 1, self._journal.term_at(start - 1)
        self._core.post(node.id, message)

    def _append_entries(self) -> Message:
        return {
            "type": "append_entries",
            "term": self._core.term,
            # The others may have committed what our own disk does not have yet. Whoever applied it
            # could show what we, with a lease, do not show until our sync has ended.
            "commit_index": min(self._core.commit_index, self._journal.synced),
            "at": self._clock(),
        }

    # ------------------------------------------------------------------ answers

    def heard(self, node: PeerNode) -> None:
        """Any answer of this term."""
        self._answered_s[node] = self._clock()

    def answered(self, node: PeerNode, message: Message) -> None:
        """A `next_node_idx` of this term (P4, P10, P14)."""
        self.heard(node)
        wanted, flow = message["next_node_idx"], self._flows[node.id]
        match = self._match[node]
        if message.get("blank") and not match:
            self._next[node] = self._journal.base_index  # whatever the log has: a snapshot first
            self.heartbeat(node)
            return
        if message["success"]:
            match = self._match[node] = max(match, min(wanted - 1, self._journal.last_index))
            self._next[node] = flow.accepted(match, next_item=self._next[node])
            wanted = message.get("last", self._journal.last_index) + 1
        else:
            self._next[node] = flow.rejected(wanted, next_item=self._next[node], match=match)
        at_s = message.get("at", LONG_AGO)
        lost = flow.lost(max(wanted, match + 1), at_s)
        if lost is not None and flow.mostly_lost(at_s, message.get("waiting", 0)):
            self._counters.bytes_resent += flow.forget_in_flight()
            self._next[node] = match + 1
        elif lost is not None:
            self._send_again(node, lost)
        # A witness that is far behind need not wait for the next heartbeat.
        far = self._next[node] + self._config.replay_entries_max <= self._core.commit_index
        self.feed(node, heartbeat=far)
        self.feed_witnesses()

    def reconnected(self, peer: int) -> None:
        """Ask a member at once where it is, instead of at the next heartbeat."""
        self._flows[peer].reconnected()
        self.heartbeat(node_of(peer))

    def _send_again(self, node: PeerNode, lost: InFlight) -> None:
        """One message that did not arrive (F10: only that one)."""
        first = max(lost.first, self._match[node] + 1)
        if first <= self._journal.base_index:  # only a snapshot has these entries
            self._flows[node.id].restart()
            self._next[node] = first
        elif self.takes(node.id):
            lost.sent_s = self._clock()
            while first <= lost.last:  # what comes from the disk comes in bounded pieces
                room = self._config.message_bytes_max
                entries = self._entries_for(node, first, lost.last, room)
                self._counters.bytes_resent += sum(len(entry[0]) for entry in entries)
                self._send_from(node, first, entries)
                first = entries[-1][1] + 1
