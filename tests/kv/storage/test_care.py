"""Which files are rewritten: by what they say of themselves, and on a real database."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kv.base.keys import escape_open
from kv.base.limits import (
    CARE_MARKS_MIN,
    CARE_PIECE_BYTES_MAX,
    CARE_SPACE_RATIO,
    CARE_SPACE_SLACK_BYTES,
    TXN_LIFETIME_MS_MAX,
    TXN_STATUS_RETENTION_MS,
    MiB,
)
from kv.base.ops import put as op_put
from kv.storage.engine import STATE_FAMILIES
from kv.storage.files import FileFacts, MemoryFacts, numbers_of
from kv.storage.files_to_rewrite import Span, flush_due, next_job
from kv.storage.rocks import RocksEngine
from kvorum.storage.compaction import Care
from tests.kv.mvcc.store import Store
from tests.kv.mvcc.store import at as moment

VALUE = os.urandom(1 << 10)


def file(
    number: int,
    first: bytes,
    last: bytes,
    *,
    family: str = "cur",
    level: int = 6,
    size: int = MiB,
    entries: int = 1_000,
    deletions: int = 0,
) -> FileFacts:
    return FileFacts(family, number, level, first, last, size, entries, deletions)


def put(engine: RocksEngine, low: int, high: int, family: str = "cur") -> None:
    for at in range(low, high, 500):
        batch = engine.batch()
        for i in range(at, min(at + 500, high)):
            batch.put(b"%08d" % i, VALUE, engine.family(family))
        engine.write(batch)


def delete(engine: RocksEngine, low: int, high: int, family: str = "cur") -> None:
    batch = engine.batch()
    for i in range(low, high):
        batch.delete(b"%08d" % i, engine.family(family))
    engine.write(batch)


def bytes_of(engine: RocksEngine, family: str) -> int:
    return sum(f.bytes for f in engine.files() if f.family == family)


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    engine = RocksEngine(tmp_path / "db", STATE_FAMILIES)
    yield engine
    engine.close()


class _Replica:
    """What Care looks at of a replica."""

    def __init__(self, start: bytes, end: bytes, live: int, old: int = 0) -> None:
        self.descriptor = self.state = self
        self.start, self.end, self.live_bytes, self.old_versions = start, end, live, old
        self.shard = ""


def care(engine: RocksEngine, *replicas: _Replica) -> Care:
    return Care(lambda: replicas, engine, asyncio.to_thread)  # type: ignore[arg-type, return-value]


# ------------------------------------------------------------------------------ G1: what files say


@pytest.mark.slow
def test_g1_files_say_what_was_counted_when_they_were_written(
    engine: RocksEngine, tmp_path: Path
) -> None:
    """Rows and delete marks of every file, by family, also after a restart."""
    put(engine, 0, 1_000)
    put(engine, 0, 100, "hist")
    engine.flush()
    delete(engine, 0, 300)
    assert engine.in_memory()["cur"] == MemoryFacts(300, 300)
    engine.flush()
    found = {(f.family, f.first, f.last, f.entries, f.deletions) for f in engine.files()}
    wanted = {
        ("cur", b"%08d" % 0, b"%08d" % 999, 1_000, 0),
        ("cur", b"%08d" % 0, b"%08d" % 299, 300, 300),
        ("hist", b"%08d" % 0, b"%08d" % 99, 100, 0),
    }
    assert found == wanted
    assert engine.in_memory()["cur"] == MemoryFacts(0, 0)
    engine.close()
    again = RocksEngine(tmp_path / "db", STATE_FAMILIES)
    assert {(f.family, f.first, f.last, f.entries, f.deletions) for f in again.files()} == wanted
    again.close()


@pytest.mark.slow
def test_g1_keys_that_look_like_lines_name_no_file(engine: RocksEngine) -> None:
    """A user's key with a line break in it would put a file into another family."""
    batch = engine.batch()
    batch.put(b"k\n 77:12[1 .. 1]", b"v", engine.family("cur"))
    batch.put(b"k\n 78:12[1 .. 1]", b"v", engine.family("gcq"))
    engine.write(batch)
    engine.flush()
    assert sorted((f.family, f.entries) for f in engine.files()) == [("cur", 1), ("gcq", 1)]
    assert numbers_of("--- level 0 ---\n 15:1[\n 16:2[\nx17:3[") == {15, 16}


# ----------------------------------------------------------------------------------- G5: decisions


def test_g5_a_file_of_marks_is_rewritten_and_others_are_not() -> None:
    """Scans would step over the marks for ever; or every file be rewritten for a few."""
    everything = [Span(b"", b"", 1 << 40, 1 << 40)]
    quarter = CARE_MARKS_MIN * 4
    few = file(1, b"a", b"c", entries=quarter + 1, deletions=CARE_MARKS_MIN)
    assert next_job([few], everything) is None
    assert next_job([file(1, b"a", b"c", entries=99, deletions=99)], everything) is None
    many = file(2, b"d", b"f", level=0, entries=quarter, deletions=CARE_MARKS_MIN)
    job = next_job([few, many, file(3, b"d", b"e")], everything)
    assert job is not None
    assert (job.family, job.why, job.bottom) == ("cur", "marks", False)
    assert [(p.start, p.end) for p in job.pieces] == [(b"d", b"f\x00")]
    assert next_job([many], everything, {job.id}) is None
    alone = next_job([few, many], everything)
    assert alone is not None
    assert alone.bottom, "nothing below: the marks would be moved down as they are"


def test_g5_marks_in_memory_count() -> None:
    """A range that was emptied and is left alone would keep its marks in memory for ever."""
    files = [file(1, b"a", b"c", family="hist", entries=4 * CARE_MARKS_MIN)]
    memory = {name: MemoryFacts(CARE_MARKS_MIN, CARE_MARKS_MIN) for name in ("cur", "hist")}
    assert flush_due(files, memory) == ["hist"], "family cur has nothing on the disk"
    assert flush_due([files[0]._replace(entries=4 * CARE_MARKS_MIN + 1)], memory) == []
    assert flush_due(files, {"hist": MemoryFacts(CARE_MARKS_MIN, CARE_MARKS_MIN - 1)}) == []


@pytest.mark.slow
async def test_g5_an_emptied_range_is_compacted_by_itself(engine: RocksEngine) -> None:
    """Only that range: the files of the others stay what they are."""
    for low in (0, 10_000, 20_000):
        put(engine, low, low + 2_000)
        engine.flush()
        engine.compact("cur", b"%08d" % low, b"%08d" % (low + 2_000))
    others = {f for f in engine.files() if not f.first.startswith(b"0001")}
    assert len(others) == 2
    delete(engine, 10_000, 12_000)
    carer = care(engine, _Replica(b"", b"", 6_000 * 1_100))
    await carer.look()
    assert set(engine.files()) == others
    assert (carer.why, carer.flushes) == ({"marks": 1}, 1)
    assert 0 < carer.read_bytes < 4 * MiB
    await carer.look()
    assert carer.compactions == 1, "once"


@pytest.mark.slow
async def test_g5_marks_that_met_nothing_go_too(engine: RocksEngine) -> None:
    """Written, deleted and flushed: RocksDB moves such a file to the bottom with all its marks."""
    put(engine, 0, 2_000)
    delete(engine, 0, 2_000)
    engine.flush()
    engine.compact("cur", b"", b"")
    put(engine, 0, 2_000)
    delete(engine, 0, 2_000)
    engine.flush()
    await care(engine, _Replica(b"", b"", 0)).look()
    assert sum(f.deletions for f in engine.files()) == 0


@pytest.mark.slow
async def test_g5_what_a_reader_keeps_is_not_rewritten_again_and_again(
    engine: RocksEngine,
) -> None:
    """A cursor needs the rows of its moment: every look would rewrite the same files in vain."""
    put(engine, 0, 2_000)
    engine.flush()
    cursor = engine.cursor("cur", b"", b"")
    delete(engine, 0, 2_000)
    carer = care(engine, _Replica(b"", b"", 0))
    for _ in range(10):
        await carer.look()
    assert carer.compactions <= 3
    assert len(cursor.take(10_000, 1 << 30)) == 2_000
    cursor.close()
    for _ in range(25):
        await carer.look()
    assert bytes_of(engine, "cur") == 0


# --------------------------------------------------------------------------------------- G6: space


def test_g6_more_than_is_counted_is_rewritten() -> None:
    """A table that was dropped leaves its bytes, and nobody who counts them; a partition whose
    bytes are counted keeps its files.
    """
    slack = CARE_SPACE_SLACK_BYTES
    spans = [Span(b"b", b"d", 50 * MiB, 0), Span(b"f", b"", 1 * MiB, 0)]
    kept = file(1, b"b1", b"c", size=CARE_SPACE_RATIO * 50 * MiB + slack)
    assert next_job([kept], spans) is None
    more = kept._replace(bytes=kept.bytes + 1)
    job = next_job([more], spans)
    assert job is not None
    assert (job.why, job.family) == ("space", "cur")
    nobodys = file(2, b"d1", b"e", size=slack + 1)
    job = next_job([kept, nobodys], spans)
    assert job is not None
    assert (job.pieces[0].start, job.pieces[-1].end) == (b"d1", b"e\x00")
    both = file(3, b"c1", b"e", size=slack + 1)
    assert next_job([both], spans) is None, "it may all be the partition's"


def test_g6_old_versions_that_nobody_counts() -> None:
    """The same for `hist`, whose keys are escaped."""
    spans = [Span(b"b\x00", b"d", 0, 1_000)]
    low = escape_open(b"b\x00")
    kept = file(1, low, b"c", family="hist", entries=2 * 1_000 + CARE_MARKS_MIN)
    assert next_job([kept], spans) is None
    job = next_job([kept._replace(entries=kept.entries + 1)], spans)
    assert job is not None
    assert (job.family, job.why) == ("hist", "history")


@pytest.mark.slow
async def test_g6_disk_falls_after_nine_tenths_were_deleted(engine: RocksEngine) -> None:
    """What is left on the disk is at most what is left in the partition, twice, and 16 MiB; here
    it is what is left.
    """
    put(engine, 0, 30_000)
    engine.flush()
    full = bytes_of(engine, "cur")
    delete(engine, 0, 27_000)
    await care(engine, _Replica(b"", b"", 3_000 * 1_100)).look()
    left = bytes_of(engine, "cur")
    assert left < full / 8
    assert left < CARE_SPACE_RATIO * 3_000 * 1_100 + CARE_SPACE_SLACK_BYTES


# ----------------------------------------------------------------------------------- G19: garbage


async def test_g19_old_versions_expired_rows_and_outcomes_fall_from_the_files(
    engine: RocksEngine,
) -> None:
    """What is collected would stay in the files, or cost more to get rid of than it was."""
    store, value = Store(), os.urandom(200)
    for ms in (1, 2, 3):
        for i in range(300):
            store.write(op_put(b"a%04d" % i, value), ts=moment(ms))
    for i in range(600):
        store.write(op_put(b"e%04d" % i, value, ttl_ms=10), ts=moment(5))
        store.rollback(b"t%04d" % i, moment(6, i))
    before = store.snapshot()
    store.collect(moment(TXN_LIFETIME_MS_MAX + TXN_STATUS_RETENTION_MS + 100))
    after = store.snapshot()
    gone = [(name, key) for name in before for key in before[name].keys() - after[name].keys()]
    assert len(gone) == 600 + 600 + 600 + 1_200, "hist, cur, txn, gcq"
    batch = engine.batch()
    for name, rows in before.items():
        for key, record in rows.items():
            batch.put(key, record, engine.family(name))
    engine.write(batch)
    engine.flush()
    full, was = sum(f.bytes for f in engine.files()), engine.counters()
    batch = engine.batch()
    for name, key in gone:  # as the entries of the collector's steps
        batch.delete(key, engine.family(name))
    engine.write(batch)
    await care(engine, _Replica(b"", b"", 300 * 300)).look()
    assert {f.family for f in engine.files()} == {"cur"}
    assert [(f.entries, f.deletions) for f in engine.files()] == [(300, 0)]
    now = engine.counters()
    cost = {name: now[name] - was[name] for name in now}
    assert cost["compaction_replaced_rows"] == len(gone)
    assert cost["compaction_read_bytes"] < 1.5 * full
    assert cost["compaction_written_bytes"] < 1.2 * sum(f.bytes for f in engine.files())


# ------------------------------------------------------------------------------ G9: never too much


def test_g9_a_large_range_is_rewritten_in_pieces() -> None:
    """One call for all of it would read the whole table, with every file kept until it ends."""
    files = [file(i, b"%04d" % i, b"%04da" % i, size=32 * MiB) for i in range(100)]
    job = next_job(files, [Span(b"a", b"", 0, 0)])
    assert job is not None
    assert max(p.bytes for p in job.pieces) <= CARE_PIECE_BYTES_MAX
    assert sum(p.bytes for p in job.pieces) == 3_200 * MiB
    assert (job.pieces[0].start, job.pieces[-1].end) == (b"0000", b"0099a\x00")
    for one, other in zip(job.pieces, job.pieces[1:], strict=False):
        assert one.end == other.start


def compactions(path: Path) -> list[dict[str, Any]]:
    """What RocksDB wrote of its compactions into its own log."""
    found = []
    for line in (path / "LOG").read_text().splitlines():
        _, mark, event = line.partition("EVENT_LOG_v1 ")
        if mark and (one := json.loads(event))["event"] == "compaction_started":
            found.append(one)
    return found


def small_levels(engine: RocksEngine) -> None:
    """Levels that hold megabytes, so that a test has several."""
    engine._families["cur"].set_options(
        {
            "max_bytes_for_level_base": str(MiB // 2),
            "max_bytes_for_level_multiplier": "4",
            "target_file_size_base": str(MiB // 16),
            "max_compaction_bytes": str(MiB // 2),  # 8 files
        }
    )


def settle(engine: RocksEngine) -> None:
    """Until RocksDB compacts no more."""
    rows, last = engine._families["cur"], [0]
    pause = threading.Event()
    while True:
        busy = any(
            rows.property_int_value(f"rocksdb.{what}")
            for what in ("num-running-compactions", "compaction-pending")
        )
        files = [f.number for f in engine.files()]
        if files == last and not busy:
            return
        last = files
        pause.wait(0.1)


@pytest.mark.slow
async def test_g9_a_dropped_range_reads_few_files_at_once(
    engine: RocksEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One mark over everything would be compacted with all files of the next level at once, and
    they stay on the disk until that is over.
    """
    monkeypatch.setattr("kv.storage.files_to_rewrite.CARE_SPACE_SLACK_BYTES", MiB)
    small_levels(engine)
    chance = random.Random(1)
    for _ in range(20):
        batch = engine.batch()
        for _ in range(1_000):
            batch.put(b"%08d" % chance.randrange(10**8), VALUE, engine.family("cur"))
        engine.write(batch)
        engine.flush_family("cur")
    settle(engine)
    assert len([f for f in engine.files() if f.level == 6]) >= 28
    before = len(compactions(tmp_path / "db"))
    batch = engine.batch()
    batch.delete_range(b"00500000", b"99000000", engine.family("cur"))
    engine.write(batch)
    carer = care(engine, _Replica(b"", b"", 0))
    await carer.look()
    settle(engine)
    assert carer.why == {"space": 1}
    reads = [len(one.get("files_L6", ())) for one in compactions(tmp_path / "db")[before:]]
    assert sum(reads) >= 28
    assert max(reads) <= 2 * 8 + 4, "a piece and one more file, and what hangs over"
    assert bytes_of(engine, "cur") < MiB


# ------------------------------------------------------------------------- G7: cursors that close


def deleted_by(path: Path) -> set[int]:
    """The threads that deleted files, as RocksDB's own log names them."""
    found = set()
    for line in (path / "LOG").read_text().splitlines():
        if '"event": "table_file_deletion"' in line:
            found.add(int(line.split()[1], 16) if "x" in line.split()[1] else int(line.split()[1]))
    return found


def test_g7_a_cursor_that_closes_deletes_no_file_itself(
    engine: RocksEngine, tmp_path: Path
) -> None:
    """The loop would delete the files that the cursor was the last to need, and reads wait."""
    for low in range(0, 3_000, 500):
        put(engine, low, low + 500)
        engine.flush()
    cursor = engine.cursor("cur", b"", b"")
    assert len(cursor.take(10, 1 << 20)) == 10
    delete(engine, 0, 3_000)
    engine.compact("cur", b"", b"")
    assert len(list((tmp_path / "db").glob("*.sst"))) >= 6, "the cursor needs them"
    cursor.close()
    gone: Callable[[], bool] = lambda: not list((tmp_path / "db").glob("*.sst"))  # noqa: E731
    waited = threading.Event()
    for _ in range(200):
        if gone():
            break
        waited.wait(0.05)
    assert gone()
    deleted = deleted_by(tmp_path / "db")
    assert deleted
    assert threading.get_ident() not in deleted
