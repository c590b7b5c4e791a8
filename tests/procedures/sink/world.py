"""The sink over the real stack in one process and virtual time: engines in memory, consensus,
partitions, transactions, procedures.

`Client` stands for Spark: it stages, seals and commits over the node's methods. A `Life` is one
process of the node's procedures: it can die at any message that it sends to the partitions, while
the store below lives on; `World.power_loss` kills the store, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack

from kv.base import limits, methods, system
from kv.base.adapters import LoopTimers
from kv.base.config import NodeConfig
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError
from kv.base.ids import NodeId, PartitionId
from kv.base.keys import table_prefix, table_range, u32
from kv.client.client import KvClient
from kv.storage.memory import MemoryEngine, TimedSyncer
from kvorum.local.ports import Ports
from kvorum.storage.store import Store
from kvorum.testing.simulation import loop as simloop
from kvorum.testing.simulation.loop import SimClock, SimLoop, SimRng
from procedures.engine.executor import Executor
from procedures.engine.kv_store import KvStore
from procedures.engine.registry import Registry
from procedures.sink.format.sink_records import (
    Attempt,
    AttemptState,
    add_crc,
    attempt_key,
    attempt_of,
    pack_chunk,
    pack_ordered,
    task_of,
)
from procedures.sink.sink_clean import SinkClean
from procedures.sink.sink_commit import SinkCommit
from procedures.sink.sink_ports import Tables
from procedures.sink.sink_service import SinkService
from procedures.sink.spark_job import SparkJob
from tests.procedures.lab import OneTable
from txn.client import TxnClient

TABLE = 100
OTHER = 101
SYNC_S = 0.001
QUERIES = frozenset(
    {methods.GET, methods.MGET, methods.SCAN, methods.HEARTBEAT, methods.LOOKUP, methods.TSO}
)

Rows = dict[bytes, bytes | None]


class _Syncer(TimedSyncer):
    def close(self) -> None:
        """Nothing is held."""


class DyingKv:
    """A client of the node whose process dies at its `dies_at`-th change, just before it is sent
    (or, `after`, when its answer would come). Dead: nothing is sent, nothing comes back.
    """

    def __init__(self, inner: KvClient, dies_at: int, *, after: bool) -> None:
        self.inner, self.dies_at, self.after = inner, dies_at, after
        self.changes = 0
        self.sent: list[int] = []
        self.died = asyncio.Event()

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> Any:
        if self.died.is_set():
            await self._nothing()
        last = False
        if method not in QUERIES:
            self.changes += 1
            self.sent.append(method)
            last = self.changes == self.dies_at
        if last and not self.after:
            self.died.set()
            await self._nothing()
        result: Any = None
        failed: KvorumError | None = None
        try:
            result = await self.inner.call(method, key, *args, budget_ms=budget_ms)
        except KvorumError as error:
            failed = error
        if last:
            self.died.set()
        if self.died.is_set():
            await self._nothing()
        if failed is not None:
            raise failed
        return result

    async def _nothing(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def call_node(self, method: int, *args: Any, budget_ms: int = 0) -> Any:
        return await self.inner.call_node(method, *args, budget_ms=budget_ms)

    async def locate(self, key: bytes) -> PartitionDescriptor:
        return await self.inner.locate(key)


class Life:
    """One process: transactions, executor, sink."""

    def __init__(self, world: World, dies_at: int = 0, *, after: bool = False) -> None:
        store = world.store
        self.kv = DyingKv(store.kv, dies_at, after=after)
        timers = LoopTimers(world.loop)
        self.txn = TxnClient(self.kv, store.oracle, world.clock, world.rng, timers)
        registry = Registry()
        self.tables: Tables | None = None
        registry.add(
            SinkCommit, make=lambda: SinkCommit(self.txn, self.executor.submit, self.tables)
        )
        registry.add(SinkClean, make=lambda: SinkClean(self.txn))
        registry.add(SparkJob)
        self.executor = Executor(
            KvStore(self.txn), registry, OneTable(), world.clock, timers, world.rng, threads=1
        )
        self.sink = SinkService(self.txn, self.executor, world.clock)

    async def run(self, work: Callable[[Life], Any]) -> Any:
        """`work(self)` inside the executor; None if the process died before it ended."""

        async def live() -> Any:
            async with self.executor:
                return await work(self)

        task = asyncio.get_running_loop().create_task(live())
        died = asyncio.get_running_loop().create_task(self.kv.died.wait())
        await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            died.cancel()
            await self.txn.close()
            return await task
        task.cancel()
        await asyncio.wait([task])
        await self.txn.close(0)
        return None

    async def idle(self) -> None:
        """Wait until no procedure is left."""
        while self.executor.live():  # noqa: ASYNC110 - polling is good enough in virtual time
            await asyncio.sleep(0.05)


class World:
    """A store with table TABLE in three partitions (below 40, 40-70, from 70 on) and OTHER in
    one.
    """

    def __init__(self, loop: SimLoop, seed: int = 1) -> None:
        self.loop, self.clock, self.rng = loop, SimClock(loop), SimRng(seed)
        self._engines: dict[str, MemoryEngine] = {}
        self.store: Store
        self.broken: list[BaseException] = []

    async def open(self) -> World:
        ports = Ports(
            clock=self.clock,
            timers=LoopTimers(self.loop),
            rng=self.rng,
            open_engine=self._open_engine,
            syncer=lambda engine: _Syncer(engine, LoopTimers(self.loop), lambda: SYNC_S),
            in_thread=_at_once,
        )
        self.store = Store(ports, self.broken.append)
        await self.store.open(NodeConfig(data=Path("sim"), port=None))
        prefix, end = table_range(TABLE)
        bounds = [prefix, prefix + b"40", prefix + b"70", end, table_range(OTHER)[1]]
        for i in range(len(bounds) - 1):
            await self.store.manager.create(
                PartitionDescriptor(PartitionId(10 + i), bounds[i], bounds[i + 1], 1, (NodeId(1),))
            )
        while not all(r.serving() for r in self.store.manager.replicas()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self

    def _open_engine(self, path: Path, families: Sequence[str]) -> Any:
        engine = self._engines.get(path.name)
        if engine is None:
            engine = self._engines[path.name] = MemoryEngine(families)
        return engine

    async def power_loss(self, rng: Any) -> None:
        """The store dies; the next one finds what was synced, and perhaps a little more."""
        for name, engine in self._engines.items():
            self._engines[name] = engine.crash(rng)
        self.store.kv.close()
        self.store.tso.close()
        await self.store._let_go()
        self.broken.clear()
        await self.open()

    async def close(self) -> None:
        await self.store.drain()
        await self.store.close()
        assert not self.broken, self.broken

    # -- oracles

    async def rows(self, table: int = TABLE, at: int = 0) -> dict[bytes, bytes]:
        """The table at one snapshot."""
        start, end = table_range(table)
        found: dict[bytes, bytes] = {}
        resume: bytes | None = start
        at = at or await self.store.txn.now()
        while resume is not None:
            page = await self.store.txn.scan(resume, end, limit=limits.SCAN_ROWS_MAX, at=at)
            found |= {key[4:]: value for key, value, _ in page.items}
            resume = page.resume
        return found

    async def staged(self) -> list[bytes]:
        """Keys of everything that sinks keep besides markers, and the names of what expired."""
        found = []
        for table in (system.SINK_ATTEMPTS, system.SINK_CHUNKS):
            start, end = table_range(table)
            page = await self.store.txn.scan(start, end, limit=1_000)
            assert page.resume is None
            found += [key for key, value, _ in page.items if not _expired(key, value)]
        return found

    async def expired(self) -> list[str]:
        """The attempts that are told to have ended with their lease."""
        page = await self.store.txn.scan(*table_range(system.SINK_ATTEMPTS), limit=1_000)
        return [attempt_of(key) for key, value, _ in page.items if _expired(key, value)]

    def intents(self) -> list[bytes]:
        """The keys that have one. A procedure's own records do not count: an intent that a dead
        process left there is removed by whoever reads it next. Nor does one that only checks, in
        which no reader is interested: it is removed by whoever writes there next, or the collector.
        """
        return [
            key
            for r in self.store.manager.replicas()
            for key, lock in r.state.locks.items()
            if key >= u32(system.SINK_ATTEMPTS) and lock.kind != methods.OP_CHECK
        ]

    async def versions_of_marker(self) -> list[int]:
        """Every version that a marker ever had (none is collected in these tests)."""
        # A process may have died between the flip and the resolution: a reader makes up for it.
        await self.store.txn.scan(*table_range(system.SINK_MARKERS), limit=100)
        await asyncio.sleep(1)
        prefix = table_prefix(system.SINK_MARKERS)
        return [
            1
            for family in ("cur", "hist")
            for key, _ in self._engines["state"].scan(family, prefix, u32(system.SINK_MARKERS + 1))
            if not key.startswith(prefix + b"\x00")
        ]


def _expired(key: bytes, value: bytes) -> bool:
    mine = key.startswith(table_prefix(system.SINK_ATTEMPTS)) and not task_of(key)
    return mine and Attempt.unpack(value).state is AttemptState.EXPIRED


async def _at_once(fn: Callable[[], None]) -> None:
    fn()


@asynccontextmanager
async def opened(loop: SimLoop, seed: int = 1) -> AsyncIterator[World]:
    world = await World(loop, seed).open()
    try:
        yield world
    except BaseException:
        await world.store.close()  # without waiting for what a failed test left behind
        raise
    await world.close()


def pack_plain(keys: Sequence[Any], values: Sequence[bytes | None]) -> bytes:
    """`pack_chunk` as programs before did it."""
    packed: bytes = msgpack.packb([keys, values], use_bin_type=True)
    return packed


class Task:
    """What one Spark task stages: rows cut into chunks of `chunk_rows`."""

    def __init__(
        self,
        part: int,
        name: str,
        rows: Rows,
        chunk_rows: int = 1_000,
        orders: dict[bytes, bytes] | None = None,
    ) -> None:
        self.part, self.name = part, name
        keys = list(rows)
        self.chunks = []
        for at in range(0, len(keys), chunk_rows):
            some = sorted(keys[at : at + chunk_rows])
            values = [rows[k] for k in some]
            # what programs before staged is read, too
            pack = pack_plain if (part + len(self.chunks)) % 3 == 2 else pack_chunk
            self.chunks.append(
                pack(some, values)
                if orders is None
                else pack_ordered(some, values, [orders[k] for k in some])
            )
        self.rows, self.crc = len(rows), 0
        for seq, chunk in enumerate(self.chunks):
            self.crc = add_crc(self.crc, seq, chunk)

    @property
    def manifest(self) -> list[Any]:
        return [self.part, self.name, len(self.chunks), self.rows, self.crc]


class Client:
    """Spark's side of one attempt."""

    def __init__(self, sink: SinkService, attempt: str, table: int = TABLE) -> None:
        self.sink, self.attempt, self.table = sink, attempt, table

    async def stage(self, task: Task, *, last: bool = True) -> None:
        """All chunks and the seal; `last`: the last chunk travels with the seal."""
        whole = len(task.chunks) - (1 if last else 0)
        for seq in range(whole):
            await self.sink.stage(
                self.attempt, self.table, task.part, task.name, seq, task.chunks[seq]
            )
        await self.seal(task, task.chunks[-1] if last else None)

    async def seal(self, task: Task, last: bytes | None = None) -> None:
        await self.sink.seal(
            self.attempt,
            self.table,
            task.part,
            task.name,
            len(task.chunks),
            task.rows,
            task.crc,
            last,
        )

    def request(
        self,
        tasks: Iterable[Task],
        version: int,
        *,
        app: str = "app",
        query: str = "query-1",
        **more: Any,
    ) -> dict[str, Any]:
        return more | {
            "attempt": self.attempt,
            "table": self.table,
            "app": app,
            "version": version,
            "query": query,
            "manifest": [task.manifest for task in tasks],
        }

    async def commit(self, tasks: Iterable[Task], version: int, **names: Any) -> None:
        request = self.request(list(tasks), version, **names)
        while (await self.sink.commit(request, wait_ms=5_000))[0]:
            pass

    async def abort(self) -> None:
        await self.sink.abort(self.attempt)


async def refusal(work: Any) -> KvorumError:
    """The error that `work` ends with."""
    try:
        result = await work
    except KvorumError as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def some_rows(count: int, value: str, *, first: int = 0) -> Rows:
    """Keys over all partitions."""
    return {
        b"%02d/%06d" % (i % 100, i): f"{value}-{i}".encode() for i in range(first, first + count)
    }


def attempt_row(name: str) -> bytes:
    return attempt_key(name)


Work = Callable[[World, Life], Awaitable[None]]


def play(work: Work, seed: int = 0) -> None:
    """Run `work` in a world with one process that does not die."""

    async def main(loop: simloop.SimLoop) -> None:
        async with opened(loop) as world:
            await Life(world).run(lambda life: work(world, life))

    simloop.run(main, seed)
