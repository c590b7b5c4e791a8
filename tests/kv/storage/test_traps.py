"""Each trap of rocksdict 0.3.29, first on the bare library and then on our engine, which must not
have it.

If a test's first half fails after an update of the library, the trap is gone: good news, and the
guard in kv/storage/rocks.py may go too. If its second half fails, data is at risk.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from rocksdict import (
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from kv.base.errors import Corruption, InvalidArgument, Unavailable
from kv.base.limits import KiB
from kv.storage import rocks, tuning
from kv.storage.engine import Batch
from kv.storage.rocks import RocksEngine


def raw_options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    return options


class Bare:
    """The library without us: one family `a`."""

    def __init__(self, path: Path, options: Options | None = None) -> None:
        options = options or raw_options()
        self.db = Rdict(str(path), options, column_families={"a": raw_options()})
        self.rows = self.db.get_column_family("a")
        self.handle: Any = self.db.get_column_family_handle("a")

    def write(self, *pairs: tuple[bytes, bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value, self.handle)
        self.db.write(batch)

    def close(self) -> None:
        self.handle = None
        self.rows.close()
        self.db.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RocksEngine]:
    engine = RocksEngine(tmp_path / "ours", ("a", "b"))
    yield engine
    engine.close()


def fill(engine: RocksEngine, *pairs: tuple[bytes, bytes]) -> None:
    batch, family = engine.batch(), engine.family("a")
    for key, value in pairs:
        batch.put(key, value, family)
    engine.write(batch)


LETTERS = tuple((bytes([c]), b"1") for c in b"abcdef")


@pytest.mark.slow
def test_lower_bound_sets_the_upper_bound(tmp_path: Path, engine: RocksEngine) -> None:
    """A reverse scan bounded by the library's lower bound would return the wrong half."""
    bare = Bare(tmp_path / "bare")
    bare.write(*LETTERS)
    options = ReadOptions()
    options.set_iterate_lower_bound(b"c")
    assert [k for k, _ in bare.rows.items(read_opt=options)] == [b"a", b"b"]
    bare.close()
    fill(engine, *LETTERS)
    assert [k for k, _ in engine.scan("a", b"c", b"e", reverse=True)] == [b"d", b"c"]


@pytest.mark.slow
def test_upper_bound_is_a_pointer_into_python_bytes(engine: RocksEngine) -> None:
    """A bound whose bytes are collected mid-scan ends the scan anywhere (not shown bare: memory
    errors).
    """
    fill(engine, *((b"%06d" % i, b"v") for i in range(3000)))
    for round_ in range(40):
        end = b"%06d" % (1000 + round_)
        expected = 1000 + round_
        found = engine.scan("a", b"", bytes(bytearray(end)))
        del end
        junk = [bytes([round_ % 256]) * 6 for _ in range(2000)]  # would reuse the freed bytes
        assert len(found) == expected
        assert junk


def test_iterators_of_a_snapshot_read_live_data(tmp_path: Path) -> None:
    """A 'consistent' copy made through Snapshot.items would mix old and new rows."""
    bare = Bare(tmp_path / "bare")
    bare.write((b"k", b"old"))
    view = bare.rows.snapshot()
    bare.write((b"k", b"new"))
    assert view[b"k"] == b"old"
    assert list(view.items()) == [(b"k", b"new")]
    del view
    bare.close()
    assert "snapshot" not in attributes_used()


def test_writing_to_a_dropped_family_poisons_the_database(tmp_path: Path) -> None:
    """One stale handle would stop the whole node, so families are dropped at a start alone."""
    bare = Bare(tmp_path / "bare")
    bare.db.drop_column_family("a")
    with pytest.raises(Exception, match="column family"):
        bare.write((b"k", b"v"))
    callers = [
        function.name
        for function in ast.walk(ast.parse(Path(rocks.__file__).read_text("utf-8")))
        if isinstance(function, ast.FunctionDef)
        and "drop_column_family"
        in {n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute)}
    ]
    assert callers == ["keep_shards"], "before anybody has a handle"


@pytest.mark.slow
def test_collecting_a_family_object_flushes_it(tmp_path: Path, engine: RocksEngine) -> None:
    """Taking the family object per call would write a tiny file each time."""
    path = tmp_path / "bare"
    bare = Bare(path)
    bare.write(*LETTERS)
    assert not list(path.glob("*.sst"))
    del bare.rows
    gc.collect()
    assert list(path.glob("*.sst"))
    fill(engine, *LETTERS)
    for _ in range(3):
        assert engine.getter("a")(b"a") == b"1"
        gc.collect()
    assert not list((tmp_path / "ours").glob("*.sst"))


@pytest.mark.slow
def test_close_leaves_the_lock_while_objects_live(tmp_path: Path) -> None:
    """Closing and opening a store in one process would fail for no visible reason."""
    bare = Bare(tmp_path / "bare")
    rows = bare.rows
    bare.db.close()
    with pytest.raises(Exception, match="lock hold by current process"):
        Bare(tmp_path / "bare")
    rows.close()

    engine = RocksEngine(tmp_path / "ours", ("a",))
    fill(engine, *LETTERS)
    getter, cycle = engine.getter("a"), [engine.family("a")]
    cycle.append(cycle)  # only the collector frees this one
    del cycle
    engine.close()
    again = RocksEngine(tmp_path / "ours", ("a",))
    assert again.getter("a")(b"c") == b"1"
    with pytest.raises(Unavailable, match="closed"):
        getter(b"a")
    frozen: list[object] = [again.family("a")]
    frozen.append(frozen)
    del frozen
    gc.freeze()  # as a node does when it begins to serve
    again.close()
    again = RocksEngine(tmp_path / "ours", ("a",))
    kept = again.family("a")
    again.close()
    with pytest.raises(InvalidArgument, match="still holds a family"):
        RocksEngine(tmp_path / "ours", ("a",))
    del kept
    RocksEngine(tmp_path / "ours", ("a",)).close()


@pytest.mark.slow
def test_options_without_raw_mode_read_nothing(tmp_path: Path) -> None:
    """A reopened store would look empty, and new data would be written beside the old."""
    bare = Rdict(str(tmp_path / "bare"), raw_options())
    bare[b"k"] = b"v"
    bare.close()
    plain = Rdict(str(tmp_path / "bare"), Options())
    assert plain.get(b"k") is None
    plain.close()

    for _ in range(2):
        engine = RocksEngine(tmp_path / "ours", ("a",))
        fill(engine, (b"k", b"v"))
        assert engine.getter("a")(b"k") == b"v"
        engine.close()


@pytest.mark.slow
def test_a_batch_is_consumed_and_needs_its_family(tmp_path: Path, engine: RocksEngine) -> None:
    """A batch written twice, or a put without a family, would go nowhere without an error of
    ours.
    """
    bare = Bare(tmp_path / "bare")
    batch = WriteBatch(raw_mode=True)
    batch.put(b"lost", b"v")  # no family: the default one, not `a`
    bare.db.write(batch)
    assert bare.rows.get(b"lost") is None
    with pytest.raises(Exception, match="already consumed"):
        bare.db.write(batch)
    bare.close()

    ours = engine.batch()
    engine.write(ours)
    with pytest.raises(InvalidArgument, match="written before"):
        engine.write(ours)
    for method in (Batch.put, Batch.delete, Batch.delete_range):
        assert inspect.signature(method).parameters["family"].default is inspect.Parameter.empty


@pytest.mark.slow
def test_walking_below_a_range_crosses_all_tombstones(tmp_path: Path, engine: RocksEngine) -> None:
    """A reverse scan that stops late would hold the interpreter for the deleted rows below it."""
    rows = [(b"%06d" % i, b"v") for i in range(60_000)]
    bare = Bare(tmp_path / "bare")
    for target in (bare.write, lambda *pairs: fill(engine, *pairs)):
        target(*rows)  # type: ignore[operator]
    batch, ours = WriteBatch(raw_mode=True), engine.batch()
    for key, _ in rows[:-10]:
        batch.delete(key, bare.handle)
        ours.delete(key, engine.family("a"))
    bare.db.write(batch)
    engine.write(ours)

    def bare_scan() -> list[bytes]:
        return [k for k, _ in bare.rows.items(backwards=True) if k >= b"059990"]

    def our_scan() -> list[bytes]:
        return [k for k, _ in engine.scan("a", b"059990", b"", reverse=True)]

    assert bare_scan() == our_scan() == [k for k, _ in reversed(rows[-10:])]
    assert fastest(bare_scan) > 20 * fastest(our_scan)
    bare.close()


def fastest(call: Any, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        begun = perf_counter()
        call()
        times.append(perf_counter() - begun)
    return min(times)


@pytest.mark.slow
def test_write_options_are_properties(engine: RocksEngine) -> None:
    """Called as methods, as older stubs said, the settings would never be made, and a stall would
    freeze us.
    """
    assert not callable(WriteOptions().no_slowdown)
    assert engine._write_options.no_slowdown is True
    assert engine._write_options.sync is False


@pytest.mark.slow
def test_an_inverted_delete_range_poisons_the_database(tmp_path: Path, engine: RocksEngine) -> None:
    """One request with its bounds swapped would half-apply a batch and stop every later write."""
    bare = Bare(tmp_path / "bare")
    batch = WriteBatch(raw_mode=True)
    batch.put(b"half", b"done", bare.handle)
    batch.delete_range(b"z", b"a", bare.handle)
    with pytest.raises(Exception, match="end key comes before start key"):
        bare.db.write(batch)
    assert bare.rows.get(b"half") == b"done"
    with pytest.raises(Exception, match="end key comes before start key"):
        bare.write((b"innocent", b"v"))

    ours, family = engine.batch(), engine.family("a")
    ours.put(b"k", b"v", family)
    with pytest.raises(InvalidArgument, match="lies before the start"):
        ours.delete_range(b"z", b"a", family)
    ours.delete_range(b"k", b"k", family)  # empty: nothing
    engine.write(ours)
    assert engine.getter("a")(b"k") == b"v"


def copy_of_a_live_database(source: Path, target: Path) -> Path:
    """What the disk would hold after a crash now. RocksDB is still deleting its old manifests."""
    current = (source / "CURRENT").read_text().strip()

    def ignore(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name.startswith("MANIFEST") and name != current]

    shutil.copytree(source, target, ignore=ignore)
    return target


def damage_a_table_file(path: Path) -> None:
    table = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)


BIG = [(b"%06d" % i, os.urandom(100)) for i in range(3000)]


@pytest.mark.slow
def test_a_scan_ends_silently_at_a_corrupt_block(tmp_path: Path) -> None:
    """A table with one bad block would look shorter than it is."""
    bare = Bare(tmp_path / "bare")
    bare.write(*BIG)
    bare.rows.flush()
    bare.close()
    damage_a_table_file(tmp_path / "bare")
    bare = Bare(tmp_path / "bare")
    assert 0 < len(list(bare.rows.items())) < len(BIG), "no error: the iterator just ends"
    bare.close()

    engine = RocksEngine(tmp_path / "ours", ("a",))
    fill(engine, *BIG)
    engine.flush()
    engine.close()
    damage_a_table_file(tmp_path / "ours")
    engine = RocksEngine(tmp_path / "ours", ("a",))
    for reverse in (False, True):
        with pytest.raises(Corruption):
            engine.scan("a", b"", b"", reverse=reverse)
        with pytest.raises(Corruption):
            engine.scan("a", b"000500", b"002500", reverse=reverse, limit=2500)
    cursor = engine.cursor("a", b"", b"")
    assert len(cursor.take(100, 1 << 20)) == 100
    with pytest.raises(Corruption) as kept:  # a snapshot of it does not end as if it were whole
        cursor.take(len(BIG), 1 << 30)
    assert len(engine.scan("a", b"", b"", limit=100)) == 100, "intact blocks stay readable"
    get, damaged = engine.getter("a"), []
    for key, value in BIG:
        try:
            assert get(key) == value
        except Corruption as error:
            damaged.append((key, error.details))
    assert 0 < len(damaged) < 200
    for key, details in damaged:
        assert details["key"] == key
        assert details["file"].endswith(".sst")
    engine.close()
    RocksEngine(tmp_path / "ours", ("a",)).close()
    assert kept.value.details["family"] == "a", "an error that somebody keeps locks nothing"


@pytest.mark.slow
def test_replay_ends_silently_at_a_flipped_bit(tmp_path: Path) -> None:
    """One bad bit in the log would drop every later write that was synced and acknowledged."""

    def crashed_copy(path: Path, log: str) -> Path:
        copy = copy_of_a_live_database(path, path.with_name(path.name + "-" + log))
        file = max(copy.glob("*.log"), key=lambda f: f.stat().st_size)
        data = bytearray(file.read_bytes())
        if log == "flipped":
            data[len(data) // 2] ^= 1
        else:
            del data[-50:]
        file.write_bytes(data)
        return copy

    options = raw_options()
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())  # the library's default
    bare = Bare(tmp_path / "bare", options)
    engine = RocksEngine(tmp_path / "ours", ("a",))
    for pair in BIG[:500]:
        bare.write(pair)
        fill(engine, pair)
    bare.db.flush_wal(True)
    engine.sync()
    flipped = Bare(crashed_copy(tmp_path / "bare", "flipped"), options)
    assert len(list(flipped.rows.items())) < 300
    flipped.close()
    bare.close()

    with pytest.raises(Corruption, match="damaged"):
        RocksEngine(crashed_copy(tmp_path / "ours", "flipped"), ("a",))
    torn = RocksEngine(crashed_copy(tmp_path / "ours", "torn"), ("a",))
    assert torn.scan("a", b"", b"") == BIG[:499], "a torn tail loses the torn batch only"
    torn.close()
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("zeros_from", ["inside a record", "between records"])
def test_zeros_that_a_power_loss_left_are_cut_off(tmp_path: Path, zeros_from: str) -> None:
    """File systems lengthen a file before its data arrives; a node must open again after that, with
    every record before it."""
    engine = RocksEngine(tmp_path / "ours", ("a",))
    sizes = []
    file = next((tmp_path / "ours").glob("*.log"))
    for pair in BIG[:500]:
        fill(engine, pair)
        sizes.append(file.stat().st_size)
    copy = copy_of_a_live_database(tmp_path / "ours", tmp_path / "copy")
    engine.close()
    at = sizes[299] + (40 if zeros_from == "inside a record" else 0)
    data = (copy / file.name).read_bytes()
    (copy / file.name).write_bytes(data[:at] + bytes(len(data) - at))
    torn = RocksEngine(copy, ("a",))
    assert torn.scan("a", b"", b"") == BIG[:300]
    torn.close()


@pytest.mark.slow
def test_zeros_in_front_of_data_are_damage_and_stay_as_they_are(tmp_path: Path) -> None:
    """A hole, or a flipped bit before zeros, may be synced data: refuse, and change no byte."""
    engine = RocksEngine(tmp_path / "ours", ("a",))
    for pair in BIG[:500]:
        fill(engine, pair)
    copy = copy_of_a_live_database(tmp_path / "ours", tmp_path / "copy")
    engine.close()
    file = max(copy.glob("*.log"), key=lambda f: f.stat().st_size)
    data = bytearray(file.read_bytes())
    for start, end in ((20_000, 24_096), (10_000, 10_001)):
        bad = bytearray(data)
        bad[start:end] = bytes(end - start) if end - start > 1 else bytes([data[start] ^ 4])
        bad += bytes(5000)
        file.write_bytes(bad)
        with pytest.raises(Corruption, match="damaged"):
            RocksEngine(copy, ("a",))
        assert file.read_bytes() == bad


@pytest.mark.slow
def test_a_stall_refuses_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without no_slowdown a slow disk would freeze the whole process; half a batch would be
    worse.
    """
    monkeypatch.setattr(tuning, "_BUFFER_BYTES_OTHER", 64 * KiB)
    monkeypatch.setattr(tuning, "_BUFFERS_MAX", 2)
    engine = RocksEngine(tmp_path / "ours", ("a",))
    get, refused = engine.getter("a"), []
    value = os.urandom(60_000)
    for i in range(2000):
        try:
            fill(engine, (b"%d" % i, value), (b"%d-second" % i, b"v"))
        except Unavailable as error:
            refused.append((i, error.message))
            if len(refused) == 3:
                break
    assert len(refused) == 3
    for i, message in refused:
        assert "slower than the writes" in message
        assert get(b"%d" % i) is get(b"%d-second" % i) is None
    engine.close()


@pytest.mark.slow
def test_a_full_disk_is_an_error_and_nothing_is_half_done(tmp_path: Path) -> None:
    """A disk that fills up must refuse whole batches and keep every earlier one."""
    script = textwrap.dedent("""
        import os, resource, signal, sys
        from kv.base.errors import Unavailable
        from kv.storage.rocks import RocksEngine
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file-size limit stands in for the disk
        engine = RocksEngine(sys.argv[1], ("a",))
        get, family, refused = engine.getter("a"), engine.family("a"), 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        for i in range(10):
            batch = engine.batch()
            batch.put(b"%d" % i, os.urandom(30_000), family)
            batch.put(b"%d-second" % i, b"v", family)
            try:
                engine.write(batch)
            except Unavailable as error:
                assert "disk is full" in error.message, error
                assert get(b"%d" % i) is get(b"%d-second" % i) is None
                refused += 1
        assert get(b"0") is not None, "reads go on"
        print(refused)
        sys.stdout.flush()
        os._exit(0)
    """)
    command = [sys.executable, "-c", script, str(tmp_path / "ours")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path.cwd(), timeout=30)
    assert ran.returncode == 0, ran.stderr
    refused = int(ran.stdout)
    assert 0 < refused < 10
    engine = RocksEngine(tmp_path / "ours", ("a",))
    written = 10 - refused
    expected = sorted(k for i in range(written) for k in (b"%d" % i, b"%d-second" % i))
    assert [k for k, _ in engine.scan("a", b"", b"")] == expected
    engine.close()


FORBIDDEN = {
    "set_iterate_lower_bound": "sets the upper bound",
    "snapshot": "its iterators read live data",
    "set_atomic_flush": "a manual flush of one family breaks it",
    "disable_wal": "nothing could be replayed",
    "sync=True": "holds the interpreter for the fsync",
}


def attributes_used() -> set[str]:
    """Every name read from an object in rocks.py and tuning.py, except our own method `sync`."""
    trees = [ast.parse(Path(str(m.__file__)).read_text("utf-8")) for m in (rocks, tuning)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert "flush_wal" in used
    return used


@pytest.mark.parametrize("name", FORBIDDEN)
def test_calls_with_traps_are_not_used(name: str) -> None:
    """A later edit that reaches for one of these would bring its trap back."""
    assert name not in attributes_used(), FORBIDDEN[name]
    if "=" in name:
        assert name not in Path(rocks.__file__).read_text("utf-8").split('"""', 2)[2]
