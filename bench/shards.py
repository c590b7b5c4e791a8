"""What one tenant's bulk load and compactions do to another's reads, in one storage shard and in
two: `python -m bench.shards [--seconds 6] [--rounds 3]` prints JSON lines.

The storage engine alone, in one process and without a network: ann reads rows of hers by key, and
ranges of 20, over ROWS rows; bob writes batches of rows between her reads (`load`), reads all of
his (`read`), or has them compacted in a thread meanwhile (`compact`). `together`: both in the
default shard; `apart`: bob's rows lie in a shard of his own.

`ratio`: how many times as long ann's slowest hundredth of reads takes beside bob; before and after
she is measured alone, `noise` is the ratio of the two. `cpu_ratio` is the same of what her thread
computes: other processes of the machine change it less. `runs`: in how many sorted runs (memtables,
files of level 0, levels) a read of hers looks at most, which nothing of the machine changes.
`met`: `cpu_ratio` is GOAL at most. `bob_mib_s`: what he gets done. Requests share a node's loop,
too: that is bench/tenants.py.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench.node import work_folder
from bench.stats import Record, percentile
from kv.storage.engine import STATE_FAMILIES, Engine
from kv.storage.rocks import RocksEngine

GOAL = 1.3
ROWS = 200_000  # of ann's, 200 bytes each
HIS_ROWS = 200_000  # of bob's, of _VALUE bytes: more than the block cache has
_ANN, _BOB = b"ann%09d", b"bob%09d"
_VALUE = 1_000
_BATCH = 100
_TURNS = 20  # reads of ann's between two of bob's batches …
_WARM = 3  # … after some that are not timed: what the processor's caches had, a batch has changed


class Read(NamedTuple):
    wall_s: float
    cpu_s: float
    runs: int


def fill(engine: Engine, key: bytes, first: int, rows: int, value: bytes) -> None:
    """Rows, in batches."""
    family = engine.family("cur")
    for at in range(first, first + rows, _BATCH):
        batch = engine.batch()
        for n in range(at, min(at + _BATCH, first + rows)):
            batch.put(key % n, value, family)
        engine.write(batch)


class Bob:
    """What he does beside ann's reads: `turn` between them, `run` in a thread."""

    def __init__(self, engine: Engine, what: str, rng: random.Random) -> None:
        self.bytes = 0
        self._engine, self._what, self._rng = engine, what, rng
        self._value = rng.randbytes(_VALUE)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._compact)

    def start(self) -> None:
        if self._what == "compact":
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def turn(self) -> None:
        """A batch of his, at keys in no order: files overlap, and are merged."""
        if self._what == "read":
            self._read()
        if self._what != "load":
            return
        family, batch = self._engine.family("cur"), self._engine.batch()
        for _ in range(_BATCH):
            batch.put(_BOB % self._rng.randrange(2_000_000), self._value, family)
        self._engine.write(batch)
        self.bytes += _BATCH * _VALUE

    def _read(self) -> None:
        rows = self._engine.scan("cur", _BOB % self._rng.randrange(HIS_ROWS), b"boc", limit=_BATCH)
        self.bytes += sum(len(value) for _, value in rows)

    def _compact(self) -> None:
        while not self._stopped.is_set():
            self._engine.compact("cur", b"bob", b"boc", bottom=True)
            self.bytes += HIS_ROWS * _VALUE


def measure(
    engine: Engine, rng: random.Random, seconds: float, between: Callable[[], object]
) -> list[Read]:
    """Ann's reads: one in ten is a range."""
    get, found = engine.getter("cur"), []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        between()
        runs = sorted_runs(engine)
        for key in (_ANN % rng.randrange(ROWS) for _ in range(_WARM)):
            get(key)
            engine.scan("cur", key, b"anz", limit=20)
        for n in range(_TURNS):
            key = _ANN % rng.randrange(ROWS)
            wall_s, cpu_s = time.perf_counter(), time.thread_time()
            if n % 10:
                assert get(key) is not None
            else:
                engine.scan("cur", key, b"anz", limit=20)
            found.append(Read(time.perf_counter() - wall_s, time.thread_time() - cpu_s, runs))
    return found


def sorted_runs(engine: Engine) -> int:
    """In how many places a read of the default shard's newest rows has to look."""
    files = [file.level for file in engine.files() if file.family == "cur"]
    memtables = int(engine.in_memory()["cur"].entries > 0)
    return memtables + files.count(0) + len({level for level in files if level})


def p99(reads: list[Read], field: int) -> float:
    return percentile(sorted(one[field] for one in reads), 0.99) or 1e-9


def one_round(layout: str, what: str, seconds: float, seed: int) -> Record:
    """Alone, beside bob, alone again."""
    folder = work_folder("shards")
    try:
        engine = RocksEngine(folder / "state", STATE_FAMILIES)
        bobs = engine if layout == "together" else engine.shard("bob")
        rng = random.Random(seed)
        fill(engine, _ANN, 0, ROWS, rng.randbytes(200))
        if what != "load":
            fill(bobs, _BOB, 0, HIS_ROWS, rng.randbytes(_VALUE))
        engine.flush()
        bob = Bob(bobs, what, rng)
        measure(engine, rng, 1.0, bool)
        before = measure(engine, rng, seconds, bool)
        bob.start()
        began = time.monotonic()
        beside = measure(engine, rng, seconds, bob.turn)
        took_s = time.monotonic() - began
        bob.stop()
        # what he has left to be merged is no part of her time alone
        bobs.compact("cur", b"", b"")
        after = measure(engine, rng, seconds, bool)
        engine.close()
    finally:
        shutil.rmtree(folder)
    alone = [*before, *after]
    return {
        "ratio": p99(beside, 0) / p99(alone, 0),
        "cpu_ratio": p99(beside, 1) / p99(alone, 1),
        "noise": p99(after, 0) / p99(before, 0),
        "runs": max(one.runs for one in beside),
        "alone_runs": max(one.runs for one in alone),
        "p99_us": p99(beside, 0) * 1e6,
        "alone_p99_us": p99(alone, 0) * 1e6,
        "bob_mib_s": bob.bytes / took_s / (1 << 20),
        "samples": len(beside),
    }


def measured(seconds: float, rounds: int) -> Iterator[Record]:
    """The median round of each case; the layouts in turn."""
    for what in ("load", "read", "compact"):
        told: dict[str, list[Record]] = {"together": [], "apart": []}
        for number in range(rounds):
            for layout, records in told.items():
                records.append(one_round(layout, what, seconds, number))
        for layout, records in told.items():
            middle = sorted(records, key=lambda one: one["cpu_ratio"])[len(records) // 2]
            yield {
                "bench": "shards",
                "bob": what,
                "layout": layout,
                **{name: round(value, 3) for name, value in middle.items()},
                "met": middle["cpu_ratio"] <= GOAL,
            }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.shards", description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for record in measured(options.seconds, options.rounds):
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
