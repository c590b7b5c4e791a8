"""Three nodes on loopback: the kv cases, the gap when the leader is killed, syncs with many groups.

Clients talk to the node that leads the measured table, as the peers' clients do; CPU per operation
is that of all nodes together.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
import time
import urllib.request
from collections.abc import Iterator

import kvorum
from bench import kv
from bench.dataset import ensure_namespace
from bench.node import Started, free_base, work_folder
from bench.stats import Record, median_of_runs
from kvorum.programs.localcluster import LocalCluster

NODES = 3
_STRIDE = 10
_SYNCS = re.compile(r"^kvorum_raft_syncs(?:_total)? (\S+)$", re.MULTILINE)


class Cluster(Started):
    """`with Cluster("kv") as cluster:` started nodes, stopped at the end, their folder removed."""

    def __init__(self, name: str, nodes: int = NODES, *, options: tuple[str, ...] = ()) -> None:
        self._options = options
        self.folder = work_folder(name)
        base = free_base(nodes + 1)
        self.local = LocalCluster.create(self.folder / "cluster", nodes, base)

    @property
    def url(self) -> str:
        return f"kvorum://{self.local.connect}"

    @property
    def base(self) -> int:
        return self.local.nodes[0].base

    @property
    def http_port(self) -> int:
        return self.base + 2

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(node.pid for node in self.local.nodes)

    def start(self, *numbers: int) -> None:
        """Start these nodes (all of them) and wait until they are ready."""
        wanted = list(numbers) or [node.id for node in self.local.nodes]
        for number in wanted:
            self.local.start(number, self._options)
        self.local.wait_ready(wanted, on_ready=lambda _number: None)

    def syncs(self) -> float:
        """Log syncs of all nodes since they started."""
        total = 0.0
        for node in self.local.nodes:
            url = f"http://127.0.0.1:{node.base + 2}/metrics"
            with urllib.request.urlopen(url, timeout=5) as answer:
                found = _SYNCS.search(answer.read().decode())
            if found is None:
                raise RuntimeError("/metrics has no kvorum_raft_syncs")
            total += float(found[1])
        return total

    def stop(self) -> None:
        self.local.down()


def run(wanted: list[kv.Case], *, reps: int, secs: float) -> Iterator[Record]:
    """A record per case: the medians of `reps` windows."""
    with Cluster("cluster") as cluster:
        bench = kv.Bench(cluster, secs=secs, procs=1)
        for case in wanted:
            found = median_of_runs([bench.measure(case) for _ in range(reps)])
            yield {"nodes": NODES} | case.fields() | found


# --------------------------------------------------------------------------------------- failover

_WRITERS = 16
_BEFORE_S, _WHOLE_S = 3.0, 9.0
_MAYBE = (kvorum.UnknownOutcome, kvorum.TryLater, kvorum.Reroute)


def failover(*, reps: int) -> Iterator[Record]:
    """kill -9 of the leader (of the table, the oracle and the procedures) under load: the longest
    time without an acknowledged write, and how many acknowledged ones were lost.
    """
    runs: list[Record] = []
    with Cluster("failover") as cluster:
        with kvorum.connect(cluster.url) as db:
            ensure_namespace(db)
            db.create_table("bench", "failover")
            table = max(row["id"] for row in db.partitions())
        for turn in range(reps):
            victim = cluster.local.leader(1 if turn % 2 else table)
            runs.append(asyncio.run(_kill_under_load(cluster, victim, turn)))
            cluster.start(victim)
            time.sleep(2)
    gaps = sorted(run["gap_s"] for run in runs)
    yield {
        "bench": "failover",
        "nodes": NODES,
        "gap_s": gaps[len(gaps) // 2],
        "gaps": gaps,
        "acknowledged": sum(run["acknowledged"] for run in runs),
        "lost": sum(run["lost"] for run in runs),
    }


async def _kill_under_load(cluster: Cluster, victim: int, turn: int) -> Record:
    acknowledged: list[str] = []
    times: list[float] = []
    end = time.monotonic() + _WHOLE_S

    async def write(db: kvorum.AsyncDatabase, writer: int) -> None:
        table, number = db.table("bench", "failover"), 0
        while time.monotonic() < end:
            key = f"{turn}/{writer}/{number}"
            number += 1
            try:
                await table.put(key, b"v" * 100)
            except _MAYBE:
                continue
            acknowledged.append(key)
            times.append(time.monotonic())

    async with await kvorum.aconnect(cluster.url) as db:
        async with asyncio.TaskGroup() as group:
            for writer in range(_WRITERS):
                group.create_task(write(db, writer))
            await asyncio.sleep(_BEFORE_S)
            await asyncio.to_thread(cluster.local.signal, victim, signal.SIGKILL)
        found = {item.key async for item in db.table("bench", "failover").rows()}
    times.sort()
    return {
        "gap_s": round(max(b - a for a, b in itertools.pairwise(times)), 3),
        "acknowledged": len(acknowledged),
        "lost": sum(key.encode() not in found for key in acknowledged),
    }


# ------------------------------------------------------------------------------------- many groups


def groups(counts: list[int], *, reps: int, secs: float) -> Iterator[Record]:
    """Log syncs per second and per put at the same load, spread over one group or many (F7)."""
    for count in counts:
        with Cluster("groups") as cluster:
            with kvorum.connect(cluster.url) as db:
                ensure_namespace(db)
                splits = [f"{n:06d}".encode() for n in range(1, count)]
                db.create_table("bench", "spread", split_keys=splits)
            runs = [asyncio.run(_spread(cluster, count, secs)) for _ in range(reps)]
        yield {"bench": "groups", "nodes": NODES, "groups": count} | median_of_runs(runs)


async def _spread(cluster: Cluster, count: int, secs: float) -> Record:
    done = 0
    end = 0.0

    async def write(db: kvorum.AsyncDatabase, writer: int) -> None:
        nonlocal done
        table, number = db.table("bench", "spread"), writer
        while time.monotonic() < end:
            await table.put(f"{number * 7919 % max(count, 1):06d}/{writer}", b"v" * 100)
            number += 1
            done += 1

    async with await kvorum.aconnect(cluster.url) as db:
        end = time.monotonic() + 1  # warm: every location known
        async with asyncio.TaskGroup() as group:
            for writer in range(64):
                group.create_task(write(db, writer))
        done, before, began = 0, await asyncio.to_thread(cluster.syncs), time.monotonic()
        end = began + secs
        async with asyncio.TaskGroup() as group:
            for writer in range(64):
                group.create_task(write(db, writer))
        seconds = time.monotonic() - began
        syncs = await asyncio.to_thread(cluster.syncs) - before
    return {
        "ops_s": round(done / seconds, 1),
        "syncs_s": round(syncs / seconds, 1),
        "syncs_per_op": round(syncs / max(done, 1), 4),
    }
