"""Nodes and clients as processes: production code from `build` and from the client's `connect` on,
with disks, clocks and a network of the simulation.

A node that fails for good (its `fatal` says why) is ended and started again, as a supervisor does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any

from kv.base import methods
from kv.base.config import NodeConfig
from kv.base.errors import KvorumError, Unavailable
from kv.base.ids import META_PARTITION
from kv.base.ports import Rng, Timers
from kv.base.spoken_time import Heard
from kv.client.channels import SocketChannels, tcp_connector
from kv.client.client import KvClient
from kv.storage.engine import Engine
from kv.storage.memory import MemoryEngine, TimedSyncer
from kvorum.api.model import TableInfo
from kvorum.api.names import TableIds
from kvorum.local import heap
from kvorum.local.ports import Ports
from kvorum.native.native import CATALOG_TTL_S, NativeBackend
from kvorum.node.node import Node, build
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.life import Life, LivesLoop, State
from kvorum.testing.simulation.loop import SimClock, SimRng, SimTimers
from kvorum.testing.simulation.network import Network
from kvorum.testing.simulation.plan import Plan
from kvorum.testing.simulation.probes import probes
from kvorum.testing.simulation.trace import Trace
from procedures.engine.kv_store import KvStore
from procedures.engine.registry import ProcedureType
from procedures.pools.worker import Worker
from sqlproxy.catalog.catalog import CatalogCache
from sqlproxy.catalog.visible_catalog import RemoteCatalog
from tso.client import remote_tso
from txn.client import TxnClient

PORT = 7600
SECRET = "sixteen characters"
METHODS = {
    getattr(methods, name): name
    for name in (
        *("CHECK", "COMMIT", "FINISH", "HEARTBEAT", "PREWRITE_ROWS", "RECOVER"),
        *("RESOLVE", "ROLLBACK", "SETTLE"),
    )
}
CLIENTS_FROM = 100
"""Numbers of clients; below it are nodes …"""
WORKERS_FROM = 10_000
"""… and from here on workers."""


class _Syncer(TimedSyncer):
    """`synced`: told when something is durable and nobody knows it yet; False: the process died of
    that.
    """

    def __init__(
        self,
        engine: MemoryEngine,
        timers: Timers,
        delay_s: Callable[[], float],
        synced: Callable[[], bool],
    ) -> None:
        super().__init__(engine, timers, delay_s)
        self._synced = synced

    def _finish(self, mark: int, done: Callable[[BaseException | None], None]) -> None:
        def tell(error: BaseException | None) -> None:
            if self._synced():
                done(error)

        super()._finish(mark, tell)

    def close(self) -> None:
        """Nothing is held."""


class NodeProcess:
    """A machine with disks, and the node that runs on it, if one does."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.number, self.cluster = number, cluster
        self.life: Life | None = None
        self.node: Node | None = None
        self.ready = False
        self.sync_fails = False
        self.slow_s = 0.0
        """That each sync takes more than its disk's own time."""
        self.clock = SimClock(cluster.loop, rate=cluster.plan.rate_of(number))
        self.clock.skew_ms = cluster.plan.skew_of(number)
        self._disks: dict[str, MemoryEngine] = {}
        self._epoch = 0

    @property
    def up(self) -> bool:
        return self.life is not None

    @property
    def running(self) -> bool:
        return self.life is not None and self.life.state is State.RUNNING

    def start(self) -> None:
        if self.life is not None:
            return
        cluster = self.cluster
        self._epoch += 1
        self.ready = False
        self.life = life = Life(cluster.loop, self.number, self._epoch)
        cluster.lives.append(life)
        cluster.network.back(self.number)
        cluster.note("start", life)
        life.spawn(self._run(life))

    async def _run(self, life: Life) -> None:
        try:
            self.node = await build(self._config(), self._ports())
            self.node.fatal.add_done_callback(partial(self._fatal, life), context=Context())
            await self.node.start()
        except KvorumError as error:
            self.cluster.loop.call_soon(self._ended, life, error, context=Context())
            return
        self.ready = True
        self.cluster.note("ready", life)

    def _fatal(self, life: Life, done: asyncio.Future[BaseException]) -> None:
        self._ended(life, done.result())

    def _ended(self, life: Life, error: BaseException) -> None:
        """The process gives up; its supervisor starts another one."""
        if self.life is not life:
            return
        self.cluster.note("ended", life, error)
        if not self.sync_fails:
            self.cluster.fail(f"node {self.number} gave up: {error!r}")
        self.kill(power=False)
        self.cluster.later(0.1 + self.cluster.rng.random(), self.start)

    def kill(self, *, power: bool) -> None:
        """Not a line of it runs again. `power`: what was not synced may be gone, and the others are
        not told before the machine is back.
        """
        life, self.life = self.life, None
        if life is None:
            return
        cluster = self.cluster
        cluster.note("power lost" if power else "killed", life)
        if self.node is not None:
            cluster.look_at_the_dead(self.node)
        self.node, self.ready, self.sync_fails = None, False, False
        life.kill()
        cluster.network.died(life, told=not power)
        for name, disk in self._disks.items():
            if power and disk.stats()["unsynced_batches"]:
                probes.hit("unsynced writes at a power loss")
            self._disks[name] = disk.crash(cluster.disk_rng) if power else disk.reopen()

    def stop(self) -> None:
        """SIGTERM: it hands over and ends in order; a moment later it is started again."""
        life, node = self.life, self.node
        if life is None or node is None or not self.ready:
            return
        self.cluster.note("stop", life)
        self.ready = False
        life.spawn(node.stop()).add_done_callback(partial(self._stopped, life), context=Context())

    def _stopped(self, life: Life, done: asyncio.Future[None]) -> None:
        if (error := done.exception()) is not None:
            self.cluster.fail(f"node {self.number} did not stop in order: {error!r}")
        if self.life is life:
            probes.hit("stopped in order")
            self.kill(power=False)
            self.cluster.later(self.cluster.rng.random(), self.start)

    def fail_syncs(self) -> None:
        self.sync_fails = True
        for disk in self._disks.values():
            disk.fail_sync(Unavailable("the disk reports an error"))

    def engine(self, name: str) -> MemoryEngine:
        return self._disks[name]

    def leads(self, partition: int = META_PARTITION) -> bool:
        if self.node is None or not self.ready:
            return False
        replica = self.node.store.manager.replica(partition)
        return replica is not None and replica.serving()

    def led(self) -> list[int]:
        """The partitions that it leads."""
        if self.node is None or not self.ready:
            return []
        return [r.descriptor.id for r in self.node.store.manager.replicas() if r.leads()]

    # -- what the node is made of

    def _config(self) -> NodeConfig:
        plan = self.cluster.plan
        return NodeConfig(
            data=Path(f"node{self.number}"),
            listen=host(self.number),
            port=PORT,
            node_id=self.number,
            join=tuple(f"{host(i)}:{PORT}" for i in range(1, plan.nodes + 1)),
            cluster_secret=SECRET,
            insecure=True,
            engine="memory",
            http=False,
            sql=False,
            procedure_modules=plan.modules,
            gc_retention_ms=plan.gc_retention_ms,
            gc_interval_ms=plan.gc_interval_ms,
            clock=plan.clock,
        )

    def _ports(self) -> Ports:
        cluster = self.cluster
        return Ports(
            clock=self.clock,
            timers=SimTimers(cluster.loop, self.clock),
            rng=SimRng(cluster.rng.getrandbits(64)),
            open_engine=self._open_engine,
            syncer=self._syncer,
            in_thread=_in_thread,
            network=cluster.network,
            procedures=tuple(cluster.plan.procedures),
        )

    def _open_engine(self, path: Path, families: Sequence[str]) -> Engine:
        if path.name not in self._disks:
            self._disks[path.name] = MemoryEngine(families)
        return self._disks[path.name]

    def _syncer(self, engine: Engine) -> _Syncer:
        assert isinstance(engine, MemoryEngine)
        timers = SimTimers(self.cluster.loop, self.clock)
        return _Syncer(engine, timers, self._sync_s, self._synced)

    def _sync_s(self) -> float:
        cluster = self.cluster
        self.cluster.on_persist(self)
        random, plan = cluster.disk_rng.random, cluster.plan
        if cluster.faulty and random() < plan.slow_syncs:
            probes.hit("slow sync")
            return random() * plan.slow_sync_s
        return self.slow_s + plan.sync_s * (0.5 + random())

    def _synced(self) -> bool:
        life = self.life
        self.cluster.on_persisted(self)
        return self.life is life


async def _in_thread(call: Callable[..., None], *args: object) -> None:
    if call is not heap.trim:  # of the machine that the simulation runs on
        call(*args)


def host(number: int) -> str:
    return f"node{number}"


class ClientProcess:
    """A program that uses the database over the native protocol: its own coordinator."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number = cluster, number
        self.clock = SimClock(cluster.loop)
        self._epoch = 0
        self.life = self._new_life()

    def _new_life(self) -> Life:
        self._epoch += 1
        life = Life(self.cluster.loop, self.number, self._epoch)
        self.cluster.lives.append(life)
        return life

    def kill(self) -> None:
        """Its process ends; the next one of its number is another."""
        self.cluster.note("client killed", self.life)
        self.life.kill()
        self.cluster.network.died(self.life, told=True)
        self.life = self._new_life()

    def database(self) -> AsyncDatabase:
        """To be called, and used, in its life. As kvorum.native.remote.connect_backend."""
        cluster = self.cluster
        timers, rng, (kv, tso_kv) = self._connected(2)
        oracle = remote_tso(tso_kv, timers, rng)
        txn = TxnClient(kv, oracle, self.clock, rng, timers, budget_ms=cluster.plan.budget_ms)

        async def close() -> None:
            await txn.close()
            tso_kv.close()
            kv.close()

        backend = NativeBackend(kv, txn, oracle.take, timers, close=close)
        if cluster.plan.replica_age_ms:
            backend.read_past_near(("", "", ""), rng)
            txn.replica_age_ms = cluster.plan.replica_age_ms
        return Database(backend, rng, cluster.plan)

    def _connected(self, count: int) -> tuple[SimTimers, SimRng, list[KvClient]]:
        """Clients of the cluster, each with connections of its own."""
        cluster = self.cluster
        rng = SimRng(cluster.rng.getrandbits(64))
        timers = SimTimers(cluster.loop, self.clock)
        addresses = [(host(i), PORT) for i in range(1, cluster.plan.nodes + 1)]
        cluster.rng.shuffle(addresses)
        heard = Heard()
        connect = tcp_connector(timers, "", time=heard)
        clients = [
            KvClient(SocketChannels(addresses, connect), timers, rng, heard=heard)
            for _ in range(count)
        ]
        return timers, rng, clients


class WorkerProcess(ClientProcess):
    """A process that runs procedures. As kvorum.programs.worker, its steps in the same process."""

    worker: Worker | None = None

    def start(self, types: Sequence[ProcedureType]) -> None:
        self.life.spawn(self._work(types))

    async def _work(self, types: Sequence[ProcedureType]) -> None:
        timers, rng, (kv, calls, tso_kv) = self._connected(3)
        txn = TxnClient(kv, remote_tso(tso_kv, timers, rng), self.clock, rng, timers)
        seen = RemoteCatalog(kv)
        self.worker = Worker(
            f"worker-{self.number}-{self.life.epoch}",
            "default",
            calls,
            KvStore(txn),
            types,
            TableIds(CatalogCache(seen, timers, CATALOG_TTL_S, seen.claim)),
            self.clock,
            timers,
            rng,
        )
        await self.worker.run()


class Database(AsyncDatabase):
    """Whose transactions live as long as the plan says, and whose tables have as many replicas."""

    def __init__(self, backend: NativeBackend, rng: Rng, plan: Plan) -> None:
        super().__init__(backend, rng)
        self._ttl_ms, self._replicas = plan.ttl_ms, plan.replicas

    async def create_table(self, ns: str, name: str, **spec: Any) -> TableInfo:
        if self._replicas:
            spec["replicas"] = self._replicas
        return await super().create_table(ns, name, **spec)

    def transaction(self, **how: Any) -> Any:
        return super().transaction(**{"ttl_ms": self._ttl_ms, **how})


class Cluster:
    """All processes of a run."""

    def __init__(self, loop: LivesLoop, seed: int, plan: Plan, trace: Trace) -> None:
        self.loop, self.plan, self.trace = loop, plan, trace
        self.rng = random.Random(seed * 4 + 1)
        self.disk_rng = SimRng(seed * 4 + 2)
        self.network = Network(loop, random.Random(seed * 4 + 3), trace)
        loop.network = self.network
        self.lives: list[Life] = []
        self.violations: list[str] = []
        self.faulty = False
        self.on_persist: Callable[[NodeProcess], object] = lambda _node: None
        """Told of each sync that begins."""
        self.on_persisted: Callable[[NodeProcess], object] = lambda _node: None
        """Told of each that has ended, before the node knows it."""
        self.nodes = {n: NodeProcess(self, n) for n in range(1, plan.nodes + 1)}
        self.clients = {
            n: ClientProcess(self, n) for n in range(CLIENTS_FROM, CLIENTS_FROM + plan.clients)
        }

    def note(self, what: str, *of: object) -> None:
        self.trace.note(" ".join([what, *map(str, of)]))

    def fail(self, violation: str) -> None:
        self.note("VIOLATION", violation)
        self.violations.append(violation)

    def later(self, delay_s: float, fn: Callable[..., object], *args: object) -> None:
        """In no process' name."""
        self.loop.call_later(delay_s, fn, *args, context=Context())

    def look_at_the_dead(self, node: Node) -> None:
        """What it would have told its operator."""
        dispatcher = getattr(node.store, "dispatcher", None)
        if dispatcher is None:
            return
        if dispatcher.faults.count:
            self.fail(f"node {node.config.node_id}: internal errors, see the log")
        for method, name in METHODS.items():
            probes.hit(f"request: {name}", dispatcher.counters.requests[method])
        counters = node.store.manager.counters
        probes.hit("snapshot installed", counters.snapshots_installed)
        probes.hit("log cut", counters.truncations)

    async def until(self, holds: Callable[[], bool], within_s: float, what: str) -> bool:
        """Look until it holds; a violation if it does not in time."""
        deadline = self.loop.time() + within_s
        while not holds():
            if self.loop.time() > deadline:
                self.fail(f"not within {within_s:.0f} s: {what}")
                return False
            await asyncio.sleep(0.02)
        return True

    async def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        await self.until(self.all_ready, 60, "the cluster is ready")

    def all_ready(self) -> bool:
        return all(node.ready and node.running for node in self.nodes.values())


async def outcome_of(work: Awaitable[object]) -> object:
    """Its result, or its KvorumError as a value."""
    try:
        return await work
    except KvorumError as error:
        return error
