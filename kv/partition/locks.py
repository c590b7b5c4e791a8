"""The intents of the applied state, in memory: by key and in key order.

Reads ask it instead of the `lock` family, whose deleted rows make seeks slow (tens of milliseconds
measured, with the GIL held). Bounded by the transactions in flight: a lock is about 200 bytes plus
LOCK_INLINE_BYTES_MAX of its value; longer values stay on disk until they are resolved. A chunk
intent is one object for all its keys. While it overlaps no other chunk it is known by its first and
last key (kv/partition/chunk_spans.py); else by each of its keys, as single intents are.

The order of keys is a sorted list with lazy deletion: changes are collected and sorted in when
somebody asks for a range. Timsort merges a short tail into a long run in linear time, so no tree is
needed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice, repeat
from typing import Final

from kv.base.limits import LOCK_INLINE_BYTES_MAX
from kv.base.methods import OP_PUT
from kv.mvcc.packed_rows import PackedKeys
from kv.mvcc.records import Lock, decode_chunk_lock, decode_lock, is_chunk
from kv.partition.chunk_spans import Apart

_DEAD_MAX: Final = 64  # deleted keys that may stay in the list for ever
_MANY: Final = 64  # keys from which on it pays to look at all of them together
_NEW_MAX: Final = 10_000  # keys beyond those locked now that may wait to be sorted in


def _is_long(lock: Lock) -> bool:
    """Whether its payload stays on disk."""
    return lock.kind == OP_PUT and len(lock.payload or b"") > LOCK_INLINE_BYTES_MAX


class LockMirror:
    """Implements the mapping part of a lock table. `by_key` (single intents, and keys of chunks
    that overlap others) and `apart` (the other chunks) may be read directly, never changed; the
    order of `by_key` means nothing but in `turn`. No key is in both.
    """

    def __init__(self) -> None:
        self.by_key: dict[bytes, Lock] = {}
        self.apart = Apart()
        self._sorted: list[bytes] = []
        self._new: list[bytes] = []
        self._turned = b""  # the first key of the chunk that `turn` looked at last

    # -- asking

    def __bool__(self) -> bool:
        return bool(self.by_key or self.apart.locks)

    def __len__(self) -> int:
        """How many keys have an intent."""
        return len(self.by_key) + sum(len(lock.chunk) for lock in self.apart.locks)

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self.items())

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def get(self, key: bytes) -> Lock | None:
        lock = self.by_key.get(key)
        return self.apart.get(key) if lock is None and self.apart.locks else lock

    def has_any(self, keys: Sequence[bytes]) -> bool:
        """Whether there is an intent on any of these keys, which rise."""
        if not keys:
            return False
        if self.apart.has_any(keys):
            return True
        if not self.by_key:
            return False
        if not isinstance(keys, PackedKeys):  # they are there: each is looked up
            return not self.by_key.keys().isdisjoint(keys)
        if self._new and len(self._new) + len(self._sorted) <= len(keys):
            self._settle()
        low, high = bisect_left(self._sorted, keys[0]), bisect_right(self._sorted, keys[-1])
        if self._new or high - low > len(keys):
            return not self.by_key.keys().isdisjoint(keys)
        found = [key for key in self._sorted[low:high] if key in self.by_key]
        return bool(found) and not set(keys).isdisjoint(found)

    def items(self) -> Iterator[tuple[bytes, Lock]]:
        """Every key with its intent, in no order. Lazy, as `range`."""
        yield from self.by_key.items()
        for lock in self.apart.locks:
            yield from zip(lock.chunk, repeat(lock))

    def values(self) -> Iterable[Lock]:
        """Every intent, at least once; a chunk not necessarily as often as it has keys."""
        return chain(self.by_key.values(), self.apart.locks)

    # -- following

    def set(self, key: bytes, lock: Lock | None) -> None:
        if lock is None:
            self.by_key.pop(key, None)
            if not self.by_key:
                # Nobody may ask for a range for a long time; and a dict keeps its largest size.
                self._sorted, self._new = [], []
                self.by_key.clear()
            return
        if _is_long(lock):
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
        self._new += locks  # those that were locked before twice, until they are sorted in
        by_key |= {
            key: lock._replace(payload=None) if _is_long(lock) else lock
            for key, lock in locks.items()
            if lock is not None
        }
        if len(self._new) > len(by_key) + _NEW_MAX:
            self._settle()

    def apply(
        self, gone: Iterable[Lock], locks: Mapping[bytes, Lock | None], laid: Iterable[Lock]
    ) -> None:
        """What an entry changed: chunks that went, single keys, new chunks."""
        for lock in gone:
            self.take(lock)
        self.set_all(locks)
        for lock in laid:
            self.lay(lock)

    def lay(self, lock: Lock) -> None:
        """A chunk of keys without intents."""
        if self.apart.add(lock):
            return
        others = self.apart.overlapping(lock.chunk[0], lock.chunk[-1])
        if len(others) == 1:  # of a frame without order: each would have to be searched for others
            self.apart.remove(others[0])
            self._spread(others[0])
        self._spread(lock)

    def take(self, lock: Lock) -> None:
        """The chunk is no intent any more: this very object, as it was found in here."""
        if self.apart.remove(lock):
            return
        gone = [key for key in lock.chunk if self.by_key.get(key) is lock]
        if gone:
            deque(map(self.by_key.pop, gone[1:]), maxlen=0)
            self.set(gone[0], None)

    def follow(self, key: bytes, record: bytes | None) -> None:
        """What a log entry wrote (None: deleted) under `key` in family lock. Raises Corruption."""
        chunk = record is not None and is_chunk(record)
        old = self.get(key)
        if old is not None and old.chunk and (record is None or (chunk and old.chunk[0] == key)):
            self.take(old)
        elif record is None:
            self.set(key, None)
        if record is None:
            return
        if chunk:
            self.lay(decode_chunk_lock(key, record))
        else:
            self.set(key, decode_lock(key, record, inline_bytes_max=LOCK_INLINE_BYTES_MAX))

    def range(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """Keys with an intent in `[start, end)` in order; end b"" = no bound. Lazy, because who
        asks looks at few of perhaps a million: use it up before anything is set.
        """
        single = self._single(start, end) if self.by_key else None
        if not self.apart.locks:
            return single or iter(())
        chunks = self.apart.keys(start, end)
        return chunks if single is None else merge(single, chunks)

    def _single(self, start: bytes, end: bytes) -> Iterator[bytes] | None:
        """`range` of what is known by key; None: nothing is."""
        if self._new or len(self._sorted) > 2 * len(self.by_key) + _DEAD_MAX:
            self._settle()
        low = bisect_left(self._sorted, start)
        high = bisect_left(self._sorted, end) if end else len(self._sorted)
        return self._present(low, high) if low < high else None

    def _present(self, low: int, high: int) -> Iterator[bytes]:
        by_key = self.by_key
        for at in range(low, high):
            key = self._sorted[at]
            if key in by_key:
                yield key

    def turn(self, n: int) -> list[tuple[bytes, Lock]]:
        """The `n` intents that were not looked at for longest, a chunk by its first key if it lies
        apart. They go after all others, so that repeated looks come round to everything, whatever
        stays.
        """
        by_key, apart = self.by_key, self.apart
        found: list[tuple[bytes, Lock]] = []
        if apart.locks:
            at = bisect_right(apart.firsts, self._turned)
            ring = chain(range(at, len(apart.locks)), range(at))
            most = n - n // 2 if by_key else n
            found = [(apart.firsts[i], apart.locks[i]) for i in islice(ring, most)]
            self._turned = found[-1][0] if found else b""
        single = list(islice(by_key.items(), n - len(found)))
        for key, lock in single:
            del by_key[key]
            by_key[key] = lock
        return found + single

    def chunks(self) -> list[Lock]:
        """Every chunk intent, once."""
        overlapping = {id(lock): lock for lock in self.by_key.values() if lock.chunk}
        return [*overlapping.values(), *self.apart.locks]

    def cut(self, key: bytes) -> LockMirror:
        """The partition is split: the intents at `key` and above; the others stay here. No chunk
        lies on both sides, or it would be whole in none (kv/partition/shapes.py sees to it).
        """
        right = LockMirror()
        right.by_key = {one: lock for one, lock in self.by_key.items() if one >= key}
        self.by_key = {one: lock for one, lock in self.by_key.items() if one < key}
        for half in (self, right):
            half._sorted, half._new = [], list(half.by_key)
        chunks, self.apart = self.apart.locks, Apart()
        for lock in chunks:
            (right if lock.chunk[0] >= key else self).apart.add(lock)
        return right

    def join(self, right: LockMirror) -> None:
        """The partition above is merged into this one."""
        for key, lock in right.by_key.items():
            self.set(key, lock)
        for lock in right.apart.locks:
            self.lay(lock)

    def oldest(self) -> int | None:
        """The smallest start_ts of any intent, None if there are none. Looks at all of them."""
        return min((lock.start_ts for lock in self.values()), default=None)

    def clear(self) -> None:
        """Forget everything."""
        self.by_key.clear()
        self.apart.clear()
        self._sorted, self._new = [], []

    def _spread(self, lock: Lock) -> None:
        """Know the chunk by its keys."""
        keys = list(lock.chunk)
        self._new += keys
        self.by_key.update(dict.fromkeys(keys, lock))
        if len(self._new) > len(self.by_key) + _NEW_MAX:
            self._settle()

    def _settle(self) -> None:
        keys = self._sorted + self._new
        keys.sort()
        by_key = self.by_key
        self._sorted = [
            key for i, key in enumerate(keys) if key in by_key and (i == 0 or keys[i - 1] != key)
        ]
        self._new = []
