"""Procedure steps per second inside one process: engine, transactions, partition, log and disk, but
no sockets. `python -m bench.micro_procedures [seconds]` prints one JSON line.

64 submissions are in flight; each is submitted, awaited and acknowledged, as a client would. Per
step count: procedures/s, steps/s, and CPU µs of the process per step. `store` is `rocks` (a synced
log, as in production) or `memory` (the engine of procedures alone).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.config import NodeConfig
from kv.base.ids import TableId
from kvorum.local.ports import system_ports
from kvorum.storage.store import Store
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.kv_store import KvStore
from procedures.engine.memory_store import MemoryStore
from procedures.engine.procedure import Lock, Outcome, done, exclusive
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import Registry, procedure, step
from procedures.engine.store import ProcedureStore
from procedures.engine.submission import Submission

IN_FLIGHT = 64
VALUE = "v" * 100


@procedure("micro.async")
class AsyncSteps:
    """Each step keeps 100 bytes."""

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        return _work(ctx)


@procedure("micro.early")
class EarlySteps:
    """The first of them is committed with the submission."""

    @step(first=True, early=True)
    async def work(self, ctx: StepContext) -> Outcome:
        return _work(ctx)


@procedure("micro.plain")
class PlainSteps:
    """The same in threads."""

    @step(first=True)
    def work(self, ctx: StepContext) -> Outcome:
        return _work(ctx)


_rows = itertools.count()


def _some_row(_steps: int) -> list[Lock]:
    return [exclusive(f"row/{next(_rows)}")]


@procedure("micro.locked", locks=_some_row)
class LockedSteps:
    """Each procedure has a lock that nobody else wants."""

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        return _work(ctx)


@procedure("micro.queued", locks=[exclusive("row/one")])
class QueuedSteps:
    """All want the same lock."""

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        return _work(ctx)


def _work(ctx: StepContext) -> Outcome:
    n = ctx.state["n"] = ctx.state.get("n", 0) + 1
    ctx.state["value"] = VALUE
    return done(n) if n >= ctx.args else go_on("work")


class NoTables:
    async def resolve(self, namespace: str, table: str) -> TableId:
        raise AssertionError("no table is used here")

    async def writable(self, namespace: str, table: str) -> TableId:
        return await self.resolve(namespace, table)


async def case(executor: Executor, name: str, steps: int, seconds: float) -> dict[str, Any]:
    """One window with IN_FLIGHT procedures under way."""
    ended = 0
    latencies: list[float] = []
    stop = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal ended
        while time.perf_counter() < stop:
            begun = time.perf_counter()
            id = await executor.submit(Submission(name, steps, "bench"))
            record = await executor.wait(id, 60_000)
            assert record.seq == steps, record
            latencies.append(time.perf_counter() - begun)
            await executor.acknowledge(id)
            ended += 1

    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(IN_FLIGHT)))
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "procedures_s": round(ended / took),
        "steps_s": round(ended * steps / took),
        "cpu_us_per_step": round(cpu * 1e6 / max(1, ended * steps), 1),
        "p50_ms": round(statistics.median(latencies) * 1000, 2),
    }


async def cases(store: ProcedureStore, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    types = Registry([AsyncSteps, EarlySteps, PlainSteps, LockedSteps, QueuedSteps])
    timers = LoopTimers(loop)
    async with Executor(store, types, NoTables(), SystemClock(), timers, SystemRng()) as executor:
        return {
            f"{kind}_{steps}": await case(executor, f"micro.{kind}", steps, seconds)
            for kind in ("async", "early", "plain", "locked", "queued")
            for steps in (1, 10)
        }


async def main(seconds: float) -> dict[str, Any]:
    out: dict[str, Any] = {"bench": "micro_procedures", "in_flight": IN_FLIGHT}
    out["memory"] = await cases(MemoryStore(), seconds)
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="kvorum-bench-"))
        failed: list[BaseException] = []
        store = Store(system_ports(asyncio.get_running_loop()), failed.append)
        await store.open(NodeConfig(data=Path(directory), port=None))
        stack.push_async_callback(store.close)
        stack.push_async_callback(store.drain)
        out["rocks"] = await cases(KvStore(store.txn), seconds)
        assert not failed, failed
    return out


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0))))
