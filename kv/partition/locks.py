"""The intents of the applied state, in memory: by key and in key order.

Reads ask it instead of the `lock` family, whose deleted rows make seeks slow (tens of milliseconds
measured, with the GIL held). Bounded by the transactions in flight: a lock is about 200 bytes plus
LOCK_INLINE_BYTES_MAX of its value; longer values stay on disk until they are resolved. A chunk
intent is one object for all its keys, which are about all that it holds here.

The order is a sorted list with lazy deletion: changes are collected and sorted in when somebody
asks for a range. Timsort merges a short tail into a long run in linear time, so no tree is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice, repeat
from typing import Final

from kv.base.limits import LOCK_INLINE_BYTES_MAX
from kv.mvcc.records import Lock, decode_chunk, decode_lock, is_chunk

_DEAD_MAX: Final = 64  # deleted keys that may stay in the list for ever
_MANY: Final = 64  # keys from which on it pays to look at all of them together
_NEW_MAX: Final = 10_000  # keys beyond those locked now that may wait to be sorted in


class LockMirror:
    """Implements the mapping part of a lock table. `by_key` may be read directly, never changed;
    its order means nothing but in `turn`.
    """

    def __init__(self) -> None:
        self.by_key: dict[bytes, Lock] = {}
        self._sorted: list[bytes] = []
        self._new: list[bytes] = []

    def set(self, key: bytes, lock: Lock | None) -> None:
        if lock is None:
            self.by_key.pop(key, None)
            if not self.by_key:
                # Nobody may ask for a range for a long time; and a dict keeps its largest size.
                self._sorted, self._new = [], []
                self.by_key.clear()
            return
        if lock.payload is not None and len(lock.payload) > LOCK_INLINE_BYTES_MAX:
            lock = lock._replace(payload=None)
        if key in self.by_key:
            self.by_key[key] = lock
            return
        self.by_key[key] = lock  # first: settling forgets the order of what is not locked
        self._new.append(key)
        if len(self._new) > len(self.by_key) + _NEW_MAX:
            self._settle()

    def set_all(self, locks: Mapping[bytes, Lock | None]) -> None:
        """`set` of each; little is done per key where a chunk intent brings or takes many."""
        gone = [key for key, lock in locks.items() if lock is None]
        if len(locks) < _MANY or (gone and len(gone) < len(locks)):
            for key, lock in locks.items():
                self.set(key, lock)
            return
        by_key = self.by_key
        if gone:
            deque(map(by_key.pop, gone[1:], repeat(None)), maxlen=0)
            self.set(gone[0], None)
            return
        kept = {
            key: lock._replace(payload=None)
            for key, lock in locks.items()
            if lock is not None and lock.payload and len(lock.payload) > LOCK_INLINE_BYTES_MAX
        }
        self._new += locks  # those that were locked before twice, until they are sorted in
        by_key.update(locks)  # type: ignore[arg-type]  # there is no None among them
        by_key.update(kept)
        if len(self._new) > len(by_key) + _NEW_MAX:
            self._settle()

    def follow(self, key: bytes, record: bytes | None) -> None:
        """What a log entry wrote (None: deleted) under `key` in family lock. Raises Corruption."""
        if record is None:
            old = self.by_key.get(key)
            for one in old.chunk if old is not None and old.chunk else (key,):
                self.set(one, None)
        elif is_chunk(record):
            lock, _ = decode_chunk(key, record)
            for one in lock.chunk:
                self.set(one, lock)
        else:
            self.set(key, decode_lock(key, record, inline_bytes_max=LOCK_INLINE_BYTES_MAX))

    def range(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """Keys with an intent in `[start, end)` in order; end b"" = no bound. Lazy, because who
        asks looks at few of perhaps a million: use it up before anything is set.
        """
        if not self.by_key:
            return
        if self._new or len(self._sorted) > 2 * len(self.by_key) + _DEAD_MAX:
            self._settle()
        low = bisect_left(self._sorted, start)
        high = bisect_left(self._sorted, end) if end else len(self._sorted)
        by_key = self.by_key
        for at in range(low, high):
            key = self._sorted[at]
            if key in by_key:
                yield key

    def turn(self, n: int) -> list[tuple[bytes, Lock]]:
        """The `n` intents that were not looked at for longest. They go behind all others, so that
        repeated looks come round to everything, whatever stays.
        """
        by_key = self.by_key
        found = list(islice(by_key.items(), n))
        for key, lock in found:
            del by_key[key]
            by_key[key] = lock
        return found

    def cut(self, key: bytes) -> LockMirror:
        """The partition is split: the intents at `key` and above; the others stay here."""
        right = LockMirror()
        right.by_key = {one: lock for one, lock in self.by_key.items() if one >= key}
        self.by_key = {one: lock for one, lock in self.by_key.items() if one < key}
        for half in (self, right):
            half._sorted, half._new = [], list(half.by_key)
        return right

    def join(self, right: LockMirror) -> None:
        """The partition above is merged into this one."""
        for key, lock in right.by_key.items():
            self.set(key, lock)

    def oldest(self) -> int | None:
        """The smallest start_ts of any intent, None if there are none. Looks at all of them."""
        return min((lock.start_ts for lock in self.by_key.values()), default=None)

    def _settle(self) -> None:
        keys = self._sorted + self._new
        keys.sort()
        by_key = self.by_key
        self._sorted = [
            key for i, key in enumerate(keys) if key in by_key and (i == 0 or keys[i - 1] != key)
        ]
        self._new = []
