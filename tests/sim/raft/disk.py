"""A crash-able disk: raft.api.LogDB and Syncer with faults, and what is in each log by its bytes.

  * a crash keeps what was synced and some prefix of the later bytes. A cut in the middle of a batch
    (torn tail) costs the whole batch: the storage engine's log discards it by its checksum;
  * a sync may be slow, or fail; after a failure nothing that it should have covered is durable, and
    it is this disk's choice what of it survives the next crash;
  * `flip` changes one bit of a synced value: restarts, and reads of old entries, must notice.

`LogView` reads every write on its way: the invariants look at these bytes and not into the journal,
so that a mistake there cannot hide itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from raft import records
from raft.api import SyncDone
from raft.memory import MemoryBatch, MemoryLogDB
from tests.sim.raft.events import Events
from tests.sim.raft.probes import probes

UNKNOWN_PAYLOAD = bytes(4)
"""Stands for the checksum in the log of a witness, which has no payloads."""
Door = Callable[[Callable[..., object], tuple[object, ...]], None]
Stamp = bytes
"""Checksum (over index, term and command) and term of an entry: its first 12 stored bytes."""


class LogView:
    """What a replica's log holds, batches that were not handed over yet included."""

    def __init__(
        self, group_id: int, wrote: Callable[[int, Stamp, int | None], None], *, payloads: bool
    ) -> None:
        """`wrote(index, stamp, term before it)` is told of every entry."""
        self.group_id, self._wrote, self._payloads = group_id, wrote, payloads
        self.base = (0, 0)
        self.stamps: dict[int, Stamp] = {}

    def term_at(self, index: int) -> int | None:
        stamp = self.stamps.get(index)
        if stamp is not None:
            return int.from_bytes(stamp[4:], "big")
        return self.base[1] if index == self.base[0] else None

    def _stamp(self, value: bytes) -> Stamp:
        return value[:12] if self._payloads else UNKNOWN_PAYLOAD + value[4:12]

    def put(self, key: bytes, value: bytes) -> None:
        if len(key) == 16:
            index, stamp = int.from_bytes(key[8:], "big"), self._stamp(value)
            self.stamps[index] = stamp
            self._wrote(index, stamp, self.term_at(index - 1))
        elif key[8:] == b"b":
            base = records.decode_base(key, value)
            self.base = (base.index, base.term)

    def delete(self, start: bytes, end: bytes) -> None:
        """Of this group's keys only: truncation, compaction, reset, or all of it."""
        if len(start) == 8:
            self.stamps.clear()
            return
        low, high = int.from_bytes(start[8:], "big"), int.from_bytes(end[8:], "big")
        if high - low > len(self.stamps):
            for index in [i for i in self.stamps if low <= i < high]:
                del self.stamps[index]
        else:
            for index in range(low, high):
                self.stamps.pop(index, None)

    def reload(self, db: MemoryLogDB) -> None:
        """After a restart: what the disk gives back. Damage is the product's to notice."""
        self.base, self.stamps = (0, 0), {}
        prefix = records.prefix(self.group_id)
        for key, value in db.scan(prefix, records.prefix(self.group_id + 1)):
            if len(key) == 16:
                self.stamps[int.from_bytes(key[8:], "big")] = self._stamp(value)
            elif key[8:] == b"b":
                try:
                    base = records.decode_base(key, value)
                except records.BadRecord:
                    continue
                self.base = (base.index, base.term)


class _WatchedBatch(MemoryBatch):
    def __init__(self, views: dict[bytes, LogView]) -> None:
        super().__init__()
        self._views = views
        self.bytes = 0

    def put(self, key: bytes, value: bytes) -> None:
        super().put(key, value)
        self.bytes += len(key) + len(value)
        self._views[key[:8]].put(key, value)

    def delete_range(self, start: bytes, end: bytes) -> None:
        super().delete_range(start, end)
        self.bytes += len(start) + len(end)
        self._views[start[:8]].delete(start, end)


class SimDisk:
    """One node's disk, over all its lives. `sync_delay_s`, `sync_fails`: asked once per sync."""

    def __init__(
        self,
        events: Events,
        views: list[LogView],
        *,
        sync_delay_s: Callable[[], float],
        sync_fails: Callable[[], bool],
    ) -> None:
        self._events, self._delay_s, self._fails = events, sync_delay_s, sync_fails
        self._views = {records.prefix(view.group_id): view for view in views}
        self.db = MemoryLogDB()
        self.failing = False  # syncs report errors from now on
        self.has_failed = False  # one has, in this life of the node
        self.stalled = False  # syncs that begin now end when a scenario says so
        self._held: tuple[int, int, SyncDone] | None = None
        self._sizes: list[int] = []  # bytes of each unsynced batch
        self.enter: Callable[[Callable[..., object], tuple[object, ...]], None] = lambda _f, _a: (
            None
        )
        """The door of the node's present life, for the end of a sync."""
        self._life = 0

    # ------------------------------------------------------------------ LogDB

    def batch(self) -> _WatchedBatch:
        return _WatchedBatch(self._views)

    def write(self, batch: _WatchedBatch) -> None:
        self.db.write(batch)
        self._sizes.append(batch.bytes)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.db.scan(start, end)

    # ------------------------------------------------------------------ Syncer

    def start(self, done: SyncDone) -> None:
        if self.stalled:
            self._held = (self._life, self.db.unsynced, done)
            return
        self._events.after(self._delay_s(), self._finish, self._life, self.db.unsynced, done)

    def go_on(self, *, stall_again: bool = False) -> None:
        """End the sync that waits; the stall, too, unless the next sync is to wait again."""
        self.stalled, held = stall_again, self._held
        self._held = None
        if held is not None:
            self._finish(*held)

    def _finish(self, life: int, batches: int, done: SyncDone) -> None:
        if life != self._life:
            return
        if self._fails():
            probes.hit("sync failed")
            self.has_failed = True
            self.enter(done, (OSError(5, "simulated input/output error"),))
            return
        self.db.make_durable(batches)
        del self._sizes[:batches]
        self.enter(done, (None,))

    # ------------------------------------------------------------------ faults

    def crash(self, rng: random.Random, *, lose_all: bool | None = None) -> int:
        """The power is gone: a prefix of the unsynced bytes stays, all of it if only the process
        died; `lose_all` says which, or the seed. Returns batches lost.
        """
        self._life += 1
        self.has_failed = False
        self._held = None
        everything, kept = sum(self._sizes), 0
        if lose_all is None:
            left = rng.choice([0, 0, everything, rng.randint(0, everything)])
        else:
            left = 0 if lose_all else everything
        for size in self._sizes:
            if size > left:
                if left:
                    probes.hit("torn tail")
                break
            left, kept = left - size, kept + 1
        lost = len(self._sizes) - kept
        if lost:
            probes.hit("lost unsynced writes")
        self.db, self._sizes = self.db.crash(kept), self._sizes[:kept]
        for view in self._views.values():
            view.reload(self.db)
        return lost

    def flip(self, group_id: int, rng: random.Random) -> bytes | None:
        """Flip one bit of one synced record of that group; its key, or None if there is none."""
        prefix, end = records.prefix(group_id), records.prefix(group_id + 1)
        synced = self.db.crash()  # a copy of what is durable
        stored = [(key, value) for key, value in synced.scan(prefix, end)]
        if not stored:
            return None
        key, value = rng.choice(stored)
        damaged = bytearray(value)
        damaged[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        self.db.tamper(key, bytes(damaged))
        return key
