"""What a partition's requests are like, for reports and for splits by load. Four additions per
drain; one request in SAMPLE_EVERY is looked at.

    Traffic     rising sums, and the keys of some requests, chosen by chance
    HotKeys     which keys are asked for most: the space-saving sketch (Metwally, Agrawal, El Abbadi
                2005): a bounded number of counters, each with the most that it may be too high by
    Rates       the sums as averages per second that forget (time constant RATE_S)

Only the replica that leads has traffic. The choice of samples is from a generator of its own; no
clock is read here.

Left out: whether a read met the block cache; the binding of the engine does not say. Its share is
zero in the units (kv/base/traffic.py) until it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Final, NamedTuple

from kv.base.limits import HOT_KEYS_MAX, HOT_KEYS_REPORTED_MAX, LOAD_KEYS_MAX
from kv.base.traffic import Load

SAMPLE_EVERY: Final = 64
RATE_S: Final = 10.0
HOT_SHARE_MIN: Final = 0.05  # of the requests, for sure: else a key is not hot
_SAMPLES_MIN: Final = 40  # below it nothing is called hot, and no point is found
_HALVE_AT: Final = 2_048  # samples, after which old ones count half
_SIDE_SHARE_MIN: Final = 0.2  # of the requests that each side of a cut must take


class HotKey(NamedTuple):
    """A key and its share of all keys asked for; it has at least that."""

    key: bytes
    share: float


class HotKeys:
    """See the module. Estimates never fall below the truth; `hot` takes off what they may exceed
    it by.
    """

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: dict[bytes, list[int]] = {}  # key → [count, of which perhaps another's]
        self.total = 0

    def add(self, key: bytes) -> None:
        """One request."""
        self.total += 1
        counts = self._counts
        found = counts.get(key)
        if found is not None:
            found[0] += 1
        elif len(counts) < HOT_KEYS_MAX:
            counts[key] = [1, 0]
        else:
            least = min(counts, key=lambda k: counts[k][0])
            (count, _) = counts.pop(least)
            counts[key] = [count + 1, count]
        if self.total >= _HALVE_AT:
            self._forget_half()

    def _forget_half(self) -> None:
        self.total //= 2
        halves = {key: [n // 2, error // 2] for key, (n, error) in self._counts.items()}
        self._counts = {key: pair for key, pair in halves.items() if pair[0]}

    def hot(self) -> list[HotKey]:
        """The hottest, HOT_KEYS_REPORTED_MAX at most, with the share that they have for sure."""
        if self.total < _SAMPLES_MIN:
            return []
        sure = sorted(
            ((count - error, key) for key, (count, error) in self._counts.items()), reverse=True
        )
        return [
            HotKey(key, count / self.total)
            for count, key in sure[:HOT_KEYS_REPORTED_MAX]
            if count >= HOT_SHARE_MIN * self.total
        ]


class Traffic:
    """The sums only rise. The machine adds to them, and calls `sample` when `until` falls below
    zero: it has fallen by the number of keys of the drain.
    """

    __slots__ = (
        "_at",
        "_random",
        "_recent",
        "hot",
        "read_bytes",
        "reads",
        "until",
        "write_bytes",
        "writes",
    )

    def __init__(self, seed: int = 1) -> None:
        self.reads = self.writes = self.read_bytes = self.write_bytes = 0
        self.until = SAMPLE_EVERY
        self.hot = HotKeys()
        self._random = (seed * 2_654_435_761 + 40_503) & 0xFFFFFFFF
        self._recent: list[bytes] = []  # a ring, of LOAD_KEYS_MAX
        self._at = 0

    def sample(self, keys: Sequence[bytes]) -> None:
        """Look at the keys on which the countdown ended, and begin it anew."""
        n = len(keys)
        at = n + self.until  # how far into these it went
        while at < n:
            self._take(keys[at])
            at += self._gap()
        self.until = at - n

    def _gap(self) -> int:
        self._random = (self._random * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF
        return 1 + (self._random >> 8) % (2 * SAMPLE_EVERY - 1)

    def _take(self, key: bytes) -> None:
        self.hot.add(key)
        if len(self._recent) < LOAD_KEYS_MAX:
            self._recent.append(key)
        else:
            self._recent[self._at] = key
            self._at = (self._at + 1) % LOAD_KEYS_MAX

    def load_key(self) -> bytes | None:
        """A key such that about half of the recent requests go below it. None: too few are known,
        or one key has so many of them that no cut would divide them.
        """
        keys = sorted(self._recent)
        n = len(keys)
        if n < _SAMPLES_MIN:
            return None
        best: bytes | None = None
        apart = n * (0.5 - _SIDE_SHARE_MIN)
        for i in range(1, n):
            if keys[i] != keys[i - 1] and abs(i - n / 2) <= apart:
                best, apart = keys[i], abs(i - n / 2)
        return best


@dataclass(frozen=True, slots=True)
class Sums:
    """Of a Traffic at some moment."""

    reads: int
    read_bytes: int
    writes: int
    write_bytes: int

    @staticmethod
    def of(traffic: Traffic) -> Sums:
        return Sums(traffic.reads, traffic.read_bytes, traffic.writes, traffic.write_bytes)


class Rates:
    """Averages per second that forget with RATE_S."""

    __slots__ = ("_at_s", "_last", "per_s")

    def __init__(self, sums: Sums, now_s: float) -> None:
        self._last, self._at_s = sums, now_s
        self.per_s = Load()

    def look(self, sums: Sums, now_s: float) -> Load:
        """The averages with what came since the last look."""
        passed = now_s - self._at_s
        if passed <= 0:
            return self.per_s
        keep = exp(-passed / RATE_S)
        last, old = self._last, self.per_s

        def rate(now: int, before: int, average: float) -> float:
            fresh = average * keep + (now - before) / passed * (1 - keep)
            return fresh if fresh >= 0.05 else 0.0

        self.per_s = Load(
            reads=rate(sums.reads, last.reads, old.reads),
            read_bytes=rate(sums.read_bytes, last.read_bytes, old.read_bytes),
            writes=rate(sums.writes, last.writes, old.writes),
            write_bytes=rate(sums.write_bytes, last.write_bytes, old.write_bytes),
        )
        self._last, self._at_s = sums, now_s
        return self.per_s
