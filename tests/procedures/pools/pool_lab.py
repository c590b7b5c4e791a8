"""Masters and workers in virtual time, over one memory store; the way between them can be hurt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kv.base import limits
from kv.base.adapters import LoopTimers
from kv.base.errors import KvorumError, Unavailable
from kv.base.node_methods import Handler
from kv.base.ops import Op
from kvorum.testing.simulation.loop import SimLoop
from procedures.engine import records
from procedures.engine.executor import Executor
from procedures.engine.memory_store import Table
from procedures.engine.needs import Needs
from procedures.engine.registry import ProcedureType, Registry
from procedures.pools import service
from procedures.pools.worker import Worker
from tests.procedures.lab import Lab, OneTable
from txn.results import ScanPage


class _Caller:
    """kv.server.dispatcher.Context."""

    rights = None

    def __init__(self, user: str) -> None:
        self.user = user


class TableRows:
    """procedures.pools.rows.Rows over the table of a memory store."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        row = self._table.read(key, self._table.clock)
        return (None, 0) if row is None else (row.value, row.version)

    async def write(self, ops: Sequence[Op]) -> int:
        self._table.refuse(ops, 0)
        return self._table.write(ops)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
        return await self._table.reads().scan(start, end, limit=limit)

    async def now(self) -> int:
        self._table.clock += 1
        return self._table.clock


class Way:
    """From one worker to whoever is master."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.cut = False
        self.lose = 0  # so many answers, that were given, do not arrive
        self.repeat = 0  # so many questions are asked twice: the first answer does not arrive
        self.calls = 0

    async def call_node(self, method: int, *args: Any, budget_ms: int = 0) -> Any:
        self.calls += 1
        await asyncio.sleep(0.0005)
        if self.cut:
            await asyncio.sleep(0.2)
            raise Unavailable("cut off")
        handler = self.office.door.get(method)
        if handler is None:
            await asyncio.sleep(0.02)
            raise Unavailable("no master")
        times = 1
        if self.repeat:  # the answer was lost, and the client asked the same again
            self.repeat, times = self.repeat - 1, 2
        for _ in range(times):
            given = handler(_Caller(self.office.user), list(args))
            answer = given if isinstance(given, list) else await given
        await asyncio.sleep(0.0005)
        if self.cut:
            raise Unavailable("cut off")
        if self.lose:
            self.lose -= 1
            raise Unavailable("the answer is lost")
        return answer


class Office:
    """One store, one master at a time, any number of workers. `types` are the workers'."""

    def __init__(self, loop: SimLoop, types: list[type], *, seed: int = 0, store: Any = None):
        self.lab = Lab(loop, types, seed=seed, store=store)
        self.loop = loop
        self.timers = LoopTimers(loop)
        self.door: dict[int, Handler] = {}
        self.user = ""  # whose the workers are; "" = nobody's in particular
        self.running: dict[str, asyncio.Task[None]] = {}
        self.workers: dict[str, Worker] = {}
        self.ways: dict[str, Way] = {}

    # -- the master
    def executor(self, types: Registry | None = None, store: Any = None) -> Executor:
        """A master that has no code of the workers'."""
        table = getattr(self.lab.store, "inner", self.lab.store).table
        return Executor(
            *(store or self.lab.store, types or Registry(), OneTable()),
            *(self.lab.clock, self.timers, self.lab.rng),
            rows=TableRows(table),
        )

    async def open(self, executor: Executor) -> Executor:
        await executor.__aenter__()
        assert executor.crew is not None
        service.register(executor, self)
        return executor

    async def close(self, executor: Executor) -> None:
        self.door.clear()
        await executor.__aexit__(None, None, None)

    def register(self, method: int, handler: Handler) -> None:
        self.door[method] = handler

    # -- workers
    def types(self, names: Sequence[str] = (), versions: Sequence[int] = ()) -> list[ProcedureType]:
        return [
            t
            for t in self.lab.types.types()
            if (not names or t.name in names) and (not versions or t.version in versions)
        ]

    def hire(
        self,
        name: str = "w1",
        *,
        pool: str = "p",
        types: Sequence[ProcedureType] = (),
        slots: int = 8,
        store: Any = None,
        capacity: Needs = (),
        format: int = records.FORMAT_MORE,
    ) -> Worker:
        """`format`: of the records that it knows all of."""
        way = self.ways[name] = Way(self)
        worker = self.workers[name] = Worker(
            *(name, pool, way, store or self.lab.store, list(types) or self.types()),
            *(OneTable(), self.lab.clock, self.timers, self.lab.rng),
            slots=slots,
            pid=len(self.workers),
            capacity=capacity,
        )
        worker.format = format
        self.running[name] = self.loop.create_task(worker.run())
        return worker

    async def kill(self, name: str) -> None:
        """kill -9: nothing is said any more."""
        self.ways[name].cut = True
        task = self.running.pop(name)
        task.cancel()
        await asyncio.wait([task])

    async def dismiss(self, name: str) -> None:
        """SIGTERM."""
        self.workers[name].stop()
        await self.running.pop(name)

    async def entered(self, name: str = "w1") -> None:
        async with asyncio.timeout(10):
            await self.workers[name].entered.wait()

    async def until(self, condition: Any, seconds: float = 30.0) -> float:
        """Seconds that it took."""
        began = self.loop.time()
        while not condition():
            assert self.loop.time() < began + seconds, "it never happened"
            await asyncio.sleep(0.005)
        return self.loop.time() - began

    async def end(self) -> None:
        for name in list(self.running):
            await self.kill(name)


def errors() -> type[KvorumError]:
    return KvorumError


LEASE_S = limits.WORKER_LEASE_MS / 1000
