"""Guards: what serializable transactions have read, protected until their outcome is known; and
shared row locks (kv.mvcc.share).

A guard is a shared, durable read lock on a key or on a range `[start, end)`, so that it also keeps
rows out that nobody has seen yet (phantoms). Guards do not exclude each other; a write of another
transaction meets one like an intent (KEY_LOCKED, kind "guard") and readers never look at them. A
guard says nothing about the outcome: whoever finds its transaction finished removes it (`resolve`).

    guard   esc(start) 00 01 [start_ts 8]
            [msgpack [end | nil = the one key, anchor, ttl_ms, before_ts, min_commit_ts, user?,
            shared?]], sealed by its key

`end` b"" = no bound. ttl_ms counts from the physical part of start_ts, as that of an intent.
before_ts: a record that was read expires then, so the transaction must commit below it; 0 = none.
min_commit_ts: the bound of a parallel commit, as that of an intent (kv.mvcc.recover); 0 = none.
shared: the strength of a row lock (kv.base.strengths); 0 = something was read. User and shared are
left out from the end where they are empty.

The table is in memory, of what is evaluated and of what is applied. Looking a key up is one dict
and, if there are ranges, one bisection: they are sorted by start, beside the furthest end of all up
to there, and sorted anew only when a range came or went since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final

import msgpack

from kv.base.checksum import CRC_BYTES, seal
from kv.base.keys import escape, u64
from kv.base.limits import KEY_BYTES_MAX
from kv.base.strengths import EXCLUDED, UPDATE
from kv.mvcc.records import parse_txn_key, verified

_BEYOND: Final = b"\xff" * (KEY_BYTES_MAX + 8)  # above every storage key
_pack = msgpack.Packer(use_bin_type=True).pack

At = tuple[bytes, int]
"""(start, start_ts): one guard of one transaction."""


@dataclass(frozen=True, slots=True)
class Guard:
    """`end` None: of the key `start` alone."""

    start: bytes
    end: bytes | None
    start_ts: int
    anchor: bytes
    ttl_ms: int
    before_ts: int = 0
    min_commit_ts: int = 0
    user: str = ""  # whose it is (kv/base/intents.py)
    shared: int = 0

    def stops(self, wanted: int, *, lock: bool) -> bool:
        """Whether others may not write, or `lock`, with this strength."""
        return wanted in EXCLUDED[self.shared] if self.shared else not lock

    @property
    def past(self) -> bytes:
        """The first key above the guarded ones, for comparisons."""
        return self.start + b"\x00" if self.end is None else self.end or _BEYOND


def guard_key(start: bytes, start_ts: int) -> bytes:
    return escape(start) + u64(start_ts)


def encode_guard(guard: Guard) -> bytes:
    g = guard
    said = [g.end, g.anchor, g.ttl_ms, g.before_ts, g.min_commit_ts]
    more = [g.user, g.shared] if g.shared else [g.user] if g.user else []
    body: bytes = _pack([*said, *more])
    return seal(guard_key(guard.start, guard.start_ts), body)


def decode_guard(key: bytes, record: bytes) -> Guard:
    """Raises Corruption."""
    verified("guard", key, record)
    start, start_ts = parse_txn_key(key)
    end, anchor, ttl_ms, before_ts, *more = msgpack.unpackb(memoryview(record)[:-CRC_BYTES])
    return Guard(start, end, start_ts, anchor, ttl_ms, before_ts, *more)


class GuardTable:
    """See the module."""

    def __init__(self) -> None:
        self.by_at: dict[At, Guard] = {}
        self._points: dict[bytes, dict[int, Guard]] = {}
        self._ranges: dict[At, Guard] = {}
        self._sorted: list[Guard] | None = None  # the ranges; None = to be sorted
        self._starts: list[bytes] = []
        self._furthest: list[bytes] = []  # the largest `past` of the ranges up to each

    def copy(self) -> GuardTable:
        made = GuardTable()
        for at, guard in self.by_at.items():
            made.set(at, guard)
        return made

    def set(self, at: At, guard: Guard | None) -> None:
        """Put the guard in the place of what is there; None removes it."""
        old = self.by_at.pop(at, None)
        if old is not None and old.end is None:
            here = self._points[at[0]]
            del here[at[1]]
            if not here:
                del self._points[at[0]]
        elif old is not None:
            del self._ranges[at]
            self._sorted = None
        if guard is None:
            return
        self.by_at[at] = guard
        if guard.end is None:
            self._points.setdefault(at[0], {})[at[1]] = guard
        else:
            self._ranges[at] = guard
            self._sorted = None

    def follow(self, key: bytes, record: bytes | None) -> None:
        """What a log entry wrote (None: deleted) under `key` in family guard. Raises Corruption."""
        self.set(parse_txn_key(key), None if record is None else decode_guard(key, record))

    def meets(
        self, key: bytes, start_ts: int, user: str = "", wanted: int = UPDATE, *, lock: bool = False
    ) -> Guard | None:
        """A guard on `key` of another transaction than `start_ts` of this user, which stops what
        is `wanted`: a strength, to write, or to `lock`.
        """
        for guard in self._on(key):
            others = guard.start_ts != start_ts or guard.user != user
            if others and guard.stops(wanted, lock=lock):
                return guard
        return None

    def holds(self, key: bytes, start_ts: int, user: str = "") -> bool:
        """Whether this transaction guards `key`."""
        return any(one.start_ts == start_ts and one.user == user for one in self._on(key))

    def _on(self, key: bytes) -> Iterator[Guard]:
        """All guards on `key`."""
        if key in self._points:
            yield from self._points[key].values()
        if not self._ranges:
            return
        ranges = self._in_order()
        i = bisect_right(self._starts, key) - 1
        while i >= 0 and self._furthest[i] > key:
            if ranges[i].past > key:
                yield ranges[i]
            i -= 1

    def meets_any(
        self, keys: Sequence[bytes], start_ts: int, user: str = ""
    ) -> tuple[bytes, Guard] | None:
        """The first of `keys` (they rise) that another transaction guards."""
        if self._points.keys().isdisjoint(keys):
            between = (bisect_left(keys, g.past) - bisect_left(keys, g.start) for g in self._each())
            if not any(between):
                return None
        for key in keys:
            guard = self.meets(key, start_ts, user)
            if guard is not None:
                return key, guard
        return None

    def cut(self, key: bytes) -> GuardTable:
        """The partition is split: the guards that begin at `key` or above; the others, which must
        end there, stay here.
        """
        right = GuardTable()
        for at in [at for at in self.by_at if at[0] >= key]:
            right.set(at, self.by_at[at])
            self.set(at, None)
        return right

    def join(self, right: GuardTable) -> None:
        """The partition above is merged into this one."""
        for at, guard in right.by_at.items():
            self.set(at, guard)

    def turn(self, n: int) -> list[Guard]:
        """The `n` guards that were not looked at for longest; they go after all others."""
        found = list(islice(self.by_at.items(), n))
        for at, guard in found:
            del self.by_at[at]
            self.by_at[at] = guard
        return [guard for _, guard in found]

    def oldest(self) -> int | None:
        """The smallest start_ts, None if there are none. Looks at all of them."""
        return min((start_ts for _, start_ts in self.by_at), default=None)

    def _each(self) -> Iterator[Guard]:
        return iter(self._ranges.values())

    def _in_order(self) -> list[Guard]:
        ranges = self._sorted
        if ranges is None:
            ranges = self._sorted = sorted(self._ranges.values(), key=_start_of)
            self._starts = [guard.start for guard in ranges]
            self._furthest = list(accumulate((guard.past for guard in ranges), max))
        return ranges


def _start_of(guard: Guard) -> bytes:
    return guard.start
