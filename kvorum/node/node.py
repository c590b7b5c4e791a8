"""One node: everything wired together, started in order and stopped in the reverse order.

    store (databases, consensus, partitions, oracle)      kvorum/storage/store.py
      ├─ procedures: executor, DDL, the Spark sink's commit; at the master only
         (kvorum/master/roles.py)
      ├─ garbage timer, sweeper of abandoned intents
      ├─ native protocol on BASE                          kv/server/socket_server.py
      ├─ HTTP on BASE+2                                   kvorum/http
      └─ the PostgreSQL protocol on BASE+3                kvorum/sql/sql_endpoint.py

A node alone listens when it serves. One of several listens before, because the others need it to
find out who leads; `not_ready` (and /readyz) says what it still waits for.

`await build(config, ports)` gives a node that has touched nothing yet; `start` opens and serves,
`stop` ends it without losing an acknowledgement: new work is refused, work under way gets its
answer, then sockets and databases close. A failure that makes promises impossible to keep (a failed
sync, damage in the log) is *fatal*: nothing is acknowledged any more, and `fatal` says why; whoever
runs the process ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Final

from kv.base.config import NodeConfig, own_addresses
from kv.base.errors import InvalidArgument, KvorumError, Refused, Unavailable
from kv.base.ids import META_PARTITION, NodeId
from kv.base.tls import Tls
from kvorum.api.backend import Backend
from kvorum.api.names import TableIds
from kvorum.api.verbs import (
    ACCESS,
    ANCHORED,
    CHECK_REPLICA,
    END_TXN,
    FORCE_MEMBERS,
    JOIN,
    PAST_HOUR,
    RAISE_SAFEPOINT,
    TOKEN_BYTES,
)
from kvorum.cluster import joining
from kvorum.cluster.catchup import caught_up
from kvorum.cluster.force_members import ForceMethod
from kvorum.cluster.members import enrol, enrol_founders, placed_at
from kvorum.cluster.placement import PartitionMethods
from kvorum.local.blocking_calls import Outside
from kvorum.local.ports import Loop, Ports, secured
from kvorum.master.balancing import Balancing
from kvorum.master.bus import NodeBus
from kvorum.master.roles import Master
from kvorum.master.shaping import Shaping
from kvorum.native.access import Access
from kvorum.native.native import CATALOG_TTL_S, NativeBackend
from kvorum.node import procedure_rights
from kvorum.node.components import Parts
from kvorum.node.endpoints import Doors
from kvorum.node.maintenance import Upkeep
from kvorum.node.system_procedures import offered
from kvorum.storage.drop_transactions import Settling
from kvorum.storage.hour import Hour
from kvorum.storage.key_waits import KeyWaits
from kvorum.storage.store import Store
from kvorum.transfer.raise_safepoint import RaiseSafepoint
from kvorum.transfer.replica_digest import CheckReplica
from kvorum.version import VERSION
from procedures.engine.executor import Executor
from procedures.engine.kv_store import KvStore
from procedures.engine.lock_procedure import Keeper, LockService
from procedures.engine.locks import Link
from procedures.engine.roster import Live
from procedures.engine.runner import Runner
from procedures.engine.service import ProcedureService
from procedures.engine.waits import NUMBER, ProcedureWaits
from procedures.master.map.groups import Groups
from procedures.master.map.nodes import NodeState
from procedures.master.map.replica_methods import ReplicaMethods
from procedures.master.shape.reshape_methods import ReshapeMethods
from procedures.sink.sink_service import SinkService
from procedures.verbs import (
    CAMPAIGN,
    CAUGHT_UP,
    CHANGE_REPLICAS,
    CREATE_PARTITION,
    DROP_PARTITION,
    FREEZE_PARTITION,
    MERGE_PARTITION,
    REPLICA_STATUS,
    SETTLE_PARTITION,
    SPLIT_PARTITION,
    THAW_PARTITION,
    VERIFY_REPLICA,
)
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import CatalogCache
from sqlproxy.catalog.guard import Guard
from sqlproxy.catalog.visible_catalog import CATALOG, CLAIM, Seen
from tso.verbs import SAFEPOINT

log = logging.getLogger(__name__)

_READY_S_MAX: Final = 30.0  # for a node alone; one of several waits for the others
_ENROL_AGAIN_S: Final = 0.1
_LOOK_S: Final = 0.002
_SAY_AFTER_S: Final = 5.0  # what the others are waited for
_SAY_AGAIN_S: Final = 60.0
_LOOP_AGAIN_S: Final = 1.0  # before a loop that broke begins anew
_LOOK_CLUSTER_S: Final = 0.01


class Node(Parts):
    """See the module. `start` once, `stop` once."""

    def __init__(self, config: NodeConfig, ports: Ports) -> None:
        self.config = config
        self._steps: Runner | None = None
        self.ports = ports
        self.store = Store(ports, self._fail)
        self.sites = {}
        self.fatal: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._not_ready: str | None = "it is starting"
        self._was_ready = False
        self._stopping = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self.doors = Doors(self, self.not_ready, self._in_background)

    # ------------------------------------------------------------------------------------ life

    async def start(self) -> None:
        """Open the data, resume what was under way, serve. Raises why it cannot, with
        nothing left open.
        """
        started = asyncio.get_running_loop().create_future()
        serving = asyncio.get_running_loop().create_task(self._serve(started), name="node")
        self._serving = serving
        await asyncio.wait([serving, started], return_when=asyncio.FIRST_COMPLETED)
        if serving.cancelled():
            raise Unavailable(f"the node was stopped before it was ready: {self._not_ready}")
        if serving.done():
            await serving
        self._was_ready = True
        if not self._stopping.is_set():
            self._not_ready = None

    async def stop(self) -> None:
        """End it in order. A second time it does nothing."""
        self._not_ready = "it is stopping"
        self._stopping.set()
        if self._serving is not None:
            serving, self._serving = self._serving, None
            if not self._was_ready:  # whom it waits for may never come
                serving.cancel()
                await asyncio.wait([serving])
                return
            await serving

    async def _serve(self, started: asyncio.Future[None]) -> None:
        """The whole life of the node in one task: what is entered here is left in the
        reverse order.
        """
        async with contextlib.AsyncExitStack() as stack:
            await self.store.open(self.config)
            stack.push_async_callback(self.store.close)
            stack.callback(self._let_go)
            stack.push_async_callback(self.doors.close_native)
            stack.push_async_callback(self.store.drain)
            stack.push_async_callback(self._end_steps)
            self._wire()
            stack.push_async_callback(self.master.close)
            stack.push_async_callback(self._end_background)
            self._in_background(self.master.run())
            if self.store.alone:
                await self._until_ready()
            if self.config.notice:
                log.warning("%s", self.config.notice)
            await self.doors.audit(stack)
            await self.doors.listen(stack)
            await self._enrol()
            self._begin_loops()
            await self._until_ready()
            if not self.store.identity.witness:
                self._not_ready = "it catches up with the other nodes"
                await caught_up(self.store.manager, self._stopping.is_set)
            self.master.failed.add_done_callback(lambda failed: self._fail(failed.result()))
            started.set_result(None)
            await self._stopping.wait()

    async def _end_steps(self) -> None:
        if self._steps is not None:
            self._steps.close()
            await self._steps.closed()

    async def _until_ready(self) -> None:
        """Wait until this node can serve. Raises what keeps it from that for good, and Unavailable
        if nothing changes for long.
        """
        deadline = self.ports.timers.monotonic() + _READY_S_MAX
        while (missing := self._missing()) is not None:
            self._not_ready = missing
            if self.master.failed.done():
                raise self.master.failed.result()
            if self.fatal.done():
                raise self.fatal.result()
            if (forgotten := self.store.cluster.forgotten()) is not None:
                raise forgotten
            if self._stopping.is_set():
                raise Unavailable(f"the node was stopped before it was ready: {missing}")
            if self.store.alone and self.ports.timers.monotonic() > deadline:
                raise Unavailable(f"not ready after {_READY_S_MAX:.0f} s: {missing}; see the log")
            await asyncio.sleep(_LOOK_S if self.store.alone else _LOOK_CLUSTER_S)

    def _missing(self) -> str | None:
        """What keeps the node from serving now."""
        if (missing := self.store.not_ready()) is not None:
            return missing
        if self.store.tso.leading and self.master.executor is None:
            return "it resumes the procedures"
        return None

    def _let_go(self) -> None:
        """Forget what leads to the databases: they close only when nobody holds their handles, and
        a user may keep a closed database for long."""
        self.store.unfollow()
        self.store.txn.resolver.gone = None
        for name in ("guard", "master", "upkeep", "bus", "shaping", "balancing", "_sink", "hour"):
            self.__dict__.pop(name, None)

    async def _enrol(self) -> None:
        """Tell the cluster who and where this node is: others find it by its row. Asks again until
        there is a leader to hear it; a node that was decommissioned learns it here. Raises Refused.
        """
        me = self.store.identity.node
        said_at = self.ports.timers.monotonic() + _SAY_AFTER_S
        while True:
            try:
                row = await enrol(
                    *(self.store.txn, me, self.config.address, VERSION),
                    witness=self.store.identity.witness,
                    label=self.config.server,
                    site=self.config.site,
                    tags=self.config.tags,
                )
                if row.state is NodeState.JOINING:
                    await self._join_again()
                return
            except KvorumError as error:
                if error.disposition == "no":
                    raise
                why = "; ".join([error.message, *self.store.cluster.refusals()])
                unfounded = self.store.unfounded()
                self._not_ready = unfounded or f"the cluster does not answer yet: {why}"
                if self.ports.timers.monotonic() > said_at:
                    said_at = self.ports.timers.monotonic() + _SAY_AGAIN_S
                    log.warning("not ready yet: %s", self._not_ready)
            if (forgotten := self.store.cluster.forgotten()) is not None:
                raise forgotten
            if self._stopping.is_set():
                raise Unavailable(f"the node was stopped before it was ready: {self._not_ready}")
            await asyncio.sleep(_ENROL_AGAIN_S)

    async def _join_again(self) -> None:
        """Have the master go on with what a start before this one began."""
        token = self.ports.rng.token(TOKEN_BYTES)
        request = joining.request(self.config, token, witness=self.store.identity.witness)
        try:
            await self.store.kv.call_node(JOIN, *request)
        except Refused as error:
            # By now it is a member, so its address is taken: by itself.
            if error.details.get("node") != self.store.identity.node:
                raise

    async def _prepare(self) -> None:
        """What the first master of a cluster writes, and every later one finds."""
        store = self.store
        self.keeper.clear()
        await store.txn.run(catalog.bootstrap)
        others = [(NodeId(n), a) for n, a in store.cluster.listed() if n != store.identity.node]
        await enrol_founders(store.txn, others, store.identity.witnesses)

    def _fail(self, error: BaseException) -> None:
        """Something that no promise survives. The first reason counts."""
        log.critical("the node stops: %s", error, exc_info=error)
        self._not_ready = f"it failed: {error}"
        if not self.fatal.done():
            self.fatal.set_result(error)

    def not_ready(self) -> str | None:
        """Why the node cannot serve, None if it can."""
        if self._not_ready is not None:
            return self._not_ready
        return self.store.no_leader() or self.store.health.trouble() or self.doors.not_ready()

    # ---------------------------------------------------------------------------------- wiring

    def _wire(self) -> None:
        store, ports = self.store, self.ports
        own = own_addresses(self.config.listen, insecure=self.config.insecure)
        self.guard = Guard(store.txn, ports.clock, ports.in_thread, own)
        store.scheduler.rows = self.guard.tenants.turns.rows
        self.logins = None
        if self.config.oidc_issuer:
            from kvorum.security.oidc_setup import ISSUER_CALLS_MAX, issuer_and_logins

            beside = Outside(ISSUER_CALLS_MAX)  # its own: a slow issuer holds no backup up
            made = issuer_and_logins(self.config, ports.clock, ports.rng, beside)
            self.guard.issuer, self.logins = made
        cache = CatalogCache(
            store.txn, ports.timers, CATALOG_TTL_S, catalog.claims_in(store.txn.run)
        )
        groups = Groups(store.cluster.calls)
        settling = Settling(
            *(store.manager, lambda: store.cluster.peers.nodes, store.cluster.calls),
            *(store.txn, ports.timers),
        )
        store.dispatcher.register(ANCHORED, settling.handle)
        store.txn.resolver.gone = settling.gone
        self.bus = NodeBus(
            *(store, self.config, lambda: self.master),
            *(lambda: self.upkeep.reconciler.look(), self._stopping.is_set),
        )
        self.keeper = Keeper(ports.timers)
        self.balancing = Balancing(store, lambda: self.master, self.bus, groups)
        registry = offered(self, cache, groups, settling)
        if ports.steps is not None and self.config.procedure_modules:
            self._steps = ports.steps(self.config.procedure_modules)
            self._steps.begin()  # whoever becomes master has it by then
        self.master = Master(
            prepare=self._prepare,
            executor=lambda: Executor(
                KvStore(store.txn),
                registry,
                TableIds(cache),
                ports.clock,
                ports.timers,
                ports.rng,
                rows=store.txn,
                workers=self.config.procedure_workers,
                refusal=self.master.refusal,
                key_waits=KeyWaits(store.kv, store.txn),
                runner=self._steps,
                feeds=lambda ranges, above: store.txn.feed(ranges, above=above, check=_stands),
            ),
            service=lambda executor: ProcedureService(
                executor, ports.clock, ports.timers, self.bus.shown
            ),
            not_leader=store.not_master,
            locks=lambda executor: LockService(executor, self.keeper, ports.timers),
            check=procedure_rights.check,
        )
        self.master.serve(store.dispatcher.register)
        store.follow(self._meta_role)
        self._sink = SinkService(store.txn, self.master, ports.clock)
        for method, handler in self._sink.handlers().items():
            store.dispatcher.register(method, handler)
        store.waits.add(
            NUMBER,
            ProcedureWaits(store.waits.node, ports.clock, self._live_procedures, self._blocked),
        )
        slowness = self.balancing.schedulers.slowness
        self.upkeep = Upkeep(
            *(store, self.config, self.master, self._sink, groups, lambda: slowness.slow)
        )
        self.shaping = Shaping(store, self.master, self.bus, groups)
        self.bus.settings.follow("gc.interval_ms", self.upkeep.collector.pace)
        self.bus.settings.follow("reads.replica_age_ms", store.past_by_replicas)
        self.bus.settings.follow_limits(self.guard.tenants.follow)
        self._serve_nodes(groups)
        store.dispatcher.add_stats(store.tso.stats)
        store.dispatcher.add_stats(self.partition_figures)
        self.backend = NativeBackend(
            store.kv,
            store.txn,
            store.oracle.take,
            ports.timers,
            close=self.stop,
            tables=cache,
        )

    def _serve_nodes(self, groups: Groups) -> None:
        """The methods that nodes ask each other, and the master all of them."""
        store, ports = self.store, self.ports
        join = joining.JoinMethod(
            self.config, store.identity, store.txn, self.master, self.upkeep.learn
        )
        store.dispatcher.register(JOIN, join.handle)
        here = PartitionMethods(
            *(store.identity.node, store.manager, partial(placed_at, store.txn)),
            partial(catalog.is_used, store.txn),
            *(partial(self._meta_members, groups), store.leave_meta),
        )
        store.dispatcher.register(CREATE_PARTITION, here.create)
        store.dispatcher.register(DROP_PARTITION, here.drop)
        store.dispatcher.register(CAMPAIGN, here.campaign)
        store.dispatcher.register(VERIFY_REPLICA, here.verify)
        replicas = ReplicaMethods(store.manager)
        store.dispatcher.register(REPLICA_STATUS, replicas.status)
        store.dispatcher.register(CHANGE_REPLICAS, replicas.change)
        reshaping = ReshapeMethods(store.manager)
        for method, work in (
            (SPLIT_PARTITION, reshaping.split),
            (FREEZE_PARTITION, reshaping.freeze),
            (THAW_PARTITION, reshaping.thaw),
            (CAUGHT_UP, reshaping.caught_up),
            (MERGE_PARTITION, reshaping.merge),
            (SETTLE_PARTITION, reshaping.settle),
        ):
            store.dispatcher.register(method, work)
        force = ForceMethod(
            *(self.config, store.identity, store.host, store.manager.replicas),
            *(store.cluster.calls, store.cluster.hears, ports.rng),
            *(self.upkeep.audit.keep, ports.clock.now_ms),
        )
        store.dispatcher.register(FORCE_MEMBERS, force.handle)
        self.hour = Hour(
            *(store.manager.replicas, store.sync_taken),
            late_s=store.health.worst_s,
            cpu_s=ports.cpu_s,
            now_ms=ports.clock.now_ms,
            monotonic=ports.timers.monotonic,
            more=partial(_certificates, ports.tls),
        )
        store.dispatcher.register(PAST_HOUR, self.hour.told)
        store.dispatcher.register(SAFEPOINT, lambda _context, _args: [self._safepoint()])
        store.dispatcher.register(RAISE_SAFEPOINT, RaiseSafepoint(store.manager).handle)
        store.dispatcher.register(CHECK_REPLICA, CheckReplica(store.manager).handle)
        store.dispatcher.register(END_TXN, self._end_transaction)
        access = Access(store.txn, ports.rng, ports.clock, self._rights_changed)
        store.dispatcher.register(ACCESS, access.handle)
        seen = Seen(store.txn, store.txn.run, self.guard)
        store.dispatcher.register(CATALOG, seen.rows)
        store.dispatcher.register(CLAIM, seen.claim)

    async def _rights_changed(self) -> None:
        await self.guard.look()

    async def _meta_members(self, groups: Groups) -> Sequence[NodeId] | None:
        view = await groups.leader_view(META_PARTITION, map(NodeId, self.store.cluster.peers.nodes))
        return (*view.voters, *view.learners) if view is not None and view.settled else None

    async def _end_transaction(self, context: object, args: list[object]) -> list[object]:
        """The method END_TXN."""
        return await self.backend.end_transaction(context, args)

    def _meta_role(self, leader: bool) -> None:
        self.bus.role(leader=leader)
        self.master.role(leader=leader)

    def _live_procedures(self) -> Sequence[Live]:
        executor = self.master.executor
        return () if executor is None else executor.live()

    def _blocked(self, live: Live) -> Sequence[Link]:
        executor = self.master.executor
        return () if executor is None else executor.blocked(live)

    def _safepoint(self) -> int:
        return max((r.state.safepoint for r in self.store.manager.replicas()), default=0)

    # ------------------------------------------------------------------------------ background

    def _in_background(self, work: Coroutine[object, None, None]) -> None:
        """A task of the node's own; an error in it that is no KvorumError is a bug, and fatal."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._fail(error)

    def _begin_loops(self) -> None:
        """Apart, for a frame that lives as long as the node would keep what the databases wait
        for when they close.
        """
        loops = (*self.upkeep.loops(), *self.bus.loops(), *self.balancing.loops())
        for loop in (*loops, self.shaping.run, self.store.health.run, self.hour.run):
            self._in_background(self._again_and_again(loop))
        if self.config.port is not None:  # else nobody comes whom it could ask who he is
            self._in_background(self._again_and_again(lambda: self.guard.run(asyncio.sleep)))

    async def _again_and_again(self, loop: Loop) -> None:
        """Keep one of the node's loops running. A bug in it is noted, and it begins anew: it must
        not end what serves everybody.
        """
        while True:
            try:
                await loop()
                return
            except Exception as error:  # noqa: BLE001 - the boundary of a loop
                self.store.faults.note(error, "a loop of the node")
            await asyncio.sleep(_LOOP_AGAIN_S)

    async def _end_background(self) -> None:
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def surface(self, name: str) -> Backend:
        """The database of this node for one surface; audited if the node is."""
        return self.doors.surface(name)


def _certificates(tls: Tls | None) -> dict[str, float]:
    """When they end, in seconds since 1970; nothing without TLS."""
    if tls is None:
        return {}
    from kvorum.security import certificates  # 0.15 s: only who needs it imports it

    return certificates.figures(tls)


async def _stands() -> None:
    """A table that is followed: if it is gone, whoever waits for its rows waits."""


async def build(config: NodeConfig, ports: Ports) -> Node:
    """A node that has touched nothing yet. Raises InvalidArgument for what this version cannot."""
    if config.stores > 1:
        raise InvalidArgument(
            f"stores = {config.stores}: a process runs one node; `kvorum start --stores` starts "
            "several",
            details={"setting": "stores"},
        )
    return Node(config, secured(ports, config.tls_dir))
