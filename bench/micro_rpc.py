"""What one request costs in the protocol alone: a no-op method over loopback, client and server in
processes of their own.

    python -m bench.micro_rpc [--seconds 2] [--callers 1,64,256]

Prints one JSON line: per number of concurrent callers on ONE connection operations/s, p50 and p99
in ms, and CPU microseconds per operation of the server and of the client (user + system time of
each process). The server answers GET from a partition that does nothing, so its share is decoding,
routing, the reply and the loop.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import uvloop

from kv.base.adapters import LoopTimers, SystemRng
from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from kv.base.methods import GET, STATS
from kv.client.client import KvClient, connect
from kv.server.dispatcher import Connection, Dispatcher
from kv.server.socket_server import SocketServer

KEY = b"\x00\x00\x00\x64key-of-16-bytes."


class NoOpMachine:
    """Queues and drains like a partition, and answers every request with a constant."""

    def __init__(self) -> None:
        self.descriptor = PartitionDescriptor(PartitionId(1), b"", b"", 1, (NodeId(1),))
        self._queue: list[tuple[Connection, list[Any]]] = []
        self._loop = asyncio.get_running_loop()

    def submit(self, conn: Connection, request: list[Any]) -> None:
        queue = self._queue
        queue.append((conn, request))
        if len(queue) == 1:
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        queue, self._queue = self._queue, []
        touched = {}
        for conn, request in queue:
            conn.reply([request[0], 0, None, 0])
            touched[conn] = None
        for conn in touched:
            conn.flush()


class OnePartition:
    """A node with one partition that does nothing."""

    def __init__(self) -> None:
        self._machine = NoOpMachine()

    def by_id(self, partition: int) -> NoOpMachine | None:
        return self._machine if partition == 1 else None

    def covering(self, key: bytes) -> PartitionDescriptor | None:
        return self._machine.descriptor

    def leader_of(self, partition: int) -> int | None:
        return 1

    def find_txn(self, start_ts: int) -> bytes | None:
        return None

    def led(self) -> tuple[list[int], list[int]]:
        return [1], []


async def serve() -> None:
    """The server's process: print the port, serve until it is to stop."""
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop)
    dispatcher = Dispatcher(
        node_id=NodeId(1), partitions=OnePartition(), timers=timers, rng=SystemRng()
    )
    dispatcher.add_stats(lambda: {"cpu_us": time.process_time_ns() // 1000})
    server = SocketServer(dispatcher, timers, cluster="bench", node=1)
    print(await server.start("127.0.0.1", 0), flush=True)
    gc.freeze()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await dispatcher.close()
    await server.close()


async def measure(client: KvClient, callers: int, seconds: float) -> dict[str, float]:
    """One case; the first tenth warms up and does not count."""
    latencies: list[float] = []
    clock = time.perf_counter
    ends = 0.0

    async def caller() -> None:
        call, add = client.call, latencies.append
        while (began := clock()) < ends:
            await call(GET, KEY, KEY, 0, None)
            add(clock() - began)

    async def run_for(s: float) -> None:
        nonlocal ends
        ends = clock() + s
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller())

    await run_for(seconds / 10)
    latencies.clear()
    server_before = (await client.call_node(STATS))[0]["cpu_us"]
    client_before, began = time.process_time(), clock()
    await run_for(seconds)
    took, client_s = clock() - began, time.process_time() - client_before
    server_us = (await client.call_node(STATS))[0]["cpu_us"] - server_before
    latencies.sort()
    n = len(latencies)
    return {
        "ops_s": round(n / took),
        "p50_ms": round(latencies[n // 2] * 1000, 3),
        "p99_ms": round(latencies[n * 99 // 100] * 1000, 3),
        "server_us": round(server_us / n, 2),
        "client_us": round(client_s * 1e6 / n, 2),
    }


async def run(port: int, callers: list[int], seconds: float) -> dict[str, dict[str, float]]:
    """All cases against the server at `port`."""
    timers = LoopTimers(asyncio.get_running_loop())
    client = await connect([("127.0.0.1", port)], timers=timers, rng=SystemRng(), cluster="bench")
    try:
        return {str(n): await measure(client, n, seconds) for n in callers}
    finally:
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--callers", default="1,64,256")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve())
        return
    command = [sys.executable, "-m", "bench.micro_rpc", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            callers = [int(n) for n in options.callers.split(",")]
            cases = uvloop.run(run(port, callers, options.seconds))
        finally:
            server.terminate()
    print(json.dumps({"bench": "micro_rpc", "cpus": os.cpu_count(), "callers": cases}))


if __name__ == "__main__":
    main()
