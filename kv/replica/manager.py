"""The node's partitions: create, open at the start, drop, find; and cutting their logs.

Durability of a partition's existence: its descriptor is synced before its group may take a command,
and removing it leaves a marker first, so a crash in between leaves the whole partition or none of
it:

    create   descriptor → sync → group                  (again: nothing happens, or the rest of it)
    drop     marker → sync → group and log gone → rows and descriptor in one batch → sync
             … log's end durable → marker gone          (a crash before: done again at the start)

Its rows in gcq are left to the collector of whoever owns those keys next; each looks at what its
key holds now. At the start, before any group is opened, installations of snapshots that a crash
interrupted are done again (kv.replica.install), and staging that nobody waits for goes.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Final

from kv.base.checksum import seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, InvalidArgument, KvorumError, Unavailable
from kv.base.ids import META_PARTITION, PartitionId
from kv.base.intents import Abandoned, TxnId, txn_id
from kv.base.keys import from_u64
from kv.base.limits import GC_RETENTION_MS_DEFAULT, LOG_KEEP_BYTES, LOG_KEEP_ENTRIES
from kv.base.members import Alone, Members
from kv.base.ports import Timers
from kv.base.timestamps import physical_ms
from kv.base.waits import Waits
from kv.feed.recent import Budget
from kv.mvcc.find import find
from kv.mvcc.guards import Guard
from kv.mvcc.records import Lock
from kv.partition.counters import PartitionCounters
from kv.partition.machine import PartitionMachine
from kv.partition.ports import Timestamps
from kv.partition.requests import first_key
from kv.partition.scheduler import Scheduler
from kv.partition.shapes import BORN
from kv.replica.absorbing import RECORDS
from kv.replica.births import Births
from kv.replica.counters import ManagerCounters
from kv.replica.disk_room import Room
from kv.replica.install import resume
from kv.replica.logs import InThread, LogCutter
from kv.replica.metakeys import (
    ABSORBED,
    DESCRIPTOR,
    DROPPING,
    LOST,
    body,
    decode_descriptor,
    encode_descriptor,
    meta_key,
)
from kv.replica.ranges import delete_slices
from kv.replica.replica import RETRY_S, Replica
from kv.replica.shard_move import forget
from kv.replica.staging import clear
from kv.replica.state import PartitionState
from kv.replica.syncs import Syncs
from kv.storage.engine import Engine
from raft.api import Syncer
from raft.errors import BadConfig, LogCorrupt, LogHole
from raft.host import RaftHost
from raft.replica import Replica as Group
from raft.rules.membership import membership

log = logging.getLogger(__name__)

_TABLE_BYTES: Final = 4  # of a key
OLDEST: Final = 1
"""Below every timestamp that was ever handed out."""


class ReplicaManager:
    """See the module. All on the loop."""

    def __init__(
        self,
        engine: Engine,
        raft_host: RaftHost,
        *,
        timestamps: Timestamps,
        scheduler: Scheduler,
        timers: Timers,
        in_thread: InThread,
        on_fatal: Callable[[BaseException], object],
        log_keep_entries: int = LOG_KEEP_ENTRIES,
        log_keep_bytes: int = LOG_KEEP_BYTES,
        room: Room | None = None,
        members: Members | None = None,
        syncer: Syncer | None = None,
        witness: bool = False,
        retention_ms: int = GC_RETENTION_MS_DEFAULT,
        waits: Waits | None = None,
    ) -> None:
        """`room`: without one, writes are admitted whatever the disk has left. `members`: for
        refusals that say where the leader is. `syncer`: of the state DB, beside the loop; without
        one no snapshot of another node is taken in. `witness`: this node votes in its partitions
        and keeps nothing of them: their replicas here stay empty, and only know who leads. `waits`:
        where what waits here is listed. `retention_ms`: how long old versions are kept, for
        refusals.
        """
        self.counters = ManagerCounters()
        self.partition_counters = PartitionCounters()
        self._engine, self._host, self._witness = engine, raft_host, witness
        self._timestamps, self._scheduler, self._timers = timestamps, scheduler, timers
        self._in_thread, self._on_fatal = in_thread, on_fatal
        self._retention_ms = retention_ms
        self.logs = LogCutter(
            engine,
            in_thread,
            on_fatal,
            counters=self.counters,
            keep_entries=log_keep_entries,
            keep_bytes=log_keep_bytes,
        )
        self._syncs = None if syncer is None else Syncs(syncer, on_fatal)
        self._room = room or Room(())
        self._members = members or Alone()
        self.waits = waits or Waits(0, timers.call_later)
        self._feed_budget = Budget()
        self._replicas: dict[int, Replica] = {}  # by the ids of their partitions
        self._starts: list[bytes] = []  # of the open partitions, in order …
        self._by_start: list[Replica] = []  # … and their replicas
        self._unremoved: dict[PartitionId, PartitionDescriptor] = {}  # a drop that was interrupted
        self._dropping: set[PartitionId] = set()
        # What cannot be opened, and why. `rebuilds`: others have copies, so that such a replica is
        # none of the node's failure; set it before `open_all`.
        self._lost: dict[PartitionId, tuple[PartitionDescriptor, str]] = {}
        self.rebuilds = False
        self.births = Births(self, raft_host.node_id, timers, self._durably, on_fatal)
        # Called at every gain and loss of a leadership at this node; set it before `open_all`.
        self.on_role: Callable[[Replica, bool], object] | None = None
        self.on_damage: Callable[[Replica], object] = lambda _replica: None

    # ------------------------------------------------------------------ looking up

    def by_id(self, partition: int) -> PartitionMachine | None:
        replica = self._replicas.get(partition)
        return None if replica is None else replica.machine

    def replica(self, partition: int) -> Replica | None:
        return self._replicas.get(partition)

    def here(self, partition: PartitionId) -> PartitionDescriptor | None:
        """What this node has of it, also if it is removed right now."""
        replica = self._replicas.get(partition)
        if replica is not None:
            return replica.descriptor
        return (
            self._lost[partition][0] if partition in self._lost else self._unremoved.get(partition)
        )

    def leader_of(self, partition: int) -> int | None:
        """The node that leads it, as far as this one knows."""
        replica = self._replicas.get(partition)
        return None if replica is None else replica.leader_hint()

    def covering(self, key: bytes) -> PartitionDescriptor | None:
        """The partition of this node that holds the key."""
        at = bisect_right(self._starts, key) - 1
        if at >= 0 and (descriptor := self._by_start[at].descriptor).covers(key):
            return descriptor
        return self.births.covering(key)

    def descriptors(self) -> list[PartitionDescriptor]:
        """In key order; also of those that cannot be opened."""
        found = [replica.descriptor for replica in self._by_start]
        if not self._lost:
            return found
        return sorted([*found, *(d for d, _ in self._lost.values())], key=lambda d: d.start)

    def frozen(self) -> set[PartitionId]:
        """Those that stand still, to be merged into the one below."""
        return {r.descriptor.id for r in self._by_start if r.state.frozen is not None}

    def replicas(self) -> list[Replica]:
        """In key order."""
        return list(self._by_start)

    def find_txn(self, start_ts: int) -> bytes | None:
        """The anchor of a transaction whose record is in one of this node's partitions, applied or
        in flight. None means nothing for partitions that are not `led` here: what was committed
        there may not be applied here yet.
        """
        for replica in self._by_start:
            anchor = replica.machine.find_txn(start_ts)
            if anchor is not None:
                return anchor
        for replica in self._by_start[:1]:  # gcq is one for the node
            anchor = find(replica.machine.view, start_ts)
            if anchor is not None and self.covering(anchor) is not None:
                return anchor
        return None

    def damage(self) -> dict[PartitionId, str]:
        """What is damaged here, and how it was found."""
        lost = {id_: why for id_, (_, why) in self._lost.items()}
        met = {r.descriptor.id: r.damage.message for r in self._by_start if r.damage is not None}
        return lost | met

    def lose(self, descriptor: PartitionDescriptor, why: str) -> None:
        """Do not open this replica, now or at a later start: what it has acknowledged, or whom it
        voted for, is not known for sure. Durable with the next sync.
        """
        self._forget(descriptor.id)
        key = meta_key(descriptor.id, LOST)
        batch = self._engine.batch()
        batch.put(key, seal(key, why.encode()), self._engine.family("meta"))
        self._engine.write(batch)
        self._lost[descriptor.id] = descriptor, why
        self.counters.damaged += 1
        log.error(
            "partition %d: this replica cannot be opened: %s. It takes no part in anything, and is "
            "rebuilt from a healthy one",
            *(descriptor.id, why),
        )

    def lose_all(self, why: str) -> None:
        """Instead of `open_all`, and before it: the log of this node is gone."""
        for key, record in self._engine.scan("meta", b"r", b"s"):
            if len(key) == 10 and key[9:] == DESCRIPTOR:
                self.lose(decode_descriptor(key, record), why)

    def led(self) -> tuple[list[int], list[int]]:
        """The ids of the partitions that this node leads and serves now, and of its others."""
        led: list[int] = []
        others: list[int] = []
        for replica in self._by_start:
            (led if replica.serving() else others).append(replica.descriptor.id)
        return led, others + list(self.births.coming)

    def oldest_lock(self) -> int | None:
        """The smallest start_ts of any intent or guard here: bounds the `txn_floor` of the
        collector (kv/mvcc/gc.py).
        OLDEST while a replica cannot know its intents: it is being replaced, or hears no leader.
        """
        if self.births.coming or any(
            replica.installing or replica.leader_hint() is None for replica in self._by_start
        ):
            return OLDEST
        states = [replica.state for replica in self._by_start]
        found = [oldest for s in states for oldest in (s.locks.oldest(), s.guards.oldest())]
        return min((ts for ts in found if ts is not None), default=None)

    def abandoned(self, now_ms: int, looks_max: int) -> list[Abandoned]:
        """Intents and guards older than their time to live, among about `looks_max` of this node's:
        those that were not looked at for longest.
        """
        tables = [
            (r.state.locks, r.state.guards)
            for r in self._by_start
            # in this order: to ask whether it serves keeps a group from falling asleep
            if (r.state.locks or r.state.guards.by_at) and r.serving()
        ]
        found: list[Abandoned] = []
        for locks, guards in tables:
            looks = max(2, looks_max // len(tables))  # a chunk and a single key, at least
            here: dict[TxnId, Abandoned] = {}
            met: dict[tuple[bytes, int], Lock | Guard] = {}
            met.update(((key, lock.start_ts), lock) for key, lock in locks.turn(looks))
            met.update(((one.start, one.start_ts), one) for one in guards.turn(looks))
            for (key, start_ts), one in met.items():
                if now_ms - physical_ms(start_ts) > one.ttl_ms:
                    new = Abandoned(start_ts, one.anchor, one.ttl_ms, [], one.user)
                    here.setdefault(txn_id(start_ts, one.user), new).keys.append(key)
            found += here.values()
        return found

    # ------------------------------------------------------------------ creating and opening

    async def create(self, descriptor: PartitionDescriptor) -> None:
        """Make and open a partition; durable when it returns. One that exists with the same id
        stays as it is; if it lies in another storage shard, it begins to move to this one.

        A founder may find itself here already without members: its row is in the map before its
        nodes are told to found it, and this node has read the map in between. Such a replica knows
        nothing, and waits for a leader that there would never be: it begins as a founder.

        Raises InvalidArgument if its range overlaps another partition of this node.
        """
        while (replica := self._replicas.get(descriptor.id)) is not None:
            if not self._founds(replica, descriptor):
                self._move(replica, descriptor.shard)
                return
            await self.drop(descriptor.id)
            await self.synced()  # by then its log is gone, too, or it is tried again
        here = (self.births.coming, self._lost)
        if any(descriptor.id in known for known in here):
            return
        if descriptor.id in self._dropping:
            raise Unavailable(
                f"partition {descriptor.id} is still being removed from this node; try again soon"
            )
        self._check_overlap(descriptor)
        self._engine.shard(descriptor.shard)  # made before anything is written, or refused
        try:
            membership(0, descriptor.voters, descriptor.learners, descriptor.witnesses)
        except BadConfig as error:
            raise InvalidArgument(f"partition {descriptor.id}: {error}") from error
        key = meta_key(descriptor.id, DESCRIPTOR)
        stored = self._engine.getter("meta")(key)
        if stored is None:
            batch = self._engine.batch()
            batch.put(key, encode_descriptor(key, descriptor), self._engine.family("meta"))
            self._engine.write(batch)
        await self._in_thread(self._engine.sync)
        if descriptor.id in self._replicas:  # two callers may wait for the sync
            await self.create(descriptor)
        else:
            begins = descriptor if stored is None else decode_descriptor(key, stored)
            self._open_or_lose(begins, fresh=stored is None)

    def _founds(self, replica: Replica, descriptor: PartitionDescriptor) -> bool:
        """Whether this is the order to found what is here without members, and has heard nothing:
        orders to found come before anybody may write to the partition.
        """
        if descriptor.id == META_PARTITION or self._host.node_id not in descriptor.voters:
            return False
        known = replica.group.status()
        return not (known.voters or known.term or known.last_index)

    def _move(self, replica: Replica, shard: str) -> None:
        above = self._by_start.index(replica) + 1
        if above < len(self._by_start) and self._by_start[above].state.frozen is not None:
            return  # it is to be taken in, and must lie where this one does
        replica.move_to(shard)

    def alike(self, partition: int) -> bool:
        """Whether a partition lies in the storage shard in which the one below it, of the same
        table, lies here, and neither of them is moving: then they may become one.
        """
        replica = self._replicas[partition]
        at = self._by_start.index(replica)
        below = self._by_start[at - 1] if at else replica
        if below.descriptor.start[:_TABLE_BYTES] != replica.descriptor.start[:_TABLE_BYTES]:
            return True
        same = below.descriptor.shard == replica.descriptor.shard
        return same and not below.moving and not replica.moving

    def _open_or_lose(self, descriptor: PartitionDescriptor, *, fresh: bool = False) -> None:
        try:
            self._open(descriptor, fresh=fresh)
        except Corruption as error:
            if not self.rebuilds:
                raise
            self.lose(descriptor, error.message)

    def _check_overlap(self, new: PartitionDescriptor) -> None:
        if self._witness:
            return  # there is nothing of them here that could meet
        coming = [state.descriptor for state in self.births.coming.values()]
        for old in [*self.descriptors(), *self._unremoved.values(), *coming]:
            if (not old.end or new.start < old.end) and (not new.end or old.start < new.end):
                raise InvalidArgument(
                    f"partition {new.id} [{new.start[:32]!r}, {new.end[:32]!r}) overlaps partition "
                    f"{old.id} [{old.start[:32]!r}, {old.end[:32]!r}); drop that one first"
                )

    async def open_all(self) -> None:
        """Finish drops and installations that a crash interrupted, then open every stored
        partition. Raises Corruption.
        """
        found: dict[bytes, list[PartitionDescriptor]] = {DESCRIPTOR: [], DROPPING: [], ABSORBED: []}
        lost: dict[int, str] = {}
        for key, record in self._engine.scan("meta", b"r", b"s"):
            if len(key) == 10 and key[9:] == LOST:
                lost[from_u64(key[1:9])] = body(key, record).decode()
            elif len(key) == 10 and key[9:] in found:
                found[key[9:]].append(decode_descriptor(key, record))
        stored, doomed = found[DESCRIPTOR], found[DROPPING]
        if found[ABSORBED]:
            await self._in_thread(self._engine.sync)
        for descriptor in found[ABSORBED]:
            self.absorbed(descriptor)
        dropping = {descriptor.id for descriptor in doomed}
        for descriptor in doomed:
            await self._remove(descriptor)
        stored = [descriptor for descriptor in stored if descriptor.id not in dropping]
        self._lost = {d.id: (d, lost[d.id]) for d in stored if d.id in lost}
        stored = [descriptor for descriptor in stored if descriptor.id not in lost]
        batch = self._engine.batch()
        for descriptor in stored:
            forget(batch, self._engine, descriptor)
        self._engine.write(batch)
        lost_ones = [descriptor for descriptor, _ in self._lost.values()]
        self._engine.keep_shards({d.shard for d in (*stored, *lost_ones)})
        if resume(self._engine, stored):
            await self._in_thread(self._engine.sync)
        for descriptor in stored:
            self._open_or_lose(descriptor)

    def open_made(self, state: PartitionState) -> Replica:
        """kv.replica.births.Manager."""
        return self._open(state.descriptor, fresh=True, state=state)

    def _open(
        self,
        descriptor: PartitionDescriptor,
        *,
        fresh: bool = False,
        state: PartitionState | None = None,
    ) -> Replica:
        replica = Replica(
            state or PartitionState(self._engine, descriptor, self._retention_ms),
            self._timers,
            self._applied,
            self._room,
            self._on_fatal,
            self._syncs,
        )
        replica.on_installed = self._installed
        replica.counters = self.counters
        replica.on_role = self.on_role
        replica.on_damage = lambda replica: self.on_damage(replica)
        births = self.births
        replica.apply_shape, replica.on_reshaped = births.apply, births.machine_knows
        replica.absorbs = births.absorbs
        replica.machine = PartitionMachine(
            descriptor,
            replica,
            timestamps=self._timestamps,
            scheduler=self._scheduler,
            counters=self.partition_counters,
            members=self._members,
            waits=self.waits,
            timers=self._timers,
            feed_budget=self._feed_budget,
        )
        replica.machine.covering = self._covering_request
        born = (replica.state.index, replica.state.term) == BORN
        self._host.create_group(
            *(descriptor.id, descriptor.voters, descriptor.learners, descriptor.witnesses),
            after=BORN if born else (0, 0),
        )
        self.waits.add(descriptor.id, replica.machine.waits)
        self._replicas[descriptor.id] = replica
        at = bisect_right(self._starts, descriptor.start)
        self._starts.insert(at, descriptor.start)
        self._by_start.insert(at, replica)
        try:
            replica.group = group = self._open_group(replica, fresh=fresh)
        except (LogCorrupt, LogHole) as error:
            raise Corruption(
                f"partition {descriptor.id} cannot be opened: {error}. In a cluster: decommission "
                "this node, and start a new one on an empty directory with --join",
                details={"partition": descriptor.id, "index": error.index, "family": "log"},
            ) from error
        self.logs.opened(replica, group.recovery.first_index)
        replica.log_bytes = group.recovery.stored_bytes
        self.counters.opened += 1
        return replica

    def _covering_request(self, request: list[object]) -> PartitionDescriptor | None:
        key = first_key(request)
        return None if key is None else self.covering(key)

    def _durably(self, then: Callable[[], None]) -> None:
        if self._syncs is None:  # nobody else could have a copy, and nothing is promised to others
            then()
        else:
            self._syncs.after(then)

    def _open_group(self, replica: Replica, *, fresh: bool) -> Group:
        id_ = replica.descriptor.id
        if self._witness:
            return self._host.open_witness(id_)
        return self._host.open_group(
            id_,
            replica,
            # The oracle, which follows the meta partition, needs its lease at any time.
            hibernates=id_ != META_PARTITION,
            # Who has replicas of the others is in the map: nobody makes them anew by mistake.
            founded_by_all=id_ == META_PARTITION,
            fresh=fresh,
            # It learns the members by a snapshot; and where the group's log began with another
            # range, entries would not do.
            blank=not replica.descriptor.voters,
        )

    async def synced(self) -> None:
        """Everything applied so far is durable when it returns."""
        await self._in_thread(self._engine.sync)

    # ------------------------------------------------------------------ dropping

    async def drop(self, partition: PartitionId) -> None:
        """Stop a partition and remove everything of it; durable when it returns. Nothing happens if
        there is none.
        """
        replica = self._replicas.get(partition)
        if partition in self.births.coming:
            raise Unavailable(f"partition {partition} is being made here; try again soon")
        if replica is None and partition not in self._lost:
            if partition in self._unremoved:
                await self._remove(self._unremoved[partition])
            return
        if replica is not None:
            replica.stay(for_good=True)
        key = meta_key(partition, DROPPING)
        batch = self._engine.batch()
        descriptor = self._lost[partition][0] if replica is None else replica.descriptor
        batch.put(key, encode_descriptor(key, descriptor), self._engine.family("meta"))
        self._engine.write(batch)
        await self._in_thread(self._engine.sync)
        if replica is not None and self._forget(partition) is not None:
            replica.stop()  # what waits for the state DB to take it must not be written any more
            await self._remove(replica.descriptor)
        elif self._lost.pop(partition, None) is not None:
            await self._remove(descriptor)

    def close_replica(self, partition: PartitionId) -> None:
        """kv.replica.births.Manager."""
        replica = self._forget(partition)
        if replica is not None:
            replica.machine.retire()
            replica.stop()
            self._host.close_group(partition)

    def absorbed(self, descriptor: PartitionDescriptor) -> None:
        """kv.replica.births.Manager. The marker goes when the log's end is durable."""
        self._lost.pop(descriptor.id, None)
        self._host.drop_group(descriptor.id)
        self._host.barrier(partial(self._unmark, descriptor.id, ABSORBED))

    def _unmark(self, partition: PartitionId, marker: bytes) -> None:
        batch = self._engine.batch()
        batch.delete(meta_key(partition, marker), self._engine.family("meta"))
        try:
            self._engine.write(batch)
        except Unavailable:  # a moment's stall; a start would finish it, too
            self._timers.call_later(RETRY_S, self._unmark, partition, marker)

    def _forget(self, partition: PartitionId) -> Replica | None:
        replica = self._replicas.pop(partition, None)
        if replica is not None:
            at = self._by_start.index(replica)
            del self._starts[at], self._by_start[at]
            self.waits.remove(partition)
            self.logs.forget(partition)
        return replica

    async def _remove(self, descriptor: PartitionDescriptor) -> None:
        """Behind the marker: the log, then rows and records in one batch. The marker stays until
        the log's end is durable: a log that came back would be replayed into a new partition of
        this id.
        """
        self._dropping.add(descriptor.id)
        self._unremoved[descriptor.id] = descriptor
        self._host.drop_group(descriptor.id)
        engine = self._engine
        batch = engine.batch()
        delete_slices(batch, engine, descriptor)
        forget(batch, engine, descriptor)
        clear(engine, batch, descriptor.id)
        for kind in RECORDS:
            batch.delete(meta_key(descriptor.id, kind), engine.family("meta"))
        engine.write(batch)
        await self._in_thread(engine.sync)
        self._unremoved.pop(descriptor.id, None)
        self._host.barrier(partial(self._removed, descriptor.id))

    def _removed(self, partition: PartitionId) -> None:
        """The log of a dropped partition is durably gone."""
        batch = self._engine.batch()
        batch.delete(meta_key(partition, DROPPING), self._engine.family("meta"))
        try:
            self._engine.write(batch)
        except Unavailable:  # a moment's stall; a start would finish it, too
            self._timers.call_later(RETRY_S, self._removed, partition)
            return
        self._dropping.discard(partition)
        self.counters.dropped += 1

    # ------------------------------------------------------------------ logs

    def _applied(self, replica: Replica) -> None:
        self.logs.applied(replica)

    def _installed(self, replica: Replica) -> None:
        """Its log begins anew after the snapshot."""
        self.logs.opened(replica, replica.state.index + 1)
        self.births.installed(replica.descriptor.id)
        self.counters.snapshots_installed += 1

    async def run(self) -> None:
        """Cut logs whenever one has grown, until cancelled."""
        await self.logs.run(self.replicas)

    async def truncate(self) -> None:
        """Cut every log down to what is not durable in the state DB, and LOG_KEEP_ENTRIES more."""
        await self.logs.truncate(self.replicas())

    def dismiss_waiters(self, error: KvorumError) -> None:
        """Answer the writes that wait for other transactions: the node stops."""
        for replica in self._by_start:
            replica.machine.waits.dismiss(error)

    def let_go(self) -> None:
        """After `close`, and that of the host: before the engine is closed."""
        for replica in self._by_start:
            replica.state.let_go()

    def close(self) -> None:
        """Answer everybody who waits: not executed, or unknown. The host and the engine are closed
        by their owner.
        """
        self.births.close()
        for replica in self._by_start:
            replica.stop()
        if self._syncs is not None:
            self._syncs.close()
