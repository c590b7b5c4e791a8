"""One hot key and many writers: what gets through, and who gets his turn.

    python -m bench.micro_waits [--seconds 5] [--writers 64]

One JSON line per case, on an embedded node with RocksDB: `puts` = half of the writers put the key,
half write it together with a key of another partition; `batches` = all of them do the latter;
`counts` = all of them read it, add one and commit, run again on conflicts. `jain` is Jain's index
of the writers' shares: 1 = all alike, 1/writers = one has everything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import kvorum
from kvorum import AsyncDatabase, AsyncTransaction, KvorumError, Put

HOT = b"hot"
Case = Callable[[AsyncDatabase, int, int], Awaitable[None]]


async def puts(db: AsyncDatabase, writer: int, n: int) -> None:
    if writer % 2:
        await db.table("default", "t").put(HOT, b"%d" % n)
    else:
        await batches(db, writer, n)


async def batches(db: AsyncDatabase, writer: int, n: int) -> None:
    value = b"%d" % n
    await db.batch([Put("default", "t", HOT, value), Put("default", "t", b"z%d" % writer, value)])


async def counts(db: AsyncDatabase, writer: int, n: int) -> None:
    async def add(t: AsyncTransaction) -> None:
        table = t.table("default", "t")
        found = await table.get(HOT)
        await table.put(HOT, b"%d" % (int(found.value) + 1 if found else 1))

    await db.run(add, attempts=1_000)


async def measure(case: Case, writers: int, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        async with await kvorum.aopen(Path(directory)) as db:
            await db.create_table("default", "t", split_keys=[b"m"])
            took: list[list[float]] = [[] for _ in range(writers)]
            failed: dict[str, int] = {}
            until = time.perf_counter() + seconds

            async def work(writer: int) -> None:
                n = 0
                while (began := time.perf_counter()) < until:
                    n += 1
                    try:
                        await case(db, writer, n)
                    except KvorumError as error:
                        failed[error.code] = failed.get(error.code, 0) + 1
                    else:
                        took[writer].append(1000 * (time.perf_counter() - began))

            await asyncio.gather(*(work(writer) for writer in range(writers)))
    done = [len(mine) for mine in took]
    every = sorted(ms for mine in took for ms in mine)
    squares = sum(n * n for n in done)
    return {
        "case": case.__name__,
        "writers": writers,
        "per_s": round(sum(done) / seconds),
        "p50_ms": round(every[len(every) // 2], 1),
        "p99_ms": round(every[len(every) * 99 // 100], 1),
        "max_ms": round(every[-1], 1),
        "fewest": min(done),
        "most": max(done),
        "jain": round(sum(done) ** 2 / (writers * squares), 3),
        "failed": failed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--writers", type=int, default=64)
    given = parser.parse_args()
    for case in (puts, batches, counts):
        found = asyncio.run(measure(case, given.writers, given.seconds))
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
