"""The key-value part of a node: two databases, consensus, partitions, the oracle, and clients of
its own.

    state DB ── partitions ── dispatcher ── native clients, the node's own client
    log DB ──── raft host ──┘     └── oracle (leads with the meta partition)
                   └── transport to the other nodes (kvorum/cluster/cluster.py)

Opening order: state DB, log DB, identity, groups (replayed from the log), meta partition of the
first start, peers. Nothing is waited for: who leads what is found out among the nodes, and
`not_ready` says what is still missing. Closing is the reverse: leaderships are handed over, no new
requests, what is under way gets its answer, a last sync, then the databases.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from kv.base.config import HYBRID, NodeConfig
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, KvorumError, NotLeader, Unavailable
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.internal_errors import Faults
from kv.base.keys import META_RANGE
from kv.base.limits import CLOCK_HANDOVER_MS
from kv.base.methods import PLACES, SPLIT_POINT, TSO
from kv.base.ports import Handle
from kv.base.timestamps import physical_ms
from kv.base.waits import Held, Waits
from kv.client.replicas import Replicas, Sites
from kv.partition.machine import PartitionMachine
from kv.partition.scheduler import Scheduler
from kv.replica.cutting import SplitPoint
from kv.replica.disk_room import Room
from kv.replica.intents_held import Owners, Waited, held
from kv.replica.manager import ReplicaManager
from kv.replica.replica import Replica
from kv.server.dispatcher import STOPPING, Dispatcher
from kv.storage.engine import LOG_FAMILIES, STATE_FAMILIES, Engine
from kv.storage.log import LogAdapter
from kvorum.api.verbs import (
    BEAT,
    BEAT_NOW,
    BOOT_BYTES,
    LINKS,
    REFUSE_WAIT,
    STANDING,
    WAITS,
    WALL_CLOCK,
)
from kvorum.cluster import damage, dispensable, handover, joining, replica_report, replica_status
from kvorum.cluster.clocks import ClockWatch
from kvorum.cluster.cluster import CONSENSUS, Cluster
from kvorum.cluster.damage import MasterDamage
from kvorum.cluster.heartbeat import Heart, Pulse, leader_of_meta
from kvorum.cluster.members import placed
from kvorum.cluster.peers import KnownPeers
from kvorum.cluster.replica_report import Seldom, disk_figures
from kvorum.local import identity as identities
from kvorum.local.identity import Identity
from kvorum.local.measure import Histogram, TimedSyncer
from kvorum.local.ports import Ports, Syncer
from kvorum.storage import quarantine
from kvorum.storage.cluster_waits import Everywhere, WaitMethods
from kvorum.storage.health import Health
from kvorum.storage.retention import RetentionMethods
from procedures.master.map.partitions import Place
from procedures.master.map.reports import Picture
from procedures.verbs import REPORTS
from raft.errors import ApplyFailed, LogCorrupt
from raft.host import RaftHost
from tso.client import TsoClient
from tso.detour import detour
from tso.hybrid import HybridClock
from tso.hybrid_node import HybridMaster, HybridTso
from tso.node import NodeTso
from tso.safepoint import SafepointService
from tso.service import Done, TsoService, bound_of, bound_record
from txn.client import TxnClient
from txn.intents.lock_waits import WaitCare

_TSO_KEY: Final = b"tso"
_LEASES_KEY: Final = b"leases"
_LAST_SYNC_S_MAX: Final = 10.0
_CLEAN_S_MAX: Final = 0.5
_ROOM_S: Final = 0.25
_STOPS: Final = "the node stops: what waited there was not executed. Ask another one, or it later"

log = logging.getLogger(__name__)


class Store:
    """See the module. `open` once, then `close` once."""

    def __init__(self, ports: Ports, on_fatal: Callable[[BaseException], None]) -> None:
        self.ports = ports
        self.failed = False  # no promise can be kept any more …
        self.mendable = False  # … until the next start, which puts aside what is damaged
        self._tell_fatal = on_fatal
        self._engines: list[Engine] = []
        self._syncer: Syncer | None = None
        self._state_syncer: Syncer | None = None
        self.sync_taken = Histogram()
        self._truncating: asyncio.Task[None] | None = None
        self._caring: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._on_meta_role: Callable[[bool], object] | None = None
        self._beginning: Handle | None = None
        self._others_have_it = False  # copies of what this node stores
        self._lost_log: str | None = None  # why there is none
        self._data = Path()

    def _on_fatal(self, error: BaseException) -> None:
        if self._others_have_it and isinstance(error, ApplyFailed | LogCorrupt):
            replica = self.manager.replica(error.group_id)
            try:
                if replica is not None and quarantine.damage_of(error) is not None:
                    replica.stop()
                    self.manager.lose(replica.descriptor, f"{error}")
                    self.heart.hurry()
                    return
            except KvorumError as worse:  # the database takes no writes
                error = worse
        self.failed = True
        if self._others_have_it and quarantine.mark(error, self._data):
            self.mendable = True
        self._tell_fatal(error)

    async def open(self, config: NodeConfig) -> None:
        """Open or create everything in `config.data`. Raises InvalidArgument, Corruption,
        Unavailable: nothing stays open.
        """
        try:
            await self._open(config)
        except BaseException:
            await self._let_go()
            raise

    async def _open(self, config: NodeConfig) -> None:
        ports = self.ports
        self._data = config.data
        self.state, log = self._databases(config.data)
        self._log_db = log
        self.identity = await self._identify(config, log)
        self._others_have_it = _has_others(self.state, self.identity)
        self.faults = Faults(self.identity.node, ports.rng.token)
        self.clock = self._hybrid_clock()
        self.cluster = Cluster(ports, config, self.identity, self.state, self.clock)
        known = bool(self.cluster.peers.nodes) or len(self.identity.founders) != 1
        identities.check_list(self.identity, config, knows_others=known)
        self._syncer = TimedSyncer(ports.syncer(log), ports.clock.monotonic, self.sync_taken)
        self.host = RaftHost(
            node_id=self.identity.node,
            log_db=LogAdapter(log),
            syncer=self._syncer,
            timers=ports.timers,
            rng=ports.rng,
            on_fatal=self._on_fatal,
            transport=self.cluster.transport,
            config=CONSENSUS,
        )
        self.tso, self.oracle = self._timestamps(self.clock)
        self.safepoint = SafepointService(
            _LEASES_KEY,
            self.tso,
            ports.timers,
            read=lambda: self.state.getter("meta")(_LEASES_KEY),
            persist=self._persist_leases,
            retention_ms=config.gc_retention_ms,
            not_leader=lambda: self.not_master("snapshots are kept by the meta partition's leader"),
        )
        self.room = Room(self._engines)
        self.waits = Waits(self.identity.node, ports.timers.call_later)
        self.pulse = Pulse(
            *(self.identity.node, self.cluster.calls, ports.timers),
            dead_after_ms=config.dead_after_ms,
            token=lambda: ports.rng.token(BOOT_BYTES),
            serves=self._serves_meta,
            not_master=lambda: self.not_master("beats go to the meta partition's leader"),
        )
        self.pulse.members(self.cluster.peers.nodes)
        self.picture = Picture()
        self.pulse.add(replica_report.SECTION, self.picture)
        self.damage = MasterDamage()
        self.pulse.add(damage.SECTION, self.damage)
        await self._open_partitions(config.gc_retention_ms)
        self.heart = Heart(
            *(self.identity.node, ports.rng.token(BOOT_BYTES), self.cluster.calls),
            *(self._whom_to_tell(leader_of_meta(self.manager.leader_of)), ports.timers),
        )
        self.dispatcher = Dispatcher(
            node_id=self.identity.node,
            partitions=self.manager,
            timers=ports.timers,
            rng=ports.rng,
            members=self.cluster.peers,
            faults=self.faults,
        )
        self.dispatcher.doors = self.manager.births.doors
        self.scheduler.between = self.dispatcher.express.look
        self.dispatcher.register(TSO, self.tso.handle)
        for method, handler in RetentionMethods(self.safepoint).handlers().items():
            self.dispatcher.register(method, handler)
        self.dispatcher.register(LINKS, self.cluster.links)
        self.dispatcher.register(STANDING, self._standing)
        self.dispatcher.register(BEAT, self.pulse.handle)
        self.dispatcher.register(BEAT_NOW, self.heart.asked)
        points = SplitPoint(self.manager, ports.timers)
        self.dispatcher.register(SPLIT_POINT, points.handle)
        self.dispatcher.register(REPORTS, self._reports)
        self.heart.add(damage.SECTION, damage.NodeDamage(self.manager.damage))
        self.manager.on_damage = lambda _replica: self.heart.hurry()
        if not self.identity.witness:
            report = replica_report.ReplicaReport(
                *(self.manager.replicas, ports.timers.monotonic),
                cpu_s=ports.cpu_s,
                disk=Seldom(partial(disk_figures, self.state), ports.timers.monotonic),
                hurry=self.heart.hurry,
                now_ms=ports.clock.now_ms,
            )
            self.heart.add(replica_report.SECTION, report)
        self.waits.owner_of = Owners(self.manager.replicas)
        waits = WaitMethods(self.waits, self._held)
        self.dispatcher.register(WAITS, waits.waits)
        self.dispatcher.register(REFUSE_WAIT, waits.refuse)
        self.dispatcher.placed = self._placed
        self.health = Health(ports.timers.monotonic, self._machines, self.tso.trouble)
        if self.clock is not None:
            self.clocks = ClockWatch(
                *(self.clock, ports.clock, self.cluster.calls),
                *(lambda: self.cluster.peers.nodes, self.hand_over),
            )
            self.dispatcher.register(WALL_CLOCK, self.clocks.answer)
            self._comparing = asyncio.get_running_loop().create_task(
                self.clocks.run(), name="clocks"
            )
            self._comparing.add_done_callback(self._care_ended)
        self.cluster.connect(self.host, self.dispatcher)
        self.kv = self.cluster.kv
        self.txn = TxnClient(
            *(self.kv, self.oracle, ports.clock, ports.rng, ports.timers), loop_s=ports.loop_s
        )
        here = (*config.site, config.server or config.address.rpartition(":")[0])
        self.sites = Sites(here, ports.timers, ports.rng, node=self.identity.node)
        self.replicas = Replicas(self.kv, self.sites, ports.timers)
        self.txn.read_past_by(self.replicas)
        self.dispatcher.register(PLACES, self.sites.places)
        others = Everywhere(self.waits, self.cluster.calls, lambda: self.cluster.peers.nodes)
        self.wait_care = WaitCare(self.waits, self.txn.resolver, others, ports.timers)
        loop = asyncio.get_running_loop()
        self._truncating = loop.create_task(self.manager.run(), name="logs")
        self._caring = loop.create_task(self.wait_care.run(), name="waits")
        self._caring.add_done_callback(self._care_ended)
        await self.cluster.start()

    def _hybrid_clock(self) -> HybridClock | None:
        """Of a cluster that has them. Raises InvalidArgument: its ids are used up."""
        if self.identity.clock != HYBRID:
            return None
        return HybridClock(self.ports.clock, self.identity.node)

    def _timestamps(
        self, clock: HybridClock | None
    ) -> tuple[TsoService | HybridMaster, NodeTso | HybridTso]:
        """Of the meta partition's leader, and of this node for its clients and partitions."""
        ports = self.ports

        def not_leader() -> NotLeader:
            return self.not_master("timestamps come from the meta partition's leader")

        self.detour = detour(self.cluster.oracle, ports.timers, self.cluster.peers.others)
        if clock is not None:
            master = HybridMaster(clock, lease=self._serves_meta, not_leader=not_leader)
            return master, HybridTso(clock, ports.timers, ports.rng)
        service = TsoService(
            ports.clock,
            ports.timers,
            read_bound=self._read_bound,
            persist=self._persist_bound,
            lease=self._serves_meta,
            not_leader=not_leader,
        )
        asked = TsoClient(self.detour.fetch, ports.timers, ports.rng)
        return service, NodeTso(service, asked, ports.timers, ports.rng)

    def _care_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._on_fatal(bug)

    async def _open_partitions(self, retention_ms: int) -> None:
        ports = self.ports
        self._state_syncer = ports.syncer(self.state)
        self.scheduler = Scheduler(
            ports.timers.call_soon, ports.clock, self.host.defer, self.faults
        )
        self.manager = ReplicaManager(
            self.state,
            self.host,
            timestamps=self.oracle,
            scheduler=self.scheduler,
            timers=ports.timers,
            in_thread=ports.in_thread,
            on_fatal=self._on_fatal,
            room=self.room,
            members=self.cluster.peers,
            syncer=self._state_syncer,
            witness=self.identity.witness,
            retention_ms=retention_ms,
            waits=self.waits,
        )
        self.manager.on_role = self._role
        self.manager.rebuilds = self._others_have_it
        if self._lost_log is not None:
            self.manager.lose_all(self._lost_log)
            await ports.in_thread(self.state.sync)
        identities.save(self.state, self._log_db, self.identity)
        await self.manager.open_all()
        founders, witnesses = self.identity.founders, self.identity.witnesses
        await self.manager.create(
            PartitionDescriptor(META_PARTITION, *META_RANGE, 1, founders, (), witnesses)
        )

    def _databases(self, data: Path) -> tuple[Engine, Engine]:
        """State and log. One that cannot be read is set aside, under another name, if the other one
        says that this node is one of several: what was in it comes back from them. Raises
        Corruption: nothing was changed.
        """
        wanted = {"state": STATE_FAMILIES, "log": LOG_FAMILIES}
        found: dict[str, Engine] = {}
        broken: dict[str, Corruption] = {}
        for name, families in wanted.items():
            try:
                quarantine.refuse_marked(data / name)
                found[name] = self._engine(data / name, families)
            except Corruption as error:
                broken[name] = error
        for name, why in broken.items():
            if not found or not _one_of_several(found):
                raise why
            aside = quarantine.put_aside(data / name)
            log.error("%s; it is kept as %s, and rebuilt from the other nodes", why, aside)
            found[name] = self._engine(data / name, wanted[name])
        return found["state"], found["log"]

    def _engine(self, path: Path, families: tuple[str, ...]) -> Engine:
        engine = self.ports.open_engine(path, families)
        self._engines.append(engine)
        return engine

    async def _identify(self, config: NodeConfig, log: Engine) -> Identity:
        """The stored identity, or a new one: durable before anybody hears of it."""
        found = identities.load(self.state, log, config.data)
        if found is not None:
            identities.check_kind(found, config)
            self._look_for_log(config, log, found)
            if found.incarnation:
                return found
        rng = self.ports.rng
        if found is None:
            found = identities.founding(config, rng)
        else:
            found = identities.with_incarnation(found, rng)
        if found is None:
            identities.check_newcomer(config)
            joined = await joining.ask(config, self.ports)
            identities.check_clock(joined.clock, config)
            found = identities.joined(
                *(joined.cluster, joined.node, rng),
                witness=config.witness,
                clock=joined.clock,
            )
            KnownPeers(self.state, found.node, config.address).found(joined.members)
        await self._save(found, log)
        return found

    def _look_for_log(self, config: NodeConfig, log: Engine, identity: Identity) -> None:
        """Whether it is the log of what is in the state DB. Raises Corruption."""
        if log.scan(LOG_FAMILIES[0], b"", b"", limit=1) or not _has_replicas(self.state):
            return
        self._lost_log = f"the log of this node, {config.data / 'log'}, is gone"
        if not _has_others(self.state, identity):
            raise Corruption(
                f"{self._lost_log}, and with it what was acknowledged last: restore {config.data} "
                "as a whole from a copy",
                details={"path": str(config.data)},
            )

    async def _save(self, identity: Identity, log: Engine) -> None:
        identities.save(self.state, log, identity)
        for engine in (log, self.state):
            await self.ports.in_thread(engine.sync)

    # ----------------------------------------------------------------------------------- roles

    @property
    def alone(self) -> bool:
        """The only voter of the meta partition: nobody else has to be waited for."""
        meta = self.host.group(META_PARTITION)
        return meta is not None and meta.voters == (self.identity.node,)

    def everywhere(self) -> Place:
        """Where new partitions are placed that are to be everywhere: at the voters of the meta
        partition.
        """
        meta = self.host.group(META_PARTITION)
        if meta is None:
            return Place(())
        return Place(tuple(map(NodeId, meta.voters)), tuple(map(NodeId, meta.status().witnesses)))

    async def _placed(self) -> list[int]:
        """The partitions of tables that want a number of replicas."""
        return [row.descriptor.id for row in await placed(self.txn) if row.replicas]

    def witnesses(self) -> frozenset[int]:
        """The nodes that keep no data, as the meta partition has them."""
        meta = self.host.group(META_PARTITION)
        return frozenset(() if meta is None else meta.status().witnesses)

    def answers(self, node: NodeId) -> bool:
        """Whether a node is heard now; this one is."""
        return node == self.identity.node or self.cluster.hears(node)

    def _role(self, replica: Replica, leader: bool) -> None:
        if replica.descriptor.id == META_PARTITION:
            self.tso.role(leader=leader)
            self.safepoint.role(leader=leader)
            self.pulse.role(leader=leader)
            self._tell_meta_role(leader)

    def follow(self, on_meta_role: Callable[[bool], object]) -> None:
        """Tell when this node gains or loses the meta partition's leadership, and how it is now."""
        self._on_meta_role = on_meta_role
        self._tell_meta_role(self.tso.leading)

    def unfollow(self) -> None:
        """Tell nobody any more."""
        self._on_meta_role = None

    def _tell_meta_role(self, leader: bool) -> None:
        """With hybrid clocks a new master waits, so that its snapshots contain what the one before
        it wrote, by whatever clock.
        """
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None
        if leader and self.clock is not None:
            wait_s = CLOCK_HANDOVER_MS / 1000
            self._beginning = self.ports.timers.call_later(wait_s, self._meta_role, True)
        else:
            self._meta_role(leader)

    def _meta_role(self, leader: bool) -> None:
        if self._on_meta_role is not None:
            self._on_meta_role(leader)

    def _whom_to_tell(self, leader: Callable[[], int | None]) -> Callable[[], int | None]:
        """The master; of a node whose replica of the meta partition is lost each of the others in
        turn, who say who it is.
        """
        turn = count()

        def master() -> int | None:
            others = sorted(self.cluster.peers.nodes)
            if self.manager.replica(META_PARTITION) is not None or not others:
                return leader()
            return others[next(turn) % len(others)]

        return master

    async def leave_meta(self) -> None:
        """The meta partition's replica of this node is no member any more: remove it if it is
        damaged. From now on this node is none of the founders, so that what it makes next begins
        with nothing and votes when it has caught up.
        """
        if META_PARTITION not in self.manager.damage():
            return
        self.identity = self.identity._replace(founders=(), witnesses=())
        await self._save(self.identity, self._log_db)
        await self.manager.drop(META_PARTITION)

    def _serves_meta(self) -> bool:
        meta = self.manager.replica(META_PARTITION)
        return meta is not None and meta.serving()

    def not_master(self, what: str) -> NotLeader:
        """The refusal of what only the leader of the meta partition does."""
        meta = self.manager.replica(META_PARTITION)
        return self.cluster.not_leader(None if meta is None else meta.leader_hint(), what)

    def _machines(self) -> Iterable[tuple[PartitionId, PartitionMachine]]:
        return [(replica.descriptor.id, replica.machine) for replica in self.manager.replicas()]

    def not_ready(self) -> str | None:
        """What keeps this node from serving, None for nothing. A witness serves nothing, and is
        ready when it knows whom to point to.
        """
        if self.clock is not None and (doubt := self.clock.trouble()) is not None:
            return doubt
        for replica in self.manager.replicas():
            partition = replica.descriptor.id
            if not self._knows_leader(replica):
                return f"it knows no leader of partition {partition}"
            if replica.leader_hint() == self.identity.node:
                if not replica.leads():
                    return f"it takes over the leadership of partition {partition}"
            elif not self.identity.witness and replica.state.index < replica.group.commit_index:
                return f"partition {partition} has not caught up"
        return None

    def unfounded(self) -> str | None:
        """Which founders an empty node waits for, None for none: see raft/rules/prevote.py."""
        meta = self.manager.replica(META_PARTITION)
        if meta is None or meta.group.last_index:
            return None
        missing = [node for node in self.identity.founders if not self.answers(node)]
        if not missing:
            return None
        names = ", ".join(f"node {node} ({self.cluster.unheard(node)})" for node in missing)
        return (
            "this node has no data, and a cluster is founded by all nodes of --join together; not "
            f"heard: {names}. At a first start: start what is missing. If this cluster was there "
            "before, the data of this node are lost, and what is missing may have the only copy: "
            "start it as it is, empty no other directory, and see 'Its disk is lost' in "
            "docs/guides/cluster.md"
        )

    def no_leader(self) -> str | None:
        """Why a node that was ready cannot serve any more, None normally."""
        meta = self.manager.replica(META_PARTITION)
        if meta is None or not self._knows_leader(meta):
            return f"it knows no leader of partition {META_PARTITION}"
        return None

    def _knows_leader(self, replica: Replica) -> bool:
        """A leader that is gone is remembered until there is another one: so hear it, too."""
        leader = replica.leader_hint()
        if leader is None or leader == self.identity.node:
            return leader is not None
        return self.cluster.hears(leader)

    def _read_bound(self) -> int:
        return bound_of(_TSO_KEY, self.state.getter("meta")(_TSO_KEY))

    def _persist_bound(self, bound: int, done: Done) -> None:
        machine = self.manager.by_id(META_PARTITION)
        if machine is None:
            done(Unavailable("the meta partition is not open"))
            return
        machine.put_meta(_TSO_KEY, bound_record(_TSO_KEY, bound), done)

    def _persist_leases(self, record: bytes, done: Done) -> None:
        machine = self.manager.by_id(META_PARTITION)
        if machine is None:
            done(Unavailable("the meta partition is not open"))
            return
        machine.put_meta(_LEASES_KEY, record, done)

    async def watch_room(self) -> None:
        """Refuse new writes at the door while a database has no room for them, until cancelled.
        (Partitions look at it by themselves after so many bytes: kv.replica.disk_room.)
        And look whether this node is cut off, so that its first caller need not watch.
        """
        while True:
            self.cluster.cut_off()
            self.room.look()
            refusal = self.room.refusal
            if (refusal is None) != (self.dispatcher.no_room is None):
                log.warning("writes %s", f"are refused: {refusal}" if refusal else "go on again")
            self.dispatcher.no_room = refusal
            await asyncio.sleep(_ROOM_S)

    # --------------------------------------------------------------------------------- figures

    def replica_figures(self) -> Mapping[str, int]:
        """For metrics: how each partition stands, by names of kvorum/http/metrics/figures.py."""
        figures: dict[str, int] = {}
        now_ms = self.ports.clock.now_ms()
        for replica in self.manager.replicas():
            id_, state = replica.descriptor.id, replica.state
            figures[f"leader.{id_}"] = int(replica.leads())
            figures[f"term.{id_}"] = replica.group.term
            figures[f"applied_index.{id_}"] = state.index
            figures[f"waiting.{id_}"] = replica.machine.waiting
            closed_ms = 0 if replica.leads() else physical_ms(replica.machine.closed_ts)
            figures[f"closed_lag_ms.{id_}"] = max(0, now_ms - closed_ms) if closed_ms else 0
            figures[f"intents.{id_}"] = len(state.locks)
            figures[f"live_bytes.{id_}"] = state.live_bytes
            status = replica.group.status()
            lags = [follower.lag for follower in status.followers.values()]
            figures[f"lag.{id_}"] = max(lags, default=status.commit_index - state.index)
        return figures

    def _standing(self, _context: object, _args: list[object]) -> list[object]:
        """The method STANDING. Raises Unavailable."""
        if self.failed:
            raise Unavailable("this node has failed, and is about to end or to start anew")
        shown = replica_status.standing_here(self.identity.node, self.manager.replicas())
        return [{**shown, "damaged": sorted(self.manager.damage())}]

    def _reports(self, _context: object, _args: list[object]) -> list[object]:
        """The method REPORTS. Raises NotLeader."""
        if not self.pulse.reigning or not self._serves_meta():
            raise self.not_master("reports come to the meta partition's leader")
        shown = self.picture.to_wire(self.pulse.health())
        return [{**shown, "cluster": self.identity.cluster, "master": self.identity.node}]

    def _held(self, most: int, waited: Waited, every: bool) -> tuple[list[Held], bool]:
        here = self.manager.replicas(), self.identity.node, self.ports.clock.now_ms()
        owner_of = self.waits.owner_of
        return held(*here, most, owner_of=owner_of, waited=waited, every=every)

    def read_point(self, partition: int) -> int:
        """What a read of the newest state is served at now; 0 = the partition is not here."""
        machine = self.manager.by_id(partition)
        return 0 if machine is None else machine.read_point.top

    def past_by_replicas(self, age_ms: int) -> None:
        """Reads so far in the past go to the nearest replica; 0: none do."""
        self.txn.replica_age_ms = age_ms

    def wait_figures(self) -> Mapping[str, int]:
        """For metrics: writes that waited for others."""
        counters = [replica.machine.waits.counters for replica in self.manager.replicas()]
        return {
            "waiting": sum(len(replica.machine.waits) for replica in self.manager.replicas()),
            "parked": sum(c.parked for c in counters),
            "timed_out": sum(c.timed_out for c in counters),
            "deadlocks": sum(c.deadlocks for c in counters),
            "pushed": self.wait_care.pushed,
        }

    def beat_figures(self) -> Mapping[str, int]:
        """For metrics: heartbeats, and at the master how the nodes are."""
        return {**self.heart.stats(), **self.pulse.stats()}

    def tso_figures(self) -> Mapping[str, float]:
        """For metrics: the oracle, or this node's clock."""
        own = {name.removeprefix("tso."): value for name, value in self.tso.stats().items()}
        clocks = {} if self.clock is None else self.clocks.figures()
        return {"last_timestamp": self.tso.last, "waits": self.oracle.waits, **own, **clocks}

    # ------------------------------------------------------------------------------------- end

    async def drain(self) -> None:
        """Let other nodes lead, take no new requests; everything that was proposed gets its
        answer.
        """
        if self.failed:  # nothing is synced any more: what is open stays unknown to its clients
            await self.txn.close(0)
            await self.dispatcher.close()
            return
        await self.hand_over()
        if self.alone:
            await self.txn.close()
        else:  # what it cleans may need nodes that stop, too; readers heal the rest
            await self.txn.close(_CLEAN_S_MAX)
        await self.dispatcher.close()
        self.manager.dismiss_waiters(Unavailable(_STOPS, code=STOPPING))
        synced = asyncio.Event()
        self.host.barrier(synced.set)
        try:
            async with asyncio.timeout(_LAST_SYNC_S_MAX):
                await synced.wait()
        except TimeoutError:
            return  # the disk does not answer

    async def needed(self) -> str | None:
        """Why others need what this node stores; None: they have all of it."""
        here = map(replica_status.Standing.of, self.manager.replicas())
        return await dispensable.needed(self.cluster.calls, self.identity.node, here)

    async def hand_over(self) -> None:
        """Let others lead what is led here, as far as that is possible at once."""
        await handover.away(self.manager, self.identity.node, self.ports.timers)

    async def close(self) -> None:
        """Stop everything and let go of the directory."""
        self.tso.close()
        self.safepoint.close()
        await self.oracle.close()
        await self._let_go()

    async def _let_go(self) -> None:
        if hasattr(self, "cluster"):
            await self.cluster.close()
        for task in (self._comparing, self._caring, self._truncating):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._comparing = self._caring = self._truncating = None
        if hasattr(self, "manager"):
            self.manager.close()
        if hasattr(self, "host"):
            self.host.close()
        for syncer in (self._syncer, self._state_syncer):
            if syncer is not None:
                syncer.close()
        if hasattr(self, "manager"):
            self.manager.let_go()
        engines, self._engines = self._engines, []
        # Whoever still holds a client must not keep the databases open: their handles are in these.
        for name in (
            *("manager", "scheduler", "host", "dispatcher", "tso", "state", "room", "cluster"),
            *("waits", "wait_care", "safepoint", "heart", "pulse", "picture", "health"),
            "clocks",
        ):
            self.__dict__.pop(name, None)
        for engine in reversed(engines):
            try:
                await self.ports.in_thread(engine.close)
            except KvorumError as e:
                self._on_fatal(e)


def _one_of_several(engines: Mapping[str, Engine]) -> bool:
    """As the database says that can be read. Raises Corruption."""
    if "log" in engines:
        found = identities.copied(engines["log"])
        return found is not None and not identities.alone(found)
    found = identities.stored(engines["state"])
    return found is not None and _has_others(engines["state"], found)


def _has_others(state: Engine, identity: Identity) -> bool:
    """Whether others may have copies of what this node stores."""
    return not identities.alone(identity) or bool(KnownPeers(state, identity.node, "").nodes)


def _has_replicas(state: Engine) -> bool:
    return bool(state.scan("meta", b"r", b"s", limit=1))
