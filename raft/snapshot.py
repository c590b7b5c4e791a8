"""Snapshots between replicas: a follower whose next entry is no longer in the leader's log gets the
leader's state instead, in chunks (Raft section 7; thesis 5.1).

    leader    Sender    reads a SnapshotSource, keeps the window of chunks that are not acknowledged
    follower  Receiver  stages chunks in a SnapshotSink, then installs them (raft/restore)

    snapshot       leader → follower   term, index, index_term, number, config_index, config,
                                       chunk (number), data, total (chunks, -1 while unknown), at
    snapshot_ack   follower → leader   term, number, next (chunks before are durable), wants (the
                                       first chunk that did not arrive), refused, at
    next_node_idx  follower → leader   as for entries: the state is durable up to there

Order at the follower (rule 12: state first, then the log)
  1 every chunk is staged, durably, beside the live state;
  2 the configuration at the snapshot's index is durable in the log DB (`Journal.announce`): a crash
    after 3 must know it, since the entries that carry it are gone;
  3 `SnapshotSink.install`: the state is replaced, durably; nothing is applied meanwhile;
  4 the log restarts at the snapshot, or, if it holds that very entry, is cut there and its tail
    kept, as unverified as it was (P2);
  5 the answer leaves with the sync that covers 4.

Invariants
  * at most one transfer per follower, and a bounded number and rate for a whole host;
  * what lies above the index of a running transfer stays in the leader's log;
  * a transfer lives in one leadership; its id is larger than that of every earlier one, so late
    messages of an earlier one are recognised;
  * a snapshot that tells the follower nothing new is answered, not taken.

Left out: compressing chunks (the state machine's bytes are what is sent), taking a snapshot from
another follower, several receivers of one source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raft.api import RaftConfig, RaftCounters, SnapshotId, SnapshotSource
from raft.errors import InvariantBroken, SnapshotUnavailable
from raft.restore import Receiver
from raft.rules.flow import Bucket, Flow

if TYPE_CHECKING:
    from raft.group import Group
    from raft.pinned import Message
    from raft.rules.membership import Membership

_LONG_AGO = float("-inf")
_CHUNKS_AT_ONCE = 2  # reading takes the loop's time; each answer lets the next ones go
_TERM_SHIFT = 24  # transfers of one leadership; the term in front makes numbers grow over all


class Budget:
    """What all groups of a host may spend on sending snapshots."""

    def __init__(self, config: RaftConfig) -> None:
        self._max = config.snapshots_max
        self._active = 0
        window = config.snapshot_chunk_bytes * config.snapshot_window_chunks
        rate = config.snapshot_bytes_per_s
        self.bucket = Bucket(rate, max(window, rate // 10))

    def full(self) -> bool:
        """Enough are running."""
        return self._active >= self._max

    def begin(self) -> None:
        """`end` must follow."""
        self._active += 1

    def end(self) -> None:
        self._active -= 1


# ------------------------------------------------------------------ the leader's side


class EmptySource:
    """The snapshot for a witness: it keeps no data, so only index, term and configuration count."""

    def __init__(self, index: int, term: int) -> None:
        self.index, self.term = index, term

    def read(self, bytes_max: int) -> bytes | None:
        return None

    def close(self) -> None:
        pass


@dataclass(slots=True)
class Transfer:
    """One snapshot on its way to one follower."""

    id: SnapshotId
    source: SnapshotSource
    config: Membership
    flow: Flow
    moved_s: float
    """When the follower last had more than before."""
    poked_s: float
    chunks: dict[int, bytes] = field(default_factory=dict)
    """Sent, not acknowledged."""
    acked: int = 0
    sent: int = 0
    total: int = -1
    ahead: bytes | None = None
    """Read before it may leave: only so the last chunk is known as the last."""
    answered_s: float = _LONG_AGO

    def more(self) -> bool:
        return self.total < 0 or self.sent < self.total

    def next_chunk(self, bytes_max: int) -> bytes | None:
        """The next chunk; `total` is known with the last one. None for an empty snapshot. Raises
        SnapshotUnavailable.
        """
        chunk = self.source.read(bytes_max) if self.sent == 0 else self.ahead
        self.ahead = None if chunk is None else self.source.read(bytes_max)
        if self.ahead is None:
            self.total = self.sent + (chunk is not None)
        return chunk


class Sender:
    """The transfers of one group; works while its `core` leads."""

    def __init__(
        self,
        core: Group,
        *,
        make: Callable[[], SnapshotSource],
        config: RaftConfig,
        counters: RaftCounters,
        budget: Budget,
        clock: Callable[[], float],
    ) -> None:
        self._core, self._make, self._config = core, make, config
        self._counters, self._budget, self._clock = counters, budget, clock
        self._transfers: dict[int, Transfer] = {}
        self._retry_s: dict[int, float] = {}
        self._term = 0
        self._count = 0
        self._deadline_s: float | None = None

    def wanted(self, peer: int) -> None:
        """A follower lacks entries that the log does not have: begin, unless it must wait."""
        now = self._clock()
        if peer in self._transfers or self._retry_s.get(peer, _LONG_AGO) > now:
            return
        if self._budget.full() or not self._core.followers.takes(peer):
            return
        try:
            source = self._source(peer)
        except SnapshotUnavailable:
            self._later(peer, now)
            return
        self._begin(peer, source, now)
        self.pump()

    def _source(self, peer: int) -> SnapshotSource:
        core, journal = self._core, self._core.journal
        if peer in journal.memberships.current.witnesses:
            index = min(core.commit_index, journal.synced)
            return EmptySource(index, journal.term_at(index) or 0)
        return self._make()

    def _begin(self, peer: int, source: SnapshotSource, now: float) -> None:
        core, config = self._core, self._config
        at = (source.index, source.term)
        if core.journal.term_at(source.index) != source.term:
            source.close()
            raise InvariantBroken(f"the state machine's snapshot {at} is not an entry of the log")
        self._term = core.term
        self._count += 1
        number = (core.term << _TERM_SHIFT) + self._count
        flow = Flow(
            bytes_max=config.snapshot_chunk_bytes * config.snapshot_window_chunks,
            messages_max=config.snapshot_window_chunks,
            reorder_s=config.reorder_ms / 1000,
        )
        flow.accepted(-1, next_item=0)
        self._budget.begin()
        self._transfers[peer] = Transfer(
            SnapshotId(*at, core.me, number),
            source,
            core.journal.memberships.at(source.index),
            flow,
            moved_s=now,
            poked_s=now,
        )

    def answered(self, peer: int, message: Message) -> None:
        """A `snapshot_ack` of this term."""
        transfer, now = self._transfers.get(peer), self._clock()
        if transfer is None or message["number"] != transfer.id.number:
            return
        if message["refused"]:
            self._end(peer)
            self._later(peer, now)
            return
        durable, wanted, at_s = message["next"], message["wants"], message["at"]
        if durable < transfer.acked:
            if at_s > transfer.answered_s:  # not a late answer: what it had staged is gone
                self._end(peer)
            return
        transfer.answered_s = max(transfer.answered_s, at_s)
        if durable > transfer.acked:
            for number in range(transfer.acked, durable):
                transfer.chunks.pop(number, None)
            transfer.acked, transfer.moved_s = durable, now
            transfer.flow.accepted(durable - 1, next_item=durable)
        lost = transfer.flow.lost(wanted, at_s)
        if lost is not None and self._core.followers.takes(peer):
            lost.sent_s = now
            self._counters.snapshot_bytes_resent += lost.size
            self._send(peer, transfer, wanted)
        self.pump()

    def reconnected(self, peer: int) -> None:
        """What was on its way to this peer may be lost: ask how far it is."""
        transfer = self._transfers.get(peer)
        if transfer is not None and self._core.followers.takes(peer):
            transfer.flow.reconnected()
            self._send(peer, transfer, transfer.sent)

    def pump(self) -> None:
        """Send what may leave now, and end what is done or hopeless."""
        if not self._transfers:
            return
        now = self._clock()
        if self._core.term != self._term or not self._core.raft_leader:
            self.close()
            return
        self._deadline_s = None
        for peer, transfer in list(self._transfers.items()):
            if self._core.followers.match(peer) >= transfer.id.index:
                self._counters.snapshots_sent += 1
                self._end(peer)
            elif not self._core.followers.is_behind(peer):
                self._end(peer)
            elif now - transfer.moved_s > self._config.snapshot_abandon_ms / 1000:
                self._end(peer)
                self._later(peer, now)
            else:
                self._pump(peer, transfer, now)

    def _pump(self, peer: int, transfer: Transfer, now: float) -> None:
        resend_s = self._config.snapshot_resend_ms / 1000
        try:
            wait_s = self._read_on(peer, transfer, now)
        except SnapshotUnavailable:
            self._end(peer)
            self._later(peer, now)
            return
        idle_since_s = max(transfer.moved_s, transfer.poked_s)
        if now - idle_since_s >= resend_s and self._core.followers.takes(peer):
            transfer.poked_s = idle_since_s = now
            self._send(peer, transfer, transfer.sent)  # its answer says what is lost
        poke_s = idle_since_s + resend_s
        self._wake(now + wait_s if wait_s is not None else max(poke_s, now + resend_s / 2))

    def _read_on(self, peer: int, transfer: Transfer, now: float) -> float | None:
        """Send the next chunks; how soon there may be more, None if that is for an answer to say.
        Raises SnapshotUnavailable.
        """
        for _ in range(_CHUNKS_AT_ONCE):
            full = transfer.flow.room() == 0 or not self._core.followers.takes(peer)
            if full or not transfer.more():
                return None
            wait_s = self._budget.bucket.wait_s(now)
            if wait_s > 0:
                return wait_s
            chunk, number = transfer.next_chunk(self._config.snapshot_chunk_bytes), transfer.sent
            if transfer.acked == number:
                transfer.moved_s = now  # until now it waited for us
            if chunk is not None:
                self._budget.bucket.take(len(chunk))
                transfer.chunks[number] = chunk
                transfer.sent += 1
                transfer.flow.sent(number, number, len(chunk), now)
            self._send(peer, transfer, number)
        return 0.0

    def _wake(self, at_s: float) -> None:
        if self._deadline_s is None or at_s < self._deadline_s:
            self._deadline_s = at_s

    def _send(self, peer: int, transfer: Transfer, number: int) -> None:
        """A chunk, or without data the question how far it is."""
        data = transfer.chunks.get(number, b"")
        self._counters.snapshot_bytes_sent += len(data)
        message: Message = {
            "type": "snapshot",
            "term": self._term,
            "index": transfer.id.index,
            "index_term": transfer.id.term,
            "number": transfer.id.number,
            "config_index": transfer.config.index,
            "config": transfer.config.encode(),
            "chunk": number,
            "data": data,
            "total": transfer.total,
            "at": self._clock(),
        }
        self._core.post(peer, message)

    def _later(self, peer: int, now: float) -> None:
        """It cannot be helped now; nobody stops for it."""
        self._counters.snapshots_failed += 1
        self._retry_s[peer] = now + self._config.snapshot_retry_ms / 1000

    def _end(self, peer: int) -> None:
        self._transfers.pop(peer).source.close()
        self._budget.end()

    # ------------------------------------------------------------------ what others ask

    def sends_to(self, peer: int) -> bool:
        return peer in self._transfers

    def pinned_index(self) -> int | None:
        """Entries above it must stay in the log; None if no transfer runs."""
        return min((transfer.id.index for transfer in self._transfers.values()), default=None)

    @property
    def idle(self) -> bool:
        return not self._transfers

    def deadline_s(self) -> float | None:
        """When to `pump` next, if nothing happens before."""
        return self._deadline_s if self._transfers else None

    def close(self) -> None:
        """Give up all transfers."""
        for peer in list(self._transfers):
            self._end(peer)
        self._retry_s.clear()
        self._deadline_s = None


class Snapshots:
    """Both sides of one replica, as its group sees them (`raft.group.SnapshotPort`)."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self.sender, self.receiver = sender, receiver
        self.wanted, self.answered = sender.wanted, sender.answered
        self.received = receiver.received
