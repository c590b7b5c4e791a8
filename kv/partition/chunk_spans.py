"""Chunk intents whose keys lie apart: each is known by where it begins and ends, not by its keys.

A large load lays one chunk of some thousand rows after the other, and the keys of one lie between
no keys of another. So a sorted list of the chunks says whose a key is, and nothing is done for each
key when a chunk comes or goes. Chunks that lie in each other (of a frame that is not sorted) are
not taken: their keys belong into a dictionary (kv/partition/locks.py, entry.py).

Invariant: the chunks in here rise and do not overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from kv.mvcc.packed_rows import PackedKeys, all_keys
from kv.mvcc.records import Lock

_FEW: Final = 16  # of so many keys of a chunk one is searched for; more are looked at together


class Apart:
    """See the module. `firsts` and `lasts`, the outermost keys of `locks`, may be read directly."""

    __slots__ = ("firsts", "lasts", "locks")

    def __init__(self) -> None:
        self.firsts: list[bytes] = []
        self.lasts: list[bytes] = []
        self.locks: list[Lock] = []

    def add(self, lock: Lock) -> bool:
        """Take the chunk in. False: it overlaps another one, nothing was done."""
        first, last = lock.chunk[0], lock.chunk[-1]
        at = bisect_right(self.firsts, last)
        if at and self.lasts[at - 1] >= first:
            return False
        self.firsts.insert(at, first)
        self.lasts.insert(at, last)
        self.locks.insert(at, lock)
        return True

    def remove(self, lock: Lock) -> bool:
        """Whether this very object was in here."""
        at = bisect_left(self.firsts, lock.chunk[0])
        if at == len(self.locks) or self.locks[at] is not lock:
            return False
        del self.firsts[at], self.lasts[at], self.locks[at]
        return True

    def get(self, key: bytes) -> Lock | None:
        """The chunk that has this key."""
        at = bisect_right(self.firsts, key) - 1
        return self.locks[at] if at >= 0 and has(self.locks[at], key) else None

    def has_any(self, keys: Sequence[bytes]) -> bool:
        """Whether a chunk has one of these keys, which rise. Of chunks between two of them nothing
        is looked at.
        """
        if not keys or not (chunks := self.overlapping(keys[0], keys[-1])):
            return False
        keys, high = all_keys(keys), 0
        for lock in chunks:
            low = bisect_left(keys, lock.chunk[0], high)
            high = bisect_right(keys, lock.chunk[-1], low)
            if low == high:
                continue
            mine = keys[low:high]
            if len(mine) * _FEW < len(lock.chunk):
                if any(has(lock, key) for key in mine):
                    return True
            elif not set(mine).isdisjoint(lock.chunk):
                return True
        return False

    def overlapping(self, first: bytes, last: bytes) -> list[Lock]:
        """The chunks that begin at or below `last` and end at or above `first`."""
        low = bisect_left(self.lasts, first)
        return self.locks[low : bisect_right(self.firsts, last, low)]

    def keys(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """Those in `[start, end)`, in order; end b"" = no bound."""
        low = bisect_left(self.lasts, start)
        high = bisect_left(self.firsts, end, low) if end else len(self.firsts)
        for lock in self.locks[low:high]:
            yield from between(lock, start, end)

    def clear(self) -> None:
        self.firsts.clear()
        self.lasts.clear()
        self.locks.clear()


def has(lock: Lock, key: bytes) -> bool:
    """Whether a chunk has this key."""
    keys = lock.chunk
    if isinstance(keys, PackedKeys):
        return key in keys
    return keys[0] <= key <= keys[-1] and keys[bisect_left(keys, key)] == key


def between(lock: Lock, start: bytes, end: bytes) -> Sequence[bytes]:
    """The keys of a chunk in `[start, end)`; end b"" = no bound."""
    if lock.chunk[-1] < start or (end and lock.chunk[0] >= end):
        return ()
    keys = all_keys(lock.chunk)
    low = bisect_left(keys, start)
    high = bisect_left(keys, end, low) if end else len(keys)
    return keys[low:high]
