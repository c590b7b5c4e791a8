"""A replica without consensus above it, for snapshots: its own engine and virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from kv.base.keys import escape_open
from kv.partition.entry import Entry
from kv.replica.disk_room import Room
from kv.replica.install import resume
from kv.replica.replica import Replica
from kv.replica.state import PartitionState
from kv.replica.syncs import Syncs
from kv.storage.engine import STATE_FAMILIES, Engine
from raft.api import SnapshotId, SnapshotSink, SnapshotSource
from raft.memory import VirtualTimers

DATA = ("cur", "hist", "lock", "txn", "guard", "gcq", "meta")
SYNC_S = 0.001


def partition(number: int, start: bytes, end: bytes) -> PartitionDescriptor:
    return PartitionDescriptor(PartitionId(number), start, end, 1, (NodeId(1),))


class LateSyncer:
    """A sync takes a moment of virtual time; it covers what was written before it began."""

    def __init__(self, engine: Engine, timers: VirtualTimers) -> None:
        self._engine, self._timers = engine, timers

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        mark = getattr(self._engine, "mark", None)
        self._timers.call_later(SYNC_S, self._finish, None if mark is None else mark(), done)

    def _finish(self, mark: int | None, done: Callable[[BaseException | None], None]) -> None:
        if mark is None:
            self._engine.sync()
        else:
            self._engine.sync_to(mark)  # type: ignore[attr-defined]
        done(None)


class Machine:
    """Who would be told of entries."""

    awaits_log = False

    def __init__(self) -> None:
        self.lost: list[tuple[Entry, bool]] = []

    def dropped(self, entries: list[Entry], *, unknown: bool) -> None:
        self.lost += [(entry, unknown) for entry in entries]

    def applied(self, entry: Entry) -> None:
        pass

    def role(self, *, leader: bool) -> None:
        raise AssertionError("nobody leads here")


class Follower:
    """A replica of `descriptor` on `engine`, as a start finds it."""

    def __init__(self, engine: Engine, descriptor: PartitionDescriptor) -> None:
        self.engine, self.descriptor = engine, descriptor
        self.timers = VirtualTimers()
        self.fatal: list[BaseException] = []
        self.room = Room(())
        resume(engine, [descriptor])
        self.replica = Replica(
            PartitionState(engine, descriptor),
            self.timers,
            lambda _replica: None,
            self.room,
            self.fatal.append,
            Syncs(LateSyncer(engine, self.timers), self.fatal.append),
        )
        self.machine = Machine()
        self.replica.machine = self.machine  # type: ignore[assignment]

    def take(self, source: SnapshotSource, bytes_max: int, number: int = 1) -> SnapshotSink:
        """Stage all of it."""
        sink = self.replica.restore(id_of(source, number))
        chunks = all_chunks(source, bytes_max)
        self.stage(sink, chunks)
        return sink

    def stage(self, sink: SnapshotSink, chunks: list[bytes]) -> None:
        """Stage from where the sink is."""
        done: list[int] = []
        first = sink.staged()
        for number in range(first, len(chunks)):
            sink.stage(number, chunks[number], lambda n=number: done.append(n))  # type: ignore[misc]
        assert self.timers.run(10, until=lambda: len(done) == len(chunks) - first)
        assert done == list(range(first, len(chunks))), "acknowledged in order"

    def install(self, sink: SnapshotSink) -> None:
        done: list[bool] = []
        sink.install(lambda: done.append(True))
        assert self.timers.run(600, until=lambda: bool(done) or bool(self.fatal))
        if self.fatal:
            raise self.fatal[0]


def id_of(source: SnapshotSource, number: int = 1) -> SnapshotId:
    return SnapshotId(source.index, source.term, 1, number)


def all_chunks(source: SnapshotSource, bytes_max: int) -> list[bytes]:
    chunks = []
    while (chunk := source.read(bytes_max)) is not None:
        assert 0 < len(chunk) <= bytes_max
        chunks.append(chunk)
    return chunks


def dump(engine: Engine) -> dict[str, list[tuple[bytes, bytes]]]:
    """Everything in the state DB."""
    return {family: engine.scan(family, b"", b"") for family in STATE_FAMILIES}


def rows_of(engine: Engine, descriptor: PartitionDescriptor) -> dict[str, Any]:
    """What a partition has in the state DB, found without the code under test."""
    start, end = descriptor.start, descriptor.end
    engine = engine.shard(descriptor.shard)
    low, high = escape_open(start), escape_open(end)
    prefix = b"r" + descriptor.id.to_bytes(8, "big")
    found: dict[str, Any] = {
        "cur": engine.scan("cur", start, end),
        "lock": engine.scan("lock", start, end),
        "hist": engine.scan("hist", low, high),
        "txn": engine.scan("txn", low, high),
        "guard": engine.scan("guard", low, high),
        "meta": [
            row
            for row in engine.scan("meta", b"", b"")
            if (row[0] in (prefix + b"a", prefix + b"s", prefix + b"g") and any(row[1][:-4]))
            or (row[0] == b"tso" and descriptor.id == 1)
        ],
    }
    found["gcq"] = [
        key
        for key, _ in engine.scan("gcq", b"", b"")
        if _target(key) >= start and (not end or _target(key) < end)
    ]
    return found


def _target(row: bytes) -> bytes:
    if row[8:9] == b"X":
        return row[9:].split(b"\x00\x01")[0].replace(b"\x00\xff", b"\x00")
    return row[9:]
