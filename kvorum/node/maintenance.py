"""What a node does by itself, beside answering requests. Each runs where its data are led.

every node       garbage, sweeping: the partitions that it leads
                 files: of what was deleted (kvorum/storage/compaction.py)
                 reconciling: its replicas against the map (procedures/master/members/reconcile.py)
                 cuts: leaderships to who hears the oracle, if this node does not (link_cuts.py)
                 addresses: the members table; what an operator forced here
                   (kvorum/cluster/forced_members.py)
                 heartbeats to the master (kvorum/cluster/heartbeat.py)
the master       abandoned Spark attempts, backups of commands that are gone
                 (transfer/abandoned_procedures.py);
                 leaderships back to where they belong (balance.py)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Final

from kv.base.config import NodeConfig, split_address
from kv.base.errors import KvorumError
from kv.base.ids import META_PARTITION, NodeId, PartitionId
from kv.base.limits import BALANCE_PAUSE_S, RECONCILE_S
from kv.base.wire_row import WireRow
from kv.client.replicas import Site
from kvorum.api.verbs import OLDEST_INTENT
from kvorum.cluster.forced_members import Audit
from kvorum.cluster.members import members, placed
from kvorum.local.heap import Trimmer
from kvorum.local.ports import Loop
from kvorum.master.balancing import wanted_leaders
from kvorum.master.roles import Master
from kvorum.node.link_cuts import CutOff
from kvorum.storage.collector import Collector
from kvorum.storage.compaction import Care
from kvorum.storage.oldest_intent import OldestIntent
from kvorum.storage.store import Store
from kvorum.transfer.abandoned_procedures import Left
from procedures.master.map.groups import Groups
from procedures.master.map.nodes import NodeRow, NodeState
from procedures.master.map.quiet import Quiet, led
from procedures.master.members.reconcile import Reconciler
from procedures.master.schedulers.balance import Balancer
from procedures.sink.sink_service import SinkService
from txn.intents.sweeper import Sweeper

log = logging.getLogger(__name__)

_REAP_INTERVAL_S: Final = 60.0
_MEMBERS_S: Final = 5.0


class Upkeep:
    """The loops of one node: start `tasks`, each until it is cancelled."""

    def __init__(
        self,
        store: Store,
        config: NodeConfig,
        master: Master,
        sink: SinkService,
        groups: Groups,
        slow: Callable[[], Collection[NodeId]] = tuple,
    ) -> None:
        ports = store.ports
        self._store = store
        self._master = master
        self._sink = sink
        floor = OldestIntent(
            self._oldest_intents, self._partitions, store.oracle.now, ports.timers.monotonic
        )
        self.care = Care(store.manager.replicas, store.state, ports.in_thread)
        self.collector = Collector(
            store.manager,
            store.state,
            store.kv.call_node,
            floor,
            interval_ms=config.gc_interval_ms,
            now_ms=ports.clock.now_ms,
            after_round=self.care.ask,
        )
        store.dispatcher.register(OLDEST_INTENT, lambda _context, _args: self._oldest_intent())
        self.cutoff = CutOff(store)
        self._left = Left(lambda: master.executor, ports.timers.monotonic)
        self._sweeper = Sweeper(store.manager, store.txn.resolver, ports.clock, ports.timers)
        self.audit = Audit(store.state, store.txn, ports.in_thread)
        self._trimmer = Trimmer(ports.in_thread)
        self.reconciler = Reconciler(store.identity.node, store.manager, lambda: placed(store.txn))
        self._balancer = Balancer(
            groups,
            lambda: self._holders,
            self.homes,
            slow,
            Quiet(ports.timers.monotonic),
            lambda wanted: led(store.picture, store.pulse.health(), wanted, slow()),
            store.damage.all,
        )
        self._holders: Sequence[NodeId] = ()
        self._members: Sequence[NodeRow] = ()
        self._slow = slow
        self._strangers = asyncio.Event()  # somebody called whom the table must know
        store.cluster.on_stranger = self._strangers.set
        store.pulse.on_stranger = self._strangers.set
        store.host.on_unknown = lambda _group: self.reconciler.hurry()

    def loops(self) -> list[Loop]:
        """Everything, to be run at once, each until it is cancelled."""
        return [
            self.collector.run,
            self.care.run,
            self._sweeper.run,
            self._trimmer.run,
            self._store.watch_room,
            *([self.cutoff.run] if self._store.clock is None else []),
            self._reap,
            self._follow_members,
            self.audit.run,
            self._store.heart.run,
            self._store.pulse.run,
            self._reconcile,
            self._balance,
        ]

    async def homes(self) -> Mapping[PartitionId, NodeId]:
        """Who should lead, where that does not follow from the id."""
        return wanted_leaders(await placed(self._store.txn), self._members, self._slow())

    def learn(self, rows: Sequence[NodeRow]) -> None:
        """The members table as somebody has just read it."""
        self._members = rows
        self._store.cluster.learn(rows)
        # a table read early lacks founders that have not been entered yet
        known = self._store.cluster.peers.nodes
        here = [row.id for row in rows if row.state is not NodeState.GONE]
        self._store.pulse.members([*here, *known])
        staying = (NodeState.MEMBER, NodeState.JOINING, NodeState.LEAVING)
        self._holders = [row.id for row in rows if row.state in staying]
        self._store.sites.learn(
            {
                row.id: Site(split_address(row.address), row.domains)
                for row in rows
                if row.address and not row.witness and row.state in staying
            }
        )

    def _oldest_intent(self) -> list[object]:
        """The method OLDEST_INTENT."""
        manager = self._store.manager
        led = [int(r.descriptor.id) for r in manager.replicas() if r.leads()]
        return [manager.oldest_lock() or 0, led]

    async def _oldest_intents(self) -> list[list[object]]:
        """What the nodes that answer say about OLDEST_INTENT."""
        calls = self._store.cluster.calls

        async def ask(node: int) -> WireRow | None:
            try:
                return await calls.call_at(node, OLDEST_INTENT)
            except KvorumError:
                return None

        others = await asyncio.gather(*(ask(node) for node in self._store.cluster.peers.nodes))
        return [self._oldest_intent(), *(one for one in others if one is not None)]

    async def _partitions(self) -> set[int]:
        """All there are, and those that a split that is under way makes: the map has them later."""
        rows = await placed(self._store.txn)
        coming = {int(row.change[1]) for row in rows if row.change and row.change[0] == "split"}
        return coming | {int(META_PARTITION)} | {int(row.descriptor.id) for row in rows}

    def gc_figures(self) -> Mapping[str, int]:
        """For metrics."""
        return {**self._store.safepoint.stats(), **self.collector.stats(), **self.care.stats()}

    async def _reap(self) -> None:
        """Remove what sinks staged and abandoned; end what commands left."""
        while True:
            await asyncio.sleep(_REAP_INTERVAL_S)
            if self._master.executor is not None:
                await _tolerate(self._sink.reap, "abandoned sink attempts were not removed")
            await _tolerate(self._left.look, "what commands left was not ended")

    async def _follow_members(self) -> None:
        """Who joined, who moved, who left."""
        while True:
            self._strangers.clear()
            await _tolerate(self._read_members, "the members table was not read")
            try:
                async with asyncio.timeout(_MEMBERS_S):
                    await self._strangers.wait()
            except TimeoutError:
                continue

    async def _read_members(self) -> None:
        self.learn(await members(self._store.txn))

    async def _reconcile(self) -> None:
        # Alone, the procedures that make and drop tables leave no difference; but a move to another
        # storage shard ends with a crash, a split, or a merge, and goes on with a look.
        while self._store.alone:
            if not self.reconciler.looks or self._store.state.shards():
                await _tolerate(self.reconciler.look, "replicas were not compared with the map")
            await asyncio.sleep(RECONCILE_S)
        await self.reconciler.run()

    async def _balance(self) -> None:
        while True:
            await asyncio.sleep(BALANCE_PAUSE_S)
            if self._master.executor is not None and not self._store.alone:
                await _tolerate(self._balancer.look, "leaderships were not looked at")


async def _tolerate(work: Callable[[], Coroutine[object, None, object]], what: str) -> None:
    """What fails now is done in the next round."""
    try:
        await work()
    except KvorumError as error:
        log.info("%s: %s; next round", what, error)
