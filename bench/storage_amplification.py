"""What the state database reads and writes for what it is given, and what a cold scan costs.

    python -m bench.storage_amplification [--rows 400000] [--times 5]

The database alone, of values of 700 random bytes (they do not compress). A line of JSON:

    loads    rows in order, rows at random, files of rows that are taken in, a drop of nine tenths:
             for each byte that was given (of the drop: that was there) the bytes written to files,
             of them those written again by compactions, those read again; and the share of bytes
             in files that were moved or linked as they are
    row      bytes in files for a row at rest of our records, and of the bare keys and values
    scan     a scan in steps of 1,000 rows, the files not in the kernel's cache: neither we nor
             RocksDB by itself read ahead, and as it is; in turn, the median of `--times`: MB/s,
             without the time in which others had the CPU, and calls that read. And with the files
             in that cache, which no disk can be faster than
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bench.micro import print_measured
from kv.base.errors import Unavailable
from kv.mvcc.records import put_row
from kv.storage import rocks
from kv.storage.engine import STATE_FAMILIES
from kv.storage.rocks import RocksEngine

_VALUE_BYTES = 700
_BATCH = 500
_STEP_ROWS = 1_000


def _key(i: int) -> bytes:
    return b"table1:%010d" % i


def _fill(engine: RocksEngine, order: Iterable[int], record: Callable[[bytes], bytes]) -> int:
    """Bytes of keys and values."""
    family, batch, size = engine.family("cur"), engine.batch(), 0
    for n, i in enumerate(order, 1):
        key = _key(i)
        value = record(key)
        batch.put(key, value, family)
        size += len(key) + len(value)
        if n % _BATCH == 0:
            engine.write(batch)
            batch = engine.batch()
            _wait(engine)
    engine.write(batch)
    return size


def _wait(engine: RocksEngine) -> None:
    """As admission does it: not faster than the disk."""
    while True:
        try:
            return engine.check_room()
        except Unavailable:
            time.sleep(0.01)


def _bare(_key: bytes) -> bytes:
    return os.urandom(_VALUE_BYTES)


def _ours(key: bytes) -> bytes:
    return put_row(key, os.urandom(_VALUE_BYTES), 7 << 60, None)[1]


def _settle(engine: RocksEngine) -> None:
    engine.flush()
    while engine.stats()["compaction_pending_bytes"]:
        time.sleep(0.1)
    engine.compact("cur", b"", b"")


def _load(work: Callable[[RocksEngine], int]) -> dict[str, float]:
    """Of a new database. `work` gives the bytes that count as given."""
    with tempfile.TemporaryDirectory() as folder:
        engine = RocksEngine(Path(folder) / "db", STATE_FAMILIES)
        before = engine.counters()
        size = work(engine)
        _settle(engine)
        after = engine.counters()
        engine.close()
    done = {name: (after[name] - before[name]) / size for name in after}
    again = done["compaction_written_bytes"]
    return {
        "written": round(done["flushed_bytes"] + again + done["ingested_bytes"], 3),
        "written_again": round(again, 3),
        "read_again": round(done["compaction_read_bytes"], 3),
        "as_they_are": round(done["moved_bytes"] + done["ingested_bytes"], 3),
    }


def _in_order(rows: int, engine: RocksEngine) -> int:
    return _fill(engine, range(rows), _bare)


def _at_random(rows: int, engine: RocksEngine) -> int:
    return _fill(engine, random.Random(1).sample(range(rows), rows), _bare)


def _ingested(rows: int, engine: RocksEngine) -> int:
    files, size = [], 0
    for at in range(0, rows, rows // 4):
        file = engine.sorted_rows("cur")
        for i in range(at, min(at + rows // 4, rows)):
            file.put(_key(i), _bare(b""))
        file.close()
        size += file.size
        files.append(file)
    engine.sync()
    assert engine.ingest(files)
    return size


def _dropped(rows: int, engine: RocksEngine) -> int:
    """Counted from the drop on; `_load` counts from the beginning, so what was before is given."""
    size = _fill(engine, range(rows), _bare)
    _settle(engine)
    batch = engine.batch()
    batch.delete_range(_key(rows // 20), _key(rows - rows // 20), engine.family("cur"))
    engine.write(batch)
    return size


def _row_bytes(rows: int, record: Callable[[bytes], bytes]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        engine = RocksEngine(Path(folder) / "db", STATE_FAMILIES)
        _fill(engine, range(rows), record)
        engine.flush()
        engine.compact("cur", b"", b"", bottom=True)
        size = engine.stats()["file_bytes"]
        engine.close()
    return round(size / rows, 1)


def _forget(path: Path) -> None:
    """The kernel's cache of a database."""
    for file in path.iterdir():
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _now() -> tuple[float, int]:
    """Seconds without those in which this thread could run and had no CPU; reads of files."""
    waited_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return time.perf_counter() - waited_ns / 1e9, int(io["syscr"])


def _alone(engine: RocksEngine) -> None:
    """RocksDB reads ahead by itself, too, from the third block of a scan on, and counts nothing of
    it: not in files that are written from now on.
    """
    never = {"block_based_table_factory": "{max_auto_readahead_size=0;}"}
    engine._rows("cur").set_options(never)
    engine.compact("cur", b"", b"", bottom=True)


def _scanned(path: Path, *, cold: bool, ahead: bool) -> tuple[float, int]:
    """Seconds, and calls that read."""
    usual = vars(rocks)["scan_options"]
    engine = RocksEngine(path, STATE_FAMILIES)
    if not ahead:  # whatever the number of rows
        vars(rocks)["scan_options"] = lambda end, _rows: usual(end, 1)
        _alone(engine)
    if cold:
        _forget(path)
    try:
        (began, reads), at, end = _now(), b"", _key(1 << 30)
        while rows := engine.scan("cur", at, end, limit=_STEP_ROWS):
            at = rows[-1][0] + b"\x00"
        ended, all_reads = _now()
    finally:
        engine.close()
        vars(rocks)["scan_options"] = usual
    return ended - began, all_reads - reads


def _scans(rows: int, times: int, folder: Path) -> dict[str, float]:
    path = folder / "db"
    engine = RocksEngine(path, STATE_FAMILIES)
    _fill(engine, range(rows), _ours)
    _settle(engine)
    engine.close()
    size = rows * (len(_key(0)) + _VALUE_BYTES)
    kinds = {
        "cold_not_ahead": partial(_scanned, path, cold=True, ahead=False),
        "cold": partial(_scanned, path, cold=True, ahead=True),
        "cached": partial(_scanned, path, cold=False, ahead=True),
    }
    taken: dict[str, list[tuple[float, int]]] = {name: [] for name in kinds}
    for _ in range(times):
        for name, scan in kinds.items():
            taken[name].append(scan())
    found: dict[str, float] = {}
    for name, all_ in taken.items():
        found[f"{name}_mb_s"] = round(size / statistics.median(s for s, _ in all_) / 1e6, 1)
        found[f"{name}_reads"] = round(statistics.median(reads for _, reads in all_))
    return {**found, "ratio": round(found["cold_mb_s"] / found["cold_not_ahead_mb_s"], 2)}


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    loads = {
        "in_order": _in_order,
        "at_random": _at_random,
        "ingested": _ingested,
        "dropped": _dropped,
    }
    found = {}
    for name, work in loads.items():
        found[name] = await asyncio.to_thread(_load, partial(work, args.rows))
    row = {"ours": _row_bytes(args.rows // 4, _ours), "bare": _row_bytes(args.rows // 4, _bare)}
    scan = await asyncio.to_thread(_scans, args.rows, args.times, folder)
    return {
        "bench": "storage_amplification",
        "rows": args.rows,
        "loads": found,
        "row": row,
        "scan": scan,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--times", type=int, default=5)
    print_measured(partial(measure, parser.parse_args()))


if __name__ == "__main__":
    main()
