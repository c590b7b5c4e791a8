"""What serializable transactions cost against snapshot ones, inside one process, log and disk
included, but no sockets.

    python -m bench.micro_isolation [--seconds 2] [--callers 32] [--rounds 3]

One JSON line: per case and level, the median of the rounds, in which the levels take turns so that
a busy machine hurts both. `txn/s`, and CPU µs of the process per transaction, the client's share
included.

    rw      two keys of one partition, read and written: one log entry
    rw2     two keys of two partitions, read and written
    read2   two keys of two partitions read, one written: only a serializable one asks the second
            partition, which guards the key
    scan    ten rows of one partition scanned, one of them written
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import kvorum
from bench.micro import print_measured

KEYS: Final = 10_000  # of each partition
LEVELS: Final = ("snapshot", "serializable")
VALUE: Final = b"v" * 100
_LOAD: Final = 500  # keys in a batch

Work = Callable[[kvorum.AsyncTransaction, random.Random], Awaitable[None]]


def key(partition: str, i: int) -> str:
    return f"{partition}{i:06}"


async def _rw(t: kvorum.AsyncTransaction, rng: random.Random, second: str = "a") -> None:
    table = t.table("default", "t")
    one, two = rng.sample(range(KEYS), 2)
    for k in (key("a", one), key(second, two)):
        await table.get(k)
        await table.put(k, VALUE)


async def _rw2(t: kvorum.AsyncTransaction, rng: random.Random) -> None:
    await _rw(t, rng, "z")


async def _read2(t: kvorum.AsyncTransaction, rng: random.Random) -> None:
    table = t.table("default", "t")
    k = key("a", rng.randrange(KEYS))
    await table.get(key("z", rng.randrange(KEYS)))
    await table.get(k)
    await table.put(k, VALUE)


async def _scan(t: kvorum.AsyncTransaction, rng: random.Random) -> None:
    table = t.table("default", "t")
    at = rng.randrange(KEYS - 10)
    await table.scan(start=key("a", at), end=key("a", at + 10))
    await table.put(key("a", at + rng.randrange(10)), VALUE)


CASES: Final[dict[str, Work]] = {"rw": _rw, "rw2": _rw2, "read2": _read2, "scan": _scan}


async def one_round(
    db: kvorum.AsyncDatabase, work: Work, isolation: str, seconds: float, callers: int
) -> tuple[float, float, int]:
    """(transactions per second, CPU µs of each, how many were refused)"""
    done = refused = 0
    until = time.perf_counter() + seconds

    async def call(seed: int) -> None:
        nonlocal done, refused
        rng = random.Random(seed)
        while time.perf_counter() < until:
            try:
                async with await db.transaction(isolation=isolation) as t:
                    await work(t, rng)
            except kvorum.KvorumError:
                refused += 1
            else:
                done += 1

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(call, range(callers)))
    cpu, lasted = time.process_time() - cpu, time.perf_counter() - began
    return done / lasted, cpu / max(1, done) * 1e6, refused


async def measure(data: Path, seconds: float, callers: int, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"bench": "isolation", "callers": callers, "seconds": seconds}
    async with await kvorum.aopen(data / "node") as db:
        await db.create_table("default", "t", split_keys=["m"])
        for at in range(0, KEYS, _LOAD):
            keys = [key(p, i) for p in "az" for i in range(at, at + _LOAD)]
            await db.batch([kvorum.Put("default", "t", k, VALUE) for k in keys])
        for case, work in CASES.items():
            runs: dict[str, list[tuple[float, float, int]]] = {level: [] for level in LEVELS}
            for _ in range(rounds):
                for level in LEVELS:
                    runs[level].append(await one_round(db, work, level, seconds, callers))
            for level in LEVELS:
                rates, cpus, refused = zip(*runs[level], strict=True)
                found[f"{case} {level}"] = {
                    "txn/s": round(statistics.median(rates)),
                    "cpu us": round(statistics.median(cpus)),
                    "refused": sum(refused),
                }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round")
    parser.add_argument("--callers", type=int, default=32, help="transactions at once")
    parser.add_argument("--rounds", type=int, default=3)
    o = parser.parse_args()
    print_measured(lambda data: measure(data, o.seconds, o.callers, o.rounds))


if __name__ == "__main__":
    main()
