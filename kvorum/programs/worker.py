"""`kvorum worker`: a process that runs the procedures of its modules for a pool.

    modules ─▶ declarations ─▶ Worker (procedures/pools/worker.py) ─▶ master
                                 ├─▶ its steps run in a process beside it
                                     (kvorum/steps/step_processes.py)
                                 └─▶ and are committed here, through a transaction client of its own

It keeps nothing: killing it loses no step that was acknowledged, and what it held goes to others
within three seconds. SIGTERM lets steps under way end first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.errors import Unavailable
from kv.base.limits import NAME_CHARS_MAX
from kv.base.ports import Rng, Timers
from kv.base.spoken_time import Heard
from kv.base.tls import Tls
from kv.client.client import KvClient
from kv.client.client import connect as connect_kv
from kvorum import observability
from kvorum.api.names import TableIds
from kvorum.native.native import CATALOG_TTL_S
from kvorum.steps.modules import load_types
from kvorum.steps.step_processes import StepProcesses
from procedures.bus.workers import WorkerBus, handlers_in
from procedures.engine.kv_store import KvStore
from procedures.engine.needs import Needs
from procedures.pools.worker import Worker
from sqlproxy.catalog.catalog import CatalogCache
from sqlproxy.catalog.visible_catalog import RemoteCatalog
from tso.client import remote_tso
from txn.client import TxnClient

log = logging.getLogger(__name__)

POOL = "default"
_REACH_MS: Final = 2_000
_AGAIN_S: Final = 1.0


async def reach(
    addresses: Sequence[tuple[str, int]],
    timers: Timers,
    rng: Rng,
    connect: Callable[..., Awaitable[KvClient]] = connect_kv,
    tls: Tls | None = None,
    heard: Heard | None = None,
) -> KvClient:
    """A client of the cluster, as soon as a node answers. Raises what waiting does not cure."""
    while True:
        try:
            return await connect(
                addresses, timers=timers, rng=rng, budget_ms=_REACH_MS, tls=tls, heard=heard
            )
        except Unavailable as error:
            log.warning("no node answers, it is tried again: %s", error)
        await asyncio.sleep(_AGAIN_S * (0.5 + rng.random() / 2))


async def _reach_all(
    count: int,
    addresses: Sequence[tuple[str, int]],
    timers: Timers,
    rng: Rng,
    tls: Tls | None,
) -> list[KvClient]:
    found: list[KvClient] = []
    heard = Heard()
    try:
        for _ in range(count):
            found.append(await reach(addresses, timers, rng, tls=tls, heard=heard))
    except BaseException:
        for client in found:
            client.close()
        raise
    return found


async def serve(
    addresses: Sequence[tuple[str, int]],
    modules: Sequence[str],
    pool: str,
    slots: int,
    threads: int,
    name: str,
    on_ready: Callable[[Worker], None],
    tls: Tls | None = None,
    capacity: Needs = (),
) -> None:
    """Work until SIGTERM or SIGINT. Raises KvorumError if it cannot begin."""
    observability.start_if_asked()
    types = load_types(modules)
    handlers = handlers_in(modules)
    loop = asyncio.get_running_loop()
    timers, rng, clock = LoopTimers(loop), SystemRng(), SystemClock()
    host = socket.gethostname()
    name = name or f"{host[: NAME_CHARS_MAX // 2]}-{os.getpid()}-{rng.token(3).hex()}"
    # Polls wait at the master; bulk data must not delay them, nor they the oracle.
    reaching = loop.create_task(_reach_all(3, addresses, timers, rng, tls))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, reaching.cancel)
    await asyncio.wait([reaching])
    if reaching.cancelled():
        return
    kv, calls, tso_kv = reaching.result()
    oracle = remote_tso(tso_kv, timers, rng)
    txn = TxnClient(kv, oracle, clock, rng, timers)
    seen = RemoteCatalog(kv)
    steps = StepProcesses(modules, timers, threads=threads)
    worker = Worker(
        name,
        pool,
        calls,
        KvStore(txn),
        types,
        TableIds(CatalogCache(seen, timers, CATALOG_TTL_S, seen.claim)),
        clock,
        timers,
        rng,
        slots=slots,
        threads=threads,
        host=host,
        pid=os.getpid(),
        operations=tuple(handlers),
        runner=steps,
        capacity=capacity,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    bus = WorkerBus(name, handlers, calls, timers)
    asking = loop.create_task(bus.run()) if handlers else None
    working = loop.create_task(worker.run())
    entered = loop.create_task(worker.entered.wait())
    try:
        await asyncio.wait([working, entered], return_when=asyncio.FIRST_COMPLETED)
        if entered.done():
            on_ready(worker)
        lives = [working] if asking is None else [working, asking]  # asking never ends by itself
        ended, _ = await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
        for one in ended:
            await one
    finally:
        tasks = [task for task in (working, entered, asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        steps.close()
        await steps.closed()
        await txn.close()
        for client in (tso_kv, calls, kv):
            client.close()
