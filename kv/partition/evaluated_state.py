"""What commands decide on: the applied state with everything in flight on top. Evaluation order is
log order, so this is exactly the state that a command will find when it is applied.

The open entry and the one in flight keep their newest records, and the intents that they set or
remove, in dicts of their own, which are dropped whole: nothing is done per key when one of them
lands, and a transaction of a million rows is not remembered twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final
from zlib import crc32

from kv.base.checksum import CRC_OK
from kv.base.descriptors import PartitionDescriptor
from kv.base.limits import (
    DRAIN_ROWS_MAX,
    ENTRY_TARGET_BYTES,
    KNOWN_RECORD_BYTES_MAX,
    KNOWN_RECORDS_MAX,
)
from kv.mvcc.guards import At, Guard, GuardTable
from kv.mvcc.packed_rows import PackedKeys
from kv.mvcc.records import Lock, TxnRecord, corrupt, decode_chunk, decode_lock
from kv.partition.chunk_spans import between
from kv.partition.entry import FORGOTTEN, Entry
from kv.partition.known_records import Recorded
from kv.partition.ports import AppliedState

LOOK_BYTES: Final = ENTRY_TARGET_BYTES // DRAIN_ROWS_MAX
"""What a row that a write only looks at weighs in an entry, so that many of them end a drain."""

_INTACT: Final = {CRC_OK}
_RUN: Final = 64  # keys from which on it pays to ask first whether anything lies between them


class Evaluated:
    """Implements mvcc's `View` and `GcView`."""

    def __init__(self, descriptor: PartitionDescriptor, state: AppliedState) -> None:
        self.descriptor = descriptor
        self._state = state
        self._get = state.cur
        self.scan = state.scan
        self.locked_keys = state.locked_keys
        self.open = Entry(1)
        self.flying: Entry | None = None
        self._mirror = state.locks  # of the applied state
        self._flying_locks: dict[bytes, Lock | None] = {}  # what that entry changes; None = removed
        self._flying_chunks = False  # whether it lays or removes chunk intents
        self.ahead: dict[bytes, bytes | None] = {}
        """Records read ahead for this drain with one sorted multi-get; emptied at its end."""
        self.known: dict[bytes, bytes] = {}
        """Newest records of the applied state that were read and are likely to be read again, to be
        replaced; verified, FORGOTTEN = there is none. What an entry writes is taken out with it."""
        self._open_pending = self.open.pending
        self._flying_pending: dict[bytes, bytes] = {}
        self.guards: GuardTable | None = None
        self.recorded = Recorded()
        self.reset()

    def rows_moved(self, descriptor: PartitionDescriptor) -> None:
        """The applied state is read from elsewhere; what was prepared to be written there was
        prepared in vain.
        """
        self.descriptor, self._get = descriptor, self._state.cur
        if self.flying is not None:
            self.flying.batch = None

    # -- View

    @property
    def safepoint(self) -> int:
        flying = 0 if self.flying is None else self.flying.safepoint
        return max(self._state.safepoint, flying, self.open.safepoint)

    def cur(self, key: bytes) -> bytes | None:
        record: bytes | None = self._open_pending.get(key)
        if record is None:
            record = self._flying_pending.get(key)
            if record is None and self.known:
                record = self.known.get(key)
            if record is None:
                record = self.ahead[key] if key in self.ahead else self._get(key)
                if record is not None and crc32(record, crc32(key)) != CRC_OK:
                    raise corrupt("cur", key)
                return record
        return record or None

    def keep(self, key: bytes, record: bytes | None) -> None:
        if key in self._open_pending or key in self._flying_pending:
            return  # reads use what is known, too, and what is in flight is not for them
        if record is None or len(record) <= KNOWN_RECORD_BYTES_MAX:
            if len(self.known) >= KNOWN_RECORDS_MAX:
                self.known.clear()
            self.known[key] = record or FORGOTTEN

    def many_cur(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        if not (
            self._open_pending.keys().isdisjoint(keys)
            and self._flying_pending.keys().isdisjoint(keys)
        ):
            return [self.cur(key) for key in keys]
        # Rows appended to a table: one seek says of all that none is there. It gives up early where
        # many were deleted: it would pass them all, 140 ms for the 300,000 of an emptied table.
        if len(keys) >= _RUN and self._state.is_empty("cur", min(keys), max(keys) + b"\0"):
            return [None] * len(keys)
        records = self._state.multi_cur(list(keys))
        there = [record for record in records if record is not None]
        if len(there) == len(records) and set(map(crc32, there, map(crc32, keys))) <= _INTACT:
            return records
        for key, record in zip(keys, records, strict=True):
            if record is not None and crc32(record, crc32(key)) != CRC_OK:
                raise corrupt("cur", key)
        return records

    def lock(self, key: bytes) -> Lock | None:
        open_ = self.open
        if open_.laid or open_.gone or self._flying_chunks or self._mirror.apart.locks:
            return self._lock_or_chunk(key)
        if open_.locks or self._flying_locks:
            for changed in (open_.locks, self._flying_locks):
                if key in changed:
                    return changed[key]
        return self._mirror.by_key.get(key)

    def _lock_or_chunk(self, key: bytes) -> Lock | None:
        """`lock`, where a chunk may begin or end in flight. Of one entry chunks are asked first:
        what an intent on one of their keys was is over.
        """
        open_, flying = self.open, self.flying
        if (new := open_.chunk_at(key)) is not None:
            return new
        if key in open_.locks:
            return open_.locks[key]
        if flying is None:
            found = self._mirror.get(key)
        elif (new := flying.chunk_at(key)) is not None:
            found = new
        elif key in flying.locks:
            return flying.locks[key]
        else:
            found = self._mirror.get(key)
            if found is not None and id(found) in flying.gone:
                return None
        return None if found is not None and id(found) in open_.gone else found

    def intent(self, key: bytes) -> Lock:
        lock = self.lock(key)
        assert lock is not None, "asked for a lock that is there"
        if lock.payload is not None:
            return lock
        record = self._state.stored_lock(key)
        if record is None:
            raise corrupt("lock", key)
        return decode_lock(key, record)

    def locked(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        entries = (self.open,) if self.flying is None else (self.open, self.flying)
        rising = keys if isinstance(keys, PackedKeys) else sorted(keys)
        if not any(entry.has_any(rising) for entry in entries) and not self._mirror.has_any(rising):
            return ()
        return [key for key in keys if self.lock(key) is not None]

    def chunk_values(self, lock: Lock) -> Sequence[bytes | None]:
        first = lock.chunk[0]
        for entry in (self.open, self.flying):
            if entry is not None and id(lock) in entry.laid:
                record = next(v for f, k, v in reversed(entry.others) if f == "lock" and k == first)
                break
        else:
            record = self._state.stored_lock(first)
        if record is None:
            raise corrupt("lock", first)
        stored, values = decode_chunk(first, record)
        if stored.start_ts != lock.start_ts or len(values) != len(lock.chunk):
            raise corrupt("lock", first)
        return values

    def txn(self, anchor: bytes, start_ts: int) -> TxnRecord | None:
        if not self.recorded.perhaps(start_ts):
            return None
        at = (anchor, start_ts)
        if (record := self.recorded.open.get(at)) is not None:
            return record
        if at in self.open.txns:
            return self.open.txns[at]
        if self.flying is not None and at in self.flying.txns:
            return self.flying.txns[at]
        return self._state.txn(anchor, start_ts)

    def holds(self, key: bytes) -> bool:
        return self.descriptor.covers(key)

    def records_in_flight(self, start: bytes, end: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for pending in (self._flying_pending, self._open_pending):
            found.update((key, pending[key]) for key in _between(pending, start, end))
        return found

    def locks_in_flight(self, start: bytes, end: bytes) -> list[bytes]:
        chunks: list[bytes] = []
        for entry in (self.flying, self.open):
            if entry is not None:
                for lock in chain(entry.laid.values(), entry.gone.values()):
                    chunks += between(lock, start, end)
        return _between(chain(self._flying_locks, self.open.locks), start, end) + chunks

    def look(self, rows: int) -> None:
        self.open.size += rows * LOOK_BYTES

    # -- for the machine

    def rest(self) -> None:
        """The work of an entry in which nothing is was done in this pass of the loop."""
        if self.open.empty:
            self.open.size = 0

    def add_guards(self, guards: Mapping[At, Guard | None]) -> None:
        """Guards have no overlay: readers never ask for the applied ones, so that the table holds
        what is evaluated, and begins anew from the applied ones when that is lost.
        """
        table = GuardTable() if self.guards is None else self.guards
        for at, guard in guards.items():
            table.set(at, guard)
        self.guards = table if table.by_at else None

    def fly(self) -> Entry:
        """The open entry was proposed; the next one opens on top of it."""
        assert self.flying is None, "one entry in flight"
        entry = self.flying = self.open
        self._flying_pending, self._flying_locks = entry.pending, entry.locks
        self._flying_chunks = bool(entry.laid or entry.gone)
        self._begin(entry.number + 1)
        return entry

    def land(self, entry: Entry) -> None:
        """The entry in flight is part of the applied state now, its intents of the mirror: what the
        open entry did not change again is found there.
        """
        if (known := self.known) and not known.keys().isdisjoint(entry.pending):
            for key in entry.pending:
                known.pop(key, None)
        if self.flying is entry:
            self.flying, self._flying_pending, self._flying_locks = None, {}, {}
            self._flying_chunks = False

    def reset(self) -> Entry:
        """Forget the open entry (returned): what it was evaluated on is lost, or another node's."""
        entry = self.open
        self._begin(entry.number + 1)
        self.recorded.forget()
        self.known.clear()
        self._flying_locks, self._flying_chunks, self._mirror = {}, False, self._state.locks
        self.guards = self._state.guards.copy() if self._state.guards.by_at else None
        return entry

    def lose(self) -> Entry | None:
        """The entry in flight will not be applied by its token."""
        entry, self.flying, self._flying_pending = self.flying, None, {}
        return entry

    def _begin(self, number: int) -> None:
        self.open = Entry(number)
        self._open_pending = self.open.pending


def _between(keys: Iterable[bytes], start: bytes, end: bytes) -> list[bytes]:
    if not end:
        return [key for key in keys if start <= key]
    return [key for key in keys if start <= key < end]
