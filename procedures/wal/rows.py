"""The rows of a standalone store, in memory: a small key space with snapshots. Pure.

A version of a row is the number of the log record that wrote it; a snapshot is the state as of one
number. First committer wins, as in the transactions of the KV store. Older versions are kept as
long as a snapshot may read them.

A slot is the number under which the logs know a row (tracker.py). A row gets one when it comes into
being and gives it back for ever when it is deleted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from kv.base.errors import ConditionFailed, WriteConflict
from kv.base.methods import OP_CHECK
from kv.base.ops import Op
from procedures.engine.read_snapshot import ReadSnapshot
from procedures.engine.store import Row
from procedures.wal.format import RowPut


class Rows:
    """Keys with the versions that somebody may still read, oldest first."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._versions: dict[bytes, list[tuple[int, bytes | None]]] = {}
        self._slots: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._old: deque[tuple[int, bytes]] = deque()  # something was replaced by this version
        self.next_slot = 1
        self.size = 0  # bytes of keys and newest values

    def __len__(self) -> int:
        return len(self._slots)

    def read(self, key: bytes, at: int) -> Row | None:
        for version, value in reversed(self._versions.get(key, ())):
            if version <= at:
                return None if value is None else Row(value, version)
        return None

    def newest(self, key: bytes) -> tuple[int, bytes | None]:
        """Its newest version and value; (0, None): nobody who reads now can know it."""
        found = self._versions.get(key)
        return found[-1] if found else (0, None)

    def keys(self, start: bytes, end: bytes) -> list[bytes]:
        stop = bisect_left(self._keys, end) if end else len(self._keys)
        return self._keys[bisect_left(self._keys, start) : stop]

    def refuse(self, ops: Sequence[Op], start_ts: int) -> None:
        """Raises ConditionFailed or WriteConflict if these writes may not happen now."""
        for i, op in enumerate(ops):
            version, value = self.newest(op.key)
            now = 0 if value is None else version
            if op.cond is not None and now != op.cond:
                raise ConditionFailed(
                    f"{op.key!r:.60} has version {now or None}",
                    details={"key": op.key, "version": str(now) if now else None, "op": i},
                )
            if start_ts and op.kind != OP_CHECK and version > start_ts:
                raise WriteConflict(
                    f"{op.key!r:.60} was written after the snapshot",
                    details={"key": op.key, "conflict_ts": version, "start_ts": start_ts},
                )

    def plan(self, ops: Sequence[Op], version: int) -> list[RowPut]:
        """These writes as they go to the log. Slots that it gives out are not taken yet."""
        last = {op.key: op for op in ops if op.kind != OP_CHECK}
        free = self.next_slot
        planned = []
        for key, op in last.items():
            slot = self._slots.get(key)
            if slot is None:
                if op.value is None:
                    continue  # nothing was there
                slot, free = free, free + 1
            planned.append(RowPut(slot, version, key, op.value))
        return planned

    def apply(self, row: RowPut) -> None:
        slot, version, key, value = row.slot, row.version, row.key, row.value
        self.next_slot = max(self.next_slot, slot + 1)
        versions = self._versions.get(key)
        if versions is None:
            if value is None:
                return  # of a row whose log is gone
            versions = self._versions[key] = []
            insort(self._keys, key)
        elif versions[-1][0] == version:
            return  # written anew, because its log was old
        else:
            before = versions[-1][1]
            self.size -= 0 if before is None else len(key) + len(before)
            self._old.append((version, key))
        versions.append((version, value))
        if value is not None:
            self.size += len(key) + len(value)
            self._slots[key] = slot
            self._key_of[slot] = key
        else:
            self._slots.pop(key, None)
            self._key_of.pop(slot, None)

    def prune(self, floor: int) -> None:
        """Nobody reads below version `floor` any more."""
        while self._old and self._old[0][0] <= floor:
            _, key = self._old.popleft()
            versions = self._versions.get(key, [])
            while len(versions) > 1 and versions[1][0] <= floor:
                del versions[0]
            if len(versions) == 1 and versions[0][1] is None:
                del self._versions[key]
                del self._keys[bisect_left(self._keys, key)]

    def again(self, slot: int) -> RowPut | None:
        """The row in a slot as it is, to be written once more; None: the slot is empty."""
        key = self._key_of.get(slot)
        if key is None:
            return None
        version, value = self._versions[key][-1]
        return RowPut(slot, version, key, value)

    def all(self) -> Iterator[tuple[bytes, bytes, int]]:
        """(key, value, version) of what there is, in order."""
        for key in self._keys:
            version, value = self.newest(key)
            if value is not None:
                yield key, value, version


class RowReads(ReadSnapshot):
    """`Reads` and `Scans`: the rows as of one version, which are kept until it is closed."""

    def __init__(self, rows: Rows, at: int, open_snapshots: dict[int, int]) -> None:
        super().__init__(rows, at)
        self._open: Final = open_snapshots
        self._closed = False
        open_snapshots[at] = open_snapshots.get(at, 0) + 1

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        left = self._open[self.start_ts] - 1
        if left:
            self._open[self.start_ts] = left
        else:
            del self._open[self.start_ts]
