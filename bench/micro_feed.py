"""What watching a table costs, and how soon it delivers: `python -m bench.micro_feed [WATCHERS …]`
prints one JSON line per number of watchers (0, 1 and 10 if none is given).

One node in a process of its own; WRITERS tasks of this process put 100 bytes each over the native
protocol; the watchers, native too, in a second process. Latency is from before the put was sent
until the event was there (both processes read one clock), so it contains the put's own. A line
with "paced": true is of one writer with pauses, where nothing queues. All share the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import time

import uvloop

import kvorum
from bench.micro_http import cpu_s
from bench.node import Node

WRITERS = int(os.environ.get("WRITERS", "64"))
SECONDS = float(os.environ.get("SECONDS", "3"))
PACED_S = 0.01
_SENT = struct.Struct("<d")
_PAD = bytes(100 - _SENT.size)


async def write(db: kvorum.AsyncDatabase, taken: list[float], *, paced: bool) -> None:
    """Durable puts for SECONDS, each with the moment at which it was sent."""
    table = db.table("default", "micro")
    until = time.perf_counter() + SECONDS

    async def one(number: int) -> None:
        n = 0
        while (sent := time.perf_counter()) < until:
            n += 1
            await table.put(f"k{number}-{n % 100}", _SENT.pack(sent) + _PAD)
            taken.append(time.perf_counter() - sent)
            if paced:
                await asyncio.sleep(PACED_S)

    await asyncio.gather(*(one(number) for number in range(1 if paced else WRITERS)))


async def watch(url: str, watchers: int) -> dict[str, object]:
    """Follow the table until the record `end` is written."""
    delays: list[float] = []
    if not watchers:
        return {"events": 0}

    async def one(db: kvorum.AsyncDatabase) -> None:
        async with db.watch("default", "micro") as events:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            async for event in events:
                now = time.perf_counter()
                for key, value, _ in event.changes:
                    if key == b"end":
                        return
                    assert value is not None
                    delays.append(now - _SENT.unpack_from(value)[0])

    async with await kvorum.aconnect(url) as db:
        await asyncio.gather(*(one(db) for _ in range(watchers)))
    return {"events": len(delays), **percentiles("event", delays)}


def percentiles(what: str, taken: list[float]) -> dict[str, object]:
    taken.sort()
    return {
        f"{what}_p50_ms": round(taken[len(taken) // 2] * 1000, 2),
        f"{what}_p99_ms": round(taken[len(taken) * 99 // 100] * 1000, 2),
    }


async def measure(node: Node, watchers: int, *, paced: bool) -> dict[str, object]:
    command = [sys.executable, "-m", "bench.micro_feed", "--watch", node.url, str(watchers)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        for _ in range(watchers):
            assert await process.stdout.readline() == b"ready\n"
        taken: list[float] = []
        async with await kvorum.aconnect(node.url) as db:
            before = cpu_s(node.pid)
            await write(db, taken, paced=paced)
            spent = cpu_s(node.pid) - before
            await db.table("default", "micro").put("end", b"")
        figures = json.loads(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    return {
        "bench": "micro_feed",
        "watchers": watchers,
        "paced": paced,
        "puts_per_s": round(len(taken) / SECONDS),
        **percentiles("put", taken),
        "server_us_per_put": round(spent / len(taken) * 1e6, 1),
        **figures,
    }


async def prepare(node: Node) -> None:
    async with await kvorum.aconnect(node.url) as db:
        await db.create_table("default", "micro")


def main() -> None:
    if sys.argv[1:2] == ["--watch"]:
        sys.stdout.write(json.dumps(uvloop.run(watch(sys.argv[2], int(sys.argv[3])))) + "\n")
        return
    numbers = [int(number) for number in sys.argv[1:]] or [0, 1, 10]
    with Node("micro-feed") as node:
        uvloop.run(prepare(node))
        for paced in (False, True):
            for watchers in numbers:
                line = uvloop.run(measure(node, watchers, paced=paced))
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
