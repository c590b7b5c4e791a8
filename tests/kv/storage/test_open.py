"""Opening: what is refused, why, and what is found again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kv.base.errors import Corruption, InvalidArgument, Unavailable
from kv.storage import directory, rocks
from kv.storage.engine import FAMILIES_SINCE, LOG_FAMILIES, STATE_FAMILIES
from kv.storage.memory import MemoryEngine
from kv.storage.open_engine import open_engine
from kv.storage.rocks import RocksEngine


def make(path: Path, families: tuple[str, ...] = ("a",)) -> None:
    engine = RocksEngine(path, families)
    batch = engine.batch()
    batch.put(b"k", b"v", engine.family(families[0]))
    engine.write(batch)
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("families", [STATE_FAMILIES, LOG_FAMILIES])
def test_both_kinds_open_with_both_sets_of_families(
    tmp_path: Path, families: tuple[str, ...]
) -> None:
    """The node opens exactly these."""
    memory = open_engine("memory", "", families)
    assert isinstance(memory, MemoryEngine)
    disk = open_engine("rocks", tmp_path / "db", families)
    for name in families:
        assert disk.getter(name)(b"k") is memory.getter(name)(b"k") is None
    disk.close()


@pytest.mark.slow
def test_another_format_is_refused_and_untouched(tmp_path: Path) -> None:
    """Data of a newer version read by this one would be misread, or written into."""
    make(tmp_path)
    file = tmp_path / directory.FORMAT_FILE
    text = file.read_text()
    for other in (text.replace("storage 2", "storage 3"), "", "\x00\xff"):
        file.write_text(other)
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(InvalidArgument, match="format"):
            RocksEngine(tmp_path, ("a",))
        assert sorted(os.listdir(tmp_path)) == before
    file.write_text(text)
    RocksEngine(tmp_path, ("a",)).close()


@pytest.mark.slow
def test_an_older_format_is_read_and_marked(tmp_path: Path) -> None:
    """Data of before could not be opened any more; or a program of before would open data that it
    cannot read, and end with words of nobody.
    """
    make(tmp_path)
    file = tmp_path / directory.FORMAT_FILE
    text = file.read_text()
    assert "storage 2" in text
    file.write_text(text.replace("storage 2", "storage 1"))
    with pytest.raises(InvalidArgument, match="belongs to another part"):
        RocksEngine(tmp_path, ("a", "b"))
    assert "storage 1" in file.read_text(), "what is refused is not marked"
    RocksEngine(tmp_path, ("a",)).close()
    assert file.read_text() == text


@pytest.mark.slow
def test_other_families_are_refused(tmp_path: Path) -> None:
    """State and log directories swapped would make an empty family look like lost data."""
    make(tmp_path)
    with pytest.raises(InvalidArgument, match="belongs to another part"):
        RocksEngine(tmp_path, ("a", "b"))


FIRST = ("cur", "hist", "lock", "txn", "gcq", "meta")


@pytest.mark.slow
@pytest.mark.parametrize("old", [FIRST, (*FIRST, "staged")], ids=["first", "before guards"])
def test_a_family_of_a_later_release_is_added(tmp_path: Path, old: tuple[str, ...]) -> None:
    """Data of the releases before `staged` and before `guard` could not be opened any more, or only
    once.
    """
    assert tuple(name for name in STATE_FAMILIES if name not in FAMILIES_SINCE) == FIRST
    make(tmp_path, old)
    for _ in range(2):
        engine = RocksEngine(tmp_path, STATE_FAMILIES)
        assert engine.getter("cur")(b"k") == b"v"
        batch = engine.batch()
        batch.put(b"s", b"1", engine.family("staged"))
        batch.put(b"g", b"1", engine.family("guard"))
        engine.write(batch)
        engine.close()
    engine = RocksEngine(tmp_path, STATE_FAMILIES)
    assert engine.scan("staged", b"", b"") == [(b"s", b"1")]
    assert engine.scan("guard", b"", b"") == [(b"g", b"1")]
    engine.close()
    with pytest.raises(InvalidArgument, match="belongs to another part"):
        RocksEngine(tmp_path, old)


def test_a_directory_of_something_else_is_refused_and_untouched(tmp_path: Path) -> None:
    """A slip in --data must not scatter a database over somebody's files."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidArgument, match=r"not\s+Kvorum's \(it has thesis.txt"):
        RocksEngine(tmp_path, ("a",))
    assert sorted(os.listdir(tmp_path)) == [directory.PID_FILE, "thesis.txt"]


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    """The reason of the system must reach the user with the path."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/kvorum")):
        with pytest.raises(InvalidArgument, match=f"{path} cannot be used"):
            RocksEngine(path, ("a",))


@pytest.mark.slow
def test_a_second_process_on_the_same_data_is_told_who_has_it(tmp_path: Path) -> None:
    """Two nodes on one directory would destroy it; the message must say whom to stop."""
    engine = RocksEngine(tmp_path, ("a",))
    script = textwrap.dedent("""
        import sys
        from kv.base.errors import InvalidArgument
        from kv.storage.rocks import RocksEngine
        try:
            RocksEngine(sys.argv[1], ("a",))
        except InvalidArgument as error:
            print(error.details["pid"], error.message)
    """)
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=30
    )
    pid, _, message = ran.stdout.strip().partition(" ")
    assert int(pid) == os.getpid()
    assert f"{tmp_path} is in use by process {os.getpid()}" in message
    with pytest.raises(InvalidArgument, match="in use by this process"):
        RocksEngine(tmp_path, ("a",))
    engine.close()
    RocksEngine(tmp_path, ("a",)).close()


def test_a_closed_engine_is_free_for_other_processes_at_once(tmp_path: Path) -> None:
    """A process that had closed its embedded node kept the directory locked until it happened to
    collect garbage.
    """
    engine = RocksEngine(tmp_path, ("a",))
    cycle: list[object] = [engine.family("a"), engine.getter("a"), engine.batch()]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        engine.close()
        code = "import sys; from kv.storage.rocks import RocksEngine as R; R(sys.argv[1], ('a',))"
        ran = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, timeout=30
        )
    finally:
        gc.enable()
    assert ran.returncode == 0, ran.stderr.decode()[-500:]


def test_a_killed_process_leaves_no_lock_and_loses_no_write(tmp_path: Path) -> None:
    """After kill -9 the data must open at once, with everything that was written."""
    script = textwrap.dedent("""
        import os, signal, sys
        from kv.storage.rocks import RocksEngine
        engine = RocksEngine(sys.argv[1], ("a",))
        for i in range(100):
            batch = engine.batch()
            batch.put(b"%03d" % i, b"v", engine.family("a"))
            engine.write(batch)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=30)
    assert ran.returncode == -9
    engine = RocksEngine(tmp_path, ("a",))
    assert len(engine.scan("a", b"", b"")) == 100
    engine.close()


def test_a_missing_table_file_is_corruption(tmp_path: Path) -> None:
    """A node that opened with a hole in its data would answer 'not found' for rows that exist."""
    engine = RocksEngine(tmp_path, ("a",))
    batch = engine.batch()
    batch.put(b"k", b"v", engine.family("a"))
    engine.write(batch)
    del batch
    engine.flush()
    engine.close()
    lost = next(tmp_path.glob("*.sst"))
    lost.unlink()
    with pytest.raises(Corruption, match=lost.name):
        RocksEngine(tmp_path, ("a",))


@pytest.mark.slow
def test_a_checkpoint_opens_as_it_was(tmp_path: Path) -> None:
    """A copy is only a backup if it opens, and if later writes are not in it."""
    engine = RocksEngine(tmp_path / "db", ("a",))
    family = engine.family("a")
    for i, flush in ((0, True), (1, False)):
        batch = engine.batch()
        batch.put(b"%d" % i, b"v", family)
        engine.write(batch)
        if flush:
            engine.flush()
    engine.checkpoint(tmp_path / "copy")
    with pytest.raises(InvalidArgument, match="it exists"):
        engine.checkpoint(tmp_path / "copy")
    batch = engine.batch()
    batch.put(b"later", b"v", family)
    engine.write(batch)
    copy = RocksEngine(tmp_path / "copy", ("a",))
    assert [k for k, _ in copy.scan("a", b"", b"")] == [b"0", b"1"]
    copy.close()
    del family
    engine.close()


@pytest.mark.slow
def test_room_is_refused_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB never recovers from a full disk; requests must be refused while there is still
    room.
    """
    engine = RocksEngine(tmp_path, ("a",))
    engine.check_room()
    free = engine.stats()["disk_free_bytes"]
    monkeypatch.setattr(rocks, "DISK_FREE_BYTES_MIN", free * 2)
    with pytest.raises(Unavailable, match="MiB left") as caught:
        engine.check_room()
    assert caught.value.details["limit"] == free * 2
    assert engine.scan("a", b"", b"") == []
    monkeypatch.undo()
    engine.check_room()
    engine.close()


@pytest.mark.slow
def test_a_failed_sync_stays_failed(tmp_path: Path) -> None:
    """Trying again after a failed fsync reports success for pages that the kernel has dropped."""
    engine = RocksEngine(tmp_path, ("a",))

    class Failing:
        def __init__(self, inner: object) -> None:
            self.inner = inner
            self.failures = 1

        def flush_wal(self, sync: bool) -> None:
            self.failures -= 1
            if self.failures == 0:
                raise Exception("IO error: While fdatasync: Input/output error")

        def close(self) -> None:
            self.inner.close()  # type: ignore[attr-defined]

    engine._db = Failing(engine._db)  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(Unavailable, match="Input/output error"):
            engine.sync()
    with pytest.raises(Unavailable, match="Input/output error"):
        engine.close()
    RocksEngine(tmp_path, ("a",)).close()


@pytest.mark.slow
def test_bytes_only(tmp_path: Path) -> None:
    """Other types would be pickled by the library's other mode, or refused in words of its own."""
    engine = RocksEngine(tmp_path, ("a",))
    with pytest.raises(InvalidArgument, match="bytes"):
        engine.getter("a")("text")  # type: ignore[arg-type]
    engine.close()
