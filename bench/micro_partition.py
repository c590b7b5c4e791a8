"""What a put, a get and a batch row cost through machine, RaftHost and RocksDB, without sockets.

    python -m bench.micro_partition [--seconds 2] [--callers 256] [--profile put] [--partitions 200]

One JSON line. CPU is the process's (loop and sync thread); callers are callbacks in the same
process, so their small share is in the figures. Batches of `callers` requests are in flight: each
caller sends its next request when it has its reply. With many `--partitions` only puts are
measured, spread over all of them: what an entry costs that few puts share.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.micro import print_measured, profiled
from kv.base import methods
from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from kv.base.intents import NOBODY
from kv.base.limits import ENTRY_BYTES_MAX
from kv.base.timestamps import compose
from kv.partition.machine import PartitionMachine
from kv.partition.ports import Connection
from kv.partition.scheduler import Scheduler
from kv.partition.timestamps import AtOnce
from kv.replica.manager import ReplicaManager
from kv.replica.replica import Replica
from kv.storage.engine import LOG_FAMILIES, STATE_FAMILIES
from kv.storage.log import LogAdapter, ThreadSyncer
from kv.storage.open_engine import open_engine
from raft.api import RaftConfig
from raft.host import RaftHost

KEYS = 20_000


class Machine(Protocol):
    def submit(self, conn: Connection, request: list[Any], /) -> object: ...


class Many:
    """The machines of all partitions, which are numbered from 1 on."""

    def __init__(self, machines: Sequence[PartitionMachine]) -> None:
        self._machines = machines

    def submit(self, conn: Connection, request: list[Any], /) -> None:
        self._machines[request[3] - 1].submit(conn, request)


class Callers:
    """A connection with `n` callers that share it, each with one request in flight."""

    author = NOBODY

    def __init__(self, machine: Machine, request: Callable[[int], list[Any]]) -> None:
        self.machine, self.request = machine, request
        self.done = self.errors = 0
        self.until = 0.0
        self.idle = asyncio.Event()
        self._flying = 0
        self._replied: list[list[Any]] = []

    def start(self, n: int, seconds: float) -> None:
        self.until = time.perf_counter() + seconds
        for i in range(n):
            self._flying += 1
            self.machine.submit(self, self.request(i))

    def reply(self, row: list[Any]) -> None:
        self._replied.append(row)

    def ready(self, wake: Callable[[], None]) -> bool:
        return True

    def flush(self) -> None:
        rows, self._replied = self._replied, []
        self.done += len(rows)
        self.errors += sum(row[1] for row in rows)
        if time.perf_counter() >= self.until:
            self._flying -= len(rows)
            if not self._flying:
                self.idle.set()
            return
        submit, request = self.machine.submit, self.request
        for row in rows:
            submit(self, request(row[0]))


class Oracle:
    def __init__(self) -> None:
        self._last = 0
        self._clock = SystemClock()

    def __call__(self, n: int) -> int:
        first = max(self._last + 1, compose(self._clock.now_ms()))
        self._last = first + n - 1
        return first


async def in_thread(fn: Callable[[], None]) -> None:
    await asyncio.to_thread(fn)


async def made(manager: ReplicaManager, keys: list[bytes], partitions: int) -> list[Replica]:
    """So many partitions of these keys, once they are led."""
    here = len(keys) // partitions
    starts = [b"", *(keys[i * here] for i in range(1, partitions)), b""]
    for i in range(partitions):
        id_, voters = PartitionId(i + 1), (NodeId(1),)
        await manager.create(PartitionDescriptor(id_, starts[i], starts[i + 1], 1, voters))
    replicas = manager.replicas()
    for _ in range(1000):  # a lone voter leads after its first sync
        if all(replica.serving() for replica in replicas):
            break
        await asyncio.sleep(0.01)
    return replicas


async def measure(
    data: Path, seconds: float, callers: int, profile: str, partitions: int
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    timers, clock, oracle = LoopTimers(loop), SystemClock(), Oracle()
    state = open_engine("rocks", data / "state", STATE_FAMILIES)
    log = open_engine("rocks", data / "log", LOG_FAMILIES)
    syncer = ThreadSyncer(log, loop)
    fatal: list[BaseException] = []
    host = RaftHost(
        node_id=1,
        log_db=LogAdapter(log),
        syncer=syncer,
        timers=timers,
        rng=SystemRng(),
        on_fatal=fatal.append,
        config=RaftConfig(entry_bytes_max=ENTRY_BYTES_MAX, append_bytes_max=2 * ENTRY_BYTES_MAX),
    )
    manager = ReplicaManager(
        state,
        host,
        timestamps=AtOnce(oracle),
        scheduler=Scheduler(loop.call_soon, clock, host.defer),
        timers=timers,
        in_thread=in_thread,
        on_fatal=fatal.append,
    )
    keys = [b"\x00\x00\x00\x64key%013d" % i for i in range(KEYS)]
    replicas = await made(manager, keys, partitions)
    machine, far = replicas[0].machine, time.monotonic() + 3600
    many_machines = Many([replica.machine for replica in replicas])
    rng, value = random.Random(1), b"v" * 100

    def put(rid: int) -> list[Any]:
        return [rid, methods.PUT, far, 1, 1, keys[rng.randrange(KEYS)], value, None, 0]

    def put_anywhere(rid: int) -> list[Any]:
        at = rng.randrange(KEYS)
        id_ = min(at // (KEYS // partitions), partitions - 1) + 1
        return [rid, methods.PUT, far, id_, 1, keys[at], value, None, 0]

    def get(rid: int) -> list[Any]:
        return [rid, methods.GET, far, 1, 1, keys[rng.randrange(KEYS)], 0, None]

    def batch(rid: int) -> list[Any]:
        at = rng.randrange(KEYS - 100)
        ops = [[methods.OP_PUT, key, value, None, 0] for key in keys[at : at + 100]]
        return [rid, methods.WRITE, far, 1, 1, ops, 0, 0]

    def mget2(rid: int) -> list[Any]:
        pair = [keys[rng.randrange(KEYS)], keys[rng.randrange(KEYS)]]
        return [rid, methods.MGET, far, 1, 1, pair, oracle(1), None]

    def write2(rid: int) -> list[Any]:
        """A transaction of two keys; blind, since conflicts are not what is measured."""
        at = rng.randrange(KEYS - 1)
        ops = [[methods.OP_PUT, key, value, None, 0] for key in keys[at : at + 2]]
        return [rid, methods.WRITE, far, 1, 1, ops, oracle(1), methods.BLIND]

    def scan(rid: int) -> list[Any]:
        at = rng.randrange(KEYS - 1000)
        return [rid, methods.SCAN, far, 1, 1, keys[at], b"", 0, 1000, False, None]

    result: dict[str, Any] = {"case": "micro_partition", "callers": callers}
    cases = (
        ("put", put, callers, 1),
        ("put1", put, 1, 1),
        ("get", get, callers, 1),
        ("mget2", mget2, callers, 1),
        ("write2", write2, callers, 1),
        ("batch_row", batch, 8, 100),
        ("scan_row", scan, 8, 1000),
    )
    if partitions > 1:
        result["partitions"] = partitions
        cases = (("warm", put_anywhere, callers, 1), ("put", put_anywhere, callers, 1))
    for name, request, n, rows in cases:
        many = Callers(machine if partitions == 1 else many_machines, request)
        syncs, entries = host.counters.syncs, machine.counters.entries
        began, cpu = time.perf_counter(), time.process_time()
        with profiled(profile == name):
            many.start(n, seconds)
            await many.idle.wait()
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert not many.errors, many.errors
        assert not fatal, fatal
        result[name + "_per_s"] = round(many.done * rows / took)
        result[name + "_cpu_us"] = round(cpu / (many.done * rows) * 1e6, 2)
        result[name + "_syncs"] = host.counters.syncs - syncs
        result[name + "_entries"] = machine.counters.entries - entries
    manager.close()
    host.close()
    syncer.close()
    log.close()
    state.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--callers", type=int, default=256)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--profile", default="", help="name of the case to profile")
    args = parser.parse_args()
    print_measured(
        lambda data: measure(data, args.seconds, args.callers, args.profile, args.partitions)
    )


if __name__ == "__main__":
    main()
