"""The key-value part of a node: two databases, consensus, partitions, the oracle, and a client of
its own.

    state DB ── partitions ── dispatcher ── native clients, the local client
    log DB ──── raft host ──┘     └── oracle (leads with the meta partition)

Opening order: state DB, log DB, identity, groups (replayed from the log), meta partition of the
first start, oracle. Closing is the reverse: no new requests, what is under way gets its answer, a
last sync, then the databases.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgpack

from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, KvorumError, Unavailable
from kv.base.ids import META_PARTITION, NodeId
from kv.base.keys import META_RANGE
from kv.base.limits import ENTRY_BYTES_MAX
from kv.base.methods import TSO
from kv.client.client import KvClient, local_client
from kv.partition.scheduler import Scheduler
from kv.partition.timestamps import AtOnce
from kv.replica.manager import ReplicaManager
from kv.replica.room import Room
from kv.server.dispatcher import Dispatcher
from kv.storage.engine import LOG_FAMILIES, STATE_FAMILIES, Engine
from kv.storage.log import LogAdapter
from kvorum.measure import Histogram, TimedSyncer
from kvorum.ports import Ports, Syncer
from raft.api import RaftConfig
from raft.host import RaftHost
from tso.client import LocalTso
from tso.service import Done, TsoService, bound_of, bound_record
from txn.client import TxnClient

_IDENTITY_KEY: Final = b"node"
_TSO_KEY: Final = b"tso"
_LEAD_S_MAX: Final = 30.0
_LOOK_S: Final = 0.002
_LAST_SYNC_S_MAX: Final = 10.0
_ROOM_S: Final = 0.25

log = logging.getLogger(__name__)


class Identity(NamedTuple):
    """Who this node is; chosen at its first start and kept in family meta."""

    cluster: str
    node: NodeId


class Store:
    """See the module. `open` once, then `close` once."""

    def __init__(self, ports: Ports, on_fatal: Callable[[BaseException], None]) -> None:
        self.ports = ports
        self._on_fatal = on_fatal
        self._engines: list[Engine] = []
        self._syncer: Syncer | None = None
        self.sync_taken = Histogram()
        self._truncating: asyncio.Task[None] | None = None

    async def open(self, directory: Path, node: NodeId) -> None:
        """Open or create everything in `directory`. Raises InvalidArgument, Corruption,
        Unavailable: nothing stays open.
        """
        try:
            await self._open(directory, node)
        except BaseException:
            await self._let_go()
            raise

    async def _open(self, directory: Path, node: NodeId) -> None:
        ports = self.ports
        self.state = self._engine(directory / "state", STATE_FAMILIES)
        log = self._engine(directory / "log", LOG_FAMILIES)
        self.identity = self._identify(directory, log, node)
        self._syncer = TimedSyncer(ports.syncer(log), ports.clock.monotonic, self.sync_taken)
        self.host = RaftHost(
            node_id=self.identity.node,
            log_db=LogAdapter(log),
            syncer=self._syncer,
            timers=ports.timers,
            rng=ports.rng,
            on_fatal=self._on_fatal,
            config=RaftConfig(
                entry_bytes_max=ENTRY_BYTES_MAX, append_bytes_max=2 * ENTRY_BYTES_MAX
            ),
        )
        self.tso = TsoService(
            ports.clock, ports.timers, read_bound=self._read_bound, persist=self._persist_bound
        )
        self.room = Room(self._engines)
        scheduler = Scheduler(ports.timers.call_soon, ports.clock, self.host.defer)
        self.manager = ReplicaManager(
            self.state,
            self.host,
            timestamps=AtOnce(self.tso.take),
            scheduler=scheduler,
            timers=ports.timers,
            in_thread=ports.in_thread,
            on_fatal=self._on_fatal,
            room=self.room,
        )
        await self.manager.open_all()
        await self.manager.create(
            PartitionDescriptor(META_PARTITION, *META_RANGE, 1, (self.identity.node,))
        )
        self.dispatcher = Dispatcher(
            node_id=self.identity.node,
            partitions=self.manager,
            timers=ports.timers,
            rng=ports.rng,
        )
        self.dispatcher.register(TSO, self.tso.handle)
        await self._lead()
        self._truncating = asyncio.get_running_loop().create_task(self.manager.run(), name="logs")
        self.kv: KvClient = local_client(self.dispatcher, ports.timers, ports.rng)
        oracle = LocalTso(self.tso, ports.timers, ports.rng)
        self.txn = TxnClient(self.kv, oracle, ports.clock, ports.rng, ports.timers)
        self.oracle = oracle

    def _engine(self, path: Path, families: tuple[str, ...]) -> Engine:
        engine = self.ports.open_engine(path, families)
        self._engines.append(engine)
        return engine

    # --------------------------------------------------------------------------------- identity

    def _identify(self, directory: Path, log: Engine, node: NodeId) -> Identity:
        """The stored identity, or a new one. It is durable with the meta partition's descriptor,
        before the log has any record, or not at all: so a log beside an empty state DB has lost
        its data, and starting anew would hide that. Raises Corruption.
        """
        record = self.state.getter("meta")(_IDENTITY_KEY)
        if record is not None:
            if not intact(_IDENTITY_KEY, record):
                raise Corruption(
                    "the node's identity is damaged: restore the state DB from a backup",
                    details={"key": _IDENTITY_KEY, "family": "meta"},
                )
            cluster, stored = msgpack.unpackb(record[:-CRC_BYTES])
            return Identity(cluster, NodeId(stored))
        if any(log.scan(name, b"", b"", limit=1) for name in LOG_FAMILIES):
            raise Corruption(
                f"{directory / 'log'} is the log of a node whose data are not in "
                f"{directory / 'state'}: the two belong together; restore {directory} as a whole "
                "from a copy",
                details={"path": str(directory)},
            )
        made = Identity(self.ports.rng.token(8).hex(), node)
        batch = self.state.batch()
        body = msgpack.packb([made.cluster, made.node])
        batch.put(_IDENTITY_KEY, seal(_IDENTITY_KEY, body), self.state.family("meta"))
        self.state.write(batch)
        return made

    # ----------------------------------------------------------------------------------- oracle

    def _read_bound(self) -> int:
        return bound_of(_TSO_KEY, self.state.getter("meta")(_TSO_KEY))

    def _persist_bound(self, bound: int, done: Done) -> None:
        machine = self.manager.by_id(META_PARTITION)
        if machine is None:
            done(Unavailable("the meta partition is not open"))
            return
        machine.put_meta(_TSO_KEY, bound_record(_TSO_KEY, bound), done)

    async def _lead(self) -> None:
        """Wait until the lone voter leads every partition it has, then let the oracle serve."""
        deadline = self.ports.timers.monotonic() + _LEAD_S_MAX
        while not all(replica.serving() for replica in self.manager.replicas()):
            if self.ports.timers.monotonic() > deadline:
                raise Unavailable(
                    f"not every partition has a leader after {_LEAD_S_MAX:.0f} s; see the log"
                )
            await asyncio.sleep(_LOOK_S)
        self.tso.role(leader=True)

    async def watch_room(self) -> None:
        """Refuse new writes at the door while a database has no room for them, until cancelled.
        (Partitions look at it by themselves after so many bytes: kv.replica.room.)
        """
        while True:
            self.room.look()
            refusal = self.room.refusal
            if (refusal is None) != (self.dispatcher.no_room is None):
                log.warning("writes %s", f"are refused: {refusal}" if refusal else "go on again")
            self.dispatcher.no_room = refusal
            await asyncio.sleep(_ROOM_S)

    # --------------------------------------------------------------------------------- figures

    def replica_figures(self) -> Mapping[str, int]:
        """For metrics: how each partition stands, by names of kvorum/http/figures.py."""
        figures: dict[str, int] = {}
        for replica in self.manager.replicas():
            id_, state = replica.descriptor.id, replica.state
            figures[f"leader.{id_}"] = int(replica.serving())
            figures[f"term.{id_}"] = replica.group.term
            figures[f"applied_index.{id_}"] = state.index
            figures[f"waiting.{id_}"] = replica.machine.waiting
            figures[f"intents.{id_}"] = len(state.locks.by_key)
            figures[f"live_bytes.{id_}"] = state.live_bytes
        return figures

    def tso_figures(self) -> Mapping[str, int]:
        """For metrics: the oracle."""
        own = {name.removeprefix("tso."): value for name, value in self.tso.stats().items()}
        return {"last_timestamp": self.tso.last, **own}

    # ------------------------------------------------------------------------------------- end

    async def drain(self) -> None:
        """Take no new requests; everything that was proposed gets its answer."""
        await self.txn.close()
        await self.dispatcher.close()
        synced = asyncio.Event()
        self.host.barrier(synced.set)
        try:
            async with asyncio.timeout(_LAST_SYNC_S_MAX):
                await synced.wait()
        except TimeoutError:
            return  # the disk does not answer: what is open stays unknown to its clients

    async def close(self) -> None:
        """Stop everything and let go of the directory."""
        self.tso.close()
        self.kv.close()
        await self._let_go()

    async def _let_go(self) -> None:
        if self._truncating is not None:
            self._truncating.cancel()
            await asyncio.wait([self._truncating])
            self._truncating = None
        if hasattr(self, "manager"):
            self.manager.close()
        if hasattr(self, "host"):
            self.host.close()
        if self._syncer is not None:
            self._syncer.close()
        engines, self._engines = self._engines, []
        # Whoever still holds a client must not keep the databases open: their handles are in these.
        for name in ("manager", "host", "dispatcher", "tso", "state", "room"):
            self.__dict__.pop(name, None)
        for engine in reversed(engines):
            try:
                await self.ports.in_thread(engine.close)
            except KvorumError as e:
                self._on_fatal(e)
