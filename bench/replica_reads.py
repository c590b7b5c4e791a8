"""How far leaders are relieved by reads of the past at replicas: `python -m bench.replica_reads
[--seconds 10]` prints a JSON line per case.

Three nodes; one table of one partition, so that one node leads all of it. READERS scan all ROWS
rows of it again and again, of `now` or of `past` (five seconds ago: any replica may answer), while
one client writes rows of it, one after the other. `leader_ms` and `others_ms`: what the nodes
compute for a scan; `put_p99_ms` and `puts`: how the writer fares. A scan is of 1,000 rows, so that
it is the rows that cost. Five seconds ago the table was the same but for what was written since.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator

import kvorum
from bench.cluster import Cluster
from bench.dataset import NAMESPACE
from bench.machine import tree_cpu_s
from bench.stats import Record, percentile

READERS = 4
ROWS = 1_000
_TABLE = "followed"
_VALUE = b"v" * 200
_CASES = {"now": None, "past": "-5s"}
_PAST_S = 6.0


async def _fill(db: kvorum.AsyncDatabase) -> None:
    await db.create_namespace(NAMESPACE)
    await db.create_table(NAMESPACE, _TABLE)
    ops = [kvorum.Put(NAMESPACE, _TABLE, b"%06d" % n, _VALUE) for n in range(ROWS)]
    await db.batch(ops)
    await asyncio.sleep(_PAST_S)


async def _leader(db: kvorum.AsyncDatabase) -> int:
    """The node that leads the table; no other partition has rows that matter."""
    rows = await db.partitions()
    return int(max(rows, key=lambda row: row["id"])["leader"])


async def _case(cluster: Cluster, name: str, seconds: float) -> Record:
    at = _CASES[name]
    scans, puts = 0, list[float]()
    async with (
        await kvorum.aconnect(cluster.url, near="") as readers,
        await kvorum.aconnect(cluster.url) as writers,
    ):
        ends = time.monotonic() + seconds
        table = readers.table(NAMESPACE, _TABLE)

        async def read() -> None:
            nonlocal scans
            while time.monotonic() < ends:
                page = await table.scan(limit=ROWS, at=at)
                assert len(page.items) == ROWS
                scans += 1

        async def write() -> None:
            for n in itertools.count():
                began = time.monotonic()
                if began >= ends:
                    return
                await writers.table(NAMESPACE, _TABLE).put(b"%06d" % (n % ROWS), _VALUE)
                puts.append(time.monotonic() - began)

        leader = await _leader(writers)
        pids = {node.id: node.pid for node in cluster.local.nodes}
        before = {node: tree_cpu_s([pid]) for node, pid in pids.items()}
        await asyncio.gather(write(), *(read() for _ in range(READERS)))
        took = {node: tree_cpu_s([pid]) - before[node] for node, pid in pids.items()}
        if await _leader(writers) != leader:
            return await _case(cluster, name, seconds)
    others = sum(cpu_s for node, cpu_s in took.items() if node != leader)
    return {
        "bench": "replica_reads",
        "case": name,
        "scans": scans,
        "leader_ms": round(1000 * took[leader] / max(1, scans), 2),
        "others_ms": round(1000 * others / max(1, scans), 2),
        "puts": len(puts),
        "put_p99_ms": round(1000 * (percentile(sorted(puts), 0.99) or 0.0), 1),
    }


async def _measured(cluster: Cluster, seconds: float) -> list[Record]:
    async with await kvorum.aconnect(cluster.url) as db:
        await _fill(db)
    return [await _case(cluster, name, seconds) for name in _CASES]


def run(seconds: float) -> Iterator[Record]:
    """A record per case."""
    with Cluster("replica_reads") as cluster:
        yield from asyncio.run(_measured(cluster, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.replica_reads", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    for record in run(parser.parse_args().seconds):
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
