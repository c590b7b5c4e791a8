"""kill -9 under procedures: seconds until the first step runs again elsewhere.

    master   three nodes run the procedures themselves; the master is killed
    worker   one node, two `kvorum worker`; one of them is killed

Many procedures are under way, each step of which takes a tenth of a second and notes who ran it
and when. `first_s` is from the kill to the first step in another process, of a procedure whose last
step before the kill was in the killed one; `all_s` until each of them had one. A procedure that
ends with another number of steps than it has is `wrong`: a step was lost or counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import kvorum
from bench.cluster import NODES, Cluster
from bench.node import ROOT, Node
from bench.stats import Record

PLACES: Final = ("master", "worker")
STEPS, _PAUSE_S = 60, 0.1
_LIVE = 64
_BEFORE_S = 2.0
_MODULE: Final = ("--procedure-modules", "bench.steps")
_MASTER: Final = 1  # the partition whose leader is the master


def run(places: list[str], *, reps: int) -> Iterator[Record]:
    """A record per place: medians over `reps` kills."""
    for place in places:
        kills = _masters(reps) if place == "master" else _workers(reps)
        firsts = [kill["first_s"] for kill in kills]
        yield {
            "bench": "recovery-procedures",
            "op": place,
            "nodes": NODES if place == "master" else 1,
            "live": _LIVE,
            "first_s": statistics.median(firsts),
            "all_s": statistics.median(kill["all_s"] for kill in kills),
            "resumed": sum(kill["resumed"] for kill in kills),
            "wrong": sum(kill["wrong"] for kill in kills),
            "runs": firsts,
        }


def _masters(reps: int) -> list[Record]:
    found = []
    with Cluster("masters", options=_MODULE) as cluster:
        for _ in range(reps):
            found.append(asyncio.run(_kill(cluster.url, lambda: _master(cluster))))
            cluster.start()
            time.sleep(_BEFORE_S)
    return found


def _master(cluster: Cluster) -> int:
    """Its process."""
    return cluster.local.node(cluster.local.leader(_MASTER)).pid


def _workers(reps: int) -> list[Record]:
    found = []
    with Node("workers") as node, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(worker(node)) for _ in range(2)]
        for _ in range(reps):
            victim = workers.pop(0)
            found.append(asyncio.run(_kill(node.url, lambda pid=victim.pid: pid)))
            victim.wait()
            workers.append(stack.enter_context(worker(node)))
    return found


@contextlib.contextmanager
def worker(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process that runs the procedures that are measured."""
    command = [sys.executable, "-m", "kvorum", "worker", "bench.steps", "--pool", "bench"]
    child = subprocess.Popen(
        [*command, "--connect", f"127.0.0.1:{node.base}", "--json"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        if not child.stdout.readline():
            raise RuntimeError(f"the worker ended with code {child.wait()}")
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(20)
        if child.poll() is None:
            child.kill()
            child.wait()
        assert child.stdout is not None
        child.stdout.close()


async def _kill(url: str, victim: Callable[[], int]) -> Record:
    """Kill the process that `victim` names, under procedures."""
    async with await kvorum.aconnect(url) as db:
        args = {"steps": STEPS, "pause_s": _PAUSE_S}
        ids = await asyncio.gather(*(db.submit("bench.ticks", args) for _ in range(_LIVE)))
        await asyncio.sleep(_BEFORE_S)
        pid = await asyncio.to_thread(victim)
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        ended = [await _result(db, id) for id in ids]
    return judged(ended, pid, killed)


async def _result(db: kvorum.AsyncDatabase, id: int) -> list[tuple[int, float]]:
    until = time.monotonic() + 60
    while True:
        try:
            return [(pid, at) for pid, at in await db.wait(id, timeout_ms=30_000)]
        except (kvorum.TryLater, kvorum.Reroute, kvorum.DeadlineExceeded):
            if time.monotonic() > until:
                raise


def judged(ended: list[list[tuple[int, float]]], pid: int, killed: float) -> Record:
    """What the notes of all procedures say about the kill of this process at that time. Raises
    ValueError if none of them was in it.
    """
    resumed = []
    for ticks in ended:
        later = [at for by, at in ticks if at > killed and by != pid]
        before = [by for by, at in ticks if at <= killed]
        if before and before[-1] == pid and later:
            resumed.append(later[0] - killed)
    if not resumed:
        raise ValueError("the killed process had none of the procedures: nothing was measured")
    return {
        "first_s": round(min(resumed), 3),
        "all_s": round(max(resumed), 3),
        "resumed": len(resumed),
        "wrong": sum(len(ticks) != STEPS for ticks in ended),
    }
