"""What procedures that do nothing cost a node: memory each, and CPU of a step of those that work.

One node gets more and more procedures that have begun and wait: for an event that nobody signals
(`event`), or for a lock that the first of them keeps (`lock`). At each number clients run
procedures of ten steps for some seconds. `server_us_step` is to stay what it was without any;
`kb_each` is resident memory over that of the node before, per procedure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import kvorum
from bench import procedures
from bench.machine import memory_mb
from bench.node import Node
from bench.stats import Record, median_of_runs

KINDS = {"event": "bench.waits", "lock": "bench.queues"}
COUNTS = (0, 10_000, 100_000)
_SUBMITTERS = 64
_STEPS, _CLIENTS = 10, 16
_SETTLE_S = 2.0


def run(counts: list[int], kinds: list[str], *, reps: int, secs: float) -> Iterator[Record]:
    """A record per kind and count, in rising order."""
    for kind in kinds:
        with Node("many", options=procedures.OPTIONS) as node:
            procedures.measure(node, _STEPS, _CLIENTS, secs=secs)  # caches are warm
            before_mb, waiting, cost_us = memory_mb(node.pid), 0, 0.0
            for count in sorted(counts):
                began = time.monotonic()
                asyncio.run(submit(node.url, KINDS[kind], count - waiting))
                seconds, added, waiting = time.monotonic() - began, count - waiting, count
                time.sleep(_SETTLE_S)
                windows = [
                    procedures.measure(node, _STEPS, _CLIENTS, secs=secs) for _ in range(reps)
                ]
                found = median_of_runs(windows, "steps_s")
                step_us = found["server_us_op"] / _STEPS
                cost_us = cost_us or step_us
                now_mb = memory_mb(node.pid)
                yield {
                    "bench": "many-procedures",
                    "op": kind,
                    "waiting": count,
                    "submitted_s": round(added / seconds) if added else None,
                    "rss_mb": round(now_mb, 1),
                    "kb_each": round((now_mb - before_mb) * 1000 / count, 2) if count else None,
                    "server_us_step": round(step_us, 1),
                    "against_first": round(step_us / cost_us, 2),
                    **found,
                }


async def submit(url: str, name: str, count: int) -> None:
    """Submit so many procedures and wait for none."""
    left = iter(range(count))
    async with await kvorum.aconnect(url) as db, asyncio.TaskGroup() as group:

        async def some() -> None:
            for _ in left:
                await db.submit(name)

        for _ in range(_SUBMITTERS):
            group.create_task(some())
