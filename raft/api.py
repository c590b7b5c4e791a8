"""The protocols between consensus and the world. No code that decides anything. The settings and
counters are in `raft/settings`, and can be had from here.

Who calls whom, for one write on the leader (sources: Raft, Ongaro & Ousterhout 2014, section 5.3;
Ongaro's thesis 10.2.1):

    caller ── propose ──▶ ConsensusGroup ── put ──▶ LogBatch          one batch and one sync
    caller ◀─ apply ───── RaftHost ◀─────── done ── Syncer            for all groups of the node
    peers  ◀─ send ────── PeerTransport

Invariants that every implementation may lean on
  * one thread: every call in both directions happens on the event loop of the node;
  * `StateMachine.apply` sees each index once per start, in order, without gaps, from `applied() +
    1` on; an installed snapshot (`restore`) moves `applied()`;
  * an entry is applied only when it is committed *and* durable on this node.

Left out: asyncio adapters for `Timers` and `Syncer` (the node's wiring has them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from raft.settings import RaftConfig as RaftConfig
from raft.settings import RaftCounters as RaftCounters

Command = bytes | memoryview
SyncDone = Callable[[BaseException | None], None]
ReadDone = Callable[[int | None], None]


# ------------------------------------------------------------------ what raft needs


class LogBatch(Protocol):
    """An ordered list of writes that becomes visible at once. Later writes win over earlier ones of
    the same batch.
    """

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Forget `start <= key < end`."""
        ...


class LogDB(Protocol):
    """Ordered durable bytes. After a crash it holds a *prefix* of the written batches: at least
    those that were synced.
    """

    def batch(self) -> LogBatch: ...

    def write(self, batch: Any) -> None:
        """Make a batch of this LogDB (from `batch()`) visible to `scan`; it reaches the buffer or
        the OS, it is NOT synced. Must not block. Any exception stops the node.
        """
        ...

    def scan(self, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Pairs with `start <= key < end` in key order. Lazy: taking the first pair must not read
        all of them.
        """
        ...


class Syncer(Protocol):
    """Makes the log durable without blocking the loop."""

    def start(self, done: SyncDone) -> None:
        """Make everything written to the LogDB so far durable, then call `done(None)` on the loop,
        once.

        `done(error)` reports that it is not durable; the host stops for good. At most one sync is
        in flight.
        """
        ...


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Time and deferred calls. An asyncio loop fits, with `monotonic = loop.time`."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def call_later(
        self, delay_s: float, fn: Callable[..., object], *args: object
    ) -> TimerHandle: ...

    def call_soon(self, fn: Callable[..., object], *args: object) -> object: ...


class Rng(Protocol):
    def random(self) -> float:
        """Uniform in [0, 1). Only election timeouts use it."""
        ...


class PeerTransport(Protocol):
    """Carries messages to other nodes. It may lose, delay, duplicate and reorder; it must not
    deliver synchronously.
    """

    def send(self, peer: int, group_id: int, message: Mapping[str, object], *, early: bool) -> None:
        """`early` messages did not wait for a sync (appends, heartbeats); the others are covered by
        the last one.
        """
        ...

    def room(self, peer: int) -> bool:
        """May entries and snapshot chunks be sent to this peer now? False while its queue is full;
        heartbeats, votes and answers are sent all the same.
        """
        ...


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """Which bytes are being transferred: equal ids mean equal bytes, chunk by chunk.

    `sender` is the leader's node id and `number` counts its transfers over all its terms, so a
    restarted or deposed leader never names other bytes by an id that was used before.
    """

    index: int
    term: int
    sender: int
    number: int


class SnapshotSource(Protocol):
    """A consistent view of the applied state at (index, term), read once, forward only, in chunks.
    Later applying does not change it. Held by the leader for as long as its transfer lasts.
    """

    @property
    def index(self) -> int: ...

    @property
    def term(self) -> int: ...

    def read(self, bytes_max: int) -> bytes | None:
        """The next chunk, not empty and at most `bytes_max` bytes; None after the last one. Called
        on the loop: it takes about as long as reading so many bytes.

        Raises SnapshotUnavailable if the view cannot be read on: the transfer is given up.
        """
        ...

    def close(self) -> None:
        """Let go of the view; exactly once, and nothing is read afterwards."""
        ...


class SnapshotSink(Protocol):
    """Takes one snapshot, beside the live state until `install`. At most one is open per group.

    A sink is left, without a call, when its replica is closed; what is staged stays until a sink
    for another SnapshotId is opened, or until `discard`. After a restart, what is staged of an
    index that is applied by then may be forgotten: nobody will ask for it.
    """

    def staged(self) -> int:
        """n: the chunks 0..n-1 of this very SnapshotId are durable here (n > 0: resumed after a
        restart). Asked once, when the sink was made. Whatever was staged of another id is gone.
        """
        ...

    def stage(self, number: int, chunk: bytes, done: Callable[[], None]) -> None:
        """Keep chunk `number`; `done()` on the loop, later, once it is durable beside the live
        state.

        Called with ascending numbers from `staged()` on, perhaps again before the last `done`;
        the `done`s come in that order. Raises SnapshotUnavailable (no room): the transfer is
        refused and tried again later.
        """
        ...

    def install(self, done: Callable[[], None]) -> None:
        """Replace the state by what was staged: all or nothing, also over a crash (redone, or taken
        back, before the next `applied()`); `done()` on the loop, later, once `applied()` is
        (index, term) of the SnapshotId, durably. Nothing is applied between the call and `done`.

        Raises SnapshotUnavailable: what was staged is not a whole snapshot; nothing changed.
        """
        ...

    def discard(self) -> None:
        """Forget what was staged. Not called once `install` has begun."""
        ...


class StateMachine(Protocol):
    """What a group replicates. Deterministic: equal commands in equal order give equal state on
    every replica.
    """

    def applied(self) -> tuple[int, int]:
        """(index, term) of the last entry in the state DB, (0, 0) for an empty one. Asked once,
        when the group opens.
        """
        ...

    def apply(self, index: int, term: int, command: Command, token: object | None) -> None:
        """Execute a committed command. `token` is the object given to `propose` on this node, None
        for all others.

        May call `propose` of this or another group. Any exception stops the replica for good
        (`on_fatal`).
        """
        ...

    def advance(self, index: int, term: int) -> None:
        """A committed entry without a command (no-op, membership): only the applied index moves."""
        ...

    def dropped(self, tokens: list[object], *, unknown: bool) -> None:
        """Proposals that will get no `apply`: certainly not executed, or, if `unknown`, perhaps
        executed later.
        """
        ...

    def role(self, *, leader: bool, term: int) -> None:
        """leader=True once this node may serve: its vote is durable and an entry of its own term is
        applied.
        """
        ...

    def snapshot(self) -> SnapshotSource:
        """A view of the applied state as it is now. Its index may lie below the last `apply` if the
        machine writes behind, never below the index given to `compact`.

        Raises SnapshotUnavailable: a machine that makes no snapshots does so always, and its
        followers that are behind the log's first entry stay behind; others when they cannot now.
        """
        ...

    def restore(self, snapshot: SnapshotId) -> SnapshotSink:
        """A sink for this snapshot; an unfinished one of the same id goes on, any other is
        forgotten. Never asked of a leader: `role(leader=False)` came before. Raises
        SnapshotUnavailable, like `snapshot`.
        """
        ...


# ------------------------------------------------------------------ what raft offers


class ConsensusGroup(Protocol):
    """One replica of one group, as its state machine and its clients see it."""

    @property
    def group_id(self) -> int: ...

    @property
    def leader(self) -> bool:
        """True from `role(leader=True)` to `role(leader=False)`."""
        ...

    @property
    def term(self) -> int: ...

    @property
    def applied_index(self) -> int: ...

    @property
    def commit_index(self) -> int: ...

    @property
    def last_index(self) -> int: ...

    @property
    def leader_id(self) -> int | None: ...

    def ready(self) -> bool:
        """Would a proposal made now start or join a sync at once? False while a sync with an entry
        of ours runs.
        """
        ...

    def campaign(self) -> None:
        """Ask for the leadership now, if no leader is known: for a group whose replicas have just
        been made, so that its first leader need not wait for an election timeout.
        """
        ...

    def propose(self, command: bytes, token: object) -> int:
        """Append a command; its index. The outcome arrives as `apply` or `dropped` with the token.

        Raises NotLeader, EntryTooLarge, ProposalsFull, Stopped: then it was certainly not appended.
        """
        ...

    def alone(self) -> bool:
        """No other node is a member, so that nobody will be sent the log."""
        ...

    def serving(self) -> bool:
        """May the applied state be read now as the newest? (Leader under its lease; a lone voter
        needs no lease.) A leader may be without lease: asleep (asking wakes the group), just
        elected, or after a transfer that failed. Then `read_barrier` serves all the same.
        """
        ...

    def can_serve_reads(self) -> bool:
        """The older name of `serving`."""
        ...

    def read_barrier(self, done: ReadDone) -> None:
        """ReadIndex (Raft section 8), on any replica that keeps data: `done(applied_index)` once
        the applied state is at least as new as everything that was committed when it was called;
        `done(None)` if that cannot be known here now (no leader, a change of leader, no answer
        within an election timeout). A follower asks its leader.
        """
        ...

    def status(self) -> GroupStatus:
        """What the replica knows now; for people and for the master, not for the hot path."""
        ...

    # Membership. All of them raise NotLeader, BadConfig (the reason why not, and what to do),
    # Stopped, and return the index of the configuration: in force at once, committed when
    # `commit_index` has reached it. One change at a time.

    def add_learner(self, node: int) -> int:
        """Replicate to a node that does not vote. It holds an empty replica of the group, made by
        `create_group(group_id, [])`, or catches up by a snapshot."""
        ...

    def promote(self, node: int) -> int:
        """Make a learner a voter; refused until it has caught up and keeps up."""
        ...

    def demote(self, node: int) -> int:
        """Make a voter a learner. Not the leader itself."""
        ...

    def remove(self, node: int) -> int:
        """Take a member out. A leader that is to remove itself hands over first (`transfer`), and
        Transferring tells the caller to ask the next leader."""
        ...

    def add_witness(self, node: int) -> int:
        """Add a voter that keeps no data (`RaftHost.open_witness` on its node), to an even number
        of voters: so no majority grows."""
        ...

    def transfer(self, node: int) -> None:
        """Hand the leadership to a voter that keeps data. Until it has taken over, or an election
        timeout has passed and we go on leading, proposals are refused with Transferring.

        Raises NotLeader, BadConfig."""
        ...

    def compact(self, index: int) -> None:
        """Forget entries up to `index`, which the caller knows to be durable in the state DB.
        Beyond applied: an error.
        """
        ...


Role = Literal["leader", "candidate", "follower", "learner", "witness", "removed", "stopped"]


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """One other member, as its leader sees it. Indexes of log entries."""

    match: int
    """Known equal to ours, and durable there, up to here."""
    next: int
    """What would be sent next."""
    lag: int
    """Entries between `match` and the end of our log."""
    responsive: bool
    """It answered within the minimum election timeout; of a group asleep: its node is reachable."""
    snapshot: bool
    """A snapshot is on its way there."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A replica at one moment. `followers` is empty unless it leads."""

    group_id: int
    role: Role
    """"leader" in the sense of Raft; `serving()` tells whether it may answer."""
    term: int
    leader_id: int | None
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    witnesses: tuple[int, ...]
    """Those of the voters that keep no data."""
    config_index: int
    """Entry of that configuration; committed once `commit_index` has reached it."""
    commit_index: int
    applied_index: int
    first_index: int
    """Of the log; what lies before is only in the state machine."""
    last_index: int
    last_term: int
    """(last_term, last_index) tells which of several survivors is the most complete."""
    log_bytes: int
    """Bytes of the commands after `first_index`, as far as they are known."""
    hibernating: bool
    transferring_to: int | None
    forced: int
    """How often an operator has forced the members (`RaftHost.force_members`)."""
    forced_reason: str
    followers: Mapping[int, FollowerStatus]


# ------------------------------------------------------------------ what opening a group found


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening a group found. Indexes are inclusive; the state machine stood at
    `applied_index`.
    """

    first_index: int
    last_index: int
    applied_index: int
    stored_bytes: int
    """Of the commands that were read."""
    reset: bool
    """The state DB was newer than the log, which was restarted at `applied_index`."""


Members = Sequence[int]
