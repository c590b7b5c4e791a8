"""Single rows beside bulk work on one node: `python -m bench traffic`.

READS_S single rows of a table of their own are read in each second, and WRITES_S written, at random
keys through the SDK, each when it is due, whatever became of those before: so a loop that stands
still is seen by all that come meanwhile. Reported are p50, p99 and the slowest of both, in
milliseconds:

    quiet       nothing else happens
    copy        COPY FROM of so many rows, until its answer
    copied      its cleaning after that: chunks of intents become versions
    stage       so many rows are staged, as two tasks of Spark do it
    commit      the batch's commit, until its answer
    committed   its cleaning

The load comes from a process of its own (`python -m bench.traffic KIND URL PORT ROWS` prints its
phases); all share the machine's cores.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

import psycopg

import kvorum
from bench.node import ROOT, Node
from bench.sql_bulk import text_rows
from bench.stats import Record, median_of_runs, percentile

ROWS = 300_000
READS_S, WRITES_S = 400, 100
KINDS = ("copy", "sink")
PHASES = ("quiet", "copy", "copied", "stage", "commit", "committed")
_KEYS = 10_000
_TASKS, _IN_FLIGHT = 2, 3
_CHUNK_ROWS = 8_192
_PIECE = 65_536
_CLEANED_S = 120.0
_LOOK_S = 0.5  # seldom: the page of figures takes some milliseconds of the loop, too
_VALUE = b"." * 100


class Phase(NamedTuple):
    """When it was, by the monotonic clock, which all processes of a machine share."""

    name: str
    began: float
    ended: float


class Sample(NamedTuple):
    """One operation."""

    due: float
    ended: float
    write: bool


def run(rows: int, *, reps: int, secs: float) -> Iterator[Record]:
    """A record per phase: medians over `reps`, each on a new node."""
    found: dict[str, list[Record]] = {name: [] for name in PHASES}
    for _ in range(reps):
        with Node("traffic") as node:
            samples, phases, failed = asyncio.run(_measure(node, rows, secs))
        for phase in phases:
            errors = sum(phase.began <= due < phase.ended for due in failed)
            found[phase.name].append(figures(phase, samples) | {"errors": errors})
    for name, runs in found.items():
        yield {"bench": "traffic", "case": name, "rows": rows} | median_of_runs(runs, "read_p99_ms")


def figures(phase: Phase, samples: Sequence[Sample]) -> Record:
    """What was due in a phase."""
    record: Record = {"seconds": round(phase.ended - phase.began, 2)}
    for name, write in (("read", False), ("write", True)):
        took = sorted(
            s.ended - s.due
            for s in samples
            if s.write is write and phase.began <= s.due < phase.ended
        )
        record[f"{name}s"] = len(took)
        for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            at = percentile(took, share)
            record[f"{name}_{label}_ms"] = None if at is None else round(at * 1e3, 2)
    return record


async def _measure(
    node: Node, rows: int, secs: float
) -> tuple[list[Sample], list[Phase], list[float]]:
    samples: list[Sample] = []
    phases: list[Phase] = []
    failed: list[float] = []
    over = asyncio.Event()
    async with await kvorum.aconnect(node.url) as db:
        await db.create_table("default", "points")
        await db.create_table("default", "loaded")
        table = db.table("default", "points")
        for at in range(0, _KEYS, 500):
            puts = [
                kvorum.Put("default", "points", b"%06d" % i, _VALUE) for i in range(at, at + 500)
            ]
            await db.batch(puts)

        async def one(due: float, key: bytes, write: bool) -> None:
            try:
                await (table.put(key, _VALUE) if write else table.get(key))
            except kvorum.KvorumError:
                failed.append(due)
                return
            samples.append(Sample(due, time.monotonic(), write))

        async def come(group: asyncio.TaskGroup, rate: int, write: bool) -> None:
            chance, due = random.Random(rate), time.monotonic()
            while not over.is_set():
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(one(due, b"%06d" % chance.randrange(_KEYS), write))
                due += 1 / rate

        # The first client of SQL has the node import what serves it: not what is measured here.
        await asyncio.to_thread(psycopg.connect(_address(node.base)).close)
        async with asyncio.TaskGroup() as group:
            group.create_task(come(group, READS_S, False))
            group.create_task(come(group, WRITES_S, True))
            await asyncio.sleep(0.5)
            began = time.monotonic()
            await asyncio.sleep(secs)
            phases.append(Phase("quiet", began, time.monotonic()))
            for kind in KINDS:
                phases += await asyncio.to_thread(_loaded, kind, node, rows)
                ended = phases[-1].ended
                await asyncio.to_thread(_cleaned, node)
                cleaned = {"copy": "copied", "sink": "committed"}[kind]
                phases.append(Phase(cleaned, ended, time.monotonic()))
            over.set()
    return samples, phases, failed


def _loaded(kind: str, node: Node, rows: int) -> list[Phase]:
    words = [sys.executable, "-m", "bench.traffic", kind, str(node.base), str(rows)]
    out = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Phase(*json.loads(line)) for line in out.splitlines()]


def _cleaned(node: Node) -> None:
    """Wait until no key has an intent."""
    until = time.monotonic() + _CLEANED_S
    while time.monotonic() < until:
        time.sleep(_LOOK_S)
        with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics") as page:
            lines = page.read().decode().splitlines()
        found = [line for line in lines if line.startswith("kvorum_partition_intents")]
        if not any(float(line.rsplit(" ", 1)[1]) for line in found):
            return
    raise RuntimeError(f"intents are left after {_CLEANED_S:.0f} s")


# -- the process that loads


def _tell(name: str, work: Callable[[], object]) -> None:
    began = time.monotonic()
    work()
    sys.stdout.write(json.dumps([name, began, time.monotonic()]) + "\n")


def _address(base: int) -> str:
    return f"host=127.0.0.1 port={base + 3} user=kvorum dbname=postgres"


def _copy(base: int, rows: int) -> None:
    data = text_rows(rows)
    with psycopg.connect(_address(base), autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE big (id int8 PRIMARY KEY, v text, n int4, x float8, at timestamp)"
        )

        def load() -> None:
            with connection.cursor().copy("COPY big FROM STDIN") as copy:
                for at in range(0, len(data), _PIECE):
                    copy.write(data[at : at + _PIECE])

        _tell("copy", load)


def _sink(base: int, rows: int) -> None:
    from procedures.sink.format.sink_records import add_crc, pack_chunk
    from procedures.verbs import SINK_COMMIT, SINK_SEAL, SINK_STAGE
    from pyspark_kvorum.options import Options
    from pyspark_kvorum.session import Session

    manifest = []
    staged: list[list[tuple[int, bytes]]] = []
    per_task = rows // _TASKS
    for task in range(_TASKS):
        crc, chunks = 0, []
        for seq, at in enumerate(range(0, per_task, _CHUNK_ROWS)):
            numbers = range(task * rows + at, task * rows + min(per_task, at + _CHUNK_ROWS))
            chunk = pack_chunk(
                [b"%016d" % i for i in numbers], [b"v%09d" % i * 10 for i in numbers]
            )
            crc = add_crc(crc, seq, chunk)
            chunks.append((seq, chunk))
        staged.append(chunks)
        manifest.append([task, f"t{task}", len(chunks), per_task, crc])
    options = {"endpoint": f"127.0.0.1:{base}", "table": "default.loaded"}
    with Session(Options.parse(options)) as session:
        table = session.table.id

        async def task_of(number: int) -> None:
            room = asyncio.Semaphore(_IN_FLIGHT)

            async def one(seq: int, chunk: bytes) -> None:
                await session.ask(SINK_STAGE, "bench", table, number, f"t{number}", seq, chunk)
                room.release()

            async with asyncio.TaskGroup() as group:
                for seq, chunk in staged[number]:
                    await room.acquire()
                    group.create_task(one(seq, chunk))
            part, name, chunks, count, crc = manifest[number]
            await session.ask(SINK_SEAL, "bench", table, part, name, chunks, count, crc, None)

        async def stage() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(_TASKS):
                    group.create_task(task_of(number))

        async def commit() -> None:
            request = {
                "attempt": "bench",
                "table": table,
                "app": "bench",
                "version": 0,
                "query": "q",
                "manifest": manifest,
                "twice": "refuse",
            }
            while (await session.ask(SINK_COMMIT, request))[0]:
                pass

        def done(work: Callable[[], Awaitable[None]]) -> Callable[[], object]:
            return lambda: session.run(_awaited(work()))

        _tell("stage", done(stage))
        _tell("commit", done(commit))


async def _awaited(work: Awaitable[None]) -> None:
    await work


if __name__ == "__main__":
    {"copy": _copy, "sink": _sink}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
