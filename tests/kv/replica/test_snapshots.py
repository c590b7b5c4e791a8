"""A partition's range goes from one node to another: whole, checked, and all or nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kv.base import limits, methods
from kv.base.checksum import seal
from kv.base.errors import Corruption, Unavailable
from kv.base.limits import SNAPSHOT_BLOCK_ROWS_MAX
from kv.base.shards import SHARDED, family_of, parted
from kv.partition.entry import Entry
from kv.replica.chunks import HEADER_BYTES, Place, block, end_part, seal_chunk
from kv.replica.install import resume
from kv.replica.metakeys import INSTALLING, SERVICES, meta_key
from kv.replica.replica import Replica
from kv.replica.staging import chunk_key, stored_progress
from kv.storage.engine import STATE_FAMILIES, Engine, SortedRows
from kv.storage.memory import MemoryEngine
from kv.storage.rocks import RocksEngine
from raft.api import SnapshotSink
from raft.errors import SnapshotUnavailable
from tests.kv.partition.node import Node, run
from tests.kv.partition.test_replica import busy
from tests.kv.replica.support import DATA, Follower, all_chunks, dump, id_of, partition, rows_of

SPLIT = b"tab.m"


def leader(seed: int = 1, steps: int = 200, shard: str = "") -> Node:
    """A node with rows of every kind in both of its partitions."""
    node = Node(splits=(SPLIT,), shard=shard)
    busy(node, random.Random(seed), steps)
    node.machine(b"tab.k").put_meta(b"tso", seal(b"tso", b"\x07" * 8), lambda _error: None)
    for key in (b"tab.k", b"tab.z"):
        assert node.collect(key, node.oracle(1) - (60 << 18), 0) is None
    node.timers.run(1.0)
    return node


def replica(node: Node, key: bytes) -> Replica:
    found = node.manager.replica(node.machine(key).descriptor.id)
    assert found is not None
    return found


@pytest.fixture(params=["batches", "files"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the rows of a snapshot come into the database: small ones and large ones."""
    if request.param == "files":
        monkeypatch.setattr(limits, "SNAPSHOT_FILES_BYTES_MIN", 0)
        monkeypatch.setattr(limits, "SNAPSHOT_FILE_BYTES", 3_000)
        monkeypatch.setattr(limits, "SNAPSHOT_FILE_SYNC_BYTES", 2_000)
    return str(request.param)


@pytest.fixture(params=["memory", "rocks"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """The state DB of the node that takes the snapshot."""
    if request.param == "memory":
        yield MemoryEngine(STATE_FAMILIES)
        return
    found = RocksEngine(tmp_path / "state", STATE_FAMILIES)
    yield found
    found.close()


@pytest.mark.few(3)
@pytest.mark.parametrize("bytes_max", [97, 3_000, 1 << 20])
@pytest.mark.parametrize("key", [b"tab.k", b"tab.z"])
def test_f5_a_range_arrives_whole_and_nothing_else_changes(
    other: Engine, key: bytes, bytes_max: int
) -> None:
    """A replica that was rebuilt would lack rows, keep old ones, or damage its neighbour."""
    node = leader()
    sender = replica(node, key)
    # What the taking node had before: another history of both partitions.
    before = leader(seed=2, steps=120)
    for family, rows in dump(before.engine).items():
        batch = other.batch()
        for k, v in rows:
            batch.put(k, v, other.family(family))
        other.write(batch)
    batch = other.batch()
    batch.put(b"node", b"who I am", other.family("meta"))
    other.write(batch)
    neighbour = replica(node, b"tab.z" if key == b"tab.k" else b"tab.k").descriptor
    untouched = rows_of(other, neighbour)
    follower = Follower(other, sender.descriptor)
    source = sender.snapshot()
    follower.install(follower.take(source, bytes_max))
    source.close()

    wanted = rows_of(node.engine, sender.descriptor)
    assert all(wanted[family] for family in DATA)
    assert rows_of(other, sender.descriptor) == wanted
    assert rows_of(other, neighbour) == untouched
    assert other.getter("meta")(b"node") == b"who I am"
    assert other.scan("staged", b"", b"") == []
    for state in (follower.replica.state, Follower(other, sender.descriptor).replica.state):
        was = sender.state
        assert (state.index, state.term, state.top_ts) == (was.index, was.term, was.top_ts)
        assert (state.safepoint, state.old_versions) == (was.safepoint, was.old_versions)
        assert state.live_bytes == was.live_bytes
        assert dict(state.locks.items()) == dict(was.locks.items())
        assert state.guards.by_at == was.guards.by_at
        assert was.locks or key == b"tab.z"


def test_f5_a_snapshot_is_one_moment_while_writes_go_on() -> None:
    """Rows of different moments would be a state that no replica ever had."""
    node = leader()
    sender = replica(node, b"tab.k")
    wanted = rows_of(node.engine, sender.descriptor)
    follower = Follower(MemoryEngine(STATE_FAMILIES), sender.descriptor)
    source = sender.snapshot()
    sink = follower.replica.restore(id_of(source))
    chunks = []
    rng = random.Random(3)
    while (chunk := source.read(500)) is not None:
        chunks.append(chunk)
        busy(node, rng, 2)
    follower.stage(sink, chunks)
    follower.install(sink)
    assert rows_of(follower.engine, sender.descriptor) == wanted
    assert rows_of(node.engine, sender.descriptor) != wanted
    assert source.index < sender.state.index


def test_f5_a_row_larger_than_a_chunk_is_cut_and_joined() -> None:
    """A value of some megabytes would never fit, and the range could not be moved at all."""
    node = Node()
    value = random.Random(1).randbytes(700_000)
    node.put(b"tab.a", b"small")
    node.put(b"tab.b", value)
    node.put(b"tab.c", b"small")
    sender = node.manager.replicas()[0]
    follower = Follower(MemoryEngine(STATE_FAMILIES), sender.descriptor)
    source = sender.snapshot()
    follower.install(follower.take(source, 64_000))
    assert rows_of(follower.engine, sender.descriptor) == rows_of(node.engine, sender.descriptor)
    assert follower.replica.state.cur(b"tab.b")


def test_f5_every_step_is_bounded() -> None:
    """The snapshot of a large range would stop every other partition of the node for seconds."""

    class Counting(MemoryEngine):
        largest = 0

        def write(self, batch: Any) -> None:
            self.largest = max(self.largest, len(batch.ops))
            super().write(batch)

    node = Node(splits=(SPLIT,))
    ops = [[methods.OP_PUT, b"tab.k%05d" % i, b"v", None, 50 if i % 2 else 0] for i in range(9_000)]
    for at in range(0, len(ops), 3_000):
        node.call(methods.WRITE, b"tab.k", ops[at : at + 3_000], 0, 0)
    node.put(b"tab.z", b"v", ttl_ms=10)
    sender = replica(node, b"tab.k")
    engine = Counting(STATE_FAMILIES)
    follower = Follower(engine, sender.descriptor)
    source = sender.snapshot()
    sink = follower.take(source, 1 << 20)
    passes = 0

    def other_work() -> None:
        nonlocal passes
        passes += 1
        follower.timers.call_later(0.001, other_work)

    follower.timers.call_soon(other_work)
    engine.largest = 0
    follower.install(sink)
    assert rows_of(engine, sender.descriptor) == rows_of(node.engine, sender.descriptor)
    assert engine.largest <= SNAPSHOT_BLOCK_ROWS_MAX
    assert passes > 13_500 // SNAPSHOT_BLOCK_ROWS_MAX, "others got their turns between the steps"


# ------------------------------------------------------------------ damage


def test_f5_a_damaged_chunk_is_refused() -> None:
    """A flipped bit on the way would become part of the range."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    chunks = all_chunks(source, 2_000)
    follower = Follower(MemoryEngine(STATE_FAMILIES), sender.descriptor)
    sink = follower.replica.restore(id_of(source))
    rng = random.Random(4)
    for number, chunk in enumerate(chunks):
        before = dump(follower.engine)
        for _ in range(3):
            bad = bytearray(chunk)
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            with pytest.raises(SnapshotUnavailable, match=f"chunk {number} of the snapshot of"):
                sink.stage(number, bytes(bad), lambda: None)
        for wrong in ([*chunks[:number], b""], chunks[number + 1 : number + 2] or [chunk[:-1]]):
            with pytest.raises(SnapshotUnavailable, match="damaged"):
                sink.stage(number, wrong[-1], lambda: None)
        assert dump(follower.engine) == before
        sink.stage(number, chunk, lambda: None)
    follower.timers.run(1)
    follower.install(sink)
    assert rows_of(follower.engine, sender.descriptor) == rows_of(node.engine, sender.descriptor)


def test_f5_a_damaged_record_does_not_leave_the_leader() -> None:
    """Damage of one disk would spread to all of them, sealed as if it were right."""
    node = leader()
    sender = replica(node, b"tab.z")
    assert isinstance(node.engine, MemoryEngine)
    key = node.engine.scan("cur", SPLIT, b"")[3][0]
    node.engine.flip_bit("cur", key, 70)
    source = sender.snapshot()
    with pytest.raises(SnapshotUnavailable, match=str(key)[1:]):
        all_chunks(source, 1_000)
    with pytest.raises(SnapshotUnavailable):
        source.read(1_000)


@pytest.mark.parametrize(
    ("family", "rows", "why"),
    [
        ("cur", [b"tab.a", seal(b"tab.a", bytes(9))], "does not belong to the partition"),
        ("cur", [b"tab.z", b"no seal"], "fails its checksum"),
        ("cur", [b"tab.z", seal(b"tab.z", b""), b"tab.n", seal(b"tab.n", b"")], "do not rise"),
        ("hist", [b"tab.a\x00\x01" + bytes(8), b"x"], "does not belong to the partition"),
        ("gcq", [bytes(8) + b"Etab.a", b""], "does not belong to the partition"),
        ("gcq", [bytes(8) + b"Xtab.z", b""], "does not belong to the partition"),
        ("meta", [b"node", seal(b"node", b"me")], "does not belong to the partition"),
        ("staged", [b"k", b"v"], "is not understood"),
        ("cur", [b"tab.z"], "is not understood"),
        ("cur", [], "out of order"),
    ],
)
def test_f5_rows_that_are_not_the_partitions_are_refused(
    family: str, rows: list[bytes], why: str
) -> None:
    """A sender with a bug would overwrite another partition, or this node's identity."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    follower = Follower(MemoryEngine(STATE_FAMILIES), sender.descriptor)
    sink = follower.replica.restore(id_of(source))
    head = ["head", 2, source.index, source.term, SPLIT, b"", 1, 0, 0, 0]
    place = Place(sender.descriptor.id, source.index, source.term, 0)
    bad = seal_chunk(
        place, block([head, [family, rows], end_part(len(rows) // 2)]), continues=False
    )
    with pytest.raises(SnapshotUnavailable, match=why):
        sink.stage(0, bad, lambda: None)
    assert follower.engine.scan("staged", b"", b"") == []
    other_range = ["head", 2, source.index, source.term, b"tab.a", b"", 1, 0, 0, 0]
    bad = seal_chunk(place, block([other_range, end_part(0)]), continues=False)
    with pytest.raises(SnapshotUnavailable, match="it is of partition 2"):
        sink.stage(0, bad, lambda: None)


def test_f5_a_stream_without_its_end_is_not_installed() -> None:
    """A sender that broke off would leave a range with a part of its rows."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    chunks = all_chunks(source, 2_000)
    follower = Follower(MemoryEngine(STATE_FAMILIES), sender.descriptor)
    sink = follower.replica.restore(id_of(source))
    follower.stage(sink, chunks[:-1])
    with pytest.raises(SnapshotUnavailable, match="not whole"):
        sink.install(lambda: None)
    place = Place(sender.descriptor.id, source.index, source.term, len(chunks) - 1)
    with pytest.raises(SnapshotUnavailable, match="rows arrived, 3 were sent"):
        sink.stage(len(chunks) - 1, seal_chunk(place, block([end_part(3)]), continues=False), print)
    assert rows_of(follower.engine, sender.descriptor)["cur"] == []


def install_until_the_marker(follower: Follower, sink: SnapshotSink) -> None:
    """Install up to where there is no way back, and nothing was copied yet."""
    marker = meta_key(follower.descriptor.id, INSTALLING)
    read = follower.engine.getter("meta")
    sink.install(lambda: None)
    assert follower.timers.run(1, until=lambda: read(marker) is not None)


@pytest.mark.parametrize("begun", [False, True])
def test_f5_a_staged_chunk_that_rots_is_named(begun: bool) -> None:
    """The disk's damage would be installed, or leave a range without anybody noticing."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    engine = MemoryEngine(STATE_FAMILIES)
    follower = Follower(engine, sender.descriptor)
    sink = follower.take(source, 2_000)
    before = rows_of(engine, sender.descriptor)
    key = chunk_key(sender.descriptor.id, id_of(source), 2)
    if begun:
        install_until_the_marker(follower, sink)
        engine.flip_bit("staged", key, 8 * HEADER_BYTES + 77)
        follower.timers.run(60)
        assert isinstance(follower.fatal[0], Corruption)
        assert "Remove this replica" in str(follower.fatal[0])
        with pytest.raises(Corruption, match="Remove this replica") as caught:
            Follower(engine.reopen(), sender.descriptor)
        assert caught.value.details["key"] == key
        return
    engine.flip_bit("staged", key, 8 * HEADER_BYTES + 77)
    with pytest.raises(Corruption, match="chunk 2") as caught:
        follower.install(sink)
    assert caught.value.details["key"] == key
    assert rows_of(engine, sender.descriptor) == before
    assert not engine.scan("staged", b"", b""), "the next snapshot starts anew"


# ------------------------------------------------------------------ crashes


class Crash(BaseException):
    """The process died here."""


class Dying(MemoryEngine):
    """Dies at the `at`-th write, ingest or sync (or `at_ingest`), before it or just after it."""

    at = 1 << 60
    at_ingest = False
    after = False
    count = 0
    dead = False

    def _dies(self) -> bool:
        if self.dead:
            raise Crash
        self.count += 1
        self.dead = self.count == self.at
        return self.dead

    def write(self, batch: Any) -> None:
        if (dies := self._dies()) and not self.after:
            raise Crash
        super().write(batch)
        if dies:
            raise Crash

    def ingest(self, files: Sequence[SortedRows], *, wait: bool = False) -> bool:
        if (dies := self._dies() or self.at_ingest) and not self.after:
            raise Crash
        super().ingest(files, wait=wait)
        self.dead = dies
        if dies:
            raise Crash
        return True

    def sync_to(self, mark: int) -> None:
        if (dies := self._dies()) and not self.after:
            raise Crash
        super().sync_to(mark)
        if dies:
            raise Crash


class Draws:
    """A fixed share of what was not synced survives."""

    def __init__(self, share: float) -> None:
        self.random = lambda: share

    def token(self, n_bytes: int) -> bytes:
        return bytes(n_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["", "a"])
def test_f5_installing_is_all_or_nothing_over_every_crash(shard: str) -> None:
    """A crash in the middle would leave a range of old and new rows that nobody could tell from a
    whole one.
    """
    node = leader(steps=60, shard=shard)
    sender = replica(node, b"tab.k")
    descriptor = sender.descriptor
    chunks = all_chunks(sender.snapshot(), 3_000)
    snapshot = id_of(sender.snapshot())
    new = rows_of(node.engine, descriptor)
    stale = leader(seed=2, steps=40, shard=shard)
    old = rows_of(stale.engine, descriptor)
    start = _everything(stale.engine)
    del start["staged"]
    assert old != new

    def begin() -> Dying:
        engine = Dying(())
        engine._data = MemoryEngine.reopen(_filled(start))._data
        return engine

    def play(engine: Engine) -> Follower:
        follower = Follower(engine, descriptor)
        sink = follower.replica.restore(snapshot)
        follower.stage(sink, chunks)
        follower.install(sink)
        return follower

    whole = begin()
    play(whole)
    assert rows_of(whole, descriptor) == new
    points = whole.count
    assert points > 20
    outcomes = set()
    for at in range(1, points + 1):
        for after in (False, True):
            for share in (0.0, 0.5, 0.999):
                engine = begin()
                engine.at, engine.after = at, after
                with pytest.raises(Crash):
                    play(engine)
                left = engine.crash(Draws(share))
                resume(left, [descriptor])
                found = rows_of(left, descriptor)
                assert found in (old, new), f"point {at}, {after=}, {share=}"
                assert not shard or not any(dump(left)[family] for family in SHARDED)
                state = Follower(left, descriptor).replica.state
                index = stale.manager.replicas()[0].state.index
                assert state.index == (snapshot.index if found == new else index)
                outcomes.add((found == new, stored_progress(left, descriptor.id) is not None))
                if found == old:  # the sender goes on from what is there
                    play(left)
                    assert rows_of(left, descriptor) == new
                assert left.scan("staged", b"", b"") == []
    assert outcomes == {(False, False), (False, True), (True, False)}


def _everything(engine: Engine) -> dict[str, list[tuple[bytes, bytes]]]:
    """`dump`, and the families of all storage shards."""
    found = dump(engine)
    for shard in engine.shards():
        view = engine.shard(shard)
        found.update({family_of(one, shard): view.scan(one, b"", b"") for one in SHARDED})
    return found


def _filled(rows: dict[str, list[tuple[bytes, bytes]]]) -> MemoryEngine:
    engine = MemoryEngine(STATE_FAMILIES)
    batch = engine.batch()
    for family, pairs in rows.items():
        engine.shard(parted(family)[1])
        for key, value in pairs:
            batch.put(key, value, family)
    engine.write(batch)
    engine.sync()
    return engine


@pytest.mark.parametrize("shard", ["", "a"])
def test_f5_redoing_an_installation_survives_crashes_too(way: str, shard: str) -> None:
    """A start that dies while it finishes an installation would leave what the first crash did
    not; or it put the rows where the partition does not lie.
    """
    node = leader(steps=60, shard=shard)
    sender = replica(node, b"tab.k")
    descriptor = sender.descriptor
    chunks = all_chunks(sender.snapshot(), 3_000)
    new = rows_of(node.engine, descriptor)
    engine = Dying(STATE_FAMILIES)
    follower = Follower(engine, descriptor)
    sink = follower.replica.restore(id_of(sender.snapshot()))
    follower.stage(sink, chunks)
    engine.at = engine.count + len(chunks) // 3
    if way == "files":  # when they have just been taken in, and nothing after that is there
        engine.at, engine.at_ingest, engine.after = 1 << 60, True, True
    with pytest.raises(Crash):
        follower.install(sink)
    left = engine.crash(Draws(0.0 if way == "files" else 0.999))
    assert left.getter("meta")(meta_key(descriptor.id, INSTALLING)), "it was under way"
    half = _everything(left)
    found = rows_of(_filled(half), descriptor)["cur"]
    assert found == new["cur"] if way == "files" else found not in ([], new["cur"])
    at = 0
    while True:
        at += 1
        engine = Dying(())
        engine._data = MemoryEngine.reopen(_filled(half))._data
        engine.at = at
        try:
            resume(engine, [descriptor])
        except Crash:
            for share in (0.0, 0.5):
                again = engine.crash(Draws(share))
                resume(again, [descriptor])
                assert rows_of(again, descriptor) == new
                assert not shard or not any(dump(again)[family] for family in SHARDED)
                assert again.scan("staged", b"", b"") == []
                break
            continue
        break
    assert at > 5


# ------------------------------------------------------------------ beside the rest of a replica


def test_f5_a_transfer_goes_on_after_a_restart_and_another_one_begins_anew() -> None:
    """A follower that restarts would need everything again; or it would mix two snapshots."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    chunks = all_chunks(source, 700)
    engine = MemoryEngine(STATE_FAMILIES)
    for cut in (1, len(chunks) // 2, len(chunks) - 1):
        follower = Follower(engine, sender.descriptor)
        sink = follower.replica.restore(id_of(source))
        follower.stage(sink, chunks[: cut + 1])
        engine = engine.crash(Draws(0.0))
    follower = Follower(engine, sender.descriptor)
    other = follower.replica.restore(id_of(source, 2))
    assert other.staged() == 0
    assert engine.scan("staged", b"", b"") == []
    sink = follower.replica.restore(id_of(source))
    follower.stage(sink, chunks)
    sink.discard()
    assert engine.scan("staged", b"", b"") == []
    sink = follower.replica.restore(id_of(source))
    assert sink.staged() == 0
    follower.stage(sink, chunks)
    follower.install(sink)
    assert rows_of(engine, sender.descriptor) == rows_of(node.engine, sender.descriptor)


def test_f5_abandoned_staging_is_removed() -> None:
    """Snapshots that nobody finishes would fill the disk, one per accident."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    chunks = all_chunks(source, 2_000)
    engine = MemoryEngine(STATE_FAMILIES)
    follower = Follower(engine, sender.descriptor)
    follower.stage(follower.replica.restore(id_of(source)), chunks)
    elsewhere = _filled(dump(engine))
    assert resume(elsewhere, [partition(3, b"", b"tab.a")])
    assert elsewhere.scan("staged", b"", b"") == [], "its partition is gone"

    # The log brought the replica beyond it: now while it runs, or at the next start.
    replica_ = follower.replica
    replica_.forget_covered_staging()
    assert engine.scan("staged", b"", b"") != [], "it is still ahead"
    replica_.advance(source.index, source.term)
    later = _filled(dump(engine))
    resume(later, [sender.descriptor])
    assert later.scan("staged", b"", b"") == []
    replica_.forget_covered_staging()
    assert engine.scan("staged", b"", b"") == []


def test_f5_dropping_a_partition_takes_its_staging_along() -> None:
    """A new partition of the same id would find chunks, or an installation to be done again."""
    node = leader()
    chunks = all_chunks(replica(node, b"tab.z").snapshot(), 2_000)
    id_ = id_of(replica(node, b"tab.z").snapshot())
    taking = Node(splits=(SPLIT,))
    mine = replica(taking, b"tab.z")
    follower = Follower(taking.engine, mine.descriptor)
    sink = follower.replica.restore(id_)
    follower.stage(sink, chunks)
    install_until_the_marker(follower, sink)
    sink.stop()  # type: ignore[attr-defined]
    run(taking.manager.drop(mine.descriptor.id))
    taking.timers.run(1)
    assert taking.engine.scan("staged", b"", b"") == []
    assert taking.engine.scan("meta", b"r" + bytes(7) + b"\x02", b"r" + bytes(7) + b"\x03") == []


def test_f5_nothing_is_applied_while_a_range_is_replaced() -> None:
    """An entry that waited for the state DB would be written into the new range, or into nothing:
    and what the snapshot contains would be applied twice.
    """
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    engine = MemoryEngine(STATE_FAMILIES)
    follower = Follower(engine, sender.descriptor)
    sink = follower.take(source, 2_000)
    engine.fail_writes(Unavailable("a write stall"), 1)
    mine = Entry(1)
    mine.seal()
    replica_ = follower.replica
    replica_.apply(source.index - 1, 1, b"", mine)  # waits: the write is refused
    replica_.advance(source.index + 1, source.term)
    replica_.advance(source.index + 2, source.term)
    assert replica_.state.index == 0
    done: list[bool] = []
    sink.install(lambda: done.append(True))
    while not done:
        assert replica_.state.index == 0
        assert replica_.installing
        with pytest.raises(SnapshotUnavailable):
            replica_.snapshot()
        follower.timers.run(0.0015, until=lambda: bool(done))
    assert follower.machine.lost == [(mine, True)]
    assert replica_.state.index == source.index + 2
    wanted = rows_of(node.engine, sender.descriptor)
    found = rows_of(engine, sender.descriptor)
    assert [found[f] for f in DATA if f != "meta"] == [wanted[f] for f in DATA if f != "meta"]


def test_f5_a_stalled_database_delays_an_installation() -> None:
    """A moment's write stall would stop the replica, or leave one batch out."""
    node = leader()
    sender = replica(node, b"tab.k")
    for stall in range(1, 8):
        engine = MemoryEngine(STATE_FAMILIES)
        follower = Follower(engine, sender.descriptor)
        sink = follower.take(sender.snapshot(), 3_000)
        real, count = engine.write, 0

        def write(batch: Any, real: Any = real, stall: int = stall) -> None:
            nonlocal count
            count += 1
            if stall <= count < stall + 3:
                raise Unavailable("a write stall")
            real(batch)

        engine.write = write  # type: ignore[method-assign]
        follower.install(sink)
        assert rows_of(engine, sender.descriptor) == rows_of(node.engine, sender.descriptor)


def test_f5_a_full_disk_takes_no_snapshot() -> None:
    """A snapshot would fill the disk to the last byte; the database never recovers from that."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    chunks = all_chunks(source, 2_000)
    follower = Follower(MemoryEngine(STATE_FAMILIES), sender.descriptor)
    sink = follower.replica.restore(id_of(source))
    engine = follower.engine
    assert isinstance(engine, MemoryEngine)
    engine.fill_disk(Unavailable("the disk has 3 MiB left", details={"what": "disk_free_bytes"}))
    with pytest.raises(SnapshotUnavailable, match="3 MiB"):
        sink.stage(0, chunks[0], lambda: None)
    engine.fill_disk(None)
    follower.stage(sink, chunks)
    follower.install(sink)


def test_f5_a_slow_disk_slows_a_snapshot() -> None:
    """A snapshot that comes faster than the disk takes it would have every write refused."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    chunks = all_chunks(source, 2_000)
    engine = MemoryEngine(STATE_FAMILIES)
    follower = Follower(engine, sender.descriptor)
    sink = follower.replica.restore(id_of(source))
    slow = Unavailable("3 memtables wait to be written", details={"what": "memtables"})
    acked: list[int] = []
    for number, chunk in enumerate(chunks):
        if number == 1:
            engine.fill_disk(slow)
        sink.stage(number, chunk, lambda n=number: acked.append(n))  # type: ignore[misc]
        follower.timers.run(0.01)
    assert acked == [0], "the sender waits for the others"
    engine.fill_disk(None)
    follower.timers.run(0.1)
    assert acked == list(range(len(chunks)))
    engine.fill_disk(slow)
    done: list[bool] = []
    sink.install(lambda: done.append(True))
    follower.timers.run(5)
    assert not done
    assert follower.replica.installing
    engine.fill_disk(None)
    follower.timers.run(5)
    assert done
    assert rows_of(engine, sender.descriptor) == rows_of(node.engine, sender.descriptor)


def test_f5_snapshots_end_with_their_replica() -> None:
    """A view that nobody closes keeps the files of its moment for ever."""
    node = leader()
    sender = replica(node, b"tab.z")
    source = sender.snapshot()
    assert source.read(500)
    sender.stop()
    with pytest.raises(SnapshotUnavailable):
        all_chunks(source, 500)
    source.close()
    with pytest.raises(SnapshotUnavailable):
        sender.snapshot()


def test_the_oracles_bound_is_part_of_the_meta_partition() -> None:
    """A node that got the meta partition by a snapshot would hand out timestamps again, or collect
    what somebody holds.
    """
    from kvorum.storage.store import _LEASES_KEY, _TSO_KEY

    assert {_TSO_KEY, _LEASES_KEY} <= set(SERVICES)
