"""The real participants for the same tests: partition machines, raft and engine in memory,
dispatcher and local client.

Virtual time all the same; a sync of the log takes a random moment. Partitions do not split here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kv.base.adapters import LoopTimers
from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from kv.base.methods import PENDING
from kv.base.timestamps import compose
from kv.base.waits import Waits
from kv.client.client import KvClient, local_client
from kv.mvcc.records import decode_txn, parse_txn_key
from kv.partition.ports import Taken
from kv.partition.scheduler import Scheduler
from kv.partition.timestamps import AtOnce, OfOracle
from kv.replica.manager import ReplicaManager
from kv.server.dispatcher import Dispatcher
from kv.storage.engine import STATE_FAMILIES
from kv.storage.memory import MemoryEngine
from kvorum.testing.simulation.loop import SimClock, SimLoop, SimRng
from raft.host import RaftHost
from raft.memory import MemoryLogDB, MemorySyncer
from txn.intents.lock_waits import Alone, WaitCare
from txn.intents.resolver import Resolver
from txn.shared.deadlines import Background


class Late(OfOracle):
    """Timestamps of an oracle at another node: asking takes a moment, and so does the answer."""

    def __init__(self, loop: SimLoop, take: Callable[[int], int], late_s: float) -> None:
        self._loop, self._take, self._late_s = loop, take, late_s
        self.known = 0

    def _later(self, fn: Callable[..., object], *args: object) -> None:
        self._loop.call_later(self._loop.rng.random() * self._late_s, fn, *args)

    def request(self, n: int, done: Taken) -> None:
        self._later(self._reach, n, done)

    def _reach(self, n: int, done: Taken) -> None:
        self._later(self._tell, self._take(n), n, done)

    def _tell(self, first: int, n: int, done: Taken) -> None:
        self.known = max(self.known, first + n - 1)
        done(first, None)


class RealCluster:
    """One node with its partitions cut at `borders`."""

    def __init__(
        self,
        loop: SimLoop,
        borders: list[bytes],
        *,
        engine: MemoryEngine | None = None,
        log: MemoryLogDB | None = None,
        last_ts: int = 0,
        late_s: float = 0.0,
    ) -> None:
        """`late_s`: how long timestamps take at most, each way; 0 = the oracle is here."""
        self.loop = loop
        self.late_s = late_s
        self.clock = SimClock(loop)
        self.last_ts = last_ts
        self.fatal: list[BaseException] = []
        self._caring: asyncio.Task[None] | None = None  # once started
        self._timers = LoopTimers(loop)
        self._borders = borders
        self._engine = engine or MemoryEngine(STATE_FAMILIES)
        self._log = log = log or MemoryLogDB()
        self.host = RaftHost(
            node_id=1,
            log_db=log,
            syncer=MemorySyncer(log, self._timers, lambda: loop.rng.random() * 0.003),  # type: ignore[arg-type]
            timers=self._timers,
            rng=SimRng(1),
            on_fatal=self.fatal.append,
        )
        self.manager = ReplicaManager(
            self._engine,
            self.host,
            timestamps=Late(loop, self.take, late_s) if late_s else AtOnce(self.take),
            scheduler=Scheduler(loop.call_soon, self.clock, self.host.defer),
            timers=self._timers,
            in_thread=self._at_once,
            on_fatal=self.fatal.append,
            waits=Waits(1, self._timers.call_later),
        )
        self.dispatcher = Dispatcher(
            node_id=NodeId(1), partitions=self.manager, timers=self._timers, rng=SimRng(2)
        )

    @staticmethod
    async def _at_once(fn: Callable[[], None]) -> None:
        fn()

    async def start(self) -> None:
        starts, ends = [b"", *self._borders], [*self._borders, b""]
        await self.manager.open_all()
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            await self.manager.create(
                PartitionDescriptor(PartitionId(i + 1), start, end, 1, (NodeId(1),))
            )
        self.start_caring()

    def start_caring(self) -> None:
        """Look after what waits, as every node does; `start` does it by itself."""
        waits = self.manager.waits
        background = Background()
        resolver = Resolver(self.kv(), self._timers, SimRng(4), background)
        self.care = WaitCare(waits, resolver, Alone(waits), self._timers)
        self._caring = background.spawn(self.care.run(), "waits")

    def crash(self) -> RealCluster:
        """The node after a power loss: both databases keep some prefix of what was not synced."""
        self._stop_caring()
        self.manager.close()
        self.host.close()
        rng = self.loop.rng
        kept = int(rng.random() * (self._log.unsynced + 1))
        return RealCluster(
            self.loop,
            self._borders,
            engine=self._engine.crash(rng),
            log=self._log.crash(kept),
            last_ts=self.last_ts + 1000,
            late_s=self.late_s,
        )

    def _stop_caring(self) -> None:
        if self._caring is not None:
            self._caring.cancel()

    def close(self) -> None:
        self._stop_caring()
        self.host.close()
        assert not self.fatal, self.fatal

    def take(self, n: int = 1) -> int:
        first = max(self.last_ts + 1, compose(self.clock.now_ms()))
        self.last_ts = first + n - 1
        return first

    def kv(self) -> KvClient:
        return local_client(self.dispatcher, self._timers, SimRng(3))

    def locked(self) -> list[bytes]:
        """Keys with an intent."""
        return [key for r in self.manager.replicas() for key in sorted(r.state.locks)]

    def pending(self) -> list[int]:
        """Transactions whose record says pending."""
        found = self._engine.scan("txn", b"", b"\xff" * 8192)
        return [
            parse_txn_key(key)[1] for key, row in found if decode_txn(key, row).status == PENDING
        ]
