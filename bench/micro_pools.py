"""Procedures in the node against procedures in a worker: the same steps, clients and disk.

`python -m bench.micro_pools [seconds]` prints one JSON line per place and number in flight:
procedures/s, steps/s, p50 and p99 of submit-to-done in ms, CPU µs per step of node and worker.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import psutil
import uvloop

import kvorum
from bench.node import Node

STEPS = (1, 10)
IN_FLIGHT = (1, 16, 64)


async def _measure(url: str, steps: int, clients: int, secs: float) -> tuple[int, list[float]]:
    took: list[float] = []
    db = await kvorum.aconnect(url)
    end = time.monotonic() + secs

    async def client() -> None:
        while time.monotonic() < end:
            began = time.monotonic()
            id = await db.submit("bench.steps", {"steps": steps, "size": 100})
            await db.wait(id)
            took.append((time.monotonic() - began) * 1000)
            await db.acknowledge(id)

    try:
        await asyncio.gather(*(client() for _ in range(clients)))
    finally:
        await db.close()
    return len(took), sorted(took)


def _cpu(pids: list[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def _place(where: str, node: Node, pids: list[int], secs: float) -> None:
    for steps in STEPS:
        for clients in IN_FLIGHT:
            before = _cpu(pids)
            count, took = uvloop.run(_measure(node.url, steps, clients, secs))
            cpu_us = (_cpu(pids) - before) * 1e6
            row = {
                "place": where,
                "steps": steps,
                "in_flight": clients,
                "procedures_s": round(count / secs, 1),
                "steps_s": round(count * steps / secs, 1),
                "p50_ms": round(took[len(took) // 2], 2),
                "p99_ms": round(took[len(took) * 99 // 100], 2),
                "cpu_us_per_step": round(cpu_us / max(1, count * steps), 1),
            }
            print(json.dumps(row), flush=True)


def main(secs: float) -> None:
    with Node("pools-node", options=("--procedure-modules", "bench.steps")) as node:
        _place("node", node, list(node.pids), secs)
    with Node("pools-worker") as node:
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "kvorum", "worker", "bench.steps", "--pool", "bench"),
                *("--connect", f"127.0.0.1:{node.base}", "--json"),
            ],
            stdout=subprocess.PIPE,
        )
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline(), "the worker did not start"
            _place("worker", node, [*node.pids, worker.pid], secs)
        finally:
            worker.terminate()
            worker.wait(20)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
