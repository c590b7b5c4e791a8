"""What the database on disk reads and writes for what it is given, as it counts it itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kv.base.limits import MiB
from kv.mvcc.records import cur_row, hist_key, verified
from kv.storage.engine import STATE_FAMILIES
from kv.storage.moved_files import MovedFiles
from kv.storage.rocks import RocksEngine

VALUE = os.urandom(1_000)
ROWS = 4_000  # of a file: 4 MB


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RocksEngine]:
    made = RocksEngine(tmp_path / "db", STATE_FAMILIES)
    yield made
    made.close()


def key(i: int) -> bytes:
    return b"%08d" % i


def put(engine: RocksEngine, keys: range) -> None:
    batch = engine.batch()
    for i in keys:
        batch.put(key(i), VALUE, engine.family("cur"))
    engine.write(batch)
    engine.flush_family("cur")


def since(engine: RocksEngine, before: dict[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in engine.counters().items()}


def test_g16_a_sorted_load_is_moved_and_never_rewritten(engine: RocksEngine) -> None:
    """Every row of a load in order would be read and written again on its way down."""
    before = engine.counters()
    for at in range(0, 8 * ROWS, ROWS):
        put(engine, range(at, at + ROWS))
    engine.compact("cur", b"", b"")
    done = since(engine, before)
    assert {f.level for f in engine.files()} == {6}
    assert done["moved_files"] >= 8
    assert done["moved_bytes"] >= 8 * ROWS * len(VALUE)
    assert done["compaction_written_bytes"] == done["compaction_read_bytes"] == 0
    assert done["flushed_bytes"] < 1.05 * done["batch_bytes"], "written once, beside the log"


def test_g16_only_files_that_overlap_are_rewritten(engine: RocksEngine) -> None:
    """A small update would cost what the whole table has."""
    for at in range(0, 8 * ROWS, ROWS):
        put(engine, range(at, at + ROWS))
    engine.compact("cur", b"", b"")
    numbers = {f.number for f in engine.files()}
    before = engine.counters()
    put(engine, range(ROWS, ROWS + 100))
    engine.compact("cur", key(ROWS), key(ROWS + 100))
    done = since(engine, before)
    kept = {f.number for f in engine.files()} & numbers
    assert len(kept) == 7
    assert done["compaction_read_bytes"] < 1.1 * (ROWS + 100) * len(VALUE)
    assert done["compaction_replaced_rows"] == 100


def test_g16_what_is_taken_in_and_what_is_copied_is_linked(
    engine: RocksEngine, tmp_path: Path
) -> None:
    """A replica's rows, and a copy of a node, would be written as often as they are handed on."""
    before = engine.counters()
    file = engine.sorted_rows("cur")
    for i in range(ROWS):
        file.put(key(i), VALUE)
    file.close()
    (path,) = (tmp_path / "db" / "ingest").iterdir()
    inode = path.stat().st_ino
    engine.sync()
    assert engine.ingest([file])
    (lies,) = (tmp_path / "db").glob("*.sst")
    assert lies.stat().st_ino == inode
    engine.checkpoint(tmp_path / "copy")
    assert (tmp_path / "copy" / lies.name).stat().st_ino == inode
    done = since(engine, before)
    assert (done["ingested_files"], done["linked_files"]) == (1, 1)
    assert done["ingested_bytes"] == ROWS * (8 + len(VALUE))
    for name in ("batch_bytes", "flushed_bytes", "compaction_written_bytes"):
        assert done[name] < MiB / 64, name


def test_g16_a_dropped_range_is_not_written_again(engine: RocksEngine) -> None:
    """Dropping a table would cost writes of its size; only the rows beside it in files at its ends
    are written anew.
    """
    for at in range(0, 8 * ROWS, ROWS):
        put(engine, range(at, at + ROWS))
    engine.compact("cur", b"", b"")
    before = engine.counters()
    batch = engine.batch()
    low, high = key(ROWS // 2), key(7 * ROWS + ROWS // 2)
    batch.delete_range(low, high, engine.family("cur"))
    engine.write(batch)
    engine.flush_family("cur")
    engine.compact("cur", low, high)
    done = since(engine, before)
    assert done["compaction_ranged_rows"] == 7 * ROWS
    assert done["compaction_written_bytes"] < 1.1 * ROWS * len(VALUE)
    assert sum(f.bytes for f in engine.files()) < 1.1 * ROWS * len(VALUE)


def test_g16_moves_are_read_from_a_log_that_gets_another_name(tmp_path: Path) -> None:
    """A log becomes full at any moment: its last lines would be counted twice, or not at all."""

    def line(files: int) -> str:
        return (
            f'2026 EVENT_LOG_v1 {{"job": 6, "event": "trivial_move", "destination_level": 6, '
            f'"files": {files}, "total_files_size": {files}000}}\n'
        )

    log = tmp_path / "LOG"
    log.write_text("begins\n" + line(1) + line(2)[:60])
    moved = MovedFiles(tmp_path)
    moved.look()
    assert (moved.files, moved.bytes) == (1, 1_000)
    with log.open("a") as file:
        file.write(line(2)[60:])
    moved.look()
    moved.look()
    assert moved.files == 3
    with log.open("a") as file:
        file.write(line(4))
    log.rename(tmp_path / "LOG.old.1")
    log.write_text(line(8))
    moved.look()
    assert (moved.files, moved.bytes) == (15, 15_000)
    moved.close()


# -- scans


def _reads() -> int:
    """Calls of this process that read files."""
    found = re.search(r"^syscr: (\d+)", Path("/proc/self/io").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def test_g17_a_scan_of_many_rows_reads_ahead_and_one_of_few_does_not(tmp_path: Path) -> None:
    """A cold scan would wait for the disk once for every block of 8 KiB; a look at ten rows would
    read a quarter of a megabyte.
    """
    engine = RocksEngine(tmp_path / "db", STATE_FAMILIES)
    put(engine, range(3 * ROWS))
    engine.compact("cur", b"", b"")
    engine.close()
    engine = RocksEngine(tmp_path / "db", STATE_FAMILIES)  # nothing is cached
    before = engine.counters()
    engine.scan("cur", key(100), b"", limit=10)
    engine.scan("cur", key(200), b"", limit=10, reverse=True)
    assert since(engine, before)["scan_ahead_bytes"] == 0
    before, reads = engine.counters(), _reads()
    at, pages = key(ROWS), 0
    while rows := engine.scan("cur", at, key(2 * ROWS), limit=1_000):
        at, pages = rows[-1][0] + b"\x00", pages + 1
    done, asked = since(engine, before), _reads() - reads
    size = ROWS * len(VALUE)
    assert pages == 4
    assert size * 0.8 < done["scan_ahead_used_bytes"] <= done["scan_ahead_bytes"] < size * 1.5
    assert done["scan_ahead_hits"] > size / 8192 * 0.8
    assert asked < size / 8192 / 4, "one request for many blocks"
    before = engine.counters()
    cursor = engine.cursor("cur", key(2 * ROWS), key(3 * ROWS))
    while cursor.take(100, MiB):
        pass
    assert since(engine, before)["scan_ahead_used_bytes"] > size * 0.8, "snapshots, too"
    engine.close()


# -- versions


def test_g14_an_entry_at_rest_has_one_version_number(engine: RocksEngine) -> None:
    """Every row would carry the engine's sequence number beside the timestamp of its commit: where
    rows lie at rest, that number is 0 in all of them (and takes no room); and a record has no
    number but the timestamp that says of which moment it is.
    """
    batch, commit_ts = engine.batch(), 7 << 18
    for i in range(ROWS):
        _, record, *_ = cur_row(key(i), VALUE, commit_ts + i, None)
        assert record is not None
        assert len(record) == 8 + 1 + len(VALUE) + 4, "timestamp, flags, value, checksum"
        batch.put(key(i), record, engine.family("cur"))
        _, _, old_key, old = cur_row(key(i), b"", commit_ts + ROWS + i, record)
        assert old_key == hist_key(key(i), commit_ts + i)
        assert old is not None
        assert len(old) == len(record), "… and here until when; of which moment is in the key"
        batch.put(old_key, old, engine.family("hist"))
    engine.write(batch)
    engine.flush()
    for family in ("cur", "hist"):
        engine.compact(family, b"", b"", bottom=True)
        listing = engine._rows(family).property_value("rocksdb.sstables") or ""
        sequences = re.findall(r" seq:(\d+), ", listing)
        assert sequences, listing
        assert set(sequences) == {"0"}
    for row in engine.scan("cur", b"", b"", limit=10):
        verified("cur", *row)
