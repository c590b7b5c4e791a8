"""Durations as histograms: a few integers that cost one search to add to and nothing to keep."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from kv.storage.log import SyncDone
from kvorum.local.ports import Syncer

POINTS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    10,
)


class Histogram:
    """How often something took how long. `counts[i]` were at most POINTS_S[i] and longer than the
    point before; the last count is of those beyond all points.
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(POINTS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(POINTS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        """`(upper bound, how many were at most that)`, as Prometheus has them."""
        found, below = [], 0
        for edge, n in zip((*map(str, POINTS_S), "+Inf"), self.counts, strict=True):
            below += n
            found.append((edge, below))
        return found


class TimedSyncer:
    """A syncer whose syncs are timed: from the call until the loop learns the outcome, which is
    what writers wait for.
    """

    def __init__(self, inner: Syncer, monotonic: Callable[[], float], taken: Histogram) -> None:
        self._inner = inner
        self._monotonic = monotonic
        self._taken = taken

    def start(self, done: SyncDone) -> None:
        began = self._monotonic()

        def timed(error: BaseException | None) -> None:
            self._taken.add(self._monotonic() - began)
            done(error)

        self._inner.start(timed)

    def close(self) -> None:
        self._inner.close()
