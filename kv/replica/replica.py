"""raft.StateMachine of one partition over the state DB, and the log port of its machine.

Invariants
  * entries become visible in log order, each as one engine batch with its index;
  * the leader writes the batch that it built from its own entry; everybody else decodes the same
    entry: equal state at equal index;
  * an entry that cannot be read stops this replica (Corruption is raised into the consensus layer,
    which stops the group): guessing would make replicas differ;
  * a state DB that refuses a write (stall, full disk) refuses whole batches: the entry waits here,
    in order, and is tried again. Nothing that waits is acknowledged, and new writes are refused
    meanwhile;
  * while a snapshot replaces the range (kv.replica.install), nothing is applied; what waited and is
    part of it is not applied any more;
  * stored data that are not what was written (`damaged`) are nobody's answer while another replica
    can give it: from then on this one only follows. Its log and its votes are sound, so it votes
    and acknowledges as before, until the master has it replaced by a copy of a healthy one
    (procedures/master/members/rebuilding.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kv.base.checksum import seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, Corruption, KvorumError, NotLeader, TooLarge, Unavailable
from kv.base.limits import DAMAGED_RETURNS_MAX, UNSETTLED_MS
from kv.base.ports import Handle, Timers
from kv.mvcc.records import Row
from kv.partition.entry import Decoded, Entry, decode
from kv.partition.machine import PartitionMachine
from kv.partition.shapes import Shape, is_shape
from kv.partition.shapes import decode as decode_shape
from kv.partition.sizes import Noted
from kv.replica.counters import ManagerCounters
from kv.replica.disk_room import Room
from kv.replica.install import Installer
from kv.replica.metakeys import CLOSED, meta_key
from kv.replica.shard_move import ShardMove
from kv.replica.sink import RangeSink
from kv.replica.source import RangeSource
from kv.replica.state import PartitionState
from kv.replica.syncs import Syncs
from raft.api import Command, ConsensusGroup, SnapshotId, SnapshotSink, SnapshotSource
from raft.errors import EntryTooLarge, ProposalsFull, RaftError, SnapshotUnavailable

log = logging.getLogger(__name__)

RETRY_S: Final = 0.02
_HAND_OVER_S: Final = 0.25  # between two attempts of a damaged replica
Absorbs = Callable[["Replica", PartitionDescriptor], Sequence[PartitionDescriptor]]
"""Close the replicas of this node that lie in the range of what this one will be."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A committed entry that must still be written. `entry` is ours, `decoded` anybody's; neither:
    no command.
    """

    index: int
    term: int
    entry: Entry | None = None
    decoded: Decoded | None = None
    shape: Shape | None = None  # with our own entry, or without


class Replica:
    """See the module. `machine` and `group` are set by whoever opens it, before it is called."""

    machine: PartitionMachine
    group: ConsensusGroup

    def __init__(
        self,
        state: PartitionState,
        timers: Timers,
        on_applied: Callable[[Replica], None],
        room: Room,
        on_fatal: Callable[[BaseException], object],
        syncs: Syncs | None = None,
    ) -> None:
        """`on_applied(self)` is called after every entry: the manager cuts logs. `on_fatal` gets
        what stops this replica outside of the consensus core, which notices the rest. Without
        `syncs` no snapshot can be taken in: a lone voter needs none.
        """
        self.state = state
        self._room = room
        self.log_bytes = 0  # of entries since the manager last looked; the manager sets it back
        self._timers, self._on_applied, self._on_fatal = timers, on_applied, on_fatal
        self._backlog: deque[_Work] = deque()
        self._retry: Handle | None = None
        self._refused: Unavailable | None = None
        self._closed: Unavailable | None = None
        self._closing = False  # on its way into the log
        self._leading = False
        self.damage: Corruption | None = None  # the first that was met; never forgotten
        self.on_damage: Callable[[Replica], object] = lambda _replica: None
        self._returned = 0  # how often it was made to lead all the same
        self._handing: Handle | None = None
        self._heir = -1  # who was asked to lead last
        self._unsettled: Handle | None = None  # until its last entry is given up: it was deposed
        self._stopped = False
        self._syncs = syncs
        self._sources: dict[RangeSource, None] = {}  # snapshots that are being read
        self._sink: RangeSink | None = None  # the snapshot that is being taken in
        self._move: ShardMove | None = None  # to another storage shard
        self._stays = False  # in the shard that it is in
        self.on_installed: Callable[[Replica], object] | None = None
        self.counters = ManagerCounters()
        self.on_role: Callable[[Replica, bool], object] | None = None  # called after the machine
        # How an entry that changes the partition is applied, and what runs after the machine: it
        # is about other replicas, too, so the manager does it.
        self.apply_shape: Callable[[Replica, Shape, int, int], object] = _nobody
        self.absorbs: Absorbs = lambda _replica, _new: ()
        self.on_reshaped: Callable[[Replica, Shape], object] = lambda _replica, _shape: None

    @property
    def descriptor(self) -> PartitionDescriptor:
        return self.state.descriptor

    # ------------------------------------------------------------------ ReplicaPort

    def serving(self) -> bool:
        return self._leading and self.group.can_serve_reads()

    def readable(self) -> bool:
        return not (self._stopped or self.installing or self.damage)

    def leads(self) -> bool:
        return self._leading

    def confirm(self, then: Callable[[], None]) -> None:
        self.group.read_barrier(lambda _index: then())

    def leader_hint(self) -> int | None:
        group = getattr(self, "group", None)
        return None if group is None else group.leader_id

    def refusal(self) -> KvorumError | None:
        if self._refused is None:
            return None
        return Unavailable(
            f"partition {self.descriptor.id} takes no writes now: {self._refused.message}",
            details=self._refused.details,
        )

    def damaged(self, error: Corruption) -> bool:
        """See ReplicaPort; also for whoever reads this replica's rows beside the machine."""
        if self.damage is None and not self._stopped:
            self.damage = error
            self.counters.damaged += 1
            log.error(
                "partition %d: the data of this replica are damaged: %s. It leads no more, and is "
                "rebuilt from a healthy one if there is one",
                *(self.descriptor.id, error.message),
            )
            self.on_damage(self)
            self._hand_over_soon(0)
        return self._leading and self._others_can()

    def _others_can(self) -> bool:
        """Whether another replica might do better. One that leads again and again although it
        hands over finds nobody: all are damaged, or gone.
        """
        status = self.group.status()
        data = set(status.voters) - set(status.witnesses)
        return len(data) > 1 and self._returned < DAMAGED_RETURNS_MAX

    def _hand_over_soon(self, delay_s: float) -> None:
        if self._handing is None and not self._stopped:
            self._handing = self._timers.call_later(delay_s, self._hand_over)

    def _hand_over(self) -> None:
        """Ask the next of the others that answer to lead, until one does."""
        self._handing = None
        if self._stopped or not self._leading or not self._others_can():
            return
        status = self.group.status()
        able = [
            node
            for node, follower in sorted(status.followers.items())
            if node in status.voters
            and node not in status.witnesses
            and follower.responsive
            and not follower.snapshot
        ]
        if able and status.transferring_to is None:
            self._heir = next((node for node in able if node > self._heir), able[0])
            with suppress(RaftError):  # it is tried again
                self.group.transfer(self._heir)
        self._hand_over_soon(_HAND_OVER_S)

    def no_room(self) -> KvorumError | None:
        room = self._room
        if refusal := self._closed or room.refusal:
            return refusal
        return room.of_shards.get(self.descriptor.shard) if room.of_shards else None

    def close_to_writes(self) -> None:
        """No new writes from now on at this node: its table is being dropped. What was evaluated
        before may still be on its way (`PartitionMachine.quiet`). Forgotten at a restart, unless it
        is in the log (`close_for_good`).
        """
        if self._closed is None:
            self._closed = Unavailable(
                f"partition {self.descriptor.id} is removed with its table: it takes no writes"
            )

    def close_for_good(self) -> bool:
        """At the leader, after `close_to_writes`: put it into the log, so that whoever leads
        next is closed before it serves. Whether that is applied; else ask again.
        """
        if self.state.closed:
            return True
        if not self._closing:
            self._closing = True
            key = meta_key(self.descriptor.id, CLOSED)
            self.machine.put_meta(key, seal(key, b""), self._closed_for_good)
        return False

    def _closed_for_good(self, _error: KvorumError | None) -> None:
        self._closing = False  # after an error it is tried again by who asks again

    def propose(self, command: bytes, entry: Entry) -> None:
        self._room.wrote(len(command))
        try:
            self.group.propose(command, entry)
        except EntryTooLarge as error:
            raise TooLarge(
                str(error),
                details={
                    "what": "log entry bytes",
                    "limit": error.entry_bytes_max,
                    "actual": error.entry_bytes,
                },
            ) from error
        except ProposalsFull as error:
            raise Busy(str(error), details={"what": "proposals"}) from error
        except RaftError as error:
            raise NotLeader(str(error), details={"leader": self.leader_hint()}) from error

    def prepare(self, entry: Entry) -> None:
        if entry.batch is None:
            batch = self.state.batch()
            self.state.fill(batch, entry.rows, entry.others, fresh=entry.all_fresh)
            entry.batch = batch

    # ------------------------------------------------------------------ raft.StateMachine

    def applied(self) -> tuple[int, int]:
        return self.state.index, self.state.term

    def apply(self, index: int, term: int, command: Command, token: object | None) -> None:
        """Raises Corruption: the entry is not what was proposed."""
        self.log_bytes += len(command)
        if is_shape(command):
            shape = decode_shape(command, f"partition {self.descriptor.id}, index {index}")
            entry = token if isinstance(token, Entry) else None
            self._do(_Work(index, term, entry=entry, shape=shape))
        elif isinstance(token, Entry):
            self._do(_Work(index, term, entry=token))
        else:
            where = f"partition {self.descriptor.id}, index {index}"
            self._do(_Work(index, term, decoded=decode(command, where)))

    def advance(self, index: int, term: int) -> None:
        self._do(_Work(index, term))

    def dropped(self, tokens: list[object], *, unknown: bool) -> None:
        self.machine.dropped([t for t in tokens if isinstance(t, Entry)], unknown=unknown)

    def role(self, *, leader: bool, term: int) -> None:
        if leader and self._backlog:
            # Serves once everything below its first own entry is visible (`_catch_up`).
            self._backlog.append(_Work(0, 0))
            return
        self._set_role(leader=leader)

    # ------------------------------------------------------------------ snapshots

    @property
    def installing(self) -> bool:
        """The range is being replaced: nothing is applied meanwhile."""
        return self._sink is not None and self._sink.installing

    def snapshot(self) -> SnapshotSource:
        """See StateMachine. Its index lies below what was applied while the state DB refuses."""
        if self._stopped or self.installing:
            raise SnapshotUnavailable(f"partition {self.descriptor.id} does not serve here")
        try:
            source = self.state.source(self._sources.pop, self.damaged)
        except KvorumError as error:
            raise SnapshotUnavailable(error.message) from error
        self._sources[source] = None
        self.counters.snapshots_made += 1
        return source

    def restore(self, snapshot: SnapshotId) -> SnapshotSink:
        """See StateMachine."""
        if self._syncs is None or self._stopped or self.installing:
            raise SnapshotUnavailable(f"partition {self.descriptor.id} takes no snapshot now")
        assert not self._leading, "a leader has everything"
        if self._sink is not None:
            self._sink.stop()
        try:
            self.stay()
        except Unavailable as error:
            raise SnapshotUnavailable(error.message) from error
        self._sink = RangeSink(
            self.state.engine,
            self.descriptor,
            snapshot,
            timers=self._timers,
            syncs=self._syncs,
            on_installed=self._installed,
            on_fatal=self._on_fatal,
            make_room=lambda new: (self.descriptor, self.absorbs(self, new)),
        )
        return self._sink

    def _installed(self, installer: Installer) -> None:
        assert installer.head is not None
        before = self.descriptor
        self.state.replaced(installer.head, installer.locks, installer.guards)
        if self.descriptor != before:
            self.machine.reshaped()
        self._sink = None
        self.log_bytes = 0
        covered: list[Entry] = []
        while self._backlog and self._backlog[0].index <= self.state.index:
            work = self._backlog.popleft()
            if work.entry is not None:
                covered.append(work.entry)
        if covered:  # they are part of the snapshot, but what their commands saw is not known
            self.machine.dropped(covered, unknown=True)
        self._refused = None
        if self.on_installed is not None:
            self.on_installed(self)
        self._catch_up()

    def forget_covered_staging(self) -> None:
        """The log went beyond a snapshot that was being taken in: its staging is of no use."""
        sink = self._sink
        if sink is not None and not sink.installing and sink.snapshot.index <= self.state.index:
            self._sink = None
            sink.discard()

    # ------------------------------------------------------------------ storage shards

    @property
    def moving(self) -> bool:
        """Its rows are on their way to another storage shard."""
        return self._move is not None

    def move_to(self, shard: str) -> None:
        """Let its rows lie there, in a while. Nothing happens for now where it stands still or is
        replaced: ask again. Raises Unavailable, TooLarge.
        """
        if self._move is not None and self._move.shard != shard:
            self._move.stop()
        fixed = self._stays or self._stopped or self._sink is not None
        if self.descriptor.shard == shard or self._move or fixed or self.state.frozen is not None:
            return
        self._move = ShardMove(self.state, shard, self._timers, self._moved)

    def stay(self, *, for_good: bool = False) -> None:
        """Give up a move that is under way. Raises Unavailable: try again."""
        self._stays = self._stays or for_good
        if self._move is not None:
            self._move.stop()

    def _moved(self, move: ShardMove) -> None:
        self._move = None
        if self.descriptor.shard == move.shard:
            for work in self._backlog:  # prepared for where the rows were
                if work.entry is not None:
                    work.entry.batch = None
            self.machine.rows_moved()
            self.counters.shards_changed += 1

    # ------------------------------------------------------------------ applying

    def _do(self, work: _Work) -> None:
        self._backlog.append(work)
        if len(self._backlog) == 1:
            self._catch_up()

    def _catch_up(self) -> None:
        self._retry = None
        while self._backlog and not self._stopped and not self.installing:
            work = self._backlog[0]
            if not work.index:
                self._backlog.popleft()
                self._set_role(leader=self.group.leader)
                continue
            try:
                self._write(work)
            except Unavailable as error:
                self._refused = error
                self._retry = self._timers.call_later(RETRY_S, self._try_again)
                return
            self._refused = None
            self._backlog.popleft()
            if work.entry is not None:
                self.machine.applied(work.entry)
            elif self.machine.awaits_log:
                self.machine.look_again()
            if work.shape is not None:
                self.machine.reshaped()
                self.on_reshaped(self, work.shape)
            self._on_applied(self)

    def _try_again(self) -> None:
        """The timer's door to `_catch_up`: nobody above it would stop the replica, as the consensus
        core does for what `apply` raises.
        """
        try:
            self._catch_up()
        except Exception as error:  # noqa: BLE001 - fail-stop: whatever it is, later entries need this one
            self.stop()
            self._on_fatal(error)

    def _write(self, work: _Work) -> None:
        state, entry, decoded = self.state, work.entry, work.decoded
        if work.shape is not None:
            self.stay()
            self.apply_shape(self, work.shape, work.index, work.term)
            return
        if entry is not None:
            self.prepare(entry)
            batch, entry.batch = entry.batch, None
            noted = self._choose(entry.rows, entry.live_bytes)
            state.write(
                batch,
                index=work.index,
                term=work.term,
                top_ts=entry.top_ts,
                safepoint=entry.safepoint,
                old_versions=entry.old_versions,
                live_bytes=entry.live_bytes,
                noted=noted,
            )
            state.locks.apply(entry.gone.values(), entry.locks, entry.laid.values())
            for at, guard in entry.guards.items():
                state.guards.set(at, guard)
            if self._move is not None:
                self._move.follow(entry.rows, entry.others)
            return
        batch = state.batch()
        if decoded is None:
            state.write(batch, index=work.index, term=work.term)
            return
        state.fill(batch, decoded.rows, decoded.others)
        noted = self._choose(decoded.rows, decoded.live_bytes)
        state.write(
            batch,
            index=work.index,
            term=work.term,
            top_ts=decoded.top_ts,
            safepoint=decoded.safepoint,
            old_versions=decoded.old_versions,
            live_bytes=decoded.live_bytes,
            noted=noted,
        )
        state.set_locks(decoded.others)
        if self._move is not None:
            self._move.follow(decoded.rows, decoded.others)

    def _choose(self, rows: Sequence[Row], grown: int) -> Noted:
        """Samples of what an entry writes, from what it replaces: if that cannot be read, the entry
        is applied all the same.
        """
        try:
            return self.state.choose(rows, grown)
        except Corruption as error:
            self.damaged(error)
            return self.state.sizes.choose(rows, grown, lambda _key: None)

    def _set_role(self, *, leader: bool) -> None:
        if leader != self._leading:
            self._leading = leader
            if leader and self.damage is not None:
                self._returned += 1
                self._hand_over_soon(0)
            if leader and self.state.closed:
                self.close_to_writes()
            if self._unsettled is not None:
                self._unsettled.cancel()
                self._unsettled = None
            if not leader and not self._stopped:
                give_up_s = UNSETTLED_MS / 1000
                self._unsettled = self._timers.call_later(give_up_s, self.machine.give_up)
            self.machine.role(leader=leader)
            if self.on_role is not None:
                self.on_role(self, leader)

    def stop(self) -> None:
        """Refuse everything that waits here; write nothing any more. The group is stopped by its
        host.
        """
        self._stopped = True
        for timer in (self._retry, self._unsettled, self._handing):
            if timer is not None:
                timer.cancel()
        if self._sink is not None:
            self._sink.stop()
        if self._move is not None:
            self._move.leave()
        for source in list(self._sources):
            source.close()
        entries = [work.entry for work in self._backlog if work.entry is not None]
        self._backlog.clear()
        if entries:
            self.machine.dropped(entries, unknown=True)
        self._set_role(leader=False)


def _nobody(replica: Replica, _shape: Shape, index: int, _term: int) -> None:
    raise AssertionError(f"partition {replica.descriptor.id}, index {index}: no manager")
