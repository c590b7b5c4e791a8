"""Procedures without a cluster: steps per second and syncs per step, by how many run at once.

    python -m bench.procedures_wal [--directory DIR] [--procedures N] [--flights 1,16,64]

Each procedure has three steps. Prints, for each number in flight: procedures and steps per second,
processor time per step, and how many records of the log shared one sync (L3).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from typing import Any

import kvorum
from kvorum import procedures


@kvorum.procedure("bench.three")
class Three:
    @kvorum.step(first=True)
    async def one(self, ctx: Any) -> Any:
        return kvorum.next("two")

    @kvorum.step
    async def two(self, ctx: Any) -> Any:
        return kvorum.next("three")

    @kvorum.step
    async def three(self, ctx: Any) -> Any:
        return kvorum.done(ctx.id)


async def measure(directory: str, count: int, flight: int) -> dict[str, float]:
    async with procedures.aopen(directory, procedures=[Three]) as p:
        left = iter(range(count))

        async def client() -> None:
            for _ in left:
                await p.wait(await p.submit(Three))

        before = p.store.counts.syncs, p.store.counts.records
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client() for _ in range(flight)))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        syncs = p.store.counts.syncs - before[0]
        written = p.store.counts.records - before[1]
    return {
        "in_flight": flight,
        "procedures_per_s": round(count / took, 1),
        "steps_per_s": round(3 * count / took, 1),
        "cpu_us_per_step": round(cpu / count / 3 * 1e6, 1),
        "records_per_sync": round(written / syncs, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory")
    parser.add_argument("--procedures", type=int, default=2_000)
    parser.add_argument("--flights", default="1,16,64")
    args = parser.parse_args()
    for flight in map(int, args.flights.split(",")):
        with tempfile.TemporaryDirectory(dir=args.directory) as directory:
            found = asyncio.run(measure(directory + "/logs", args.procedures, flight))
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
