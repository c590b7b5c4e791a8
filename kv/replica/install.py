"""Replacing a partition's range by a staged snapshot: all of it or nothing, over any crash.

    check     every staged chunk is read once; damage refuses the snapshot, nothing has changed
    begin     one batch: the marker (what is installed), and the range is emptied
    queue     the partition's rows leave the collector's queue, which all partitions share
    copy      block by block. Of a large snapshot the rows of `cur` and `hist` go to files, which
              the database then takes in (kv.replica.rowfiles), the others are written
    end       one batch: applied index and the other meta records, the marker and the staging go

The engine keeps a prefix of the batches over a crash, and all chunks were durable before `begin`:
so a range that is not whole always has its marker and its chunks beside it, and the installation is
done again from `begin` when the data are opened (`redo`), before anybody may see the range. Without
the marker the range is the old one, or the new one. Files are not in that order of batches: once
taken in they are durable, so before that the marker is (a sync), and `redo` removes them with the
range.

A step is one batch of bounded size, so that other partitions get their turns; it may be repeated
when the database refuses the write. Files that cannot be written cost the way: it begins again,
with batches. Damage after the marker (the staged chunk rotted within
seconds) leaves a range that is neither: this replica must be rebuilt from the others, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Final, assert_never

from kv.base import limits
from kv.base.checksum import seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Corruption, Unavailable
from kv.base.ids import PartitionId
from kv.base.keys import u64
from kv.base.limits import SNAPSHOT_LOOK_ROWS_MAX, MiB
from kv.mvcc.guards import GuardTable
from kv.partition.collectors import Collected
from kv.partition.locks import LockMirror
from kv.partition.sizes import Noted, SizeMap, rows_of
from kv.replica.absorbing import absorb
from kv.replica.chunks import End, Head, Part, Run, Target
from kv.replica.metakeys import (
    APPLIED,
    COLLECTED,
    COUNTERS,
    DESCRIPTOR,
    FROZEN,
    INSTALLING,
    SAFEPOINT,
    SIZES,
    body,
    encode_descriptor,
    meta_key,
    pack_applied,
    pack_counters,
    pack_frozen,
    pack_installing,
    unpack_applied,
    unpack_installing,
)
from kv.replica.ranges import delete_own, due_rows, empty_slices, services
from kv.replica.rowfiles import FILED, RowFiles
from kv.replica.staging import (
    Staging,
    clear,
    fields_of,
    staged_partitions,
    stored_progress,
)
from kv.storage.engine import Batch, Engine
from raft.api import SnapshotId

log = logging.getLogger(__name__)

Fill = Callable[[Batch], None]
_CHECK_BYTES: Final = 1 * MiB  # read back in one step


class After(Enum):
    """What a step leaves."""

    MORE = auto()
    SYNC = auto()
    """The next one only when what was written so far is durable."""
    DONE = auto()


class Installer:
    """See the module. Call `step` until it says DONE; then `head`, `locks` and `guards`
    are what was installed.
    """

    def __init__(
        self,
        engine: Engine,
        staging: Staging,
        chunks: int,
        here: PartitionDescriptor,
        absorbed: Sequence[PartitionDescriptor] = (),
    ) -> None:
        """`chunks` are staged, and durable. `here`: what the partition is at this replica now; the
        snapshot may be of one that was split or merged since. `absorbed`: those that it has taken
        in, and whose replicas here are closed.
        """
        self.head: Head | None = None
        self._partition = staging.target.descriptor.id
        self._forget()
        self.begun = False  # the marker is written: there is no way back
        self._engine = engine.shard(here.shard)  # a start comes with the whole database
        self._staging, self._chunks = staging, chunks
        head = staging.head()
        self._new = head.of(here)
        self._by_files = head.live_bytes >= limits.SNAPSHOT_FILES_BYTES_MIN
        self._absorbed = absorbed
        # All that is emptied: nobody else at this node has anything there.
        ends = (here.end, self._new.end)
        self._descriptor = replace(here, end=b"" if b"" in ends else max(ends))
        self._meta = engine.family("meta")
        self._plan = self._steps()
        self._fill: Fill | None = None  # of the step that is to be written

    def _forget(self) -> None:
        """What was read of the blocks so far."""
        self.locks, self.guards = LockMirror(), GuardTable()
        self._sizes, self._collected = SizeMap(self._partition), Collected()
        self._seen: list[Sequence[object]] = []  # of the step that is to be written
        self._noted: Noted = ()  # of the step that is to be written

    def step(self) -> After:
        """One bounded step. Raises Corruption; or Unavailable: then the same step may be tried
        again.
        """
        if self._fill is None:
            try:
                found = next(self._plan)
            except StopIteration:
                return After.DONE
            if found is None:
                return After.SYNC
            self._fill = found
        batch = self._engine.batch()
        self._fill(batch)
        self._engine.write(batch)
        self._fill = None
        self._sizes.note(self._noted)
        for seen in self._seen:
            self._collected.note(seen)
        self._noted, self._seen = (), []
        return After.MORE

    def stop(self) -> None:
        """It will not go on: what was begun is done again when the data are opened."""
        self._plan.close()

    def _steps(self) -> Generator[Fill | None]:
        """What to write, one batch after the other; None: sync first."""
        if not self.begun:
            yield from self._check()
        if self._by_files:
            files = RowFiles(self._engine)
            try:
                yield from self._replace(files)
            except Unavailable as error:  # of the files: a batch is written by `step`
                log.warning("partition %d comes without files: %s", self._partition, error)
                self._forget()
            else:
                return
            finally:
                files.discard()
        yield from self._replace(None)

    def _replace(self, files: RowFiles | None) -> Generator[Fill | None]:
        yield self._begin
        at: bytes | None = b""
        while at is not None:
            rows, at = due_rows(self._engine, self._descriptor, at, SNAPSHOT_LOOK_ROWS_MAX)
            yield partial(self._leave_queue, rows)
        number = 0
        while number < self._chunks:
            parts, number = self._staging.block_at(number)
            yield partial(self._copy, parts, files is not None)
            if files is not None and files.put(parts):
                yield None
        if files is not None:
            files.close()
            yield None  # the marker, too, is durable now
            while not files.ingest():
                yield None
        yield self._finish

    def _check(self) -> Iterator[Fill]:
        size = 0
        for number in range(self._chunks):
            size += self._staging.check(number)
            if size >= _CHECK_BYTES:
                size = 0
                yield lambda _batch: None

    # ------------------------------------------------------------------ what the steps write

    def _begin(self, batch: Batch) -> None:
        key = meta_key(self._descriptor.id, INSTALLING)
        marker = pack_installing(*fields_of(self._staging.snapshot), self._chunks)
        batch.put(key, seal(key, marker), self._meta)
        empty_slices(batch, self._engine, self._descriptor)
        key = meta_key(self._new.id, DESCRIPTOR)
        batch.put(key, encode_descriptor(key, self._new), self._meta)
        for gone in self._absorbed:
            if gone.shard != self._descriptor.shard:
                delete_own(batch, self._engine, gone)
            absorb(batch, self._engine, gone)
        for service in services(self._descriptor):
            batch.delete(service, self._meta)
        self.begun = True

    def _leave_queue(self, rows: Sequence[bytes], batch: Batch) -> None:
        queue = self._engine.family("gcq")
        for row in rows:
            batch.delete(row, queue)

    def _copy(self, parts: Sequence[Part], by_files: bool, batch: Batch) -> None:
        self._noted, self._seen = (), []
        for part in parts:
            match part:
                case Head():
                    self.head = part
                case Run(name, rows):
                    family = self._engine.family(name)
                    if name == "cur":
                        self._follow(rows)
                    if by_files and name in FILED:
                        continue
                    for key, value in zip(rows[::2], rows[1::2], strict=True):
                        batch.put(key, value, family)
                        if name == "lock":
                            self.locks.follow(key, value)
                        elif name == "guard":
                            self.guards.follow(key, value)
                case End():
                    pass
                case _:
                    assert_never(part)

    def _follow(self, rows: Sequence[bytes]) -> None:
        """Keep where the bytes lie, as the entries would have said."""
        fresh = rows_of(list(zip(rows[::2], rows[1::2], strict=True)))
        self._seen.append(self._collected.see(fresh, lambda _key: None))
        chosen = self._sizes.choose(fresh, sum(map(len, rows)), lambda _key: None)
        self._noted = [*self._noted, *chosen]

    def _finish(self, batch: Batch) -> None:
        head = self.head
        assert head is not None, "a stream begins with its head, or it was refused"
        records = {
            APPLIED: pack_applied(head.index, head.term, head.top_ts),
            COUNTERS: pack_counters(head.old_versions, head.live_bytes),
            SAFEPOINT: u64(head.safepoint),
            FROZEN: b"" if head.frozen is None else pack_frozen(*head.frozen),
            SIZES: self._sizes.record() if len(self._sizes) else b"",
            COLLECTED: self._collected.record() if self._collected.rows else b"",
        }
        for kind, record in records.items():
            key = meta_key(head.partition, kind)
            if any(record):
                batch.put(key, seal(key, record), self._meta)
            else:  # as in a partition that never had any
                batch.delete(key, self._meta)
        batch.delete(meta_key(head.partition, INSTALLING), self._meta)
        clear(self._engine, batch, head.partition)


def redo(engine: Engine, descriptor: PartitionDescriptor) -> bool:
    """Finish an installation that a crash interrupted, if there is one; whether there was. Nothing
    else may use the partition's range. Raises Corruption, Unavailable.
    """
    key = meta_key(descriptor.id, INSTALLING)
    record = engine.getter("meta")(key)
    if record is None:
        return False
    *fields, chunks = unpack_installing(body(key, record))
    snapshot = SnapshotId(*fields)
    staging = Staging(engine, snapshot, Target(descriptor, snapshot.index, snapshot.term))
    installer = Installer(engine, staging, chunks, descriptor)
    installer.begun = True
    try:
        while (after := installer.step()) is not After.DONE:
            if after is After.SYNC:
                engine.sync()
    except Corruption as error:
        raise damaged(descriptor.id, error) from error
    return True


def resume(engine: Engine, descriptors: Sequence[PartitionDescriptor]) -> bool:
    """What a start does with snapshots that were under way: finish installations, keep what these
    partitions still stage, remove the rest. Whether anything of it must be synced. Raises
    Corruption, Unavailable.
    """
    redone = [redo(engine, descriptor) for descriptor in descriptors]
    ids = {descriptor.id for descriptor in descriptors}
    staged = staged_partitions(engine)
    for partition in staged:
        stored = stored_progress(engine, partition) if partition in ids else None
        if stored is None or stored[0].index <= _applied_index(engine, partition):
            batch = engine.batch()
            clear(engine, batch, partition)
            engine.write(batch)
    return any(redone) or bool(staged)


def _applied_index(engine: Engine, partition: PartitionId) -> int:
    key = meta_key(partition, APPLIED)
    record = engine.getter("meta")(key)
    return 0 if record is None else int(unpack_applied(body(key, record))[0])


def damaged(partition: PartitionId, error: Corruption) -> Corruption:
    """The error about damage that was met after the marker."""
    return Corruption(
        f"partition {partition} was being replaced by a snapshot, and that is damaged now: "
        f"{error.message}. Remove this replica and let the others rebuild it",
        details={**error.details, "partition": partition},
    )
