"""Where the bytes of a partition lie, from samples of what is written: half of them, or any other
share, is found without reading a row (G2).

A map is a sorted list of keys with a weight each: about so many live bytes lie at the keys above
the one before and up to this one. Rows are chosen with a chance that depends on the mean row alone
(one for every SAMPLE_BYTES that are written; rows that are large are all taken), and count for as
many as were passed over, with the bytes that they add or take away. So every sum of weights is an
unbiased estimate, whatever is overwritten, deleted and expired. With 256 points and thousands of
samples, the middle is right to a few per cent.

The map is this replica's own: it follows the entries that are applied here, and its choices come
from a generator of its own, because nothing else depends on them. It is kept with the state DB in
the batches that change it (record `meta_key(partition, SIZES)`), now and then only: what the last
one lacks is a sixteenth of the partition at most, and shifts the middle by less. A snapshot of
another node fills it anew (kv/replica/state.py).

Source: table properties collectors (G2), which the binding of the engine does not have.
Left out: old versions, which a split does not divide by choice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kv.base.limits import SIZE_POINTS_MAX, SIZE_RECORD_BYTES_MAX, KiB, MiB

SAMPLE_BYTES: Final = 16 * KiB
_LARGE_BYTES: Final = 64 * KiB
_KEEP_SHARE: Final = 16  # a record is written again when so much of the partition has changed
_KEEP_BYTES_MIN: Final = 1 * MiB
_MEAN_WEIGHT: Final = 1 / 16
_FORMAT: Final = 1

Noted = Sequence[tuple[bytes, float]]
Rows = Sequence[tuple[bytes, bytes | None, bytes | None, bytes | None]]


class SizeMap:
    """See the module."""

    def __init__(self, seed: int = 1) -> None:
        self._keys: list[bytes] = []
        self._weights: list[float] = []
        self._mean = float(KiB)  # of a row, of those that were looked at
        self._skip = 0  # rows until the next one that is looked at
        self._random = (seed * 2_654_435_761 + 12_345) & 0xFFFFFFFF
        self._changed = 0.0  # bytes noted since it was kept
        self.inserts = self.appended = 0  # new rows that were looked at; of which after the tail
        self._tail: bytes | None = None

    # --------------------------------------------------------------------------------- following

    def choose(self, rows: Rows, grown: int, cur: Callable[[bytes], bytes | None]) -> Noted:
        """The argument of `note` for the rows of an entry; before it is written. `grown`: by how
        much it changes the live bytes; `cur` reads what is there now.
        """
        n = len(rows)
        if self._skip >= n and -_LARGE_BYTES <= grown <= _LARGE_BYTES:  # nearly always
            self._skip -= n
            return ()
        large = abs(grown) > _LARGE_BYTES + 2 * self._mean * n
        chosen: list[tuple[bytes, float]] = []
        stride = max(1.0, SAMPLE_BYTES / self._mean)
        at = self._skip
        while at < n:
            key, record, *_ = rows[at]
            new = 0 if record is None else len(record)
            if not large or new < _LARGE_BYTES:
                old = cur(key)
                self._mean += ((len(key) + max(new, len(old or b""))) - self._mean) * _MEAN_WEIGHT
                if old is None and new:
                    self.inserts += 1
                    self.appended += self._tail is not None and key > self._tail
                if change := _change(key, new, old):
                    chosen.append((key, change * stride))
            at += self._gap(stride)
        self._skip = at - n
        if large:
            for key, record, *_ in rows:
                if (
                    record is not None
                    and len(record) >= _LARGE_BYTES
                    and (change := _change(key, len(record), cur(key)))
                ):
                    chosen.append((key, float(change)))
        return chosen

    def _gap(self, stride: float) -> int:
        """1 and more, `stride` on the average; entries of equal length must not beat with it."""
        if stride <= 1.0:
            return 1
        self._random = (self._random * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF
        spread = 2.0 * (stride - 1.0)
        return 1 + int(self._random / 4_294_967_296 * spread + 0.5)

    def note(self, chosen: Noted) -> None:
        """The entry was written."""
        for key, change in chosen:
            self._changed += abs(change)
            if change > 0:
                self._add(key, change)
            else:
                self._take(key, -change)
        if len(self._keys) > SIZE_POINTS_MAX:
            self._merge(SIZE_POINTS_MAX // 2)

    def _add(self, key: bytes, weight: float) -> None:
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            self._weights[at] += weight
        else:
            self._keys.insert(at, key)
            self._weights.insert(at, weight)

    def _take(self, key: bytes, weight: float) -> None:
        """Take bytes away at a key, and where its point has no more, around it."""
        keys, weights = self._keys, self._weights
        if not keys:
            return
        high = min(bisect_left(keys, key), len(keys) - 1)
        low, up = high - 1, True
        while weight > 0 and (high < len(keys) or low >= 0):
            if low < 0 or (up and high < len(keys)):
                here, high = high, high + 1
            else:
                here, low = low, low - 1
            up = not up
            taken = min(weight, weights[here])
            weights[here] -= taken
            weight -= taken
        around = range(low + 1, high)
        kept = [i for i in around if weights[i] > 0]
        keys[low + 1 : high] = [keys[i] for i in kept]
        weights[low + 1 : high] = [weights[i] for i in kept]

    def _merge(self, points: int) -> None:
        """Neighbours become one until there are about so many, none much heavier than the mean."""
        each = sum(self._weights) / points
        keys: list[bytes] = []
        weights: list[float] = []
        sum_, last = 0.0, b""
        for key, weight in zip(self._keys, self._weights, strict=True):
            if sum_ and sum_ + weight > each:
                keys.append(last)
                weights.append(sum_)
                sum_ = 0.0
            sum_ += weight
            last = key
        if sum_:
            keys.append(last)
            weights.append(sum_)
        self._keys, self._weights = keys, weights

    # ------------------------------------------------------------------------------------ asking

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def total(self) -> float:
        """The live bytes as the samples have them: for how far they may be believed."""
        return sum(self._weights)

    def share_below(self, key: bytes) -> float:
        """Which part of the bytes lies below a key; half, where nothing is known."""
        total = self.total
        if not total:
            return 0.5
        return sum(self._weights[: bisect_left(self._keys, key)]) / total

    def key_at(self, share: float) -> bytes | None:
        """The key such that about this share of the bytes lies below it; None: nothing is known,
        or a single row has it all.
        """
        wanted = self.total * share
        below = best = 0.0
        found: bytes | None = None
        for key, weight in zip(self._keys, self._weights, strict=True):
            if below and (found is None or abs(below - wanted) < abs(best - wanted)):
                found, best = key, below
            below += weight
        return found

    def watch_tail(self, share: float) -> None:
        """Count new rows as appended from now on if they lie above this share of the bytes."""
        self._tail = self.key_at(share)

    # --------------------------------------------------------------------------- cut, join, keep

    def cut(self, key: bytes) -> SizeMap:
        """The partition is split: the map of what lies at `key` and above; the rest stays here."""
        at = bisect_left(self._keys, key)
        right = SizeMap(len(self._keys) + 1)
        right._mean = self._mean
        right._tail = self._tail
        right._keys, right._weights = self._keys[at:], self._weights[at:]
        self._keys, self._weights = self._keys[:at], self._weights[:at]
        self._changed = right._changed = float("inf")
        return right

    def join(self, right: SizeMap) -> None:
        """The partition above is merged into this one."""
        assert not self._keys or not right._keys or self._keys[-1] < right._keys[0]
        self._keys += right._keys
        self._weights += right._weights
        self._changed = float("inf")
        if len(self._keys) > SIZE_POINTS_MAX:
            self._merge(SIZE_POINTS_MAX // 2)

    def scaled(self, share: float) -> SizeMap:
        """The same points, each with that share of its weight."""
        found = SizeMap()
        if share > 0:
            found._keys, found._weights = list(self._keys), [w * share for w in self._weights]
        return found

    def mix(self, other: SizeMap) -> None:
        """Add the points of another map, wherever they lie."""
        self.note(list(zip(other._keys, other._weights, strict=True)))

    def due(self) -> bool:
        """Whether the stored record is too old by now."""
        if self._changed < _KEEP_BYTES_MIN:
            return False
        return self._changed >= self.total / _KEEP_SHARE

    def record(self) -> bytes:
        """To be stored, unsealed; SIZE_RECORD_BYTES_MAX at most."""
        keys, weights = self._keys, self._weights
        points = max(1, len(keys))
        while sum(map(len, keys)) + 9 * len(keys) > SIZE_RECORD_BYTES_MAX and points > 1:
            points //= 2
            kept = SizeMap()
            kept._keys, kept._weights = keys, weights
            kept._merge(points)
            keys, weights = kept._keys, kept._weights
        self._changed = 0.0
        return msgspec.msgpack.encode([_FORMAT, self._mean, keys, weights])

    @staticmethod
    def of(record: bytes) -> SizeMap:
        """Raises ValueError. One of another format is forgotten: nothing but estimates are in
        it.
        """
        found = SizeMap()
        try:
            format_, mean, keys, weights = _decode(record)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error
        if format_ == _FORMAT:
            found._mean, found._keys, found._weights = mean, keys, weights
        return found


_decode = msgspec.msgpack.Decoder(tuple[int, float, list[bytes], list[float]]).decode


def _change(key: bytes, new: int, old: bytes | None) -> int:
    """By how much the live bytes grow when a record of `new` bytes (0: none) takes the place."""
    before = 0 if old is None else len(key) + len(old)
    return (len(key) + new if new else 0) - before


def rows_of(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes, None, None]]:
    """Rows of a snapshot, for `choose`."""
    return [(key, record, None, None) for key, record in pairs]
